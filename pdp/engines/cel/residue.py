"""Residues: the rest of a rule set for given `CheckValues`, as a function of the path alone.

`CheckValues` are the values of all variables of a check without the path. With them known, most rules vanish, are true
for every path, or become entries of tables. Only the rest needs a call per path. Rules are known by rank, their
position in the order of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from pdp.cel.values import INT_MAX, INT_MIN, PartialMap, RuleError, Timestamp
from pdp.engines.cel.conditions import EVERY_ROLE, Condition, Requirements
from pdp.engines.cel.path_tables import NEVER, PathStrings, PathTables
from pdp.engines.cel.program import PATH, Program
from pdp.engines.engine import CHECKPOINT
from pdp.model.answer import MISSING_ARGUMENT

PATH_ARGUMENT: Final = 4
"""Index of the path among the arguments of a rule."""
_NANOS: Final = 1_000_000_000
_NO_MEMBERS: Final = "{}"
_NOTHING: Final[frozenset[str]] = frozenset()
_UNREAD: Final[Mapping[str, tuple[str, Any]]] = {
    "contentType": ("content_type", ""),
    "type": ("type", ""),
    "action": ("action", ""),
    "groups": ("groups", ()),
    "attributes": ("attributes", _NO_MEMBERS),
    "properties": ("properties", _NO_MEMBERS),
    "now": ("now", 0),
    "arguments": ("arguments", _NO_MEMBERS),
    EVERY_ROLE: ("every_role", ()),
}
"""Variable that few rules use -> the field of CheckValues, and the value that stands for all values."""
Evaluate: TypeAlias = Callable[..., bool]
RaisedRules: TypeAlias = dict[int, list[int]]
"""Row -> ranks of the rules that raise there."""


class PathRanks(NamedTuple):
    """The smallest rank of a true rule for each path, or NEVER; and the raising rules of rows with NEVER."""

    ranks: list[int]
    raised: RaisedRules


class Candidate:
    """A rule that a check can concern: its rank, and what selection needs of the program."""

    __slots__ = ("_program", "loops", "rank", "requirements", "uses_path")

    def __init__(self, rank: int, program: Program) -> None:
        self._program = program
        self.rank = rank
        self.requirements: Requirements = program.requirements
        self.uses_path = "path" in program.variables
        self.loops = program.loops

    def lacking(self, unknown: Iterable[str]) -> frozenset[str]:
        """Return the variables of the rule without a value because of unknown evidence, or of an unknown path."""
        return self._program.lacking(unknown)

    def evaluate(self, values: CheckValues, lacking: frozenset[str]) -> Evaluate:
        """Return the function of the rule, for values without those of `lacking` variables.

        The first use may compile the rule: ask only if conditions do not decide.
        """
        if lacking or self._program.counts_roles:
            return self._program.bound(values.every_role, lacking)
        return self._program.evaluate


class PathRule(NamedTuple):
    """A rule that is called for each path: its rank, its function, and its necessary conditions on the path.

    `loops`: one call may take long.
    """

    rank: int
    evaluate: Evaluate
    conditions: list[Condition]
    loops: bool


class Residue:
    """The rest of `candidates` for given `CheckValues`. Candidates come sorted by rank.

    Every candidate takes the first of these ways:

    1. A condition on another variable is not met. The rule is false for every path and raises for none: left out.
    2. A single condition on the path is the whole rest of the rule: an entry of a table, or a scan of the paths for a
       text. Such a rule never raises.
    3. The rule does not use the path: evaluated once. If true, the rule is true for every path, and candidates with
       larger ranks are left out: they cannot determine, and errors count only where no rule is true.
       A rule on unknown evidence has no such table, because reading raises. So it is with a rule on an unknown path.
    4. Any other rule keeps its function, which is called for each path that meets the conditions on the path. For other
       paths the rule is false and raises nothing.
    """

    __slots__ = ("_after_path", "_before_path", "_functions", "_scans", "_tables", "raising")

    def __init__(self, candidates: Iterable[Candidate], values: CheckValues) -> None:
        arguments, by_variable = values.in_order(), values.by_variable()
        self._before_path = arguments[:PATH_ARGUMENT]
        self._after_path = arguments[PATH_ARGUMENT + 1 :]
        self._functions: list[PathRule] = []
        self._scans: list[tuple[int, Condition]] = []
        self.raising: list[int] = []
        """Ranks of the rules that raise for every path."""
        always, exact, starts = NEVER, dict[str, int](), dict[str, int]()
        # INVARIANT: candidates come by rank. So the first candidate of a text has the smallest rank, and nothing behind
        # a rule that is true for every path can determine.
        for candidate in candidates:
            # INVARIANT: conditions on what nobody knows decide nothing. The function of the rule raises for it.
            lacking = candidate.lacking(values.unknown) if values.unknown else _NOTHING
            conditions = _path_conditions(candidate.requirements, by_variable, lacking)
            if conditions is None:
                continue
            if candidate.requirements.sufficient and len(conditions) == 1 and not lacking:
                (condition,) = conditions
                if condition.kind in ("ends", "contains"):
                    self._scans.append((candidate.rank, condition))
                    continue
                table = exact if condition.kind == "equals" else starts
                for text in condition.texts:
                    table.setdefault(text, candidate.rank)
            elif candidate.uses_path and PATH not in lacking:
                self._functions.append(
                    PathRule(candidate.rank, candidate.evaluate(values, lacking), conditions, candidate.loops)
                )
            elif self._is_true(candidate, values, lacking):
                always = candidate.rank
                break
        self._tables = PathTables(always, exact, starts)

    @property
    def is_empty(self) -> bool:
        """Tell whether no rule is true and none raises for any path."""
        return self.is_constant and self._tables.always == NEVER and not self.raising

    @property
    def only_tables(self) -> PathTables | None:
        """Return the tables if no rule needs the whole path and none raises."""
        return None if self._functions or self._scans or self.raising else self._tables

    @property
    def is_constant(self) -> bool:
        """Tell whether the answer is the same for every path."""
        return self._tables.is_constant and not self._functions and not self._scans

    def ranks(self, paths: Sequence[str], raised: RaisedRules) -> list[int]:
        """Return for each path the smallest rank of a true rule, or NEVER. Note in `raised` the rules that raise."""
        ranks = self._tables.ranks(paths)
        if self._functions or self._scans:
            self._lower_one_by_one(paths, ranks, raised)
        return ranks

    def ranks_of_column(self, paths: PathStrings, raised: RaisedRules) -> list[int]:
        """Return the same for a column of paths, without making the paths unless a rule needs the whole path."""
        ranks = self._tables.ranks_below(paths.folders, paths.folder_at, paths.names)
        if self._functions or self._scans:
            self._lower_one_by_one(paths.joined(), ranks, raised)
        return ranks

    def rank(self, path: str, raised: list[int]) -> int:
        """Return the same for one path. Add the rules that raise to `raised`."""
        lowest = self._tables.rank(path)
        for rank, condition in self._scans:
            if rank < lowest and condition.is_met_by(path):
                lowest = rank
        # INVARIANT: functions come by rank, too. Behind `lowest` no rule determines, and no error counts.
        for rank, evaluate, conditions, _ in self._functions:
            if rank > lowest:
                break
            if conditions and not all(condition.is_met_by(path) for condition in conditions):
                continue
            try:
                if evaluate(*self._before_path, path, *self._after_path):
                    return rank
            except RuleError:
                raised.append(rank)
        return lowest

    def _lower_one_by_one(self, paths: Sequence[str], ranks: list[int], raised: RaisedRules) -> None:
        """Lower the ranks by the rules that need the whole path.

        Rules come by rank, so the first true rule is the smallest. A row without a true rule has met every rule.
        """
        checkpoint = CHECKPOINT.get()
        for rank, condition in self._scans:
            checkpoint()
            for row in condition.rows_met_by(paths):
                ranks[row] = min(ranks[row], rank)
        before, after = self._before_path, self._after_path
        for rank, evaluate, conditions, loops in self._functions:
            checkpoint()
            for row in conditions[0].rows_met_by(paths) if conditions else range(len(paths)):
                if rank < ranks[row]:
                    if loops:
                        checkpoint()
                    try:
                        if evaluate(*before, paths[row], *after):
                            ranks[row] = rank
                    except RuleError:
                        raised.setdefault(row, []).append(rank)

    def _is_true(self, candidate: Candidate, values: CheckValues, lacking: frozenset[str]) -> bool:
        """Evaluate a rule that needs no path, and whose conditions hold. Note the rank if the rule raises."""
        if candidate.requirements.sufficient and not lacking:
            return True
        try:
            return candidate.evaluate(values, lacking)(*self._before_path, "", *self._after_path)
        except RuleError:
            self.raising.append(candidate.rank)
            return False


class ResidueSet:
    """The residues that together answer for given `CheckValues`."""

    __slots__ = ("_raising", "_residues", "_without_path", "is_constant", "only_tables")

    def __init__(self, residues: Sequence[Residue]) -> None:
        self._residues = tuple(residue for residue in residues if not residue.is_empty)
        self.is_constant = all(residue.is_constant for residue in self._residues)
        self._raising = [rank for residue in self._residues for rank in residue.raising]
        self.only_tables = self._residues[0].only_tables if len(self._residues) == 1 else None
        """The tables, if they decide alone."""
        self._without_path: tuple[int, Sequence[int]] | None = None

    def rank_without_path(self) -> tuple[int, Sequence[int]]:
        """Return the same as `rank` for a check without a path, evaluated once."""
        if self._without_path is None:
            self._without_path = self.rank("")
        return self._without_path

    def rank(self, path: str) -> tuple[int, Sequence[int]]:
        """Return the smallest rank of a true rule for one path; with NEVER, also the rules that raise."""
        if self.only_tables is not None:
            return self.only_tables.rank(path), ()
        raised: list[int] = []
        lowest = NEVER
        for residue in self._residues:
            rank = residue.rank(path, raised)
            lowest = min(lowest, rank)
        return lowest, ([*raised, *self._raising] if lowest == NEVER else ())

    def ranks(self, paths: Sequence[str]) -> PathRanks:
        """Return for each path the smallest rank of a true rule, and the rules that raise."""
        raised: RaisedRules = {}
        return self._joined([residue.ranks(paths, raised) for residue in self._residues], raised, len(paths))

    def ranks_of_column(self, paths: PathStrings) -> PathRanks:
        """Return the same for a column of paths."""
        raised: RaisedRules = {}
        columns = [residue.ranks_of_column(paths, raised) for residue in self._residues]
        return self._joined(columns, raised, len(paths.names))

    def _joined(self, columns: Sequence[list[int]], raised: RaisedRules, count: int) -> PathRanks:
        columns = columns or [[NEVER] * count]
        ranks = columns[0] if len(columns) == 1 else list(map(min, *columns))
        if self._raising:
            silent = (row for row, rank in enumerate(ranks) if rank == NEVER)
            return PathRanks(ranks, {row: sorted([*raised.get(row, ()), *self._raising]) for row in silent})
        return PathRanks(ranks, {row: sorted(rules) for row, rules in raised.items() if ranks[row] == NEVER})


NO_RULES: Final = ResidueSet(())
"""The residues of a check that no rule concerns."""


def _path_conditions(
    requirements: Requirements, values: dict[str, Any], lacking: frozenset[str]
) -> list[Condition] | None:
    """Return the conditions on a known path; None if another condition on a variable with a value is not met."""
    conditions = []
    for condition in requirements.conditions:
        if condition.variable in lacking:
            continue
        if condition.variable == PATH:
            conditions.append(condition)
        elif not condition.is_met_by(values[condition.variable]):
            return None
    return conditions


class CheckValues(NamedTuple):
    """The values of all variables of a check but `path`. Hashable, to serve as a key of caches.

    `attributes`, `properties` and `arguments` are JSON objects as text; an argument that is null is unknown. `now` is
    in seconds since 1970.
    `unknown` names evidence as in `Principal`, and `path` if nobody knows the path. `every_role` has the value of
    EVERY_ROLE.
    """

    op: str
    role: str
    roles: tuple[str, ...]
    ref: str
    content_type: str
    type: str
    api: tuple[str, int]
    actions: tuple[str, ...]
    delegated: bool
    warehouse: str
    action: str = ""
    groups: tuple[str, ...] = ()
    attributes: str = _NO_MEMBERS
    properties: str = _NO_MEMBERS
    now: int = 0
    arguments: str = _NO_MEMBERS
    unknown: tuple[str, ...] = ()
    every_role: tuple[str, ...] = ()

    def in_order(self) -> tuple[Any, ...]:
        """Return the arguments of a rule in the order of RULE_VARIABLES, with "" at PATH_ARGUMENT."""
        api = {"apiName": self.api[0], "apiVersion": self.api[1]}
        return (
            self.op, self.role, self.roles, self.ref, "", self.content_type, self.type, api, self.actions,
            self.delegated, self.warehouse, self.action, self.groups, _as_map(self.attributes),
            _as_map(self.properties), Timestamp(self.now * _NANOS),
            _as_arguments(self.arguments),
        )  # fmt: skip

    def length(self) -> int:
        """Count the characters of all values together."""
        texts = (
            self.role,
            *self.roles,
            self.ref,
            self.content_type,
            self.type,
            self.api[0],
            *self.actions,
            self.warehouse,
            self.action,
            *self.groups,
            self.attributes,
            self.properties,
            self.arguments,
            *self.unknown,
            *self.every_role,
        )
        return sum(map(len, texts))

    def by_variable(self) -> dict[str, Any]:
        """Return the values of the variables that conditions test, by name."""
        return {
            "op": self.op, "role": self.role, "roles": self.roles, "ref": self.ref, "contentType": self.content_type,
            "type": self.type, "actions": self.actions, "warehouse": self.warehouse, "action": self.action,
            "groups": self.groups, EVERY_ROLE: self.every_role,
        }  # fmt: skip


def unread_fields(variables: frozenset[str]) -> Mapping[str, Any]:
    """Return the fields of CheckValues that rules with these variables do not read, each with one value for all."""
    return dict(field for variable, field in _UNREAD.items() if variable not in variables)


def json_text(members: Mapping[str, Any] | None) -> str:
    """Return a JSON object as canonical text."""
    return msgspec.json.encode(members, order="sorted").decode() if members else _NO_MEMBERS


def _as_map(text: str) -> Mapping[str, Any]:
    """Return the JSON object `text` as a value of the language."""
    return {} if text == _NO_MEMBERS else _as_value(msgspec.json.decode(text))


def _as_arguments(text: str) -> Mapping[str, Any]:
    """Return arguments as a value of the language. To read or test for an unknown argument raises."""
    if "null" not in text:
        return _as_map(text)
    members = msgspec.json.decode(text)
    known = {key: name for key, name in members.items() if name is not None}
    unknown = frozenset(members.keys() - known.keys())
    return PartialMap(known, unknown, MISSING_ARGUMENT) if unknown else known


def _as_value(value: Any) -> Any:
    """Return a JSON value as a value of the language: an integer beyond 64 bits is a double, a list is a tuple."""
    if isinstance(value, dict):
        return {key: _as_value(member) for key, member in value.items()}
    if isinstance(value, list):
        return tuple(_as_value(item) for item in value)
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        return float(value)
    return value
