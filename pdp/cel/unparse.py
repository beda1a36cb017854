"""Syntax tree back to CEL text for people: one line, with the fewest parentheses that precedence allows.

Owns the walk over a tree as well, texts that constants make, and a canonical text that shows the meaning of a tree,
not its spelling.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdp.cel.checker import CheckedExpression, Variable
from pdp.cel.syntax import Call, Comprehension, Conditional, Constant, Has, ListOf, Logic, MapOf, Name, Node, Select
from pdp.cel.times import format_duration, format_timestamp
from pdp.cel.values import Duration, Timestamp, Uint

CONVERSIONS: Final = frozenset({"string", "bytes", "dyn"})
"""Functions that leave the letters of a text as they are."""
CASES: Final = {"lowerAscii": str.lower, "upperAscii": str.upper}
_BINARY: Final = {
    "_==_": ("==", 4),
    "_!=_": ("!=", 4),
    "_<_": ("<", 4),
    "_<=_": ("<=", 4),
    "_>_": (">", 4),
    "_>=_": (">=", 4),
    "@in": ("in", 4),
    "_+_": ("+", 5),
    "_-_": ("-", 5),
    "_*_": ("*", 6),
    "_/_": ("/", 6),
    "_%_": ("%", 6),
}
_PREFIX: Final = {"!_": "!", "-_": "-"}
_CONDITIONAL, _OR, _AND, _UNARY, _MEMBER, _PARENTHESES = 1, 2, 3, 7, 8, 9
"""Precedence levels of the CEL grammar, loosest first. `_PARENTHESES` is above all, so it always adds parentheses."""


def unparse(node: Node, outer: int = 0) -> str:
    """Return the text of the expression, in parentheses if it binds less tightly than the `outer` precedence."""
    text, precedence = _UNPARSERS[type(node)](node)
    return f"({text})" if precedence < outer else text


def unparse_value(value: Any) -> str:
    """Return a value as CEL text; a type as its name."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Uint):
        return f"{int(value)}u"
    if isinstance(value, bytes):
        return (
            "b'"
            + "".join(chr(byte) if 32 <= byte < 127 and byte not in b"\\'" else f"\\x{byte:02x}" for byte in value)
            + "'"
        )
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(unparse_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{unparse_value(key)}: {unparse_value(member)}' for key, member in value.items())}}}"
    if isinstance(value, Timestamp):
        return f"timestamp('{format_timestamp(value)}')"
    if isinstance(value, Duration):
        return f"duration('{format_duration(value)}')"
    if isinstance(value, str) and "'" not in value and value.isprintable() and "\\" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | int | float) else str(value)


def _unparse_constant(node: Constant) -> tuple[str, int]:
    return unparse_value(node.value), _MEMBER


def _unparse_name(node: Name) -> tuple[str, int]:
    return f".{node.name}" if node.rooted else node.name, _MEMBER


def _unparse_select(node: Select) -> tuple[str, int]:
    return f"{unparse(node.operand, _MEMBER)}.{_field_text(node.field)}", _MEMBER


def _unparse_has(node: Has) -> tuple[str, int]:
    return f"has({unparse(node.operand, _MEMBER)}.{_field_text(node.field)})", _MEMBER


def _field_text(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


def _unparse_call(node: Call) -> tuple[str, int]:
    if node.function in _BINARY and node.target is None:
        sign, precedence = _BINARY[node.function]
        left, right = node.args
        # Binary operators associate to the left: a right operand of the same level needs parentheses.
        return f"{unparse(left, precedence)} {sign} {unparse(right, precedence + 1)}", precedence
    if node.function in _PREFIX:
        operand = node.args[0]
        # `-1` would read back as a literal and `!!x` as `x`, so these operands need parentheses.
        merges = isinstance(operand, Constant) or (isinstance(operand, Call) and operand.function == node.function)
        return _PREFIX[node.function] + unparse(operand, _PARENTHESES if merges else _UNARY), _UNARY
    if node.function == "_[_]":
        return f"{unparse(node.args[0], _MEMBER)}[{unparse(node.args[1])}]", _MEMBER
    arguments = ", ".join(unparse(argument) for argument in node.args)
    target = "" if node.target is None else f"{unparse(node.target, _MEMBER)}."
    return f"{target}{node.function}({arguments})", _MEMBER


def _unparse_logic(node: Logic) -> tuple[str, int]:
    sign, precedence = ("&&", _AND) if node.conjunction else ("||", _OR)
    return f" {sign} ".join(unparse(part, precedence + 1) for part in node.parts), precedence


def _unparse_conditional(node: Conditional) -> tuple[str, int]:
    condition, then = unparse(node.condition, _OR), unparse(node.then, _OR)
    return f"{condition} ? {then} : {unparse(node.otherwise, _CONDITIONAL)}", _CONDITIONAL


def _unparse_list(node: ListOf) -> tuple[str, int]:
    return f"[{', '.join(unparse(item) for item in node.items)}]", _MEMBER


def _unparse_map(node: MapOf) -> tuple[str, int]:
    entries = ", ".join(f"{unparse(key)}: {unparse(value)}" for key, value in node.entries)
    return f"{{{entries}}}", _MEMBER


def _unparse_comprehension(node: Comprehension) -> tuple[str, int]:
    where = f"{unparse(node.where)}, " if node.where is not None else ""
    body = f"{node.variable}, {where}{unparse(node.body)}"
    return f"{unparse(node.range, _MEMBER)}.{node.macro}({body})", _MEMBER


_UNPARSERS: Final[dict[type, Any]] = {
    Constant: _unparse_constant,
    Name: _unparse_name,
    Select: _unparse_select,
    Has: _unparse_has,
    Call: _unparse_call,
    Logic: _unparse_logic,
    Conditional: _unparse_conditional,
    ListOf: _unparse_list,
    MapOf: _unparse_map,
    Comprehension: _unparse_comprehension,
}


def variable_name(node: Node, checked: CheckedExpression) -> str:
    """Return the name of the variable that `node` reads, or "" for any other node."""
    meaning = checked.names.get(node)
    return meaning.name if isinstance(node, Name) and isinstance(meaning, Variable) else ""


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly below `node`, in the order of the text."""
    for field in node.__struct_fields__:
        yield from _nodes_in(getattr(node, field))


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes_in(item)


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and all nodes below, parents first, in the order of the text."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(list(children(current))))


def operands_of(node: Node) -> list[Node]:
    """Return the operands of a call; none of any other node."""
    return list(children(node)) if isinstance(node, Call) else []


def parts_joined(node: Node) -> tuple[Node, str, str]:
    """Return the node that constant texts are joined to, and the texts before and behind."""
    before = after = ""
    while isinstance(node, Call) and node.function == "_+_":
        left, right = operands_of(node)
        texts = [constant_text(part) for part in (left, right)]
        if texts[1] is not None:
            node, after = left, texts[1] + after
        elif texts[0] is not None:
            node, before = right, before + texts[0]
        else:
            break
    return node, before, after


def constant_text(node: Node) -> str | None:
    """Return the text that a node of constants is; None in doubt."""
    operands = operands_of(node)
    if isinstance(node, Constant):
        value = node.value.decode(errors="replace") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, Call) and node.function in CONVERSIONS and len(operands) == 1:
        return constant_text(operands[0])
    if isinstance(node, Call) and node.function == "_+_":
        texts = [constant_text(part) for part in operands]
        return None if None in texts else "".join(text for text in texts if text is not None)
    if isinstance(node, Call) and node.function in CASES and len(operands) == 1:
        text = constant_text(operands[0])
        # `lowerAscii` changes letters of ASCII alone
        return CASES[node.function](text) if text is not None and text.isascii() else None
    return None


def canonical_text(node: Node) -> str:
    """Return a text of the tree. Equal texts mean equal results, whatever the values of the variables.

    Operands of commutative operators are sorted. Different texts may still mean the same.
    """
    if isinstance(node, Constant):
        return f"{type(node.value).__name__} {node.value!r}"
    below = [canonical_text(child) for child in children(node)]
    if isinstance(node, Logic) or (isinstance(node, Call) and node.function in ("_==_", "_!=_")):
        below.sort()
    if isinstance(node, Call) and node.function == "@in" and isinstance(node.args[1], ListOf):
        below[1] = f"one of ({', '.join(sorted(map(canonical_text, node.args[1].items)))})"
    return f"{_label(node)}({', '.join(below)})"


def _label(node: Node) -> str:
    """Return the class and the plain fields of `node`, without its children, offset and depth."""
    fields = (field for field in node.__struct_fields__ if field not in ("pos", "depth"))
    words = [getattr(node, field) for field in fields]
    plain = [repr(word) for word in words if isinstance(word, (str, bool)) or word is None]
    return " ".join([type(node).__name__, *plain])
