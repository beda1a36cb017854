"""Sockets of the service, bound before anything is served on them.

A service alone binds its own. Worker processes inherit bound sockets from their supervisor, so that a socket, and the
connections that wait in its queue, survive the end of a worker.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pdp.config.section import split_address
from pdp.config.settings import Settings
from pdp.errors import ConfigError
from pdp.surfaces.unix_socket import bind_unix

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
    """Bind the addresses of a service that is one process; raise ConfigError if one is not available."""
    server = settings.server
    http = bind(server.http, "server.http")
    diagnostics: Sockets = ()
    try:
        diagnostics = bind(server.diagnostics, "server.diagnostics")
        unix = bind_unix(settings.path(server.unix)) if server.unix else None
    except ConfigError:
        close(*http, *diagnostics)
        raise
    return Listeners(http, server.grpc, unix, diagnostics)


def bind(address: str, key: str, *, shared: bool = False) -> Sockets:
    """Bind `host:port` and listen; raise ConfigError with the configuration's `key` if the address is not available.

    `shared`: only bind, so that further shared sockets of this user can bind the same address.
    """
    host, port = split_address(address)
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listening = socket.socket(family, kind, protocol)
            bound.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # with port 0, every address of the host takes the port that the first one got
            listening.bind((place[0], port_of(bound) or port, *place[2:]))
            if not shared:
                listening.listen(BACKLOG)
    except OSError as error:
        close(*bound)
        number = error.errno or 0
        cause = os.strerror(number) if number > 0 else error.strerror or str(error)  # a host's error is below 0
        raise ConfigError(f"cannot listen on `{address}` ({key}): {cause.lower()}") from None
    return tuple(bound)


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
