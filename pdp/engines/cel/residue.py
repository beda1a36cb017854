"""Residues: the rest of a rule set for given `CheckValues`, as a function of the path alone.

With all variables but `path` known, most rules vanish, are true for every path, or become entries of tables. Only the
rest needs a call per path. Rules are known by rank, their position in the order of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from pdp.cel.values import RuleError
from pdp.engines.cel.check_values import PATH_ARGUMENT, CheckValues
from pdp.engines.cel.conditions import Condition, Requirements
from pdp.engines.cel.group_checks import PathStrings
from pdp.engines.cel.tables import NEVER, PathTables

Evaluate: TypeAlias = Callable[..., bool]


class Candidate:
    """A rule that a check can concern: rank, necessary conditions, and function."""

    __slots__ = ("evaluate", "rank", "requirements", "uses_path")

    def __init__(self, rank: int, requirements: Requirements, uses_path: bool, evaluate: Evaluate) -> None:
        self.rank = rank
        self.requirements = requirements
        self.uses_path = uses_path
        self.evaluate = evaluate


class Residue:
    """The rest of `candidates` for given `CheckValues`. Candidates come sorted by rank.

    Every candidate takes the first of these ways:

    1. A condition on another variable is not met. The rule is false for every path and raises for none: left out.
    2. A single condition on the path is the whole rest of the rule: an entry of a table. Such a rule never raises.
    3. The rule does not use the path: evaluated once. If true, the rule is true for every path, and candidates with
       larger ranks are left out: they cannot determine, and errors count only where no rule is true.
    4. Any other rule keeps its function, which is called for each path.
    """

    __slots__ = ("_after_path", "_before_path", "_functions", "_raising", "_tables")

    def __init__(self, candidates: Iterable[Candidate], values: CheckValues) -> None:
        arguments, by_variable = values.arguments(), values.by_variable()
        self._before_path = arguments[:PATH_ARGUMENT]
        self._after_path = arguments[PATH_ARGUMENT + 1 :]
        self._functions: list[tuple[int, Evaluate]] = []
        self._raising: list[int] = []
        always, exact, starts = NEVER, dict[str, int](), dict[str, int]()
        for candidate in candidates:
            conditions = _path_conditions(candidate.requirements, by_variable)
            if conditions is None:
                continue
            if candidate.requirements.sufficient and len(conditions) == 1:
                table = exact if conditions[0].kind == "equals" else starts
                for text in conditions[0].texts:
                    table.setdefault(text, candidate.rank)  # an earlier candidate has the smaller rank
            elif candidate.uses_path:
                self._functions.append((candidate.rank, candidate.evaluate))
            elif self._is_true(candidate):
                always = candidate.rank
                break
        self._tables = PathTables(always, exact, starts)

    @property
    def is_empty(self) -> bool:
        """Tell whether no rule is true and none raises for any path."""
        return self.is_constant and self._tables.always == NEVER and not self._raising

    @property
    def is_constant(self) -> bool:
        """Tell whether the answer is the same for every path."""
        return self._tables.is_constant and not self._functions

    @property
    def may_raise(self) -> bool:
        """Tell whether a rule may raise for a path."""
        return bool(self._functions or self._raising)

    def ranks(self, paths: Sequence[str]) -> list[int]:
        """Return for each path the smallest rank of a true rule, or NEVER."""
        ranks = self._tables.ranks(paths)
        return self._lowered_by_functions(paths, ranks) if self._functions else ranks

    def ranks_of_column(self, paths: PathStrings) -> list[int]:
        """Return the same for a column of paths, without making the paths unless a rule needs a function."""
        ranks = self._tables.ranks_below(paths.folders, paths.folder_at, paths.names)
        return self._lowered_by_functions(paths.joined(), ranks) if self._functions else ranks

    def raised(self, path: str) -> list[int]:
        """Return the ranks of raising rules for a path without a true rule."""
        raised = list(self._raising)
        for rank, evaluate in self._functions:
            try:
                evaluate(*self._before_path, path, *self._after_path)
            except RuleError:
                raised.append(rank)
        return raised

    def _lowered_by_functions(self, paths: Sequence[str], ranks: Sequence[int]) -> list[int]:
        return [self._smallest_true_rank(path, rank) for path, rank in zip(paths, ranks, strict=True)]

    def _smallest_true_rank(self, path: str, limit: int) -> int:
        """Return the smallest rank of a function that is true for the path, or `limit` if that is smaller."""
        for rank, evaluate in self._functions:
            if rank > limit:
                break
            try:
                if evaluate(*self._before_path, path, *self._after_path):
                    return rank
            except RuleError:
                continue
        return limit

    def _is_true(self, candidate: Candidate) -> bool:
        """Evaluate a rule that does not use the path. Note the rank if the rule raises."""
        try:
            return candidate.evaluate(*self._before_path, "", *self._after_path)
        except RuleError:
            self._raising.append(candidate.rank)
            return False


class ResidueSet:
    """The residues that together answer for given `CheckValues`."""

    __slots__ = ("_residues", "is_constant", "may_raise")

    def __init__(self, residues: Sequence[Residue]) -> None:
        self._residues = tuple(residue for residue in residues if not residue.is_empty)
        self.is_constant = all(residue.is_constant for residue in self._residues)
        self.may_raise = any(residue.may_raise for residue in self._residues)

    def ranks(self, paths: Sequence[str]) -> list[int]:
        """Return for each path the smallest rank of a true rule, or NEVER."""
        columns = [residue.ranks(paths) for residue in self._residues]
        if not columns:
            return [NEVER] * len(paths)
        return columns[0] if len(columns) == 1 else list(map(min, *columns))

    def ranks_of_column(self, paths: PathStrings) -> list[int]:
        """Return the same for a column of paths."""
        columns = [residue.ranks_of_column(paths) for residue in self._residues]
        if not columns:
            return [NEVER] * len(paths.names)
        return columns[0] if len(columns) == 1 else list(map(min, *columns))

    def raised(self, path: str) -> list[int]:
        """Return the ranks of raising rules for a path without a true rule."""
        return sorted(rank for residue in self._residues for rank in residue.raised(path))


def _path_conditions(requirements: Requirements, values: dict[str, Any]) -> list[Condition] | None:
    """Return the conditions on the path; None if another condition is not met."""
    conditions = []
    for condition in requirements.conditions:
        if condition.variable == "path":
            conditions.append(condition)
        elif not condition.is_met_by(values[condition.variable]):
            return None
    return conditions
