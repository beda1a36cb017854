"""Trino's own server for tests: fetched once from Maven Central, checked, and kept with the few plugins it needs.

Where it cannot be had, or no Java can run it, tests are skipped, and the run says so.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from support.servers.maven import fetched
from support.untested import not_tested

VERSION = "476"
ARTIFACT = f"io.trino:trino-server:{VERSION}:tar.gz"
SHA256 = "cfd5accde17e8ebd251eeeb78aed1f490e77bb3a164d95a0f454bf8a7c1cbd3f"
CLI_SHA256 = "fe4e9c7fb569cd67673afa1622945f6308e1e59bdb825419352b80887661757b"
PLUGINS = ("blackhole", "iceberg", "memory", "opa", "password-authenticators", "tpch")
CACHE = Path.home() / ".cache" / "pdp-tests"
NAME = f"trino-server-{VERSION}"
SUBJECT = "with a real Trino"
JAVA = 24
"""The oldest Java that runs this Trino."""


def server_folder() -> Path:
    """The unpacked server, whose name tells what it was made of; skips where it cannot be had."""
    java()  # nothing is fetched that no Java here can run
    made_of = f"{SHA256} {' '.join(PLUGINS)}"
    folder = CACHE / f"{NAME}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    if not folder.exists():
        _unpack(_tar(), folder, made_of)
    return folder


def command_line() -> Path:
    """The jar of Trino's command line; skips where it cannot be had."""
    artifact = f"io.trino:trino-cli:{VERSION}:jar:executable"
    file = CACHE / f"trino-cli-{VERSION}-executable.jar"
    return fetched(artifact, file, CLI_SHA256, "with Trino's command line", seconds=600)


def java() -> Path:
    """A Java that is new enough: that of JAVA25_HOME, or the newest below /usr/lib/jvm; skips without one."""
    named = os.environ.get("JAVA25_HOME")
    homes = [Path(named)] if named else sorted(Path("/usr/lib/jvm").glob("*"), key=_java_version, reverse=True)
    found = next((home for home in homes if _java_version(home) >= JAVA), None)
    if found is None:
        not_tested(SUBJECT, f"no Java {JAVA} or newer in JAVA25_HOME nor in /usr/lib/jvm", "")
    return found / "bin" / "java"


def _java_version(home: Path) -> int:
    """The major version of a Java; 0 where there is none."""
    release = home / "release"
    found = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE) if release.is_file() else None
    return int(found[1]) if found and (home / "bin" / "java").exists() else 0


def _tar() -> Path:
    """The server as it is published, checked."""
    return fetched(ARTIFACT, CACHE / f"{NAME}.tar.gz", SHA256, SUBJECT, seconds=1800)


def _unpack(tar: Path, folder: Path, made_of: str) -> None:
    """Make the folder in one step, so that what is there is whole; the tar is not needed afterwards."""
    with tempfile.TemporaryDirectory(prefix=".trino-", dir=CACHE) as temporary:
        _extract(tar, Path(temporary))
        unpacked = Path(temporary) / NAME
        (unpacked / "made-of").write_text(f"{ARTIFACT} {made_of}\n")
        for plugin in (unpacked / "plugin").iterdir():
            if plugin.name not in PLUGINS:
                shutil.rmtree(plugin)
        try:
            unpacked.rename(folder)
        except OSError:
            assert folder.exists(), f"{folder} cannot be made"  # somebody else was faster
    tar.unlink(missing_ok=True)


def _extract(tar: Path, to: Path) -> None:
    """Unpack what belongs to the server and its plugins: most jars are hard links to what other plugins brought."""
    wanted = re.compile(rf"{NAME}/(?!bin/|plugin/)|{NAME}/plugin/({'|'.join(PLUGINS)})/")
    with tarfile.open(tar) as opened:
        # Python has the filter since 3.11.4; the archive was checked
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        members = opened.getmembers()
        linked = {member.linkname for member in members if member.islnk() and wanted.match(member.name)}
        for member in members:
            if not member.isdir() and (wanted.match(member.name) or member.name in linked):
                opened.extract(member, to)
