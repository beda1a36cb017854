"""Finder and reader of files that others write: each file once, regular files alone, up to a size.

Opening a pipe waits for a writer for ever, and a device has no end. One such name beside policies would stop reloads.
A mount of Kubernetes shows each file twice: `r.yaml` is a link into `..data`, a link to a folder such as `..2026_1`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

MAX_FILE_BYTES: Final = 64 << 20
_NAMED: Final = frozenset(
    (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)
)
"""Errors of names: who mends one changes the file, and so its stamp."""


class FileUnusable(OSError):
    """File of another kind or size than a reader takes. `strerror` is the cause."""


def is_passing(error: BaseException, *, own: bool = False) -> bool:
    """Tell whether an error comes from a failure of the machine, such as no free descriptors: the file may be sound.

    A missing or forbidden name is no such failure, unless the file is one of our `own`: others mend it by a change.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and not isinstance(cause, FileUnusable):
            return own or cause.errno not in _NAMED
        cause = cause.__cause__ or cause.__context__
    return False


def open_regular(path: Path) -> BinaryIO:
    """Return a regular file, open for reading; raise OSError at once for a pipe, a device, a socket or a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileUnusable(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file; raise OSError for another kind of file, or one beyond a size."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise FileUnusable(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:  # the file has grown meanwhile
        raise FileUnusable(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return data


def find_files(base: Path, pattern: str = "**/*") -> list[Path]:
    """Return the matches of a glob below a folder, sorted: each file once, and nothing of a hidden `..` folder.

    A pattern may name such a folder. Raise ValueError for no glob, OSError if a folder cannot be listed.
    """
    found: Iterable[Path] = base.glob(pattern)
    if not any(map(_is_hidden, Path(pattern).parts)):
        found = _mounted(base, found, recursive="**" in pattern)
    return unique_files(sorted(found))


def unique_files(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without those that lead to the file of an earlier one."""
    by_file: dict[str, Path] = {}
    for path in paths:
        by_file.setdefault(os.path.realpath(path), path)
    return list(by_file.values())


def _mounted(base: Path, found: Iterable[Path], *, recursive: bool) -> Iterator[Path]:
    """Yield the paths outside hidden folders. `**` follows no link: `sub -> ..data/sub` is seen in the latter alone."""
    for path in found:
        *folders, name = path.relative_to(base).parts or ("",)
        shown = base.joinpath(*(folder for folder in folders if not _is_hidden(folder)), name)
        if _is_hidden(name) and path.is_dir():
            continue
        if shown == path or (recursive and shown.exists()):
            yield shown


def _is_hidden(part: str) -> bool:
    return part.startswith("..") and part != ".."
