"""Reader of files that others write: regular files alone, up to a size.

Opening a pipe waits for a writer for ever, and a device has no end. One such name beside policies would stop reloads.
"""

from __future__ import annotations

import errno
import os
import stat
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
