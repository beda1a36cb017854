"""DDL statements on row access policies as edits of stored ones. Loads the parser of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pdp.errors import InvalidArgument
from pdp.facts.row_policies import RowPolicy, TablePath
from pdp.management.row_policy_edits import Mode, RowPoliciesClear, RowPolicyDrop, RowPolicyWrite, RuleEdit
from pdp.model.references import check_part, refuse_star
from pdp.rewrite.policy_statements import CreatePolicy, DropAllPolicies, DropPolicy, PolicyStatement

DIALECT: Final = "bigquery"
"""Dialect of the statements, and so of their filters."""
_LEAST_PARTS: Final = 3


def edit_of(statement: PolicyStatement, default: Sequence[str]) -> RuleEdit:
    """Return the edit of a statement. `default` is the warehouse and namespace of a short name.

    Raise InvalidArgument for a table without a full name.
    """
    table = _table(statement.table, default)
    if isinstance(statement, DropAllPolicies):
        return RowPoliciesClear(table)
    if isinstance(statement, DropPolicy):
        return RowPolicyDrop(table, statement.name, if_exists=statement.if_exists)
    refuse_star(".".join(table), "write a policy for each table")
    mode: Mode = "replace" if statement.replace else "unless_exists" if statement.unless_exists else "insert"
    return RowPolicyWrite(RowPolicy(table, statement.name, statement.grantees, statement.filter, DIALECT), mode)


def operation_of(statement: PolicyStatement) -> str:
    """Return the type of a statement, as BigQuery's statistics name it."""
    if isinstance(statement, CreatePolicy):
        return "CREATE_ROW_ACCESS_POLICY"
    return "DROP_ROW_ACCESS_POLICY" if isinstance(statement, DropPolicy) else "DROP_ALL_ROW_ACCESS_POLICIES"


def _table(parts: Sequence[str], default: Sequence[str]) -> TablePath:
    missing = max(_LEAST_PARTS - len(parts), 0)
    full = (*default[:missing], *parts)
    if len(full) < _LEAST_PARTS:
        raise InvalidArgument(f"`{'.'.join(parts)}` is no `<warehouse>.<namespace>.<table>`")
    return tuple(map(check_part, full))
