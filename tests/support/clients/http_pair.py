"""Two HTTP servers with the same routes: the service's own, and aiohttp alone. Raw connections to both."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from hashlib import sha256
from inspect import Parameter, signature
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
import uvloop
from support.service.serving import settings_of

from pdp.audit.queue.queue import NoAudit
from pdp.config.settings import Settings
from pdp.dialects.opa import opa_surface
from pdp.errors import InvalidArgument
from pdp.identity.callers import Callers
from pdp.identity.tokens import Tokens
from pdp.model.question import Caller
from pdp.surfaces.admission import Admission, BodyLimits
from pdp.surfaces.http import connection as http_connection
from pdp.surfaces.http.answers import NATIVE, EndpointAnswer
from pdp.surfaces.http.connection import ConnectionContext, HttpConnection
from pdp.surfaces.http.handlers import HttpHandlers, Routes
from pdp.surfaces.http.routes import ImmediateEndpoint
from pdp.surfaces.http.server import AiohttpServer, HttpServer
from pdp.surfaces.listeners import TlsListener, listen
from pdp.surfaces.refusals import RefusalRecorder
from pdp.telemetry import Telemetry

CHECK = "/v1/check"
ALLOW = "/v1/data/trino/allow"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "asyncio, together": asyncio.new_event_loop,
    "uvloop, together": uvloop.new_event_loop,
}
"""Event loops. With `together`, no answer is sent at once, as if other clients were connected."""
PATIENCE = 10.0
"""Seconds to wait for an event that must happen; far above the usual time."""


@contextmanager
def sending(loop: str) -> Iterator[None]:
    """Send answers as the name of a loop says."""
    with pytest.MonkeyPatch.context() as patch:
        if loop.endswith("together"):
            patch.setattr(http_connection, "FEW_OPEN", 0)
        yield


def on_every_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that runs a coroutine on each event loop of `LOOPS`."""

    @pytest.mark.parametrize("loop", LOOPS)
    @wraps(test)
    def run(loop: str, **arguments: Any) -> None:
        with sending(loop), asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(test(**arguments))

    wanted = signature(test)
    named = Parameter("loop", Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = wanted.replace(parameters=[named, *wanted.parameters.values()])
    decorated: Callable[..., None] = run
    return decorated


def describe(body: bytes, caller: Caller) -> EndpointAnswer:
    """Return an answer that tells the body and the caller; raise InvalidArgument for a body that begins with `!`."""
    if body.startswith(b"!"):
        raise InvalidArgument(f"a body of {len(body)} bytes")
    digest = sha256(body).hexdigest()
    answer = msgspec.json.encode({"bytes": len(body), "digest": digest, "caller": caller.name})
    return EndpointAnswer(answer, digest[:8])


async def describe_later(body: bytes, caller: Caller) -> EndpointAnswer:
    """Return the same answer after the event loop had a turn."""
    await asyncio.sleep(0)
    return describe(body, caller)


def describe_sometimes(body: bytes, caller: Caller) -> EndpointAnswer | None:
    """Return the answer to every other body at once."""
    return None if sum(body) % 2 else describe(body, caller)


IMMEDIATE: dict[str, ImmediateEndpoint | None] = {"now": describe, "later": None, "sometimes": describe_sometimes}
"""Ways to answer."""


class WatchedConnection(HttpConnection):
    """Connection that notes where it hands over to aiohttp, and what it answers by the head of the request before."""

    def __init__(self, shared: ConnectionContext, server: WatchedServer) -> None:
        super().__init__(shared)
        self.received = 0
        self.handed_over = server.handed_over
        self.repeats = server.repeats

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)

    def _is_answered(self, data: bytes) -> bool:
        done = super()._is_answered(data)
        if done:
            self.repeats.append(data)
        return done

    def _hand_over(self, data: bytes, at: int) -> None:
        self.handed_over.append((self.received - len(data) + at, len(data) - at))
        super()._hand_over(data, at)


class WatchedServer(HttpServer):
    """The own server, with watched connections."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.handed_over: list[tuple[int, int]] = []
        """For each connection that became aiohttp's: the bytes taken before, and those handed over at once."""
        self.repeats: list[bytes] = []
        """Packets that were answered by the head of the request before."""

    def new_connection(self) -> Any:
        super().new_connection()
        return WatchedConnection(self._shared, self)


class ReferenceServer(AiohttpServer):
    """aiohttp alone, which takes bodies as the own server does."""

    lingering, read_ahead = HttpServer.lingering, HttpServer.read_ahead


class ServerPair:
    """The two servers: their ports, and the parts that tests look at."""

    def __init__(self, settings: Settings, routes: Routes, callers: Callers, admission: Admission) -> None:
        self.admission = admission
        self.own = WatchedServer(routes, callers, admission, settings.limits)
        self.handed_over = self.own.handed_over
        self.aiohttp = ReferenceServer(routes, settings.limits.idle_timeout_seconds, 1000)
        self.own_port = 0
        self.aiohttp_port = 0

    async def stop(self) -> None:
        """End both servers as the service does."""
        for server in (self.own, self.aiohttp):
            server.pre_shutdown()
            await server.shutdown(1)


@asynccontextmanager
async def server_pair(
    folder: Path,
    immediate: ImmediateEndpoint | None = describe,
    endpoint: Callable[[bytes, Caller], Any] = describe_later,
    tls: ssl.SSLContext | None = None,
    **config: Any,
) -> AsyncIterator[ServerPair]:
    """Run both servers on free ports of loopback."""
    settings, telemetry = settings_of(config, folder), Telemetry()
    tokens = Tokens(settings, telemetry)
    callers = Callers(settings, tokens)
    limits = settings.limits
    admission = Admission(limits.max_in_flight, limits.max_body_bytes * 8, callers.count)
    handlers = HttpHandlers(
        callers, admission, telemetry, limits.request_timeout_seconds, refusals=RefusalRecorder(NoAudit())
    )
    routes: Routes = {
        ("POST", CHECK): handlers.for_decision(NATIVE, endpoint, BodyLimits.of_native(limits), immediate),
        ("POST", ALLOW): handlers.for_decision(opa_surface("trino"), endpoint, BodyLimits.of_trino(limits), immediate),
        ("POST", "/v1/list"): handlers.for_body(NATIVE, endpoint, BodyLimits.of_native(limits)),
    }
    pair = ServerPair(settings, routes, callers, admission)
    await tokens.start()
    loop = asyncio.get_running_loop()
    sockets = [listen("127.0.0.1:0", "server.http")[0] for _ in range(2)]
    pair.own_port, pair.aiohttp_port = (one.getsockname()[1] for one in sockets)
    listening = [
        TlsListener(one, server, tls) if tls else await loop.create_server(server, sock=one)
        for one, server in zip(sockets, (pair.own, pair.aiohttp), strict=True)
    ]
    try:
        yield pair
    finally:
        for one in listening:
            one.close()
        await pair.stop()
        await tokens.stop()


@dataclass(frozen=True)
class RawAnswer:
    """One answer: the status, the headers that clients notice, and the body."""

    status: int
    headers: frozenset[tuple[str, str]]
    body: bytes


NOT_COMPARED = {"date", "server"}
"""Headers that may differ: the own server names no software."""


@dataclass
class RawConnection(asyncio.Protocol):
    """Client that keeps all that it receives."""

    received: bytearray = field(default_factory=bytearray)
    closed: bool = False

    @classmethod
    async def open(cls, port: int, **options: Any) -> Self:
        """Connect to a port of loopback."""
        _, made = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port, **options)
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    async def send(self, packets: Sequence[bytes]) -> None:
        """Send bytes in packets of their own, as far as the event loop separates them."""
        for packet in packets:
            if not self.closed:
                self.transport.write(packet)
            for _ in range(3):
                await asyncio.sleep(0)

    def close(self) -> None:
        self.transport.abort()

    def answers(self) -> list[RawAnswer]:
        """Return all whole answers."""
        found, rest = [], bytes(self.received)
        while b"\r\n\r\n" in rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            line, *fields = head.decode().split("\r\n")
            headers = {
                name.lower(): _known_id(value.strip()) for name, _, value in (one.partition(":") for one in fields)
            }
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                break
            body, rest = rest[:length], rest[length:]
            kept = frozenset((name, value) for name, value in headers.items() if name not in NOT_COMPARED)
            found.append(_comparable(RawAnswer(int(line.split()[1]), kept, body)))
        return found

    async def until(self, happens: Callable[[Self], object]) -> None:
        """Wait for an event that must happen to this connection."""
        assert await settle(lambda: bool(happens(self)), PATIENCE), (self.received, self.closed)


_NEW_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _known_id(value: str) -> str:
    """Replace a new id: each refusal has its own."""
    return _NEW_ID.sub("a new id", value)


def _comparable(answer: RawAnswer) -> RawAnswer:
    """Drop the text of aiohttp's own refusals: it quotes the packet in which the error stood."""
    if ("content-type", "text/plain; charset=utf-8") not in answer.headers:
        return answer
    kept = frozenset((name, value) for name, value in answer.headers if name != "content-length")
    return RawAnswer(answer.status, kept, re.sub(rb"(?s):.*", b"", answer.body))


Outcome = tuple[list[RawAnswer], bool]
"""The answers so far, and true if the connection is closed."""


def outcome(connection: RawConnection) -> Outcome:
    return connection.answers(), connection.closed


async def settle(compare: Callable[[], bool], patience: float) -> bool:
    """Tell whether a comparison comes true and stays true for a while."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    held = 0
    while held < 4:
        await asyncio.sleep(0.002)
        held = held + 1 if compare() else 0
        if loop.time() > end:
            return False
    return True


async def assert_same(pair: ServerPair, packets: Sequence[bytes], probe: bytes, **options: Any) -> Outcome:
    """Send the same bytes to both servers, then a probe; check for the same answers and the same end. Return these.

    aiohttp forgets whole requests if a malformed request stands in the same packet, so its outcome depends on the
    packets. If the first try shows a difference, aiohttp gets the bytes that the own server took in one packet, and the
    others as the own server handed them over.
    """
    pair.handed_over.clear()
    own = await RawConnection.open(pair.own_port, **options)
    other = await RawConnection.open(pair.aiohttp_port, **options)
    try:
        await asyncio.gather(own.send(packets), other.send(packets))
        if not await settle(lambda: outcome(own) == outcome(other), 0.2):
            other.close()
            other = await RawConnection.open(pair.aiohttp_port, **options)
            for packet in as_handed_over(packets, pair.handed_over):
                await other.send([packet])
                await asyncio.sleep(0.01)
            same = await settle(lambda: outcome(own) == outcome(other), 3)
            assert same, (packets, outcome(own), outcome(other))
        if not own.closed:
            await asyncio.gather(own.send([probe]), other.send([probe]))
            same = await settle(lambda: outcome(own) == outcome(other), 3)
            assert same, (packets, "then the probe", outcome(own), outcome(other))
        return outcome(own)
    finally:
        own.close()
        other.close()


def as_handed_over(packets: Sequence[bytes], handed_over: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return packets as the own server divided them: the bytes that it took, and those that it handed over."""
    if not handed_over:
        return [b"".join(packets)]
    ((taken, first),) = handed_over
    ends = list(accumulate(map(len, packets)))
    cuts = sorted({0, taken, taken + first, *(end for end in ends if end > taken + first)})
    whole = b"".join(packets)
    return [whole[start:end] for start, end in pairwise(cuts)]
