"""OPA's REST API: documents below `/v1/data/`, health, and the list of policies.

A dialect of OPA is a table of documents, each with endpoints that answer a body `{"input": ...}`. Owns what clients of
OPA expect of every document: JSON under any content type, GET with `?input=`, answers without an input, and errors.
Must not know what a document decides.

An unknown path is 404 and never `{}`, OPA's undefined: at a mistyped path of row filters, Trino reads `{}` as no
filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from pdp.decision.bodies import ErrorBody
from pdp.decision.service import Pdp
from pdp.decision.turns import converted
from pdp.errors import InvalidArgument, Unavailable
from pdp.model.answer import Rejection
from pdp.model.question import Batch, Caller
from pdp.model.strict import parse, refuse_duplicates
from pdp.surfaces.admission import BodyLimits
from pdp.surfaces.http.answers import EndpointAnswer, ErrorForm, HttpFailure, HttpSurface
from pdp.surfaces.http.handlers import HttpHandlers, Query, Routes
from pdp.surfaces.http.routes import BodyEndpoint, ImmediateEndpoint

_CODES: Final = {
    400: "invalid_parameter",
    401: "unauthorized",
    403: "unauthorized",
    404: "resource_not_found",
    405: "invalid_operation",
    413: "invalid_parameter",
    415: "invalid_parameter",
}
"""Status -> OPA's code. All others are `internal_error`."""
_WARNING: Final = {"code": "api_usage_warning", "message": "'input' key missing from the request"}
"""OPA's warning, to the letter."""
_NO_INPUT: Final = Rejection("invalid_argument", "the request has no `input`")
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_READINESS: Final = frozenset({"bundle", "bundles", "plugins"})
"""Parameters of OPA's health that ask for more than a running server."""
_NULL: Final = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct):
    """A body of OPA's API. A null input is none."""

    input: msgspec.Raw = _NULL


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_VALUE: Final = msgspec.json.Decoder(msgspec.Raw)


def opa_error(failure: HttpFailure) -> bytes:
    """Return the body of a failure: the native error, with OPA's `code` and `message` beside."""
    code = _CODES.get(failure.status, "internal_error")
    error = ErrorBody(failure.code, failure.message)
    return msgspec.json.encode({"error": error, "code": code, "message": failure.message})


def opa_surface(name: str) -> HttpSurface:
    """Return the surface of a dialect of OPA. Its routes change nothing."""
    return HttpSurface(name, opa_error, changes_nothing=True, any_parameter=True)


OPA_FORMS: Final[dict[str, ErrorForm]] = dict.fromkeys(("/v1/data", "/v1/policies", "/health"), opa_error)
"""Forms of errors outside of all routes, by the start of the path."""


class OpaDocument(NamedTuple):
    """A document: the path below `/v1/data/`, and two endpoints with the same answers.

    `denial` is the result without an input. A document without a denial needs an input, and takes no GET.
    """

    path: str
    answer: BodyEndpoint
    answer_now: ImmediateEndpoint
    denial: object = None


class OpaDialect:
    """Routes of the documents of one dialect. The name is the surface in records and metrics."""

    def __init__(self, name: str, pdp: Pdp) -> None:
        self._surface = opa_surface(name)
        self._pdp = pdp

    def routes(self, handlers: HttpHandlers, documents: Iterable[OpaDocument], limits: BodyLimits) -> Routes:
        """Return the routes of documents."""
        routes: Routes = {}
        for document in documents:
            path, surface = f"/v1/data/{document.path}", self._surface
            if document.denial is None:
                routes["POST", path] = handlers.for_decision(surface, document.answer, limits, document.answer_now)
                continue
            denied = _DeniedWithoutInput(self._deny, document)
            route = handlers.for_decision(surface, denied.answer, limits, document.answer_now)
            route.otherwise = denied.otherwise
            routes |= {("POST", path): route, ("GET", path): handlers.for_query_string(surface, denied.get)}
        return routes

    def _deny(self, denial: object, caller: Caller) -> EndpointAnswer:
        """Record a request without input, and return the denial with OPA's warning."""
        id = self._pdp.record_failure(Batch(self._surface.name, caller, 1, (), {0: _NO_INPUT}))
        return EndpointAnswer(msgspec.json.encode({"result": denial, "warning": _WARNING}), id)


class _DeniedWithoutInput(NamedTuple):
    """Endpoints of a document with an answer to requests without input."""

    deny: Callable[[object, Caller], EndpointAnswer]
    document: OpaDocument

    async def answer(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Answer a body."""
        try:
            return await self.document.answer(body, caller)
        except InvalidArgument:
            if not await converted(body, lacks_input):
                raise
        return self.deny(self.document.denial, caller)

    def otherwise(self, body: bytes, caller: Caller) -> EndpointAnswer | None:
        """Answer an invalid body; return None for a body with an input."""
        return self.deny(self.document.denial, caller) if lacks_input(body) else None

    async def get(self, query: bytes, caller: Caller) -> EndpointAnswer:
        """Answer a query string."""
        found = read_input(query)
        return await self.answer(b"" if found is None else b'{"input":%b}' % found, caller)


def lacks_input(body: bytes) -> bool:
    """Tell whether a body is empty, or a JSON object without an input."""
    if not body:
        return True
    try:
        if bytes(parse(body, _ENVELOPE).input) != b"null":
            return False
        refuse_duplicates(body)
    except InvalidArgument:
        return False
    return True


def read_input(query: bytes) -> bytes | None:
    """Return the JSON value in the parameter `input` of a query string as sent; None without one.

    Raise InvalidArgument for what two readers may read differently: a second `input`, a text beside the value, and a
    `%` that begins no escape.
    """
    found: bytes | None = None
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if unquote_to_bytes(name.replace(b"+", b" ")) != b"input":
            continue
        if found is not None:
            raise InvalidArgument("parameter `input` is given twice")
        if _BAD_ESCAPE.search(value):
            raise InvalidArgument("parameter `input` has a `%` that begins no escape")
        found = unquote_to_bytes(value.replace(b"+", b" "))
        parse(found, _VALUE)
    return found


def server_routes(handlers: HttpHandlers, unready: Callable[[], Sequence[str]]) -> Routes:
    """Return the routes beside documents: health, and the list of policies in Rego, which is empty."""
    surface = opa_surface("opa")

    async def health(query: Query, caller: Caller) -> EndpointAnswer:
        if any(name in _READINESS and value.lower() != "false" for name, value in query) and unready():
            raise Unavailable("not ready: see `/health/ready` of `server.diagnostics`")
        return EndpointAnswer(b"{}", "")

    async def policies(query: Query, caller: Caller) -> EndpointAnswer:
        return EndpointAnswer(b'{"result":[]}', "")

    listing = handlers.for_query(surface, policies)
    return {
        ("GET", "/health"): handlers.for_probe(surface, health),
        ("GET", "/v1/policies"): listing,
        ("GET", "/v1/policies/"): listing,
    }
