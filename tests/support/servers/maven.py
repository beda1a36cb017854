"""Real servers for tests, fetched once from Maven Central and checked."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from support.untested import not_tested


def fetched(artifact: str, file: Path, sha256: str, untested: str, *, seconds: float = 600) -> Path:
    """An artifact's file, checked; skips, saying what goes untested, where it cannot be had."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with (file.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process of tests fetches, the others wait
        if not file.exists():
            _fetch(artifact, file, untested, seconds)
    with file.open("rb") as read:
        found = hashlib.file_digest(read, "sha256").hexdigest()
    assert found == sha256, f"{file} is not what it was: {found}"
    return file


def _fetch(artifact: str, file: Path, untested: str, seconds: float) -> None:
    """Make the file in one step, so that an ended run leaves no part of it."""
    if shutil.which("mvn") is None:
        not_tested(untested, "no `mvn` on the PATH")
    with tempfile.TemporaryDirectory(prefix=".maven-", dir=file.parent) as folder:
        command = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        try:
            subprocess.run(command, check=True, timeout=seconds, cwd=folder, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            not_tested(untested, f"{artifact} cannot be fetched: {error}", "a network with Maven Central")
        (Path(folder) / file.name).rename(file)
