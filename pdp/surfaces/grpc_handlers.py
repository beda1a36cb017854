"""gRPC machinery of all methods: limits, caller, deadline and error table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import Message

from pdp import errors
from pdp.identity.callers import Callers
from pdp.model.checks import Caller
from pdp.surfaces.admission import Admission
from pdp.surfaces.peers import grpc_peer
from pdp.telemetry import Telemetry

STATUS: Final[tuple[tuple[type[errors.PdpError], grpc.StatusCode], ...]] = (
    (errors.InvalidArgument, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (errors.PayloadTooLarge, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
)
"""Error table: exception class -> gRPC status. The details begin with the stable error code."""

GrpcMethod = Callable[[bytes, Caller], Awaitable[Message | bytes]]
"""Method of a service: (bytes of the request message, caller) -> response message, or its bytes.

The method parses the bytes, so that bytes that do not parse also go through the error table.
"""
log = structlog.get_logger()


class GrpcHandlers:
    """Factory of gRPC handlers: wraps methods with limits, caller, deadline and the error table.

    `timeout` is in seconds, from the whole request message to the response.
    """

    def __init__(self, callers: Callers, admission: Admission, telemetry: Telemetry, timeout: float) -> None:
        self._callers = callers
        self._admission = admission
        self._telemetry = telemetry
        self._timeout = timeout

    def service(self, name: str, methods: dict[str, GrpcMethod]) -> grpc.GenericRpcHandler:
        """Return the handler of a service. `name` is the full name, `methods` are by name."""
        handlers = {method: self._handler(answer) for method, answer in methods.items()}
        return grpc.method_handlers_generic_handler(name, handlers)

    def _handler(self, answer: GrpcMethod) -> Any:
        async def handle(body: bytes, context: Any) -> Message | bytes:
            try:
                caller = await self._callers.identify(grpc_peer(context))
                with self._admission.enter(caller, len(body)):
                    async with asyncio.timeout(self._timeout):
                        response = await answer(body, caller)
            except errors.PdpError as error:
                return await self._abort(context, _status(error), f"{error.code}: {error}")
            except TimeoutError:
                return await self._abort(context, grpc.StatusCode.UNAVAILABLE, "unavailable: not answered in time")
            except Exception:
                log.exception("request failed", surface="grpc")
                return await self._abort(context, grpc.StatusCode.INTERNAL, "internal: see the service's log")
            self._telemetry.count_request("grpc", "OK")
            return response

        return grpc.unary_unary_rpc_method_handler(handle, response_serializer=_serialize)

    async def _abort(self, context: Any, code: grpc.StatusCode, details: str) -> Message:
        self._telemetry.count_request("grpc", code.name)
        await context.abort(code, details)
        raise AssertionError("abort raises")


def _serialize(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


def _status(error: errors.PdpError) -> grpc.StatusCode:
    return next((status for kind, status in STATUS if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
