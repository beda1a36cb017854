"""Policies of a git repository on this machine: the files of the commit at `HEAD`, read from git's objects.

The work tree plays no part: a checkout writes file after file. Neither do attributes and filters of the repository.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pdp.app.sources.client import FetchedBundle, SourceUnreachable
from pdp.config.bundles.manifest import MAX_FILES, BundleRefused, check_names, shown
from pdp.errors import ConfigError

_OPTIONS: Final = ("--no-replace-objects", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_ENVIRONMENT: Final = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
_TAKEN: Final = ("100644", "100755", "040000")
"""Modes of plain files and of folders."""
_NO_SIZE: Final = "-"
"""Size of a folder in a listing."""


class GitSource:
    """Repository, and the folder of the policies within."""

    def __init__(self, repository: Path, path: str | None, most_bytes: int, seconds: float) -> None:
        self._repository = repository
        self._path = path
        self._most_bytes = most_bytes
        self._seconds = seconds

    def fetch(self, tag: str) -> FetchedBundle | None:
        """Return the files of the commit at HEAD; None if the commit is the one of the tag."""
        commit = self._git("rev-parse", "--verify", "HEAD^{commit}").decode().strip()
        if commit == tag:
            return None
        if self._path:
            above = self._git("ls-tree", "-t", "-z", "-l", "--full-tree", commit, self._path)
            check_names(path for _, _, path in _entries(above))
        # with folders: a folder that stands twice shares no path with its twin
        listing = self._git("ls-tree", "-r", "-t", "-z", "-l", "--full-tree", f"{commit}:{self._path or ''}")
        found = list(_entries(listing))
        check_names(path for _, _, path in found)
        entries = [(object, int(size), path) for object, size, path in found if size != _NO_SIZE]
        if len(entries) > MAX_FILES:
            raise BundleRefused(f"the commit has more than {MAX_FILES} files: name their folder by `path`")
        if sum(size for _, size, _ in entries) > self._most_bytes:
            raise BundleRefused(f"the files of the commit have more than {self._most_bytes >> 20} MiB")
        contents = self._contents([(object, size) for object, size, _ in entries])
        return FetchedBundle(commit, files={path: next(contents) for _, _, path in entries})

    def _contents(self, objects: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Yield the contents of objects in order."""
        text = self._git("cat-file", "--batch", given="".join(f"{object}\n" for object, _ in objects).encode())
        at = 0
        for object, size in objects:
            head = f"{object} blob {size}\n".encode()
            if not text.startswith(head, at):
                raise SourceUnreachable(f"git does not give the object {object}")
            at += len(head)
            yield text[at : at + size]
            at += size + 1

    def _git(self, *arguments: str, given: bytes = b"") -> bytes:
        command = ["git", "-C", str(self._repository), *_OPTIONS, *arguments]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        try:
            done = subprocess.run(  # noqa: S603  settings name the repository; the other arguments are fixed
                command, input=given, capture_output=True, env=clean | _ENVIRONMENT, timeout=self._seconds, check=False
            )
        except FileNotFoundError:
            raise ConfigError("the program `git` is not installed") from None
        except OSError as error:  # such as no free descriptors or processes
            raise SourceUnreachable(f"git cannot be started: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise SourceUnreachable("git does not answer") from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["git fails"]
            raise SourceUnreachable(shown(lines[0].removeprefix("fatal: ")))
        return done.stdout


def _entries(listing: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield object, size and path of each file and folder; raise BundleRefused for links and submodules."""
    for line in listing.split(b"\0")[:-1]:
        head, _, name = line.partition(b"\t")
        mode, _, object, size = head.decode().split()
        try:
            path = name.decode()
        except UnicodeDecodeError:
            raise BundleRefused("a path of the commit is no UTF-8") from None
        if mode not in _TAKEN:
            raise BundleRefused(f"`{shown(path)}` of the commit is a link or a submodule: take a folder by `path`")
        yield object, size, path
