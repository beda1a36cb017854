"""Plain requests of one connection: their routes and their callers.

Owns the way from bytes to a request of a known caller. Knows neither bodies nor answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from pdp.errors import Unavailable
from pdp.identity.callers import Callers, KnownCaller, Peer
from pdp.model.question import Caller
from pdp.surfaces.http_head import LONGEST_HEAD, PlainHead, may_become_plain, read_head
from pdp.surfaces.http_routes import DecisionRoute
from pdp.surfaces.peers import ConnectionEvidence
from pdp.surfaces.request_ids import NO_IDS, TRACE_PARENT, SentIds, Stranger, read_ids, stranger, with_ids

_MOST_PIECES: Final = 4
"""Most packets of one head. Each packet costs a check of all of the head that has arrived."""
_LONGEST_LENGTH: Final = 10
_LINE_END: Final = b"\r\n"
_END: Final = b"\r\n\r\n"


class PlainRequest(msgspec.Struct, frozen=True):
    """A request with a plain head. The body begins at `start` and has `size` bytes."""

    route: DecisionRoute
    start: int
    size: int
    caller: Caller | UnknownSender
    """The caller, or the reason to refuse the request."""


class UnknownSender(NamedTuple):
    """The sender of a refused request, and the reason."""

    sender: Stranger
    error: Exception


class NoRequest(Enum):
    """Reasons why bytes do not begin with a plain request of a known caller."""

    INCOMPLETE = "the head has not arrived whole"
    UNVERIFIED = "the token must be verified first"
    FOREIGN = "the request is not plain, or asks another route"


class _CheckedHead(NamedTuple):
    """The last plain head of a connection. A client repeats it, but for the length of the body."""

    before: bytes
    after: bytes
    route: DecisionRoute
    known: KnownCaller


class RequestReader:
    """Reader of the requests of one connection. `routes` are by request line."""

    __slots__ = ("_callers", "_evidence", "_last", "_pieces", "_routes", "_transport", "_unverified", "_verified")

    def __init__(self, routes: Mapping[str, DecisionRoute], callers: Callers, transport: asyncio.Transport) -> None:
        self._routes = routes
        self._callers = callers
        self._transport = transport
        self._evidence: ConnectionEvidence | None = None
        self._last: _CheckedHead | None = None
        self._pieces = 0
        self._unverified = Peer()
        self._verified: Exception | bool = False
        """The outcome of the verification of a token: an error, or true."""

    def read(self, data: bytes, at: int) -> PlainRequest | NoRequest:
        """Return the request that begins at `at`."""
        # The outcome of a verification counts for the request that waited for it, and for no later one.
        verified, self._verified = self._verified, False
        last = self._last
        if last and data.startswith(last.before, at):
            start = at + len(last.before)
            end = data.find(_LINE_END, start, start + _LONGEST_LENGTH + len(_LINE_END))
            length = data[start:end] if end > start else b""
            if length.isdigit() and data.startswith(last.after, end) and self._is_still_known(last.known):
                self._pieces = 0
                size = int(length)
                if size > last.route.max_body:
                    return NoRequest.FOREIGN
                return PlainRequest(last.route, end + len(last.after), size, last.known.caller)
        return self._check(data, at, verified)

    async def verify(self) -> None:
        """Verify the token of an unverified request. Then `read` the request again."""
        try:
            await self._callers.identify(self._unverified)
            self._verified = True
        except Exception as error:  # noqa: BLE001  the failure is the answer
            self._verified = error

    def _is_still_known(self, known: KnownCaller) -> bool:
        return known.token is None or self._callers.is_still_known(known)

    def _check(self, data: bytes, at: int, verified: Exception | bool) -> PlainRequest | NoRequest:
        """Return the request with a new head."""
        end = data.find(_END, at, at + LONGEST_HEAD)
        if end < 0:
            return self._incomplete(data[at:])
        end += len(_END)
        head = read_head(data[at:end])
        route = self._routes.get(head.line) if head else None
        if head is None or route is None or head.length > route.max_body:
            return NoRequest.FOREIGN
        self._pieces = 0
        ids = _ids(head.headers)
        if isinstance(verified, Exception):
            return PlainRequest(route, end, head.length, self._unknown(verified, ids))
        try:
            known = self._known(head, verified=verified)
        except Exception as error:  # noqa: BLE001  the failure is the answer
            return PlainRequest(route, end, head.length, self._unknown(error, ids))
        if known is None:
            return NoRequest.UNVERIFIED
        if ids is not NO_IDS:
            known = known._replace(caller=with_ids(known.caller, ids))
        self._last = _CheckedHead(head.before, head.after, route, known)
        return PlainRequest(route, end, head.length, known.caller)

    def _incomplete(self, start: bytes) -> NoRequest:
        """Return INCOMPLETE for the start of a head that may still become plain."""
        self._pieces += 1
        if self._pieces > _MOST_PIECES or len(start) >= LONGEST_HEAD or not may_become_plain(start, self._routes):
            return NoRequest.FOREIGN
        return NoRequest.INCOMPLETE

    def _known(self, head: PlainHead, *, verified: bool) -> KnownCaller | None:
        """Return the caller of a request; None if the token must be verified first. Raise as `identify` does."""
        token = head.headers.get("authorization")
        evidence = self._connection_evidence()
        suspicion = evidence.suspicion(head.headers, head.headers["host"], json=True)
        self._unverified = evidence.peer(() if token is None else (token,), suspicion)
        known = self._callers.known(self._unverified)
        if known is None and verified:  # the keys became too old during the verification
            raise Unavailable("the keys of the identity provider are too old")
        return known

    def _unknown(self, error: Exception, ids: SentIds) -> UnknownSender:
        return UnknownSender(stranger(self._connection_evidence().host, ids), error)

    def _connection_evidence(self) -> ConnectionEvidence:
        if self._evidence is None:
            name = self._transport.get_extra_info("peername")
            host = str(name[0]) if isinstance(name, tuple) else name or ""
            self._evidence = ConnectionEvidence.of(self._transport, host)
        return self._evidence


def _ids(headers: Mapping[str, str]) -> SentIds:
    """Return the ids in a plain head, which has each header at most once."""
    request_id, trace_parent = headers.get("x-request-id"), headers.get(TRACE_PARENT)
    if request_id is None and trace_parent is None:
        return NO_IDS
    return read_ids((request_id or "",), (trace_parent or "",))
