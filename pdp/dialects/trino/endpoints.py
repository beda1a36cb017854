"""Endpoints for Trino's OPA plugin: routes, and the encoding of answers, row filters and masks that Trino accepts.

Trino takes an undefined answer as an error, or as no filter at all, so every answer here is definite: an internal
failure denies. Must not know rules of operations.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import structlog
from msgspec import UNSET

from pdp.decision.codec import bound_checks
from pdp.decision.evaluation import CHUNK
from pdp.decision.row_filter import FEW_COLUMNS, DecidedAccess, hidden_view
from pdp.decision.service import BatchResult, Pdp
from pdp.decision.turns import LONGEST_IMMEDIATE, converted, run_aside
from pdp.dialects.opa import OpaDialect, OpaDocument
from pdp.dialects.trino.bodies import OpaInput, ResourceName, TableName
from pdp.dialects.trino.known_objects import ListedNames, NameCatalog
from pdp.dialects.trino.requests import EXECUTE_QUERY, RequestDecoder, TrinoRequest
from pdp.errors import Forbidden, InvalidArgument, Unavailable
from pdp.identity.evidence import admit
from pdp.model.answer import Answer, Predicate, Rejection, TypedColumn
from pdp.model.question import Batch, Caller
from pdp.model.redaction import without_text
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.surfaces.admission import BodyLimits
from pdp.surfaces.http.answers import EndpointAnswer
from pdp.surfaces.http.handlers import HttpHandlers, Routes

DENIED: Final = b'{"result":false}'
NONE_ALLOWED: Final = b'{"result":[]}'
"""Denials of the endpoints `allow` and `batch`."""
_UNDECIDED: Final = Rejection("internal_failure", "no decision could be made", by="internal_failure")
_LOGGED_NAME: Final = 100
"""Characters of an operation's name in the log."""
_UNKNOWN_NAMES: Final = 100
log = structlog.get_logger()


class FailureHandler:
    """Handling of requests without a decision."""

    def __init__(self, pdp: Pdp) -> None:
        self._pdp = pdp
        self._log = FailureLog()

    def handle(self, operation: str, error: Exception, unrecorded: Caller | None = None) -> str:
        """Count, log and record a failure; return the id of the record if the caller of this method must deny.

        The id is empty without a record. `unrecorded` is the caller of a request without an audit record. Raise the
        error itself if the request is at fault; raise Unavailable if `trino.on_internal_failure` is `error`.
        """
        if isinstance(error, InvalidArgument | Forbidden):
            raise error
        pdp = self._pdp
        pdp.telemetry.trino_failures.inc()
        self._log.write(operation, error)
        id = pdp.record_failure(Batch("trino", unrecorded, 1, (), {0: _UNDECIDED})) if unrecorded else ""
        if pdp.bundle.trino.on_internal_failure == "error":
            unavailable = Unavailable("no decision could be made, see the service's log")
            unavailable.record_id = id
            raise unavailable from None
        return id


class FailureLog:
    """Failures in the log: at most one line per second. Each line counts the failures dropped since the last line."""

    def __init__(self) -> None:
        self._next_line = 0.0
        self._dropped = 0

    def write(self, operation: str, error: Exception) -> None:
        """Log a failed request, with a stack trace unless the failure is an expected kind."""
        now = time.monotonic()
        if now < self._next_line:
            self._dropped += 1
            return
        expected = isinstance(error, Unavailable | TimeoutError)
        log.error(
            "trino request failed", operation=operation[:_LOGGED_NAME],
            cause=(str(error) if expected else "") or type(error).__name__, unsaid=self._dropped,
            exc_info=None if expected else without_text(error),
        )  # fmt: skip
        self._next_line, self._dropped = now + 1, 0


class UnknownOperations:
    """Unknown operations. The log names each of the first hundred once; the metric counts all."""

    def __init__(self, pdp: Pdp) -> None:
        self._telemetry = pdp.telemetry
        self._logged: set[str] = set()

    def note(self, operation: str) -> None:
        """Count and log an unknown operation."""
        if operation in TRINO_OPERATIONS:
            return
        self._telemetry.unknown_operations.inc()
        name = operation[:_LOGGED_NAME]
        if name not in self._logged and len(self._logged) < _UNKNOWN_NAMES:
            self._logged.add(name)
            log.warning("unknown trino operation denied", operation=name)


_ALLOWED: Final = b'{"result":true}'
_RowView: TypeAlias = Callable[[OpaInput, Caller], EndpointAnswer]
"""Answer of an endpoint about rows or masks to a decoded body."""
_NO_MASK: Final = b"{}"
_VIEWS: Final = frozenset({"GetRowFilters", "GetColumnMask"})
"""Operations of the endpoints about rows and masks."""
_KEPT_INDICES: Final = 500
"""Most columns of a table whose answer is remembered."""


class _Question(NamedTuple):
    """A decoded request, the denial where no answer can be made, and the encoding of the answer."""

    request: TrinoRequest
    denial: bytes
    encode: Callable[[Answer], bytes]


class TrinoSurface:
    """Endpoints of the plugin. `max_resources` bounds one batch, `seconds` the time to an answer.

    `catalogs` are by warehouse, for the setting `trino.create_over_listed`.
    """

    def __init__(
        self, pdp: Pdp, max_resources: int, seconds: float, catalogs: Mapping[str, NameCatalog] | None = None
    ) -> None:
        self._pdp = pdp
        self._max_resources = max_resources
        self._seconds = seconds
        self._decoder = RequestDecoder(pdp, max_resources)
        self._listed_names = ListedNames(pdp, catalogs or {})
        self._failures = FailureHandler(pdp)
        self._unknown_operations = UnknownOperations(pdp)

    def routes(self, handlers: HttpHandlers, limits: BodyLimits) -> Routes:
        """Return the five paths of Trino's configuration."""
        questions: list[tuple[str, Callable[[bytes], _Question], object]] = [
            ("allow", self._allow_question, False),
            ("batch", self._batch_question, []),
        ]
        views = {"rowFilters": self._row_filters, "columnMask": self._column_mask}
        documents = [
            *(
                OpaDocument(f"trino/{path}", partial(self._answer, read), partial(self._answer_now, read), denial)
                for path, read, denial in questions
            ),
            *(
                OpaDocument(f"trino/{path}", partial(self._view, view), partial(self._view_now, view))
                for path, view in views.items()
            ),
            OpaDocument("trino/batchColumnMasks", self._masks_answer, self._masks_now),
        ]
        return OpaDialect("trino", self._pdp).routes(handlers, documents, limits)

    async def allow(self, body: bytes, caller: Caller) -> bytes:
        """Decide on one resource."""
        return (await self._answer(self._allow_question, body, caller)).body

    async def batch(self, body: bytes, caller: Caller) -> bytes:
        """Return the indices of the permitted resources, or of the permitted columns of one table."""
        return (await self._answer(self._batch_question, body, caller)).body

    async def row_filters(self, body: bytes, caller: Caller) -> bytes:
        """Return the row filter of a table; an empty list for no filter."""
        return self._row_filters(self._decoder.decode(body), caller).body

    async def column_mask(self, body: bytes, caller: Caller) -> bytes:
        """Return the mask of one column; an empty object for no mask."""
        return self._column_mask(self._decoder.decode(body), caller).body

    async def batch_column_masks(self, body: bytes, caller: Caller) -> bytes:
        """Return the masks of columns, each with the column's index."""
        return (await self._masks_answer(body, caller)).body

    def _row_filters(self, input: OpaInput, caller: Caller) -> EndpointAnswer:
        _require_operation(input, "GetRowFilters")
        table = input.action.resource.table if input.action.resource else UNSET
        if not table:
            raise InvalidArgument("GetRowFilters takes a table")
        view, id = self._row_view(input, ResourceName(table=table), [], caller)
        return EndpointAnswer(_encode_result([expression(rows) for rows in (view.rows, view.more_rows) if rows]), id)

    def _column_mask(self, input: OpaInput, caller: Caller) -> EndpointAnswer:
        _require_operation(input, "GetColumnMask")
        (mask,), id = self._masks(input, [input.action.resource or ResourceName()], caller)
        return EndpointAnswer(_encode_result(expression(mask)) if mask else _NO_MASK, id)

    async def _masks_answer(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return the masks of any number of columns; NULL for each if no answer can be made in time."""
        input = await converted(body, self._decoder.decode)
        named = self._named_columns(input)
        if len(named) <= FEW_COLUMNS:
            return self._few_masks(input, named, caller)
        question = await run_aside(read_columns, named)
        try:
            async with asyncio.timeout(self._seconds):
                batch = self._admit(TrinoRequest(input, [question.table]), caller)
                view, id = await self._pdp.restrict_many(batch, question.columns)
        except Exception as error:  # noqa: BLE001  it denies
            id = self._failures.handle(input.action.operation, error, caller)
            view = await run_aside(hidden_view, question.columns)
        return EndpointAnswer(await run_aside(encode_masks, view.masks), id)

    def _masks_now(self, body: bytes, caller: Caller) -> EndpointAnswer | None:
        """Return the same without waiting; None for many columns."""
        input = self._decoder.decode(body)
        named = self._named_columns(input)
        return None if len(named) > FEW_COLUMNS else self._few_masks(input, named, caller)

    def _few_masks(self, input: OpaInput, named: list[ResourceName], caller: Caller) -> EndpointAnswer:
        masks, id = self._masks(input, named, caller)
        return EndpointAnswer(encode_masks(masks), id)

    def _named_columns(self, input: OpaInput) -> list[ResourceName]:
        _require_operation(input, "GetColumnMask")
        named = input.action.filter_resources
        if named is UNSET or named is None:
            raise InvalidArgument("this endpoint takes columns in `filterResources`")
        bound_checks(len(named), self._max_resources)
        return named

    def _allow_question(self, body: bytes) -> _Question:
        input = self._decoder.decode(body)
        return _Question(TrinoRequest(input, [input.action.resource or ResourceName()]), DENIED, _encode_allow)

    def _batch_question(self, body: bytes) -> _Question:
        request = self._decoder.decode_batch(body)
        if request.operation in _VIEWS:  # an empty list would be no filter and no mask
            raise InvalidArgument(f"this endpoint does not answer {request.operation}")
        if request.operation == "FilterColumns" and request.size:
            return _Question(request, NONE_ALLOWED, _column_indices(request))
        bound_checks(request.size, self._max_resources)
        return _Question(request, NONE_ALLOWED, _resource_indices)

    async def _answer(self, read: Callable[[bytes], _Question], body: bytes, caller: Caller) -> EndpointAnswer:
        """Return the answer to a body; a denial if no answer can be made in time."""
        question = await converted(body, read)
        request = question.request
        self._unknown_operations.note(request.operation)
        try:
            async with asyncio.timeout(self._seconds):
                is_long = request.size > CHUNK or len(body) > LONGEST_IMMEDIATE
                batch = await self._admit_long(request, caller) if is_long else self._admit(request, caller)
                if self._listed_names.concerns(request.operation):
                    batch = await self._listed_names.reject_listed(batch)
                result = await self._pdp.decide(batch)
        except Exception as error:  # noqa: BLE001  it denies
            return EndpointAnswer(question.denial, self._failures.handle(request.operation, error, caller))
        return self._encode(question, result)

    def _answer_now(self, read: Callable[[bytes], _Question], body: bytes, caller: Caller) -> EndpointAnswer | None:
        """Return the same without waiting; None for a batch that needs turns of the event loop."""
        question = read(body)
        request = question.request
        operation = request.operation
        if request.size > CHUNK or self._listed_names.concerns(operation):
            return None
        self._unknown_operations.note(operation)
        try:
            result = self._pdp.decide_now(self._admit(request, caller))
        except Exception as error:  # noqa: BLE001  it denies
            return EndpointAnswer(question.denial, self._failures.handle(operation, error, caller))
        return None if result is None else self._encode(question, result)

    def _encode(self, question: _Question, result: BatchResult) -> EndpointAnswer:
        if self._pdp.bundle.trino.on_internal_failure == "error" and result.record.failed:
            self._failures.handle(question.request.operation, Unavailable("an engine failed"))
        answer = result.answer
        if question.request.operation == EXECUTE_QUERY and question.denial is DENIED and answer.allowed == b"\x01":
            self._decoder.remember_user(result.record.batch)
        return EndpointAnswer(question.encode(answer), answer.id)

    async def _view(self, view: _RowView, body: bytes, caller: Caller) -> EndpointAnswer:
        return view(await converted(body, self._decoder.decode), caller)

    def _view_now(self, view: _RowView, body: bytes, caller: Caller) -> EndpointAnswer:
        return view(self._decoder.decode(body), caller)

    def _masks(
        self, input: OpaInput, named: list[ResourceName], caller: Caller
    ) -> tuple[Sequence[Predicate | None], str]:
        """Return the mask, or None, of each of the named columns of one table; also the id of the decision."""
        question = read_columns(named)
        if not question.columns:
            return (), ""
        view, id = self._row_view(input, question.table, question.columns, caller)
        return view.masks, id

    def _row_view(
        self, input: OpaInput, table: ResourceName, columns: Sequence[TypedColumn], caller: Caller
    ) -> DecidedAccess:
        """Return the visible rows and values of a table; none of them after a failure."""
        try:
            return self._pdp.restrict(self._admit(TrinoRequest(input, [table]), caller), columns)
        except Exception as error:  # noqa: BLE001  it denies
            return DecidedAccess(hidden_view(columns), self._failures.handle(input.action.operation, error, caller))

    async def _admit_long(self, request: TrinoRequest, caller: Caller) -> Batch:
        batch = admit(await self._decoder.to_long_batch_request(request, caller), caller)
        return self._decoder.remember_owner(batch)

    def _admit(self, request: TrinoRequest, caller: Caller) -> Batch:
        return self._decoder.remember_owner(admit(self._decoder.to_batch_request(request, caller), caller))


def _require_operation(input: OpaInput, operation: str) -> None:
    """Raise InvalidArgument for a request about another operation than that of the endpoint."""
    if input.action.operation != operation:
        raise InvalidArgument(f"this endpoint answers {operation}, not `{input.action.operation}`")


def _encode_allow(answer: Answer) -> bytes:
    """Return the answer of the endpoint `allow`: true if the resource is permitted."""
    return _ALLOWED if answer.allowed == b"\x01" else DENIED


def _resource_indices(answer: Answer) -> bytes:
    """Return the indices of the permitted resources."""
    allowed = answer.allowed
    return _encode_result(list(compress(range(len(allowed)), allowed)))


def _column_indices(request: TrinoRequest) -> Callable[[Answer], bytes]:
    """Return the encoder of FilterColumns: all columns of the one table, or none. They share the table's decision."""
    resources = request.resources
    if len(resources) != 1 or not resources[0].table:
        raise InvalidArgument("FilterColumns takes exactly one table in `filterResources`")
    count = len(resources[0].table.columns or ())
    return lambda answer: _all_indices(count) if answer.allowed[0] else NONE_ALLOWED


def _all_indices(count: int) -> bytes:
    """Return the answer that permits each of `count` columns."""
    return _few_indices(count) if count <= _KEPT_INDICES else _encode_result(list(range(count)))


@lru_cache(maxsize=_KEPT_INDICES)
def _few_indices(count: int) -> bytes:
    return _encode_result(list(range(count)))


def _encode_result(result: Any) -> bytes:
    return msgspec.json.encode({"result": result})


class ColumnQuestion(NamedTuple):
    """Columns of one table. Without columns, there is no table."""

    table: ResourceName
    columns: Sequence[TypedColumn]


def read_columns(named: Sequence[ResourceName]) -> ColumnQuestion:
    """Return the question about named columns; raise InvalidArgument for anything but typed columns of one table."""
    columns = [name.column for name in named if name.column and name.column.column_type]
    tables = {(column.catalog_name, column.schema_name, column.table_name) for column in columns}
    if len(columns) < len(named) or len(tables) > 1:
        raise InvalidArgument("GetColumnMask takes columns of one table, each with its type")
    if not columns:
        return ColumnQuestion(ResourceName(), ())
    typed = [TypedColumn(column.column_name, column.column_type) for column in columns]
    return ColumnQuestion(ResourceName(table=TableName(*tables.pop())), typed)


def encode_masks(masks: Sequence[Predicate | None]) -> bytes:
    """Return the answer about many columns: each mask with the index of its column."""
    found = [{"index": at, "viewExpression": expression(mask)} for at, mask in enumerate(masks) if mask]
    return msgspec.json.encode({"result": found})


def expression(predicate: Predicate) -> dict[str, str]:
    """Return a filter or mask as Trino takes it."""
    identity = {"identity": predicate.identity} if predicate.identity else {}
    return {"expression": predicate.expression, **identity}
