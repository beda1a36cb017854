"""Fragments of generated Python code, with the facts about each that decide how fragments are combined."""

from __future__ import annotations

from typing import Any, Final

import msgspec

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
