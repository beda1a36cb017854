"""CEL rules as an engine: an action becomes checks of Nessie's kind, each of which some rule must permit.

`CelEngine` permits, `CelForbid` forbids; both read the same rule language and the same vocabulary. The determining
rule is the one with the smallest id, so that it does not depend on files or luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from operator import is_not
from typing import Final, NamedTuple

import msgspec

from pdp.engines.cel.plain import PlainEvaluator
from pdp.engines.cel.questions import GroupChecks, folder_of, paths_of
from pdp.engines.cel.rules import Rule, RuleSet, inline_rules
from pdp.engines.cel.selection import ResidueSet, Selector
from pdp.engines.cel.tables import NEVER
from pdp.engines.engine import FORBID, Group, Verdicts
from pdp.facts.snapshot import Facts
from pdp.model.checks import Reason, Resource, Siblings, Trace
from pdp.model.vocabulary import CEL_CHECKS, VIEW_ONLY, CelCheck

IMPLICIT_RULE = "__ALLOW_VIEWING_REF_ID"
"""Nessie's rule that references are viewable, added unless some rule's text contains VIEW_REFERENCE."""


_GIVEN: Final = partial(is_not, None)
"""Whether there is a reason: True is the number of PERMIT, False that of ABSTAIN."""


class RuleRanks(NamedTuple):
    """One check of many resources: the smallest rank that is true, or NEVER, and the rules that raised where none is.

    A single entry stands for all resources.
    """

    ranks: Sequence[int]
    raised: dict[int, tuple[str, ...]]

    def rank(self, at: int) -> int:
        return self.ranks[at if len(self.ranks) > 1 else 0]

    def raised_at(self, at: int) -> tuple[str, ...]:
        return self.raised.get(at if len(self.ranks) > 1 else 0, ())


class _Last(NamedTuple):
    """The last column asked. A table and a view of the same names are often the same question to the rules."""

    judge: ResidueSet | None
    resources: Sequence[Resource]
    path: str
    answers: RuleRanks


class _RuleEngine:
    """A rule set with its index."""

    name = "cel"

    def __init__(self, rules: Sequence[Rule], digest: str, provider: str) -> None:
        self.rules = rules
        self.digest = digest
        self.reads_facts = False
        self._provider = provider
        self._selector = Selector(rules)
        self._last = _Last(None, (), "", RuleRanks((), {}))
        self._ids = [rule.id for rule in rules]
        self._reasons: dict[int, Reason] = {rank: f"cel:{id}" for rank, id in enumerate(self._ids)}

    def questions(self, group: Group) -> GroupChecks:
        return GroupChecks(group, self._provider)

    def plain(self, group: Group) -> PlainEvaluator:
        return PlainEvaluator(self.rules, self.questions(group))

    def ask(self, questions: GroupChecks, resources: Sequence[Resource]) -> tuple[RuleRanks, ...]:
        """The answers to every check of a group."""
        if questions.lacks_ref:
            return self._ask_plain(questions, resources)
        return tuple(self._ask(questions, number, resources) for number in range(len(questions.checks)))

    def _ask(self, questions: GroupChecks, number: int, resources: Sequence[Resource]) -> RuleRanks:
        check = questions.checks[number]
        if not questions.about_path(check):
            resources = resources[:1]
        if questions.about_path(check) and (check.path == "none" or not _of_one_type(resources)):
            return self._ask_each(questions, number, resources)
        judge = self._selector.judge(questions.known(check, resources[0]))
        last = self._last
        if judge is last.judge and resources is last.resources and check.path == last.path:
            return last.answers
        ranks = self._ranks(judge, check, resources)
        raised = {}
        if judge.may_raise:
            raised = self._raised([judge] * len(ranks), ranks, paths_of(check, resources))
        answers = RuleRanks(ranks, raised)
        if len(resources) > 1:
            self._last = _Last(judge, resources, check.path, answers)
        return answers

    def _ranks(self, judge: ResidueSet, check: CelCheck, resources: Sequence[Resource]) -> list[int]:
        if judge.fixed:
            return judge.ranks([""]) * len(resources)
        if isinstance(resources, Siblings) and check.path == "self" and (folder := folder_of(resources)) is not None:
            return judge.ranks_in(folder, resources.names)
        return judge.ranks(paths_of(check, resources))

    def _ask_each(self, questions: GroupChecks, number: int, resources: Sequence[Resource]) -> RuleRanks:
        """Where resources differ in more than their paths."""
        check = questions.checks[number]
        paths = paths_of(check, resources) if check.path != "none" else [""] * len(resources)
        judges = [self._selector.judge(questions.known(check, resource)) for resource in resources]
        ranks = [judge.ranks([path])[0] for judge, path in zip(judges, paths, strict=True)]
        return RuleRanks(ranks, self._raised(judges, ranks, paths))

    def _raised(
        self, judges: Sequence[ResidueSet], ranks: Sequence[int], paths: Sequence[str]
    ) -> dict[int, tuple[str, ...]]:
        found = {}
        for at, judge in enumerate(judges):
            if ranks[at] == NEVER and (raised := judge.raised(paths[at])):
                found[at] = tuple(self._ids[rank] for rank in raised)
        return found

    def _ask_plain(self, questions: GroupChecks, resources: Sequence[Resource]) -> tuple[RuleRanks, ...]:
        plain = PlainEvaluator(self.rules, questions)
        rank_of = {id: rank for rank, id in enumerate(self._ids)}
        columns: list[RuleRanks] = [RuleRanks([], {}) for _ in questions.checks]
        for at, resource in enumerate(resources):
            for column, answer in zip(columns, plain.answers(resource), strict=True):
                column.ranks.append(NEVER if answer.rule is None else rank_of[answer.rule])  # type: ignore[attr-defined]
                if answer.raised:
                    column.raised[at] = answer.raised
        return tuple(columns)


class CelEngine(_RuleEngine):
    """Permits what the rule set permits; silent, with the ids of rules that raised, otherwise."""

    def __init__(self, rules: RuleSet, provider: str) -> None:
        self.implicit = not any("VIEW_REFERENCE" in text for text in rules.texts.values())
        used = _with_implicit_rule(rules.rules) if self.implicit else rules.rules
        super().__init__(used, _digest(rules, provider), provider)
        self._decided: tuple[tuple[tuple[RuleRanks, ...], int], Verdicts] = (((), 0), Verdicts(b"", ()))

    def applies(self, action: str, type: str) -> bool:
        key = (type, action)
        return key in CEL_CHECKS and not (self.implicit and key in VIEW_ONLY)

    def decide(self, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        questions = self.questions(group)
        count = len(resources)
        if questions.lacks_ref:
            return Verdicts(bytes(count), [None] * count, dict.fromkeys(range(count), ("missing_reference",)))
        columns = self.ask(questions, resources)
        asked, verdicts = self._decided
        if (columns, count) != asked:
            verdicts = self._permit(columns, count)
            self._decided = ((columns, count), verdicts)
        return verdicts

    def _permit(self, columns: tuple[RuleRanks, ...], count: int) -> Verdicts:
        """Permitted is what every check permits, by the rule that permits the last."""
        if any(len(column.ranks) == 1 and column.ranks[0] == NEVER for column in columns[:-1]):
            return Verdicts(bytes(count), [None] * count, self._errors(columns, range(count)))
        last = columns[-1].ranks if len(columns[-1].ranks) == count else list(columns[-1].ranks) * count
        by: list[Reason | None] = list(map(self._reasons.get, last))
        for column in columns[:-1]:
            if len(column.ranks) > 1:
                by = [None if rank == NEVER else reason for rank, reason in zip(column.ranks, by, strict=True)]
        effects = bytes(map(_GIVEN, by))
        denied = [at for at, reason in enumerate(by) if reason is None] if any(c.raised for c in columns) else ()
        return Verdicts(effects, by, self._errors(columns, denied))

    def explain(self, group: Group, resource: Resource, facts: Facts) -> Trace:
        if self.questions(group).lacks_ref:
            return Trace("cel", "silent", why="missing_reference: no ref given and the warehouse has no default_ref")
        checks = self.plain(group).traces(resource)
        permitted = all(check.outcome == "permit" for check in checks)
        return Trace("cel", "permit" if permitted else "silent", parts=checks)

    def _errors(self, columns: Sequence[RuleRanks], denied: Sequence[int]) -> dict[int, tuple[str, ...]]:
        """Per denied resource, the rules that raised for a check that was not permitted."""
        if not any(column.raised for column in columns):
            return {}
        errors = {at: {rule for column in columns for rule in column.raised_at(at)} for at in denied}
        return {at: tuple(sorted(rules)) for at, rules in errors.items() if rules}


class CelForbid(_RuleEngine):
    """Forbids where a rule is true, and where a rule raised: a forbid that cannot be judged denies."""

    def __init__(self, rules: RuleSet, provider: str) -> None:
        super().__init__(rules.rules, _digest(rules, provider), provider)

    def applies(self, action: str, type: str) -> bool:
        return (type, action) in CEL_CHECKS

    def decide(self, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        columns = self.ask(self.questions(group), resources)
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
        return Verdicts(bytes(effects), by, errors)

    def explain(self, group: Group, resource: Resource, facts: Facts) -> Trace:
        checks = self.plain(group).traces(resource)
        binding = any(part.outcome != "false" for check in checks for part in check.parts)
        return Trace("cel forbid", "forbid" if binding else "silent", parts=checks)


def _of_one_type(resources: Sequence[Resource]) -> bool:
    """Whether rules see the same contentType of all."""
    if isinstance(resources, Siblings):
        return True
    first = resources[0].content_type
    return all(resource.content_type == first for resource in resources)


def _with_implicit_rule(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Nessie overwrites an own rule of that id."""
    implicit = inline_rules({IMPLICIT_RULE: "op=='VIEW_REFERENCE' && ref.matches('.*')"}).rules
    kept = [rule for rule in rules if rule.id != IMPLICIT_RULE]
    return tuple(sorted([*kept, *implicit], key=lambda rule: rule.id))


def _digest(rules: RuleSet, provider: str) -> str:
    return sha256(msgspec.json.encode([dict(rules.texts), provider], order="sorted")).hexdigest()
