"""Coverage of CEL rules, Cedar policies and LakeQL's permissions by the checks of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.decision.active_policies import ActivePolicies
from pdp.engines.cedar.engine import CedarEngine
from pdp.engines.cedar.explain import Judgement
from pdp.engines.cedar.policies import CedarPolicy
from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.cel.rule_conditions import NEVER_FALSE, NEVER_TRUE, RuleConditions, conditions_of
from pdp.engines.cel.rules import IMPLICIT_RULE
from pdp.engines.engine import FORBID, PERMIT
from pdp.engines.scopes.engine import ScopesEngine
from pdp.engines.scopes.permissions import ANY_TABLE, QUESTIONS, EntryBody, RuleBody, Scope, Target, target_of, user_of
from pdp.errors import Place
from pdp.offline.cases.reasons import EngineAnswer, rule_engines
from pdp.offline.coverage.coverage import NOT_NEEDED, Coverage, PolicyItem

_KIND: Final[dict[type, str]] = {CelEngine: "rule", CelForbid: "forbid"}


class _RuleItem(NamedTuple):
    """A rule with its item and its conditions."""

    item: PolicyItem
    conditions: RuleConditions


_RuleSetKey: TypeAlias = tuple[str, str, str, frozenset[str]]
"""Kind of engine, its digest, the place of inline rules, and the files of the others."""


class RuleCoverage:
    """Rules with their conditions, and the points that checks show. A rule is evaluated until all points are shown."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._open: dict[_RuleSetKey, list[_RuleItem]] = {}
        """Rules with points that no check has shown yet."""

    def add(self, bundle: ActivePolicies, origin: str) -> None:
        """Add all rules of a bundle. `origin` is the place of rules that stand in no file of their own."""
        for engine in rule_engines(bundle):
            self._items(engine, origin)

    def show(self, answers: Iterable[EngineAnswer], origin: str) -> None:
        """Note the points that the answers of engines show."""
        seen = set()
        for answer in answers:
            engine = answer.engine
            if not isinstance(engine, CelEngine | CelForbid) or engine.group_checks(answer.group).lacks_ref:
                continue
            items = self._items(engine, origin)
            evaluator = engine.reference_evaluator(answer.group) if items else None
            for resource in answer.resources if evaluator else ():
                for values in evaluator.values(resource) if evaluator else ():
                    key = (id(engine), repr(values))
                    if key not in seen:
                        seen.add(key)
                        self._show(items, values)

    def _show(self, items: list[_RuleItem], values: dict[str, Any]) -> None:
        """Note the points that one evaluation shows, and drop the rules with all points shown."""
        shown = [self._coverage.show(item, conditions.shown_by(values)) for item, conditions in items]
        if any(shown):
            items[:] = [found for found in items if self._coverage.is_open(found.item)]

    def _items(self, engine: CelEngine | CelForbid, origin: str) -> list[_RuleItem]:
        """Return the open rules of an engine; add its rules to the coverage when they are new."""
        key = (_KIND[type(engine)], engine.digest, origin, frozenset(rule.place.file for rule in engine.rules))
        items = self._open.get(key)
        if items is None:
            items = self._open[key] = [*_rule_items(engine, origin)]
            for item, conditions in items:
                self._coverage.add(item, conditions.points)
        return items


def _rule_items(engine: CelEngine | CelForbid, origin: str) -> Iterator[_RuleItem]:
    kind = _KIND[type(engine)]
    for rule in engine.rules:
        if rule.id != IMPLICIT_RULE:
            place = origin if rule.place.file == Place().file else f"{rule.place.file}:{rule.place.line}"
            item = PolicyItem(kind, rule.id, place, rule.program.text)
            yield _RuleItem(item, conditions_of(rule.program))


_POINTS: Final = (NEVER_TRUE, NEVER_FALSE)


class CedarCoverage:
    """Cedar policies of all bundles so far, and the points that checks show."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    def add(self, bundle: ActivePolicies, origin: str) -> None:
        """Add all Cedar policies of a bundle; `origin` is the place of the files."""
        for authority in (bundle.default, *bundle.authorities.values()):
            for engine in authority.engines:
                if isinstance(engine, CedarEngine):
                    for policy in engine.model.policies.policies:
                        self._coverage.add(_item(policy, origin), _POINTS)

    def show(self, answers: Iterable[EngineAnswer], origin: str) -> None:
        """Note the points that the answers of Cedar engines show."""
        for answer in answers:
            engine = answer.engine
            if not isinstance(engine, CedarEngine):
                continue
            policies = engine.model.policies.policies
            for judgement in engine.judgements(answer.group, answer.resources, answer.facts).values():
                for policy, holds in _known(judgement, policies) if isinstance(judgement, Judgement) else ():
                    self._coverage.show(_item(policy, origin), [NEVER_TRUE if holds else NEVER_FALSE])


def _known(judgement: Judgement, policies: Iterable[CedarPolicy]) -> Iterator[tuple[CedarPolicy, bool]]:
    """Yield the policies whose outcome a decision tells. Cedar names no permits beside a forbid that holds."""
    holding = {policy.id for policy in judgement.holding}
    for policy in policies:
        is_hidden = policy.effect == "permit" and judgement.effect == FORBID
        if policy.id not in judgement.raised and not is_hidden:
            yield policy, policy.id in holding


def _item(policy: CedarPolicy, origin: str) -> PolicyItem:
    return PolicyItem(f"cedar {policy.effect}", policy.id, origin, policy.text)


NO_BOUNDARY: Final = "no check denies its user another table"
_SLOTS: Final[Mapping[Scope, str]] = {"readPermission": "Query", "writePermission": "Mutation"}


class ScopeCoverage:
    """Rules of entries of all bundles so far, and the points that checks show."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    def add(self, bundle: ActivePolicies, origin: str) -> None:
        """Add all rules of a bundle's permissions; `origin` is the place of the files."""
        for authority in (bundle.default, *bundle.authorities.values()):
            for engine in authority.engines:
                for entry in first_entries(engine.entries) if isinstance(engine, ScopesEngine) else ():
                    for item, _ in _items(entry, origin):
                        self._coverage.add(item, [NOT_NEEDED, NO_BOUNDARY])

    def show(self, answers: Iterable[EngineAnswer], origin: str) -> None:
        """Note the points that the answers of engines of scopes show."""
        for answer in answers:
            engine = answer.engine
            if not isinstance(engine, ScopesEngine):
                continue
            user = user_of(answer.group.principal, engine.provider)
            entry = next((entry for entry in engine.entries if entry.name == user.name), None)
            if entry is not None:
                self._show(answer, entry, origin)

    def _show(self, answer: EngineAnswer, entry: EntryBody, origin: str) -> None:
        scope = QUESTIONS[answer.group.action, answer.group.type]
        rules = list(_items(entry, origin, scope))
        for resource, effect in zip(answer.resources, answer.verdicts.effects, strict=True):
            target = target_of(answer.group, resource)
            if effect == PERMIT:
                deciding = next((item for item, rule in rules if _permits(rule, target)), None)
                if deciding:
                    self._coverage.show(deciding, [NOT_NEEDED])
            else:
                for item, _ in rules:
                    self._coverage.show(item, [NO_BOUNDARY])


def first_entries(entries: Sequence[EntryBody]) -> Iterator[EntryBody]:
    """Yield the entries that count: of several with one name, the first."""
    names = set()
    for entry in entries:
        if entry.name not in names:
            names.add(entry.name)
            yield entry


def _items(entry: EntryBody, origin: str, scope: Scope | None = None) -> Iterator[tuple[PolicyItem, RuleBody]]:
    """Yield the rules of an entry under one scope, or under both."""
    slots: dict[Scope, Sequence[RuleBody] | None] = {
        "readPermission": entry.permissions.query,
        "writePermission": entry.permissions.mutation,
    }
    for each, rules in slots.items():
        for rule in (rules or ()) if scope in (None, each) else ():
            tables = ", ".join(rule.tables or ())
            name = f"{entry.name}: {_SLOTS[each]} {rule.catalog}.{rule.schema} [{tables}]"
            yield PolicyItem("permission", name, origin), rule


def _permits(rule: RuleBody, target: Target) -> bool:
    if (rule.catalog, rule.schema) != (target.catalog, target.schema):
        return False
    tables = rule.tables or ()
    return tables[:1] == (ANY_TABLE,) or target.table in tables
