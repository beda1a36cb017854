"""Literal tokens to values: numbers, strings and bytes with their escapes. Knows offsets, for errors, and no tree."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from pdp.cel.syntax import CompileError
from pdp.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\"'\\?`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|.?)",
    re.DOTALL,
)
_SIMPLE: Final = dict(zip("abfnrtv\"'\\?`", "\a\b\f\n\r\t\v\"'\\?`", strict=True))


def integer(token: str, pos: int) -> int:
    value = _whole(token)
    if not INT_MIN <= value <= INT_MAX:
        raise CompileError("integer literal out of range", pos)
    return value


def unsigned(token: str, pos: int) -> Uint:
    value = _whole(token[:-1])
    if value > UINT_MAX:
        raise CompileError("unsigned literal out of range", pos)
    return Uint(value)


def double(token: str, pos: int) -> float:
    value = float(token)
    if math.isinf(value):
        raise CompileError("double literal out of range", pos)
    return value


def _whole(token: str) -> int:
    """Digits beyond any 64-bit number are out of range without being read: int() of them would be quadratic."""
    if len(token.lstrip("-0xX")) > 20:
        return UINT_MAX + 1
    return int(token, 16 if "x" in token else 10)


def string(token: str, pos: int) -> str:
    raw, start, end = _body(token)
    if raw:
        return token[start:end]
    return _ESCAPE.sub(lambda match: _character(match, pos + start), token[start:end])


def octets(token: str, pos: int) -> bytes:
    """`b'...'`: characters stand for their UTF-8, hexadecimal and octal escapes for one byte."""
    raw, start, end = _body(token[1:])
    body, offset = token[start + 1 : end + 1], pos + start + 1
    if raw:
        return body.encode("utf-8", "surrogatepass")
    parts, last = [], 0
    for match in _ESCAPE.finditer(body):
        parts += [body[last : match.start()].encode("utf-8", "surrogatepass"), _byte(match, offset)]
        last = match.end()
    return b"".join([*parts, body[last:].encode("utf-8", "surrogatepass")])


def _body(token: str) -> tuple[bool, int, int]:
    """Whether the literal is raw, and where its text begins and ends."""
    raw = token[0] in "rR"
    start = 1 if raw else 0
    quotes = 3 if token[start : start + 3] in ("'''", '"""') and len(token) >= start + 6 else 1
    return raw, start + quotes, len(token) - quotes


def _character(match: re.Match[str], base: int) -> str:
    simple, *numbers = match.groups()
    if simple:
        return _SIMPLE[simple]
    code = _code(numbers)
    if code is None or code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise CompileError(f"invalid escape `{match[0]}`", base + match.start())
    return chr(code)


def _byte(match: re.Match[str], base: int) -> bytes:
    simple, two, four, eight, octal = match.groups()
    if simple:
        return _SIMPLE[simple].encode()
    code = _code([two, None, None, octal])
    if code is None or four or eight:
        raise CompileError(f"invalid escape `{match[0]}` in bytes", base + match.start())
    return bytes([code])


def _code(groups: list[Any]) -> int | None:
    *hexadecimal, octal = groups
    if octal:
        return int(octal, 8)
    return next((int(digits, 16) for digits in hexadecimal if digits), None)
