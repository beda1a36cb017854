"""Requests on statements and filters, and their answers: bodies of JSON, who asks after evidence, the needed rights.

Owns which refusals of the rewriter tell about policies, and the rows of INFORMATION_SCHEMA.ROW_ACCESS_POLICIES.

Policies are for principals with `read_assignments`: a refusal has a text for everybody, and the cause for the audit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pdp.config.warehouses import WarehouseSettings
from pdp.decision.active_policies import ActivePolicies
from pdp.decision.bodies import JsonBody, PrincipalBody, ResourceBody, make_acting_role, make_principal
from pdp.decision.plan import parent_of
from pdp.engines.known_names import AMBIGUOUS, KnownObjects, SchemaNames, names_of_schema, reads_table_reference
from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import PolicyBody, rule_of, table_path
from pdp.engines.spelled_names import SpelledNames
from pdp.errors import AmbiguousName, AssertionNotAllowed, InvalidArgument, TableDenied
from pdp.facts.objects import RowPolicy
from pdp.facts.snapshot import Facts
from pdp.identity.evidence import judged_principal, own_principal
from pdp.model.events import RewriteEvent, token_subject
from pdp.model.question import AtLeast, Caller, Check, Principal, Question, Resource, unshown_user
from pdp.model.references import DETACHED, check_part, check_path, format_resource
from pdp.model.revision import new_id
from pdp.model.strict import decode
from pdp.rewrite.errors import (
    COPY_NEEDS_FULL_ACCESS,
    FILTER_INVALID,
    MATERIALIZE,
    NOT_COVERED,
    PARSE_ERROR,
    UNSUPPORTED_STATEMENT,
    WRITE_NEEDS_FULL_ACCESS,
    RewriteRefused,
)
from pdp.rewrite.process.messages import DIALECTS, LONGEST_SQL, RelationUse, RewriteReply, SuppliedCatalog

_MOST_COLUMNS: Final = 10_000


class RewriteBody(JsonBody):
    """Body of POST /v1/rewrite. `catalog` describes tables and views beside those of policy files."""

    sql: str
    dialect: str
    principal: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET
    catalog: SuppliedCatalog | UnsetType = UNSET
    consistency: str | AtLeast = "minimize_latency"


class ColumnBody(JsonBody):
    """Column of a table with its type in the dialect."""

    name: str
    type: str


class FilterBody(JsonBody):
    """Body of POST /v1/filters."""

    resource: str | ResourceBody
    dialect: str
    principal: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET
    columns: list[ColumnBody] = msgspec.field(default_factory=list)
    catalog: SuppliedCatalog | UnsetType = UNSET
    consistency: str | AtLeast = "minimize_latency"


class RewriteResult(msgspec.Struct, frozen=True):
    """Statement with row access enforced. `changed` is False if the statement is the caller's.

    `operation` names a statement on row access policies that was carried out; then `sql` is empty. `warnings` are about
    unknown names in such a statement, and about copies that no policy covers.
    """

    sql: str
    changed: bool
    revision: str
    id: str
    operation: str = ""
    warnings: tuple[str, ...] = ()


class SqlExpression(msgspec.Struct, frozen=True, omit_defaults=True):
    """Expression of a filter or mask. `identity` is the engine's user that evaluates the expression, if another."""

    expression: str
    identity: str = ""


class FilterResult(msgspec.Struct, frozen=True):
    """Visible part of a table. `row_filter` None means every row; `masks` has the masked columns alone."""

    row_filter: SqlExpression | None
    masks: tuple[tuple[str, SqlExpression], ...]
    revision: str
    id: str


_REWRITE: Final = msgspec.json.Decoder(RewriteBody)
_FILTER: Final = msgspec.json.Decoder(FilterBody)


def decode_rewrite(body: bytes) -> RewriteBody:
    """Return the body of POST /v1/rewrite; raise InvalidArgument."""
    return decode(body, _REWRITE, typed=True)


def decode_filter(body: bytes) -> FilterBody:
    """Return the body of POST /v1/filters; raise InvalidArgument."""
    found = decode(body, _FILTER, typed=True)
    bound_columns(len(found.columns))
    return found


def bound_columns(count: int) -> None:
    """Raise InvalidArgument for too many columns."""
    if count > _MOST_COLUMNS:
        raise InvalidArgument(f"more than {_MOST_COLUMNS} columns in one request")


def encode_rewrite(result: RewriteResult) -> bytes:
    """Return the answer of POST /v1/rewrite."""
    answer: dict[str, Any] = {
        "sql": result.sql, "changed": result.changed, "revision": result.revision, "decisionId": result.id,
    }  # fmt: skip
    answer |= {"operation": result.operation} if result.operation else {}
    return msgspec.json.encode(answer | {"warnings": result.warnings} if result.warnings else answer)


def encode_filter(result: FilterResult) -> bytes:
    """Return the answer of POST /v1/filters."""
    masks: list[dict[str, Any]] = [{"column": name, **msgspec.to_builtins(mask)} for name, mask in result.masks]
    answer = {
        "rowFilter": result.row_filter, "columnMasks": masks, "revision": result.revision, "decisionId": result.id,
    }  # fmt: skip
    return msgspec.json.encode(answer)


_GENERAL: Final = {
    FILTER_INVALID: "a filter or mask cannot be used in `{dialect}`",
    WRITE_NEEDS_FULL_ACCESS: "a change here needs policies that show every row",
    NOT_COVERED: "the result cannot be checked",
}
"""Code -> message without policies. Messages of the other codes name relations of the statement and no policy."""
_RECORDED: Final = frozenset({*_GENERAL, COPY_NEEDS_FULL_ACCESS, MATERIALIZE})
"""Codes whose messages hold names of relations and parts of policies, and nothing else of a statement."""


def tells_policies(reply: RewriteReply) -> bool:
    """Tell whether the message of a refusal can hold parts of policies."""
    return reply.error in _GENERAL


def shows_own_policies(reply: RewriteReply) -> bool:
    """Tell whether the policies in a message are those of the used relations: a change can meet filters of others."""
    return reply.error != WRITE_NEEDS_FULL_ACCESS


def general_message(reply: RewriteReply, dialect: str) -> str:
    """Return the message of a refusal without policies."""
    return _GENERAL[reply.error].format(dialect=dialect)


def recorded_cause(reply: RewriteReply) -> str:
    """Return the cause of a refusal for a record; empty for a message that can quote the statement."""
    return reply.message if reply.uses and reply.error in _RECORDED else ""


def use_warnings(bundle: ActivePolicies, facts: Facts, uses: Iterable[RelationUse]) -> Iterator[str]:
    """Yield a warning for each copied table with policies or masks, and for each table without a visible row."""
    for use in uses:
        found = bundle.row_access.policies_of(Resource("table_or_view", use.name[0], use.name[1:]), facts)
        name, opening = ".".join(use.name), {one.id for one in found.policies if not one.restrictive}
        if use.role == "copy" and (found.policies or found.masks):
            yield f"policies and masks of `{name}` do not follow to the copy: write policies for the copy"
        # What stands behind a view with an owner is not told.
        if use.role == "read" and found.policies and opening.isdisjoint(use.policies) and not (use.owner or use.author):
            yield f"no row of `{name}` is visible: none of its row policies names the reader"


def listed_policies(bundle: ActivePolicies, facts: Facts) -> Iterator[RowPolicy]:
    """Yield all policies, as INFORMATION_SCHEMA shows them. Policies of files have no times."""
    for data in bundle.row_sources.documents:
        for policy in data.get("policies", ()):
            body = msgspec.convert(policy, PolicyBody)
            yield rule_of(body, table_path(body.table, data.get("default", ())))
    yield from (rule for rule in facts.row_rules() if not rule.column and not rule.tombstone)


_DEFAULT_PARTS: Final = 2
_MOST_RECORDED: Final = 500
"""Parts of the place of short names: a catalog and a schema."""
READS: Final = {"table": "read_data", "view": "select", "table_or_view": "read_data"}
"""Type of a relation -> the action that reads it."""


class StatementRequest(msgspec.Struct, frozen=True):
    """Request of a caller for a principal. `started` is a time of `perf_counter`.

    `unassertable` tells why the caller may not assert what the request states; empty if it may.
    """

    caller: Caller
    surface: str
    principal: Principal
    acting_role: str | None
    id: str
    started: float
    unassertable: str = ""

    def question(self, action: str) -> Question:
        """Return the question for the right of the principal to an action."""
        return Question(self.principal, action, acting_role=self.acting_role)


def admitted(body: RewriteBody | FilterBody, caller: Caller, surface: str) -> StatementRequest:
    """Return the request with its principal, `unassertable` for evidence beyond the caller's rights.

    Raise AssertionNotAllowed for headers outside of development: their sender takes them for an identity.
    """
    principal, unassertable = _principal(body, caller)
    if body.catalog is not UNSET:
        unassertable = unassertable or _against_catalog(body.catalog, caller)
        if len(body.catalog.default) not in (0, _DEFAULT_PARTS):
            raise InvalidArgument("`catalog.default` is a catalog and a schema")
    role = make_acting_role(body.acting_role)
    return StatementRequest(caller, surface, principal, role, new_id(), time.perf_counter(), unassertable)


def _principal(body: RewriteBody | FilterBody, caller: Caller) -> tuple[Principal, str]:
    """Return the principal of a request, and the reason against the assertion; empty without a reason.

    The principal is that of the body, else that of headers in development, else the caller's own.
    """
    stated = caller.stated
    if stated is not None and stated.problem:
        raise AssertionNotAllowed(stated.problem)
    if body.principal is not UNSET:
        return judged_principal(caller, make_principal(body.principal))
    if stated is not None and stated.principal is not None and caller.own is None:
        return judged_principal(caller, stated.principal)
    return own_principal(caller), ""


def _against_catalog(catalog: SuppliedCatalog, caller: Caller) -> str:
    """Return the reason against a description of tables and views by a caller; empty without a reason."""
    if "properties" not in caller.may_assert:
        return f"caller `{caller.name}` may not assert properties: `catalog` describes tables"
    if any(view.owner for view in catalog.views.values()) and "delegated" not in caller.may_assert:
        return f"caller `{caller.name}` may not assert delegated: a view of `catalog` has an owner"
    return ""


def bound_text(body: RewriteBody) -> None:
    """Raise RewriteRefused for a text that no process needs to see."""
    if body.dialect not in DIALECTS:
        raise unknown_dialect(body.dialect)
    if len(body.sql) > LONGEST_SQL:
        raise RewriteRefused(PARSE_ERROR, f"the text has more than {LONGEST_SQL} characters")


def unknown_dialect(dialect: str) -> RewriteRefused:
    """Return the refusal of a dialect."""
    return RewriteRefused(UNSUPPORTED_STATEMENT, f"the dialect `{dialect[:40]}` is none of {', '.join(DIALECTS)}")


def checks_of_uses(request: StatementRequest, uses: Sequence[RelationUse], bundle: ActivePolicies) -> Iterator[Check]:
    """Yield the checks of the uses of a statement, for the principal, the owner of a view, or the author of a filter.

    Raise TableDenied for an owner who is no user, and for a role as author where a forbid could bind the unknown person
    behind the role: older versions wrote no person.
    """
    for use in uses:
        kind = "view" if use.is_view else "table"
        relation = Resource(kind, use.name[0], check_path(kind, use.name[1:]))
        # INVARIANT: the acting role of the request goes with its principal alone, never with an author or owner.
        question: Callable[[str], Question] = request.question
        if use.author:
            is_hidden = use.author.startswith("role:") and not use.person
            if is_hidden and bundle.has_forbids(relation.warehouse, READS[kind], kind):
                raise TableDenied(f"nobody knows who wrote a filter as `{use.author}`")
            question = partial(_delegated, request, *_author(use))
        elif use.owner:
            question = partial(_delegated, request, _owner(bundle.row_access.members, use.owner), None)
        if use.role in ("create", "replace"):
            made = "view" if use.makes_view else "table"
            yield Check(question(f"create_{made}"), (parent_of(relation),), (0,))
            if use.role == "replace":
                yield Check(question("drop"), (relation,), (0,))
        elif use.role == "write":
            yield Check(question("write_data"), (relation,), (0,))
        else:
            yield Check(question(READS[kind]), (relation,), (0,))
            if use.ref:
                type = DETACHED if use.ref == DETACHED else ""
                version = msgspec.structs.replace(relation, ref=check_part(use.ref), ref_type=type)
                yield Check(question(READS[kind]), (version,), (0,))


def checks_of_losses(
    request: StatementRequest, uses: Sequence[RelationUse], facts: Facts, spelled: SpelledNames
) -> tuple[list[Check], list[Check]]:
    """Return the drops of known objects at the names of new relations, and drops without need of a permit.

    CREATE may replace. Nobody knows whether an unregistered object exists, so forbids alone keep it. Raise
    AmbiguousName for a name that may mean several known objects.
    """
    known, possible, drop = list[Check](), list[Check](), request.question("drop")
    for use in uses:
        if use.role == "create":
            found = _replaced_by(use, facts, spelled)
            known += [Check(drop, (object,), (0,)) for object in found]
            if not any(facts.is_registered((object.type, (object.warehouse, *object.path))) for object in found):
                paths = (use.name[1:], *spelled.other_paths(use.name[0], use.name[1:]))
                possible += [Check(drop, (Resource("table_or_view", use.name[0], path),), (0,)) for path in paths]
    return known, possible


def _replaced_by(use: RelationUse, facts: Facts, spelled: SpelledNames) -> tuple[Resource, ...]:
    """Return the known objects at the name of a new relation. Engines fold names."""
    warehouse, *path, name = (use.name[0], *(part.lower() for part in use.name[1:]))
    names = names_of_schema(facts, warehouse, tuple(path), spelled) or SchemaNames(tuple(path))
    own = None if names is AMBIGUOUS else names.own_spelling(name)
    if own is None:
        raise AmbiguousName(f"`{'.'.join(use.name)[:200]}` may mean several known objects")
    types = KnownObjects.of(facts, spelled).tabular_types((warehouse, *names.path), own)
    return tuple(Resource(type, warehouse, (*names.path, own)) for type in types)


def refuse_table_references(uses: Sequence[RelationUse], warehouses: Mapping[str, WarehouseSettings]) -> None:
    """Raise AmbiguousName for a name in the form of Nessie's table references, such as `t@branch`."""
    for warehouse, *_, name in {use.name for use in uses}:
        if reads_table_reference(warehouses.get(warehouse), name):
            raise AmbiguousName(f"`{name[:200]}` may be a table reference of Nessie's: write the name alone")


def _delegated(request: StatementRequest, owner: Principal, acting_role: str | None, action: str) -> Question:
    """Return the question of a request about another principal, with all else that the request says."""
    return msgspec.structs.replace(request.question(action), principal=owner, delegated=True, acting_role=acting_role)


def _author(use: RelationUse) -> tuple[Principal, str | None]:
    """Return the author of a filter, and the role as which the author acted.

    The author was a member of the role at that time.
    """
    type, _, name = use.author.partition(":")
    if type == "user":
        return unshown_user(name), None
    if use.person in ("", use.author):
        return Principal(type, name), None
    kind, _, person = use.person.partition(":")
    known = unshown_user(person) if kind == "user" else Principal(kind, person)
    return msgspec.structs.replace(known, member_of=(name,)), name


def _owner(members: Members, member: str) -> Principal:
    """Return the user behind a member; raise TableDenied if the template of members does not tell the user."""
    found = members.principal_of(member)
    if found is None:
        raise TableDenied(f"the owner `{member}` of a view is no user of `row_access.member.template`")
    return found


def _recorded_use(use: RelationUse) -> dict[str, Any]:
    """Return the entry of a used relation in the record of a rewriting."""
    given = {"as": use.author or use.owner, "policies": use.policies, "masks": use.masks}
    kept = {key: value for key, value in given.items() if value}
    kind = "view" if use.is_view else "table"
    named = Resource(kind, use.name[0], use.name[1:], use.ref or None)
    return {"table": format_resource(named), "use": use.role, **kept}


def rewrite_event(
    request: StatementRequest, body: RewriteBody, uses: Sequence[RelationUse], **outcome: Any
) -> RewriteEvent:
    """Return the record of a rewriting. A refusal has a code."""
    caller = request.caller
    return RewriteEvent(
        id=request.id, surface=request.surface, caller=caller.name, caller_principal=token_subject(caller),
        principal=request.principal.id,
        acting_role=f"role:{request.acting_role}" if request.acting_role is not None else "",
        dialect=body.dialect if body.dialect in DIALECTS else "", length=len(body.sql),
        request_id=caller.request_id, trace_id=caller.trace_id, span_id=caller.span_id,
        allowed="code" not in outcome, latency_us=int((time.perf_counter() - request.started) * 1e6),
        tables=[_recorded_use(use) for use in uses[:_MOST_RECORDED]], **outcome,
    )  # fmt: skip
