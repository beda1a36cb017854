"""Logic and macros whose operands may raise: an operand that decides the result absorbs the errors of the others.

Source: the CEL specification (langdef.md), "Logical Operators" and "Macros". `false && error` and `error && false` are
false; `true && error` is the error. `||` is the same with true and false exchanged. `all` and `exists`
extend both to the elements of a list.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import call
from typing import Any

from pdp.cel.values import BudgetError, RuleError, Value


def all_of(*operands: Callable[[], bool]) -> bool:
    """Compute `&&`. False wins over errors, and errors win over true."""
    return not _any_is(False, call, operands)


def any_of(*operands: Callable[[], bool]) -> bool:
    """Compute `||`. True wins over errors, and errors win over false."""
    return _any_is(True, call, operands)


def exists(test: Callable[[Value], bool], items: tuple[Value, ...]) -> bool:
    """Compute `exists`. One true element suffices, even if the test raises for others."""
    return _any_is(True, test, items)


def every(test: Callable[[Value], bool], items: tuple[Value, ...]) -> bool:
    """Compute `all`. One false element suffices for false, even if the test raises for others."""
    return not _any_is(False, test, items)


def _any_is(deciding: bool, test: Callable[[Any], bool], items: tuple[Any, ...]) -> bool:
    """Tell whether the test of an item gives the `deciding` value. Raise the first error if no test does.

    An error is kept back until all items are tested, because a later item may decide. A BudgetError ends the evaluation
    at once: absorbed, the budget would not bound the work.
    """
    error: RuleError | None = None
    for item in items:
        try:
            if test(item) is deciding:
                return True
        except BudgetError:
            raise
        except RuleError as raised:
            error = error or raised
    if error is not None:
        raise error
    return False


def fail(message: str) -> Value:
    """Raise RuleError. Generated code calls this function in place of a part that always fails."""
    raise RuleError(message)
