"""Trino's OPA plugin: its request bodies to checks, decisions to the answers it accepts.

Only maps. Trino takes an undefined answer as an error, or as no filter at all, so every answer here is definite: on
an internal failure it denies. Unknown fields are ignored: newer Trinos send more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from operator import attrgetter
from typing import Any, Final

import msgspec
import structlog
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from pdp.codec import Draft, bound_checks
from pdp.errors import InvalidArgument, PdpError
from pdp.model import Answer, Arguments, Caller, Check, Rejected, Resource, Siblings
from pdp.references import is_id
from pdp.service import Pdp
from pdp.strict_json import decode, parse, refuse_duplicates
from pdp.surfaces.http import Endpoints, Routes
from pdp.trino import Names
from pdp.vocabulary import TRINO_OPERATIONS, TRINO_PREFIX

log = structlog.get_logger()


class _Body(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    pass


class TableName(_Body):
    """A table or view."""

    catalog_name: str
    schema_name: str
    table_name: str
    columns: list[str] | UnsetType | None = UNSET
    properties: dict[str, Any] | UnsetType | None = UNSET


class SchemaName(_Body):
    """A schema."""

    catalog_name: str
    schema_name: str
    properties: dict[str, Any] | UnsetType | None = UNSET


class CatalogName(_Body):
    """A catalog."""

    name: str


class ColumnName(_Body):
    """A column, for masks."""

    catalog_name: str
    schema_name: str
    table_name: str
    column_name: str
    column_type: str


class UserName(_Body):
    """A user, as the object of an operation."""

    user: str
    groups: list[str] | UnsetType = UNSET


class FunctionName(_Body):
    """A function or procedure; a table procedure has a name alone."""

    catalog_name: str | UnsetType = UNSET
    schema_name: str | UnsetType = UNSET
    function_name: str = ""


class SystemProperty(_Body):
    """A session property of Trino itself."""

    name: str


class CatalogProperty(_Body):
    """A session property of a catalog."""

    catalog_name: str
    property_name: str


class Named(_Body):
    """A resource: one of these, or a table and a procedure side by side."""

    function: FunctionName | UnsetType = UNSET
    table: TableName | UnsetType = UNSET
    schema: SchemaName | UnsetType = UNSET
    catalog: CatalogName | UnsetType = UNSET
    column: ColumnName | UnsetType = UNSET
    user: UserName | UnsetType = UNSET
    system_session_property: SystemProperty | UnsetType = UNSET
    catalog_session_property: CatalogProperty | UnsetType = UNSET


class Grantee(_Body):
    """To whom an object is handed over."""

    type: str
    name: str


class Action(_Body):
    """What is asked."""

    operation: str
    resource: Named | UnsetType = UNSET
    filter_resources: list[Named] | UnsetType = UNSET
    target_resource: Named | UnsetType = UNSET
    grantee: Grantee | UnsetType = UNSET


class TrinoIdentity(_Body):
    """Who asked Trino."""

    user: str
    groups: tuple[str, ...] | UnsetType = UNSET


class SoftwareStack(_Body):
    """Which Trino asks."""

    trino_version: str | UnsetType = UNSET


class Context(_Body):
    """The circumstances."""

    identity: TrinoIdentity
    software_stack: SoftwareStack | UnsetType = UNSET
    query_id: str | UnsetType = UNSET


class Input(_Body):
    """OPA's input document."""

    context: Context
    action: Action


class OpaRequest(_Body):
    """The body of every request."""

    input: Input


_REQUEST: Final = msgspec.json.Decoder(OpaRequest)
_ALLOW: Final = {True: b'{"result":true}', False: b'{"result":false}'}
_NOTHING: Final = b'{"result":[]}'
_TABLE_NAME: Final = attrgetter("table.table_name")
_END: Final = '"}}'
_BETWEEN: Final = _END + ","
_NO_MASK: Final = b"{}"


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
            f"/v1/data/trino/{path}": ("POST", endpoints.route("trino", endpoint, max_body))
            for path, endpoint in paths.items()
        }

    async def allow(self, body: bytes, caller: Caller) -> bytes:
        """One decision."""
        request = decode(body, _REQUEST, typed=True).input
        action = request.action
        resource = action.resource or Named()
        answer = await self._decide(request, [resource], caller)
        return _ALLOW[answer is not None and answer.allowed == b"\x01"]

    async def batch(self, body: bytes, caller: Caller) -> bytes:
        """The indices of what is allowed."""
        whole = parse(body, _REQUEST)
        tables = names_of_one_schema(whole, body)
        if tables is None and msgspec.json.encode(whole) != body:
            refuse_duplicates(body)
        request = whole.input
        named = request.action.filter_resources or []
        bound_checks(len(named), self._max_resources)
        if request.action.operation == "FilterColumns":
            return await self._columns(request, named, caller)
        answer = await self._decide(request, named, caller, tables)
        if answer is None:
            return _NOTHING
        return msgspec.json.encode({"result": list(compress(range(len(named)), answer.allowed))})

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

    async def _columns(self, request: Input, named: list[Named], caller: Caller) -> bytes:
        """FilterColumns asks about one table; the answer points into its columns, which share its decision."""
        if len(named) != 1 or not named[0].table:
            raise InvalidArgument("FilterColumns takes exactly one table in `filterResources`")
        columns = named[0].table.columns or []
        answer = await self._decide(request, named, caller)
        if answer is None or not answer.allowed[0]:
            return _NOTHING
        return msgspec.json.encode({"result": list(range(len(columns)))})

    async def _decide(
        self, request: Input, named: list[Named], caller: Caller, tables: list[str] | None = None
    ) -> Answer | None:
        """The decisions on the named resources; None where none could be made, which denies."""
        self._note_operation(request.action.operation)
        try:
            made = Draft(caller)
            self._draft(made, request, named, tables)
            return await self._pdp.check(made.batch("trino"))
        except PdpError:
            raise
        except Exception:
            log.exception("trino request failed, denied", operation=request.action.operation)
            return None

    def _draft(self, made: Draft, request: Input, named: list[Named], tables: list[str] | None) -> None:
        identity = request.context.identity
        names = self._current_names()
        try:
            principal = names.principal(identity.user, identity.groups or ())
        except InvalidArgument as error:
            for _ in named:
                made.reject(Rejected(error.code, str(error)))
            return
        query = request.context.query_id or ""
        query = query if is_id(query) else ""
        check = Check(principal, TRINO_PREFIX + request.action.operation, (), (), query_id=query)
        siblings = _siblings(names, named[0], tables) if tables else None
        if siblings:
            made.siblings(check, siblings)
        else:
            made.spread(check, _resources(names, request.action, named))

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


def _expect(body: bytes, operation: str) -> None:
    found = decode(body, _REQUEST, typed=True).input.action.operation
    if found != operation:
        raise InvalidArgument(f"this endpoint answers {operation}, not `{found}`")


def names_of_one_schema(request: OpaRequest, body: bytes) -> list[str] | None:
    """The table names of a body that is, byte for byte, what Trino writes for tables of one schema; None otherwise.

    Such a body is printable ASCII without escapes, and holds nothing that is not read.
    """
    items = request.input.action.filter_resources
    if not items or request.input.action.operation != "FilterTables" or not items[0].table:
        return None
    if not body.isascii() or b"\\" in body or b"\x7f" in body:
        return None
    try:
        names = list(map(_TABLE_NAME, items))
    except AttributeError:  # something among them is no table
        return None
    lone = replace(request, input=replace(request.input, action=_with_first_alone(request.input.action)))
    item = msgspec.json.encode(items[0]).decode()
    start = item.removesuffix(names[0] + _END)
    head, _, tail = msgspec.json.encode(lone).decode().partition(item)
    rebuilt = f"{head}{start}{(_BETWEEN + start).join(names)}{_END}{tail}"
    return names if rebuilt.encode() == body else None


def _with_first_alone(action: Action) -> Action:
    return replace(action, filter_resources=(action.filter_resources or [])[:1])


def _siblings(names: Names, first: Named, tables: list[str]) -> Siblings | None:
    """The tables of a filter as one column, where they are in a warehouse."""
    if not first.table:
        return None
    try:
        return names.tables(first.table.catalog_name, first.table.schema_name, tables)
    except InvalidArgument:
        return None


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
