"""Sockets of the service, bound before anything is served on them, and the connections that open files allow.

A service alone binds sockets. Worker processes inherit bound sockets from their supervisor, so that a socket, and the
connections that wait in its queue, survive the end of a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

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


_ACCEPTED_AT_ONCE: Final = 16
"""Most connections that the event loop accepts before it counts them and reads the requests of others."""


MOST_HANDSHAKES: Final = 100
"""Most connections whose TLS begins at the same time. For a new one, the oldest is closed.

Each may compute a signature in the same turn of the event loop, about a millisecond with a key of RSA, and has a buffer
of 256 KiB.
"""
_PAUSE_WITHOUT_FILES: Final = 1.0
"""Pause before a process without free files accepts again, as asyncio makes it."""


class ConnectionServer(Protocol):
    """Server that counts its connections. `handshakes` are those whose TLS has not begun, the oldest first."""

    handshake_timeout: float
    handshakes: dict[TlsHandshake, None]

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection, also of one beyond the limit."""

    def has_room(self) -> bool:
        """Tell whether a new connection has a place. Others are closed for it."""

    def new_connection(self) -> asyncio.Protocol:
        """Return the protocol of a connection that has a place."""


class TlsHandshake(asyncio.Protocol):
    """Accepted connection whose TLS has not begun. The server keeps a place for the connection."""

    def __init__(self, accepted: socket.socket, server: ConnectionServer, tls: ssl.SSLContext) -> None:
        self._accepted: socket.socket | None = accepted
        """Socket until the event loop has it."""
        self._server = server
        if len(server.handshakes) >= MOST_HANDSHAKES:
            next(iter(server.handshakes)).abort()
        server.handshakes[self] = None
        self._task = asyncio.create_task(self._shake_hands(accepted, tls))
        self._task.add_done_callback(self._end)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection to the server: TLS has begun."""
        self._server.handshakes.pop(self, None)
        protocol = self._server.new_connection()
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(transport)

    def abort(self) -> None:
        """Close the connection. From now on it does not count as open."""
        self._server.handshakes.pop(self, None)
        self._task.cancel()

    async def _shake_hands(self, accepted: socket.socket, tls: ssl.SSLContext) -> None:
        loop, seconds = asyncio.get_running_loop(), self._server.handshake_timeout
        self._accepted = None
        with contextlib.suppress(OSError):  # no TLS, another version, or none in time: the event loop closes
            await loop.connect_accepted_socket(lambda: self, accepted, ssl=tls, ssl_handshake_timeout=seconds)

    def _end(self, _: asyncio.Task[None]) -> None:
        self._server.handshakes.pop(self, None)
        if self._accepted:
            self._accepted.close()


class TlsListener:
    """Listening socket whose connections count before their TLS begins.

    An event loop with TLS of its own tells of a connection only after the handshake. So clients that never begin it
    would take all files of the process.
    """

    def __init__(self, listening: socket.socket, server: ConnectionServer, tls: ssl.SSLContext) -> None:
        self._listening = listening
        self._server = server
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._begin()

    def close(self) -> None:
        """Stop to listen. Open connections stay."""
        if self._pause:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def _begin(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # out of files, of which readiness tells
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(_PAUSE_WITHOUT_FILES, self._begin)
                return
            accepted.setblocking(False)
            if self._server.has_room():
                TlsHandshake(accepted, self._server, self._tls)
            else:
                accepted.close()


class ServedConnections(ConnectionServer, Protocol):
    """Server whose connections end with it."""

    def pre_shutdown(self) -> None:
        """Close the connections without a request under way."""

    async def shutdown(self, timeout: float | None) -> None:  # noqa: ASYNC109  aiohttp's parameter
        """Close all connections, after `timeout` seconds at the latest."""


class ServerRunner:
    """Server with the sites that it listens on."""

    def __init__(self, server: ServedConnections, shutdown_timeout: float = 1) -> None:
        self.server = server
        self.sites: set[ServerSite] = set()
        self._shutdown_timeout = shutdown_timeout

    async def cleanup(self) -> None:
        """Stop to listen, then close all connections."""
        for site in [*self.sites]:
            site.stop()
        await asyncio.sleep(0)  # what has arrived begins before idle connections close
        self.server.pre_shutdown()
        await self.server.shutdown(self._shutdown_timeout)


class ServerSite:
    """Socket on which a server listens, with TLS if a context is given.

    Few connections are accepted at once: a burst would take files before the server counts it.
    """

    def __init__(self, runner: ServerRunner, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._runner = runner
        self._sock = listening
        self._tls = tls
        self._listener: asyncio.Server | TlsListener | None = None

    async def start(self) -> None:
        """Begin to accept."""
        self._runner.sites.add(self)
        server = self._runner.server
        if self._tls:
            self._listener = TlsListener(self._sock, server, self._tls)
            return
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(server, sock=self._sock, backlog=_ACCEPTED_AT_ONCE)
        self._sock.listen(BACKLOG)  # asyncio takes one number for both, and as many may wait as ever

    def stop(self) -> None:
        """Stop to accept. Open connections stay."""
        if self._listener:
            self._listener.close()
        self._runner.sites.discard(self)
