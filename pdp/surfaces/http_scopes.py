"""HTTP for LakeQL's scopes: POST /v1/scopes. Only maps bodies; holds no policy."""

from __future__ import annotations

from pdp.decision.scopes import ScopeService, decode_scopes, encode_scopes
from pdp.model.question import Caller
from pdp.surfaces.body_content import BodyLimits
from pdp.surfaces.http_answers import EndpointAnswer
from pdp.surfaces.http_handlers import HttpHandlers, Routes


def scope_routes(handlers: HttpHandlers, service: ScopeService, limits: BodyLimits) -> Routes:
    """Return the route POST /v1/scopes."""

    async def scopes(body: bytes, caller: Caller) -> EndpointAnswer:
        answer = await service.answer(decode_scopes(body), caller, "http")
        return EndpointAnswer(encode_scopes(answer), answer.id)

    return {("POST", "/v1/scopes"): handlers.for_decision("http", scopes, limits)}
