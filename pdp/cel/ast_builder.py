"""Syntax nodes from the parts that the parser has read: macros are expanded, and literal tokens become values.

Offsets of literals serve error messages only. Source: the CEL specification (langdef.md), "Numeric Values" and "String
and Bytes Values".
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from pdp.cel.syntax import (
    MAX_DEPTH,
    Call,
    CompileError,
    Comprehension,
    Has,
    ListOf,
    Logic,
    Macro,
    MapOf,
    Name,
    Node,
    Select,
    depth_above,
    word_hint,
)
from pdp.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

KEYWORDS: Final = frozenset({"in", "true", "false", "null"})
RESERVED: Final = (
    KEYWORDS
    | frozenset({"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"})
    | frozenset({"package", "namespace", "return", "var", "void", "while"})
)
"""Words that are no names of variables and functions. Only keywords are no names of fields and methods."""
_MACROS: Final[dict[str, tuple[Macro, tuple[int, ...]]]] = {
    "all": ("all", (2,)),
    "exists": ("exists", (2,)),
    "exists_one": ("exists_one", (2,)),
    "existsOne": ("exists_one", (2,)),
    "map": ("map", (2, 3)),
    "filter": ("filter", (2,)),
}
"""Macro and its numbers of arguments, by the name in the text. Any other number of arguments makes a method call."""
_HAS: Final = "has"


def refuse_word(word: str, pos: int) -> CompileError:
    """Return the error for a reserved word in the place of a name."""
    return CompileError(f"reserved word `{word}`", pos, word_hint(word))


def build_unary(function: str, _: None, operand: Node) -> Node:
    """Build a signed operand."""
    return Call(operand.pos, depth_above(operand.pos, operand), function, None, (operand,))


def build_binary(function: str, left: Node, right: Node) -> Node:
    """Build the call of a binary operator."""
    depth = 1 + max(left.depth, right.depth)
    if depth > MAX_DEPTH:
        depth_above(left.pos, left, right)
    return Call(left.pos, depth, function, None, (left, right))


def build_logic(sign: str, left: list[Node], right: Node) -> Node:
    """Build a chain of `&&` or `||`. A chain of thousands of operands stays one level deep."""
    conjunction = sign == "&&"
    parts: list[Node] = []
    for part in (*left, right):
        if isinstance(part, Logic) and part.conjunction is conjunction:
            parts += part.parts
        else:
            parts.append(part)
    return Logic(parts[0].pos, depth_above(parts[0].pos, *parts), conjunction, tuple(parts))


def build_list(items: list[Node]) -> Node:
    """Build a list literal."""
    pos = items[0].pos if items else 0
    return ListOf(pos, depth_above(pos, *items), tuple(items))


def build_map(parts: list[Node]) -> Node:
    """Build a map literal from alternating keys and values."""
    pos = parts[0].pos if parts else 0
    return MapOf(pos, depth_above(pos, *parts), tuple(zip(parts[::2], parts[1::2], strict=True)))


def build_function_call(name: str, pos: int, args: list[Node]) -> Node:
    """Build a function call or the macro `has`. A dot before the name changes nothing: functions have no containers."""
    if name == _HAS:
        return _has(pos, args)
    if name in RESERVED:
        raise refuse_word(name, pos)
    return Call(pos, depth_above(pos, *args), name, None, tuple(args))


def build_method_call(target: Node, name: str, pos: int, args: list[Node]) -> Node:
    """Build a macro or a method call."""
    macro, counts = _MACROS.get(name, ("all", ()))
    if len(args) in counts:
        return _comprehension(macro, name, target, args)
    if name in KEYWORDS:
        raise refuse_word(name, pos)
    return Call(pos, depth_above(pos, target, *args), name, target, tuple(args))


def _has(pos: int, args: list[Node]) -> Node:
    if len(args) != 1 or not isinstance(args[0], Select):
        raise CompileError("has() takes one field selection", pos)
    return Has(args[0].pos, args[0].depth, args[0].operand, args[0].field)


def _comprehension(macro: Macro, name: str, target: Node, args: list[Node]) -> Node:
    variable, *rest = args
    if not isinstance(variable, Name) or variable.rooted:
        raise CompileError(f"{name}() takes a name as its first argument", variable.pos)
    where, body = (rest[0], rest[1]) if len(rest) == 2 else (None, rest[0])
    depth = depth_above(target.pos, target, *rest)
    return Comprehension(target.pos, depth, macro, variable.name, target, body, where)


_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\"'\\?`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|.?)",
    re.DOTALL,
)
_SIMPLE_ESCAPES: Final = dict(zip("abfnrtv\"'\\?`", "\a\b\f\n\r\t\v\"'\\?`", strict=True))
_MAX_DIGITS: Final = 20
"""Most digits of a number below 2**64."""


def parse_int(token: str, pos: int) -> int:
    """Return the value of a decimal or hexadecimal int. Raise CompileError outside 64 bits."""
    value = _parse_digits(token)
    if not INT_MIN <= value <= INT_MAX:
        raise CompileError("integer literal out of range", pos)
    return value


def parse_uint(token: str, pos: int) -> Uint:
    """Return the value of a literal such as `7u`. Raise CompileError above 64 bits."""
    value = _parse_digits(token[:-1])
    if value > UINT_MAX:
        raise CompileError("unsigned literal out of range", pos)
    return Uint(value)


def parse_double(token: str, pos: int) -> float:
    """Return the value of a literal such as `1.5e3`. Raise CompileError for a number that rounds to infinity."""
    value = float(token)
    if math.isinf(value):
        raise CompileError("double literal out of range", pos)
    return value


def _parse_digits(token: str) -> int:
    """Return the number, or one above every 64-bit range if the token has too many digits.

    `int()` takes quadratic time, so a long token is refused unread.
    """
    if len(token.lstrip("-0xX")) > _MAX_DIGITS:
        return UINT_MAX + 1
    return int(token, 16 if "x" in token else 10)


def parse_string(token: str, pos: int) -> str:
    """Return the text of a string literal. Raise CompileError for an invalid escape."""
    raw, start, end = _text_range(token)
    if raw:
        return token[start:end]
    return _ESCAPE.sub(lambda match: _unescape_character(match, pos + start), token[start:end])


def parse_bytes(token: str, pos: int) -> bytes:
    """Return the bytes of a literal `b'...'`. Raise CompileError for an invalid escape.

    A character becomes its UTF-8 bytes. A hexadecimal or octal escape becomes one byte.
    """
    raw, start, end = _text_range(token[1:])
    body, offset = token[start + 1 : end + 1], pos + start + 1
    if raw:
        return body.encode("utf-8", "surrogatepass")
    parts, last = [], 0
    for match in _ESCAPE.finditer(body):
        parts += [body[last : match.start()].encode("utf-8", "surrogatepass"), _unescape_byte(match, offset)]
        last = match.end()
    return b"".join([*parts, body[last:].encode("utf-8", "surrogatepass")])


def _text_range(token: str) -> tuple[bool, int, int]:
    """Return whether the literal is raw, and the start and end of its text."""
    raw = token[0] in "rR"
    start = 1 if raw else 0
    quotes = 3 if token[start : start + 3] in ("'''", '"""') and len(token) >= start + 6 else 1
    return raw, start + quotes, len(token) - quotes


def _unescape_character(match: re.Match[str], base: int) -> str:
    simple, *numbers = match.groups()
    if simple:
        return _SIMPLE_ESCAPES[simple]
    code = _escape_code(numbers)
    if code is None or code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise CompileError(f"invalid escape `{match[0]}`", base + match.start())
    return chr(code)


def _unescape_byte(match: re.Match[str], base: int) -> bytes:
    simple, two, four, eight, octal = match.groups()
    if simple:
        return _SIMPLE_ESCAPES[simple].encode()
    code = _escape_code([two, None, None, octal])
    if code is None or four or eight:
        raise CompileError(f"invalid escape `{match[0]}` in bytes", base + match.start())
    return bytes([code])


def _escape_code(groups: list[Any]) -> int | None:
    """Return the number of a numeric escape; None if the backslash begins no valid escape."""
    *hexadecimal, octal = groups
    if octal:
        return int(octal, 8)
    return next((int(digits, 16) for digits in hexadecimal if digits), None)
