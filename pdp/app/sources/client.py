"""Clients of sources: what each returns and raises, and the last good bundle of a source on disk.

The archive of a kept bundle is verified again at each read, so a changed file on disk is refused like one from the
server. Its number is the one that no later bundle may go below.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from pdp.config.files import FILE_MODE, make_private_folder
from pdp.errors import ConfigError, PdpError


class SourceState(msgspec.Struct, frozen=True):
    """Condition of a source: the revision in use, the time of the last answer, and the cause of a silence since."""

    revision: str = ""
    contact: float = 0.0
    trouble: str = ""


class SourceUnreachable(PdpError):
    """Source without an answer: nobody listens, a timeout, an error of the server."""

    code = "source_unreachable"

    @property
    def shown(self) -> str:
        """Return the whole text, which quotes no policy."""
        return str(self)


class FetchedBundle(NamedTuple):
    """Newest content of a source. `tag` names the content to the source; one of `archive` and `files` is set."""

    tag: str
    archive: bytes = b""
    files: Mapping[str, bytes] | None = None


class SourceClient(Protocol):
    """Connection to a source."""

    def fetch(self, tag: str) -> FetchedBundle | None:
        """Return the newest content; None if the content is still the one with this tag.

        Raise SourceUnreachable without an answer, BundleRefused for an answer that must not be used.
        """
        ...


_STATE: Final = "kept.json"
_ARCHIVE: Final = "bundle-{}.tar.gz"
_TREE: Final = "tree-"


class KeptBundle(msgspec.Struct, frozen=True):
    """Note of the newest accepted bundle: the source, the number, the digest of the manifest, and the time of use."""

    place: str
    sequence: int
    digest: str
    checked: float


class BundleFolder:
    """Folder of one service."""

    def __init__(self, path: Path, place: str) -> None:
        self._path = path
        self._place = place

    def open(self) -> None:
        """Make the folder, and remove what ended processes have left; raise ConfigError."""
        try:
            make_private_folder(self._path)
            for tree in self._path.glob(f"{_TREE}*"):
                owner = tree.name.removeprefix(_TREE).partition("-")[0]
                # this process has no tree yet: one with its number is of an ended process with the same number
                if owner == str(os.getpid()) or not Path("/proc", owner).exists():
                    shutil.rmtree(tree, ignore_errors=True)
        except OSError as error:
            raise ConfigError(f"cannot write `policies.source.folder`, `{self._path}`: {error.strerror}") from None

    def make_tree(self, number: int, used: Path | None) -> Path:
        """Return a new empty folder of this process, and remove all but the `used` one; raise OSError."""
        make_private_folder(self._path)  # somebody may have removed it
        for left in self._path.glob(f"{_TREE}{os.getpid()}-*"):
            if left != used:
                shutil.rmtree(left, ignore_errors=True)
        tree = self._path / f"{_TREE}{os.getpid()}-{number}"
        tree.mkdir(0o700)
        return tree

    def note(self) -> KeptBundle | None:
        """Return the note of the last good bundle of this source; None without one."""
        try:
            kept = msgspec.json.decode((self._path / _STATE).read_bytes(), type=KeptBundle)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError):
            message = f"cannot read `{self._path / _STATE}`, which says the newest known bundle"
            raise ConfigError(f"{message}: remove the file to trust the server's bundle anew") from None
        return kept if kept.place == self._place else None

    def archive(self, kept: KeptBundle) -> bytes:
        """Return the archive of the last good bundle; empty without one. Raise ConfigError for an unreadable one."""
        path = self._path / _ARCHIVE.format(kept.digest)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ConfigError(f"cannot read `{path}`: {error.strerror}") from None

    def keep(self, sequence: int, digest: str, archive: bytes) -> None:
        """Keep a bundle in place of the last one, whole at each moment; raise OSError."""
        name = _ARCHIVE.format(digest)
        make_private_folder(self._path)
        self._write(name, archive)
        self._write(_STATE, msgspec.json.encode(KeptBundle(self._place, sequence, digest, time.time())))
        # the bundle is kept by now: an old one that cannot be removed is removed with the next
        with contextlib.suppress(OSError):
            for old in self._path.glob(_ARCHIVE.format("*")):
                if old.name != name:
                    old.unlink()

    def _write(self, name: str, content: bytes) -> None:
        new = self._path / f".{name}.{os.getpid()}"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.rename(self._path / name)
        except OSError:
            with contextlib.suppress(OSError):  # what is left of it would keep a full disk full
                new.unlink(missing_ok=True)
            raise
