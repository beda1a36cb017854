"""Numbers of connections that the limit of open files allows. Owns the division between the listeners."""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

_RESERVED: Final = 128
"""Most files that connections leave to the rest: sockets that listen, the store, the audit, keys, event loops."""
_MOST: Final = 65_536


class ConnectionShares(NamedTuple):
    """Most connections of each listener."""

    http: int
    grpc: int
    diagnostics: int

    @classmethod
    def of(cls, files: int) -> ConnectionShares:
        """Divide a limit of open files. Half of a small limit stays free."""
        free = min(_MOST, files - min(_RESERVED, files // 2))
        return cls(max(1, free * 6 // 10), max(1, free * 3 // 10), max(1, free // 10))

    @classmethod
    def of_process(cls) -> ConnectionShares:
        """Divide the limit of this process."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return cls.of(_MOST if files == resource.RLIM_INFINITY else files)
