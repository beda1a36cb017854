"""Files and folders of the service that only their owner can read, whatever the umask.

The audit, the database and exports hold who may do what, and what was asked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import structlog

from pdp.errors import InvalidArgument

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
log = structlog.get_logger()


def make_private_folder(path: Path) -> None:
    """Create a folder with its parents. An existing folder keeps its mode: it may serve others, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(FOLDER_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        path.chmod(FOLDER_MODE)


def warn_of_open_folder(path: Path) -> None:
    """Warn if others can open a folder."""
    if mode := stat.S_IMODE(path.stat().st_mode) & _OTHERS:
        log.warning("others can open a folder", folder=str(path), mode=f"{mode:03o}")


def open_private_file(path: Path, flags: int) -> int:
    """Return the descriptor of a file, created if missing and closed to all but its owner."""
    create_private_file(path)
    restrict_files(path)
    return os.open(path, flags | os.O_CLOEXEC)


def create_private_file(path: Path) -> None:
    """Create an empty file if it is missing."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:
        return
    try:
        os.fchmod(descriptor, FILE_MODE)
    finally:
        os.close(descriptor)


def restrict_files(*paths: Path) -> None:
    """Take from existing files the rights of all but their owner. Log what changed, and warn of what could not."""
    corrected = [path for path in paths if _restrict(path)]
    if corrected:
        log.info("closed files to all but their owner", first=str(corrected[0]), count=len(corrected))


def _restrict(path: Path) -> bool:
    """Take from a file the rights of all but its owner; tell whether anything changed."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if not mode & _OTHERS:
            return False
        path.chmod(mode & ~_OTHERS)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("others can read a file", file=str(path), cause=error.strerror)
        return False
    return True


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name at the end, unless there is an error.

    Special files, such as pipes, are written directly. Raise InvalidArgument if the file cannot be written.
    """
    special = path.exists() and not path.is_file()
    # a rename within one folder is atomic: readers find the old or the new content
    target = path if special else path.resolve().with_name(f"{path.resolve().name}.{os.getpid()}.part")
    try:
        opened = target if special else open_private_file(target, os.O_WRONLY | os.O_TRUNC)
        with open(opened, "wb") as file:  # noqa: PTH123  a descriptor or a path
            yield file
        if not special:
            target.replace(path.resolve())
    except OSError as error:
        raise InvalidArgument(f"cannot write `{path}`: {(error.strerror or str(error)).lower()}") from None
    finally:
        if not special:
            target.unlink(missing_ok=True)
