"""Step budget of one evaluation. Generated code pays for work inside macros.

Outside macros, the size of an expression bounds its work. Macros multiply work by the length of lists, so elements cost
steps, and inside macros so do texts, lists and maps. The budget bounds time and memory.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from pdp.cel.values import BudgetError, Value

MAX_STEPS: Final = 100_000
"""Steps of one evaluation: elements of macros, and the lengths of values copied or scanned inside macros."""
_PATTERN_STEPS: Final = 500
_COPIED_PER_STEP: Final = 4
_SCANNED_PER_STEP: Final = 8

Budget: TypeAlias = list[int]
"""Steps left, as the only item of a list: generated code passes the list on, and each charge changes the item."""


def new_budget() -> Budget:
    """Return the budget of one evaluation."""
    return [MAX_STEPS]


def _spend(budget: Budget, steps: int) -> None:
    budget[0] -= steps
    if budget[0] < 0:
        raise BudgetError(f"evaluation budget exceeded: more than {MAX_STEPS} steps")


def charge_elements(budget: Budget, items: tuple[Value, ...]) -> tuple[Value, ...]:
    """Charge one step for each element of a macro and return the elements. Raise BudgetError if too few are left."""
    _spend(budget, len(items))
    return items


def charge_copy(budget: Budget, value: Value) -> Value:
    """Charge for a text, list or map made inside a macro and return the value.

    Each copy is paid for by length, so the budget bounds memory, too. Raise BudgetError if too few steps are left.
    """
    _spend(budget, 1 + len(value) // _COPIED_PER_STEP)
    return value


def charge_scan(budget: Budget, value: Value) -> Value:
    """Charge for a text, list or map searched or compared inside a macro and return the value.

    Raise BudgetError if too few steps are left.
    """
    if isinstance(value, (str, bytes, tuple, dict)):
        _spend(budget, 1 + len(value) // _SCANNED_PER_STEP)
    return value


def charge_pattern(budget: Budget, pattern: Value) -> Value:
    """Charge for a pattern made inside a macro and return the pattern: compilation costs as much as many steps.

    Raise BudgetError if too few steps are left.
    """
    _spend(budget, _PATTERN_STEPS)
    return pattern
