"""The value types of a decision, from decode to audit: frozen, slotted, converted and validated once at the edge.

Knows no engine, no surface and no file. One `Check` asks one question about many resources, so that a batch of a
thousand tables is one object with a list, and an engine can prepare once and loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias, overload

import msgspec

CONTENT_TYPES = frozenset({"content", "namespace", "table", "view", "generic_table", "dataset", "table_or_view"})
"""Resource types with a path below a warehouse."""
ENGINE_TYPES = frozenset(
    {
        "catalog",
        "function",
        "metadata_table",
        "session_property",
        "system_catalog",
        "system_schema",
    }
)
"""What query engines name beside the catalogs' objects; the engine's catalog stands in the warehouse's place."""
VERSIONED_TYPES = CONTENT_TYPES | {"reference", "metadata_table", "system_schema"}
"""Resource types that live on a ref."""
NAMED_TYPES = frozenset({"project", "tag", "role", "user"})
"""Resource types that are a name alone."""
RESOURCE_TYPES = VERSIONED_TYPES | NAMED_TYPES | ENGINE_TYPES | {"server", "warehouse", "repository_config"}
"""Every type that a caller may name."""

Reason: TypeAlias = str
"""What determined a decision, as `by` shows it: `cel:<rule>`, `grants:...`, `default_deny`, ..."""


DEFAULT_DENY = "default_deny"
"""The reason of silence."""
STORE_STALE = "store_stale"
"""The reason of what rests on facts that are too old."""


class Arguments(msgspec.Struct, frozen=True, gc=False):
    """What a check says beyond its resource: the name of a new object, where a rename goes, the rest as given."""

    name: str | None = None
    destination: Resource | None = None
    given: Mapping[str, Any] = msgspec.field(default_factory=dict)


NO_ARGUMENTS = Arguments()


class Resource(msgspec.Struct, frozen=True, gc=False):
    """An object that a check is about.

    `path` is decoded parts below the warehouse; `ref` None means the warehouse's default; `name` serves the types
    without a path; `id` is the catalog's stable id.
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


class Siblings(Sequence[Resource]):
    """Resources that differ in their last name alone, each made when it is looked at.

    `like` is one of them without its name: the type, the warehouse, the path above and the ref.
    """

    __slots__ = ("like", "names")

    def __init__(self, like: Resource, names: Sequence[str]) -> None:
        self.like = like
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> Resource: ...
    @overload
    def __getitem__(self, at: slice) -> Siblings: ...
    def __getitem__(self, at: int | slice) -> Resource | Siblings:
        like = self.like
        if isinstance(at, slice):
            return Siblings(like, self.names[at])
        return Resource(like.type, like.warehouse, (*like.path, self.names[at]), like.ref)


class Principal(msgspec.Struct, frozen=True, gc=False):
    """About whom a check is: `type` user, role or anonymous; `name` is `<idp>~<subject>`, a role id or empty.

    `roles` and `groups` are those the token carried; `attributes` is a JSON object in sorted, compact text, so that
    a principal hashes. `member_of` are ids of roles that what it carried stands for: memberships beside those stored.
    `bare`: nobody knows what it would carry, because it did not come itself: it is a view's owner.
    """

    type: str
    name: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: str = "{}"
    member_of: tuple[str, ...] = ()
    bare: bool = False

    @property
    def id(self) -> str:
        """The canonical id: `user:oidc~alice`, `role:etl`, `anonymous`."""
        return f"{self.type}:{self.name}" if self.name else self.type


class Env(msgspec.Struct, frozen=True, gc=False):
    """What the request says about its circumstances; `actions` as Nessie's ApiContext names them."""

    api_name: str = ""
    api_version: int = 0
    actions: tuple[str, ...] = ()


class ChainView(msgspec.Struct, frozen=True):
    """A view through which something is loaded, in the warehouse and on the ref of what is loaded.

    `owner` is `<idp>~<subject>` where the view runs as its owner, by `property` of the trusted engine `engine`; it is
    empty where the view runs as whoever came to it. `found` is False for a view that is not there.
    """

    path: tuple[str, ...]
    found: bool = True
    owner: str = ""
    engine: str = ""
    property: str = ""

    def resource(self, target: Resource) -> Resource:
        """Return the view as a resource in the warehouse and on the ref of the loaded `target`."""
        return Resource("view", target.warehouse, self.path, target.ref)


class Load(msgspec.Struct, frozen=True, gc=False):
    """That a check is a load through `views`, outermost first; `entries` were named, and `ignored` says why in vain.

    `enforced`: the engine that loads applies row filters and masks itself, so that it may have the files.
    """

    views: tuple[ChainView, ...] = ()
    entries: int = 0
    ignored: str = ""
    enforced: bool = False


class ViewCommit(msgspec.Struct, frozen=True):
    """That a check is a change of a view; `touched` are the protected properties that its caller may not change."""

    touched: tuple[str, ...] = ()


class Check(msgspec.Struct, frozen=True, gc=False):
    """One question about resources that share type, warehouse and ref.

    `at[i]` is the position of `resources[i]` in the answer. `query_user` is the id of who runs the query `query_id`,
    where that is somebody else. `view_security` is there for loads and changes of views.
    `inspected`: somebody else than the principal asks, who has no right to speak for others, and may look only at
    objects whose grants it may read.
    """

    principal: Principal
    action: str
    resources: Sequence[Resource]
    at: Sequence[int]
    delegated: bool = False
    acting_role: str | None = None
    env: Env = Env()
    query_id: str = ""
    query_user: str = ""
    view_security: Load | ViewCommit | None = None
    inspected: bool = False


class CheckGrouper:
    """Checks of one resource each, gathered into checks of many: those that share everything but the resource."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[Hashable, tuple[Check, list[Resource], list[int]]] = {}

    def put(self, check: Check, at: int) -> None:
        """Add the one resource of a check, answered at position `at`."""
        resource = check.resources[0]
        key = (
            check.principal, check.action, check.delegated, check.acting_role, check.env, check.query_id,
            check.query_user, check.inspected, check.view_security, resource.type, resource.warehouse, resource.ref,
        )  # fmt: skip
        known = self._groups.get(key)
        if known is None:
            known = self._groups[key] = (check, [], [])
        known[1].append(resource)
        known[2].append(at)

    def checks(self) -> tuple[Check, ...]:
        """What was gathered, in the order of first appearance."""
        return tuple(
            msgspec.structs.replace(check, resources=resources, at=at) for check, resources, at in self._groups.values()
        )


class Rejected(msgspec.Struct, frozen=True):
    """A check that cannot be asked; it denies at its position and never touches its neighbours."""

    code: str
    message: str
    by: Reason = "invalid_check"


class TokenIdentity(msgspec.Struct, frozen=True):
    """Whose token it is, and for whom it was issued."""

    idp: str
    subject: str
    audiences: tuple[str, ...] = ()


class TrustedEngine(msgspec.Struct, frozen=True):
    """A query engine that a request comes from; owners of its views are users of `idp`."""

    name: str
    type: str
    owner_property: str
    idp: str
    enforces_row_access: bool = False


class Caller(msgspec.Struct, frozen=True):
    """Who sent the request, and which kinds of evidence it may assert.

    `own` is the principal that its token names; None where it has none. `may_inspect`: it may ask about others where
    `own` may read an object's grants. `engines` are the trusted engines that its token marks.
    """

    name: str
    may_assert: frozenset[str]
    may_write: bool = False
    own: Principal | None = None
    may_inspect: bool = False
    token: TokenIdentity | None = None
    engines: tuple[TrustedEngine, ...] = ()


class Predicate(msgspec.Struct, frozen=True):
    """An SQL expression, and the engine's user as whom it is evaluated where that is not the one who asks."""

    expression: str
    identity: str = ""


class TypedColumn(msgspec.Struct, frozen=True):
    """A column and its type, as the engine that asks writes it."""

    name: str
    type: str


class RowView(msgspec.Struct, frozen=True):
    """What is seen of a table: `rows` None for all of them, `masks[i]` None where column i shows."""

    rows: Predicate | None
    masks: tuple[Predicate | None, ...]


class Batch(msgspec.Struct, frozen=True, gc=False):
    """All that one request asks: `size` answers in order, from `checks` and from `rejected` by position."""

    surface: str
    caller: Caller
    size: int
    checks: Sequence[Check]
    rejected: Mapping[int, Rejected] = msgspec.field(default_factory=dict)
    consistency: Consistency = "minimize_latency"
    explain: bool = False


class AtLeast(msgspec.Struct, frozen=True, rename="camel"):
    """Wait for a store revision that is not older than this one."""

    at_least: str


Consistency: TypeAlias = str | AtLeast


class Trace(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node of an explanation: what was asked, what came of it, and of which parts."""

    what: str
    outcome: str
    why: str = ""
    parts: tuple[Trace, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """The answer at one position. `errors` are ids of rules that raised, sorted, on denials only."""

    allowed: bool
    by: tuple[Reason, ...]
    errors: tuple[str, ...] = ()
    cached: bool = False
    trace: Trace | None = None
    error: Rejected | None = None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The decisions of a batch in its order: columns, with no object per item.

    `allowed[i]` is 0 or 1; `by[i]` is None where nothing permitted or forbade.
    """

    id: str
    revision: str
    allowed: bytes
    by: Sequence[Reason | None]
    errors: Mapping[int, tuple[str, ...]]
    rejected: Mapping[int, Rejected]
    traces: Mapping[int, Trace]

    def decision(self, at: int) -> Decision:
        """One position as an object of its own."""
        allowed = bool(self.allowed[at])
        errors = () if allowed else self.errors.get(at, ())
        return Decision(
            allowed, (self.by[at] or DEFAULT_DENY,), errors, trace=self.traces.get(at), error=self.rejected.get(at)
        )
