"""HTTP: the machinery that every endpoint shares, and the native API.

Reads a body within its limits, names the caller, calls the endpoint, and maps every error by one table. Holds no
policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec
import structlog
from aiohttp import web

from pdp import errors
from pdp.decision.codec import ErrorBody, decode_batch, encode_answer
from pdp.decision.service import Pdp
from pdp.identity.callers import Callers
from pdp.model.checks import Caller
from pdp.surfaces.admission import Admission, AdmittedRequest
from pdp.surfaces.peers import http_peer

JSON: Final = "application/json"
log = structlog.get_logger()

STATUS: Final[tuple[tuple[type[errors.PdpError], int], ...]] = (
    (errors.InvalidArgument, 400),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.PayloadTooLarge, 413),
    (errors.UnsupportedMedia, 415),
    (errors.Overloaded, 429),
    (errors.Unavailable, 503),
)
"""The error table: exception to status."""

Endpoint = Callable[[bytes, Caller], Awaitable[bytes]]
"""The body and the caller to the body of a 200 answer."""


Query = Iterable[tuple[str, str]]
Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]
Routes = dict[tuple[str, str], Handler]
"""Method and path -> handler."""
_Answer = Callable[[web.BaseRequest, Caller, AdmittedRequest], Awaitable[bytes]]


class Endpoints:
    """Wraps endpoints with limits, caller, deadline and the error table."""

    def __init__(self, pdp: Pdp, callers: Callers, admission: Admission, timeout: float) -> None:
        self.pdp = pdp
        self._callers = callers
        self._admission = admission
        self._timeout = timeout

    def route(self, surface: str, endpoint: Endpoint, max_body: int) -> Handler:
        """An aiohttp handler for one endpoint that takes a body. `max_body` is in bytes."""

        async def answer(request: web.BaseRequest, caller: Caller, admitted: AdmittedRequest) -> bytes:
            return await endpoint(await _read(request, max_body, admitted.grow), caller)

        return self._handler(surface, answer, max_body)

    def query_route(self, surface: str, endpoint: Callable[[Query, Caller], Awaitable[bytes]]) -> Handler:
        """The same for one that takes query parameters and no body."""

        async def answer(request: web.BaseRequest, caller: Caller, admitted: AdmittedRequest) -> bytes:
            return await endpoint(request.query.items(), caller)

        return self._handler(surface, answer, 0)

    def _handler(self, surface: str, answer: _Answer, max_body: int) -> Handler:
        async def handle(request: web.BaseRequest) -> web.Response:
            try:
                _check_head(request, max_body)
                caller = await self._callers.of(http_peer(request))
                with self._admission.enter(caller, request.content_length or 0) as admitted:
                    async with asyncio.timeout(self._timeout):
                        response = _response(200, await answer(request, caller, admitted))
            except errors.PdpError as error:
                response = error_response(_status(error), error.code, str(error))
            except TimeoutError:
                response = error_response(503, "unavailable", f"not answered within {self._timeout:g} seconds")
            except ConnectionError:
                raise
            except Exception:
                log.exception("request failed", surface=surface)
                response = error_response(500, "internal", "internal error, see the service's log")
            self.pdp.telemetry.answered(surface, str(response.status))
            return response

        return handle


def native_routes(endpoints: Endpoints, max_checks: int, max_body: int) -> Routes:
    """The native API."""
    pdp = endpoints.pdp

    async def check(body: bytes, caller: Caller) -> bytes:
        return encode_answer(await pdp.check(decode_batch(body, caller, max_checks)))

    return {("POST", "/v1/check"): endpoints.route("http", check, max_body)}


def router(routes: Routes) -> Handler:
    """A handler for routes; what none of them takes is an error in the same form."""
    paths: dict[str, dict[str, Handler]] = {}
    for (method, path), handler in routes.items():
        paths.setdefault(path, {})[method] = handler

    async def handle(request: web.BaseRequest) -> web.Response:
        methods = paths.get(request.path)
        if methods is None:
            return error_response(404, "not_found", "no such endpoint")
        handler = methods.get(request.method)
        if handler is None:
            allowed = " and ".join(sorted(methods))
            response = error_response(405, "method_not_allowed", f"this endpoint takes {allowed}")
            response.headers["Allow"] = ", ".join(sorted(methods))
            return response
        return await handler(request)

    return handle


def error_response(status: int, code: str, message: str) -> web.Response:
    """An error as every HTTP surface shows it."""
    response = _response(status, msgspec.json.encode({"error": ErrorBody(code, message)}))
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _check_head(request: web.BaseRequest, max_body: int) -> None:
    """What a request's head alone disqualifies it for, whoever sent it."""
    encodings = request.headers.getall("Content-Encoding", ())
    if any(encoding.lower() != "identity" for encoding in encodings):
        raise errors.UnsupportedMedia("compressed bodies are not accepted")
    if (request.content_length or 0) > max_body:
        raise errors.PayloadTooLarge(f"the body is larger than {max_body} bytes")


async def _read(request: web.BaseRequest, max_body: int, grow: Callable[[int], None]) -> bytes:
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
