"""Values of management requests and results, the records of both, and the grants of a listing.

Knows no wire format and no rights.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from pdp.engines.grants.edits import GrantEdits, ObjectEdits, ObjectPatch, grant_flags
from pdp.errors import AssertionNotAllowed, PdpError
from pdp.facts.objects import SERVER, Grant, ObjectKey, key_text
from pdp.facts.snapshot import Facts
from pdp.model.events import BEGUN, AnswerHold, EventLog, ManagementEvent, token_subject
from pdp.model.question import Caller, Consistency, Principal, Resource
from pdp.model.references import format_resource
from pdp.model.revision import new_id
from pdp.store.world import format_grant

__all__ = [
    "GrantEdits",
    "GrantFilter",
    "GrantListing",
    "GrantPage",
    "ObjectEdits",
    "ObjectQuery",
    "PageRequest",
    "PageResult",
    "Requester",
]


class Requester(msgspec.Struct, frozen=True):
    """The caller, and the actor on whose behalf the caller manages; without an actor the caller is an operator.

    A caller with a principal of its own always acts as that principal, never as an operator. `id` is the id of the
    request's record. `unassertable` tells why the caller may not assert what the request states: then nothing but the
    record is made of the request. `unfiltered`: the caller shows whole tables, see `Question`.
    """

    caller: Caller
    principal: Principal | None = None
    acting_role: str | None = None
    consistency: Consistency = "minimize_latency"
    unassertable: str = ""
    id: str = msgspec.field(default_factory=new_id)
    unfiltered: bool = False


class PageRequest(msgspec.Struct, frozen=True):
    """A page of a long result: at most `size` entries, all after the entry named `after`.

    `chosen` tells the names that count. All others are no candidates. Earlier pages checked and did not show `skipped`
    candidates behind the entry, at a `revision` of the facts.
    """

    size: int
    after: str = ""
    chosen: Callable[[str], object] | None = None
    skipped: int = 0
    revision: str = ""

    @classmethod
    def at(cls, size: int, cursor: str, chosen: Callable[[str], object] | None = None) -> PageRequest:
        """Return the page at the cursor of an earlier one; raise ValueError for a text that is no cursor."""
        after, *skipped = cursor.split(_CURSOR_PARTS)
        if not skipped:
            return cls(size, after, chosen)
        count, revision = skipped
        if not count.isdecimal():
            raise ValueError("no number")
        return cls(size, after, chosen, int(count), revision)

    def cursor(self) -> str:
        """Return the cursor of the page: the inverse of `at`."""
        return make_cursor(self.after, self.skipped, self.revision)

    def candidates(self, names: Iterable[str], revision: str) -> Candidates:
        """Return the candidates of this page and of those behind, in order.

        Those that earlier pages checked are left out only at the same revision: other facts have other names.
        """
        found = sorted([name for name in names if name > self.after and (self.chosen is None or self.chosen(name))])
        skipped = self.skipped if revision == self.revision else 0
        return Candidates(found[skipped:], self.after, skipped, revision)


class Candidates(NamedTuple):
    """Candidates of a page, in order, behind the entry named `after` and `skipped` more names."""

    names: list[str]
    after: str
    skipped: int
    revision: str

    def cursor(self, checked: int, shown: Iterable[str]) -> str:
        """Return the beginning of the next page after some checked names; "" after the last.

        A cursor names only what was shown, because its reader may not see other candidates.
        """
        if checked == len(self.names):
            return ""
        *_, last = "", *shown
        if not last:
            return make_cursor(self.after, self.skipped + checked, self.revision)
        return make_cursor(last, checked - 1 - self.names.index(last), self.revision)


def make_cursor(after: str, skipped: int, revision: str) -> str:
    """Return the cursor of the page behind a name and a number of hidden names."""
    return _CURSOR_PARTS.join((after, str(skipped), revision)) if skipped else after


class GrantFilter(msgspec.Struct, frozen=True):
    """A choice of grants: each field narrows the choice. `below` includes everything below `object`."""

    object: ObjectKey | None = None
    below: bool = False
    principal: str = ""
    privilege: str = ""


class ObjectQuery(NamedTuple):
    """A request for the objects of a type below a container on which an action is allowed."""

    action: str
    type: str
    container: ObjectKey


class GrantListing(msgspec.Struct, frozen=True):
    """A grant with its flags (`unknown_principal`, `orphaned`) and the name for sorting."""

    grant: Grant
    flags: tuple[str, ...]
    name: str


class GrantPage(msgspec.Struct, frozen=True):
    """A page of grants, in order. `next` names the last entry of the page, "" on the last page."""

    entries: Sequence[GrantListing]
    next: str
    revision: str


class PageResult(msgspec.Struct, frozen=True):
    """A page of names with their reasons, in order. `next` is the cursor of the next page, "" on the last page."""

    entries: Mapping[str, str]
    next: str
    revision: str


T = TypeVar("T")
_CURSOR_PARTS: Final = "\n"
"""Divides the parts of a cursor. No name has it."""
MOST_REFUSED: Final = 100
"""Entries of a refused write in its record. A write that is done is recorded whole."""
_LONGEST_MESSAGE: Final = 500


class ManagementLog(EventLog, Protocol):
    """Destination of the records of management, which may be full."""

    @property
    def gate(self) -> AnswerHold:
        """Return the gate that tells when records are safe."""
        ...

    def admit(self) -> None:
        """Raise Unavailable while records cannot be taken."""
        ...


class ManagementRequest(msgspec.Struct, frozen=True):
    """A request of management: the operation, and the request in words of world files, by field.

    `changes` tells whether the request writes.
    """

    operation: str
    requester: Requester
    asked: dict[str, Sequence[Any] | str | bool]
    changes: bool = False


def grants_request(requester: Requester, edits: GrantEdits) -> ManagementRequest:
    """Return the request to write grants."""
    asked = {"add": [*map(format_grant, edits.add)], "remove": [*map(format_grant, edits.remove)]}
    given: dict[str, Any] = {key: entries for key, entries in asked.items() if entries}
    return ManagementRequest("write_grants", requester, given, changes=True)


def objects_request(requester: Requester, edits: ObjectEdits) -> ManagementRequest:
    """Return the request to write objects."""
    asked: dict[str, Sequence[Any]] = {
        "put": [*map(_patch, edits.put)],
        "delete": [*map(key_text, edits.delete)],
        "move": [{"from": key_text(source), "to": key_text(target)} for source, target in edits.move],
    }
    given: dict[str, Any] = {key: entries for key, entries in asked.items() if entries}
    return ManagementRequest("write_objects", requester, given, changes=True)


def list_grants_request(requester: Requester, filter: GrantFilter) -> ManagementRequest:
    """Return the request to list grants."""
    asked: dict[str, str | bool] = {
        "object": key_text(filter.object) if filter.object else "",
        "below": filter.below,
        "principal": filter.principal,
        "privilege": filter.privilege,
    }
    return ManagementRequest("list_grants", requester, {key: value for key, value in asked.items() if value})


def list_access_request(requester: Requester, action: str, resource: Resource) -> ManagementRequest:
    """Return the request to list the principals that may do an action."""
    return ManagementRequest("list_access", requester, {"action": action, "resource": format_resource(resource)})


def list_objects_request(requester: Requester, query: ObjectQuery) -> ManagementRequest:
    """Return the request to list objects."""
    asked = {"action": query.action, "type": query.type, "container": key_text(query.container)}
    return ManagementRequest("list_objects", requester, {**asked})


async def recorded(
    log: ManagementLog, request: ManagementRequest, work: Coroutine[Any, Any, T], revision_of: Callable[[T], str]
) -> T:
    """Return the result of a request, and record how it ended.

    Where answers wait for their records, a record that a change begins is safe before the change: so nothing is written
    that the audit does not tell of. Raise Unavailable if the audit takes no records, AssertionNotAllowed for a refused
    assertion, and each exception of the work.
    """
    try:
        log.admit()
        if request.requester.unassertable:
            raise AssertionNotAllowed(request.requester.unassertable)
        if request.changes and log.gate.holds:
            log.note(_begun(request))
            await log.gate.durable()
        result = await work
    except PdpError as error:
        if log.note(_refused(request, error.code, str(error))):
            error.record_id = request.requester.id
        raise
    except BaseException:  # a defect, or the end of the time
        log.note(_refused(request, "unavailable", "no answer could be made, or not in time"))
        raise
    finally:
        work.close()
    log.note(_event(request, request.asked, allowed=True, revision=revision_of(result)))
    return result


def linked(requester: Requester) -> Caller:
    """Return the caller of a request; checks behind a listing carry the id of the request."""
    caller = requester.caller
    return caller if caller.request_id else msgspec.structs.replace(caller, request_id=requester.id)


def unguarded(caller: Caller) -> Caller:
    """Return a caller without its own principal, so that no single check is guarded.

    For listings after the caller's right to the whole listing is checked.
    """
    return msgspec.structs.replace(caller, own=None)


def _begun(request: ManagementRequest) -> ManagementEvent:
    message = f"the record `{request.requester.id}` tells how it ended"
    begun = _event(request, request.asked, allowed=False, code=BEGUN, message=message)
    return msgspec.structs.replace(begun, id=new_id())


def _refused(request: ManagementRequest, code: str, message: str) -> ManagementEvent:
    listed: dict[str, Any] = {}
    left_out = 0
    for key, entries in {**request.asked, **_statements(request.requester)}.items():
        listed[key] = entries
        if isinstance(entries, list):
            listed[key] = entries[:MOST_REFUSED]
            left_out += len(entries) - len(listed[key])
    return _event(request, listed, allowed=False, code=code, message=message[:_LONGEST_MESSAGE], left_out=left_out)


def _statements(requester: Requester) -> dict[str, Any]:
    """Return what a refused requester states about its actor beside the name; of attributes the names alone."""
    actor = requester.principal
    if not requester.unassertable or actor is None:
        return {}
    stated = {
        "actorRoles": [*actor.roles, *actor.member_of],
        "actorGroups": list(actor.groups),
        "actorAttributes": sorted(msgspec.json.decode(actor.attributes)),
    }
    return {key: names for key, names in stated.items() if names}


def _event(request: ManagementRequest, asked: dict[str, Any], **outcome: Any) -> ManagementEvent:
    requester = request.requester
    return ManagementEvent(
        id=requester.id,
        operation=request.operation,
        caller=requester.caller.name,
        caller_principal=token_subject(requester.caller),
        actor=requester.principal.id if requester.principal else "",
        acting_role=f"role:{requester.acting_role}" if requester.acting_role is not None else "",
        request_id=requester.caller.request_id,
        trace_id=requester.caller.trace_id,
        span_id=requester.caller.span_id,
        asked=asked,
        **outcome,
    )


def _patch(patch: ObjectPatch) -> dict[str, Any]:
    fields = {"parent": f"project:{patch.project}" if patch.project else None, "managedAccess": patch.managed}
    given = {**fields, "id": patch.id}
    return {"object": key_text(patch.key), **{key: value for key, value in given.items() if value is not None}}


def matching_grants(facts: Facts, filter: GrantFilter) -> Iterator[Grant]:
    """Yield the grants of a filter, in no order.

    Starts from the smallest index: the grants on the object, below the object, to the principal, or all grants.
    """
    if filter.object is not None and not filter.below:
        grants: Iterable[Grant] = facts.grants_on(filter.object)
    elif filter.object is not None and not filter.principal:
        grants = (grant for key, _ in facts.subtree(filter.object) for grant in facts.grants_on(key))
    else:
        grants = facts.grants_to(filter.principal) if filter.principal else facts.grants()
        top = filter.object
        if top is not None:
            grants = (
                grant for grant in grants if top in (SERVER, grant.object) or top in facts.ancestors(grant.object)
            )
    for grant in grants:
        if filter.principal in ("", grant.principal) and filter.privilege in ("", grant.privilege):
            yield grant


def sorted_grants(facts: Facts, grants: Iterable[Grant]) -> list[GrantListing]:
    """Return grants in order, with their flags."""
    return sorted((describe_grant(facts, grant) for grant in grants), key=lambda listing: listing.name)


def describe_grant(facts: Facts, grant: Grant) -> GrantListing:
    """Return a grant with its flags and its name for sorting."""
    name = "\x00".join((key_text(grant.object), grant.privilege, grant.principal, grant.id))
    return GrantListing(grant, grant_flags(facts, grant), name)


def names_below(facts: Facts, query: ObjectQuery, page: PageRequest) -> tuple[dict[str, ObjectKey], Candidates]:
    """Return the keys of the objects of a query by name, and the candidates of a page and of those behind."""
    container = query.container
    keys = {key_text(key): key for key, _ in facts.subtree(container) if key[0] == query.type and key != container}
    return keys, page.candidates(keys, str(facts.revision()))
