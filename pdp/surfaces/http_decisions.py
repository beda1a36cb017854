"""HTTP for decisions: POST /v1/check. Only maps bodies; holds no policy."""

from __future__ import annotations

from pdp.decision.codec import decode_call, encode_answer
from pdp.decision.service import Pdp
from pdp.decision.turns import converted
from pdp.identity.evidence import admit
from pdp.model.question import Caller
from pdp.surfaces.body_content import BodyLimits
from pdp.surfaces.http_answers import EndpointAnswer
from pdp.surfaces.http_handlers import HttpHandlers, Routes


def decision_routes(handlers: HttpHandlers, pdp: Pdp, max_checks: int, limits: BodyLimits) -> Routes:
    """Return the routes of the check API."""

    async def check(body: bytes, caller: Caller) -> EndpointAnswer:
        request, form = await converted(body, decode_call, max_checks)
        answer = (await pdp.decide(admit(request, caller))).answer
        return EndpointAnswer(encode_answer(answer, form), answer.id)

    def check_now(body: bytes, caller: Caller) -> EndpointAnswer | None:
        request, form = decode_call(body, max_checks)
        result = pdp.decide_now(admit(request, caller))
        if result is None:
            return None
        answer = result.answer
        return EndpointAnswer(encode_answer(answer, form), answer.id)

    return {("POST", "/v1/check"): handlers.for_decision("http", check, limits, check_now)}
