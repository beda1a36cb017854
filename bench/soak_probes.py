"""Looks at a running service from outside: its workers, their memory and connections, and its audit."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_CHUNK: Final = 8 << 20
_START: Final = b'{"event":"decision"'
"""Start of a decision record."""


def workers_of(pid: int) -> list[int]:
    """Return the processes that serve: the children of a supervisor, or the service itself."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(child) for child in children] or [pid]


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def connections_of(pid: int, port: int) -> int:
    """Return the number of established connections to `port` that a process has."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(descriptor.readlink()))
        except OSError:
            continue  # closed meanwhile
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        is_ours = fields[1].endswith(f":{port:04X}") and fields[3] == "01"
        count += is_ours and f"socket:[{fields[9]}]" in sockets
    return count


class AuditCounter:
    """Counter of the decision records in an audit folder. Its start tells a record from an event."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counted: dict[str, int] = {}
        """Bytes counted so far, by file. A file has another end of its name when it is complete."""
        self._ends: dict[str, bytes] = {}
        """Last bytes of each file, where a start may begin."""
        self._records = 0

    def count(self) -> int:
        """Count new records; return the number of all records so far."""
        for file in [*self._folder.glob("decisions-*.jsonl"), *self._folder.glob("decisions-*.open")]:
            with contextlib.suppress(FileNotFoundError):  # it has another name now: the next count finds it
                self._count_in(file)
        return self._records

    def _count_in(self, file: Path) -> None:
        name = file.stem
        with file.open("rb", buffering=0) as stream:
            stream.seek(self._counted.get(name, 0))
            end = self._ends.get(name, b"")
            while chunk := stream.read(_CHUNK):
                read = end + chunk
                self._records += read.count(_START)
                end = read[1 - len(_START) :]
            self._ends[name] = end
            self._counted[name] = stream.tell()
