"""Listening gRPC server with TLS, and its health and reflection with allowances of their own.

Must not know a method of the services.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from pdp import errors
from pdp.config.server import LimitSettings
from pdp.errors import InvalidArgument
from pdp.identity.tls import Certificates, LiveCertificates
from pdp.identity.tokens import MAX_TOKEN
from pdp.surfaces.grpc.handlers import Arrivals

MOST_STREAMS: Final = 128
"""Calls of one connection at the same time. Clients let further calls wait."""
_MOST_PENDING: Final = 20_000
"""Calls that wait for their handler. Beyond that, gRPC cancels calls at random. Calls that their client takes back at
once also count, up to MOST_STREAMS of a connection, even of one that has ended: with gRPC's own bound of 1,000, eight
connections got the calls of others cancelled. Each takes about 10 kB, so a far higher bound would cost the memory."""
_AGE_MS: Final = 1_800_000
"""Age at which a connection ends after its calls: no client keeps a connection for ever."""
_PING_MS: Final = 20_000
"""Pause before a ping on a silent connection, and the time for its answer: clients that are gone hold nothing."""


class GrpcServer:
    """Listening server. `services` are handlers by the full name of their service.

    `most`: connections at the same time. `shared`: further processes of this user may listen on the same address.
    """

    def __init__(
        self,
        services: Mapping[str, grpc.GenericRpcHandler],
        limits: LimitSettings,
        certificates: LiveCertificates | None = None,
        *,
        most: int,
        shared: bool = False,
    ) -> None:
        self._names = tuple(services)
        self._certificates = certificates
        self._presented = certificates.current if certificates else None
        """Certificates of the newest handshake."""
        self._health = GrpcHealth(limits.request_timeout_seconds)
        # no limit of all calls: it would count calls that wait for their message, and refuse those of others
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", int(shared)), *_options(limits, most)))
        described = GrpcReflection((*self._names, health.SERVICE_NAME), limits.request_timeout_seconds)
        self._server.add_generic_rpc_handlers((*services.values(), self._health.handler, described.handler))

    async def start(self, address: str) -> int:
        """Listen on `host:port` and return the port; raise ConfigError if the address is not available."""
        try:
            port = self._listen(address)
        except RuntimeError:
            port = 0
        if not port:
            raise errors.ConfigError(f"cannot listen on `{address}` (server.grpc): is it in use?")
        await self._server.start()
        return port

    def _listen(self, address: str) -> int:
        certificates = self._certificates
        if certificates is None:
            return self._server.add_insecure_port(address)
        # gRPC cannot make client certificates optional: with a CA for clients, every client must have one
        demands_client = certificates.current.client_ca is not None
        first = _configuration(certificates.current)
        # the stubs do not know that None keeps the certificates
        fetch: Any = self._fetch_certificates
        credentials = grpc.dynamic_ssl_server_credentials(first, fetch, demands_client)
        return self._server.add_secure_port(address, credentials)

    def _fetch_certificates(self) -> grpc.ServerCertificateConfiguration | None:
        """Return new certificates for the next handshakes; None for those of before. gRPC calls this, in a thread."""
        newest = self._certificates.current if self._certificates else None
        if newest is None or newest is self._presented:
            return None
        self._presented = newest
        return _configuration(newest)

    async def set_ready(self, ready: bool) -> None:
        """Set the answer of `grpc.health.v1` for the server and every service."""
        await self._health.set_ready(("", *self._names), ready=ready)

    async def stop(self, grace: float) -> None:
        """Refuse new calls and wait up to `grace` seconds for calls in flight. A second call may shorten the wait."""
        # no grace is None: with 0, gRPC may cancel the calls of a server that another call of `stop` has just freed
        await self._server.stop(grace or None)


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    pair = (certificates.key, certificates.cert)
    return grpc.ssl_server_certificate_configuration([pair], certificates.client_ca)


def _options(limits: LimitSettings, most: int) -> tuple[tuple[str, int], ...]:
    """Return the bounds of connections and calls."""
    idle, grace = int(limits.idle_timeout_seconds * 1000), int(limits.request_timeout_seconds * 1000)
    return (
        ("grpc.max_receive_message_length", limits.max_body_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", min(limits.max_in_flight, MOST_STREAMS)),
        ("grpc.max_allowed_incoming_connections", most),
        ("grpc.server.max_pending_requests", _MOST_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _MOST_PENDING),
        ("grpc.server_handshake_timeout_ms", grace),
        ("grpc.max_connection_idle_ms", idle),
        ("grpc.max_connection_age_ms", _AGE_MS),
        ("grpc.max_connection_age_grace_ms", grace),
        ("grpc.keepalive_time_ms", _PING_MS),
        ("grpc.keepalive_timeout_ms", _PING_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_metadata_size", 2 * MAX_TOKEN),
    )


_MOST_WAITING: Final = 64
"""Health checks that wait for their message."""
_MOST_WATCHES: Final = 64
_MOST_REFLECTIONS: Final = 8


class Allowance:
    """Long calls of one kind. Beyond `most` of them, the oldest is ended."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[asyncio.Timeout, None] = {}

    @contextmanager
    def place(self, scope: asyncio.Timeout) -> Iterator[None]:
        """Give a place to a call within `scope`, whose time ends when another call needs the place."""
        if len(self._open) >= self._most:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.reschedule(asyncio.get_running_loop().time())
        self._open[scope] = None
        try:
            yield
        finally:
            self._open.pop(scope, None)


class GrpcHealth:
    """Answers of `grpc.health.v1`. `timeout` is in seconds, for the arrival of a request."""

    def __init__(self, timeout: float) -> None:
        self._servicer = health.aio.HealthServicer()
        self._arrivals = Arrivals(_MOST_WAITING, timeout)
        self._watches = Allowance(_MOST_WATCHES)

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of the service."""
        write = health_pb2.HealthCheckResponse.SerializeToString
        methods: dict[str, Any] = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check, response_serializer=write),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch, response_serializer=write),
        }
        return grpc.method_handlers_generic_handler(health.SERVICE_NAME, methods)

    async def set_ready(self, services: Sequence[str], *, ready: bool) -> None:
        """Set the answer for some services."""
        kinds = health_pb2.HealthCheckResponse
        for service in services:
            await self._servicer.set(service, kinds.SERVING if ready else kinds.NOT_SERVING)

    async def _check(self, _: Any, context: Any) -> Any:
        try:
            request = await self._request(context)
        except (InvalidArgument, DecodeError):
            return _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, health_pb2.HealthCheckResponse())
        return await self._servicer.Check(request, context)

    async def _watch(self, _: Any, context: Any) -> None:
        try:
            request = await self._request(context)
            async with asyncio.timeout(None) as scope:
                with self._watches.place(scope):
                    await self._servicer.Watch(request, context)
        except (InvalidArgument, DecodeError):
            _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, None)
        except TimeoutError:
            _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, None)

    async def _request(self, context: Any) -> health_pb2.HealthCheckRequest:
        return health_pb2.HealthCheckRequest.FromString(await self._arrivals.receive(context))


class GrpcReflection:
    """Reflection of services by name. A stream of questions lasts `timeout` seconds at most."""

    def __init__(self, services: Sequence[str], timeout: float) -> None:
        self._servicer = reflection.aio.ReflectionServicer((*services, reflection.SERVICE_NAME))
        self._timeout = timeout
        self._free = asyncio.Semaphore(_MOST_REFLECTIONS)

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of the service."""
        method: Any = grpc.stream_stream_rpc_method_handler(
            self._answer,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(reflection.SERVICE_NAME, {"ServerReflectionInfo": method})

    async def _answer(self, requests: AsyncIterator[bytes], context: Any) -> None:
        if self._free.locked():
            _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, None)
            return
        try:
            async with self._free, asyncio.timeout(self._timeout):
                async for response in self._servicer.ServerReflectionInfo(_parsed(requests), context):
                    await context.write(response)
        except DecodeError:
            _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, None)
        except TimeoutError:
            _refuse(context, grpc.StatusCode.UNAVAILABLE, None)


async def _parsed(requests: AsyncIterator[bytes]) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    """Yield the questions of a stream. A deserializer of gRPC would log a traceback for bytes that do not parse."""
    async for body in requests:
        yield reflection_pb2.ServerReflectionRequest.FromString(body)


def _refuse(context: Any, status: grpc.StatusCode, response: Any) -> Any:
    """Set the status of a refused call; return the response, which is not sent."""
    context.set_code(status)
    return response


# gRPC would also log a failed listen on stderr: `GrpcServer.start` reports this failure as a ConfigError
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
