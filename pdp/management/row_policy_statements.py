"""DDL statements on row access policies as edits of stored ones. Loads the parser of SQL."""

from __future__ import annotations

from collections.abc import Sequence

from pdp.errors import InvalidArgument
from pdp.management.row_policy_edits import (
    Mode,
    RowPoliciesClear,
    RowPolicyDrop,
    RowPolicyWrite,
    RuleEdit,
    new_rule,
    table_of,
)
from pdp.rewrite.policy_statements import CreatePolicy, DropAllPolicies, DropPolicy, PolicyStatement


def edit_of(statement: PolicyStatement, default: Sequence[str]) -> RuleEdit:
    """Return the edit of a statement. `default` is the warehouse and namespace of a short name.

    Raise InvalidArgument for a table without a full name.
    """
    written = statement.body.table if isinstance(statement, CreatePolicy) else ".".join(statement.table)
    if ":" in written:
        raise InvalidArgument(f"`{written}` is no `<warehouse>.<namespace>.<table>`")
    if isinstance(statement, DropAllPolicies):
        return RowPoliciesClear(table_of(written, default))
    if isinstance(statement, DropPolicy):
        return RowPolicyDrop(table_of(written, default), statement.name, if_exists=statement.if_exists)
    mode: Mode = "replace" if statement.replace else "unless_exists" if statement.unless_exists else "insert"
    return RowPolicyWrite(new_rule(statement.body, default), mode)


def operation_of(statement: PolicyStatement) -> str:
    """Return the type of a statement, as BigQuery's statistics name it."""
    if isinstance(statement, CreatePolicy):
        return "CREATE_ROW_ACCESS_POLICY"
    return "DROP_ROW_ACCESS_POLICY" if isinstance(statement, DropPolicy) else "DROP_ALL_ROW_ACCESS_POLICIES"
