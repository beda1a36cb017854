"""Prepared questions: the checks of a group with their residues, asked about one resource after another.

A question answers with fewer calls than the engine, because the group is known. Must not know groups and principals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pdp.engines.cel.group_checks import Question
from pdp.engines.cel.paths import path_of, path_string
from pdp.engines.cel.tables import PathTables
from pdp.engines.engine import FixedAnswer, ResourceCall, Verdicts
from pdp.model.question import Resource

FoundRule: TypeAlias = tuple[int, Sequence[int]]
"""The smallest rank of a true rule, and raising rules."""
FoundRules: TypeAlias = Sequence[FoundRule]
"""The same for each check."""
_MOST_RANKS: Final = 64
"""Ranks of one question whose verdicts are remembered."""


class RuleQuestion:
    """Checks of a group, asked about one resource. Questions with the same residues and paths are equal."""

    __slots__ = ("_outcome", "_questions", "_reads_properties")

    def __init__(
        self, questions: Sequence[Question], outcome: Callable[[FoundRules], Verdicts], *, reads_properties: bool
    ) -> None:
        """Keep the questions. `outcome` makes the engine's verdicts from the rules found for each check."""
        self._questions = questions
        self._outcome = outcome
        self._reads_properties = reads_properties

    def __call__(self, resource: Resource) -> Verdicts | None:
        """Return the verdicts on a resource; None for one with a type of content or properties of its own."""
        if resource.content_type or (self._reads_properties and resource.properties):
            return None
        path = path_string(resource.path)
        found = []
        for check, residues in self._questions:
            place = check.path
            found.append(
                residues.rank(path if place == "self" else "" if place == "none" else path_of(check, resource))
            )
        return self._outcome(found)

    def __eq__(self, other: object) -> bool:
        """Tell whether the answers are equal for every resource."""
        return isinstance(other, RuleQuestion) and self._meaning() == other._meaning()

    __hash__ = None  # type: ignore[assignment]

    def _meaning(self) -> tuple[object, ...]:
        return self._outcome, tuple((check.path, residues) for check, residues in self._questions)


class _VerdictsByRank(dict[int, Verdicts]):
    """Verdicts by the rank of one check, while all other checks of a group stay as they are."""

    def __init__(self, found: Sequence[FoundRule | None], outcome: Callable[[FoundRules], Verdicts]) -> None:
        """Keep the rules found for each check; None for the one check whose rank varies."""
        super().__init__()
        self.meaning = found, outcome

    def __missing__(self, rank: int) -> Verdicts:
        found, outcome = self.meaning
        verdicts = outcome([(rank, ()) if fixed is None else fixed for fixed in found])
        if len(self) < _MOST_RANKS:
            self[rank] = verdicts
        return verdicts


class TableQuestion:
    """Checks of a group, of which one varies by the path: its rules are entries of tables, and one look decides."""

    __slots__ = ("_reads_properties", "_tables", "_verdicts")

    def __init__(self, tables: PathTables, verdicts: _VerdictsByRank, *, reads_properties: bool) -> None:
        """Keep the tables. `verdicts` has the engine's verdicts by rank."""
        self._tables = tables
        self._verdicts = verdicts
        self._reads_properties = reads_properties

    def __call__(self, resource: Resource) -> Verdicts | None:
        """Return the verdicts on a resource; None for one with a type of content or properties of its own."""
        if resource.content_type or (self._reads_properties and resource.properties):
            return None
        return self._verdicts[self._tables.rank(path_string(resource.path))]

    def __eq__(self, other: object) -> bool:
        """Tell whether the answers are equal for every resource."""
        return (
            isinstance(other, TableQuestion)
            and self._tables is other._tables
            and self._verdicts.meaning == other._verdicts.meaning
        )

    __hash__ = None  # type: ignore[assignment]


def prepare_question(
    questions: Sequence[Question], outcome: Callable[[FoundRules], Verdicts], *, reads_properties: bool
) -> ResourceCall:
    """Return the call for questions. `outcome` makes the engine's verdicts from the rules found for each check."""
    found = [residues.rank("") if residues.is_constant else None for _, residues in questions]
    if None not in found:
        return FixedAnswer(outcome([fixed for fixed in found if fixed]))
    if found.count(None) == 1:
        check, residues = questions[found.index(None)]
        tables = residues.only_tables
        if check.path == "self" and tables is not None:
            return TableQuestion(tables, _VerdictsByRank(found, outcome), reads_properties=reads_properties)
    return RuleQuestion(questions, outcome, reads_properties=reads_properties)
