"""Installation of the separate package `acme-engines` into a folder: a wheel, installed by pip without the network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from support.paths import TESTS

MODULE = TESTS / "engines" / "custom" / "acme" / "acme_engines.py"
ENTRY_POINTS = """\
[pdp.engines]
acme_names = acme_engines:NameEngine
acme_remote = acme_engines:RemoteEngine
acme_broken = acme_engines:BrokenEngine
acme_late = acme_engines:LateEngine
acme_none = acme_engines:no_engine
acme_file = acme_engines:FileEngine
acme_awaited_file = acme_engines:AwaitedFileEngine
acme_unstable = acme_engines:UnstableEngine
acme_missing = acme_engines_missing:Engine

[pdp.scopes]
acme_admin = acme_engines:is_admin
acme_recorded = acme_engines:recorded
acme_in_file = acme_engines:in_file
acme_constant = acme_engines:NAME
"""


def install_acme(folder: Path) -> Path:
    """Install the package into a folder, and return the folder for the path of imports."""
    wheel, target = folder / "acme_engines-1.0-py3-none-any.whl", folder / "site"
    info = "acme_engines-1.0.dist-info"
    files = {
        "acme_engines.py": MODULE.read_text(encoding="utf-8"),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: acme-engines\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": ENTRY_POINTS,
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    options = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(wheel)]
    subprocess.run(command, check=True, timeout=120)
    return target
