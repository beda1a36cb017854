"""Ids of requests: the id that a caller sends, or else the id of the request's own record.

The caller's id goes into every record of the request and back to the caller. An id that a log or a header could not
hold as it is counts as none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from pdp.model.checks import Caller

REQUEST_ID: Final = "X-Request-ID"
DECISION_ID: Final = "X-Decision-ID"
"""Headers of HTTP. gRPC has the same names in lower case as metadata."""
_VALID: Final = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}", re.ASCII)


class Stranger(msgspec.Struct, frozen=True):
    """Sender of a request whose caller is not known: the address of the peer, if it has one."""

    peer: str = ""
    request_id: str = ""


Sender: TypeAlias = Caller | Stranger
"""Sender of a request that may be refused."""


def read_request_id(sent: Sequence[str]) -> str:
    """Return the id of a request from the values of its header; empty unless there is exactly one valid id."""
    return sent[0] if len(sent) == 1 and _VALID.fullmatch(sent[0]) else ""


def with_request_id(caller: Caller, request_id: str) -> Caller:
    """Return a caller whose records carry the id of a request."""
    return msgspec.structs.replace(caller, request_id=request_id) if request_id else caller
