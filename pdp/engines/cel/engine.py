"""CEL rules as engines: `CelEngine` permits, `CelForbid` forbids.

The vocabulary gives checks of Nessie's kind for every action. Both engines evaluate the same rule language on the same
checks. The determining rule is the true rule with the smallest id, so the order of files has no influence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from pdp.engines.cel.explain import ReferenceEvaluator
from pdp.engines.cel.group_checks import (
    FoundRules,
    GroupChecks,
    RankVerdicts,
    ResidueQuestion,
    find_rules,
    prepare_question,
)
from pdp.engines.cel.path_tables import NEVER, RankReasons, path_strings, paths_of
from pdp.engines.cel.program import MISSING_REFERENCE, PATH, forbid_program
from pdp.engines.cel.residue import PathRanks, ResidueSet
from pdp.engines.cel.rules import Rule, RuleSet, find_rule, roles_named_by, with_implicit_rule
from pdp.engines.cel.selection import MAX_VALUES_LENGTH, TOKEN_ROLES, SeenValues, Selector
from pdp.engines.engine import (
    CHECKPOINT,
    FORBID,
    PERMIT,
    READS_POLICIES,
    SILENT,
    Cost,
    Dependency,
    EngineQuestion,
    ForbiddenPath,
    ResourceCall,
    Verdicts,
)
from pdp.facts.objects import ObjectKey
from pdp.facts.snapshot import Facts
from pdp.model.answer import MISSING_ARGUMENT, Reason, Trace
from pdp.model.arrays import PathArray
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Resource
from pdp.model.redaction import DEFAULT_MASKER, Redactor
from pdp.model.vocabulary import CEL_CHECKS, VIEW_ONLY, NessieCheck

_MAX_GROUPS: Final = 2048
"""Groups that an engine remembers."""


class RuleRanks(NamedTuple):
    """The outcome of a check for many resources, an entry each. A single entry stands for all resources.

    `ranks` are the smallest ranks of true rules, or NEVER. `raised` are the ids of raising rules by position,
    at positions with NEVER only.
    """

    ranks: Sequence[int]
    raised: dict[int, tuple[str, ...]]

    def rank(self, at: int) -> int:
        """Return the rank for the resource at a position."""
        return self.ranks[at if len(self.ranks) > 1 else 0]

    def raised_at(self, at: int) -> tuple[str, ...]:
        """Return the ids of raising rules for the resource at a position."""
        return self.raised.get(at if len(self.ranks) > 1 else 0, ())


_READS_TIME: Final = READS_POLICIES | {Dependency.TIME}
_WITHOUT_ROLES: Final = frozenset({"user"})
_WITH_ROLES: Final = _WITHOUT_ROLES | {"role"}
"""Principals whose stored roles a negated test of a forbid counts, and a permit, if permits see stored roles."""


class _LastColumn(NamedTuple):
    """The latest column. A table and a view of the same names are often the same question to the rules."""

    residues: ResidueSet | None
    resources: Sequence[Resource]
    path: str
    column: RuleRanks


class _RuleEngine:
    """Evaluator of a rule set for the checks of a group. `rules` come sorted by id; a rank is a position in `rules`."""

    name = "cel"
    _effect = PERMIT
    """Effect of a true rule."""

    def __init__(self, rules: Sequence[Rule], digest: str, provider: str, masker: Redactor) -> None:
        self.rules = rules
        self._seen = TOKEN_ROLES
        """Roles that count among `roles`, and whether rules forbid."""
        self._masker = masker
        self.digest = digest
        self._provider = provider
        self._selector = Selector(rules)
        self._last_one: tuple[Resource | None, Sequence[ResidueQuestion], FoundRules] = (None, (), ())
        """The latest single resource, with the questions and what was found."""
        self._last = _LastColumn(None, (), "", RuleRanks((), {}))
        self._groups: BoundedCache[EngineQuestion, GroupChecks] = BoundedCache(_MAX_GROUPS, MAX_VALUES_LENGTH)
        self._ids = [rule.id for rule in rules]
        self._reasons = RankReasons(self._ids)
        self._verdicts = RankVerdicts(self._effect, self._reasons)

    @property
    def reads(self) -> frozenset[Dependency]:
        """Return the sources of verdicts: the time only if a rule uses `now`."""
        return _READS_TIME if self._selector.uses_time else READS_POLICIES

    @property
    def counts_stored_roles(self) -> bool:
        """Tell whether verdicts rest on stored roles."""
        return self._selector.counts_roles or (bool(self._seen.stored) and self._selector.reads_roles)

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict: rules are compiled functions."""
        return Cost.MICROSECONDS

    def prepare_for(self, other: _RuleEngine) -> None:
        """Make ready for the kinds of checks that another engine was asked about."""
        self._selector.prepare_for(other._selector)

    def group_checks(self, group: EngineQuestion) -> GroupChecks:
        """Return the checks of a group, remembered if the group is short."""
        checks = self._groups.get(group)
        if checks is None:
            checks = GroupChecks(group, self._provider, self._selector, self._seen)
            self._groups.keep(group, checks, checks.length())
        return checks

    def prepare(self, group: EngineQuestion, facts: Facts) -> ResourceCall | None:
        """Return the call that decides one resource of a group; None for a group without a ref or of many kinds."""
        group_checks = self.group_checks(group)
        if group_checks.lacks_ref or group_checks.has_kinds:
            return None
        return prepare_question(group_checks, self._outcome, reads_properties=self._selector.uses_properties)

    def reference_evaluator(self, group: EngineQuestion) -> ReferenceEvaluator:
        """Return an evaluator of every rule for the checks of a group."""
        return ReferenceEvaluator(self.rules, self.group_checks(group), self._masker)

    def evaluate(self, group_checks: GroupChecks, resources: Sequence[Resource]) -> tuple[RuleRanks, ...]:
        """Evaluate every check of a group and return a column for each."""
        return tuple(self._column(group_checks, number, resources) for number in range(len(group_checks.checks)))

    def evaluate_one(self, group_checks: GroupChecks, resource: Resource) -> FoundRules:
        """Evaluate every check of a group on one resource: the smallest rank of a true rule, and raising rules."""
        questions = group_checks.questions(resource)
        # A table and a view of one name are often the same questions, asked one after the other.
        last_resource, last_questions, last_found = self._last_one
        if last_resource is resource and last_questions == questions:
            return last_found
        found = find_rules(questions, resource)
        self._last_one = (resource, questions, found)
        return found

    def _outcome(self, found: FoundRules) -> Verdicts:
        """Return the verdicts on one resource, given what was found for each check."""
        raise NotImplementedError

    def _decide_one(self, group_checks: GroupChecks, resources: Sequence[Resource]) -> Verdicts:
        return self._with_missing(self._outcome(self.evaluate_one(group_checks, resources[0])), group_checks, resources)

    def _with_missing(self, verdicts: Verdicts, group_checks: GroupChecks, resources: Sequence[Resource]) -> Verdicts:
        """Return verdicts with the errors of a missing argument and a missing ref, where rules raised for them."""
        if not verdicts.errors or not (group_checks.argument or group_checks.lacks_ref):
            return verdicts
        errors = dict(verdicts.errors)
        for row, raised in verdicts.errors.items():
            read = {name for id in raised if (rule := find_rule(self.rules, id)) for name in rule.program.variables}
            missing = {MISSING_REFERENCE} if group_checks.lacks_ref and "ref" in read else set()
            if PATH in read and group_checks.has_missing_argument(resources[row]):
                missing.add(MISSING_ARGUMENT)
            errors[row] = tuple(sorted(missing.union(raised)))
        return msgspec.structs.replace(verdicts, errors=errors)

    def _column(self, group_checks: GroupChecks, number: int, resources: Sequence[Resource]) -> RuleRanks:
        check = group_checks.checks[number]
        if not group_checks.varies(check):
            resources = (resources[0],)
        elif check.path == "none" or not group_checks.share_kind(resources):
            return self._column_one_by_one(group_checks, number, resources)
        residues = group_checks.residues(number, resources[0])
        last = self._last
        # The same residues for the same sequence of resources and the same kind of path give the same ranks.
        if residues is last.residues and resources is last.resources and check.path == last.path:
            return last.column
        column = self._with_ids(self._ranks(residues, check, resources))
        if len(resources) > 1:
            self._last = _LastColumn(residues, resources, check.path, column)
        return column

    def _ranks(self, residues: ResidueSet, check: NessieCheck, resources: Sequence[Resource]) -> PathRanks:
        if residues.is_constant:
            return residues.ranks([""] * len(resources))
        if check.path == "none":
            rank, raised = residues.rank_without_path()
            return PathRanks([rank], {0: sorted(raised)} if raised else {})
        if type(resources) is PathArray and check.path == "self":
            return residues.ranks_of_column(path_strings(resources))
        return residues.ranks(paths_of(check, resources))

    def _column_one_by_one(self, group_checks: GroupChecks, number: int, resources: Sequence[Resource]) -> RuleRanks:
        """Return the column for resources that differ in more than the path."""
        check = group_checks.checks[number]
        paths = paths_of(check, resources) if check.path != "none" else [""] * len(resources)
        parts, checkpoint = list[PathRanks](), CHECKPOINT.get()
        for resource, path in zip(resources, paths, strict=True):
            checkpoint()
            parts.append(group_checks.residues(number, resource).ranks([path]))
        raised = {at: part.raised[0] for at, part in enumerate(parts) if part.raised}
        return self._with_ids(PathRanks([part.ranks[0] for part in parts], raised))

    def _with_ids(self, found: PathRanks) -> RuleRanks:
        raised = {row: tuple(self._ids[rank] for rank in ranks) for row, ranks in found.raised.items()}
        return RuleRanks(found.ranks, raised)

    @property
    def named_roles(self) -> frozenset[str]:
        """Return the roles in rules."""
        return roles_named_by(self.rules)


def _may_list(rule: Rule) -> bool:
    """Tell whether a rule may permit READ_ENTRIES, without which the implicit rule opens no warehouse."""
    conditions = rule.program.requirements.conditions
    return all(condition.is_met_by("READ_ENTRIES") for condition in conditions if condition.variable == "op")


class CelEngine(_RuleEngine):
    """Engine that permits if every check has a true rule. Otherwise silent, with the ids of raising rules.

    `stored`: the variable `roles` has stored roles, too.
    """

    forbids = False

    def __init__(
        self, rules: RuleSet, provider: str, masker: Redactor = DEFAULT_MASKER, *, stored: bool = False
    ) -> None:
        self.has_implicit_rule = not any("VIEW_REFERENCE" in text for text in rules.texts.values())
        self._opens_warehouses = not self.has_implicit_rule or any(map(_may_list, rules.rules))
        used = with_implicit_rule(rules.rules) if self.has_implicit_rule else rules.rules
        super().__init__(used, rules.digest(provider, stored=stored), provider, masker)
        self._seen = SeenValues(
            not rules.as_sent, _WITH_ROLES if stored else frozenset(), implicit=self.has_implicit_rule
        )
        self._last_verdicts: tuple[tuple[tuple[RuleRanks, ...], int], Verdicts] = (((), 0), Verdicts(b"", ()))

    def applies(self, action: str, type: str) -> bool:
        """Tell whether rules decide the action. The implicit rule alone does not make the engine apply."""
        key = (type, action)
        return key in CEL_CHECKS and (self._opens_warehouses or key not in VIEW_ONLY)

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Permit every resource with a true rule for each check of the group."""
        group_checks = self.group_checks(group)
        count = len(resources)
        if count == 1:
            return self._decide_one(group_checks, resources)
        columns = self.evaluate(group_checks, resources)
        # Verdicts follow from the columns and the count alone, so equal columns have equal verdicts.
        key, verdicts = self._last_verdicts
        if (columns, count) != key:
            verdicts = self._permit(columns, count)
            self._last_verdicts = ((columns, count), verdicts)
        return self._with_missing(verdicts, group_checks, resources)

    def _outcome(self, found: FoundRules) -> Verdicts:
        silent = raises = False
        for rank, raising in found:
            silent = silent or rank == NEVER
            raises = raises or bool(raising)
        if not silent:
            return self._verdicts[found[-1][0]]
        if not raises:
            return SILENT
        raised = {self._ids[rank] for _, raising in found for rank in raising}
        return Verdicts(b"\0", (None,), {0: tuple(sorted(raised))})

    def _permit(self, columns: tuple[RuleRanks, ...], count: int) -> Verdicts:
        """Permit the resources with a true rule in every column. The rule of the last column determines."""
        if any(len(column.ranks) == 1 and column.ranks[0] == NEVER for column in columns[:-1]):
            return Verdicts(bytes(count), [None] * count, self._errors(columns, range(count)))
        last = columns[-1].ranks if len(columns[-1].ranks) == count else list(columns[-1].ranks) * count
        by: list[Reason | None] = list(map(self._reasons.__getitem__, last))
        for column in columns[:-1]:
            if len(column.ranks) > 1:
                by = [None if rank == NEVER else reason for rank, reason in zip(column.ranks, by, strict=True)]
        effects = bytes([reason is not None for reason in by])  # as numbers, True is PERMIT and False is ABSTAIN
        denied = [at for at, reason in enumerate(by) if reason is None] if any(c.raised for c in columns) else ()
        return Verdicts(effects, by, self._errors(columns, denied))

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the checks of the group for the resource, with every rule."""
        checks = self.reference_evaluator(group).traces(resource)
        permitted = all(check.outcome == "permit" for check in checks)
        return Trace("cel", "permit" if permitted else "silent", parts=checks)

    def _errors(self, columns: Sequence[RuleRanks], denied: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Return for the denied resources the ids of raising rules, of checks without a true rule."""
        if not any(column.raised for column in columns):
            return {}
        errors = ((at, {rule for column in columns for rule in column.raised_at(at)}) for at in denied)
        return {at: tuple(sorted(rules)) for at, rules in errors if rules}


class CelForbid(_RuleEngine):
    """Engine that forbids if a check has a true rule, or a raising rule: a forbid that cannot be evaluated denies.

    A test for a role counts roles by any evidence. A test against a role counts the roles visible to a permit, and the
    acting role alone behind an acting role. `stored`: permits see stored roles.
    """

    forbids = True
    _effect = FORBID

    def __init__(
        self, rules: RuleSet, provider: str, masker: Redactor = DEFAULT_MASKER, *, stored: bool = False
    ) -> None:
        forbids: Sequence[Rule] = rules.rules
        if not rules.as_sent:
            forbids = [replace(rule, program=forbid_program(rule.program)) for rule in rules.rules]
        super().__init__(forbids, rules.digest(provider, stored=stored), provider, masker)
        self._seen = SeenValues(not rules.as_sent, _WITHOUT_ROLES if stored else frozenset(), forbids=True)

    @property
    def forbids_read(self) -> frozenset[str]:
        """Return the evidence read by the rules."""
        return frozenset[str]().union(*(rule.program.evidence for rule in self.rules))

    def paths_of(self, *ops: str) -> tuple[ForbiddenPath, ...]:
        """Return the texts that rules against checks of some kinds compare with paths."""
        found: list[ForbiddenPath] = []
        for program in (rule.program for rule in self.rules):
            tests = [one for one in program.requirements.conditions if one.variable == "op"]
            if any(all(test.is_met_by(op) for test in tests) for op in ops):
                found += program.path_texts()
        return tuple(found)

    def declared_objects(self) -> Iterable[ObjectKey]:
        """Return no object: a rule names paths and declares nothing."""
        return ()

    def forbidden_paths(self) -> Iterator[ForbiddenPath]:
        """Yield the texts that rules compare with paths."""
        for rule in self.rules:
            yield from rule.program.path_texts()

    def names_warehouse(self, warehouse: str) -> bool:
        """Tell whether a rule looks at the name of a warehouse."""
        return any(rule.program.names_warehouse(warehouse) for rule in self.rules)

    def applies(self, action: str, type: str) -> bool:
        """Return True: a forbid binds wherever anything could permit."""
        return True

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Forbid every resource with a true or raising rule for any check of the group."""
        group_checks = self.group_checks(group)
        if len(resources) == 1:
            return self._decide_one(group_checks, resources)
        columns = self.evaluate(group_checks, resources)
        effects = bytearray(len(resources))
        by: list[Reason | None] = [None] * len(resources)
        errors: dict[int, tuple[str, ...]] = {}
        if all(not column.raised and min(column.ranks) == NEVER for column in columns):
            return Verdicts(bytes(effects), by, errors)
        for at in range(len(resources)):
            rank = min(column.rank(at) for column in columns)
            raised = sorted({rule for column in columns for rule in column.raised_at(at)})
            if rank != NEVER or raised:
                effects[at] = FORBID
                by[at] = self._reasons[rank] if rank != NEVER else f"cel:{raised[0]}"
            if raised:
                errors[at] = tuple(raised)
        return self._with_missing(Verdicts(bytes(effects), by, errors), group_checks, resources)

    def _outcome(self, found: FoundRules) -> Verdicts:
        rank = min([rank for rank, _ in found])
        raised = sorted({self._ids[rank] for _, raising in found for rank in raising})
        if not raised:
            return self._verdicts[rank]
        reason = self._reasons[rank] if rank != NEVER else f"cel:{raised[0]}"
        return Verdicts(bytes([FORBID]), (reason,), {0: tuple(raised)})

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the checks of the group for the resource, with every rule."""
        checks = self.reference_evaluator(group).forbid_traces(resource)
        forbidden = any(check.outcome == "forbid" for check in checks)
        return Trace("cel forbid", "forbid" if forbidden else "silent", parts=checks)
