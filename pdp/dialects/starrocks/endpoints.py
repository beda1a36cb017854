"""Endpoints for the OPA access controller of StarRocks: a check, the row filter of a table, and masks of columns.

StarRocks reads an error as a denial, and a result of null, or no row filter, as all rows and values. So an endpoint
answers one operation, and unmapped names are denied or hidden. StarRocks applies filters and masks to queries, and not
to writes and exports. Source: StarRocks pull request 77386. Must not know rules of engines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from pdp.config.warehouses import StarrocksSettings, WarehouseSettings
from pdp.decision.codec import bound_checks
from pdp.decision.service import BatchResult, Pdp
from pdp.decision.turns import converted, run_aside
from pdp.dialects.opa import OpaDialect, OpaDocument
from pdp.engines.known_names import reads_table_reference
from pdp.errors import AmbiguousName, InvalidArgument
from pdp.facts.objects import fold_column, fold_name
from pdp.identity.evidence import admit, without_inspection
from pdp.model.answer import Predicate, Rejection, TypedColumn
from pdp.model.question import Batch, BatchRequest, Caller, Check, Principal, Question, Resource
from pdp.model.references import bound_claims, check_part, check_path, is_id
from pdp.model.strict import decode
from pdp.surfaces.admission import BodyLimits
from pdp.surfaces.http.answers import EndpointAnswer
from pdp.surfaces.http.handlers import HttpHandlers, Routes

SURFACE: Final = "starrocks"
MOST_COLUMNS: Final = 10_000
"""Columns of one request."""
_CHECK: Final = "check"
_CHECK_IN_DATABASE: Final = "check_action_in_db"
"""Question for a right on any object of a database. It names no object, so it is denied."""
_FILTERS, _MASK, _MASKS = "get_row_filters", "get_column_mask", "get_column_masks"
_TEXT_TYPES: Final = re.compile(r"\s*(?:varchar|string|text)\s*", re.IGNORECASE)
_TEXT: Final = "varchar"


class StarrocksStep(NamedTuple):
    """Check of a privilege. `type` replaces the type of the object.

    `is_whole`: StarRocks applies no filters and masks, so all rows and columns are needed.
    """

    action: str
    type: str = ""
    is_whole: bool = False


_READ: Final = (StarrocksStep("read_data", "table_or_view"),)
_WRITE: Final = (StarrocksStep("write_data", is_whole=True),)
_CHANGE: Final = (StarrocksStep("commit"), StarrocksStep("rename"))
_SEE: Final = (StarrocksStep("include_in_list"),)
PRIVILEGES: Final[Mapping[tuple[str, str], tuple[StarrocksStep, ...]]] = {
    ("CATALOG", "ANY"): (StarrocksStep("use"),),
    ("CATALOG", "USAGE"): (StarrocksStep("use"),),
    ("CATALOG", "CREATE DATABASE"): (StarrocksStep("create_namespace"),),
    ("DATABASE", "ANY"): _SEE,
    ("DATABASE", "CREATE TABLE"): (StarrocksStep("create_table"),),
    ("DATABASE", "CREATE VIEW"): (StarrocksStep("create_view"),),
    ("DATABASE", "DROP"): (StarrocksStep("delete"),),
    ("TABLE", "ANY"): (StarrocksStep("include_in_list", "table_or_view"),),
    ("TABLE", "SELECT"): _READ,
    ("COLUMN", "SELECT"): _READ,
    ("TABLE", "INSERT"): _WRITE,
    ("TABLE", "UPDATE"): _WRITE,
    ("TABLE", "DELETE"): _WRITE,
    ("TABLE", "EXPORT"): (StarrocksStep("read_data", is_whole=True),),
    ("TABLE", "ALTER"): _CHANGE,
    ("TABLE", "DROP"): (StarrocksStep("drop"),),
    ("VIEW", "ANY"): _SEE,
    ("VIEW", "SELECT"): (StarrocksStep("select"),),
    ("VIEW", "ALTER"): _CHANGE,
    ("VIEW", "DROP"): (StarrocksStep("drop"),),
}
"""Type of an object and privilege, as StarRocks names them -> the checks, which must all permit. No other is known."""
_TYPES: Final = {"CATALOG": "warehouse", "DATABASE": "namespace", "TABLE": "table", "COLUMN": "table", "VIEW": "view"}
_NAMES: Final = {"CATALOG": (), "DATABASE": (), "TABLE": ("table",), "COLUMN": ("table", "column"), "VIEW": ("view",)}
"""Type of an object -> the type of a resource, and the keys of its names below a database."""
_NAME: Final = re.compile(r"[A-Za-z_ ]{1,64}")


class _StarrocksBody(msgspec.Struct, omit_defaults=True, gc=False):
    """Base of StarRocks's bodies: unknown keys are ignored. Gson leaves out null."""


class StarrocksObject(_StarrocksBody):
    """An object by names. StarRocks names each type of object under a key of its own."""

    catalog: str | UnsetType | None = UNSET
    database: str | UnsetType | None = UNSET
    table: str | UnsetType | None = UNSET
    column: str | UnsetType | None = UNSET
    view: str | UnsetType | None = UNSET
    system: str | UnsetType | None = UNSET
    materialized_view: str | UnsetType | None = UNSET
    function: str | UnsetType | None = UNSET
    global_function: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    resource: str | UnsetType | None = UNSET
    resource_group: str | UnsetType | None = UNSET
    storage_volume: str | UnsetType | None = UNSET
    pipe: str | UnsetType | None = UNSET
    warehouse: str | UnsetType | None = UNSET

    def names(self) -> dict[str, str]:
        """Return the names by key."""
        given = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in given if isinstance(value, str)}


class StarrocksAction(_StarrocksBody):
    """An operation with its privilege and objects. `filter_resources` are the columns of the table `resource`."""

    operation: str
    privilege: str
    object_type: str = field(name="objectType")
    resource: StarrocksObject
    filter_resources: list[StarrocksObject] | UnsetType | None = field(default=UNSET, name="filterResources")


class StarrocksContext(_StarrocksBody):
    """The user and groups of the session, and the query."""

    user: str
    groups: list[str] | UnsetType | None = UNSET
    query_id: str | UnsetType | None = field(default=UNSET, name="queryId")
    host: str | UnsetType | None = UNSET
    catalog: str | UnsetType | None = UNSET
    database: str | UnsetType | None = UNSET


class StarrocksInput(_StarrocksBody):
    """OPA's input document."""

    context: StarrocksContext
    action: StarrocksAction

    @property
    def operation(self) -> str:
        """Return the name of the operation for records: the privilege and the type of the object, of a check."""
        action = self.action
        return f"{action.privilege} {action.object_type}" if action.operation == _CHECK else action.operation


class StarrocksRequest(_StarrocksBody):
    """The body of every request."""

    input: StarrocksInput


_REQUEST: Final = msgspec.json.Decoder(StarrocksRequest)


def decode_request(body: bytes, *operations: str) -> StarrocksInput:
    """Return the input document of a body; raise InvalidArgument for another operation."""
    input = decode(body, _REQUEST, typed=True).input
    if input.action.operation not in operations:
        raise InvalidArgument(f"this endpoint answers {' and '.join(operations)}")
    if not _NAME.fullmatch(input.action.privilege) or not _NAME.fullmatch(input.action.object_type):
        raise InvalidArgument("`privilege` or `objectType` is no name")
    if groups := input.context.groups:
        bound_claims(groups)
    return input


class StarrocksSurface:
    """Endpoints of the access controller."""

    def __init__(self, pdp: Pdp, settings: StarrocksSettings) -> None:
        self._pdp = pdp
        self._settings = settings

    def routes(self, handlers: HttpHandlers, limits: BodyLimits) -> Routes:
        """Return the four paths of StarRocks's configuration."""
        documents = [
            OpaDocument("starrocks/allow", self._allow, self._allow_now, denial=False),
            OpaDocument("starrocks/rowFilters", self._row_filters, _never_now),
            OpaDocument("starrocks/columnMask", self._column_mask, _never_now),
            OpaDocument("starrocks/batchColumnMasks", self._column_masks, _never_now),
        ]
        return OpaDialect(SURFACE, self._pdp).routes(handlers, documents, limits)

    async def _allow(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return whether a privilege is granted."""
        batch = await converted(body, self._check_batch, caller)
        return _encode_allow(await self._pdp.decide(batch))

    def _allow_now(self, body: bytes, caller: Caller) -> EndpointAnswer | None:
        result = self._pdp.decide_now(self._check_batch(body, caller))
        return None if result is None else _encode_allow(result)

    async def _row_filters(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return the filter of a table; an empty list for all rows."""
        input = await converted(body, decode_request, _FILTERS)
        access = await self._access(input, "TABLE", (), caller)
        return _answer([{"expression": access.rows}] if access.rows else [], access.id)

    async def _column_mask(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return the mask of a column; null for its values."""
        input = await converted(body, decode_request, _MASK)
        column = input.action.resource.column
        if not column:
            raise InvalidArgument(f"{_MASK} takes a column")
        access = await self._access(input, "COLUMN", [column], caller)
        return _answer({"expression": access.masks[0]} if access.masks[0] else None, access.id)

    async def _column_masks(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return the masks of columns of one table, with the names of the columns."""
        input = await converted(body, decode_request, _MASKS)
        named = input.action.filter_resources or []
        bound_checks(len(named), MOST_COLUMNS)
        columns = _columns_of(named, input.action.resource)
        access = await self._access(input, "TABLE", columns, caller)
        masks = zip(columns, access.masks, strict=True)
        return _answer([{"column": column, "expression": mask} for column, mask in masks if mask], access.id)

    def _check_batch(self, body: bytes, caller: Caller) -> Batch:
        """Return the admitted checks of a privilege; one rejected position for an unknown privilege."""
        input = decode_request(body, _CHECK, _CHECK_IN_DATABASE)
        key = (input.action.object_type, input.action.privilege)
        steps = PRIVILEGES.get(key, ()) if input.action.operation == _CHECK else ()
        if not steps:
            unknown = Rejection("unknown_action", f"`{input.operation}` is granted to nobody")
            return Batch(SURFACE, caller, 1, (), {0: unknown}, operation=input.operation)
        return self._batch(input, steps, input.action.object_type, caller)

    def _batch(self, input: StarrocksInput, steps: Sequence[StarrocksStep], type: str, caller: Caller) -> Batch:
        """Return the admitted checks of steps on the object of a request; one rejected position for no such object."""
        names = _Names(self._settings, self._pdp.bundle.warehouses)
        query = input.context.query_id or ""
        try:
            principal = names.principal(input.context, caller)
            resource = names.resource(type, input.action.resource)
        except InvalidArgument as error:
            rejected = Rejection(error.code, str(error))
            return Batch(SURFACE, caller, 1, (), {0: rejected}, operation=input.operation)
        checks = tuple(
            Check(
                Question(principal, step.action, unfiltered=step.is_whole),
                (replace(resource, type=step.type or resource.type),),
                (at,),
                query if is_id(query) else "",
            )
            for at, step in enumerate(steps)
        )
        batch = admit(BatchRequest(SURFACE, len(checks), checks, {}), without_inspection(caller))
        return replace(batch, operation=input.operation)

    async def _access(self, input: StarrocksInput, type: str, columns: Sequence[str], caller: Caller) -> _Access:
        """Return the visible part of the table of a request as SQL of StarRocks. `type`: the object's."""
        batch = self._batch(input, _READ, type, caller)
        types = self._types(batch)
        asked = [TypedColumn(column, _type_of(column, types)) for column in columns]
        view, id = await self._pdp.restrict_many(batch, asked)
        filters = [each.expression for each in (view.rows, view.more_rows) if each]
        if not filters and not any(view.masks):
            return _Access("", [""] * len(asked), id)
        rows, masks = await run_aside(_as_starrocks, filters, view.masks, types)
        return _Access(rows, masks, id)

    def _types(self, batch: Batch) -> Mapping[str, str]:
        """Return the types of the columns that files describe, of the table of a batch."""
        if not batch.checks:
            return {}
        (table,) = batch.checks[0].resources
        return self._pdp.bundle.row_access.described.columns.get(fold_name(table.warehouse, table.path), {})


class _Access(NamedTuple):
    """Visible part of a table in SQL of StarRocks: an empty filter for all rows, and an empty mask for a value."""

    rows: str
    masks: Sequence[str]
    id: str


class _Names:
    """Names of StarRocks as principals and resources."""

    def __init__(self, settings: StarrocksSettings, warehouses: Mapping[str, WarehouseSettings]) -> None:
        self._settings = settings
        self._warehouses = warehouses

    def principal(self, context: StarrocksContext, caller: Caller) -> Principal:
        """Return the principal of a session. StarRocks sends no attributes, and roles as groups alone."""
        settings, groups = self._settings, tuple(context.groups or ())
        name = settings.user_prefix + check_part(context.user)
        roles = tuple(dict.fromkeys(role for group in groups if (role := settings.groups.get(group))))
        unknown = {"attributes"} if settings.groups else {"attributes", "roles"}
        if context.groups is UNSET or context.groups is None:
            unknown |= {"groups", "roles"}
        return Principal("user", name, roles, groups, member_of=roles, unknown=tuple(sorted(unknown - caller.empty)))

    def resource(self, type: str, object: StarrocksObject) -> Resource:
        """Return the resource of an object; raise InvalidArgument for other names than the type has.

        StarRocks sends `*` for any object, which names none.
        """
        keys = ("catalog", *(() if type == "CATALOG" else ("database", *_NAMES[type])))
        names = object.names()
        if names.keys() != {*keys}:
            raise InvalidArgument(f"a {type} has the names {', '.join(keys)}")
        catalog, *inside = (names[key] for key in keys if key != "column")
        warehouse = self._settings.catalogs.get(catalog)
        if warehouse is None:
            raise InvalidArgument("a catalog is none of `starrocks.catalogs`")
        if not inside:
            return Resource("warehouse", warehouse)
        database, *last = inside
        if "*" in names.values():
            raise InvalidArgument("`*` names no object")
        if last and reads_table_reference(self._warehouses.get(warehouse), last[0]):
            raise AmbiguousName(f"`{last[0]}` may be a table reference of Nessie's")
        kind = _TYPES[type]
        return Resource(kind, warehouse, check_path(kind, (*database.split("."), *last)))


def _columns_of(named: Sequence[StarrocksObject], table: StarrocksObject) -> list[str]:
    """Return the columns of a table; raise InvalidArgument for none, and for anything else."""
    place = table.names()
    columns = [each.column for each in named if each.column and each.names() == {**place, "column": each.column}]
    if not columns or len(columns) < len(named):
        raise InvalidArgument("`filterResources` takes columns of the table of `resource`")
    return columns


def _type_of(column: str, types: Mapping[str, str]) -> str:
    """Return the type of a known text column, whose mask may be a constant; empty for any other column."""
    return _TEXT if _TEXT_TYPES.fullmatch(types.get(fold_column(column), "")) else ""


def _as_starrocks(
    filters: Sequence[str], masks: Sequence[Predicate | None], types: Mapping[str, str]
) -> tuple[str, Sequence[str]]:
    """Return the filter and masks as SQL of StarRocks. Rows pass all filters."""
    from pdp.dialects.starrocks.sql import starrocks_filter, starrocks_mask  # noqa: PLC0415  its parser takes 30 MB

    rows = " AND ".join(starrocks_filter(each, types) for each in filters)
    return rows, [starrocks_mask(mask.expression) if mask else "" for mask in masks]


def _never_now(body: bytes, caller: Caller) -> EndpointAnswer | None:
    """Return None: SQL is translated beside the event loop."""
    return None


def _encode_allow(result: BatchResult) -> EndpointAnswer:
    """Return true if all checks permit."""
    allowed = result.answer.allowed
    return _answer(bool(allowed) and 0 not in allowed, result.answer.id)


def _answer(result: object, id: str) -> EndpointAnswer:
    return EndpointAnswer(msgspec.json.encode({"result": result}), id)
