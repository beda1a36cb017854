"""HTTP for LakeQL's scopes: POST /v1/scopes. Only maps bodies; holds no policy."""

from __future__ import annotations

from pdp.decision.scope_requests import decide_scopes, decode_scopes, encode_scopes
from pdp.decision.service import Pdp
from pdp.model.checks import Caller
from pdp.surfaces.body_content import BodyLimits
from pdp.surfaces.http_answers import EndpointAnswer
from pdp.surfaces.http_handlers import HttpHandlers, Routes


def scope_routes(handlers: HttpHandlers, pdp: Pdp, provider: str, limits: BodyLimits, max_checks: int) -> Routes:
    """Return the route POST /v1/scopes. Users of LakeQL are users of `provider`."""

    async def scopes(body: bytes, caller: Caller) -> EndpointAnswer:
        request = decode_scopes(body, provider, max_checks)
        answer = await decide_scopes(pdp, request, caller, "http")
        return EndpointAnswer(encode_scopes(answer), answer.id)

    return {("POST", "/v1/scopes"): handlers.for_decision("http", scopes, limits)}
