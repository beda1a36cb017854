"""Rewriting of statements for a principal of the service: evidence, rights on every relation, and the record.

A process rewrites the statement (`pdp.rewrite.process.pool`), so a text never holds up the event loop. The answer
leaves after the rights are decided, by the same way as every check.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET

from pdp.decision.active_policies import ActivePolicies
from pdp.decision.bodies import make_acting_role, make_principal, make_resource
from pdp.decision.plan import parent_of
from pdp.decision.service import BatchResult, Pdp
from pdp.errors import AssertionNotAllowed, InvalidArgument, PdpError, TableDenied, Unavailable
from pdp.facts.row_policies import TablePath
from pdp.facts.snapshot import Facts
from pdp.identity.evidence import asserted_principal, own_principal
from pdp.model.answer import TypedColumn
from pdp.model.events import RewriteEvent
from pdp.model.question import Batch, Caller, Check, Principal, Question, Resource
from pdp.model.references import check_path, format_resource
from pdp.model.revision import new_id
from pdp.rewrite.errors import (
    NO_STORE,
    PARSE_ERROR,
    UNKNOWN_RELATION,
    UNSUPPORTED_SOURCE,
    UNSUPPORTED_STATEMENT,
    VIEW_CYCLE,
    VIEW_DEPTH,
    RewriteRefused,
)
from pdp.rewrite.iceberg.relations import KnownRelations, RelationSources
from pdp.rewrite.process.messages import (
    FilterCall,
    PolicyRow,
    PolicyState,
    RelationUse,
    RewriteCall,
    RewriteReply,
    StatementUser,
    SuppliedCatalog,
)
from pdp.rewrite.process.pool import WorkerPool
from pdp.row_access.bodies import (
    DIALECTS,
    LONGEST_SQL,
    FilterBody,
    FilterResult,
    RewriteBody,
    RewriteResult,
    SqlExpression,
    general_message,
    policy_rows,
    recorded_cause,
    shows_own_policies,
    tells_policies,
)

_OF_VIEWS: Final = frozenset({UNSUPPORTED_SOURCE, VIEW_CYCLE, VIEW_DEPTH})
"""Refusals that come from the text of a view."""
_TABLE_TYPES: Final = frozenset({"table", "view", "table_or_view"})
_READS: Final = {"table": "read_data", "view": "select", "table_or_view": "read_data"}
_DDL_DIALECT: Final = "bigquery"
_MOST_RECORDED: Final = 500
_DEFAULT_PARTS: Final = 2
_MOST_READINGS: Final = 3
"""Rewritings of one statement whose relations change meanwhile."""
_NO_RELATIONS: Final = RelationSources()


class _Asking(msgspec.Struct, frozen=True):
    """Request with its principal, after evidence."""

    caller: Caller
    surface: str
    principal: Principal
    acting_role: str | None
    id: str
    started: float


class PolicyStatements(Protocol):
    """Executor of DDL statements on row access policies."""

    async def execute(self, body: RewriteBody, caller: Caller, default: Sequence[str]) -> RewriteResult:
        """Carry out the statement of a body; raise PdpError. `default` completes the name of the table."""
        ...


class StatementService:
    """Rewriting and filters for principals, by the policies of the service."""

    def __init__(
        self, pdp: Pdp, pool: WorkerPool, statements: PolicyStatements | None = None,
        relations: RelationSources = _NO_RELATIONS,
    ) -> None:  # fmt: skip
        """Rewrite by the processes of a pool. `statements` carries out DDL on row access policies.

        `relations` are those of catalogs, beside those of policy files and requests.
        """
        self._pdp, self._pool, self._statements, self._relations = pdp, pool, statements, relations
        self._known: tuple[tuple[object, ...], PolicyState] | None = None

    async def rewrite(self, body: RewriteBody, caller: Caller, surface: str) -> RewriteResult:
        """Return the statement that shows the visible rows alone, and record the rewriting.

        Raise RewriteRefused for a statement that is not passed on, TableDenied without the right to a relation, and
        AssertionNotAllowed, InvalidArgument or Unavailable as a check does.
        """
        asking = self._admit(body, caller, surface)
        self._pdp.audit.admit()
        uses: tuple[RelationUse, ...] = ()
        decision = cause = ""
        try:
            _bound(body)
            await self._pdp.await_consistency(body.consistency)
            catalog = None if body.catalog is UNSET else body.catalog
            call = RewriteCall(body.sql, body.dialect, self._reader(asking), catalog)
            reply = await self._confirmed(asking, call)
            if reply.error == NO_STORE and self._statements is not None and body.dialect == _DDL_DIALECT:
                return await self._execute(self._statements, asking, body)
            uses = reply.uses
            result = await self._decide(asking, list(self._checks(asking, [use for use in uses if not use.author])))
            await self._decide_authors(asking, uses)
            if reply.error:
                cause = recorded_cause(reply)
                raise await self._refusal(asking, call, reply)
            decision, revision = (result.answer.id, result.answer.revision) if result else ("", self._pdp.revision())
        except PdpError as error:
            denied = error.record_id
            self._record(asking, body, uses, code=error.code, decision=denied, message=cause or _message(error))
            error.record_id = asking.id
            raise
        self._record(asking, body, uses, changed=reply.changed, revision=revision, decision=decision)
        return RewriteResult(reply.sql, reply.changed, revision, asking.id)

    async def _execute(self, statements: PolicyStatements, asking: _Asking, body: RewriteBody) -> RewriteResult:
        """Carry out a statement on row access policies, and record the statement."""
        default = () if body.catalog is UNSET else body.catalog.default
        filed = (tuple(document.get("default", ())) for document in self._pdp.bundle.row_sources.documents)
        result = await statements.execute(body, asking.caller, default or next(filter(None, filed), ()))
        self._record(asking, body, (), changed=result.changed, revision=result.revision, decision=result.id)
        return msgspec.structs.replace(result, id=asking.id)

    async def filter(self, body: FilterBody, caller: Caller, surface: str) -> FilterResult:
        """Return the visible part of a table in a dialect; raise as `rewrite` does."""
        asking = self._admit(body, caller, surface)
        table = make_resource(body.resource)
        if table.type not in _TABLE_TYPES:
            raise InvalidArgument(f"`{format_resource(table)}` is no table or view")
        if body.dialect not in DIALECTS:
            raise _unknown_dialect(body.dialect)
        await self._pdp.await_consistency(body.consistency)
        reader = self._reader(asking)
        check = Check(Question(asking.principal, _READS[table.type], acting_role=asking.acting_role), (table,), (0,))
        await self._decide(asking, [check])
        columns = [TypedColumn(column.name, column.type) for column in body.columns]
        catalog = None if body.catalog is UNSET else body.catalog
        filtering = FilterCall((table.warehouse, *table.path), body.dialect, reader, catalog)
        if body.dialect == "trino":
            await self._check_view(asking, filtering)
            return await self._trino_filter(asking, reader, check, columns)
        reply = await self._accepted(asking, filtering)
        await self._decide_authors(asking, reply.uses)
        recorded = await self._view(asking, check, [TypedColumn(name, "") for name, _ in reply.columns])
        rows = SqlExpression(reply.rows) if reply.rows else None
        masks = tuple((name, SqlExpression(text)) for name, text in reply.columns)
        return FilterResult(rows, masks, self._pdp.revision(), recorded)

    def _admit(self, body: RewriteBody | FilterBody, caller: Caller, surface: str) -> _Asking:
        """Return the request with its principal; raise AssertionNotAllowed for evidence beyond the caller's rights."""
        principal = _principal(body, caller)
        if body.catalog is not UNSET and "properties" not in caller.may_assert:
            raise AssertionNotAllowed(f"caller `{caller.name}` may not assert properties: `catalog` describes tables")
        if body.catalog is not UNSET and _names_owners(body.catalog) and "delegated" not in caller.may_assert:
            raise AssertionNotAllowed(
                f"caller `{caller.name}` may not assert delegated: a view of `catalog` has an owner"
            )
        if body.catalog is not UNSET and len(body.catalog.default) not in (0, _DEFAULT_PARTS):
            raise InvalidArgument("`catalog.default` is a catalog and a schema")
        role = make_acting_role(body.acting_role)
        return _Asking(caller, surface, principal, role, new_id(), time.perf_counter())

    def _reader(self, asking: _Asking) -> StatementUser:
        """Return the principal as the processes know it, with all roles; raise Unavailable if these are too old."""
        if self._pdp.source.is_stale():
            raise Unavailable("the store has not answered for too long: who may see which rows is not known")
        principal = self._pdp.bundle.with_mapped_roles(asking.principal)
        facts = self._pdp.source.facts
        if asking.acting_role is not None:
            if not facts.can_assume(principal, asking.acting_role):
                raise TableDenied("cannot_assume")
            principal = Principal("role", asking.acting_role)
        roles = tuple(sorted(facts.roles_of(principal)))
        attributes = principal.attributes if self._pdp.bundle.row_sources.claim else "{}"
        return StatementUser(principal.type, principal.name, principal.groups, roles, attributes)

    async def _confirmed(self, asking: _Asking, call: RewriteCall | FilterCall) -> RewriteReply:
        """Return the answer of a process by relations that are still those of their catalogs, or a refusal.

        Raise RewriteRefused for a text that ends a process, and Unavailable if a catalog gives no answer for too long.
        """
        for _ in range(_MOST_READINGS):
            known = self._relations.known()
            reply = await self._ask(asking, call)
            if reply.error:
                return reply
            names = [call.table] if isinstance(call, FilterCall) else []
            names += [name for use in reply.uses for name in (use.name, *use.spellings)]
            if await self._relations.confirm(names) and known == self._relations.known():
                return reply
        raise Unavailable("the tables and views of the statement change again and again")

    async def _ask(self, asking: _Asking, call: RewriteCall | FilterCall) -> RewriteReply:
        """Return the answer of a process; raise RewriteRefused for a text that ends a process."""
        key = f"{asking.caller.name}\n{asking.principal.id}"

        async def completed() -> RewriteCall | FilterCall:
            return msgspec.structs.replace(call, policies=await self._listed(asking))

        return await self._pool.ask(key, self._setup(), call, completed if isinstance(call, RewriteCall) else None)

    async def _accepted(self, asking: _Asking, call: FilterCall) -> RewriteReply:
        """Return the visible part of a relation; raise RewriteRefused and Unavailable."""
        reply = await self._confirmed(asking, call)
        if reply.error:
            raise await self._refusal(asking, call, reply)
        return reply

    async def _refusal(self, asking: _Asking, call: RewriteCall | FilterCall, reply: RewriteReply) -> PdpError:
        """Return the error for a refusal to a principal with every right that the statement needs.

        Policies behind the refusal are for those who may read the grants of all relations. A refusal without relations
        is about the statement alone.
        """
        problem = next(self._relations.problems(), "") if reply.error == UNKNOWN_RELATION else ""
        if problem:
            return Unavailable(f"{reply.message}: {problem}")
        if not tells_policies(reply):
            return RewriteRefused(reply.error, reply.message)
        kinds = {use.name: "view" if use.is_view else "table" for use in reply.uses if not use.author}
        if isinstance(call, FilterCall):
            kinds.setdefault(call.table, "table")
        tables = [Resource(kind, name[0], name[1:]) for name, kind in kinds.items()]
        is_shown = not tables or (shows_own_policies(reply) and all(await self._may_read_grants(asking, tables)))
        return RewriteRefused(reply.error, reply.message if is_shown else general_message(reply, call.dialect))

    async def _listed(self, asking: _Asking) -> tuple[PolicyRow, ...]:
        """Return the policies that a principal may see."""
        rows = dict[TablePath, list[PolicyRow]]()
        for path, row in policy_rows(self._pdp.bundle, self._pdp.source.facts):
            rows.setdefault(path, []).append(row)
        tables = list(rows)
        if not tables:
            return ()
        allowed = await self._may_read_grants(asking, [Resource("table", path[0], path[1:]) for path in tables])
        return tuple(row for path, may in zip(tables, allowed, strict=True) if may for row in rows[path])

    async def _may_read_grants(self, asking: _Asking, relations: Sequence[Resource]) -> bytes:
        """Return for each relation 1 or 0: the right of the principal to read grants, and so policies."""
        checks = [
            Check(Question(asking.principal, "read_assignments", acting_role=asking.acting_role), (relation,), (at,))
            for at, relation in enumerate(relations)
        ]
        return (await self._pdp.decide(Batch(asking.surface, asking.caller, len(checks), checks))).answer.allowed

    def _setup(self) -> PolicyState:
        """Return the policies of the current bundle and facts as the processes get them."""
        bundle, facts = self._pdp.bundle, self._pdp.source.facts
        basis = (bundle, facts.index.rules, *(known.digest for known in self._relations.known()))
        if self._known is None or any(one is not other for one, other in zip(self._known[0], basis, strict=True)):
            self._known = basis, _setup(bundle, facts, self._relations.known())
        return self._known[1]

    async def _decide(self, asking: _Asking, checks: Sequence[Check]) -> BatchResult | None:
        """Decide all rights; raise TableDenied for the first that is missing. None if nothing is to be decided."""
        if not checks:
            return None
        placed = [msgspec.structs.replace(check, at=(at,)) for at, check in enumerate(checks)]
        batch = Batch(asking.surface, asking.caller, len(placed), placed)
        result = await self._pdp.decide(batch)
        answer = result.answer
        denied = next((at for at, allowed in enumerate(answer.allowed) if not allowed), None)
        if denied is not None:
            check = checks[denied]
            error = TableDenied(f"`{check.question.action}` on `{format_resource(check.resources[0])}` is denied")
            error.record_id = answer.id
            raise error
        return result

    def _checks(self, asking: _Asking, uses: Sequence[RelationUse]) -> Iterator[Check]:
        """Yield the checks of the uses of a statement, for the principal or for the owner of a view."""
        for use in uses:
            kind = "view" if use.is_view else "table"
            path = check_path(kind, use.name[1:])
            relation = Resource(kind, use.name[0], path)
            principal, role, delegated = asking.principal, asking.acting_role, False
            if use.author:
                type, _, name = use.author.partition(":")
                principal, role, delegated = Principal(type, name), None, True
            elif use.owner:
                principal, role, delegated = self._owner(use.owner), None, True
            if use.role in ("create", "replace"):
                yield Check(
                    Question(principal, f"create_{kind}", delegated=delegated, acting_role=role),
                    (parent_of(relation),),
                    (0,),
                )
                if use.role == "replace":
                    yield Check(Question(principal, "drop", delegated=delegated, acting_role=role), (relation,), (0,))
            elif use.role == "write":
                yield Check(Question(principal, "write_data", delegated=delegated, acting_role=role), (relation,), (0,))
            else:
                yield Check(Question(principal, _READS[kind], delegated=delegated, acting_role=role), (relation,), (0,))

    def _owner(self, member: str) -> Principal:
        """Return the user behind a member; raise TableDenied if the template of members does not tell the user."""
        found = self._pdp.bundle.row_access.members.principal_of(member)
        if found is None:
            raise TableDenied(f"the owner `{member}` of a view is no user of `row_access.member.template`")
        return found

    async def _check_view(self, asking: _Asking, call: FilterCall) -> None:
        """Raise RewriteRefused for a known view of tables with hidden rows: a filter of the view does not hide them."""
        try:
            reply = await self._accepted(asking, call)
        except RewriteRefused as error:
            if error.rap in _OF_VIEWS:
                raise
        else:
            await self._decide_authors(asking, reply.uses)

    async def _decide_authors(self, asking: _Asking, uses: Sequence[RelationUse]) -> None:
        """Raise TableDenied for a table that the author of a stored filter may not read."""
        try:
            await self._decide(asking, list(self._checks(asking, [use for use in uses if use.author])))
        except TableDenied as error:
            denied = TableDenied("the author of a filter may not read what the filter reads")
            denied.record_id = error.record_id
            raise denied from None

    async def _trino_filter(
        self, asking: _Asking, reader: StatementUser, check: Check, columns: Sequence[TypedColumn]
    ) -> FilterResult:
        """Return the visible part of a table as Trino's plugin gets it."""
        principal = Principal(
            reader.type, reader.name, groups=reader.groups, member_of=reader.member_of, attributes=reader.attributes
        )
        restriction = self._pdp.bundle.row_access.restrict(principal, check.resources[0], self._pdp.source.facts)
        if not columns and restriction.masks:
            raise InvalidArgument("`columns` are needed, with their types: a column is masked")
        batch = Batch(asking.surface, asking.caller, 1, (check,))
        decided = await self._pdp.restrict_many(batch, columns)
        rows = decided.view.rows
        masks = [
            (column.name, SqlExpression(mask.expression, mask.identity))
            for column, mask in zip(columns, decided.view.masks, strict=True)
            if mask
        ]
        row_filter = SqlExpression(rows.expression, rows.identity) if rows else None
        return FilterResult(row_filter, tuple(masks), self._pdp.revision(), decided.id)

    async def _view(self, asking: _Asking, check: Check, columns: Sequence[TypedColumn]) -> str:
        """Record the question for the visible part of a table; return the id of the record."""
        batch = Batch(asking.surface, asking.caller, 1, (check,))
        return (await self._pdp.restrict_many(batch, columns)).id

    def _record(self, asking: _Asking, body: RewriteBody, uses: Sequence[RelationUse], **outcome: Any) -> None:
        """Record a rewriting. A refusal has a code."""
        caller = asking.caller
        event = RewriteEvent(
            id=asking.id, surface=asking.surface, caller=caller.name, principal=asking.principal.id,
            acting_role=f"role:{asking.acting_role}" if asking.acting_role is not None else "",
            dialect=body.dialect if body.dialect in DIALECTS else "", length=len(body.sql),
            request_id=caller.request_id, trace_id=caller.trace_id, span_id=caller.span_id,
            allowed="code" not in outcome, latency_us=int((time.perf_counter() - asking.started) * 1e6),
            tables=[_used(use) for use in uses[:_MOST_RECORDED]], **outcome,
        )  # fmt: skip
        self._pdp.audit.note(event)


def _setup(bundle: ActivePolicies, facts: Facts, known: Sequence[KnownRelations]) -> PolicyState:
    sources = bundle.row_sources
    catalogs = {
        name: known.warehouse if known.ref in (None, bundle.default_ref(known.warehouse)) else ""
        for name, known in bundle.trino.catalogs.items()
    }
    setup = PolicyState(
        "", list(sources.documents), sources.protected, sources.template, sources.provider, sources.through, catalogs,
        tuple(facts.row_rules()), sources.claim, sources.service_accounts, tuple(bundle.warehouses),
    )  # fmt: skip
    digest = sha256(msgspec.msgpack.encode((setup, [one.digest for one in known]))).hexdigest()
    return msgspec.structs.replace(setup, digest=digest, known=tuple(one.body for one in known if one.body))


def _principal(body: RewriteBody | FilterBody, caller: Caller) -> Principal:
    """Return the principal of a request: that of the body, else that of headers in development, else the caller's own.

    Raise AssertionNotAllowed for headers outside of development: their sender takes them for an identity.
    """
    stated = caller.stated
    if stated is not None and stated.problem:
        raise AssertionNotAllowed(stated.problem)
    if body.principal is not UNSET:
        return asserted_principal(caller, make_principal(body.principal))
    if stated is not None and stated.principal is not None and caller.own is None:
        return asserted_principal(caller, stated.principal)
    return own_principal(caller)


def _names_owners(catalog: SuppliedCatalog) -> bool:
    return any(view.owner for view in catalog.views.values())


def _bound(body: RewriteBody) -> None:
    """Raise RewriteRefused for a text that no process needs to see."""
    if body.dialect not in DIALECTS:
        raise _unknown_dialect(body.dialect)
    if len(body.sql) > LONGEST_SQL:
        raise RewriteRefused(PARSE_ERROR, f"the text has more than {LONGEST_SQL} characters")


def _unknown_dialect(dialect: str) -> RewriteRefused:
    return RewriteRefused(UNSUPPORTED_STATEMENT, f"the dialect `{dialect[:40]}` is none of {', '.join(DIALECTS)}")


def _message(error: PdpError) -> str:
    """Return the message of an error for a record: refusals of a text can quote the text."""
    return "" if isinstance(error, RewriteRefused) else str(error)


def _used(use: RelationUse) -> dict[str, Any]:
    given = {"as": use.author or use.owner, "policies": use.policies, "masks": use.masks}
    kept = {key: value for key, value in given.items() if value}
    kind = "view" if use.is_view else "table"
    return {"table": format_resource(Resource(kind, use.name[0], use.name[1:])), "use": use.role, **kept}
