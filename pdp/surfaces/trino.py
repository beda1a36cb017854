"""Trino's OPA plugin: its request bodies to checks, decisions to the answers it accepts.

Only maps. Trino takes an undefined answer as an error, or as no filter at all, so every answer here is definite: on
an internal failure it denies. Unknown fields are ignored: newer Trinos send more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

from pdp.codec import Draft, bound_checks
from pdp.errors import InvalidArgument, PdpError
from pdp.model import Answer, Arguments, Caller, Check, Rejected, Resource, Siblings
from pdp.references import is_id
from pdp.service import Pdp
from pdp.strict_json import decode
from pdp.surfaces.http import Endpoints, Routes
from pdp.surfaces.trino_bodies import REQUEST, Action, Input, Named, Tables, read_tables
from pdp.trino import Names
from pdp.vocabulary import TRINO_OPERATIONS, TRINO_PREFIX

log = structlog.get_logger()

_ALLOW: Final = {True: b'{"result":true}', False: b'{"result":false}'}
_NOTHING: Final = b'{"result":[]}'
_NO_MASK: Final = b"{}"


class Columns(NamedTuple):
    """Many tables as columns of siblings, with their positions; `size` of them in all."""

    parts: list[tuple[Siblings, Sequence[int]]]
    size: int


class TrinoSurface:
    """The endpoints of one service. `max_resources` bounds one batch."""

    def __init__(self, pdp: Pdp, max_resources: int) -> None:
        self._pdp = pdp
        self._max_resources = max_resources
        self._unknown: set[str] = set()
        self._names = Names(pdp.bundle.trino, pdp.bundle.warehouses)

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
        request = decode(body, REQUEST, typed=True).input
        action = request.action
        resource = action.resource or Named()
        answer = await self._decide(request, [resource], caller)
        return _ALLOW[answer is not None and answer.allowed == b"\x01"]

    async def batch(self, body: bytes, caller: Caller) -> bytes:
        """The indices of what is allowed."""
        tables = read_tables(body)
        columns = self._in_columns(tables) if tables else None
        if tables and columns:
            return await self._filter(Input(tables.context, Action("FilterTables")), columns, caller)
        request = decode(body, REQUEST, typed=True).input
        named = request.action.filter_resources or []
        if request.action.operation == "FilterColumns":
            return await self._columns(request, named, caller)
        return await self._filter(request, named, caller)

    async def row_filters(self, body: bytes, caller: Caller) -> bytes:
        """No filter: no row access policy can be configured."""
        _expect(body, "GetRowFilters")
        return _NOTHING

    async def column_mask(self, body: bytes, caller: Caller) -> bytes:
        """No mask: no mask can be configured."""
        _expect(body, "GetColumnMask")
        return _NO_MASK

    async def batch_column_masks(self, body: bytes, caller: Caller) -> bytes:
        """No masks: no mask can be configured."""
        _expect(body, "GetColumnMask")
        return _NOTHING

    async def _filter(self, request: Input, named: list[Named] | Columns, caller: Caller) -> bytes:
        size = _size(named)
        bound_checks(size, self._max_resources)
        answer = await self._decide(request, named, caller)
        if answer is None:
            return _NOTHING
        return msgspec.json.encode({"result": list(compress(range(size), answer.allowed))})

    async def _columns(self, request: Input, named: list[Named], caller: Caller) -> bytes:
        """FilterColumns asks about one table; the answer points into its columns, which share its decision."""
        if len(named) != 1 or not named[0].table:
            raise InvalidArgument("FilterColumns takes exactly one table in `filterResources`")
        columns = named[0].table.columns or []
        answer = await self._decide(request, named, caller)
        if answer is None or not answer.allowed[0]:
            return _NOTHING
        return msgspec.json.encode({"result": list(range(len(columns)))})

    async def _decide(self, request: Input, named: list[Named] | Columns, caller: Caller) -> Answer | None:
        """The decisions on the named resources; None where none could be made, which denies."""
        self._note_operation(request.action.operation)
        try:
            made = Draft(caller)
            self._draft(made, request, named)
            return await self._pdp.check(made.batch("trino"))
        except PdpError:
            raise
        except Exception:
            log.exception("trino request failed, denied", operation=request.action.operation)
            return None

    def _draft(self, made: Draft, request: Input, named: list[Named] | Columns) -> None:
        identity = request.context.identity
        names = self._current_names()
        try:
            principal = names.principal(identity.user, identity.groups or ())
        except InvalidArgument as error:
            for _ in range(_size(named)):
                made.reject(Rejected(error.code, str(error)))
            return
        query = request.context.query_id or ""
        query = query if is_id(query) else ""
        check = Check(principal, TRINO_PREFIX + request.action.operation, (), (), query_id=query)
        if isinstance(named, Columns):
            for siblings, at in named.parts:
                made.siblings(check, siblings, at)
        else:
            made.spread(check, _resources(names, request.action, named))

    def _in_columns(self, tables: Tables) -> Columns | None:
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
        return Columns(parts, tables.size)

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


def _size(named: list[Named] | Columns) -> int:
    return named.size if isinstance(named, Columns) else len(named)


def _expect(body: bytes, operation: str) -> None:
    found = decode(body, REQUEST, typed=True).input.action.operation
    if found != operation:
        raise InvalidArgument(f"this endpoint answers {operation}, not `{found}`")


def _resources(names: Names, action: Action, named: list[Named]) -> Iterator[Resource | Rejected]:
    for resource in named:
        try:
            table = resource.table
            if table and not action.resource:
                yield names.table(table.catalog_name, table.schema_name, table.table_name)
            else:
                yield _with_arguments(_resource(names, resource), names, action, resource)
        except InvalidArgument as error:
            yield Rejected(error.code, str(error))


def _resource(names: Names, named: Named) -> Resource:
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


def _with_arguments(resource: Resource, names: Names, action: Action, named: Named) -> Resource:
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
