"""Routes of decisions: endpoints that answer a whole body, through aiohttp or through a connection of our own.

Owns the answer to a body: the endpoint, the deadline, the count, the answers to failures, and the wait until the record
is safe. Both servers answer by the same route, so they cannot differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from pdp.decision.turns import LONGEST_IMMEDIATE
from pdp.errors import InvalidArgument, PdpError, Unavailable, UnsupportedMedia
from pdp.model.question import Caller
from pdp.model.revision import new_id
from pdp.surfaces.admission import BodyLimits
from pdp.surfaces.http.answers import EndpointAnswer, HttpAnswer, HttpSurface, failure_of
from pdp.surfaces.refusals import Refusal, RefusalRecorder, Sender, with_token
from pdp.telemetry import RequestTally, Telemetry

if TYPE_CHECKING:
    from aiohttp import web

BodyEndpoint = Callable[[bytes, Caller], Awaitable[EndpointAnswer]]
"""Endpoint with a request body: (body, caller) -> the 200 response."""
ImmediateEndpoint = Callable[[bytes, Caller], EndpointAnswer | None]
"""Endpoint that answers without waiting: (body, caller) -> the 200 response; None if it must wait."""
Handler: TypeAlias = "Callable[[web.BaseRequest], Awaitable[web.Response]]"
"""Handler of aiohttp."""


FAILURES: Final = 500
"""Smallest status of an answer that says nothing of a policy or a request."""
_UNDECIDED: Final = (413, 429)
"""Smaller status of requests that the service does not decide."""


def _always_wait(body: bytes, caller: Caller) -> EndpointAnswer | None:
    return None


class Outcomes:
    """Outcomes of the requests of one surface: each is counted, and each failure has an answer.

    `timeout` is in seconds, from the first byte of a request to its answer.
    """

    def __init__(self, surface: HttpSurface, telemetry: Telemetry, refusals: RefusalRecorder, timeout: float) -> None:
        self.surface = surface.name
        self.changes_nothing = surface.changes_nothing
        self._encode_error = surface.encode_error
        self._denial = surface.denial
        self._only_json = surface.only_json
        self.timeout = timeout
        self.gate = refusals.gate
        self._telemetry = telemetry
        self._refusals = refusals
        self._successes: RequestTally | None = None

    def success(self, found: EndpointAnswer, caller: Caller) -> HttpAnswer:
        """Count a success and return its answer."""
        if self._successes:
            self._successes.count += 1
        else:
            self._successes = self._telemetry.count_request(self.surface, "200")
        decision_id = found.decision_id
        return HttpAnswer(200, found.body, caller.request_id or decision_id or new_id(), decision_id)

    def failure(self, error: Exception, sender: Sender, endpoint: str) -> HttpAnswer:
        """Count and record a failure, and return its answer. A failure that is no answer of the product is logged."""
        failure = failure_of(error, self.surface, self.timeout)
        if self._only_json and isinstance(error, UnsupportedMedia):
            failure = replace(failure, status=400)
        status, code = str(failure.status), failure.code
        self._telemetry.count_request(self.surface, status)
        recorded = error.record_id if isinstance(error, PdpError) else ""
        refusal = Refusal(self.surface, endpoint, status, code, failure.message)
        id = recorded or self._refusals.record(refusal, with_token(sender, error))
        if self._denial and (failure.status >= FAILURES or failure.status in _UNDECIDED):
            return HttpAnswer(200, self._denial, sender.request_id or id, recorded)
        return HttpAnswer(failure.status, self._encode_error(failure), sender.request_id or id, recorded)

    async def settled(self, answer: HttpAnswer, sender: Sender, endpoint: str, deadline: float) -> HttpAnswer:
        """Return an answer once its record is safe; a failure if that cannot be, or not until `deadline`.

        Failures of the service wait for nothing.
        """
        if not self.gate.holds or answer.status >= FAILURES:
            return answer
        try:
            async with asyncio.timeout_at(deadline):
                await self.gate.durable()
        except (Unavailable, TimeoutError) as error:
            return self.failure(error, sender, endpoint)
        return answer


class DecisionRoute:
    """A route whose answer depends on the body and the caller alone. A call answers a request of aiohttp.

    `now` and `later` give the same answer. `now` returns None if the answer must be waited for.
    """

    def __init__(
        self,
        endpoint: BodyEndpoint,
        immediate: ImmediateEndpoint | None,
        outcomes: Outcomes,
        limits: BodyLimits,
        handler: Handler,
    ) -> None:
        self.outcomes = outcomes
        self.gate = outcomes.gate
        self.path = ""
        """Path of the route, once a server has it."""
        self.max_body = limits.size
        self._limits = limits
        self._longest_immediate = min(LONGEST_IMMEDIATE, limits.values)
        self._endpoint = endpoint
        self._immediate = immediate or _always_wait
        self.otherwise: ImmediateEndpoint | None = None
        """Answer of `endpoint` to an invalid body; None for an error."""
        self._handler = handler

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """Answer a request of aiohttp."""
        return await self._handler(request)

    def now(self, body: bytes, caller: Caller) -> HttpAnswer | None:
        """Answer without waiting; return None if that is not possible, or takes long."""
        if len(body) > self._longest_immediate or self.gate.crowded:
            return None
        try:
            found = self._immediate(body, caller)
        except Exception as error:  # noqa: BLE001  the failure is the answer
            found = self.otherwise(body, caller) if self.otherwise and isinstance(error, InvalidArgument) else None
            if found is None:
                return self.outcomes.failure(error, caller, self.path)
        return None if found is None else self.outcomes.success(found, caller)

    async def later(self, body: bytes, caller: Caller, deadline: float) -> HttpAnswer:
        """Answer at the latest at `deadline`, a time of the event loop."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.gate.room()
                await self._limits.check(body)
                found = await self._endpoint(body, caller)
        except Exception as error:  # noqa: BLE001  the failure is the answer
            return self.outcomes.failure(error, caller, self.path)
        return self.outcomes.success(found, caller)


class HeldAnswer:
    """One held answer. `send` is called once: with the answer, or with a failure if no answer may leave."""

    __slots__ = ("_answer", "_route", "_send", "_sender")

    def __init__(
        self, route: DecisionRoute, answer: HttpAnswer, sender: Sender, send: Callable[[HttpAnswer], None]
    ) -> None:
        self._route = route
        self._answer = answer
        self._sender = sender
        self._send: Callable[[HttpAnswer], None] | None = send
        route.gate.when_durable(self._settle)

    def forget(self) -> None:
        """Send nothing any more: the client is gone."""
        self._send = None
        self._route.gate.forget(self._settle)

    def fail(self, error: Exception) -> None:
        """Send a failure in place of the answer: the time is over."""
        self._route.gate.forget(self._settle)
        self._settle(error)

    def _settle(self, error: Exception | None) -> None:
        send, self._send = self._send, None
        if send:
            send(self._route.outcomes.failure(error, self._sender, self._route.path) if error else self._answer)
