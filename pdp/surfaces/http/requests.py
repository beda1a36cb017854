"""Plain requests of one connection: their heads, routes and callers.

Owns the way from bytes to a request of a known caller. Must not know bodies or answers.

A head is plain if all HTTP servers read it in the same way: one request line of HTTP/1.1, each header once, in
printable ASCII, exactly one Content-Length of digits, and no header that changes how the body or the connection is
read. Any other head may be correct too, but aiohttp judges it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from pdp.errors import Unavailable
from pdp.identity.callers import Callers, KnownCaller, Peer
from pdp.identity.tokens import MAX_TOKEN
from pdp.model.question import Caller
from pdp.surfaces.http.routes import DecisionRoute
from pdp.surfaces.peers import ConnectionEvidence, without_fetch_of_node
from pdp.surfaces.refusals import NO_IDS, TRACE_PARENT, SentIds, Stranger, read_ids, stranger, with_ids

LONGEST_HEAD: Final = MAX_TOKEN + 1024
"""Most bytes of a plain head. The longest token has room in it. aiohttp refuses a single header of more bytes, so no
plain head has a header that aiohttp would refuse."""
MOST_HEADERS: Final = 100
"""Most headers of any request."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name: the token of RFC 9110, section 5.6.2."""
_LENGTH: Final = re.compile(r"[0-9]{1,10}")
_NEVER_PLAIN: Final = frozenset(
    {
        "content-encoding",
        "expect",
        "proxy-connection",
        "sec-websocket-key1",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_CONTENT_TYPES: Final = frozenset(
    {"application/json", "application/json; charset=utf-8", "application/json;charset=utf-8"}
)
_MOST_PIECES: Final = 4
"""Most packets of one head. Each packet costs a check of all of the head that has arrived."""
LONGEST_LENGTH: Final = 10
"""Most digits of a Content-Length."""
_LINE_END: Final = b"\r\n"
_END: Final = b"\r\n\r\n"


class SimpleRequest(msgspec.Struct, frozen=True):
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


class CheckedHead(NamedTuple):
    """The last plain head of a connection. A client repeats it, but for the length of the body."""

    before: bytes
    after: bytes
    route: DecisionRoute
    known: KnownCaller


class RequestReader:
    """Reader of the requests of one connection. `routes` are by request line."""

    __slots__ = ("_callers", "_evidence", "_pieces", "_routes", "_transport", "_unverified", "_verified", "last")

    def __init__(self, routes: Mapping[str, DecisionRoute], callers: Callers, transport: asyncio.Transport) -> None:
        self._routes = routes
        self._callers = callers
        self._transport = transport
        self._evidence: ConnectionEvidence | None = None
        self.last: CheckedHead | None = None
        self._pieces = 0
        self._unverified = Peer()
        self._verified: Exception | bool = False
        """The outcome of the verification of a token: an error, or true."""

    def read(self, data: bytes, at: int) -> SimpleRequest | NoRequest:
        """Return the request that begins at `at`."""
        # The outcome of a verification counts for the request that waited for it, and for no later one.
        verified, self._verified = self._verified, False
        last = self.last
        if last and data.startswith(last.before, at):
            start = at + len(last.before)
            end = data.find(_LINE_END, start, start + LONGEST_LENGTH + len(_LINE_END))
            length = data[start:end] if end > start else b""
            if length.isdigit() and data.startswith(last.after, end) and self.is_still_known(last.known):
                self._pieces = 0
                size = int(length)
                if size > last.route.max_body:
                    return NoRequest.FOREIGN
                return SimpleRequest(last.route, end + len(last.after), size, last.known.caller)
        return self._check(data, at, verified)

    async def verify(self) -> None:
        """Verify the token of an unverified request. Then `read` the request again."""
        try:
            await self._callers.identify(self._unverified)
            self._verified = True
        except Exception as error:  # noqa: BLE001  the failure is the answer
            self._verified = error

    def is_still_known(self, known: KnownCaller) -> bool:
        """Tell whether the caller of a head that was checked before is still valid."""
        return known.token is None or self._callers.is_still_known(known)

    def _check(self, data: bytes, at: int, verified: Exception | bool) -> SimpleRequest | NoRequest:
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
            return SimpleRequest(route, end, head.length, self._unknown(verified, ids))
        try:
            known = self._known(head, route, verified=verified)
        except Exception as error:  # noqa: BLE001  the failure is the answer
            return SimpleRequest(route, end, head.length, self._unknown(error, ids))
        if known is None:
            return NoRequest.UNVERIFIED
        if ids is not NO_IDS:
            known = known._replace(caller=with_ids(known.caller, ids))
        self.last = CheckedHead(head.before, head.after, route, known)
        return SimpleRequest(route, end, head.length, known.caller)

    def _incomplete(self, start: bytes) -> NoRequest:
        """Return INCOMPLETE for the start of a head that may still become plain."""
        self._pieces += 1
        if self._pieces > _MOST_PIECES or len(start) >= LONGEST_HEAD or not may_become_plain(start, self._routes):
            return NoRequest.FOREIGN
        return NoRequest.INCOMPLETE

    def _known(self, head: SimpleHead, route: DecisionRoute, *, verified: bool) -> KnownCaller | None:
        """Return the caller of a request; None if the token must be verified first. Raise as `identify` does."""
        token = head.headers.get("authorization")
        evidence = self._connection_evidence()
        names = without_fetch_of_node(head.headers.items()) if route.outcomes.changes_nothing else head.headers
        suspicion = evidence.suspicion(names, head.headers["host"], json=True)
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


class SimpleHead(NamedTuple):
    """A plain head, cut around the number of its Content-Length.

    Two heads with the same parts differ in the length only, so one check is good for both.
    """

    line: str
    """The request line."""
    headers: dict[str, str]
    """Values by name in lower case."""
    before: bytes
    after: bytes
    length: int


def read_head(head: bytes) -> SimpleHead | None:
    """Return a whole head, blank line included, as a plain head; None if the head is not plain."""
    if not head.isascii():
        return None
    line, *fields, _, _ = head.decode("ascii").split("\r\n")
    headers = _read_fields(fields)
    if headers is None or not line.isprintable() or not headers.get("host"):
        return None
    digits = headers.get("content-length")
    if digits is None or headers.get("content-type", "").lower() not in _CONTENT_TYPES:
        return None
    at = _start_of_length(line, fields)
    return SimpleHead(line, headers, head[:at], head[at + len(digits) :], int(digits))


def may_become_plain(start: bytes, lines: Collection[str]) -> bool:
    """Tell whether the start of a head may still become a plain head with one of these request lines."""
    if not start.isascii():
        return False
    line, *fields = start.decode("ascii").split("\r\n")
    if not fields:
        return any(f"{whole}\r".startswith(line) for whole in lines)
    last = fields.pop()
    if last.endswith("\r"):
        last = last[:-1]
    elif ":" not in last:  # a part of a name, or nothing
        return line in lines and _read_fields(fields) is not None and (not last or bool(_NAME.fullmatch(last)))
    return line in lines and _read_fields([*fields, last] if last else fields) is not None


def _read_fields(fields: list[str]) -> dict[str, str] | None:
    """Return the values of header lines by name; None if a line is not plain."""
    headers: dict[str, str] = {}
    for field in fields:
        name, colon, value = field.partition(":")
        name, value = name.lower(), value.strip(" ")
        # a printable line has no bare CR or LF, no NUL and no tab
        if not colon or not field.isprintable() or not _NAME.fullmatch(name) or not _is_plain(name, value):
            return None
        headers[name] = value
    return headers if len(headers) == len(fields) <= MOST_HEADERS else None


def _is_plain(name: str, value: str) -> bool:
    """Tell whether a header leaves the reading of the body and of the connection as it is."""
    if name == "content-length":
        return bool(_LENGTH.fullmatch(value))
    if name == "connection":
        return value.lower() == "keep-alive"
    return name not in _NEVER_PLAIN


def _start_of_length(line: str, fields: list[str]) -> int:
    """Return the position of the number of the Content-Length in a head."""
    at = len(line) + 2
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == "content-length":
            return at + len(name) + 1 + len(value) - len(value.lstrip(" "))
        at += len(field) + 2
    raise AssertionError("a plain head has a Content-Length")
