"""Tokens of an expression, as regular expressions for each place where the parser reads one.

Source: the CEL specification (langdef.md), "Syntax". A token depends on its place: where an operand may begin, `-1` is
one literal; after an operand, `-` is an operator. Literals accept every escape here; `literals` validates escapes.
"""

from __future__ import annotations

import re
from typing import Final

from pdp.cel.syntax import CompileError

# Possessive quantifiers: blanks and strings are never read a second time with another length.
_BLANK: Final = r"(?:[\t\n\f\r ]++|//[^\r\n]*+)*+"
_SHORT: Final = r"""[rR](?:"[^"\r\n]*+"|'[^'\r\n]*+')|"(?:[^"\\\r\n]++|\\[^\r\n])*+"|'(?:[^'\\\r\n]++|\\[^\r\n])*+'"""
_LONG: Final = (
    r'[rR](?:"""[\s\S]*?"""|' + r"'''[\s\S]*?''')"
    r'|"""(?:[^"\\]|\\[\s\S]|"(?!""))*+"""' + r"|'''(?:[^'\\]|\\[\s\S]|'(?!''))*+'''"
)
_STRING: Final = f"(?:{_LONG}|{_SHORT})"
_DOUBLE: Final = r"-?(?:[0-9]*+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
_UINT: Final = r"(?:0x[0-9a-fA-F]+|[0-9]+)[uU]"
_INT: Final = r"-?(?:0x[0-9a-fA-F]+|[0-9]+)"
_NAME: Final = r"[_a-zA-Z][_a-zA-Z0-9]*+"
_QUOTED: Final = r"`[a-zA-Z0-9_.\-/ ]+`"
_SIGNS: Final = r"&&|\|\||==|!=|<=|>=|[<>+\-*/%?:.,()\[\]{}]"
_LITERALS: Final = f"[bB]{_STRING}|{_STRING}|{_DOUBLE}|{_UINT}|{_INT}"

BYTES, STRING, DOUBLE, UINT, INT, NAME, CALL, SIGN = range(1, 9)
"""Groups of OPERAND. CALL is the parenthesis behind a name. A match has the number of its group as `lastindex`."""
OPERAND: Final = re.compile(
    rf"{_BLANK}(?:([bB]{_STRING})|({_STRING})|({_DOUBLE})|({_UINT})|({_INT})|({_NAME})(?:{_BLANK}(\())?+|([-!.(\[{{\])}}]))"
)
"""Beginning of an operand, or the end of an empty list, map or call."""
OPERATOR: Final = re.compile(rf"{_BLANK}({_SIGNS}|in(?![_a-zA-Z0-9])|\Z)")
"""Sign behind an operand; empty at the end of the text."""
FIELD: Final = re.compile(rf"{_BLANK}(?:({_NAME})(?:{_BLANK}(\())?+|({_QUOTED}))")
"""Name behind a dot: a name, perhaps with the parenthesis of a call, or a name in backquotes."""
_ANY: Final = re.compile(f"{_LITERALS}|{_NAME}|{_QUOTED}|{_SIGNS}|!")
_BLANKS: Final = re.compile(_BLANK)


def unexpected(text: str, offset: int) -> CompileError:
    """Return the error for the first token behind `offset`, which cannot stand there."""
    blanks = _BLANKS.match(text, offset)
    assert blanks is not None
    start = blanks.end()
    if start == len(text):
        return CompileError("syntax error: unexpected end", start)
    token = _ANY.match(text, start)
    if token is None:
        return CompileError(f"syntax error: unexpected character {text[start]!r}", start)
    return CompileError(f"syntax error: unexpected `{token[0]:.40}`", start)
