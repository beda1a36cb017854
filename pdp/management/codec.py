"""The native JSON form of management requests and answers. Only maps; entries are those of world files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pdp.decision.codec import PrincipalBody, ResourceBody, make_acting_role, make_principal, make_resource
from pdp.engines.grants.edits import GrantEdits, ObjectEdits
from pdp.engines.grants.model import ACTIONS
from pdp.errors import AssertionNotAllowed, InvalidArgument
from pdp.facts.objects import BIT, ObjectKey
from pdp.identity.evidence import asserted_principal, own_principal
from pdp.management.service import GrantFilter, GrantListing, PageRequest, PageResult, Requester
from pdp.model.checks import AtLeast, Caller, Resource
from pdp.model.vocabulary import ALIASES
from pdp.store.world import format_grant, read_grant, read_key, read_object
from pdp.strict import decode

PAGE_SIZE: Final = 1000
MAX_PAGE_SIZE: Final = 10_000
MAX_WISHES: Final = 10_000
"""Grants or objects in one write."""


class _Body(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    actor: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET

    def asking(self, caller: Caller) -> Requester:
        """Who manages; AssertionNotAllowed where the caller may not speak for others."""
        return asking_of(caller, self.actor, self.acting_role)


class GrantsBody(_Body):
    """POST /v1/grants."""

    add: list[Any] = []
    remove: list[Any] = []


class ObjectsBody(_Body):
    """POST /v1/objects."""

    put: list[Any] = []
    delete: list[str] = []
    move: list[dict[str, str]] = []


class _PagedBody(_Body):
    consistency: str | AtLeast = "minimize_latency"
    page_size: int = PAGE_SIZE
    page_token: str = ""

    def asking(self, caller: Caller) -> Requester:
        """The same, on facts as new as demanded."""
        return asking_of(caller, self.actor, self.acting_role, self.consistency)


class AccessBody(_PagedBody, kw_only=True):
    """POST /v1/access."""

    resource: str | ResourceBody
    action: str


class ListBody(_PagedBody, kw_only=True):
    """POST /v1/list; `principal` is the one asked about, the caller's own without it."""

    action: str
    type: str
    container: str
    principal: str | PrincipalBody | UnsetType = UNSET


_GRANTS: Final = msgspec.json.Decoder(GrantsBody)
_OBJECTS: Final = msgspec.json.Decoder(ObjectsBody)
_ACCESS: Final = msgspec.json.Decoder(AccessBody)
_LIST: Final = msgspec.json.Decoder(ListBody)
_CONTAINERS: Final = ("server", "project", "warehouse", "namespace")
_QUERY: Final = frozenset({"object", "principal", "privilege", "below", "actor", "actingRole", "pageSize", "pageToken"})


def decode_grants(body: bytes, caller: Caller) -> tuple[Requester, GrantEdits]:
    """What a POST /v1/grants asks for."""
    given = decode(body, _GRANTS)
    return given.asking(caller), grant_edits(given.add, given.remove)


def grant_edits(add: Sequence[Any], remove: Sequence[Any]) -> GrantEdits:
    """Grants to add and to remove, as entries of world files."""
    _bound(len(add) + len(remove))
    return GrantEdits(
        [read_grant(entry, ("add", i)) for i, entry in enumerate(add)],
        [read_grant(entry, ("remove", i)) for i, entry in enumerate(remove)],
    )


def decode_objects(body: bytes, caller: Caller) -> tuple[Requester, ObjectEdits]:
    """What a POST /v1/objects asks for."""
    given = decode(body, _OBJECTS)
    moves = [_move(entry, i) for i, entry in enumerate(given.move)]
    return given.asking(caller), object_edits(given.put, given.delete, moves)


def object_edits(put: Sequence[Any], delete: Sequence[str], move: Sequence[tuple[str, str]]) -> ObjectEdits:
    """Objects to put, as entries of world files, to delete and to move, as references."""
    _bound(len(put) + len(delete) + len(move))
    return ObjectEdits(
        [read_object(entry, ("put", i)) for i, entry in enumerate(put)],
        [read_key(text, ("delete", i)) for i, text in enumerate(delete)],
        [
            (read_key(source, ("move", i, "from")), read_key(target, ("move", i, "to")))
            for i, (source, target) in enumerate(move)
        ],
    )


def decode_access(body: bytes, caller: Caller) -> tuple[Requester, str, Resource, PageRequest]:
    """What a POST /v1/access asks: as whom, about which action on which object, and which page."""
    given = decode(body, _ACCESS)
    resource = granted_on(make_resource(given.resource), caller)
    page = page_of(given.page_size, given.page_token)
    return given.asking(caller), action_of(resource.type, given.action), resource, page


def decode_list(body: bytes, caller: Caller) -> tuple[Requester, tuple[str, str, ObjectKey], PageRequest]:
    """What a POST /v1/list asks: about whom; action, type and container; which page."""
    given = decode(body, _LIST)
    if given.actor is not UNSET:
        raise InvalidArgument("`actor` is not taken here: a list is about its `principal`")
    asking = asking_about(caller, given.principal, given.acting_role, given.consistency)
    page = page_of(given.page_size, given.page_token)
    return asking, list_question(given.action, given.type, given.container), page


def list_question(action: str, type: str, container: str) -> tuple[str, str, ObjectKey]:
    """Action, type and container of a list; InvalidArgument where there can be no such objects."""
    if type not in ACTIONS:
        raise InvalidArgument(f"`type` must be one of {', '.join(sorted(ACTIONS))}, not `{type}`")
    key = read_key(container, ("container",))
    if key[0] not in _CONTAINERS:
        raise InvalidArgument(f"nothing is listed below a {key[0]}: `container` must be {', '.join(_CONTAINERS)}")
    return action_of(type, action), type, key


def decode_query(query: Iterable[tuple[str, str]], caller: Caller) -> tuple[Requester, GrantFilter, PageRequest]:
    """What a GET /v1/grants asks for, by its query parameters."""
    given: dict[str, str] = {}
    for name, value in query:
        if name not in _QUERY:
            raise InvalidArgument(f"unknown parameter `{name}`: known are {', '.join(sorted(_QUERY))}")
        if name in given:
            raise InvalidArgument(f"parameter `{name}` is given twice")
        given[name] = value
    size = given.get("pageSize", str(PAGE_SIZE))
    if not (size.isascii() and size.isdecimal() and len(size) < 10):
        raise InvalidArgument(f"`pageSize` must be a number, not `{size}`")
    asking = asking_of(caller, given.get("actor", UNSET), given.get("actingRole", UNSET))
    return asking, wanted_of(given), page_of(int(size), given.get("pageToken", ""))


def wanted_of(given: Mapping[str, str]) -> GrantFilter:
    """Which grants: `object`, `below` (true or false), `principal` and `privilege`, each may be missing."""
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


def asking_of(
    caller: Caller,
    principal: str | PrincipalBody | UnsetType,
    role: str | UnsetType,
    consistency: str | AtLeast = "minimize_latency",
) -> Requester:
    """Who manages: the actor that is named, else the caller's own principal, else nobody: an operator.

    AssertionNotAllowed where the caller may not speak for whom it names.
    """
    if principal is not UNSET:
        actor = asserted_principal(caller, make_principal(principal))
    elif caller.own is not None:
        actor = caller.own
    elif role is not UNSET:
        raise InvalidArgument("`actingRole` needs an `actor` who assumes it")
    else:
        return Requester(caller, consistency=consistency)
    return Requester(caller, actor, make_acting_role(role), consistency)


def asking_about(
    caller: Caller,
    principal: str | PrincipalBody | UnsetType,
    role: str | UnsetType,
    consistency: str | AtLeast = "minimize_latency",
) -> Requester:
    """About whom it is asked: the principal that is named, else the caller's own.

    About somebody else a caller may ask that speaks for others, or that inspects: then each object is guarded.
    """
    about = own_principal(caller) if principal is UNSET else make_principal(principal)
    return Requester(caller, asserted_principal(caller, about, inspects=True), make_acting_role(role), consistency)


def action_of(type: str, action: str) -> str:
    """The canonical action of a type; InvalidArgument where the model has none of this name."""
    found = ALIASES.get(type, {}).get(action, action)
    if found not in ACTIONS[type]:
        raise InvalidArgument(f"a {type} has no action `{action}`")
    return found


def page_of(size: int, token: str) -> PageRequest:
    """A page; a token is a continuation that an answer gave."""
    if not 1 <= size <= MAX_PAGE_SIZE:
        raise InvalidArgument(f"`pageSize` must be 1 to {MAX_PAGE_SIZE}, not {size}")
    try:
        after = base64.b64decode(token.encode(), b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise InvalidArgument("`pageToken` is none that an answer gave") from None
    if token_of(after) != token:
        raise InvalidArgument("`pageToken` is none that an answer gave")
    return PageRequest(size, after)


def token_of(name: str) -> str:
    """The continuation after an entry, "" for the end."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def grant_body(listed: GrantListing) -> dict[str, Any]:
    """A grant as answers show it: an entry of world files, and what is odd about it."""
    return format_grant(listed.grant) | ({"flags": listed.flags} if listed.flags else {})


def encode_written(revision: str, odd: Sequence[GrantListing] = ()) -> bytes:
    """The answer of a write."""
    flagged = {"flagged": [grant_body(listed) for listed in odd]} if odd else {}
    return msgspec.json.encode({"revision": revision} | flagged)


def encode_grants(shown: Sequence[GrantListing], next: str, revision: str) -> bytes:
    """The answer of GET /v1/grants."""
    grants = [grant_body(listed) for listed in shown]
    return msgspec.json.encode({"grants": grants, "nextPageToken": token_of(next), "revision": revision})


def encode_access(found: PageResult) -> bytes:
    """The answer of POST /v1/access."""
    principals = [{"principal": name, "by": [reason]} for name, reason in found.entries.items()]
    return msgspec.json.encode(
        {"principals": principals, "nextPageToken": token_of(found.next), "revision": found.revision}
    )


def encode_list(found: PageResult) -> bytes:
    """The answer of POST /v1/list."""
    return msgspec.json.encode(
        {"objects": list(found.entries), "nextPageToken": token_of(found.next), "revision": found.revision}
    )


def _bound(count: int) -> None:
    if count > MAX_WISHES:
        raise InvalidArgument(f"{count} changes in one request, the limit is {MAX_WISHES}")


def _move(entry: Mapping[str, str], at: int) -> tuple[str, str]:
    if set(entry) != {"from", "to"}:
        raise InvalidArgument(f"move[{at}]: must be a mapping with from, to")
    return entry["from"], entry["to"]


def granted_on(resource: Resource, caller: Caller) -> Resource:
    """A resource that grants can stand on; InvalidArgument otherwise, AssertionNotAllowed for its evidence."""
    if resource.type not in ACTIONS:
        raise InvalidArgument(f"nothing is granted on a {resource.type}")
    if resource.properties and "properties" not in caller.may_assert:
        raise AssertionNotAllowed(f"caller `{caller.name}` may not assert properties")
    return resource
