"""Text to syntax tree: an operator-precedence parser that never recurses, so that no nesting exhausts the stack.

Source: the CEL specification (langdef.md), "Syntax". The parser alternates between two states: an operand begins, or an
operand has ended. Brackets open a frame; operators wait in their frame until a looser operator or the end of the frame
tells that their right operand is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pdp.cel import ast_builder
from pdp.cel.ast_builder import (
    KEYWORDS,
    RESERVED,
    build_binary,
    build_function_call,
    build_list,
    build_logic,
    build_map,
    build_method_call,
    build_unary,
    refuse_word,
)
from pdp.cel.syntax import (
    BYTES,
    CALL,
    DOUBLE,
    FIELD,
    INT,
    MAX_SOURCE,
    NAME,
    OPERAND,
    OPERATOR,
    SIGN,
    STRING,
    UINT,
    CompileError,
    Conditional,
    Constant,
    Name,
    Node,
    Select,
    depth_above,
    unexpected,
)

_OPEN, _CONDITIONAL, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY = range(8)
"""Levels of operators, loosest first. `_OPEN` is a `?` whose `:` has not come; no operand is complete before that."""
_BINARY: Final = {
    "==": (_RELATION, "_==_"),
    "!=": (_RELATION, "_!=_"),
    "<": (_RELATION, "_<_"),
    "<=": (_RELATION, "_<=_"),
    ">": (_RELATION, "_>_"),
    ">=": (_RELATION, "_>=_"),
    "in": (_RELATION, "@in"),
    "+": (_SUM, "_+_"),
    "-": (_SUM, "_-_"),
    "*": (_PRODUCT, "_*_"),
    "/": (_PRODUCT, "_/_"),
    "%": (_PRODUCT, "_%_"),
}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_READERS: Final[dict[int, Callable[[str, int], Any]]] = {
    BYTES: ast_builder.parse_bytes,
    STRING: ast_builder.parse_string,
    DOUBLE: ast_builder.parse_double,
    UINT: ast_builder.parse_uint,
    INT: ast_builder.parse_int,
}

_State: TypeAlias = Callable[[], Any]
"""Method that reads one token and returns the method for the next token; None at the end of the text."""
_Build: TypeAlias = Callable[[list[Node]], Node]


def parse(text: str) -> Node:
    """Return the syntax tree of `text`. Raise CompileError for a syntax error or a text over a limit."""
    if len(text) > MAX_SOURCE:
        raise CompileError(f"too long: more than {MAX_SOURCE} characters", MAX_SOURCE)
    if not text.strip():
        raise CompileError("empty rule", 0)
    parser = _Parser(text)
    read: _State | None = parser.read_operand
    while read is not None:
        read = read()
    return parser.value


class _Frame:
    """Bracket that is open, or the whole text: its closing sign, waiting operators, and complete items.

    An operator waits with its level, its function and its left side. `build` makes the node of the items. `optional`:
    the bracket may close where an operand could begin: in an empty list, or behind a comma.
    """

    __slots__ = ("build", "close", "items", "operators", "optional")

    def __init__(self, close: str, build: _Build, optional: bool) -> None:
        self.close = close
        self.build = build
        self.optional = optional
        self.operators: list[tuple[int, str, Any]] = []
        self.items: list[Node] = []


class _Parser:
    """State of one parse. `value` is the operand that has just ended."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.value: Node
        self.frame = _Frame("", _only, optional=False)
        self.frames: list[_Frame] = []

    def read_operand(self) -> _State:
        """Read the beginning of an operand."""
        match = OPERAND.match(self.text, self.pos)
        if match is None:
            raise unexpected(self.text, self.pos)
        kind = match.lastindex
        assert kind is not None
        if kind == NAME:
            self.read_name(match)
        elif kind == SIGN:
            return self.read_sign(match)
        elif kind == CALL:
            return self.open_call(match[NAME], match.start(NAME), match.start(CALL))
        else:
            start = match.start(kind)
            self.value = Constant(start, 1, _READERS[kind](match[kind], start))
        self.pos = match.end()
        return self.read_operator

    def read_name(self, match: re.Match[str]) -> None:
        """Take a name, or one of the constants that are written as names."""
        name, start = match[NAME], match.start(NAME)
        if name in RESERVED:
            if name not in _CONSTANTS:
                raise refuse_word(name, start)
            self.value = Constant(start, 1, _CONSTANTS[name])
        else:
            self.value = Name(start, 1, name)

    def open_call(self, name: str, start: int, bracket: int) -> _State:
        """Open the arguments of a function call."""
        if name in _CONSTANTS:
            raise unexpected(self.text, bracket)
        return self.open(")", lambda args: build_function_call(name, start, args), bracket + 1)

    def read_sign(self, match: re.Match[str]) -> _State:
        """Take a sign where an operand may begin."""
        sign, end = match[SIGN], match.end()
        if sign == "(":
            return self.open(")", _only, end, optional=False)
        if sign == "[":
            return self.open("]", build_list, end)
        if sign == "{":
            return self.open("}", build_map, end)
        if sign == ".":
            return self.read_rooted_name(end)
        if sign in "!-":
            return self.push_sign(f"{sign}_", end)
        return self.close_empty(sign, end)

    def open(self, close: str, build: _Build, end: int, *, optional: bool = True) -> _State:
        """Open a bracket."""
        self.frames.append(self.frame)
        self.frame = _Frame(close, build, optional)
        self.pos = end
        return self.read_operand

    def close_empty(self, sign: str, end: int) -> _State:
        """Close a bracket where an operand could begin: an empty list, map or call, or behind the last comma."""
        frame = self.frame
        if sign != frame.close or not frame.optional or frame.operators or _holds_key(frame):
            raise unexpected(self.text, self.pos)
        return self.leave(end)

    def leave(self, end: int) -> _State:
        """Make the node of the open bracket, and go on in the frame around the bracket."""
        self.value = self.frame.build(self.frame.items)
        self.frame = self.frames.pop()
        self.pos = end
        return self.read_operator

    def push_sign(self, function: str, end: int) -> _State:
        """Let a sign wait for its operand. Two equal signs in a row cancel each other, as in the reference parser."""
        operators = self.frame.operators
        if operators and operators[-1][0] == _UNARY and operators[-1][1] == function:
            operators.pop()
        else:
            operators.append((_UNARY, function, None))
        self.pos = end
        return self.read_operand

    def read_rooted_name(self, end: int) -> _State:
        """Read the name behind a dot that begins an operand."""
        match = FIELD.match(self.text, end)
        if match is None or match[1] is None:
            raise unexpected(self.text, end)
        name, start = match[1], match.start(1)
        if match[2]:
            return self.open(")", lambda args: build_function_call(name, start, args), match.end())
        if name in RESERVED:
            raise refuse_word(name, start)
        self.value, self.pos = Name(start, 1, name, rooted=True), match.end()
        return self.read_operator

    def read_operator(self) -> _State | None:
        """Read the sign behind an operand."""
        match = OPERATOR.match(self.text, self.pos)
        if match is None:
            raise unexpected(self.text, self.pos)
        sign = match[1]
        known = _BINARY.get(sign)
        if known is None:
            following: _State | None = _ACTIONS[sign](self, sign, match.end())
            return following
        level, function = known
        self.complete(level)
        self.frame.operators.append((level, function, self.value))
        self.pos = match.end()
        return self.read_operand

    def complete(self, level: int) -> None:
        """Make the nodes of the waiting operators that bind at least as tightly as `level`."""
        operators = self.frame.operators
        # INVARIANT: above the last open `?`, levels never fall towards the top. So the loop meets all such operators.
        while operators and operators[-1][0] >= level:
            bound, function, left = operators.pop()
            self.value = _BUILDERS[bound](function, left, self.value)

    def complete_item(self) -> None:
        """Make the node of all waiting operators."""
        self.complete(_CONDITIONAL)
        if self.frame.operators:
            raise unexpected(self.text, self.pos)

    def extend_chain(self, sign: str, end: int) -> _State:
        """Add an operand to a chain of `&&` or `||`, or begin a chain."""
        level = _AND if sign == "&&" else _OR
        self.complete(level + 1)
        operators = self.frame.operators
        if operators and operators[-1][0] == level:
            operators[-1][2].append(self.value)
        else:
            operators.append((level, sign, [self.value]))
        self.pos = end
        return self.read_operand

    def open_conditional(self, sign: str, end: int) -> _State:
        """Take a condition. The result for true cannot be another conditional without brackets."""
        self.complete(_OR)
        operators = self.frame.operators
        if operators and operators[-1][0] == _OPEN:
            raise unexpected(self.text, self.pos)
        operators.append((_OPEN, sign, self.value))
        self.pos = end
        return self.read_operand

    def take_colon(self, sign: str, end: int) -> _State:
        """Take the result of a conditional for true, or the key of a map."""
        self.complete(_OR)
        frame = self.frame
        if frame.operators and frame.operators[-1][0] == _OPEN:
            frame.operators.append((_CONDITIONAL, sign, (frame.operators.pop()[2], self.value)))
        else:
            self.complete_item()
            if frame.close != "}" or _holds_key(frame):
                raise unexpected(self.text, self.pos)
            frame.items.append(self.value)
        self.pos = end
        return self.read_operand

    def take_comma(self, sign: str, end: int) -> _State:
        """Take an item of a list or map, or an argument of a call."""
        self.complete_item()
        frame = self.frame
        if frame.build is _only or frame.build is _index or _lacks_value(frame):
            raise unexpected(self.text, self.pos)
        frame.items.append(self.value)
        frame.optional = frame.close != ")"
        self.pos = end
        return self.read_operand

    def close_bracket(self, sign: str, end: int) -> _State:
        """Take the last item of a bracket, and close the bracket."""
        self.complete_item()
        if sign != self.frame.close or _lacks_value(self.frame):
            raise unexpected(self.text, self.pos)
        self.frame.items.append(self.value)
        return self.leave(end)

    def select(self, sign: str, end: int) -> _State:
        """Read the field or the method behind an operand."""
        match = FIELD.match(self.text, end)
        if match is None:
            raise unexpected(self.text, end)
        target, name, start = self.value, match[1], match.start(1)
        if match[2]:
            return self.open(")", lambda args: build_method_call(target, name, start, args), match.end())
        if name in KEYWORDS:
            raise refuse_word(name, start)
        field = name or match[3].strip("`")
        self.value, self.pos = Select(target.pos, depth_above(target.pos, target), target, field), match.end()
        return self.read_operator

    def open_index(self, sign: str, end: int) -> _State:
        """Open the index of an operand."""
        target = self.value
        self.open("]", _index, end, optional=False)
        self.frame.items.append(target)
        return self.read_operand

    def refuse_sign(self, sign: str, end: int) -> _State:
        """Raise CompileError: only a name has arguments."""
        raise unexpected(self.text, self.pos)

    def refuse_message(self, sign: str, end: int) -> _State:
        """Raise CompileError: the language here has no message literals."""
        raise CompileError("messages are not supported", self.value.pos)

    def end(self, sign: str, end: int) -> None:
        """End the parse."""
        self.complete_item()
        if self.frames:
            raise unexpected(self.text, self.pos)


def _holds_key(frame: _Frame) -> bool:
    """Tell whether a map waits for the value of a key."""
    return frame.close == "}" and len(frame.items) % 2 == 1


def _lacks_value(frame: _Frame) -> bool:
    """Tell whether the operand that has just ended is the key of a map."""
    return frame.close == "}" and len(frame.items) % 2 == 0


def _only(items: list[Node]) -> Node:
    return items[0]


def _index(items: list[Node]) -> Node:
    return build_binary("_[_]", *items)


def _conditional(sign: str, left: tuple[Node, Node], otherwise: Node) -> Node:
    condition, then = left
    depth = depth_above(condition.pos, condition, then, otherwise)
    return Conditional(condition.pos, depth, condition, then, otherwise)


_BUILDERS: Final[dict[int, Callable[[str, Any, Node], Node]]] = {
    _CONDITIONAL: _conditional,
    _OR: build_logic,
    _AND: build_logic,
    _RELATION: build_binary,
    _SUM: build_binary,
    _PRODUCT: build_binary,
    _UNARY: build_unary,
}
"""Function from an operator and its two sides to a node, by level."""
_ACTIONS: Final[dict[str, Callable[[_Parser, str, int], Any]]] = {
    "&&": _Parser.extend_chain,
    "||": _Parser.extend_chain,
    "?": _Parser.open_conditional,
    ":": _Parser.take_colon,
    ".": _Parser.select,
    ",": _Parser.take_comma,
    "[": _Parser.open_index,
    "{": _Parser.refuse_message,
    "(": _Parser.refuse_sign,
    ")": _Parser.close_bracket,
    "]": _Parser.close_bracket,
    "}": _Parser.close_bracket,
    "": _Parser.end,
}
"""Method for a sign behind an operand that is no binary operator."""
