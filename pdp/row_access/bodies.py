"""JSON bodies and answers of rewriting: statements, filters, and the visible part of a table in a dialect of SQL.

Owns which refusals of the rewriter tell about policies, and the rows of INFORMATION_SCHEMA.ROW_ACCESS_POLICIES.

Policies are for principals with `read_assignments`: a refusal has a text for everybody, and the cause for the audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pdp.decision.active_policies import ActivePolicies
from pdp.decision.bodies import JsonBody, PrincipalBody, ResourceBody
from pdp.engines.row_access.policies import PolicyBody, rule_of, table_path
from pdp.errors import InvalidArgument
from pdp.facts.row_policies import RowPolicy
from pdp.facts.snapshot import Facts
from pdp.model.question import AtLeast, Resource
from pdp.model.strict import decode
from pdp.rewrite.errors import COPY_NEEDS_FULL_ACCESS, FILTER_INVALID, MATERIALIZE, NOT_COVERED, WRITE_NEEDS_FULL_ACCESS
from pdp.rewrite.process.messages import RelationUse, RewriteReply, SuppliedCatalog

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

    `operation` names a statement on row access policies that was carried out; then `sql` is empty. `warnings` are about
    unknown names in such a statement, and about copies that no policy covers.
    """

    sql: str
    changed: bool
    revision: str
    id: str
    operation: str = ""
    warnings: tuple[str, ...] = ()


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
    answer: dict[str, Any] = {
        "sql": result.sql, "changed": result.changed, "revision": result.revision, "decisionId": result.id,
    }  # fmt: skip
    answer |= {"operation": result.operation} if result.operation else {}
    return msgspec.json.encode(answer | {"warnings": result.warnings} if result.warnings else answer)


def encode_filter(result: FilterResult) -> bytes:
    """Return the answer of POST /v1/filters."""
    masks: list[dict[str, Any]] = [{"column": name, **msgspec.to_builtins(mask)} for name, mask in result.masks]
    answer = {
        "rowFilter": result.row_filter, "columnMasks": masks, "revision": result.revision, "decisionId": result.id,
    }  # fmt: skip
    return msgspec.json.encode(answer)


_GENERAL: Final = {
    FILTER_INVALID: "a filter or mask cannot be used in `{dialect}`",
    WRITE_NEEDS_FULL_ACCESS: "a change here needs policies that show every row",
    NOT_COVERED: "the result cannot be checked",
}
"""Code -> message without policies. Messages of the other codes name relations of the statement and no policy."""
_RECORDED: Final = frozenset({*_GENERAL, COPY_NEEDS_FULL_ACCESS, MATERIALIZE})
"""Codes whose messages hold names of relations and parts of policies, and nothing else of a statement."""


def tells_policies(reply: RewriteReply) -> bool:
    """Tell whether the message of a refusal can hold parts of policies."""
    return reply.error in _GENERAL


def shows_own_policies(reply: RewriteReply) -> bool:
    """Tell whether the policies in a message are those of the used relations: a change can meet filters of others."""
    return reply.error != WRITE_NEEDS_FULL_ACCESS


def general_message(reply: RewriteReply, dialect: str) -> str:
    """Return the message of a refusal without policies."""
    return _GENERAL[reply.error].format(dialect=dialect)


def recorded_cause(reply: RewriteReply) -> str:
    """Return the cause of a refusal for a record; empty for a message that can quote the statement."""
    return reply.message if reply.uses and reply.error in _RECORDED else ""


def use_warnings(bundle: ActivePolicies, facts: Facts, uses: Iterable[RelationUse]) -> Iterator[str]:
    """Yield a warning for each copied table with policies or masks, and for each table without a visible row."""
    for use in uses:
        found = bundle.row_access.policies_of(Resource("table_or_view", use.name[0], use.name[1:]), facts)
        name, opening = ".".join(use.name), {one.id for one in found.policies if not one.restrictive}
        if use.role == "copy" and (found.policies or found.masks):
            yield f"policies and masks of `{name}` do not follow to the copy: write policies for the copy"
        # What stands behind a view with an owner is not told.
        if use.role == "read" and found.policies and opening.isdisjoint(use.policies) and not (use.owner or use.author):
            yield f"no row of `{name}` is visible: none of its row policies names the reader"


def listed_policies(bundle: ActivePolicies, facts: Facts) -> Iterator[RowPolicy]:
    """Yield all policies, as INFORMATION_SCHEMA shows them. Policies of files have no times."""
    for data in bundle.row_sources.documents:
        for policy in data.get("policies", ()):
            body = msgspec.convert(policy, PolicyBody)
            yield rule_of(body, table_path(body.table, data.get("default", ())))
    yield from (rule for rule in facts.row_rules() if not rule.column and not rule.tombstone)
