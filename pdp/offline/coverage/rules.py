"""Coverage of grants, CEL rules, Cedar policies and LakeQL's permissions by the checks of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.decision.active_policies import ActivePolicies
from pdp.engines.cedar.engine import CedarEngine
from pdp.engines.cedar.explain import Judgement
from pdp.engines.cedar.policies import CedarPolicy
from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.cel.rule_conditions import NEVER_FALSE, NEVER_TRUE, RuleConditions, conditions_of
from pdp.engines.cel.rules import IMPLICIT_RULE
from pdp.engines.engine import FORBID, PERMIT
from pdp.engines.grants.edits import QUESTIONS
from pdp.engines.grants.effective_access import EffectiveAccess, grant_reason
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.model import ACTIONS, STORED
from pdp.engines.grants.rules import evaluate
from pdp.engines.scopes.engine import ScopesEngine
from pdp.engines.scopes.permissions import ANY_TABLE, EntryBody, RuleBody, Scope, Target, target_of, user_of
from pdp.engines.scopes.permissions import QUESTIONS as SCOPES
from pdp.errors import Place
from pdp.facts.objects import BIT, Grant, GrantRemoved, ObjectKey, key_text
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason
from pdp.model.question import CONTENT_TYPES, Check, Principal, Resource
from pdp.offline.cases.reasons import EngineAnswer, rule_engines
from pdp.offline.coverage.coverage import NOT_NEEDED, Coverage, PolicyItem

NOT_NEEDED_IN_FULL: Final = "a weaker privilege serves all checks"
NO_BOUNDARY_OF_RIGHTS: Final = "no check denies its holder more on the object"
NO_BOUNDARY_OF_PLACE: Final = "no check denies its holder another object"
NO_OUTSIDER: Final = "no check denies the object to anybody else"
_BELOW_A_WAREHOUSE: Final = frozenset({"warehouse", *CONTENT_TYPES})
_MEMBERSHIP: Final = "assignee"


class GrantItem(NamedTuple):
    """A grant with its item."""

    grant: Grant
    item: PolicyItem


class _Book(NamedTuple):
    """Grants of some facts: by the reason that names them, by grantee and by object. Memberships are by member."""

    facts: Facts
    by_reason: dict[Reason, list[GrantItem]]
    by_grantee: dict[str, list[GrantItem]]
    by_object: dict[ObjectKey, list[GrantItem]]
    memberships: dict[str, list[GrantItem]]


class GrantCoverage:
    """Grants of all worlds so far, and the points that checks show."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._books: dict[tuple[int, str], _Book] = {}

    def add(self, facts: Facts, origin: str) -> None:
        """Add all grants of a world; `origin` is the place of the world."""
        self._book(facts, origin)

    def show(self, answers: Iterable[EngineAnswer], origin: str) -> None:
        """Note the points that the answers of the grants engine show."""
        for answer in answers:
            if not isinstance(answer.engine, GrantsEngine):
                continue
            book = self._book(answer.facts, origin)
            for resource, reason in zip(answer.resources, answer.verdicts.by, strict=True):
                if reason is None:
                    self._show_denial(book, answer, resource)
                else:
                    self._show_permit(book, answer, resource, reason)

    def show_acting_role(self, check: Check, facts: Facts, origin: str) -> None:
        """Note the memberships by which the principal of a decided check acts as a role."""
        if check.question.acting_role is not None and facts.can_assume(
            check.question.principal, check.question.acting_role
        ):
            self.show_membership(check.question.principal, check.question.acting_role, facts, origin)

    def show_membership(self, principal: Principal, role: str, facts: Facts, origin: str) -> None:
        """Note the memberships on the ways from a principal to a role."""
        memberships = self._book(facts, origin).memberships
        for member in {principal.id, *facts.grantees_of(principal)}:
            for grant, item in memberships.get(member, ()):
                if facts.can_assume(Principal("role", grant.object[1][0]), role):
                    self._coverage.show(item, [NOT_NEEDED])

    def _book(self, facts: Facts, origin: str) -> _Book:
        key = (id(facts.index), origin)
        book = self._books.get(key)
        if book is None:  # the book keeps the facts, so that no other index gets the same id
            book = self._books[key] = _Book(facts, {}, {}, {}, {})
            for grant in sorted(facts.grants()):
                self._add(book, grant, origin)
        return book

    def _add(self, book: _Book, grant: Grant, origin: str) -> None:
        text = f"{grant.privilege} on {key_text(grant.object)} to {grant.principal}"
        if grant.object[0] == "role" and grant.privilege == _MEMBERSHIP:
            found = GrantItem(grant, PolicyItem("membership", text, origin, grant.id))
            book.memberships.setdefault(grant.principal, []).append(found)
            self._coverage.add(found.item, [NOT_NEEDED])
            return
        found = GrantItem(grant, PolicyItem("grant", text, origin, grant.id))
        book.by_grantee.setdefault(grant.principal, []).append(found)
        book.by_object.setdefault(grant.object, []).append(found)
        reason = grant_reason(grant.object, grant.privilege, grant.principal)
        book.by_reason.setdefault(reason, []).append(found)
        self._coverage.add(found.item, _points(grant))

    def _show_permit(self, book: _Book, answer: EngineAnswer, resource: Resource, reason: Reason) -> None:
        for grant, item in book.by_reason.get(reason, ()):
            self._coverage.show(item, [NOT_NEEDED])
            if self._coverage.lacks(item, NOT_NEEDED_IN_FULL) and _is_needed_in_full(grant, answer, resource):
                self._coverage.show(item, [NOT_NEEDED_IN_FULL])
            if grant.principal.startswith("role:"):
                role = grant.principal.removeprefix("role:")
                self.show_membership(answer.group.principal, role, book.facts, item.place)

    def _show_denial(self, book: _Book, answer: EngineAnswer, resource: Resource) -> None:
        _, key, _ = QUESTIONS[answer.group.action, answer.group.type].target_of(resource)
        around = (key, *book.facts.ancestors(key))
        holders = set(book.facts.grantees_of(answer.group.principal))
        for holder in holders:
            for grant, item in book.by_grantee.get(holder, ()):
                self._coverage.show(item, [NO_BOUNDARY_OF_RIGHTS if grant.object in around else NO_BOUNDARY_OF_PLACE])
        for object in around:
            for grant, item in book.by_object.get(object, ()):
                if grant.principal not in holders:
                    self._coverage.show(item, [NO_OUTSIDER])


def _points(grant: Grant) -> Iterator[str]:
    """Yield what tests can show about a grant. The highest objects have no outside, the highest privileges no limit."""
    type = grant.object[0]
    yield NOT_NEEDED
    if _weaker(type, grant.privilege):
        yield NOT_NEEDED_IN_FULL
    if _permitted(type, grant.privilege) != ACTIONS[type]:
        yield NO_BOUNDARY_OF_RIGHTS
    if type in _BELOW_A_WAREHOUSE:
        yield NO_BOUNDARY_OF_PLACE
    yield NO_OUTSIDER


@cache
def _permitted(type: str, privilege: str) -> frozenset[str]:
    """Return the actions that one privilege alone permits on an object of a type."""
    relations = evaluate(type, BIT[privilege], None, False)
    return frozenset(action for action in ACTIONS[type] if relations.witness(action) is not None)


@cache
def _weaker(type: str, privilege: str) -> tuple[str, ...]:
    """Return the privileges that permit a part of what a privilege permits on an object of a type."""
    permitted = _permitted(type, privilege)
    return tuple(sorted(other for other in STORED[type] if _permitted(type, other) < permitted))


def _is_needed_in_full(grant: Grant, answer: EngineAnswer, resource: Resource) -> bool:
    """Tell whether no weaker privilege on the same object would permit a check that the grant permits."""
    relation, key, id = QUESTIONS[answer.group.action, answer.group.type].target_of(resource)
    without = answer.facts.apply(answer.facts.sequence, [GrantRemoved(grant)])
    for privilege in _weaker(grant.object[0], grant.privilege):
        access = EffectiveAccess(without, answer.group.principal, {grant.object: BIT[privilege]})
        if access.relations_on(key, id).witness(relation) is not None:
            return False
    return True


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
            if not isinstance(engine, CelEngine | CelForbid):
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
        scope = SCOPES[answer.group.action, answer.group.type]
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
