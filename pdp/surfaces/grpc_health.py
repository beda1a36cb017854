"""Health and reflection of gRPC, with allowances of their own: other calls cannot use them up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from pdp.errors import InvalidArgument
from pdp.surfaces.grpc_arrivals import Arrivals

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
