"""JSON bodies and answers of rewriting: statements, and the visible part of a table in a dialect of SQL."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pdp.decision.bodies import JsonBody, PrincipalBody, ResourceBody
from pdp.errors import InvalidArgument
from pdp.model.question import AtLeast
from pdp.model.strict import decode
from pdp.rewrite.process.messages import SuppliedCatalog

DIALECTS: Final = ("bigquery", "trino", "spark", "duckdb")
LONGEST_SQL: Final = 100_000
"""Characters of a statement."""
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

    `operation` names a statement on row access policies that was carried out; then `sql` is empty.
    """

    sql: str
    changed: bool
    revision: str
    id: str
    operation: str = ""


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
    answer = {"sql": result.sql, "changed": result.changed, "revision": result.revision, "decisionId": result.id}
    return msgspec.json.encode(answer | {"operation": result.operation} if result.operation else answer)


def encode_filter(result: FilterResult) -> bytes:
    """Return the answer of POST /v1/filters."""
    masks: list[dict[str, Any]] = [{"column": name, **msgspec.to_builtins(mask)} for name, mask in result.masks]
    answer = {
        "rowFilter": result.row_filter, "columnMasks": masks, "revision": result.revision, "decisionId": result.id,
    }  # fmt: skip
    return msgspec.json.encode(answer)
