"""JSON of management requests and results. Only converts; entries are those of world files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pdp.decision.bodies import PrincipalBody, ResourceBody, make_acting_role, make_principal, make_resource
from pdp.engines.grants.edits import GrantEdits, ObjectEdits
from pdp.engines.grants.model import ACTIONS
from pdp.errors import InvalidArgument
from pdp.facts.objects import BIT
from pdp.identity.evidence import judged_principal, naming_alone, own_principal
from pdp.management.requests import (
    GrantFilter,
    GrantListing,
    GrantPage,
    ObjectQuery,
    PageRequest,
    PageResult,
    Requester,
)
from pdp.model.question import AtLeast, Caller, Resource
from pdp.model.strict import decode, read_parameters
from pdp.model.vocabulary import ALIASES
from pdp.store.world import format_grant, read_grant, read_key, read_known_grant, read_object

PAGE_SIZE: Final = 1000
MAX_PAGE_SIZE: Final = 10_000
MAX_EDITS: Final = 10_000
"""Grants or objects in one write."""


class _ManagementBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    actor: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET

    def requester(self, caller: Caller) -> Requester:
        """Return the requester with the named actor."""
        return make_requester(caller, self.actor, self.acting_role)


class GrantsBody(_ManagementBody):
    """Body of POST /v1/grants."""

    add: list[Any] = []
    remove: list[Any] = []


class ObjectsBody(_ManagementBody):
    """Body of POST /v1/objects."""

    put: list[Any] = []
    delete: list[str] = []
    move: list[dict[str, str]] = []


class _PagedBody(_ManagementBody):
    consistency: str | AtLeast = "minimize_latency"
    page_size: int = PAGE_SIZE
    page_token: str = ""

    def requester(self, caller: Caller) -> Requester:
        """Return the requester, with the demanded consistency."""
        return make_requester(caller, self.actor, self.acting_role, self.consistency)


class AccessBody(_PagedBody, kw_only=True):
    """Body of POST /v1/access."""

    resource: str | ResourceBody
    action: str


class ListBody(_PagedBody, kw_only=True):
    """Body of POST /v1/list; without a `principal` the list is about the caller's own."""

    action: str
    type: str
    container: str
    principal: str | PrincipalBody | UnsetType = UNSET


_GRANTS: Final = msgspec.json.Decoder(GrantsBody)
_OBJECTS: Final = msgspec.json.Decoder(ObjectsBody)
_ACCESS: Final = msgspec.json.Decoder(AccessBody)
_LIST: Final = msgspec.json.Decoder(ListBody)
_CONTAINERS: Final = ("server", "project", "warehouse", "namespace")
_FILTERS: Final = frozenset({"object", "principal", "privilege"})
"""Parameters that filter nothing without text."""
_QUERY: Final = _FILTERS | {"below", "actor", "actingRole", "pageSize", "pageToken"}


def decode_grants(body: bytes, caller: Caller) -> tuple[Requester, GrantEdits]:
    """Return the requester and the edits of a POST /v1/grants."""
    request = decode(body, _GRANTS)
    return request.requester(caller), grant_edits(request.add, request.remove)


def grant_edits(add: Sequence[Any], remove: Sequence[Any]) -> GrantEdits:
    """Return the edits of grants from entries of world files."""
    _check_count(len(add) + len(remove))
    return GrantEdits(
        [read_grant(entry, ("add", i)) for i, entry in enumerate(add)],
        [read_known_grant(entry, ("remove", i)) for i, entry in enumerate(remove)],
    )


def decode_objects(body: bytes, caller: Caller) -> tuple[Requester, ObjectEdits]:
    """Return the requester and the edits of a POST /v1/objects."""
    request = decode(body, _OBJECTS)
    moves = [_move(entry, i) for i, entry in enumerate(request.move)]
    return request.requester(caller), object_edits(request.put, request.delete, moves)


def object_edits(put: Sequence[Any], delete: Sequence[str], move: Sequence[tuple[str, str]]) -> ObjectEdits:
    """Return the edits of objects: `put` holds entries of world files, `delete` and `move` references."""
    _check_count(len(put) + len(delete) + len(move))
    return ObjectEdits(
        [read_object(entry, ("put", i)) for i, entry in enumerate(put)],
        [read_key(text, ("delete", i)) for i, text in enumerate(delete)],
        [
            (read_key(source, ("move", i, "from")), read_key(target, ("move", i, "to")))
            for i, (source, target) in enumerate(move)
        ],
    )


def decode_access(body: bytes, caller: Caller) -> tuple[Requester, str, Resource, PageRequest]:
    """Return requester, action, resource and page of a POST /v1/access."""
    request = decode(body, _ACCESS)
    resource, unassertable = check_grantable(make_resource(request.resource), caller)
    page = make_page_request(request.page_size, request.page_token)
    requester = also_unassertable(request.requester(caller), unassertable)
    return requester, canonical_action(resource.type, request.action), resource, page


def decode_list(body: bytes, caller: Caller) -> tuple[Requester, ObjectQuery, PageRequest]:
    """Return requester, query and page of a POST /v1/list."""
    request = decode(body, _LIST)
    if request.actor is not UNSET:
        raise InvalidArgument("`actor` is not taken here: a list is about its `principal`")
    requester = make_list_requester(caller, request.principal, request.acting_role, request.consistency)
    page = make_page_request(request.page_size, request.page_token)
    return requester, make_object_query(request.action, request.type, request.container), page


def make_object_query(action: str, type: str, container: str) -> ObjectQuery:
    """Return the query of a list; raise InvalidArgument if there can be no such objects."""
    if type not in ACTIONS:
        raise InvalidArgument(f"`type` must be one of {', '.join(sorted(ACTIONS))}, not `{type}`")
    key = read_key(container, ("container",))
    if key[0] not in _CONTAINERS:
        raise InvalidArgument(f"nothing is listed below a {key[0]}: `container` must be {', '.join(_CONTAINERS)}")
    return ObjectQuery(canonical_action(type, action), type, key)


def decode_query(query: Iterable[tuple[str, str]], caller: Caller) -> tuple[Requester, GrantFilter, PageRequest]:
    """Return requester, filter and page from the query parameters of a GET /v1/grants."""
    given = read_parameters(query, _QUERY, _FILTERS)
    size = read_page_size(given)
    return query_requester(given, caller), make_grant_filter(given), make_page_request(size, given.get("pageToken", ""))


def read_page_size(given: Mapping[str, str]) -> int:
    """Return the `pageSize` of query parameters; raise InvalidArgument for one that is no number."""
    size = given.get("pageSize", str(PAGE_SIZE))
    if not (size.isascii() and size.isdecimal() and len(size) < 10):
        raise InvalidArgument(f"`pageSize` must be a number, not `{size}`")
    return int(size)


def make_grant_filter(given: Mapping[str, str]) -> GrantFilter:
    """Return the filter from `object`, `below` (true or false), `principal` and `privilege`, all optional.

    Raise InvalidArgument for any other value.
    """
    below = given.get("below") or "false"
    if below not in ("true", "false"):
        raise InvalidArgument(f"`below` must be true or false, not `{below}`")
    privilege = given.get("privilege", "")
    if privilege and privilege not in BIT:
        raise InvalidArgument(f"there is no privilege `{privilege}`: there are {', '.join(BIT)}")
    key = read_key(given["object"], ("object",)) if given.get("object") else None
    if below == "true" and key is None:
        raise InvalidArgument("`below` needs an `object`")
    principal = make_principal(given["principal"]).id if given.get("principal") else ""
    return GrantFilter(key, below == "true", principal, privilege)


def make_requester(
    caller: Caller,
    principal: str | PrincipalBody | UnsetType,
    role: str | UnsetType,
    consistency: str | AtLeast = "minimize_latency",
) -> Requester:
    """Return the requester with the named actor, else the caller's own principal, else none (an operator).

    A requester that the caller may not speak for is `unassertable`: its request has a record, and is not carried out.
    """
    unassertable = ""
    if principal is not UNSET:
        actor, unassertable = judged_principal(caller, make_principal(principal))
    elif caller.own is not None:
        actor = caller.own
    elif role is not UNSET:
        raise InvalidArgument("`actingRole` needs an `actor` who assumes it")
    else:
        return Requester(caller, consistency=consistency)
    return Requester(caller, actor, make_acting_role(role), consistency, unassertable)


def query_requester(given: Mapping[str, str], caller: Caller) -> Requester:
    """Return the requester that query parameters name, as `make_requester` does.

    A query has no place for evidence, so that of another actor is unknown.
    """
    named = make_requester(naming_alone(caller), given.get("actor", UNSET), given.get("actingRole", UNSET))
    return msgspec.structs.replace(named, caller=caller)


def make_list_requester(
    caller: Caller,
    principal: str | PrincipalBody | UnsetType,
    role: str | UnsetType,
    consistency: str | AtLeast = "minimize_latency",
) -> Requester:
    """Return the requester of a list about the named principal, else about the caller's own.

    A caller may list for another principal with the right to speak for others, or with the right to inspect; then a
    guard decides on each object. The list of any other caller is `unassertable`.
    """
    about = own_principal(caller) if principal is UNSET else make_principal(principal)
    listed, unassertable = judged_principal(caller, about, inspects=True)
    return Requester(caller, listed, make_acting_role(role), consistency, unassertable)


def canonical_action(type: str, action: str) -> str:
    """Return the canonical action of a type; raise InvalidArgument for an unknown action."""
    canonical = ALIASES.get(type, {}).get(action, action)
    if canonical not in ACTIONS[type]:
        raise InvalidArgument(f"a {type} has no action `{action}`")
    return canonical


def make_page_request(size: int, token: str) -> PageRequest:
    """Return a page request; raise InvalidArgument for a size out of range or a token that no result gave."""
    if not 1 <= size <= MAX_PAGE_SIZE:
        raise InvalidArgument(f"`pageSize` must be 1 to {MAX_PAGE_SIZE}, not {size}")
    try:
        cursor = base64.b64decode(token.encode(), b"-_", validate=True).decode()
        if page_token(cursor) == token:
            return PageRequest.at(size, cursor)
    except (binascii.Error, ValueError):
        pass
    raise InvalidArgument("invalid `pageToken`: use one that a previous page returned")


def page_token(cursor: str) -> str:
    """Return the token of the page at a cursor, "" after the last page."""
    return base64.urlsafe_b64encode(cursor.encode()).decode()


def grant_body(listing: GrantListing) -> dict[str, Any]:
    """Return a grant as an entry of a world file, with its flags."""
    return format_grant(listing.grant) | ({"flags": listing.flags} if listing.flags else {})


def encode_written(revision: str, flagged: Sequence[GrantListing] = ()) -> bytes:
    """Return the result of a write."""
    fields = {"flagged": [grant_body(listing) for listing in flagged]} if flagged else {}
    return msgspec.json.encode({"revision": revision} | fields)


def encode_grants(page: GrantPage) -> bytes:
    """Return the result of a GET /v1/grants."""
    grants = [grant_body(listing) for listing in page.entries]
    return msgspec.json.encode({"grants": grants, "nextPageToken": page_token(page.next), "revision": page.revision})


def encode_access(page: PageResult) -> bytes:
    """Return the result of a POST /v1/access."""
    principals = [{"principal": name, "by": [reason]} for name, reason in page.entries.items()]
    return msgspec.json.encode(
        {"principals": principals, "nextPageToken": page_token(page.next), "revision": page.revision}
    )


def encode_list(page: PageResult) -> bytes:
    """Return the result of a POST /v1/list."""
    return msgspec.json.encode(
        {"objects": list(page.entries), "nextPageToken": page_token(page.next), "revision": page.revision}
    )


def _check_count(count: int) -> None:
    if count > MAX_EDITS:
        raise InvalidArgument(f"{count} changes in one request, the limit is {MAX_EDITS}")


def _move(entry: Mapping[str, str], at: int) -> tuple[str, str]:
    if set(entry) != {"from", "to"}:
        raise InvalidArgument(f"move[{at}]: must be a mapping with from, to")
    return entry["from"], entry["to"]


def check_grantable(resource: Resource, caller: Caller) -> tuple[Resource, str]:
    """Return the resource if its type can carry grants, and why the caller may not assert it; empty if it may.

    Raise InvalidArgument for any other type.
    """
    if resource.type not in ACTIONS:
        raise InvalidArgument(f"nothing is granted on a {resource.type}")
    if resource.properties and "properties" not in caller.may_assert:
        return resource, f"caller `{caller.name}` may not assert properties"
    return resource, ""


def also_unassertable(requester: Requester, unassertable: str) -> Requester:
    """Return a requester that is not assertable for a further reason, if there is one."""
    return msgspec.structs.replace(requester, unassertable=unassertable) if unassertable else requester
