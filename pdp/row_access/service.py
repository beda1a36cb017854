"""Rewriting of statements for a principal of the service: evidence, rights on every relation, and the record.

A process rewrites the statement (`pdp.rewrite.process.pool`), so a text never holds up the event loop. The answer
leaves after the rights are decided, by the same way as every check.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from pdp.decision.active_policies import ActivePolicies
from pdp.decision.bodies import make_resource
from pdp.decision.service import BatchResult, Pdp
from pdp.decision.turns import run_aside
from pdp.errors import AmbiguousName, AssertionNotAllowed, InvalidArgument, PdpError, TableDenied, Unavailable
from pdp.facts.objects import RowPolicy, TablePath
from pdp.facts.snapshot import Facts
from pdp.identity.evidence import refused_batch
from pdp.management.codec import make_requester
from pdp.management.row_policies import RowPolicyService
from pdp.model.answer import Rejection, TypedColumn
from pdp.model.question import Batch, Caller, Check, Principal, Resource
from pdp.model.references import format_resource
from pdp.rewrite import errors
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.iceberg.relations import KnownRelations, RelationSources
from pdp.rewrite.process.messages import (
    DIALECTS,
    FilterCall,
    PolicyState,
    RelationUse,
    RewriteCall,
    RewriteReply,
    StatementUser,
)
from pdp.rewrite.process.pool import WorkerPool
from pdp.row_access.requests import (
    READS,
    FilterBody,
    FilterResult,
    RewriteBody,
    RewriteResult,
    SqlExpression,
    StatementRequest,
    admitted,
    bound_text,
    checks_of_losses,
    checks_of_uses,
    general_message,
    listed_policies,
    recorded_cause,
    refuse_table_references,
    rewrite_event,
    shows_own_policies,
    tells_policies,
    unknown_dialect,
    use_warnings,
)

T = TypeVar("T")
_OF_VIEWS: Final = frozenset({errors.UNSUPPORTED_SOURCE, errors.VIEW_CYCLE, errors.VIEW_DEPTH})
"""Refusals that come from the text of a view."""
_DDL_DIALECT: Final = "bigquery"
_MOST_READINGS: Final = 3
"""Rewritings of one statement whose relations or policies change meanwhile."""


class StatementService:
    """Rewriting and filters for principals, by the policies of the service."""

    def __init__(self, pdp: Pdp, pool: WorkerPool, rules: RowPolicyService, relations: RelationSources) -> None:
        """Rewrite by the processes of a pool. `rules` are the stored policies, which DDL edits.

        `relations` are those of catalogs, beside those of policy files and requests.
        """
        self._pdp, self._pool, self._rules, self._relations = pdp, pool, rules, relations
        self._known: tuple[tuple[object, ...], PolicyState] | None = None

    async def rewrite(self, body: RewriteBody, caller: Caller, surface: str) -> RewriteResult:
        """Return the statement that shows the visible rows alone, and record the rewriting.

        Raise RewriteRefused for a statement that is not passed on, TableDenied without the right to a relation, and
        AssertionNotAllowed, InvalidArgument or Unavailable as a check does.
        """
        request = admitted(body, caller, surface)
        self._pdp.audit.admit()
        uses: tuple[RelationUse, ...] = ()
        decision = cause = ""

        async def rewritten(reader: StatementUser) -> tuple[RewriteReply, BatchResult | None]:
            nonlocal uses, cause
            catalog = None if body.catalog is UNSET else body.catalog
            call = RewriteCall(body.sql, body.dialect, reader, catalog)
            reply = await self._confirmed(request, call)
            if reply.error == errors.NO_STORE and body.dialect == _DDL_DIALECT:
                return reply, None
            uses = reply.uses
            result = await self._decide_uses(request, [use for use in uses if not use.author])
            await self._decide_authors(request, uses)
            if reply.error:
                cause = recorded_cause(reply)
                raise await self._refusal(request, call, reply)
            return reply, result

        try:
            if request.unassertable:
                raise AssertionNotAllowed(request.unassertable)
            bound_text(body)
            await self._pdp.await_consistency(body.consistency)
            reply, result = await self._steady(request, rewritten)
            if reply.error:
                return await self._execute(request, body)
            decision, revision = (result.answer.id, result.answer.revision) if result else ("", self._pdp.revision())
        except PdpError as error:
            denied = error.record_id
            unquoted = "" if isinstance(error, RewriteRefused) else str(error)  # a refusal can quote the text
            self._record(request, body, uses, code=error.code, decision=denied, message=cause or unquoted)
            error.record_id = request.id
            raise
        self._record(request, body, uses, changed=reply.changed, revision=revision, decision=decision)
        warnings = tuple(use_warnings(self._pdp.bundle, self._pdp.source.facts, uses))
        return RewriteResult(reply.sql, reply.changed, revision, request.id, warnings=warnings)

    async def _execute(self, request: StatementRequest, body: RewriteBody) -> RewriteResult:
        """Carry out a statement on row access policies, and record the statement."""
        from pdp.rewrite.policy_statements import read_policy_statement  # noqa: PLC0415  its parser of SQL takes 30 MB

        default = () if body.catalog is UNSET else body.catalog.default
        filed = (tuple(document.get("default", ())) for document in self._pdp.bundle.row_sources.documents)
        statement = await run_aside(read_policy_statement, body.sql)
        if statement is None:
            raise InvalidArgument("no statement on row access policies")
        requester = make_requester(request.caller, body.principal, body.acting_role, body.consistency)
        result = await self._rules.execute(requester, statement, default or next(filter(None, filed), ()))
        self._record(request, body, (), changed=result.changed, revision=result.revision, decision=requester.id)
        return RewriteResult("", result.changed, result.revision, request.id, result.operation, result.warnings)

    async def filter(self, body: FilterBody, caller: Caller, surface: str) -> FilterResult:
        """Return the visible part of a table in a dialect; raise as `rewrite` does."""
        request = admitted(body, caller, surface)
        table = make_resource(body.resource)
        if table.type not in READS:
            raise InvalidArgument(f"`{format_resource(table)}` is no table or view")
        if body.dialect not in DIALECTS:
            raise unknown_dialect(body.dialect)
        check = Check(request.question(READS[table.type]), (table,), (0,))
        if request.unassertable:
            rejection = Rejection(AssertionNotAllowed.code, request.unassertable)
            raise await self._pdp.refusal(refused_batch(surface, caller, (check,), rejection))
        await self._pdp.await_consistency(body.consistency)
        return await self._steady(request, partial(self._filter, request, body, check))

    async def _filter(
        self, request: StatementRequest, body: FilterBody, check: Check, reader: StatementUser
    ) -> FilterResult:
        """Return the visible part of the table of a check, after its rights are decided."""
        (table,) = check.resources
        decided = await self._decide(request, [check])
        others = self._pdp.bundle.spelled.other_paths(table.warehouse, table.path)
        spelled = [msgspec.structs.replace(table, path=path) for path in others]
        await self._refuse_forbidden(
            request, [msgspec.structs.replace(check, resources=(other,)) for other in spelled], decided
        )
        columns = [TypedColumn(column.name, column.type) for column in body.columns]
        catalog = None if body.catalog is UNSET else body.catalog
        filtering = FilterCall((table.warehouse, *table.path), body.dialect, reader, catalog)
        if body.dialect == "trino":
            await self._check_view(request, filtering)
            return await self._trino_filter(request, reader, check, columns)
        reply = await self._accepted(request, filtering)
        await self._decide_authors(request, reply.uses)
        seen = [TypedColumn(name, "") for name, _ in reply.columns]
        recorded = (await self._pdp.restrict_many(Batch(request.surface, request.caller, 1, (check,)), seen)).id
        rows = SqlExpression(reply.rows) if reply.rows else None
        masks = tuple((name, SqlExpression(text)) for name, text in reply.columns)
        return FilterResult(rows, masks, self._pdp.revision(), recorded)

    async def _steady(self, request: StatementRequest, work: Callable[[StatementUser], Awaitable[T]]) -> T:
        """Return the result of work for the reader, done again if policies or the reader's roles changed meanwhile.

        Without this, an answer could join the rows of one state with the rights of another. Raise Unavailable if they
        change again and again.
        """
        for _ in range(_MOST_READINGS):
            bundle, rules, reader = self._pdp.bundle, self._pdp.source.facts.index.rules, self._reader(request)
            result = await work(reader)
            # INVARIANT: each bundle, and each change of row policies, is a new object.
            is_same = self._pdp.bundle is bundle and self._pdp.source.facts.index.rules is rules
            if is_same and self._reader(request) == reader:
                return result
        raise Unavailable("the policies of the statement change again and again: ask again")

    def _reader(self, request: StatementRequest) -> StatementUser:
        """Return the principal as the processes know it, with all roles; raise Unavailable if these are too old."""
        if self._pdp.source.is_stale():
            raise Unavailable("the store has not answered for too long: who may see which rows is not known")
        principal = self._pdp.bundle.with_mapped_roles(request.principal)
        facts = self._pdp.source.facts
        if request.acting_role is not None:
            if not facts.can_assume(principal, request.acting_role):
                raise TableDenied("cannot_assume")
            principal = Principal("role", request.acting_role)
        roles = tuple(sorted(facts.roles_of(principal)))
        seen = self._pdp.bundle.row_access.members.caller(principal, facts).roles or ()
        return StatementUser(
            principal.type, principal.name, principal.groups, roles, principal.attributes, principal.unknown, seen
        )

    async def _confirmed(self, request: StatementRequest, call: RewriteCall | FilterCall) -> RewriteReply:
        """Return the answer of a process by relations that are still those of their catalogs, or a refusal.

        Raise RewriteRefused for a text that ends a process, and Unavailable if a catalog gives no answer for too long.
        """
        for _ in range(_MOST_READINGS):
            known = self._relations.known()
            reply = await self._ask(request, call)
            if reply.error:
                return reply
            names = [call.table] if isinstance(call, FilterCall) else []
            names += [name for use in reply.uses for name in (use.name, *use.spellings)]
            if await self._relations.confirm(names) and known == self._relations.known():
                return reply
        raise Unavailable("the tables and views of the statement change again and again")

    async def _ask(self, request: StatementRequest, call: RewriteCall | FilterCall) -> RewriteReply:
        """Return the answer of a process; raise RewriteRefused for a text that ends a process."""
        key = f"{request.caller.name}\n{request.principal.id}"

        async def completed() -> RewriteCall | FilterCall:
            return msgspec.structs.replace(call, policies=await self._listed(request))

        return await self._pool.ask(key, self._setup(), call, completed if isinstance(call, RewriteCall) else None)

    async def _accepted(self, request: StatementRequest, call: FilterCall) -> RewriteReply:
        """Return the visible part of a relation; raise RewriteRefused and Unavailable."""
        reply = await self._confirmed(request, call)
        if reply.error:
            raise await self._refusal(request, call, reply)
        return reply

    async def _refusal(
        self, request: StatementRequest, call: RewriteCall | FilterCall, reply: RewriteReply
    ) -> PdpError:
        """Return the error for a refusal to a principal with every right that the statement needs.

        Policies behind the refusal are for those who may read the grants of all relations. A refusal without relations
        is about the statement alone.
        """
        problem = next(self._relations.problems(), "") if reply.error == errors.UNKNOWN_RELATION else ""
        if problem:
            return Unavailable(f"{reply.message}: {problem}")
        if not tells_policies(reply):
            return RewriteRefused(reply.error, reply.message)
        kinds = {use.name: "view" if use.is_view else "table" for use in reply.uses if not use.author}
        if isinstance(call, FilterCall):
            kinds.setdefault(call.table, "table")
        tables = [Resource(kind, name[0], name[1:]) for name, kind in kinds.items()]
        is_shown = not tables or (shows_own_policies(reply) and all(await self._may_read_grants(request, tables)))
        return RewriteRefused(reply.error, reply.message if is_shown else general_message(reply, call.dialect))

    async def _listed(self, request: StatementRequest) -> tuple[RowPolicy, ...]:
        """Return the policies that a principal may see."""
        rows = dict[TablePath, list[RowPolicy]]()
        for row in listed_policies(self._pdp.bundle, self._pdp.source.facts):
            rows.setdefault(row.table, []).append(row)
        tables = list(rows)
        if not tables:
            return ()
        allowed = await self._may_read_grants(request, [Resource("table", path[0], path[1:]) for path in tables])
        return tuple(row for path, may in zip(tables, allowed, strict=True) if may for row in rows[path])

    async def _may_read_grants(self, request: StatementRequest, relations: Sequence[Resource]) -> bytes:
        """Return for each relation 1 or 0: the right of the principal to read grants, and so policies."""
        checks = [
            Check(request.question("read_assignments"), (relation,), (at,)) for at, relation in enumerate(relations)
        ]
        return (await self._pdp.decide(Batch(request.surface, request.caller, len(checks), checks))).answer.allowed

    def _setup(self) -> PolicyState:
        """Return the policies of the current bundle and facts as the processes get them."""
        bundle, facts = self._pdp.bundle, self._pdp.source.facts
        basis = (bundle, facts.index.rules, *(known.digest for known in self._relations.known()))
        if self._known is None or any(one is not other for one, other in zip(self._known[0], basis, strict=True)):
            self._known = basis, _setup(bundle, facts, self._relations.known())
        return self._known[1]

    async def _decide(self, request: StatementRequest, checks: Sequence[Check]) -> BatchResult | None:
        """Decide all rights; raise TableDenied for the first that is missing. None if nothing is to be decided."""
        if not checks:
            return None
        placed = [msgspec.structs.replace(check, at=(at,)) for at, check in enumerate(checks)]
        batch = Batch(request.surface, request.caller, len(placed), placed)
        result = await self._pdp.decide(batch)
        answer = result.answer
        denied = next((at for at, allowed in enumerate(answer.allowed) if not allowed), None)
        if denied is not None:
            check = checks[denied]
            error = TableDenied(f"`{check.question.action}` on `{format_resource(check.resources[0])}` is denied")
            error.record_id = answer.id
            raise error
        return result

    async def _decide_uses(self, request: StatementRequest, uses: Sequence[RelationUse]) -> BatchResult | None:
        """Decide the rights to uses; raise TableDenied for a missing one. None if nothing is to be decided.

        Engines fold names, so a forbid of the name in another spelling denies, too.
        """
        bundle, facts = self._pdp.bundle, self._pdp.source.facts
        spelled = bundle.spelled
        refuse_table_references(uses, self._pdp.bundle.warehouses)
        lost, maybe_lost = checks_of_losses(request, uses, facts, spelled)
        result = await self._decide(request, [*checks_of_uses(request, uses, bundle), *lost])
        each = {msgspec.structs.replace(use, policies=(), masks=(), spellings=()): None for use in uses}
        others = [
            msgspec.structs.replace(use, name=(use.name[0], *path))
            for use in each
            for path in spelled.other_paths(use.name[0], use.name[1:])
        ]
        await self._refuse_forbidden(request, [*checks_of_uses(request, others, bundle), *maybe_lost], result)
        return result

    async def _refuse_forbidden(
        self, request: StatementRequest, checks: Sequence[Check], decided: BatchResult | None
    ) -> None:
        """Raise TableDenied for the first check without need of a permit to which a policy or a failure says no."""
        reasons = await self._rules.denials(request.caller, checks)
        denied = next((check for check, reason in zip(checks, reasons, strict=True) if reason is not None), None)
        if denied is not None:
            resource = format_resource(denied.resources[0])
            error = TableDenied(f"`{denied.question.action}` on `{resource}` is denied: forbids bind each spelling")
            error.record_id = decided.answer.id if decided else ""
            raise error

    async def _check_view(self, request: StatementRequest, call: FilterCall) -> None:
        """Raise RewriteRefused for a known view of tables with hidden rows: a filter of the view does not hide them."""
        try:
            reply = await self._accepted(request, call)
        except RewriteRefused as error:
            if error.rap in _OF_VIEWS:
                raise
        else:
            await self._decide_authors(request, reply.uses)

    async def _decide_authors(self, request: StatementRequest, uses: Sequence[RelationUse]) -> None:
        """Raise TableDenied for a table that the author of a stored filter may not read."""
        try:
            await self._decide_uses(request, [use for use in uses if use.author])
        except (TableDenied, AmbiguousName) as error:
            denied = TableDenied("the author of a filter may not read what the filter reads")
            denied.record_id = error.record_id
            raise denied from None

    async def _trino_filter(
        self, request: StatementRequest, reader: StatementUser, check: Check, columns: Sequence[TypedColumn]
    ) -> FilterResult:
        """Return the visible part of a table as Trino's plugin gets it."""
        principal = Principal(
            reader.type, reader.name, groups=reader.groups, member_of=reader.member_of, attributes=reader.attributes,
            unknown=reader.unknown,
        )  # fmt: skip
        restriction = self._pdp.bundle.row_access.restrict(principal, check.resources[0], self._pdp.source.facts)
        if not columns and restriction.masks:
            raise InvalidArgument("`columns` are needed, with their types: a column is masked")
        batch = Batch(request.surface, request.caller, 1, (check,))
        decided = await self._pdp.restrict_many(batch, columns)
        rows = decided.view.rows
        masks = [
            (column.name, SqlExpression(mask.expression, mask.identity))
            for column, mask in zip(columns, decided.view.masks, strict=True)
            if mask
        ]
        row_filter = SqlExpression(rows.expression, rows.identity) if rows else None
        return FilterResult(row_filter, tuple(masks), self._pdp.revision(), decided.id)

    def _record(
        self, request: StatementRequest, body: RewriteBody, uses: Sequence[RelationUse], **outcome: Any
    ) -> None:
        """Record a rewriting. A refusal has a code."""
        self._pdp.audit.note(rewrite_event(request, body, uses, **outcome))


def _setup(bundle: ActivePolicies, facts: Facts, known: Sequence[KnownRelations]) -> PolicyState:
    sources = bundle.row_sources
    catalogs = {
        name: known.warehouse if known.ref in (None, bundle.default_ref(known.warehouse)) else ""
        for name, known in bundle.trino.catalogs.items()
    }
    setup = PolicyState(
        "", list(sources.documents), sources.protected, sources.template, sources.provider, sources.through, catalogs,
        tuple(facts.row_rules()), sources.claim, sources.service_accounts, tuple(bundle.warehouses),
        without_barrier=sources.without_barrier,
    )  # fmt: skip
    digest = sha256(msgspec.msgpack.encode((setup, [one.digest for one in known]))).hexdigest()
    return msgspec.structs.replace(setup, digest=digest, known=tuple(one.body for one in known if one.body))
