"""What generated code calls beyond the function table: absorbing logic, macros that absorb, and the step budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pdp.cel.values import BudgetError, RuleError, Value

MAX_STEPS: Final = 100_000
"""Steps of one evaluation: elements walked, and what is copied or scanned inside a macro."""
_PATTERN_STEPS: Final = 500

Budget = list[int]


def budget() -> Budget:
    """A fresh allowance, for one evaluation."""
    return [MAX_STEPS]


def _spend(left: Budget, steps: int) -> None:
    left[0] -= steps
    if left[0] < 0:
        raise BudgetError(f"evaluation budget exceeded: more than {MAX_STEPS} steps")


def take(left: Budget, items: tuple[Value, ...]) -> tuple[Value, ...]:
    """The elements that a macro walks, paid for one by one."""
    _spend(left, len(items))
    return items


def grow(left: Budget, value: Value) -> Value:
    """A text, list or map made inside a macro: memory is bounded because every copy is paid for."""
    _spend(left, 1 + len(value) // 4)
    return value


def scan(left: Budget, value: Value) -> Value:
    """A text or list that is searched or compared inside a macro."""
    if isinstance(value, (str, bytes, tuple, dict)):
        _spend(left, 1 + len(value) // 8)
    return value


def fresh_pattern(left: Budget, pattern: Value) -> Value:
    """A pattern that is made inside a macro: compiling one may cost as much as many steps."""
    _spend(left, _PATTERN_STEPS)
    return pattern


def fail(message: str) -> Value:
    raise RuleError(message)


def all_of(*parts: Callable[[], bool]) -> bool:
    """`&&`: false wins over errors, errors over true."""
    return not _any_is(False, parts)


def any_of(*parts: Callable[[], bool]) -> bool:
    """`||`: true wins over errors, errors over false."""
    return _any_is(True, parts)


def _any_is(wanted: bool, parts: tuple[Callable[[], bool], ...]) -> bool:
    error: RuleError | None = None
    for part in parts:
        try:
            if part() is wanted:
                return True
        except BudgetError:
            raise
        except RuleError as raised:
            error = error or raised
    if error is not None:
        raise error
    return False


def exists(test: Callable[[Value], bool], items: tuple[Value, ...]) -> bool:
    """`exists` whose test may raise: one true element is enough, whatever the others raise."""
    return _any_element_is(True, test, items)


def every(test: Callable[[Value], bool], items: tuple[Value, ...]) -> bool:
    """`all` whose test may raise: one false element is enough, whatever the others raise."""
    return not _any_element_is(False, test, items)


def _any_element_is(wanted: bool, test: Callable[[Value], bool], items: tuple[Value, ...]) -> bool:
    error: RuleError | None = None
    for item in items:
        try:
            if test(item) is wanted:
                return True
        except BudgetError:
            raise
        except RuleError as raised:
            error = error or raised
    if error is not None:
        raise error
    return False
