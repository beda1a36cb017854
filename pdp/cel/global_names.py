"""Global names of one generated function: the helpers, and the constants of the expression.

Nothing of an expression is pasted into generated code. A literal reaches the code as a global name bound to its value.
The function sees no builtins.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from pdp.cel import absorption, budget, comparison, containers
from pdp.cel.fragments import Fragment
from pdp.cel.values import RuleError, require_bool

HELPERS: Final[dict[str, Callable[..., Any]]] = {
    "_all_of": absorption.all_of,
    "_any_of": absorption.any_of,
    "_exists": absorption.exists,
    "_every": absorption.every,
    "_fail": absorption.fail,
    "_budget": budget.new_budget,
    "_take": budget.charge_elements,
    "_grow": budget.charge_copy,
    "_scan": budget.charge_scan,
    "_fresh_pattern": budget.charge_pattern,
    "_boolean": require_bool,
    "_equal": comparison.equal,
    "_unequal": comparison.unequal,
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
