"""Tokens and abstract syntax of an expression: frozen nodes with text offsets, and the limits of a tree.

Must not parse, type-check or evaluate. Nodes compare by identity, so that a node can be the key of a table.

A token depends on its place: where an operand may begin, `-1` is one literal; after an operand, `-` is an operator.
Literals accept every escape here; `ast_builder` validates escapes. Source: the CEL specification (langdef.md),
"Syntax".
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, TypeAlias

import msgspec

MAX_SOURCE: Final = 65_536
"""Most characters of one expression."""
MAX_DEPTH: Final = 96
"""Most levels of one tree. Bounds the recursion of the checker and the emitter, and of CPython's own parser."""
MAX_NODES: Final = 20_000
"""Most nodes of one tree."""

Macro: TypeAlias = Literal["all", "exists", "exists_one", "map", "filter"]


class CompileError(Exception):
    """Expression that does not parse or type-check. `offset` counts characters of the text from 0.

    `hint` tells the counterpart of a word or sign of another language.
    """

    def __init__(self, message: str, offset: int, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


class Node(msgspec.Struct, frozen=True, eq=False):
    """Any expression: the offset of its first character, and the height of the tree below."""

    pos: int
    depth: int


class Constant(Node, frozen=True, eq=False):
    """Literal. `value` is a value of the language."""

    value: Any


class Name(Node, frozen=True, eq=False):
    """Identifier. `rooted` marks the form `.name`: macro variables and containers do not apply to the name."""

    name: str
    rooted: bool = False


class Select(Node, frozen=True, eq=False):
    """Field selection `operand.field`."""

    operand: Node
    field: str


class Has(Node, frozen=True, eq=False):
    """Macro `has(operand.field)`."""

    operand: Node
    field: str


class Call(Node, frozen=True, eq=False):
    """Function, method (with `target`) or operator. Operators have their CEL names, such as `_+_`."""

    function: str
    target: Node | None
    args: tuple[Node, ...]


class Logic(Node, frozen=True, eq=False):
    """Flattened chain of `&&` or `||`. Both operators are associative and absorb errors in any order."""

    conjunction: bool
    parts: tuple[Node, ...]


class Conditional(Node, frozen=True, eq=False):
    """Conditional operator `condition ? then : otherwise`."""

    condition: Node
    then: Node
    otherwise: Node


class ListOf(Node, frozen=True, eq=False):
    """List literal `[a, b]`."""

    items: tuple[Node, ...]


class MapOf(Node, frozen=True, eq=False):
    """Map literal `{k: v}`."""

    entries: tuple[tuple[Node, Node], ...]


class Comprehension(Node, frozen=True, eq=False):
    """Macro over a list or the keys of a map. `where` is the filter of a `map` with three arguments."""

    macro: Macro
    variable: str
    range: Node
    body: Node
    where: Node | None = None


def depth_above(pos: int, *children: Node) -> int:
    """Return the depth of a node with these `children`. Raise CompileError beyond MAX_DEPTH."""
    depth = 1 + max((child.depth for child in children), default=0)
    if depth > MAX_DEPTH:
        raise CompileError(f"nested too deeply: more than {MAX_DEPTH} levels", pos)
    return depth


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
        operator = text[max(0, offset - 2) : offset]
        hint = f"an operand is missing behind `{operator}`" if operator in ("&&", "||") else ""
        return CompileError("syntax error: unexpected end", start, hint)
    token = _ANY.match(text, start)
    if token is None:
        hint = _NO_END if text[start] in "'\"" else _sign_hint(text, start)
        return CompileError(f"syntax error: unexpected character {text[start]!r}", start, hint)
    before = _LAST_WORD.search(text, max(0, offset - _LONGEST_WORD), offset)
    hint = word_hint(token[0]) or (word_hint(before[0]) if before else "") or _sign_hint(text, start)
    if token[0] == "," and _ROUND_LIST.search(text, 0, start):
        hint = LIST_HINT
    return CompileError(f"syntax error: unexpected `{token[0]:.40}`", start, hint)


LIST_HINT: Final = "`in` takes a list: write `in ['a', 'b']`"
_NO_END: Final = "the text has no end on its line: the quote that begins a text also ends it"
_LONGEST_WORD: Final = 10
_LAST_WORD: Final = re.compile(r"(?<![\w.])[A-Za-z]+\Z")
_ROUND_LIST: Final = re.compile(r"(?<![\w.])[iI][nN][ \t\r\n]*+\([^()]*+\Z")
_METHODS: Final = {name.casefold(): name for name in ("matches", "contains", "startsWith", "endsWith")}
_TEXT_TESTS: Final = "write `x.startsWith('a')`, `x.endsWith('a')`, `x.contains('a')` or `x.matches('^a')`"
_NULL: Final = "write `== null` or `!= null`, and `has(m.key)` for a key of a map"
_CHOICE: Final = "write `condition ? a : b`"
_WORDS: Final[dict[str, str]] = {
    "and": "write `&&`",
    "or": "write `||`",
    "xor": "write `!=` between two tests in brackets",
    "not": "write `!`, and `!(a in b)` for `not in`",
    "in": "write `in`, in small letters",
    "is": _NULL,
    "isnull": _NULL,
    **dict.fromkeys(("none", "nil"), "write `null`"),
    **{word: f"write `{word}`, in small letters" for word in ("true", "false", "null")},
    **dict.fromkeys(("like", "ilike", "rlike", "regexp", "glob"), _TEXT_TESTS),
    "between": "write `a <= x && x <= b`",
    **dict.fromkeys(("if", "then", "else", "elif", "elseif", "elsif", "case", "when", "unless"), _CHOICE),
    **{word: f"write `x.{name}('a')`" for word, name in _METHODS.items()},
    **dict.fromkeys(("includes", "has", "hasrole"), "write `'a' in roles` for a list, `x.contains('a')` for a text"),
    **dict.fromkeys(("len", "length", "count"), "write `size(x)`"),
}
"""Word of another language, in small letters -> what this one has."""
_SIGNS_BEFORE: Final = {"===": "write `==`", "!==": "write `!=`", "<>": "write `!=`"}
_SIGNS_FROM: Final = {
    "!~": "write `!x.matches('a')`",
    **dict.fromkeys(("=~", "~"), "write `x.matches('a')`"),
    "=>": 'write `>=`, or `!a || b` for "a demands b"',
    "!": "write `!(a in b)`, or `!=`",
    "=": "write `==`",
    "&": "write `&&`",
    "|": "write `||`",
    ";": "a rule is one expression: leave out `;`",
    **dict.fromkeys(
        "\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u00b4", "texts have straight quotes: write `'a'`"
    ),
}
"""Sign that cannot stand there -> what this language has. Longer signs come first."""


_OWN: Final = frozenset({"in", "true", "false", "null"})


def word_hint(word: str) -> str:
    """Return the counterpart of a word of another language; "" for an own word, and for an unknown one."""
    return "" if word in _OWN else _WORDS.get(word.casefold(), "")


def _sign_hint(text: str, start: int) -> str:
    """Return the counterpart of the sign at `start`, or of that sign with the sign before."""
    for sign, hint in _SIGNS_BEFORE.items():
        if text.startswith(sign, start + 1 - len(sign)) and start + 1 >= len(sign):
            return hint
    if text.startswith(("==", "!=", "&&", "||"), start):
        return ""
    return next((hint for sign, hint in _SIGNS_FROM.items() if text.startswith(sign, start)), "")
