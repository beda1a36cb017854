"""gRPC for rewriting: `Rewrite` and `RowFilter` of the decision service. Only maps messages; holds no policy."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from pdp.decision.turns import converted
from pdp.model.question import Caller
from pdp.rewrite.process.messages import SuppliedCatalog, SuppliedTable, SuppliedView
from pdp.row_access.bodies import ColumnBody, FilterBody, RewriteBody, bound_columns
from pdp.row_access.service import SqlRewriting
from pdp.surfaces.grpc_handlers import RpcAnswer
from pdp.surfaces.grpc_messages import parse, read_consistency, read_optional_principal, read_resource
from pdp.wire import decision_pb2 as wire


async def rewrite(rewriting: SqlRewriting, surface: str, body: bytes, caller: Caller) -> RpcAnswer:
    """Answer `DecisionService.Rewrite`: return a statement with row access enforced."""
    request = await converted(body, _read_rewrite)
    result = await rewriting.rewrite(request, caller, surface)
    response = wire.RewriteResponse(
        sql=result.sql, changed=result.changed, revision=result.revision, decision_id=result.id,
        operation=result.operation,
    )  # fmt: skip
    return RpcAnswer(response, result.id)


async def row_filter(rewriting: SqlRewriting, surface: str, body: bytes, caller: Caller) -> RpcAnswer:
    """Answer `DecisionService.RowFilter`: return the visible part of a table."""
    request = await converted(body, _read_filter)
    result = await rewriting.filter(request, caller, surface)
    rows = result.row_filter
    response = wire.RowFilterResponse(
        row_filter=wire.SqlExpression(expression=rows.expression, identity=rows.identity) if rows else None,
        column_masks=[
            wire.RowFilterResponse.Mask(column=name, expression=mask.expression, identity=mask.identity)
            for name, mask in result.masks
        ],
        revision=result.revision,
        decision_id=result.id,
    )
    return RpcAnswer(response, result.id)


def _read_rewrite(body: bytes) -> RewriteBody:
    request = parse(body, wire.RewriteRequest)
    return RewriteBody(
        request.sql, request.dialect, read_optional_principal(request), _role(request), _catalog(request),
        read_consistency(request.consistency),
    )  # fmt: skip


def _read_filter(body: bytes) -> FilterBody:
    request = parse(body, wire.RowFilterRequest)
    bound_columns(len(request.columns))
    columns = [ColumnBody(column.name, column.type) for column in request.columns]
    return FilterBody(
        read_resource(request.resource), request.dialect, read_optional_principal(request), _role(request), columns,
        _catalog(request), read_consistency(request.consistency),
    )  # fmt: skip


def _role(request: Any) -> str | UnsetType:
    return request.acting_role if request.HasField("acting_role") else UNSET


def _catalog(request: Any) -> SuppliedCatalog | UnsetType:
    if not request.HasField("catalog"):
        return UNSET
    given = request.catalog
    tables = {name: SuppliedTable(dict(table.columns)) for name, table in given.tables.items()}
    views = {
        name: SuppliedView(view.sql, tuple(view.columns), view.dialect, view.owner)
        for name, view in given.views.items()
    }
    return SuppliedCatalog(tuple(given.default), tables, views)
