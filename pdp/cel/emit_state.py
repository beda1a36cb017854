"""State of one emission: static types, global names, warnings, and the charges to the step budget inside macros."""

from __future__ import annotations

from collections.abc import Mapping

from pdp.cel.checker import CheckedExpression, Variable
from pdp.cel.fragments import Fragment
from pdp.cel.global_names import GlobalNames
from pdp.cel.syntax import Call, Constant, Node, Select
from pdp.cel.types import Type


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
