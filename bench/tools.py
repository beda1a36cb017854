"""Programs that the comparison needs and Python does not bring."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

OPA_VERSION: Final = "1.22.0"
GET_OPA: Final = f"go install github.com/open-policy-agent/opa@v{OPA_VERSION}"
GET_WRK: Final = "apt-get install wrk"


def opa() -> str:
    """Return the path of OPA, on PATH or in Go's folder. Exit if this version is not installed."""
    found = shutil.which("opa") or shutil.which("opa", path=str(Path.home() / "go" / "bin"))
    if found is None:
        raise SystemExit(f"OPA {OPA_VERSION} is not installed: {GET_OPA}")
    printed = subprocess.run([found, "version"], capture_output=True, text=True, check=True, timeout=60).stdout
    version = next((line.split()[1] for line in printed.splitlines() if line.startswith("Version:")), "unknown")
    if version != OPA_VERSION:
        raise SystemExit(f"{found} is OPA {version}, and the table compares with {OPA_VERSION}: {GET_OPA}")
    return found


def wrk() -> str:
    """Return the path of wrk. Exit if it is not installed."""
    found = shutil.which("wrk")
    if found is None:
        raise SystemExit(f"wrk, which sends the load, is not installed: {GET_WRK}")
    return found
