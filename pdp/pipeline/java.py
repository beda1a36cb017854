"""Java of this machine, checked before Spark starts: a wrong Java fails late, with a page of stack traces."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from pdp.errors import ConfigError

OLDEST: Final = 17
NEWEST: Final = 23
"""Versions of Java that Spark 4.1 runs on. Java 24 has no security manager, which Hadoop's login calls."""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_HINT: Final = f"Spark needs Java {OLDEST} or 21: install one, and let JAVA_HOME name its folder"


def check_java() -> None:
    """Raise ConfigError if there is no Java, or none that Spark runs on."""
    java = _java()
    if java is None:
        raise ConfigError(f"there is no Java: {_HINT}")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  the operator's own Java
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"cannot run `{java}`: {error}: {_HINT}") from None
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None:
        raise ConfigError(f"`{java} -version` names no version: {_HINT}")
    if not OLDEST <= int(found[1]) <= NEWEST:
        raise ConfigError(f"`{java}` is Java {found[1]}: {_HINT}")


def _java() -> str | None:
    """Return the program that Spark's own script would start."""
    if home := os.environ.get("JAVA_HOME"):
        program = Path(home) / "bin" / "java"
        if not program.is_file():
            raise ConfigError(f"JAVA_HOME is `{home}`, which has no `bin/java`: {_HINT}")
        return str(program)
    return shutil.which("java")
