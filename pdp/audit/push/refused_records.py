"""Records refused by a receiver for good: lines beside the spool, out of the way of other records."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pdp.config.files import make_private_folder, open_private_file

FOLDER = "refused"


class RefusedRecords:
    """Folder of refused records below a spool, with at most `bound` bytes."""

    def __init__(self, spool: Path, bound: int) -> None:
        self.path = spool / FOLDER
        self._bound = bound

    def keep(self, instance: str, line: bytes) -> None:
        """Append a line to the file of an instance, and sync the file; raise OSError."""
        make_private_folder(self.path)
        if sum([file.stat().st_size for file in self.path.iterdir()]) + len(line) > self._bound:
            raise OSError(errno.ENOSPC, "too many records are refused")
        file = open_private_file(self.path / f"{instance}.jsonl", os.O_WRONLY | os.O_APPEND)
        try:
            size = os.fstat(file).st_size
            if os.write(file, line) < len(line):
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)
