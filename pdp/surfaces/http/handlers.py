"""Handlers of aiohttp for all endpoints: limits, caller, deadline and routing.

Reads a body within the limits, names the caller, calls the endpoint, and maps every error by the table of
`answers`. Holds no policy and knows no endpoint but those for operators: liveness says that the event loop runs, and
readiness whether to send traffic. They have an address apart from decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from pdp import errors
from pdp.identity.callers import Callers
from pdp.model.question import Caller
from pdp.model.revision import new_id
from pdp.model.strict import read_parameters
from pdp.surfaces.admission import Admission, AdmittedRequest, BodyLimits
from pdp.surfaces.http.answers import JSON, EndpointAnswer, HttpAnswer, HttpFailure, extra_headers, id_headers
from pdp.surfaces.http.routes import BodyEndpoint, DecisionRoute, Handler, ImmediateEndpoint, Outcomes
from pdp.surfaces.peers import http_peer
from pdp.surfaces.refusals import (
    REQUEST_ID,
    TRACE_PARENT,
    RefusalRecorder,
    Sender,
    SentIds,
    read_ids,
    stranger,
    with_ids,
)
from pdp.telemetry import Telemetry

if TYPE_CHECKING:
    from aiohttp import web

_NATIVE: Final = "http"
"""Surface whose endpoints refuse what they do not read. Other protocols have parameters without a meaning here."""
_NO_PARAMETERS: Final = frozenset[str]()
Query = Iterable[tuple[str, str]]
"""Query parameters: names and values, in order."""


class EntryRequest(NamedTuple):
    """Request about one entry of a collection: the last part of the path, the query parameters, and the body."""

    name: str
    query: Query
    body: bytes


EntryEndpoint = Callable[[EntryRequest, Caller], Awaitable[EndpointAnswer]]
"""Endpoint about one entry: (request, caller) -> the 200 response."""
QueryEndpoint = Callable[[Query, Caller], Awaitable[EndpointAnswer]]
"""Endpoint without a request body: (query parameters, caller) -> the 200 response."""
Routes = dict[tuple[str, str], Handler]
"""(method, path) -> handler."""
_Answer: TypeAlias = "Callable[[web.BaseRequest, Caller, AdmittedRequest], Awaitable[EndpointAnswer]]"


class HttpHandlers:
    """Factory of aiohttp handlers: wraps endpoints with limits, caller, deadline and the error table.

    `timeout` is in seconds and covers reading the body and computing the answer.
    """

    def __init__(
        self, callers: Callers, admission: Admission, telemetry: Telemetry, timeout: float, *, refusals: RefusalRecorder
    ) -> None:
        self._callers = callers
        self._admission = admission
        self._telemetry = telemetry
        self._timeout = timeout
        self._refusals = refusals

    def for_body(self, surface: str, endpoint: BodyEndpoint, limits: BodyLimits) -> Handler:
        """Return the handler of an endpoint with a request body."""

        async def answer(request: web.BaseRequest, caller: Caller, admitted: AdmittedRequest) -> EndpointAnswer:
            body = await read_body(request, limits.size, admitted)
            if surface == _NATIVE:
                read_parameters(request.query.items(), _NO_PARAMETERS)
            await limits.check(body)
            return await endpoint(body, caller)

        return self._handler(surface, answer, limits.size)

    def for_decision(
        self, surface: str, endpoint: BodyEndpoint, limits: BodyLimits, immediate: ImmediateEndpoint | None = None
    ) -> DecisionRoute:
        """Return the route of an endpoint that only decides. `immediate` gives the same answers, or None."""
        handler = self.for_body(surface, endpoint, limits)
        return DecisionRoute(endpoint, immediate, self._outcomes(surface), limits, handler)

    def for_query(self, surface: str, endpoint: QueryEndpoint) -> Handler:
        """Return the handler of an endpoint with query parameters and no request body."""

        async def answer(request: web.BaseRequest, caller: Caller, admitted: AdmittedRequest) -> EndpointAnswer:
            admitted.begin()
            return await endpoint(request.query.items(), caller)

        return self._handler(surface, answer, 0)

    def for_entry(self, surface: str, endpoint: EntryEndpoint, limits: BodyLimits) -> Handler:
        """Return the handler of an endpoint about one entry, for a route that ends with `/*`."""

        async def answer(request: web.BaseRequest, caller: Caller, admitted: AdmittedRequest) -> EndpointAnswer:
            body = await read_body(request, limits.size, admitted)
            await limits.check(body)
            return await endpoint(EntryRequest(request.path.rpartition("/")[2], request.query.items(), body), caller)

        return self._handler(surface, answer, limits.size)

    def _outcomes(self, surface: str) -> Outcomes:
        return Outcomes(surface, self._telemetry, self._refusals, self._timeout)

    def _handler(self, surface: str, answer: _Answer, max_body: int) -> Handler:
        outcomes, gate = self._outcomes(surface), self._refusals.gate

        async def handle(request: web.BaseRequest) -> web.Response:
            ids = ids_of(request)
            sender: Sender = stranger(request.remote or "", ids)
            deadline = asyncio.get_running_loop().time() + self._timeout
            with ExitStack() as places:  # an answer that waits for its record is still in flight
                try:
                    _check_head(request, max_body)
                    caller = await self._callers.identify(http_peer(request))
                    sender = caller = with_ids(caller, ids)
                    admitted = places.enter_context(self._admission.arriving(caller))
                    deadline = asyncio.get_running_loop().time() + self._timeout
                    async with asyncio.timeout_at(deadline):
                        await gate.room()
                        found = await answer(request, caller, admitted)
                except ConnectionError:
                    raise  # the client is gone: aiohttp closes the connection
                except Exception as error:  # noqa: BLE001  the failure is the answer
                    answered = outcomes.failure(error, sender, request.path)
                else:
                    answered = outcomes.success(found, caller)
                return response_of(await outcomes.settled(answered, sender, request.path, deadline))

        return handle


def router(routes: Routes) -> Handler:
    """Return one handler for all routes. Unknown paths and methods get a 404 or 405 in the common error form.

    A route that ends with `/*` takes any last part of the path.
    """
    paths: dict[str, dict[str, Handler]] = {}
    for (method, path), handler in routes.items():
        paths.setdefault(path, {})[method] = handler

    async def handle(request: web.BaseRequest) -> web.Response:
        methods = paths.get(request.path) or paths.get(f"{request.path.rpartition('/')[0]}/*")
        if methods is None:
            return _refusal(request, HttpFailure(404, "not_found", "no such endpoint"))
        handler = methods.get(request.method)
        if handler is None:
            allowed = " and ".join(sorted(methods))
            response = _refusal(request, HttpFailure(405, "method_not_allowed", f"this endpoint takes {allowed}"))
            response.headers["Allow"] = ", ".join(sorted(methods))
            return response
        return await handler(request)

    return handle


def _refusal(request: web.BaseRequest, failure: HttpFailure) -> web.Response:
    request_id = ids_of(request).request_id or new_id()
    return response_of(HttpAnswer(failure.status, failure.body, request_id))


def ids_of(request: web.BaseRequest) -> SentIds:
    """Return the ids that the sender of a request gives it."""
    return read_ids(request.headers.getall(REQUEST_ID, ()), request.headers.getall(TRACE_PARENT, ()))


def _check_head(request: web.BaseRequest, max_body: int) -> None:
    """Refuse a request by its head alone: raise UnsupportedMedia if compressed, PayloadTooLarge if too long."""
    encodings = request.headers.getall("Content-Encoding", ())
    if any(encoding.lower() != "identity" for encoding in encodings):
        raise errors.UnsupportedMedia("compressed bodies are not accepted")
    if (request.content_length or 0) > max_body:
        raise errors.PayloadTooLarge(f"the body is larger than {max_body} bytes")


async def read_body(request: web.BaseRequest, max_body: int, admitted: AdmittedRequest) -> bytes:
    """Read the body, then count the request as in flight. Bytes count as they arrive."""
    chunks = []
    size = 0
    while chunk := await request.content.readany():
        size += len(chunk)
        if size > max_body:
            raise errors.PayloadTooLarge(f"the body is larger than {max_body} bytes")
        admitted.grow(size)
        chunks.append(chunk)
    admitted.begin()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def response_of(answer: HttpAnswer) -> web.Response:
    """Return an answer as a response of aiohttp."""
    headers = {**id_headers(answer.request_id, answer.decision_id), **extra_headers(answer.status)}
    return make_response(answer.status, answer.body, headers)


def make_response(
    status: int, body: bytes, headers: Mapping[str, str], content_type: str | None = JSON
) -> web.Response:
    """Return a response of aiohttp."""
    from aiohttp import web  # noqa: PLC0415  see `AiohttpServer.load`

    return web.Response(status=status, body=body, headers=headers, content_type=content_type)


RELOAD_FAILED: Final = "the last reload failed"
"""Beginning of the reason of a service that serves its last good policies: it is degraded."""


def diagnostics_routes(
    unready: Callable[[], Awaitable[Sequence[str]]],
    metrics: Callable[[], Awaitable[bytes]],
    details: Callable[[], Mapping[str, str]] = dict,
) -> Routes:
    """Return the routes of the diagnostics API. `unready` lists why the service is not ready; empty if ready.

    `details` has the condition of parts by name. Readiness does not rest on them.
    """

    async def live(request: web.BaseRequest) -> web.Response:
        return _json(200, {"status": "live"})

    async def ready(request: web.BaseRequest) -> web.Response:
        reasons = await unready()
        more = {"details": found} if (found := details()) else {}
        if reasons:
            degraded = all(reason.startswith(RELOAD_FAILED) for reason in reasons)
            return _json(503, {"status": "degraded" if degraded else "not ready", "reasons": reasons, **more})
        return _json(200, {"status": "ready", **more})

    async def show_metrics(request: web.BaseRequest) -> web.Response:
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return make_response(200, await metrics(), {"Content-Type": content_type}, None)

    found = {"/health/live": live, "/health/ready": ready, "/metrics": show_metrics}
    # some balancers probe by HEAD: the server leaves out the body
    return {(method, path): handler for path, handler in found.items() for method in ("GET", "HEAD")}


def _json(status: int, body: object) -> web.Response:
    return make_response(status, msgspec.json.encode(body), {})
