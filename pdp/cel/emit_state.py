"""State of one emission: static types, warnings, names of globals, and charges to the step budget inside macros.

A `Fragment` is a piece of generated Python with the facts that decide how it is combined with others.

Nothing of an expression is pasted into generated code. A literal reaches the code as a global name bound to its value.
The function sees no builtins.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from pdp.cel import containers, values
from pdp.cel.checker import CheckedExpression, Variable
from pdp.cel.syntax import Call, Constant, Node, Select
from pdp.cel.types import Type
from pdp.cel.values import RuleError, require_bool

UNKNOWN: Final = object()
"""Value of a fragment that is not constant. None is a value of the language."""


class Fragment(msgspec.Struct, frozen=True):
    """Code of one expression.

    `raises` tells that the code may raise RuleError, budget errors aside. `value` is the value of a constant fragment.
    An `atom` needs no parentheses anywhere; a `test` needs none as an operand of `and` and `or`.
    """

    code: str
    raises: bool = False
    atom: bool = True
    value: Any = UNKNOWN
    test: bool = False

    @property
    def known(self) -> bool:
        """Tell whether the value is known at load."""
        return self.value is not UNKNOWN

    def __str__(self) -> str:
        return self.code if self.atom else f"({self.code})"

    @property
    def operand(self) -> str:
        """Return the code as an operand of `and` or `or`."""
        return self.code if self.test else str(self)


def comparison(code: str, raises: bool, test: bool = True) -> Fragment:
    """Return the fragment of a Python comparison, or with `test` off of comparisons joined by `and`."""
    return Fragment(code, raises, atom=False, test=test)


HELPERS: Final[dict[str, Callable[..., Any]]] = {
    "_all_of": values.all_of,
    "_any_of": values.any_of,
    "_exists": values.exists,
    "_every": values.every,
    "_fail": values.fail,
    "_budget": values.new_budget,
    "_take": values.charge_elements,
    "_grow": values.charge_copy,
    "_scan": values.charge_scan,
    "_fresh_pattern": values.charge_pattern,
    "_boolean": require_bool,
    "_equal": values.equal,
    "_unequal": values.unequal,
    "_contained": containers.in_container,
    "_in_list": containers.in_list,
    "_key_in_map": containers.in_map,
    "_index": containers.get_item,
    "_field": containers.get_field,
    "_has_field": containers.has_field,
    "_build_map": containers.build_map,
    "_keys": containers.map_keys,
    "_elements": containers.macro_elements,
    "_all": all,
    "_any": any,
    "_sum": sum,
    "_tuple": tuple,
}
"""Functions that generated code calls beyond those of the function table."""
_GLOBAL: Final = re.compile(r"\b_[a-z_]+\d*\b")


class GlobalNames:
    """Names and values of the globals of one generated function."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {"__builtins__": {}, **HELPERS}
        self._literals: dict[tuple[type, str], str] = {}

    def used_in(self, source: str) -> dict[str, Any]:
        """Return the globals that `source` mentions, and empty builtins."""
        names = ("__builtins__", *_GLOBAL.findall(source))
        return {name: self._values[name] for name in names if name in self._values}

    def bind(self, value: Any, prefix: str = "_k") -> str:
        """Bind `value` to a global name and return the name. Equal literals share one name."""
        # The key has the type and the text of a literal, because 1 == 1.0 == True and 0.0 == -0.0 in Python.
        key = (type(value), repr(value))
        if type(value) not in (str, int, float) or key not in self._literals:
            name = f"{prefix}{len(self._values) - len(HELPERS) - 1}"
            self._values[name] = value
            self._literals[key] = name
            return name
        return self._literals[key]

    def constant(self, value: Any) -> Fragment:
        """Return the fragment of a constant."""
        if value is None or value is True or value is False:
            return Fragment(str(value), value=value)
        return Fragment(self.bind(value), value=value)

    def fail(self, message: str) -> Fragment:
        """Return the fragment of an expression that always raises RuleError with `message`."""
        return Fragment(f"_fail({self.bind(message)})", raises=True)

    def fold(self, run: Callable[..., Any], args: Iterable[Fragment], limit: float = math.inf) -> Fragment | None:
        """Return the constant that `run` computes if all arguments are constants, or None.

        A computation that raises is not folded. The error belongs to the evaluation: logic around the expression may
        absorb the error, and an expression that is never reached must not fail. A text or list longer than `limit` is
        not kept in memory but computed by each evaluation.
        """
        args = tuple(args)
        if not all(arg.known for arg in args):
            return None
        try:
            value = run(*(arg.value for arg in args))
        except RuleError:
            return None
        return None if isinstance(value, (str, bytes, tuple)) and len(value) > limit else self.constant(value)


class EmitState:
    """State that the emitters of one expression share.

    `fields` gives keys that map variables always have, with the types of their values: reading these keys cannot raise.
    `warnings` are messages with offsets in the text. `macro_depth` is the number of macros around the current node.
    """

    def __init__(self, checked: CheckedExpression, fields: Mapping[tuple[str, str], Type]) -> None:
        self.checked = checked
        self.names = GlobalNames()
        self.warnings: list[tuple[str, int]] = []
        self.macro_depth = 0
        self._fields = fields

    def type(self, node: Node) -> Type:
        """Return the static type of a node."""
        return self._fields.get(self._field_key(node), self.checked.types[node])

    def always_present(self, node: Node) -> bool:
        """Tell whether `node` reads a key that a map variable always has."""
        return self._field_key(node) in self._fields

    def _field_key(self, node: Node) -> tuple[str, str]:
        """Return the variable and the key that `variable.key` or `variable['key']` reads, or two empty texts."""
        operand, key = None, None
        if isinstance(node, Select):
            operand, key = node.operand, node.field
        elif isinstance(node, Call) and node.function == "_[_]" and isinstance(node.args[1], Constant):
            operand, key = node.args[0], node.args[1].value
        meaning = self.checked.names.get(operand) if operand is not None else None
        return (meaning.name, key) if isinstance(meaning, Variable) and isinstance(key, str) else ("", "")

    def require_bool(self, fragment: Fragment, node: Node) -> Fragment:
        """Return the code of `node` as a bool, with a check at run time if the static type is not bool."""
        if self.type(node).kind == "bool" or isinstance(fragment.value, bool):
            return fragment
        return Fragment(f"_boolean({fragment.code})", raises=True)

    def charge_scan(self, fragment: Fragment) -> Fragment:
        """Return code that, inside a macro, also pays for a search or comparison of the value."""
        return self._charge("_scan", fragment)

    def charge_copy(self, fragment: Fragment) -> Fragment:
        """Return code that, inside a macro, also pays for the creation of the value."""
        return self._charge("_grow", fragment)

    def _charge(self, helper: str, fragment: Fragment) -> Fragment:
        if not self.macro_depth or fragment.known:
            return fragment
        return Fragment(f"{helper}(_b, {fragment.code})", fragment.raises)
