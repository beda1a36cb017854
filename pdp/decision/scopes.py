"""Scopes of a LakeQL field: a body of POST /v1/scopes to checks, and their decisions to one answer.

LakeQL joins the members of a scope map by OR, and those of `$all` by AND. Each table scope becomes one check, which
takes the way of all checks, by the authority of the catalog. A failed check denies the whole map, as an exception does
in LakeQL. Scopes without a table become checks on the server, so the audit has every answer; `plan_scope` decides them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from pdp.config.warehouses import WarehouseSettings
from pdp.decision.bodies import JsonBody, bound_values, read_values
from pdp.decision.codec import bound_checks
from pdp.decision.plan import Node, PlanContext
from pdp.decision.service import Pdp
from pdp.errors import AssertionNotAllowed, InvalidArgument, InvalidReference
from pdp.identity.evidence import admit, judged_principal, refused_batch
from pdp.model.answer import DEFAULT_DENY, Decision, Reason, Rejection
from pdp.model.question import Batch, BatchRequest, Caller, Check, Principal, Question, Resource, attributes_text
from pdp.model.references import NESSIE_SIGNS, bound_claims, check_part, check_path
from pdp.model.strict import decode

PUBLIC: Final = "scopes:(public)"
AUTHORIZED: Final = "scopes:(authorized)"
"""Reasons of permits for a field without scopes, and for any user."""
_MOST_LEVELS: Final = 16
_TABLE_SCOPES: Final = {"readPermission": "read_data", "writePermission": "write_data"}
"""Scopes of a table -> the catalog action that the authority of the catalog decides."""
_ON_SERVER: Final = {"authorized": "lakeql_authorized", "public": "lakeql_public", "empty": "lakeql_empty"}
"""Scope without a table, field without scopes, and map without a scope -> an action on the server."""
_SERVER_ACTIONS: Final = frozenset(_ON_SERVER.values())
_JOINS: Final = {"$all": all, "$any": any}
_PARTS: Final = frozenset({"catalog", "schema", "tableName"})
ScopeNode: TypeAlias = "bool | int | ScopeJoin"
"""Known answer, number of a check, or join of nodes."""


class ScopeJoin(NamedTuple):
    """Members of a scope map, all or any of which must permit. A map without members denies."""

    all: bool
    members: tuple[ScopeNode, ...]


class ScopesBody(JsonBody):
    """Body of POST /v1/scopes."""

    current_user: Any = None
    scopes: dict[str, Any] | UnsetType | None = UNSET


class ScopeRequest(msgspec.Struct, frozen=True):
    """Scopes of one field. `root` refers to `checks` by number. There is at least one check."""

    principal: Principal
    checks: tuple[Check, ...]
    root: ScopeNode


class ScopeService(NamedTuple):
    """Answers to scopes: the decision service, the identity provider of LakeQL's users, and the most checks."""

    pdp: Pdp
    provider: str
    max_checks: int

    async def answer(self, body: ScopesBody, caller: Caller, surface: str) -> ScopeAnswer:
        """Decide the scopes of a body; raise InvalidArgument, and raise as `decide_scopes` does."""
        return await decide_scopes(self.pdp, make_request(body, self.provider, self.max_checks), caller, surface)


class ScopeAnswer(msgspec.Struct, frozen=True):
    """Answer to the scopes of one field. `id` is the id of the audit record."""

    decision: Decision
    id: str


_BODY: Final = msgspec.json.Decoder(ScopesBody)


def decode_scopes(body: bytes) -> ScopesBody:
    """Return the body of POST /v1/scopes; raise InvalidArgument."""
    return decode(body, _BODY)


def make_request(body: ScopesBody, provider: str, max_checks: int) -> ScopeRequest:
    """Return the request of a body, whose users are users of `provider`; raise InvalidArgument."""
    principal = _principal(body.current_user, provider)
    reader = _ScopeReader(principal)
    scopes = body.scopes
    if scopes is None or scopes is UNSET:
        root: ScopeNode = reader.on_server("public")
    else:
        bound_values(scopes, "scopes")
        root = reader.join(scopes, all=False, level=0)
    if not reader.checks:
        reader.on_server("empty")
    bound_checks(len(reader.checks), max_checks)
    return ScopeRequest(principal, tuple(reader.checks), root)


async def decide_scopes(pdp: Pdp, request: ScopeRequest, caller: Caller, surface: str) -> ScopeAnswer:
    """Decide the scopes of a field and record the decision.

    Raise AssertionNotAllowed for a user that the caller may not assert, after the refusal is recorded. Raise
    InvalidReference for a name of a table that Nessie may read as a reference, Unavailable as `Pdp.check` does.
    """
    principal = _with_evidence(request.principal, caller)
    if principal is not request.principal:
        checks = tuple(check.asking(principal=principal) for check in request.checks)
        request = msgspec.structs.replace(request, principal=principal, checks=checks)
    _, unassertable = judged_principal(caller, request.principal)
    if unassertable:
        rejection = Rejection(AssertionNotAllowed.code, unassertable)
        raise await pdp.refusal(refused_batch(surface, caller, request.checks, rejection))
    _require_plain_names(request.checks, pdp.bundle.warehouses)
    size = len(request.checks)
    batch: Batch = admit(BatchRequest(surface, size, request.checks, {}), caller)
    answer = (pdp.decide_now(batch) or await pdp.decide(batch)).answer
    decisions = [answer.decision(at) for at in range(size)]
    return ScopeAnswer(_joined(request.root, decisions), answer.id)


def encode_scopes(answer: ScopeAnswer) -> bytes:
    """Return the answer of POST /v1/scopes."""
    return b'{"allowed":true}' if answer.decision.allowed else b'{"allowed":false}'


def plan_scope(context: PlanContext, check: Check) -> Node | None:
    """Return the decision about a scope without a table; None for any other check."""
    if check.question.action not in _SERVER_ACTIONS or check.resources[0].type != "server":
        return None
    by = PUBLIC if check.question.action == _ON_SERVER["public"] else AUTHORIZED
    is_open = check.question.action == _ON_SERVER["authorized"] and context.principal.type == "user"
    allowed = by == PUBLIC or is_open
    if allowed:
        return context.permitted(by, check.question.action, check.resources)
    return context.denied(DEFAULT_DENY, check.question.action, check.resources)


def _require_plain_names(checks: Sequence[Check], warehouses: Mapping[str, WarehouseSettings]) -> None:
    for check in checks:
        table, known = check.resources[0], warehouses.get(check.resources[0].warehouse)
        if known and known.kind == "nessie" and table.type == "table" and set(table.path[-1]) & set(NESSIE_SIGNS):
            raise InvalidReference(f"`{table.path[-1]}` may be a table reference of Nessie's: write the name alone")


def _joined(root: ScopeNode, decisions: Sequence[Decision]) -> Decision:
    failed = next((decision for decision in decisions if decision.errors or decision.error), None)
    if failed:
        return failed
    allowed = _holds(root, decisions)
    reasons: list[Reason] = [decision.by[0] for decision in decisions if decision.allowed is allowed]
    return Decision(allowed, (reasons[0] if reasons else DEFAULT_DENY,))


def _holds(node: ScopeNode, decisions: Sequence[Decision]) -> bool:
    if isinstance(node, bool):
        return node
    if isinstance(node, int):
        return decisions[node].allowed
    join = all if node.all else any
    return bool(node.members) and join(_holds(member, decisions) for member in node.members)


def _principal(user: Any, provider: str) -> Principal:
    """Return the principal of LakeQL's user. JavaScript's empty values are no user, and a user may have no name.

    Raise InvalidArgument for a name of another type: nobody knows whom it names.
    """
    if user is None or user is False or user in (0, ""):
        return Principal("anonymous", "")
    if not isinstance(user, dict):
        raise InvalidArgument("`currentUser` is an object, or absent")
    user = read_values(user, "currentUser")
    name = user.get("userName", UNSET)
    if name is not UNSET and not isinstance(name, str):
        raise InvalidArgument("`currentUser.userName` is a text, or absent")
    if name:
        check_part(name)
    rest = {key: value for key, value in user.items() if key != "userName"}
    return Principal("user", "" if name is UNSET else f"{provider}~{name}", attributes=attributes_text(rest))


def _with_evidence(principal: Principal, caller: Caller) -> Principal:
    """Return LakeQL's user with the groups and roles among the attributes, as far as the caller may assert them.

    Others, and those in another form than a list of texts, are unknown: a forbid that reads them denies.
    """
    attributes = msgspec.json.decode(principal.attributes)
    stated = {name: attributes[name] for name in ("groups", "roles") if attributes.get(name) is not None}
    if not stated:
        return principal
    unknown = {name for name, value in stated.items() if name not in caller.may_assert or not _is_list(value)}
    known = {name: tuple(value) for name, value in stated.items() if name not in unknown}
    bound_claims(known.get("roles", ()), known.get("groups", ()))
    return msgspec.structs.replace(principal, unknown=tuple(sorted({*principal.unknown, *unknown})), **known)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


class _ScopeReader:
    """Reader of scope maps. Equal table scopes become one check."""

    def __init__(self, principal: Principal) -> None:
        self.checks: list[Check] = []
        self._principal = principal
        self._numbers: dict[tuple[str, bytes], int] = {}

    def join(self, scopes: Any, *, all: bool, level: int) -> ScopeJoin:
        """Return the join of a scope map; raise InvalidArgument for an unknown scope."""
        if not isinstance(scopes, dict):
            raise InvalidArgument("scopes are an object")
        if level > _MOST_LEVELS:
            raise InvalidArgument(f"scopes are nested deeper than {_MOST_LEVELS} levels")
        # by name: a Struct of protobuf has no order, and the reason must not depend on the protocol
        return ScopeJoin(all, tuple([self._member(name, scopes[name], level) for name in sorted(scopes)]))

    def _member(self, name: str, value: Any, level: int) -> ScopeNode:
        if value is None or value is False:
            return False
        if name in _JOINS:
            return self.join(value, all=name == "$all", level=level + 1)
        if name in _TABLE_SCOPES:
            return self._table(name, value)
        if name != "authorized":
            known = ", ".join(sorted((*_JOINS, *_TABLE_SCOPES, "authorized")))
            raise InvalidArgument(f"no scope `{name}`, there are {known}")
        if value is not True:
            raise InvalidArgument("`authorized` is true or false")
        return self.on_server("authorized")

    def on_server(self, scope: str) -> int:
        """Return the number of the check of a scope without a table."""
        return self._check(_ON_SERVER[scope], b"", Resource("server"))

    def _table(self, scope: str, value: Any) -> int:
        if not isinstance(value, dict) or not _PARTS.issuperset(value):
            raise InvalidArgument(f"`{scope}` is an object of `catalog`, `schema` and `tableName`")
        resource = _resource(*(value.get(part) for part in ("catalog", "schema", "tableName")))
        return self._check(_TABLE_SCOPES[scope], msgspec.json.encode(value, order="sorted"), resource)

    def _check(self, action: str, place: bytes, resource: Resource) -> int:
        number = self._numbers.setdefault((action, place), len(self.checks))
        if number == len(self.checks):
            self.checks.append(Check(Question(self._principal, action), (resource,), (number,)))
        return number


def _resource(catalog: Any, schema: Any, table: Any) -> Resource:
    """Return the object that a scope names: a table, or less where a name is missing. No rule has an empty name.

    Raise InvalidReference for names that no other surface takes.
    """
    if not _is_name(catalog):
        return Resource("server")
    warehouse = check_part(catalog)
    if not _is_name(schema):
        return Resource("warehouse", warehouse)
    path = tuple(schema.split("."))
    if _is_name(table):
        return Resource("table", warehouse, check_path("table", (*path, table)))
    return Resource("namespace", warehouse, check_path("namespace", path))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
