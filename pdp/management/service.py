"""Management: changes of objects and grants, and questions about them, on behalf of an actor.

Owns who may ask and in which order a change is judged, written and seen; the rights are the grants model's
(`engines.grants.administration`), the storage is the store's. Knows no wire format.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from pdp.audit.record import LISTING
from pdp.decision.inspection import sees_all
from pdp.decision.service import Pdp
from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import Actor, GrantEdits, ObjectEdits
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.grantees import expand_roles, grant_flags, related_grantees
from pdp.errors import AssertionNotAllowed, Forbidden, InvalidArgument, Unavailable
from pdp.facts.objects import SERVER, Change, Grant, ObjectKey, key_of, key_text, resource_of
from pdp.facts.snapshot import Facts
from pdp.model.checks import NAMED_TYPES, Batch, Caller, Check, Consistency, Principal, Resource
from pdp.model.references import format_resource, parse_principal

T = TypeVar("T")
LOOKED_AT_ONCE: Final = 1000
"""Objects or principals checked between two looks at the clock and at the size of the page."""
LOOKED_FOR: Final = 2.0
"""Seconds after which a page ends where it is, full or not."""
MOST_CHANGES: Final = 100_000
"""Rows that one request may change: whatever it does, others wait for it."""
_SHARED_BY_ALL: Final = frozenset({"user", "role"})
"""Object types with actions that no grant is needed for."""


class Ledger(Protocol):
    """Facts that can be written."""

    async def write(self, actor: str, decide: Callable[[Facts], Sequence[Change]]) -> Facts:
        """Write what `decide` makes of the newest facts; the facts after it. Raises what that raises, Unavailable."""
        ...


class Requester(msgspec.Struct, frozen=True):
    """Who manages: the caller, and the actor on whose behalf; without one, the caller acts as an operator.

    A caller with a principal of its own is that actor: it never acts as an operator.
    """

    caller: Caller
    principal: Principal | None = None
    acting_role: str | None = None
    consistency: Consistency = "minimize_latency"


class PageRequest(msgspec.Struct, frozen=True):
    """Which part of a long answer: at most `size` entries, those that sort after `after`."""

    size: int
    after: str = ""


class GrantListing(msgspec.Struct, frozen=True):
    """A grant, what is odd about it, and the name by which it sorts."""

    grant: Grant
    flags: tuple[str, ...]
    name: str


class GrantFilter(msgspec.Struct, frozen=True):
    """Which grants: each field narrows. `below` takes in everything below `object`."""

    object: ObjectKey | None = None
    below: bool = False
    principal: str = ""
    privilege: str = ""


class PageResult(msgspec.Struct, frozen=True):
    """A part of a long answer: name -> reason, in order; `next` continues it, "" where it is complete."""

    entries: Mapping[str, str]
    next: str
    revision: str


class Management:
    """The verbs. `ledger` is None where the store takes no writes."""

    def __init__(self, pdp: Pdp, ledger: Ledger | None, bootstrap_admins: frozenset[str]) -> None:
        self._pdp = pdp
        self._ledger = ledger
        self._rules = Administration(bootstrap_admins, frozenset(pdp.bundle.warehouses))
        self._admins = bootstrap_admins

    async def write_grants(self, asking: Requester, edits: GrantEdits) -> tuple[str, tuple[GrantListing, ...]]:
        """Grant and revoke, all or nothing; the revision, and what is odd about the grants that are there now."""
        facts = await self._write(asking, lambda facts, actor: self._rules.edit_grants(facts, actor, edits))
        odd = (_listed(facts, grant) for grant in dict.fromkeys(edits.add))
        return self._revision(facts), tuple(listed for listed in odd if listed.flags)

    async def write_objects(self, asking: Requester, edits: ObjectEdits) -> str:
        """Register, move and delete objects, all or nothing; the revision."""
        return self._revision(
            await self._write(asking, lambda facts, actor: self._rules.edit_objects(facts, actor, edits))
        )

    async def grants(
        self, asking: Requester, wanted: GrantFilter, page: PageRequest
    ) -> tuple[Sequence[GrantListing], str, str]:
        """Grants in order, where the next page begins, and the revision.

        An actor sees the grants on objects whose assignments it may read, and its own; without an object or a
        principal, its own. Raises Forbidden where it asks for one object whose assignments it may not read.
        """
        facts = await self._facts(asking)
        actor = self._actor(facts, asking)
        if actor.principal is not None and wanted.object is None and not wanted.principal:
            wanted = msgspec.structs.replace(wanted, principal=actor.name)  # not to look through everything for it
        if wanted.object is not None and actor.principal is not None and wanted.principal != actor.name:
            self._rules.require(facts, actor, "read_assignments", wanted.object)
        found = await asyncio.to_thread(self._matching, facts, actor, wanted)
        rest = [listed for listed in found if listed.name > page.after]
        shown = rest[: page.size]
        return shown, shown[-1].name if len(rest) > page.size else "", self._revision(facts)

    async def access(self, asking: Requester, action: str, resource: Resource, page: PageRequest) -> PageResult:
        """Who may do something to an object: principal -> the determining reason of its permit.

        Everybody who was granted anything is looked at, where rules decide as well; whom a rule alone knows is not.
        Raises Forbidden for an actor that may not read the object's assignments.
        """
        facts, key = await self._facts(asking), key_of(resource)
        self._rules.require(facts, self._actor(facts, asking), "read_assignments", key)
        await self._demand_inspection(asking, resource)
        candidates = sorted(await asyncio.to_thread(self._candidates, facts, action, key))

        def checks(some: Sequence[str]) -> list[Check]:
            return [Check(parse_principal(name), action, (resource,), (at,)) for at, name in enumerate(some)]

        return await self._permitted(_judged(asking.caller), candidates, page, checks)

    async def list_objects(
        self, asking: Requester, question: tuple[str, str, ObjectKey], page: PageRequest
    ) -> PageResult:
        """The known objects of a type below a container on which the asking's principal may do something.

        `question` is action, type and container. Known is what is registered, or granted on, or above something that
        is. Of somebody else, a caller that may not speak for others is told where it may read the object's grants.
        """
        action, type, container = question
        facts = await self._facts(asking)
        principal, caller = asking.principal, asking.caller
        if principal is None:
            raise InvalidArgument("`principal` is missing")
        inspected = not sees_all(caller) and principal.id != (caller.own and caller.own.id)
        keys = await asyncio.to_thread(_below, facts, type, container)

        def checks(some: Sequence[str]) -> list[Check]:
            places: dict[str, list[int]] = {}
            for at, name in enumerate(some):
                places.setdefault(keys[name][1][0] if keys[name][1] else "", []).append(at)
            role = asking.acting_role
            return [
                Check(
                    principal,
                    action,
                    [resource_of(keys[some[i]]) for i in at],
                    at,
                    acting_role=role,
                    inspected=inspected,
                )
                for at in places.values()
            ]

        return await self._permitted(caller if inspected else _judged(caller), sorted(keys), page, checks)

    async def _permitted(
        self, caller: Caller, names: Sequence[str], page: PageRequest, checks: Callable[[Sequence[str]], list[Check]]
    ) -> PageResult:
        """The names whose check is permitted, from where the page begins until it is full, or has taken long enough.

        Nothing is left out: what was not looked at is the next page's.
        """
        found: dict[str, str] = {}
        ends = time.monotonic() + LOOKED_FOR
        rest = [name for name in names if name > page.after]
        revision = self._pdp.revision()
        for start in range(0, len(rest), LOOKED_AT_ONCE):
            some = rest[start : start + LOOKED_AT_ONCE]
            answer = await self._pdp.check(Batch(LISTING, caller, len(some), checks(some)))
            revision = answer.revision
            for at, name in enumerate(some):
                if answer.allowed[at]:
                    found[name] = answer.by[at] or ""
                    if len(found) == page.size:
                        return PageResult(found, name if start + at + 1 < len(rest) else "", revision)
            if time.monotonic() > ends and some[-1] != rest[-1]:
                return PageResult(found, some[-1], revision)
        return PageResult(found, "", revision)

    async def _write(self, asking: Requester, decide: Callable[[Facts, Actor], Sequence[Change]]) -> Facts:
        if not asking.caller.may_write:
            raise Forbidden(f"caller `{asking.caller.name}` may not write: `may_write` is not set for it")
        if self._ledger is None:
            raise InvalidArgument("the store is a world file, which takes no writes")
        self._pdp.audit.admit()
        name = asking.principal.id if asking.principal else f"caller:{asking.caller.name}"
        written_by = f"{name} as role:{asking.acting_role}" if asking.acting_role else name

        def changes(facts: Facts) -> Sequence[Change]:
            made = decide(facts, self._actor(facts, asking))
            if len(made) > MOST_CHANGES:
                raise InvalidArgument(f"{len(made)} rows would change, a request may change {MOST_CHANGES}")
            return made

        return await self._ledger.write(written_by, changes)

    async def _facts(self, asking: Requester) -> Facts:
        caller = asking.caller
        if asking.principal is None and not caller.may_write and "principals" not in caller.may_assert:
            raise Forbidden(f"caller `{caller.name}` may not look at grants without an actor")
        await self._pdp.await_consistency(asking.consistency)
        if asking.principal is not None and self._pdp.source.is_stale():
            raise Unavailable("the store has been silent too long to tell who may look at grants")
        return self._pdp.source.facts

    def _revision(self, facts: Facts) -> str:
        return f"{facts.epoch}.{facts.sequence}.{self._pdp.bundle.digest}"

    def _matching(self, facts: Facts, actor: Actor, wanted: GrantFilter) -> list[GrantListing]:
        readable: dict[ObjectKey, bool] = {}

        def is_seen(grant: Grant) -> bool:
            if actor.principal is None or grant.principal == actor.name:
                return True
            known = readable.get(grant.object)
            if known is None:
                known = readable[grant.object] = self._rules.may(facts, actor, "read_assignments", grant.object)
            return known

        return listed(facts, filter(is_seen, matching(facts, wanted)))

    def _candidates(self, facts: Facts, action: str, key: ObjectKey) -> set[str]:
        """Who has to be looked at: all whom grants know, or fewer where grants alone decide."""
        warehouse = key[1][0] if key[0] not in NAMED_TYPES and key[1] else ""
        authority = self._pdp.bundle.authority(warehouse)
        others = [e for e in authority.engines if e.applies(action, key[0]) and not isinstance(e, GrantsEngine)]
        if not others and key[0] not in _SHARED_BY_ALL:
            near = related_grantees(facts, key) | self._admins | self._pdp.bundle.instance_admins
            return expand_roles(facts, near)
        registered = {key_text(o.key) for o in facts.objects() if o.key[0] in _SHARED_BY_ALL}
        return {*facts.grantees(), *registered, *self._admins, *self._pdp.bundle.instance_admins}

    async def _demand_inspection(self, asking: Requester, resource: Resource) -> None:
        """Who may not speak for others may ask about them only where that is on, and where no policy is against it."""
        caller, actor = asking.caller, asking.principal
        if sees_all(caller) or actor is None:
            return
        if not caller.may_inspect:
            raise AssertionNotAllowed(f"caller `{caller.name}` may not assert principals")
        right = Check(actor, "read_assignments", (resource,), (0,), acting_role=asking.acting_role)
        answer = await self._pdp.check(Batch(LISTING, caller, 1, (right,)))
        if not answer.allowed[0]:
            raise Forbidden(f"`{actor.id}` lacks read_assignments on {format_resource(resource)}")

    def _actor(self, facts: Facts, asking: Requester) -> Actor:
        """Whose rights count; Forbidden where a role is assumed that may not be."""
        if asking.principal is None:
            return Actor(asking.caller.name)
        bundle, role = self._pdp.bundle, asking.acting_role
        principal = bundle.with_memberships(asking.principal)
        reports = "principals" in asking.caller.may_assert
        if role is None:
            return Actor(principal.id, principal, principal.id in bundle.instance_admins, reports)
        if not facts.can_assume(principal, role):
            raise Forbidden(f"`{principal.id}` cannot assume role:{role}")
        return Actor(f"role:{role}", Principal("role", role), may_report=reports)


def _judged(caller: Caller) -> Caller:
    """A caller whose right to ask has been judged as a whole: its own principal guards no single check."""
    return msgspec.structs.replace(caller, own=None)


def matching(facts: Facts, wanted: GrantFilter) -> Iterator[Grant]:
    """The wanted grants, in no order."""
    if wanted.object is not None and not wanted.below:
        found: Iterable[Grant] = facts.grants_on(wanted.object)
    elif wanted.object is not None and not wanted.principal:
        found = (grant for key, _ in facts.subtree(wanted.object) for grant in facts.grants_on(key))
    else:
        found = facts.grants_to(wanted.principal) if wanted.principal else facts.grants()
        top = wanted.object
        if top is not None:
            found = (grant for grant in found if top in (SERVER, grant.object) or top in facts.ancestors(grant.object))
    for grant in found:
        if wanted.principal in ("", grant.principal) and wanted.privilege in ("", grant.privilege):
            yield grant


def listed(facts: Facts, grants: Iterable[Grant]) -> list[GrantListing]:
    """Grants in order, with what is odd about each."""
    return sorted((_listed(facts, grant) for grant in grants), key=lambda found: found.name)


def _listed(facts: Facts, grant: Grant) -> GrantListing:
    name = "\x00".join((key_text(grant.object), grant.privilege, grant.principal, grant.id))
    return GrantListing(grant, grant_flags(facts, grant), name)


def _below(facts: Facts, type: str, container: ObjectKey) -> dict[str, ObjectKey]:
    return {key_text(key): key for key, _ in facts.subtree(container) if key[0] == type and key != container}
