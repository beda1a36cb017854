"""Heads of plain requests. Owns the recognition of a plain head; knows no connection and no policy.

A head is plain if all HTTP servers read it in the same way: one request line of HTTP/1.1, each header once, in
printable ASCII, exactly one Content-Length of digits, and no header that changes how the body or the connection is
read. Any other head may be correct too, but aiohttp judges it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from pdp.identity.tokens import MAX_TOKEN

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


class PlainHead(NamedTuple):
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


def read_head(head: bytes) -> PlainHead | None:
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
    return PlainHead(line, headers, head[:at], head[at + len(digits) :], int(digits))


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
