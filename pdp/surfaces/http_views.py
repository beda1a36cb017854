"""HTTP for view security: loads through view chains, and view commits. Only maps bodies; holds no policy."""

from __future__ import annotations

from pdp.decision.turns import converted
from pdp.model.question import Caller
from pdp.surfaces.body_content import BodyLimits
from pdp.surfaces.http_answers import EndpointAnswer
from pdp.surfaces.http_handlers import HttpHandlers, Routes
from pdp.views.codec import decode_change, decode_load, encode_change, encode_load
from pdp.views.loads import ViewSecurity


def view_routes(handlers: HttpHandlers, views: ViewSecurity, limits: BodyLimits) -> Routes:
    """Return the routes POST /v1/load and POST /v1/commit-view."""

    async def load(body: bytes, caller: Caller) -> EndpointAnswer:
        result = await views.load(await converted(body, decode_load), caller, "http")
        return EndpointAnswer(encode_load(result), result.id)

    async def change(body: bytes, caller: Caller) -> EndpointAnswer:
        result = await views.change(await converted(body, decode_change), caller, "http")
        return EndpointAnswer(encode_change(result), result.id)

    return {
        ("POST", "/v1/load"): handlers.for_body("http", load, limits),
        ("POST", "/v1/commit-view"): handlers.for_body("http", change, limits),
    }
