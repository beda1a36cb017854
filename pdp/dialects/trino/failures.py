"""Failures on Trino's requests: counted, logged, recorded in the audit, then denied or raised as configured.

Trino reads an undefined answer as an error or as "no filter", so each denial here is a definite answer. Must not know
bodies or routes.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from pdp.decision.service import Pdp
from pdp.errors import Forbidden, InvalidArgument, Unavailable
from pdp.model.answer import Rejection
from pdp.model.question import Batch, Caller
from pdp.model.redaction import without_text
from pdp.model.trino_operations import TRINO_OPERATIONS

DENIED: Final = b'{"result":false}'
NONE_ALLOWED: Final = b'{"result":[]}'
"""Denials of the endpoints `allow` and `batch`."""
_UNDECIDED: Final = Rejection("internal_failure", "no decision could be made", by="internal_failure")
_LOGGED_NAME: Final = 100
"""Characters of an operation's name in the log."""
_UNKNOWN_NAMES: Final = 100
log = structlog.get_logger()


class FailureHandler:
    """Handling of requests without a decision."""

    def __init__(self, pdp: Pdp) -> None:
        self._pdp = pdp
        self._log = FailureLog()

    def handle(self, operation: str, error: Exception, unrecorded: Caller | None = None) -> str:
        """Count, log and record a failure; return the id of the record if the caller of this method must deny.

        The id is empty without a record. `unrecorded` is the caller of a request without an audit record. Raise the
        error itself if the request is at fault; raise Unavailable if `trino.on_internal_failure` is `error`.
        """
        if isinstance(error, InvalidArgument | Forbidden):
            raise error
        pdp = self._pdp
        pdp.telemetry.trino_failures.inc()
        self._log.write(operation, error)
        id = pdp.record_failure(Batch("trino", unrecorded, 1, (), {0: _UNDECIDED})) if unrecorded else ""
        if pdp.bundle.trino.on_internal_failure == "error":
            unavailable = Unavailable("no decision could be made, see the service's log")
            unavailable.record_id = id
            raise unavailable from None
        return id


class FailureLog:
    """Failures in the log: at most one line per second. Each line counts the failures dropped since the last line."""

    def __init__(self) -> None:
        self._next_line = 0.0
        self._dropped = 0

    def write(self, operation: str, error: Exception) -> None:
        """Log a failed request, with a stack trace unless the failure is an expected kind."""
        now = time.monotonic()
        if now < self._next_line:
            self._dropped += 1
            return
        expected = isinstance(error, Unavailable | TimeoutError)
        log.error(
            "trino request failed", operation=operation[:_LOGGED_NAME],
            cause=(str(error) if expected else "") or type(error).__name__, unsaid=self._dropped,
            exc_info=None if expected else without_text(error),
        )  # fmt: skip
        self._next_line, self._dropped = now + 1, 0


class UnknownOperations:
    """Unknown operations. The log names each of the first hundred once; the metric counts all."""

    def __init__(self, pdp: Pdp) -> None:
        self._telemetry = pdp.telemetry
        self._logged: set[str] = set()

    def note(self, operation: str) -> None:
        """Count and log an unknown operation."""
        if operation in TRINO_OPERATIONS:
            return
        self._telemetry.unknown_operations.inc()
        name = operation[:_LOGGED_NAME]
        if name not in self._logged and len(self._logged) < _UNKNOWN_NAMES:
            self._logged.add(name)
            log.warning("unknown trino operation denied", operation=name)
