"""Answer that is made, and waits until its record is safe. Only `audit.durability: request` holds answers."""

from __future__ import annotations

from collections.abc import Callable

from pdp.surfaces.http_answers import HttpAnswer
from pdp.surfaces.http_routes import DecisionRoute
from pdp.surfaces.request_ids import Sender


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
