"""Trino's OPA plugin: its request bodies to checks, decisions to the answers it accepts.

Only maps. Trino takes an undefined answer as an error, or as no filter at all, so every answer here is definite: on
an internal failure it denies. Unknown fields are ignored: newer Trinos send more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from msgspec import UNSET
from msgspec.structs import replace

from pdp.decision.codec import BatchBuilder, bound_checks
from pdp.decision.combine import CHUNK
from pdp.decision.service import Pdp, unseen
from pdp.errors import Forbidden, InvalidArgument, TooManyChecks, Unavailable
from pdp.model.checks import (
    Answer,
    Arguments,
    Batch,
    Caller,
    Check,
    Predicate,
    Rejected,
    Resource,
    RowView,
    Siblings,
    TypedColumn,
)
from pdp.model.references import is_id
from pdp.model.vocabulary import TRINO_OPERATIONS, TRINO_PREFIX
from pdp.strict import decode
from pdp.surfaces.http import Endpoints, Routes
from pdp.trino.answer_cache import LONGEST, AnswerCache, CachedAnswer, FailureLog, QueryOwners
from pdp.trino.bodies import REQUEST, CatalogTables, OpaAction, OpaInput, ResourceName, TableName, read_tables
from pdp.trino.names import Names

log = structlog.get_logger()

_ALLOW: Final = {True: b'{"result":true}', False: b'{"result":false}'}
_NOTHING: Final = b'{"result":[]}'
_NO_MASK: Final = b"{}"
_OBJECTS: Final = 1000
_OBJECTS_OF_RESOURCE: Final = 3
"""Braces in a body: of all but its resources, properties included, and of each resource, as Trino writes them."""
_UNANSWERED: Final = Rejected("internal_failure", "no decision could be made", by="internal_failure")


class TableBatch(NamedTuple):
    """Many tables as columns of siblings, with their positions; `size` of them in all."""

    parts: list[tuple[Siblings, Sequence[int]]]
    size: int


class _DecodedRequest(NamedTuple):
    """A request as it came, and as it was read."""

    endpoint: str
    body: bytes
    caller: Caller
    request: OpaInput
    named: list[ResourceName] | TableBatch


class TrinoSurface:
    """The endpoints. `max_resources` bounds one batch, `seconds` the time to an answer."""

    def __init__(self, pdp: Pdp, max_resources: int, seconds: float) -> None:
        self._pdp = pdp
        self._max_resources = max_resources
        self._seconds = seconds
        self._unknown: set[str] = set()
        self._names = Names(pdp.bundle.trino, pdp.bundle.warehouses)
        self._answers = AnswerCache()
        self._queries = QueryOwners()
        self._complaints = FailureLog()

    def routes(self, endpoints: Endpoints, max_body: int) -> Routes:
        """The five paths of Trino's configuration."""
        paths = {
            "allow": self.allow,
            "batch": self.batch,
            "rowFilters": self.row_filters,
            "columnMask": self.column_mask,
            "batchColumnMasks": self.batch_column_masks,
        }
        return {
            ("POST", f"/v1/data/trino/{path}"): endpoints.route("trino", endpoint, max_body)
            for path, endpoint in paths.items()
        }

    async def allow(self, body: bytes, caller: Caller) -> bytes:
        """One decision."""
        if known := self._again("allow", body, caller):
            return known
        request = self._read(body)
        asked = _DecodedRequest("allow", body, caller, request, [request.action.resource or ResourceName()])
        return await self._definite(asked, _ALLOW[False], lambda answer: _ALLOW[answer.allowed == b"\x01"])

    async def batch(self, body: bytes, caller: Caller) -> bytes:
        """The indices of what is allowed."""
        if known := self._again("batch", body, caller):
            return known
        self._bound(body)
        tables = read_tables(body)
        columns = self._in_columns(tables) if tables else None
        if tables and columns:
            request = OpaInput(tables.context, OpaAction("FilterTables"))
            return await self._filter(_DecodedRequest("batch", body, caller, request, columns))
        request = decode(body, REQUEST, typed=True).input
        named = request.action.filter_resources or []
        asked = _DecodedRequest("batch", body, caller, request, named)
        return await (self._columns if request.action.operation == "FilterColumns" else self._filter)(asked)

    async def row_filters(self, body: bytes, caller: Caller) -> bytes:
        """The filter of a table's rows, if there is one."""
        request = self._about_rows(body, "GetRowFilters")
        table = request.action.resource.table if request.action.resource else UNSET
        if not table:
            raise InvalidArgument("GetRowFilters takes a table")
        seen = await self._seen(request, ResourceName(table=table), [], caller)
        return _encoded([_expression(seen.rows)] if seen.rows else [])

    async def column_mask(self, body: bytes, caller: Caller) -> bytes:
        """The mask of one column; an empty object for none."""
        request = self._about_rows(body, "GetColumnMask")
        masks = await self._masks(request, [request.action.resource or ResourceName()], caller)
        return _encoded(_expression(masks[0])) if masks[0] else _NO_MASK

    async def batch_column_masks(self, body: bytes, caller: Caller) -> bytes:
        """The masks of some columns, each with its index."""
        request = self._about_rows(body, "GetColumnMask")
        masks = await self._masks(request, request.action.filter_resources or [], caller)
        return _encoded([{"index": at, "viewExpression": _expression(mask)} for at, mask in enumerate(masks) if mask])

    def _about_rows(self, body: bytes, operation: str) -> OpaInput:
        request = self._read(body)
        if request.action.operation != operation:
            raise InvalidArgument(f"this endpoint answers {operation}, not `{request.action.operation}`")
        return request

    def _read(self, body: bytes) -> OpaInput:
        self._bound(body)
        return decode(body, REQUEST, typed=True).input

    def _bound(self, body: bytes) -> None:
        """Refuse a body that names more than it may before anything is made of it."""
        if body.count(b"{") > _OBJECTS + _OBJECTS_OF_RESOURCE * self._max_resources:
            raise TooManyChecks(f"more than {self._max_resources} resources in one request")

    async def _masks(self, request: OpaInput, named: list[ResourceName], caller: Caller) -> Sequence[Predicate | None]:
        """A mask, or none, for each of some columns of one table."""
        bound_checks(len(named), self._max_resources)
        columns = [named.column for named in named if named.column and named.column.column_type]
        tables = {(column.catalog_name, column.schema_name, column.table_name) for column in columns}
        if len(columns) < len(named) or len(tables) > 1:
            raise InvalidArgument("GetColumnMask takes columns of one table, each with its type")
        if not columns:
            return ()
        asked = [TypedColumn(column.column_name, column.column_type) for column in columns]
        return (await self._seen(request, ResourceName(table=TableName(*tables.pop())), asked, caller)).masks

    async def _seen(
        self, request: OpaInput, table: ResourceName, columns: list[TypedColumn], caller: Caller
    ) -> RowView:
        """What is seen of a table; nothing where that cannot be told."""
        operation = request.action.operation
        try:
            return await self._pdp.filter(self._drafted(request, [table], caller), columns)
        except Exception as error:  # noqa: BLE001  it denies
            self._failed(operation, error, caller)
            return unseen(columns)

    async def _filter(self, asked: _DecodedRequest) -> bytes:
        size = _size(asked.named)
        bound_checks(size, self._max_resources)
        return await self._definite(
            asked, _NOTHING, lambda answer: _encoded(list(compress(range(size), answer.allowed)))
        )

    async def _columns(self, asked: _DecodedRequest) -> bytes:
        """FilterColumns asks about one table; the answer points into its columns, which share its decision."""
        named = asked.named
        if not named:
            return await self._filter(asked)
        if isinstance(named, TableBatch) or len(named) != 1 or not named[0].table:
            raise InvalidArgument("FilterColumns takes exactly one table in `filterResources`")
        columns = range(len(named[0].table.columns or ()))
        return await self._definite(
            asked, _NOTHING, lambda answer: _encoded(list(columns)) if answer.allowed[0] else _NOTHING
        )

    def _again(self, endpoint: str, body: bytes, caller: Caller) -> bytes | None:
        """The answer to a body that was answered of the same policies and facts; it is recorded like the first."""
        pdp = self._pdp
        if len(body) > LONGEST:
            return None
        try:
            kept = self._answers.of(pdp.bundle, pdp.source.facts, (endpoint, caller, body))
            if kept is None or pdp.source.is_stale():
                return None
            pdp.repeat(kept.shown)
        except Exception:  # noqa: BLE001  asked anew, it meets the same failure, and is denied or an error as configured
            return None
        return kept.answer

    async def _definite(self, asked: _DecodedRequest, denial: bytes, encode: Callable[[Answer], bytes]) -> bytes:
        """The answer to what is asked; `denial` where none can be made."""
        pdp, operation = self._pdp, asked.request.action.operation
        self._note_operation(operation)
        try:
            made_of, fresh = (pdp.bundle, pdp.source.facts), not pdp.source.is_stale()
            async with asyncio.timeout(self._seconds if _size(asked.named) > CHUNK else None):  # others never wait
                shown = await pdp.decide(self._drafted(asked.request, asked.named, asked.caller))
        except Exception as error:  # noqa: BLE001  it denies
            self._failed(operation, error, asked.caller)
            return denial
        if shown.decided.failed and pdp.bundle.trino.on_internal_failure == "error":
            self._failed(operation, Unavailable("an engine failed"))
        answer = encode(shown.answer)
        if fresh and operation in TRINO_OPERATIONS and not shown.decided.failed:
            key = (asked.endpoint, asked.caller, asked.body)
            self._answers.keep(*made_of, key, len(asked.body), CachedAnswer(shown, answer))
        return answer

    def _failed(self, operation: str, error: Exception, unrecorded: Caller | None = None) -> None:
        """Count, log and record a failure of ours; as configured, or where it is the request's, an error is raised."""
        if isinstance(error, InvalidArgument | Forbidden):
            raise error
        self._pdp.telemetry.trino_failures.inc()
        self._complaints.say(operation, error)
        if unrecorded:
            self._pdp.record_failure(Batch("trino", unrecorded, 1, (), {0: _UNANSWERED}))
        if self._pdp.bundle.trino.on_internal_failure == "error":
            raise Unavailable("no decision could be made, see the service's log") from None

    def _drafted(self, request: OpaInput, named: list[ResourceName] | TableBatch, caller: Caller) -> Batch:
        made = BatchBuilder(caller)
        identity = request.context.identity
        names = self._current_names()
        try:
            principal = names.principal(identity.user, identity.groups or ())
        except InvalidArgument as error:
            for _ in range(_size(named)):
                made.reject(Rejected(error.code, str(error)))
            return made.batch("trino")
        query = request.context.query_id or ""
        query = query if is_id(query) else ""
        user = self._queries.other_user(caller.name, query, principal.id) if query else ""
        check = Check(principal, TRINO_PREFIX + request.action.operation, (), (), query_id=query, query_user=user)
        if isinstance(named, TableBatch):
            for siblings, at in named.parts:
                made.siblings(check, siblings, at)
        else:
            made.spread(check, _resources(names, request.action, named))
        return made.batch("trino")

    def _in_columns(self, tables: CatalogTables) -> TableBatch | None:
        """The tables as columns, where all are plain tables in a warehouse."""
        names = self._current_names()
        parts: list[tuple[Siblings, Sequence[int]]] = []
        try:
            for column in tables.columns:
                siblings = names.tables(tables.catalog, column.schema, column.names)
                if siblings is None:
                    return None
                parts.append((siblings, column.at))
        except InvalidArgument:
            return None
        return TableBatch(parts, tables.size)

    def _current_names(self) -> Names:
        """The names of the current bundle, with what they remember of schemas."""
        bundle = self._pdp.bundle
        if self._names.trino is not bundle.trino:
            self._names = Names(bundle.trino, bundle.warehouses)
        return self._names

    def _note_operation(self, operation: str) -> None:
        """Name an unknown operation in the log once; the memory of it is bounded."""
        if operation in TRINO_OPERATIONS:
            return
        self._pdp.telemetry.unknown_operations.inc()
        name = operation[:100]
        if name not in self._unknown and len(self._unknown) < 100:
            self._unknown.add(name)
            log.warning("unknown trino operation denied", operation=name)


def _size(named: list[ResourceName] | TableBatch) -> int:
    return named.size if isinstance(named, TableBatch) else len(named)


def _encoded(result: Any) -> bytes:
    return msgspec.json.encode({"result": result})


def _expression(predicate: Predicate) -> dict[str, str]:
    """A filter or mask as Trino takes it."""
    identity = {"identity": predicate.identity} if predicate.identity else {}
    return {"expression": predicate.expression, **identity}


def _resources(names: Names, action: OpaAction, named: list[ResourceName]) -> Iterator[Resource | Rejected]:
    for resource in named:
        try:
            table = resource.table
            if table and not action.resource:
                yield names.table(table.catalog_name, table.schema_name, table.table_name)
            else:
                yield _with_arguments(_resource(names, resource), names, action, resource)
        except InvalidArgument as error:
            yield Rejected(error.code, str(error))


def _resource(names: Names, named: ResourceName) -> Resource:
    if table := named.table or named.column:
        return names.table(table.catalog_name, table.schema_name, table.table_name)
    if schema := named.schema:
        return names.schema(schema.catalog_name, schema.schema_name)
    if catalog := named.catalog:
        return names.catalog(catalog.name)
    if user := named.user:
        return names.user(user.user)
    if function := named.function:
        return names.function(function.catalog_name or "", function.schema_name or "", function.function_name)
    if system := named.system_session_property:
        return names.session_property("", system.name)
    if of_catalog := named.catalog_session_property:
        return names.session_property(of_catalog.catalog_name, of_catalog.property_name)
    return Resource("server")


def _with_arguments(resource: Resource, names: Names, action: OpaAction, named: ResourceName) -> Resource:
    given: dict[str, Any] = {}
    body = named.table or named.schema
    if body and body.properties:
        given["properties"] = body.properties
    if named.table and named.table.columns:
        given["columns"] = named.table.columns
    if named.table and named.function:
        given["procedure"] = named.function.function_name
    if action.grantee:
        given["grantee"] = {"type": action.grantee.type, "name": action.grantee.name}
    destination = _resource(names, action.target_resource) if action.target_resource else None
    if not given and destination is None:
        return resource
    arguments = Arguments(destination=destination, given=given)
    return replace(resource, arguments=arguments)
