"""HTTP for decisions: POST /v1/check. Only maps bodies; holds no policy."""

from __future__ import annotations

from pdp.decision.answer_codec import encode_answer
from pdp.decision.codec import decode_call
from pdp.decision.service import Pdp
from pdp.identity.evidence import admit
from pdp.model.checks import Caller
from pdp.surfaces.body_content import BodyLimits
from pdp.surfaces.http_handlers import HttpHandlers, Routes


def decision_routes(handlers: HttpHandlers, pdp: Pdp, max_checks: int, limits: BodyLimits) -> Routes:
    """Return the routes of the check API."""

    async def check(body: bytes, caller: Caller) -> bytes:
        request, form = decode_call(body, max_checks)
        return encode_answer(await pdp.check(admit(request, caller)), form)

    def check_now(body: bytes, caller: Caller) -> bytes | None:
        request, form = decode_call(body, max_checks)
        result = pdp.decide_now(admit(request, caller))
        return encode_answer(result.answer, form) if result else None

    return {("POST", "/v1/check"): handlers.for_decision("http", check, limits, check_now)}
