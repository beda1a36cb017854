"""Ids of requests, and records of refused ones: a bounded number per second and reason gets a record each.

The others are counted, and the count is in the record that ends the second. A reason is a surface and an error code.

The caller's ids go into every record of the request, and its request id goes back to the caller. An id that a log or a
header could not hold as it is counts as none. No decision depends on an id.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from pdp.errors import Unauthenticated, UnverifiedToken
from pdp.model.events import OPEN_GATE, AnswerHold, EventLog, RefusalEvent, token_subject
from pdp.model.question import Caller
from pdp.model.revision import new_id

REQUEST_ID: Final = "X-Request-ID"
DECISION_ID: Final = "X-Decision-ID"
TRACE_PARENT: Final = "traceparent"
"""Headers of HTTP. gRPC has the same names in lower case as metadata."""
_VALID: Final = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}", re.ASCII)
_LONGEST_TRACE_PARENT: Final = 512
_TRACE_PARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-[!-~]*)?"
)
"""W3C Trace Context, section 3.2: version, trace id, span id, flags, and what a later version may add."""
MOST_PER_SECOND: Final = 10
"""Records of one reason in one second, without the record of the count."""
_SECOND: Final = 1.0
_LONGEST_MESSAGE: Final = 500


class Refusal(msgspec.Struct, frozen=True):
    """A refused request: its surface and endpoint, and the answer."""

    surface: str
    endpoint: str
    status: str
    code: str
    message: str


class _Tally:
    """Refusals for one reason in this second: those with a record, and the others so far."""

    __slots__ = ("recorded", "refusal", "suppressed")

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.recorded = self.suppressed = 0


class RefusalRecorder:
    """Recorder of the refusals of all surfaces. Call from the event loop only."""

    def __init__(self, log: EventLog, gate: AnswerHold = OPEN_GATE) -> None:
        """Record in a log. `gate` is that of the same audit: refusals wait at it, too."""
        self._log = log
        self.gate = gate
        self._tallies: dict[tuple[str, str], _Tally] = {}
        """The reasons of this second."""
        self._timer: asyncio.TimerHandle | None = None

    def record(self, refusal: Refusal, sender: Sender) -> str:
        """Record a refusal, or count it if its reason had enough records in this second; return a new id."""
        id = new_id()
        tally = self._tallies.get((refusal.surface, refusal.code))
        if tally is None:
            tally = self._tallies[refusal.surface, refusal.code] = _Tally(refusal)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SECOND, self._end_second)
        if tally.recorded < MOST_PER_SECOND and self._log.note(_event(refusal, sender, id)):
            tally.recorded += 1
        else:
            tally.suppressed += 1
        return id

    def flush(self) -> None:
        """Record the counts of suppressed refusals now. What the audit cannot take stays counted."""
        for reason, tally in list(self._tallies.items()):
            if not tally.suppressed or self._log.note(_count_event(tally)):
                del self._tallies[reason]
            else:
                tally.recorded = MOST_PER_SECOND  # the audit is full: only count, until it takes the count

    def _end_second(self) -> None:
        self._timer = None
        self.flush()
        if self._tallies:
            self._timer = asyncio.get_running_loop().call_later(_SECOND, self._end_second)


def _event(refusal: Refusal, sender: Sender, id: str) -> RefusalEvent:
    token = sender.token if isinstance(sender, Stranger) else None
    return RefusalEvent(
        id=id,
        surface=refusal.surface,
        endpoint=refusal.endpoint,
        status=refusal.status,
        code=refusal.code,
        message=refusal.message[:_LONGEST_MESSAGE],
        caller=sender.name if isinstance(sender, Caller) else "",
        caller_principal=token_subject(sender) if isinstance(sender, Caller) else "",
        peer=sender.peer if isinstance(sender, Stranger) else "",
        unverified_issuer=token.issuer if token else "",
        unverified_kid=token.kid if token else "",
        request_id=sender.request_id,
        trace_id=sender.trace_id,
        span_id=sender.span_id,
    )


def _count_event(tally: _Tally) -> RefusalEvent:
    refusal = tally.refusal
    return RefusalEvent(surface=refusal.surface, status=refusal.status, code=refusal.code, suppressed=tally.suppressed)


class SentIds(msgspec.Struct, frozen=True, gc=False):
    """Ids that the sender of a request gives it. Each is empty without a valid one."""

    request_id: str = ""
    trace_id: str = ""
    span_id: str = ""


NO_IDS: Final = SentIds()


class Stranger(msgspec.Struct, frozen=True):
    """Sender of a request whose caller is not known: the address of the peer, if it has one."""

    peer: str = ""
    request_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    token: UnverifiedToken | None = None
    """Names in the refused token."""


Sender: TypeAlias = Caller | Stranger
"""Sender of a request that may be refused."""


def with_token(sender: Sender, error: Exception) -> Sender:
    """Return a sender with the names in the token that an error refuses."""
    token = error.unverified if isinstance(error, Unauthenticated) else None
    return msgspec.structs.replace(sender, token=token) if token and isinstance(sender, Stranger) else sender


def read_ids(request_ids: Sequence[str], trace_parents: Sequence[str]) -> SentIds:
    """Return the ids of a request from the values of its headers. A header that is there twice counts as none."""
    request_id = request_ids[0] if len(request_ids) == 1 and _VALID.fullmatch(request_ids[0]) else ""
    trace_id, span_id = _read_trace_parent(trace_parents[0]) if len(trace_parents) == 1 else ("", "")
    return SentIds(request_id, trace_id, span_id) if request_id or trace_id else NO_IDS


def with_ids(caller: Caller, ids: SentIds) -> Caller:
    """Return a caller whose records carry the ids of a request."""
    if ids is NO_IDS:
        return caller
    return msgspec.structs.replace(caller, request_id=ids.request_id, trace_id=ids.trace_id, span_id=ids.span_id)


def stranger(peer: str, ids: SentIds, token: UnverifiedToken | None = None) -> Stranger:
    """Return the sender of a request before its caller is known."""
    return Stranger(peer, ids.request_id, ids.trace_id, ids.span_id, token)


def _read_trace_parent(text: str) -> tuple[str, str]:
    """Return the ids of a trace and of a span in it; empty if the text is not valid."""
    found = _TRACE_PARENT.fullmatch(text) if len(text) <= _LONGEST_TRACE_PARENT else None
    if found is None or (found[1] == "00" and found[4] is not None):
        return "", ""
    return found[2], found[3]
