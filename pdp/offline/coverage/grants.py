"""Coverage of grants and memberships by the checks of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple

from pdp.engines.grants.edits import QUESTIONS
from pdp.engines.grants.effective_access import EffectiveAccess, grant_reason
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.model import ACTIONS, STORED
from pdp.engines.grants.rules import evaluate
from pdp.facts.objects import BIT, Grant, GrantRemoved, ObjectKey, key_text
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason
from pdp.model.question import CONTENT_TYPES, Check, Principal, Resource
from pdp.offline.cases.reasons import EngineAnswer
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
