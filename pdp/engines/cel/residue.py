"""A residue: what is left of a rule set once all but the path is known; equal paths and prefixes become tables.

Rules are known by rank, their place in the order of ids; the smallest rank that is true determines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from pdp.engines.cel.conditions import Condition, Needs
from pdp.engines.cel.values import RuleError

Evaluate = Callable[..., bool]
NEVER: Final = 1 << 60
"""The rank of no rule."""
_FEW_PREFIXES: Final = 16


class Candidate:
    """A rule as the residue takes it: its rank, what it needs, whether it looks at the path, and its function."""

    __slots__ = ("evaluate", "looks_at_path", "needs", "rank")

    def __init__(self, rank: int, needs: Needs, looks_at_path: bool, evaluate: Evaluate) -> None:
        self.rank = rank
        self.needs = needs
        self.looks_at_path = looks_at_path
        self.evaluate = evaluate


class Residue:
    """Answers for paths. `known` are the arguments of a rule with the path left out at index `PATH`."""

    PATH: Final = 4
    __slots__ = ("_after", "_before", "_exact", "_few", "_lengths", "_others", "_raising", "always")

    def __init__(self, candidates: Iterable[Candidate], values: dict[str, Any], known: Sequence[Any]) -> None:
        self.always = NEVER
        self._before = tuple(known[: self.PATH])
        self._after = tuple(known[self.PATH + 1 :])
        self._exact: dict[str, int] = {}
        self._others: list[tuple[int, Evaluate]] = []
        self._raising: list[int] = []
        starts: dict[str, int] = {}
        for candidate in candidates:
            paths = _left(candidate.needs, values)
            if paths is None:
                continue
            self._take(candidate, paths, starts)
            if self.always != NEVER:
                break
        lengths: dict[int, dict[str, int]] = {}
        for prefix, rank in starts.items():
            lengths.setdefault(len(prefix), {})[prefix] = rank
        self._lengths = tuple((length, table.get) for length, table in lengths.items())
        self._few = tuple(starts) if len(starts) <= _FEW_PREFIXES else None

    @property
    def empty(self) -> bool:
        """Whether no path is permitted and none raises."""
        return self.fixed and self.always == NEVER and not self._raising

    @property
    def fixed(self) -> bool:
        """Whether the answer is the same for every path."""
        return not (self._exact or self._lengths or self._others)

    @property
    def may_raise(self) -> bool:
        """Whether some rule that is left may raise, as far as is known."""
        return bool(self._others or self._raising)

    def ranks(self, paths: Sequence[str]) -> list[int]:
        """For each path the smallest rank of a rule that is true, or NEVER."""
        always = self.always
        found = list(map(self._exact.get, paths, repeat(always))) if self._exact else [always] * len(paths)
        if self._lengths:
            few, lengths = self._few, self._lengths
            hits = [at for at, path in enumerate(paths) if path.startswith(few)] if few else range(len(paths))
            for at in hits:
                path, rank = paths[at], found[at]
                for length, get in lengths:
                    starts = get(path[:length])
                    if starts is not None and starts < rank:
                        rank = starts
                found[at] = rank
        if self._others:
            found = [self._other(path, rank) for path, rank in zip(paths, found, strict=True)]
        return found

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

    def _take(self, candidate: Candidate, paths: list[Condition], starts: dict[str, int]) -> None:
        if candidate.needs.whole and len(paths) <= 1:
            self._tabulate(candidate.rank, paths, starts)
        elif candidate.looks_at_path:
            self._others.append((candidate.rank, candidate.evaluate))
        else:
            self._decide_now(candidate)

    def _tabulate(self, rank: int, paths: list[Condition], starts: dict[str, int]) -> None:
        if not paths:
            self.always = rank
        for condition in paths:
            table = self._exact if condition.kind == "equals" else starts
            for text in condition.texts:
                table.setdefault(text, rank)

    def _decide_now(self, candidate: Candidate) -> None:
        """A rule that does not look at the path: true, false or raising for all of them."""
        try:
            if candidate.evaluate(*self._before, "", *self._after):
                self.always = candidate.rank
        except RuleError:
            self._raising.append(candidate.rank)


def _left(needs: Needs, values: dict[str, Any]) -> list[Condition] | None:
    """The conditions on the path that are left, or None where another condition is not met."""
    paths = []
    for condition in needs.conditions:
        if condition.variable == "path":
            paths.append(condition)
        elif not condition.met(values[condition.variable]):
            return None
    return paths
