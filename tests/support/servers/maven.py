"""Real servers for tests, fetched once from Maven Central and checked."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from support.untested import not_tested


def fetched(artifact: str, file: Path, sha256: str, untested: str, *, seconds: float = 600) -> Path:
    """An artifact's file, checked; skips, saying what goes untested, where it cannot be had."""
    if not file.exists():
        if shutil.which("mvn") is None:
            not_tested(untested, "no `mvn` on the PATH")
        file.parent.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={file.parent}"]
        try:
            subprocess.run(command, check=True, timeout=seconds, cwd=file.parent, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            not_tested(untested, f"{artifact} cannot be fetched: {error}", "a network with Maven Central")
    with file.open("rb") as read:
        found = hashlib.file_digest(read, "sha256").hexdigest()
    assert found == sha256, f"{file} is not what it was: {found}"
    return file
