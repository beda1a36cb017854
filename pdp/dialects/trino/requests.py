"""Requests of Trino's plugin: bodies to requests for batches, within limits.

Remembers the ExecuteQuery of each query: its owner, for the audit alone, and its user, for policies behind views. Must
not know decisions, answers or routes.

Trino asks for the rows behind a view as the owner of the view, and names the query, not the user. A query is known to
the process that allowed its ExecuteQuery. Two users of one query make the query unknown. A request that the caller may
not make is not remembered: the caller could name any user.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from pdp.decision.batch_builder import BatchBuilder
from pdp.decision.bodies import read_values
from pdp.decision.path_arrays import bound_repeated, shared_message
from pdp.decision.service import Pdp
from pdp.decision.turns import run_aside
from pdp.dialects.trino.bodies import REQUEST, OpaAction, OpaInput, ResourceName
from pdp.dialects.trino.name_lists import (
    PlacedColumn,
    TableList,
    decode_table_list,
    refuse_duplicates_in,
    rows_left,
    schema_columns,
    table_columns,
)
from pdp.dialects.trino.names import Names
from pdp.errors import InvalidArgument, TooManyChecks
from pdp.model.answer import Rejection
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import (
    Arguments,
    Batch,
    BatchRequest,
    Caller,
    Check,
    Principal,
    QuerySession,
    Question,
    Resource,
)
from pdp.model.references import bound_claims, check_part, is_id
from pdp.model.strict import decode
from pdp.model.trino_operations import TRINO_PREFIX

V = TypeVar("V")

_BASE_OBJECTS: Final = 1000
_OBJECTS_PER_RESOURCE: Final = 3
"""JSON objects in a body as Trino writes it: outside of the resources (properties included), and per resource."""
_FIRST: Final = range(1)


class _Question(NamedTuple):
    """The principal, the action, the query, the owner of the query, and the session of the query if it counts."""

    principal: Principal
    action: str
    query: str
    user: str
    session: QuerySession | None


_table_of: Final = attrgetter("table")
_schema_of: Final = attrgetter("schema")


class TrinoRequest(NamedTuple):
    """A decoded body: the context and action, and the resources to decide on in the order of the answer.

    `tables` takes the place of `resources` if these are a long list of tables.
    """

    input: OpaInput
    resources: list[ResourceName]
    tables: TableList | None = None

    @property
    def operation(self) -> str:
        """Return the name of Trino's operation."""
        return self.input.action.operation

    @property
    def size(self) -> int:
        """Return the number of resources."""
        return len(self.resources) if self.tables is None else len(self.tables.names)


class RequestDecoder:
    """Decoding of bodies. `max_resources` bounds the resources of one body."""

    def __init__(self, pdp: Pdp, max_resources: int) -> None:
        self._pdp = pdp
        self._max_resources = max_resources
        self._most_objects = _BASE_OBJECTS + _OBJECTS_PER_RESOURCE * max_resources
        self._names = Names(pdp.bundle.trino, pdp.bundle.warehouses)
        self._query_owners = QueryOwners()
        self._query_sessions = QuerySessions()

    def decode(self, body: bytes) -> OpaInput:
        """Return the input document of a body; raise InvalidArgument or TooManyChecks."""
        self._check_objects(body)
        return _bounded(decode(body, REQUEST, typed=True).input)

    def decode_batch(self, body: bytes) -> TrinoRequest:
        """Return the request of a body of the endpoint `batch`; raise as `decode` does."""
        self._check_objects(body)
        listed = decode_table_list(body)
        if listed is None:
            input = _bounded(decode(body, REQUEST, typed=True).input)
            return TrinoRequest(input, input.action.filter_resources or [])
        refuse_duplicates_in(body, listed)
        return TrinoRequest(_bounded(listed.input), [], listed.tables)

    def to_batch_request(self, request: TrinoRequest, caller: Caller) -> BatchRequest:
        """Return the checks of a request; an invalid name rejects only the position of that name.

        The checks name the owner of the caller's query, for the audit.
        """
        names = self._current_names()
        question = self._question(names, request, caller)
        return question if isinstance(question, BatchRequest) else _with_resources(names, request, question)

    async def to_long_batch_request(self, request: TrinoRequest, caller: Caller) -> BatchRequest:
        """Return the same for a long list of resources, which a thread reads with names of its own."""
        names = Names(self._pdp.bundle.trino, self._pdp.bundle.warehouses)
        question = self._question(names, request, caller)
        if isinstance(question, BatchRequest):
            return question
        return await run_aside(_with_resources, names, request, question)

    def remember_owner(self, batch: Batch) -> Batch:
        """Remember the principal of an admitted batch as the owner of the query, and return the batch."""
        for check in batch.checks[:1]:
            if check.query_id and not check.query_user and not check.question.inspected:
                self._query_owners.keep_first(batch.caller, check.query_id, check.question.principal.id)
        return batch

    def remember_user(self, batch: Batch) -> None:
        """Remember the principal of an allowed ExecuteQuery as the user of the query."""
        for check in batch.checks:
            if check.query_id and not check.question.inspected and self._pdp.bundle.looks_through_views:
                self._query_sessions.execute(batch.caller, check.query_id, check.question.principal)

    def _question(self, names: Names, request: TrinoRequest, caller: Caller) -> _Question | BatchRequest:
        """Return what all resources of a request share; a request whose principal is invalid is rejected."""
        context, action = request.input.context, request.input.action
        if action.grantee or action.target_resource:
            bound_repeated(_shared_length(action), request.size)
        try:
            principal = names.principal(context.identity.user, context.identity.groups or ())
        except InvalidArgument as error:
            rejected = Rejection(error.code, shared_message(error))
            return BatchRequest("trino", request.size, (), dict.fromkeys(range(request.size), rejected))
        query, user = context.query_id or "", ""
        if query:
            query = query if is_id(query) else ""
            user = self._query_owners.other_user(caller, query, principal.id) if query else ""
        session = None
        if self._pdp.bundle.looks_through_views and action.operation != EXECUTE_QUERY:
            session = self._query_sessions.session(caller, query)
        return _Question(principal, TRINO_PREFIX + action.operation, query, user, session)

    def _check_objects(self, body: bytes) -> None:
        """Raise TooManyChecks before the decoding of a body with too many resources."""
        if len(body) > self._most_objects and body.count(b"{") > self._most_objects:
            raise TooManyChecks(f"more than {self._max_resources} resources in one request")

    def _current_names(self) -> Names:
        """Return the names of the current bundle, with their memory of schemas."""
        bundle = self._pdp.bundle
        if self._names.trino is not bundle.trino:
            self._names = Names(bundle.trino, bundle.warehouses)
        return self._names


def _bounded(input: OpaInput) -> OpaInput:
    """Return the input; raise InvalidArgument for too many groups of the user, or a long name of the operation."""
    if groups := input.context.identity.groups:
        bound_claims(groups)
    check_part(input.action.operation)
    return input


def _with_resources(names: Names, request: TrinoRequest, question: _Question) -> BatchRequest:
    """Return a request with a question about its resources."""
    principal, action, query, user, session = question
    if len(request.resources) == 1:
        resource = _read(names, request.input.action, request.resources[0])
        if not isinstance(resource, Rejection):
            check = Check(
                Question(principal, action, session=session), (resource,), _FIRST, query_id=query, query_user=user
            )
            return BatchRequest("trino", 1, (check,), {})
    builder = BatchBuilder()
    check = Check(Question(principal, action, session=session), (), (), query_id=query, query_user=user)
    _add_resources(builder, check, names, request)
    return builder.request("trino")


def _shared_length(action: OpaAction) -> int:
    """Return the bytes of an action that all resources share as their arguments. Trino shares none in a list."""
    return sum(len(msgspec.json.encode(shared)) for shared in (action.grantee, action.target_resource) if shared)


def _add_resources(builder: BatchBuilder, check: Check, names: Names, request: TrinoRequest) -> None:
    """Add a question about the resources of a request: plain names of a list as columns, all others one by one."""
    action, named = request.input.action, request.resources
    if request.tables is not None:
        _add_tables(builder, check, names, request.tables)
        return
    if action.resource:
        builder.add_resources(check, [_read(names, action, name) for name in named])
        return
    columns: list[PlacedColumn] = []
    if all(tables := list(map(_table_of, named))):
        columns = table_columns(names, TableList.of(tables))
    elif all(map(_is_bare_schema, named)) and not (action.grantee or action.target_resource):
        columns = schema_columns(names, list(map(_schema_of, named)))
    for column in columns:
        builder.add_column(check, *column)
    rows = list(rows_left(columns, len(named)))
    builder.add_resources(check, [_read(names, action, named[row]) for row in rows], rows)


def _add_tables(builder: BatchBuilder, check: Check, names: Names, tables: TableList) -> None:
    """Add a question about a list of tables."""
    columns = table_columns(names, tables)
    for column in columns:
        builder.add_column(check, *column)
    rows = list(rows_left(columns, len(tables.names)))
    builder.add_resources(check, [_read_table(names, *(column[row] for column in tables)) for row in rows], rows)


def _read_table(names: Names, catalog: str, schema: str, table: str) -> Resource | Rejection:
    try:
        return names.table(catalog, schema, table)
    except InvalidArgument as error:
        return Rejection(error.code, str(error))


def _is_bare_schema(name: ResourceName) -> bool:
    return bool(name.schema and not (name.table or name.column or name.schema.properties))


def _read(names: Names, action: OpaAction, name: ResourceName) -> Resource | Rejection:
    table = name.table
    if table and not action.resource:
        return _read_table(names, table.catalog_name, table.schema_name, table.table_name)
    try:
        return _with_arguments(_resource(names, name), names, action, name)
    except InvalidArgument as error:
        return Rejection(error.code, str(error))


def _resource(names: Names, name: ResourceName) -> Resource:
    if table := name.table or name.column:
        return names.table(table.catalog_name, table.schema_name, table.table_name)
    if schema := name.schema:
        return names.schema(schema.catalog_name, schema.schema_name)
    if catalog := name.catalog:
        return names.catalog(catalog.name)
    if user := name.user:
        return names.user(user.user)
    if function := name.function:
        return names.function(function.catalog_name or "", function.schema_name or "", function.function_name)
    if system := name.system_session_property:
        return names.session_property("", system.name)
    if of_catalog := name.catalog_session_property:
        return names.session_property(of_catalog.catalog_name, of_catalog.property_name)
    return Resource("server")


def _with_arguments(resource: Resource, names: Names, action: OpaAction, name: ResourceName) -> Resource:
    """Return the resource with the rest of the request's names: properties, columns, procedure, grantee, target."""
    given: dict[str, Any] = {}
    table = name.table
    body = table or name.schema
    if body and body.properties:
        given["properties"] = read_values(body.properties, "properties")
    if table and table.columns:
        given["columns"] = table.columns
    if table and name.function:
        given["procedure"] = name.function.function_name
    if action.grantee:
        given["grantee"] = {"type": action.grantee.type, "name": action.grantee.name}
    destination = _resource(names, action.target_resource) if action.target_resource else None
    if not given and destination is None:
        return resource
    return replace(resource, arguments=Arguments(destination=destination, given=given))


_QUERIES: Final = 10_000
"""Queries of one share that are remembered."""
_LONGEST_ID: Final = 256
"""Characters of a principal's id. A longer id is not remembered."""


class _QueryMemory(dict[str, BoundedCache[tuple[str, str], V]]):
    """Values by caller and query id, in a share for each configured caller, and one for all who come as themselves.

    The many queries of one caller so make none of another forgotten.
    """

    def __init__(self, longest: int) -> None:
        super().__init__()
        self._longest = longest

    def of(self, caller: Caller) -> BoundedCache[tuple[str, str], V]:
        """Return the share of a caller. A caller that no configuration names has the name of its own principal."""
        is_configured = caller.own is None or caller.own.id != caller.name
        name = caller.name if is_configured else ""
        return self[name] if name in self else self.setdefault(name, BoundedCache(_QUERIES, self._longest))


class QueryOwners:
    """Users by caller and query id: the first principal of a query's requests. Views ask as their owners later."""

    def __init__(self) -> None:
        self._owners: _QueryMemory[str] = _QueryMemory(_LONGEST_ID)

    def other_user(self, caller: Caller, query: str, principal: str) -> str:
        """Return the id of the owner of a caller's query; empty if the owner is `principal` or unknown."""
        owners, key = self._owners.of(caller), (caller.name, query)
        owner = owners.get(key)
        if owner is None:
            return ""
        owners.move_to_end(key)
        return "" if owner == principal else owner

    def keep_first(self, caller: Caller, query: str, principal: str) -> None:
        """Keep a principal as the owner of a caller's query, unless the query has one."""
        owners, key = self._owners.of(caller), (caller.name, query)
        if key not in owners:
            owners.keep(key, principal, len(principal))


_LONGEST: Final = 4096
"""Characters of a principal with groups. A longer principal is not remembered."""
EXECUTE_QUERY: Final = "ExecuteQuery"
_UNKNOWN: Final = QuerySession(None)


class QuerySessions:
    """Users by caller and query id."""

    def __init__(self) -> None:
        self._sessions: _QueryMemory[QuerySession] = _QueryMemory(_LONGEST)

    def session(self, caller: Caller, query: str) -> QuerySession:
        """Return the session of a query. Without an id, the query is unknown."""
        sessions, key = self._sessions.of(caller), (caller.name, query)
        known = sessions.get(key)
        if known is None:
            return _UNKNOWN
        sessions.move_to_end(key)
        return known

    def execute(self, caller: Caller, query: str, principal: Principal) -> None:
        """Remember the user who executes a query. A second user makes the query unknown."""
        sessions, key = self._sessions.of(caller), (caller.name, query)
        known = sessions.get(key)
        if known is None:
            sessions.keep(key, QuerySession(principal), principal.length())
        elif known.user != principal:
            sessions.keep(key, _UNKNOWN)
