"""Ids of requests: those that a caller sends, or else the id of the request's own record.

The caller's ids go into every record of the request, and its request id goes back to the caller. An id that a log or a
header could not hold as it is counts as none. No decision depends on an id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from pdp.model.question import Caller

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


Sender: TypeAlias = Caller | Stranger
"""Sender of a request that may be refused."""


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


def stranger(peer: str, ids: SentIds) -> Stranger:
    """Return the sender of a request before its caller is known."""
    return Stranger(peer, ids.request_id, ids.trace_id, ids.span_id)


def _read_trace_parent(text: str) -> tuple[str, str]:
    """Return the ids of a trace and of a span in it; empty if the text is not valid."""
    found = _TRACE_PARENT.fullmatch(text) if len(text) <= _LONGEST_TRACE_PARENT else None
    if found is None or (found[1] == "00" and found[4] is not None):
        return "", ""
    return found[2], found[3]
