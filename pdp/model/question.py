"""Value types of a decision, from decoding to audit: frozen, slotted, validated once at the edge.

This module knows no engine, no surface and no file. One `Check` asks one question about many resources. A batch of a
thousand tables is therefore one object with a list, and an engine prepares once and loops.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec

from pdp.model.answer import Rejection, SchemaColumn
from pdp.model.vocabulary import ARGUMENTS

CONTENT_TYPES = frozenset({"content", "namespace", "table", "view", "generic_table", "dataset", "table_or_view"})
"""Resource types with a path below a warehouse."""
ENGINE_TYPES = frozenset(
    {"catalog", "function", "metadata_table", "session_property", "system_catalog", "system_schema"}
)
"""Resource types that query engines add to those of catalogs. Their `warehouse` is the engine's catalog."""
VERSIONED_TYPES = CONTENT_TYPES | {"reference", "metadata_table", "system_schema"}
"""Resource types that live on a ref."""
NAMED_TYPES = frozenset({"project", "tag", "role", "user"})
"""Resource types that have a name and no path."""
RESOURCE_TYPES = VERSIONED_TYPES | NAMED_TYPES | ENGINE_TYPES | {"server", "warehouse", "repository_config"}
"""Every type that a caller may name."""


class Arguments(msgspec.Struct, frozen=True, gc=False):
    """Arguments of a check: the name of a new object, the target of a rename, and all arguments as given.

    `missing_place`: nobody knows the container of a new object, which stands in the warehouse of the resource.
    `arriving`: the new object comes from another container.
    """

    name: str | None = None
    destination: Resource | None = None
    given: Mapping[str, Any] = msgspec.field(default_factory=dict)
    missing_place: bool = False
    arriving: bool = False


NO_ARGUMENTS = Arguments()


def named(name: str) -> Arguments:
    """Return the arguments of a check that names a new object."""
    return Arguments(name, given={"name": name})


class Resource(msgspec.Struct, frozen=True, gc=False):
    """Object of a check.

    `path` has the decoded parts below the warehouse. `ref` None means the warehouse's default ref. `name` serves the
    types without a path. `id` is the catalog's stable id.
    """

    type: str
    warehouse: str = ""
    path: tuple[str, ...] = ()
    ref: str | None = None
    name: str = ""
    content_type: str = ""
    ref_type: str = ""
    id: str = ""
    properties: Mapping[str, Any] | None = None
    arguments: Arguments = NO_ARGUMENTS


class Principal(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Subject of a check. `type` is user, role or anonymous; `name` is `<idp>~<subject>`, a role id or empty.

    `roles` and `groups` come from the token. `attributes` is a JSON object as sorted, compact text, so that a principal
    can be hashed. `member_of` has the ids of the roles that the token's roles map to; they add to the stored
    memberships. `bare`: true for a view owner, whose token claims are unknown.

    `unknown` names unknown evidence: `roles`, `groups`, `attributes`, `attributes.<name>`, and
    `member_of` where token roles map to roles; `stored` with stale facts. To read such evidence raises. `unseen` names
    absent evidence at a path where no token had any: unknown where a forbid reads the evidence.
    """

    type: str
    name: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: str = "{}"
    member_of: tuple[str, ...] = ()
    bare: bool = False
    unknown: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Return the canonical id: `user:oidc~alice`, `role:etl`, `anonymous`."""
        return f"{self.type}:{self.name}" if self.name else self.type

    def acting_as(self, role: str) -> Principal:
        """Return the principal of an acting role. What nobody knows of the person stays unknown, but for roles."""
        unknown = tuple(name for name in self.unknown if name not in ("roles", "member_of"))
        return Principal("role", role, unknown=unknown)

    def length(self) -> int:
        """Count the characters of all texts. Caches refuse long keys."""
        lists = (self.roles, self.groups, self.member_of, self.unknown, self.unseen)
        return len(self.name) + len(self.attributes) + sum(len(text) for part in lists for text in part)


def unshown_user(name: str) -> Principal:
    """Return a user without a known token: all that a token would say is unknown."""
    return Principal("user", name, bare=True, unknown=("attributes", "groups", "roles"))


def attributes_text(attributes: Mapping[str, Any]) -> str:
    """Return attributes in the form of `Principal.attributes`."""
    return msgspec.json.encode(attributes, order="sorted").decode() if attributes else "{}"


UNNAMED = Principal("", "")
"""Placeholder of a decoded check that names no principal. Admission replaces this object with the caller's own."""


class RequestContext(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Environment of a check. `actions` are named as in Nessie's ApiContext.

    `now` is the time of the decision, in whole seconds since 1970. It is 0 unless policies read the time.
    """

    api_name: str = ""
    api_version: int = 0
    actions: tuple[str, ...] = ()
    now: int = 0

    def length(self) -> int:
        """Count the characters of all texts."""
        return len(self.api_name) + sum(map(len, self.actions))


NO_CONTEXT: Final = RequestContext()
"""Context of a check that says nothing about its request."""


class ChainView(msgspec.Struct, frozen=True):
    """View of a chain, in the warehouse and on the ref of the loaded object.

    `owner` is `<idp>~<subject>` if the view runs as its owner, by `property` of the trusted engine `engine`. An empty
    `owner` means that the view runs as the principal that reads the view. `exists` is False if the view does not exist.
    """

    path: tuple[str, ...]
    exists: bool = True
    owner: str = ""
    engine: str = ""
    property: str = ""

    def resource(self, target: Resource) -> Resource:
        """Return the view as a resource in the warehouse and on the ref of the loaded `target`."""
        return Resource("view", target.warehouse, self.path, target.ref)


class Load(msgspec.Struct, frozen=True, gc=False):
    """Load of an object through `views`, outermost first.

    `entries` counts the views that the request names. `ignored` says why the request's chain does not count.
    `enforced`: the loading engine applies row filters and masks itself and may therefore read the files.
    `owner_writes`: after a view that runs as its owner, the owner's right to write counts for storage access.
    `columns` are those of the table, if the loading engine applies read restrictions; empty for every other engine.
    """

    views: tuple[ChainView, ...] = ()
    entries: int = 0
    ignored: str = ""
    enforced: bool = False
    owner_writes: bool = False
    columns: tuple[SchemaColumn, ...] = ()


class ViewCommit(msgspec.Struct, frozen=True):
    """Change of a view. `touched` lists the changed properties that are protected from the caller."""

    touched: tuple[str, ...] = ()


class QuerySession(msgspec.Struct, frozen=True, gc=False):
    """User of the query that asks, None if unknown. Row policies of this user can hold behind views."""

    user: Principal | None


class Question(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Everything that decides a check besides its resources.

    `delegated`: a view switched to the principal, or the caller says so. `view_security` is present for loads and
    changes of views. `inspected`: the caller asks about another principal and may not assert principals. Such a caller
    gets answers only for objects whose grants the caller may read. `rules_follow`: the row policies of the store follow
    the object of a rename. `session` is present where row policies of the user of a query hold behind views.
    `nameless`: the container stands for a missing name or destination, as in records of older versions. `unfiltered`:
    the caller shows whole tables, so a right to data needs all rows and columns.
    """

    # INVARIANT: whoever keeps an answer, a plan or a text for later keeps it by the whole question, never by a list of
    # its fields. A field that is added here then tells two questions apart everywhere.
    principal: Principal
    action: str
    delegated: bool = False
    acting_role: str | None = None
    context: RequestContext = NO_CONTEXT
    view_security: Load | ViewCommit | None = None
    inspected: bool = False
    rules_follow: bool = False
    session: QuerySession | None = None
    nameless: bool = False
    unfiltered: bool = False

    def length(self) -> int:
        """Count the characters of the texts of any length. Caches refuse long keys."""
        return sum(map(_length, msgspec.structs.astuple(self)))

    def planned(self, principal: Principal) -> Question:
        """Return the question that engines get: about a principal, without the fields that the plan itself obeys."""
        if principal is self.principal and _obeyed(self) == _NOTHING_OBEYED:
            return self
        return msgspec.structs.replace(self, principal=principal, **_PLANNED)


def is_missing(argument: str, resource: Resource) -> bool:
    """Tell whether an argument of ARGUMENTS is missing in a resource. Nobody knows the path of the new object then."""
    arguments = resource.arguments
    return not (arguments.name if argument == "name" else arguments.destination)


def has_missing_argument(type: str, action: str, resource: Resource) -> bool:
    """Tell whether the argument is missing in a resource that an action on a type takes."""
    argument = ARGUMENTS.get((type, action))
    return argument is not None and is_missing(argument, resource)


_PLANNED: Final[Mapping[str, Any]] = {
    "acting_role": None, "view_security": None, "session": None, "inspected": False, "rules_follow": False,
    "unfiltered": False,
}  # fmt: skip
"""Fields that the plan obeys before any engine is asked, with the values that engines see. Engines see all others. An
engine question about the person behind an acting role has the role again: see `EngineQuestion`."""
_obeyed = attrgetter(*_PLANNED)
_NOTHING_OBEYED: Final = tuple(_PLANNED.values())


def _length(value: Any) -> int:
    if not value:
        return 0
    kind = type(value)
    if kind is str:
        return len(value)
    return value.length() if kind is Principal or kind is RequestContext else len(repr(value))


class Check(msgspec.Struct, frozen=True, gc=False):
    """One question about resources that share type, warehouse and ref.

    `at[i]` is the position of `resources[i]` in the answer. `query_user` is the id of the user who runs the query
    `query_id`, if not the principal. Both are recorded, and decide nothing.
    """

    question: Question
    resources: Sequence[Resource]
    at: Sequence[int]
    query_id: str = ""
    query_user: str = ""

    def asking(self, **changes: Any) -> Check:
        """Return the check with another question about the same resources. `changes` are fields of the question."""
        return msgspec.structs.replace(self, question=msgspec.structs.replace(self.question, **changes))


_shared_by = attrgetter(*[name for name in Check.__struct_fields__ if name not in ("resources", "at")])


def grouping_key(check: Check, resource: Resource) -> Hashable:
    """Return the key that two checks share if one check may ask about the resources of both."""
    return _shared_by(check), resource.type, resource.warehouse, resource.ref


class CheckGrouper:
    """Builder that joins checks of one resource each into checks of many resources."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[Hashable, tuple[Check, list[Resource], list[int]]] = {}

    def put(self, check: Check, at: int) -> None:
        """Add a check of one resource, answered at position `at`."""
        resource = check.resources[0]
        key = grouping_key(check, resource)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = (check, [], [])
        group[1].append(resource)
        group[2].append(at)

    def checks(self) -> tuple[Check, ...]:
        """Return the joined checks in the order of first appearance."""
        return tuple(
            msgspec.structs.replace(check, resources=resources, at=at) for check, resources, at in self._groups.values()
        )


class TokenIdentity(msgspec.Struct, frozen=True):
    """Provider, subject and audiences of a token."""

    idp: str
    subject: str
    audiences: tuple[str, ...] = ()


class TrustedEngine(msgspec.Struct, frozen=True):
    """Query engine that sends a request. The owners of its views are users of `idp`."""

    name: str
    type: str
    owner_property: str
    idp: str
    enforces_row_access: bool = False
    owner_writes: bool = False
    applies_read_restrictions: bool = False


class HeaderIdentity(msgspec.Struct, frozen=True):
    """Identity that headers of a request state. `problem` is the reason why the identity does not count."""

    principal: Principal | None = None
    problem: str = ""


class Caller(msgspec.Struct, frozen=True):
    """Sender of a request, with the kinds of evidence that the sender may assert.

    `own` is the principal of the caller's token, None without a token. `may_inspect`: the caller may ask about other
    principals on objects whose grants `own` may read. `engines` are the trusted engines that the token identifies.
    `request_id` is the sender's own id of this request, `trace_id` and `span_id` name its place in a trace (W3C). They
    are empty if the sender gave none, join records, and decide nothing. `stated` is the identity in the headers of the
    request, for rewriting in development. `empty` is evidence that no principal of the sender has.
    """

    name: str
    may_assert: frozenset[str]
    may_write: bool = False
    own: Principal | None = None
    may_inspect: bool = False
    token: TokenIdentity | None = None
    engines: tuple[TrustedEngine, ...] = ()
    request_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    stated: HeaderIdentity | None = None
    empty: frozenset[str] = frozenset()


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Admitted request: `size` answers in order, from `checks` and from `rejected` by position.

    The caller may assert all evidence of the checks. `pdp.identity.evidence.admit` makes batches from requests.
    `refused` has the readable checks at rejected positions, for the audit alone: nothing decides on them.
    """

    surface: str
    caller: Caller
    size: int
    checks: Sequence[Check]
    rejected: Mapping[int, Rejection] = msgspec.field(default_factory=dict)
    consistency: Consistency = "minimize_latency"
    explain: bool = False
    refused: tuple[Check, ...] = ()


class BatchRequest(msgspec.Struct, frozen=True, gc=False):
    """Decoded request, before admission: nobody has compared its evidence with the caller's rights.

    The principal of a check is `UNNAMED` if the request names none. `unresolved` has checks without resources: their
    positions `at` are rejected already, but an error in the evidence of such a check replaces the rejection.
    """

    surface: str
    size: int
    checks: Sequence[Check]
    rejected: Mapping[int, Rejection]
    unresolved: Sequence[Check] = ()
    consistency: Consistency = "minimize_latency"
    explain: bool = False


class AtLeast(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Demand that the facts are at least as new as a revision."""

    at_least: str


Consistency: TypeAlias = str | AtLeast
