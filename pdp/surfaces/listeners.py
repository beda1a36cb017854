"""Sockets of the service, bound before anything is served on them, and the connections that open files allow.

A service alone binds its own. Worker processes inherit bound sockets from their supervisor, so that a socket, and the
connections that wait in its queue, survive the end of a worker.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pdp.config.section import split_address
from pdp.config.settings import Settings
from pdp.errors import ConfigError

BACKLOG: Final = 1024
"""Connections that may wait for `accept`."""
Sockets = tuple[socket.socket, ...]
"""Sockets of one address: a host name can stand for several addresses."""


@dataclass(frozen=True)
class Listeners:
    """Bound sockets of one process, and the address of gRPC, which binds sockets of its own."""

    http: Sockets
    grpc: str
    unix: socket.socket | None = None
    diagnostics: Sockets = ()


def open_listeners(settings: Settings) -> Listeners:
    """Listen on the addresses of a service that is one process; raise ConfigError if one is not available."""
    server = settings.server
    close(*bind(server.grpc, "server.grpc"))  # gRPC binds later, and its own message about a used port says less
    http = listen(server.http, "server.http")
    diagnostics: Sockets = ()
    try:
        diagnostics = listen(server.diagnostics, "server.diagnostics")
        unix = bind_unix(settings.path(server.unix), server.unix_access) if server.unix else None
    except ConfigError:
        close(*http, *diagnostics)
        raise
    return Listeners(http, server.grpc, unix, diagnostics)


def listen(address: str, key: str) -> Sockets:
    """Listen on `host:port` alone; raise ConfigError with the configuration's `key` if the address is not available."""
    sockets = bind(address, key)
    try:
        for each in sockets:
            each.listen(BACKLOG)
    except OSError as error:
        close(*sockets)
        raise _unavailable(address, key, error) from None
    return sockets


def reserve(address: str, key: str) -> Sockets:
    """Bind `host:port` for the processes of one service, as `bind` with `shared`; raise ConfigError if it is in use.

    The system lets every process of this user share a shared address, so try first to have the address alone.
    """
    close(*bind(address, key))
    return bind(address, key, shared=True)


def bind(address: str, key: str, *, shared: bool = False) -> Sockets:
    """Bind `host:port`, without listening; raise ConfigError with the configuration's `key` if it is not available.

    `shared`: further shared sockets of this user can bind the same address, and listen at the same time.
    """
    host, port = split_address(address)
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            bound.append(socket.socket(family, kind, protocol))
            bound[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
            if family == socket.AF_INET6:
                bound[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # with port 0, every address of the host takes the port that the first one got
            bound[-1].bind((place[0], port_of(bound) or port, *place[2:]))
    except OSError as error:
        close(*bound)
        raise _unavailable(address, key, error) from None
    return tuple(bound)


def _unavailable(address: str, key: str, error: OSError) -> ConfigError:
    number = error.errno or 0
    cause = os.strerror(number) if number > 0 else error.strerror or str(error)  # an unknown host has a number below 0
    hint = f"; --set {key}=HOST:PORT chooses another" if number == errno.EADDRINUSE else ""
    return ConfigError(f"cannot listen on `{address}` ({key}): {cause.lower()}{hint}")


def port_of(sockets: Sequence[socket.socket]) -> int:
    """Return the port of bound sockets."""
    port: int = sockets[0].getsockname()[1]
    return port


def bound_address(address: str, sockets: Sockets) -> str:
    """Return `host:port` as configured, with the port that the sockets have."""
    return f"{split_address(address)[0]}:{port_of(sockets)}"


def close(*sockets: socket.socket) -> None:
    """Close sockets."""
    for each in sockets:
        each.close()


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


MODES: Final[Mapping[str, int]] = {"owner": 0o600, "group": 0o660}
"""`server.unix_access` -> file permissions."""


def bind_unix(path: Path, access: str) -> socket.socket:
    """Bind a socket at `path`; raise ConfigError if another service listens there or another file exists."""
    try:
        _remove_stale(path)
        return _bind(path, MODES[access])
    except OSError as error:
        cause = os.strerror(error.errno).lower() if error.errno else str(error)
        raise ConfigError(f"cannot listen on `{path}` (server.unix): {cause}") from None


def remove_socket(path: Path) -> None:
    """Delete the socket file of a service that stops."""
    path.unlink(missing_ok=True)


def _bind(path: Path, mode: int) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o777)  # no process can connect before `chmod` sets the final permissions
    try:
        listening.bind(str(path))
        path.chmod(mode)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(umask)
    return listening


def _remove_stale(path: Path) -> None:
    """Delete the socket file of a service that no longer runs; raise ConfigError for any other file."""
    if not path.is_socket():
        if path.exists():
            raise ConfigError(f"cannot listen on `{path}` (server.unix): the file exists and is not a socket")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ConfigError(f"cannot listen on `{path}` (server.unix): another service listens there")
