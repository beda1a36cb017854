"""Prepared questions: the checks of a group with their residues, asked about one resource after another.

A question answers with fewer calls than the engine, because the group is known. Must not know groups and principals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pdp.engines.cel.group_checks import Question
from pdp.engines.cel.paths import path_of, path_string
from pdp.engines.cel.tables import PathTables
from pdp.engines.engine import ResourceCall, Verdicts
from pdp.model.checks import Resource

FoundRules: TypeAlias = Sequence[tuple[int, Sequence[int]]]
"""For each check the smallest rank of a true rule, and raising rules."""


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


class TableQuestion:
    """One check of the resource itself whose rules are all entries of tables: one look into the tables decides."""

    __slots__ = ("_reads_properties", "_tables", "_verdicts")

    def __init__(self, tables: PathTables, verdicts: Mapping[int, Verdicts], *, reads_properties: bool) -> None:
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
        return isinstance(other, TableQuestion) and self._tables is other._tables and self._verdicts is other._verdicts

    __hash__ = None  # type: ignore[assignment]


def prepare_question(
    questions: Sequence[Question],
    outcome: Callable[[FoundRules], Verdicts],
    verdicts: Mapping[int, Verdicts],
    *,
    reads_properties: bool,
) -> ResourceCall:
    """Return the call for questions. `outcome` and `verdicts` are the engine's for any and for one plain check."""
    if len(questions) == 1:
        check, residues = questions[0]
        tables = residues.only_tables
        if check.path == "self" and tables is not None:
            return TableQuestion(tables, verdicts, reads_properties=reads_properties)
    return RuleQuestion(questions, outcome, reads_properties=reads_properties)
