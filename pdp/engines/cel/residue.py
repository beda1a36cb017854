"""A residue: what is left of a rule set once all but the path is known; equal paths and prefixes become tables.

Rules are known by rank, their place in the order of ids; the smallest rank that is true determines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pdp.cel.values import RuleError
from pdp.engines.cel.conditions import Condition, Requirements
from pdp.engines.cel.tables import NEVER, PathTables

Evaluate = Callable[..., bool]


class Candidate:
    """A rule as the residue takes it: its rank, what it needs, whether it looks at the path, and its function."""

    __slots__ = ("evaluate", "looks_at_path", "needs", "rank")

    def __init__(self, rank: int, needs: Requirements, looks_at_path: bool, evaluate: Evaluate) -> None:
        self.rank = rank
        self.needs = needs
        self.looks_at_path = looks_at_path
        self.evaluate = evaluate


class Residue:
    """Answers for paths. `known` are the arguments of a rule with the path left out at index `PATH`."""

    PATH: Final = 4
    __slots__ = ("_after", "_before", "_others", "_raising", "_tables")

    def __init__(self, candidates: Iterable[Candidate], values: dict[str, Any], known: Sequence[Any]) -> None:
        self._before = tuple(known[: self.PATH])
        self._after = tuple(known[self.PATH + 1 :])
        self._others: list[tuple[int, Evaluate]] = []
        self._raising: list[int] = []
        always, exact, starts = NEVER, dict[str, int](), dict[str, int]()
        for candidate in candidates:
            paths = _left(candidate.needs, values)
            if paths is None:
                continue
            if candidate.needs.whole and len(paths) == 1:
                table = exact if paths[0].kind == "equals" else starts
                for text in paths[0].texts:
                    table.setdefault(text, candidate.rank)
            elif candidate.looks_at_path:
                self._others.append((candidate.rank, candidate.evaluate))
            elif self._is_true(candidate):
                always = candidate.rank
                break
        self._tables = PathTables(always, exact, starts)

    @property
    def empty(self) -> bool:
        """Whether no path is permitted and none raises."""
        return self.fixed and self._tables.always == NEVER and not self._raising

    @property
    def fixed(self) -> bool:
        """Whether the answer is the same for every path."""
        return self._tables.fixed and not self._others

    @property
    def may_raise(self) -> bool:
        """Whether some rule that is left may raise, as far as is known."""
        return bool(self._others or self._raising)

    def ranks(self, paths: Sequence[str]) -> list[int]:
        """For each path the smallest rank of a rule that is true, or NEVER."""
        found = self._tables.ranks(paths)
        if self._others:
            found = [self._other(path, rank) for path, rank in zip(paths, found, strict=True)]
        return found

    def tables_in(self, folder: str) -> PathTables | None:
        """All there is to know of the paths that begin with `folder`, where no rule needs more than tables."""
        return None if self._others else self._tables.within(folder)

    def raised(self, path: str) -> list[int]:
        """The ranks of the rules that raise for a path that no rule is true for."""
        found = list(self._raising)
        for rank, evaluate in self._others:
            try:
                evaluate(*self._before, path, *self._after)
            except RuleError:
                found.append(rank)
        return found

    def _other(self, path: str, found: int) -> int:
        """The smallest rank below `found` among the rules that no table holds, or `found`."""
        for rank, evaluate in self._others:
            if rank > found:
                break
            try:
                if evaluate(*self._before, path, *self._after):
                    return rank
            except RuleError:
                continue
        return found

    def _is_true(self, candidate: Candidate) -> bool:
        """A rule that does not look at the path: true, false or raising for all of them."""
        try:
            return candidate.evaluate(*self._before, "", *self._after)
        except RuleError:
            self._raising.append(candidate.rank)
            return False


def _left(needs: Requirements, values: dict[str, Any]) -> list[Condition] | None:
    """The conditions on the path that are left, or None where another condition is not met."""
    paths = []
    for condition in needs.conditions:
        if condition.variable == "path":
            paths.append(condition)
        elif not condition.met(values[condition.variable]):
            return None
    return paths
