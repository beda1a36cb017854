"""HTTP: the machinery that every endpoint shares, and the native API.

Reads a body within its limits, names the caller, calls the endpoint, and maps every error by one table. Holds no
policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
from aiohttp import web

from pdp import errors
from pdp.codec import ErrorBody, decode_batch, encode_answer
from pdp.identity import Callers
from pdp.model import Caller
from pdp.service import Pdp
from pdp.surfaces.admission import Admission

JSON: Final = "application/json"
log = structlog.get_logger()

STATUS: Final[tuple[tuple[type[errors.PdpError], int], ...]] = (
    (errors.InvalidArgument, 400),
    (errors.Unauthenticated, 401),
    (errors.PayloadTooLarge, 413),
    (errors.UnsupportedMedia, 415),
    (errors.Overloaded, 429),
    (errors.Unavailable, 503),
)
"""The error table: exception to status."""

Endpoint = Callable[[bytes, Caller], Awaitable[bytes]]
"""The body and the caller to the body of a 200 answer."""


class Endpoints:
    """Wraps endpoints with limits, caller, deadline and the error table."""

    def __init__(self, pdp: Pdp, callers: Callers, admission: Admission, timeout: float) -> None:
        self.pdp = pdp
        self._callers = callers
        self._admission = admission
        self._timeout = timeout

    def route(
        self, surface: str, endpoint: Endpoint, max_body: int
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """An aiohttp handler for one endpoint. `max_body` is in bytes."""

        async def handle(request: web.Request) -> web.Response:
            try:
                caller = self._callers.of_peer(request.remote or "")
                with self._admission.enter(caller, request.content_length or 0) as admitted:
                    async with asyncio.timeout(self._timeout):
                        body = await _read(request, max_body, admitted.grow)
                        response = _response(200, await endpoint(body, caller))
            except errors.PdpError as error:
                response = error_response(_status(error), error.code, str(error))
            except TimeoutError:
                response = error_response(503, "unavailable", f"not answered within {self._timeout:g} seconds")
            except ConnectionError:
                raise
            except Exception:
                log.exception("request failed", surface=surface)
                response = error_response(500, "internal", "internal error, see the service's log")
            self.pdp.telemetry.requests.labels(surface, str(response.status)).inc()
            return response

        return handle


def native_routes(endpoints: Endpoints, max_checks: int, max_body: int) -> list[web.RouteDef]:
    """The native API."""
    pdp = endpoints.pdp

    async def check(body: bytes, caller: Caller) -> bytes:
        return encode_answer(await pdp.check(decode_batch(body, caller, max_checks)))

    return [web.post("/v1/check", endpoints.route("http", check, max_body))]


def make_app(routes: list[web.RouteDef]) -> web.Application:
    """The application of some routes; what no route matches is an error in the same form."""
    app = web.Application(middlewares=[_json_errors])
    app.add_routes(routes)
    return app


def error_response(status: int, code: str, message: str) -> web.Response:
    """An error as every HTTP surface shows it."""
    return _response(status, msgspec.json.encode({"error": ErrorBody(code, message)}))


@web.middleware
async def _json_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        return error_response(405, "method_not_allowed", f"{request.path} takes {allowed}")
    except web.HTTPNotFound:
        return error_response(404, "not_found", "no such endpoint")


async def _read(request: web.Request, max_body: int, grow: Callable[[int], None]) -> bytes:
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise errors.UnsupportedMedia("compressed bodies are not accepted")
    if (request.content_length or 0) > max_body:
        raise errors.PayloadTooLarge(f"the body is larger than {max_body} bytes")
    chunks = []
    size = 0
    while chunk := await request.content.readany():
        size += len(chunk)
        if size > max_body:
            raise errors.PayloadTooLarge(f"the body is larger than {max_body} bytes")
        grow(size)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _status(error: errors.PdpError) -> int:
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def _response(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type=JSON)
