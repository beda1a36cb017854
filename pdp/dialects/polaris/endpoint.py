"""Endpoint for Apache Polaris's authorizer: the route, and answers as Polaris reads decisions.

Polaris shows users an error, or an answer after two seconds, as a failure. So every answer to a JSON object is a
decision, and a request is denied if the service cannot understand or decide it. Must not know rules of operations.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from msgspec.structs import replace

from pdp.decision.service import Pdp
from pdp.decision.turns import converted
from pdp.dialects.opa import opa_surface
from pdp.dialects.polaris.requests import SURFACE, PolarisReader, decode_request, operation_name
from pdp.errors import InvalidArgument
from pdp.identity.evidence import admit, without_inspection
from pdp.model.answer import Answer, Rejection
from pdp.model.polaris_operations import POLARIS_OPERATIONS
from pdp.model.question import Batch, Caller
from pdp.model.redaction import without_text
from pdp.surfaces.admission import BodyLimits
from pdp.surfaces.http.answers import EndpointAnswer
from pdp.surfaces.http.handlers import HttpHandlers, Routes

ALLOWED: Final = b'{"result":{"allow":true}}'
DENIED: Final = b'{"result":{"allow":false}}'
LONGEST_SECONDS: Final = 1.5
"""Time until Polaris gets an answer. It waits for two seconds, unless it is configured otherwise."""
MAX_BODY: Final = 1 << 20
"""Bytes of a body: a transaction of the most tables has half as many."""
_SHARE: Final = 0.9
"""Share of the time in which a decision is made. The rest is for its record."""
_UNDECIDED: Final = Rejection("internal_failure", "no decision could be made", by="internal_failure")
log = structlog.get_logger()


class PolarisSurface:
    """Endpoint of the authorizer. `seconds` bounds the time to an answer."""

    def __init__(self, pdp: Pdp, seconds: float) -> None:
        self._pdp = pdp
        self._seconds = seconds * _SHARE

    def routes(self, handlers: HttpHandlers, limits: BodyLimits) -> Routes:
        """Return the path of Polaris's configuration."""
        limits = limits._replace(size=min(limits.size, MAX_BODY))
        surface = opa_surface(SURFACE)._replace(denial=DENIED)
        return {("POST", "/v1/data/polaris/authz"): handlers.for_decision(surface, self._answer, limits, self._now)}

    def _now(self, body: bytes, caller: Caller) -> EndpointAnswer | None:
        """Return the answer without waiting; None if the decision takes long."""
        batch = self._batch(body, caller)
        try:
            result = self._pdp.decide_now(batch)
        except Exception as error:  # noqa: BLE001  it denies
            return self._failed(batch, error)
        return None if result is None else self._encode(batch.operation, result.answer)

    async def _answer(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return the answer; a denial if none can be made in time."""
        batch = await converted(body, self._batch, caller)
        try:
            async with asyncio.timeout(self._seconds):
                answer = (await self._pdp.decide(batch)).answer
        except Exception as error:  # noqa: BLE001  it denies
            return self._failed(batch, error)
        return self._encode(batch.operation, answer)

    def _batch(self, body: bytes, caller: Caller) -> Batch:
        """Return the admitted batch of a body; raise InvalidArgument for a body that is no JSON object.

        An object that is not understood is a batch of one rejected position.
        """
        if not body.lstrip().startswith(b"{"):
            raise InvalidArgument("the body is no JSON object")
        operation = ""
        try:
            input = decode_request(body)
            operation = operation_name(input)
            pdp = self._pdp
            request = PolarisReader(pdp.bundle.polaris, pdp.source.facts).read(input, caller)
        except InvalidArgument as error:
            rejected = Rejection(error.code, str(error))
            return Batch(SURFACE, caller, 1, (), {0: rejected}, operation=operation)
        known = POLARIS_OPERATIONS.get(operation)
        batch = admit(request, without_inspection(caller))
        return replace(batch, operation=operation, probes=known is not None and known.probes)

    def _failed(self, batch: Batch, error: Exception) -> EndpointAnswer:
        """Log and record a request without a decision, and deny it."""
        log.error("polaris request failed", operation=batch.operation, exc_info=without_text(error))
        failed = replace(batch, size=1, checks=(), rejected={0: _UNDECIDED}, refused=())
        return EndpointAnswer(DENIED, self._pdp.record_failure(failed))

    def _encode(self, operation: str, answer: Answer) -> EndpointAnswer:
        """Return the answer to checks that must all permit. Count an unknown operation, and log a new one."""
        known = not operation or operation in POLARIS_OPERATIONS
        if not known and self._pdp.telemetry.count_polaris_operation(operation):
            log.warning("unknown polaris operation denied", operation=operation)
        is_allowed = bool(answer.allowed) and 0 not in answer.allowed
        return EndpointAnswer(ALLOWED if is_allowed else DENIED, answer.id)
