"""Management: changes of objects and grants, and queries about them, on behalf of an actor.

Owns the right to use management and the order of steps: check rights, write, list. The grants model owns the rights
themselves (`engines.grants.administration`). Knows no wire format.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from pdp.audit.records.record import LISTING
from pdp.decision.inspection import sees_all
from pdp.decision.service import ListedPage, Pdp, at_time
from pdp.decision.turns import run_aside
from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import Actor, GrantEdits, ObjectEdits, expand_roles, related_grantees
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.guarded import applying
from pdp.errors import AssertionNotAllowed, Forbidden, InvalidArgument, Unavailable
from pdp.facts.objects import SERVER, Change, Grant, ObjectKey, key_of, key_text, resource_of
from pdp.facts.snapshot import Facts
from pdp.identity.evidence import judged_principal
from pdp.management.forbidden_edits import edit_questions, grant_questions, refuse_forbidden, unforbidden
from pdp.management.requests import (
    Candidates,
    GrantFilter,
    GrantListing,
    GrantPage,
    ObjectQuery,
    PageRequest,
    PageResult,
    Requester,
    describe_grant,
    grants_request,
    linked,
    list_access_request,
    list_grants_request,
    list_objects_request,
    matching_grants,
    names_below,
    objects_request,
    recorded,
    sorted_grants,
    unguarded,
)
from pdp.model.answer import Reason
from pdp.model.arrays import positions_by
from pdp.model.question import NAMED_TYPES, Batch, Caller, Check, Principal, Question, Resource
from pdp.model.references import format_resource, parse_principal

_FIRST_BATCH: Final = 10
"""Candidates that every page checks: nobody knows yet what the policies cost."""
CHECK_BATCH: Final = 1000
"""Most candidates of a listing in one batch."""
PAGE_SECONDS: Final = 2.0
"""Time after which a page ends, full or not."""
MAX_CHANGES: Final = 100_000
"""Rows that one request may change: all other writers wait for the end of the write."""
READ: Final = "read_assignments"
"""Action on an object that a look at the grants of others requires."""
_OPEN_TYPES: Final = frozenset({"user", "role"})
"""Object types with actions that need no grant."""


class FactsWriter(Protocol):
    """A store that takes writes."""

    async def write(self, actor: str, decide: Callable[[Facts], Sequence[Change]]) -> Facts:
        """Write the changes that `decide` makes from the newest facts; return the facts after the write.

        Raise Unavailable, and every exception of `decide`.
        """
        ...


class _Listing(NamedTuple):
    """Listing of a caller: the question by field, and the checks about some of the candidates."""

    caller: Caller
    asked: Mapping[str, Any]
    checks: Callable[[Sequence[str]], list[Check]]

    def batch(self, names: Sequence[str], seconds: int | None) -> Batch:
        """Return a batch about candidates, at a time if policies read the time."""
        batch = Batch(LISTING, self.caller, len(names), self.checks(names))
        return batch if seconds is None else at_time(batch, seconds)


class Management:
    """All operations of management. `writer` is None if the store takes no writes."""

    def __init__(self, pdp: Pdp, writer: FactsWriter | None, bootstrap_admins: frozenset[str]) -> None:
        self._pdp = pdp
        self._writer = writer
        self.rights = Administration(bootstrap_admins, frozenset(pdp.bundle.warehouses), self._names_role)
        self._admins = bootstrap_admins

    def _names_role(self, role: str, facts: Facts) -> bool:
        return self._pdp.bundle.names_role(role, facts)

    async def write_grants(self, requester: Requester, edits: GrantEdits) -> tuple[str, tuple[GrantListing, ...]]:
        """Grant and revoke, all or nothing; return the revision, and all edited grants with a flag.

        Raise Forbidden, InvalidArgument, Unavailable.
        """
        work = self._write_grants(requester, edits)
        facts = await recorded(self._pdp.audit, grants_request(requester, edits), work, self.revision)
        listings = (describe_grant(facts, grant) for grant in dict.fromkeys(edits.add))
        return self.revision(facts), tuple(listing for listing in listings if listing.flags)

    async def _write_grants(self, requester: Requester, edits: GrantEdits) -> Facts:
        if requester.principal is not None and requester.caller.may_write:
            # the rights come first: a denial by a policy would tell of the policy to who lacks them
            await self._pdp.await_consistency("full")
            facts = self._pdp.source.facts
            questions = await run_aside(grant_questions, self.rights, facts, self.actor(facts, requester), edits)
            await refuse_forbidden(self._pdp, requester, questions)
        return await self.write(requester, lambda facts, actor: self.rights.edit_grants(facts, actor, edits))

    async def write_objects(self, requester: Requester, edits: ObjectEdits) -> str:
        """Register, move and delete objects, all or nothing; return the revision. Raise as `write_grants` does."""
        work = self._write_objects(requester, edits)
        facts = await recorded(self._pdp.audit, objects_request(requester, edits), work, self.revision)
        return self.revision(facts)

    async def _write_objects(self, requester: Requester, edits: ObjectEdits) -> Facts:
        if requester.principal is None or not requester.caller.may_write:
            return await self.write(requester, lambda facts, actor: self.rights.edit_objects(facts, actor, edits))
        await self._pdp.await_consistency("full")
        asked_of, bundle = self._pdp.source.facts, self._pdp.bundle
        # the rights come first: whoever lacks them must not make the service ask about many objects
        actor = self.actor(asked_of, requester)
        questions = await run_aside(edit_questions, self.rights, asked_of, actor, edits, bundle)
        await refuse_forbidden(self._pdp, requester, questions)

        def decide(facts: Facts, actor: Actor) -> Sequence[Change]:
            is_same = facts.revision() == asked_of.revision()
            if not is_same and edit_questions(self.rights, facts, actor, edits, bundle) != questions:
                raise Unavailable("the objects changed while policies were asked: ask again")
            return self.rights.edit_objects(facts, actor, edits)

        return await self.write(requester, decide)

    async def list_grants(self, requester: Requester, filter: GrantFilter, page: PageRequest) -> GrantPage:
        """Return a page of grants.

        An actor sees its own grants, and the grants on objects with assignments that the actor may read. A filter
        without object and principal returns the actor's own grants. Raise Forbidden if the filter names an object with
        assignments that the actor may not read.
        """
        work = self._list_grants(requester, filter, page)
        return await recorded(self._pdp.audit, list_grants_request(requester, filter), work, attrgetter("revision"))

    async def _list_grants(self, requester: Requester, filter: GrantFilter, page: PageRequest) -> GrantPage:
        facts = await self.facts(requester)
        actor = self.actor(facts, requester)
        if actor.principal is not None and filter.object is None and not filter.principal:
            # without this, each request of an actor would read all grants and the rights on each object
            filter = msgspec.structs.replace(filter, principal=actor.name)
        if filter.object is not None and actor.principal is not None and filter.principal != actor.name:
            self.rights.require(facts, actor, READ, filter.object)
            await refuse_forbidden(self._pdp, requester, [(READ, resource_of(filter.object))])
        listings = await run_aside(self._readable_grants, facts, actor, filter)
        rest = [listing for listing in listings if listing.name > page.after]
        shown = await self._shown(requester, actor, rest, page.size + 1)
        entries = shown[: page.size]
        return GrantPage(entries, entries[-1].name if len(shown) > page.size else "", self.revision(facts))

    async def _shown(
        self, requester: Requester, actor: Actor, listings: Sequence[GrantListing], count: int
    ) -> Sequence[GrantListing]:
        """Return the first visible grants: grants of the actor, and grants on objects without a forbid to read."""
        shown: list[GrantListing] = []
        for start in range(0, len(listings), CHECK_BATCH):
            part = listings[start : start + CHECK_BATCH]
            others = {listing.grant.object for listing in part if listing.grant.principal != actor.name}
            readable = await unforbidden(self._pdp, requester, READ, sorted(others))
            shown += [each for each in part if each.grant.principal == actor.name or each.grant.object in readable]
            if len(shown) >= count:
                break
        return shown

    async def list_access(self, requester: Requester, action: str, resource: Resource, page: PageRequest) -> PageResult:
        """Return a page of the principals that may do an action on an object, each with the reason of the permit.

        The candidates are all principals that the grants know, even where rules decide as well. A principal that only
        a rule knows is not listed. Raise Forbidden if the actor may not read the object's assignments.
        """
        work = self._list_access(requester, action, resource, page)
        return await recorded(
            self._pdp.audit, list_access_request(requester, action, resource), work, attrgetter("revision")
        )

    async def _list_access(
        self, requester: Requester, action: str, resource: Resource, page: PageRequest
    ) -> PageResult:
        facts, key = await self.facts(requester), key_of(resource)
        if self._pdp.source.is_stale():
            raise Unavailable("the store has been silent too long to tell who has access")
        actor = self.actor(facts, requester)
        self.rights.require(facts, actor, READ, key)
        await refuse_forbidden(self._pdp, requester, [(READ, resource)])
        await self._require_inspection(requester, resource)
        users = self.rights.may(facts, actor, "list_users", SERVER)
        revision = str(facts.revision())
        candidates = await run_aside(lambda: page.candidates(self._candidates(facts, action, key, users), revision))

        def checks(names: Sequence[str]) -> list[Check]:
            asked = (judged_principal(requester.caller, parse_principal(name))[0] for name in names)
            questions = (Question(each, action, unfiltered=requester.unfiltered) for each in asked)
            return [Check(question, (resource,), (at,)) for at, question in enumerate(questions)]

        asked = list_access_request(requester, action, resource).asked
        found = await self._permitted(_Listing(unguarded(linked(requester)), asked, checks), candidates, page)
        grants = self._pdp.grant_visibility(requester.caller, facts)
        if grants is None:
            return found
        entries = {name: grants.reason(reason) for name, reason in found.entries.items()}
        return msgspec.structs.replace(found, entries=entries)

    async def list_objects(self, requester: Requester, query: ObjectQuery, page: PageRequest) -> PageResult:
        """Return a page of the known objects on which the requester's principal may do an action.

        Known objects are registered, carry a grant, or contain such an object. A caller without the right to speak for
        others sees, for another principal, only objects with grants that the caller may read.
        """
        work = self._list_objects(requester, query, page)
        return await recorded(self._pdp.audit, list_objects_request(requester, query), work, attrgetter("revision"))

    async def _list_objects(self, requester: Requester, query: ObjectQuery, page: PageRequest) -> PageResult:
        facts = await self.facts(requester)
        principal, caller = requester.principal, linked(requester)
        if principal is None:
            raise InvalidArgument("`principal` is missing")
        inspected = not sees_all(caller) and principal.id != (caller.own and caller.own.id)
        question = Question(
            principal, query.action, acting_role=requester.acting_role, inspected=inspected,
            unfiltered=requester.unfiltered,
        )  # fmt: skip
        keys, candidates = await run_aside(names_below, facts, query, page)

        def checks(names: Sequence[str]) -> list[Check]:
            # the resources of one check share the warehouse
            by_warehouse = positions_by(names, lambda name: keys[name][1][0] if keys[name][1] else "")
            return [Check(question, [resource_of(keys[names[i]]) for i in at], at) for at in by_warehouse.values()]

        asked = {"principal": principal.id, **list_objects_request(requester, query).asked}
        return await self._permitted(
            _Listing(caller if inspected else unguarded(caller), asked, checks), candidates, page
        )

    async def _permitted(self, listing: _Listing, candidates: Candidates, page: PageRequest) -> PageResult:
        """Return the permitted ones of the candidates, and record the page.

        A page ends when full, or after PAGE_SECONDS. The next page checks all names after the last one checked,
        permitted or not, so that no name is skipped.
        """
        names = candidates.names
        if not names:
            return PageResult({}, "", self._pdp.revision())
        entries: dict[str, str] = {}
        reasons: list[Reason | None] = []
        bases: dict[tuple[str, bool], None] = {}
        started, checked, seconds = time.monotonic(), 0, self._pdp.seconds()
        count, rest = _FIRST_BATCH, None
        while True:
            await asyncio.sleep(0)  # a batch is often decided without a turn for others
            batch = names[checked : checked + min(count, CHECK_BATCH)]
            try:
                async with asyncio.timeout(rest) as end:
                    result = await self._pdp.decide_unrecorded(listing.batch(batch, seconds))
            except TimeoutError:
                if not end.expired():
                    raise
                break
            answer, full = result.answer, result.record.answer.by
            bases[answer.revision, result.record.stale] = None
            for at in compress(range(len(batch)), answer.allowed):
                entries[batch[at]] = answer.by[at] or ""
                reasons.append(full[at])
                if len(entries) == page.size:
                    batch = batch[: at + 1]
                    break
            checked += len(batch)
            rest = PAGE_SECONDS - (elapsed := time.monotonic() - started)
            if len(entries) == page.size or rest <= 0 or checked == len(names):
                break
            # half of what the rest of the time allows: a batch without an answer in time is lost
            count = max(_FIRST_BATCH, int(checked * rest / (elapsed or 1) / 2))
        permitted = await run_aside(listing.batch, list(entries), seconds)
        since = next(iter(bases))[0] if len(bases) > 1 else ""
        self._pdp.record_listing(ListedPage(listing.asked, permitted, reasons, checked, result, elapsed, since))
        return PageResult(entries, candidates.cursor(checked, entries), answer.revision)

    async def write(self, requester: Requester, decide: Callable[[Facts, Actor], Sequence[Change]]) -> Facts:
        """Write the changes that `decide` makes for the actor from the newest facts; return the facts after the write.

        Raise Forbidden, InvalidArgument, Unavailable, and every exception of `decide`.
        """
        caller = requester.caller
        if not caller.may_write:
            raise Forbidden(f"caller `{caller.name}` may not write: `may_write` is not set for it")
        if self._writer is None:
            raise InvalidArgument("the store is a world file, which takes no writes")
        name = requester.principal.id if requester.principal else f"caller:{caller.name}"
        written_by = f"{name} as role:{requester.acting_role}" if requester.acting_role else name

        def changes(facts: Facts) -> Sequence[Change]:
            decided = decide(facts, self.actor(facts, requester))
            if len(decided) > MAX_CHANGES:
                raise InvalidArgument(f"{len(decided)} rows would change, a request may change {MAX_CHANGES}")
            return decided

        return await self._writer.write(written_by, changes)

    async def facts(self, requester: Requester) -> Facts:
        """Return facts of the demanded consistency; raise Forbidden, or Unavailable for facts too stale for rights."""
        caller = requester.caller
        if requester.principal is None and not caller.may_write and "principals" not in caller.may_assert:
            raise Forbidden(f"caller `{caller.name}` may not look at grants without an actor")
        await self._pdp.await_consistency(requester.consistency)
        if requester.principal is not None and self._pdp.source.is_stale():
            raise Unavailable("the store has been silent too long to tell who may look at grants")
        return self._pdp.source.facts

    def revision(self, facts: Facts) -> str:
        """Return the revision of facts under the policies of now."""
        return str(facts.revision(self._pdp.bundle.digest))

    def _readable_grants(self, facts: Facts, actor: Actor, filter: GrantFilter) -> list[GrantListing]:
        readable: dict[ObjectKey, bool] = {}

        def is_readable(grant: Grant) -> bool:
            if actor.principal is None or grant.principal == actor.name:
                return True
            known = readable.get(grant.object)
            if known is None:
                known = readable[grant.object] = self.rights.may(facts, actor, READ, grant.object)
            return known

        return sorted_grants(facts, (grant for grant in matching_grants(facts, filter) if is_readable(grant)))

    def _candidates(self, facts: Facts, action: str, key: ObjectKey, users: bool) -> set[str]:
        """Return all principals that may have access: every known one, or fewer if grants alone decide.

        Whoever may list the roles of a project may ask about a role. Without `users`, the right to list users, that
        shows those with a grant on the role alone.
        """
        if key[0] in _OPEN_TYPES and not users:
            return expand_roles(facts, facts.node(key).grants)
        warehouse = key[1][0] if key[0] not in NAMED_TYPES and key[1] else ""
        authority = self._pdp.bundle.authority(warehouse)
        others = [e for e in authority.engines if applying(e, action, key[0]) and not isinstance(e, GrantsEngine)]
        if not others and key[0] not in _OPEN_TYPES:
            # a grant permits only by inheritance or membership: from the object, from above, from below, by a role
            related = related_grantees(facts, key) | self._admins | self._pdp.bundle.instance_admins
            return expand_roles(facts, related)
        registered = {key_text(o.key) for o in facts.objects() if o.key[0] in _OPEN_TYPES}
        return {*facts.grantees(), *registered, *self._admins, *self._pdp.bundle.instance_admins}

    async def _require_inspection(self, requester: Requester, resource: Resource) -> None:
        """Raise unless the caller may speak for others, or may inspect and no policy forbids to read the assignments.

        Raise AssertionNotAllowed for a caller without inspection, Forbidden for a refused inspection.
        """
        caller, actor = requester.caller, requester.principal
        if sees_all(caller) or actor is None:
            return
        if not caller.may_inspect:
            raise AssertionNotAllowed(f"caller `{caller.name}` may not assert principals")
        right = Check(Question(actor, READ, acting_role=requester.acting_role), (resource,), (0,))
        answer = await self._pdp.check(Batch(LISTING, linked(requester), 1, (right,)))
        if not answer.allowed[0]:
            raise Forbidden(f"`{actor.id}` lacks read_assignments on {format_resource(resource)}")

    def actor(self, facts: Facts, requester: Requester) -> Actor:
        """Return the actor whose rights count; raise Forbidden for a role that the principal may not assume.

        Raise AssertionNotAllowed for a refused requester, who has no rights: `recorded` should have refused before.
        """
        if requester.unassertable:
            raise AssertionNotAllowed(requester.unassertable)
        if requester.principal is None:
            return Actor(requester.caller.name)
        bundle, role = self._pdp.bundle, requester.acting_role
        principal = bundle.with_mapped_roles(requester.principal)
        may_report = "principals" in requester.caller.may_assert
        if role is None:
            person = principal.id if principal.type == "role" else ""
            return Actor(principal.id, principal, principal.id in bundle.instance_admins, may_report, person)
        if not facts.can_assume(principal, role):
            raise Forbidden(f"`{principal.id}` cannot assume role:{role}")
        return Actor(f"role:{role}", Principal("role", role), may_report=may_report, person=principal.id)
