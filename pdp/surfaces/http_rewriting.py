"""HTTP for rewriting: POST /v1/rewrite and POST /v1/filters. Only maps bodies; holds no policy."""

from __future__ import annotations

from pdp.decision.turns import converted
from pdp.model.question import Caller
from pdp.row_access.bodies import decode_filter, decode_rewrite, encode_filter, encode_rewrite
from pdp.row_access.service import SqlRewriting
from pdp.surfaces.body_content import BodyLimits
from pdp.surfaces.http_answers import EndpointAnswer
from pdp.surfaces.http_handlers import HttpHandlers, Routes


def rewriting_routes(handlers: HttpHandlers, rewriting: SqlRewriting, limits: BodyLimits) -> Routes:
    """Return the routes POST /v1/rewrite and POST /v1/filters."""

    async def rewrite(body: bytes, caller: Caller) -> EndpointAnswer:
        result = await rewriting.rewrite(await converted(body, decode_rewrite), caller, "http")
        return EndpointAnswer(encode_rewrite(result), result.id)

    async def filter(body: bytes, caller: Caller) -> EndpointAnswer:
        result = await rewriting.filter(await converted(body, decode_filter), caller, "http")
        return EndpointAnswer(encode_filter(result), result.id)

    return {
        ("POST", "/v1/rewrite"): handlers.for_body("http", rewrite, limits),
        ("POST", "/v1/filters"): handlers.for_body("http", filter, limits),
    }
