"""Checks of a row policy or mask before a write: the name, the grantees, and the condition on the columns of the table.

The checks are those of an entry in a file. The parser of SQL is loaded when the first rule is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.row_access.members import refuse_wrong_form
from pdp.engines.row_access.policies import (
    KINDS,
    KINDS_WITH_VALUE,
    check_constant,
    check_sql_size,
    policy_grantee,
    policy_path,
    refuse_column_pattern,
    table_path,
)
from pdp.errors import InvalidArgument, InvalidFilter, InvalidReference
from pdp.facts.row_policies import FoldedName, RowPolicy, TablePath, fold_column
from pdp.model.references import is_id
from pdp.model.trino_operations import METADATA_TABLES, SYSTEM_TABLES

MOST_GRANTEES: Final = 1_000
_LONGEST_NAME: Final = 512
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def check_rule(rule: RowPolicy, access: RowAccessEngine, *, is_new: bool = True) -> None:
    """Raise InvalidArgument for an unsound rule, InvalidFilter for an unsound filter.

    `access` knows the columns of tables that files describe. A rule that is not new may have names in subqueries whose
    table nobody knows.
    """
    if not rule.id or not is_id(rule.id):
        raise InvalidArgument("`id` is up to 128 letters, digits and `._:-`")
    _check_table(rule)
    if not rule.grantees:
        raise InvalidArgument(f"`{rule.id}` has no grantees, so it is for nobody: name some, or leave `grantees` out")
    if len(rule.grantees) + len(rule.exempt) > MOST_GRANTEES:
        raise InvalidArgument(f"`{rule.id}` has more than {MOST_GRANTEES} grantees: use a group or a role")
    for text in (*rule.grantees, *rule.exempt):
        _check_grantee(text)
    columns = access.columns.get(rule.covers)
    if rule.column:
        _check_mask(rule, columns)
    else:
        _check_filter(rule, access.columns, is_new=is_new)


def _check_table(rule: RowPolicy) -> None:
    warehouse, *path = rule.table
    if not warehouse or len(path) < 2 or not all(path):
        raise InvalidArgument(f"`{'.'.join(rule.table)}` is no `<warehouse>.<namespace>.<table>`")
    if any(path[-1].lower().endswith(f"${suffix}") for suffix in METADATA_TABLES):
        raise InvalidArgument(f"`{path[-1]}` shows what its table holds: write the policy on the table")
    if path[0].lower() in SYSTEM_TABLES:
        raise InvalidArgument(f"`{'.'.join(path)}` is in a schema of the engine's own, which policies do not cover")


def _check_grantee(text: str) -> None:
    try:
        refuse_wrong_form(policy_grantee(text))
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    if len(text) > _LONGEST_NAME or _CONTROL.search(text):
        raise InvalidArgument("a grantee has up to 512 characters, without control characters")


def _check_mask(rule: RowPolicy, columns: Mapping[str, str] | None) -> None:
    if rule.kind not in KINDS:
        raise InvalidArgument(f"`kind` is one of {', '.join(KINDS)}, not `{rule.kind}`")
    if len(rule.column) > _LONGEST_NAME or _CONTROL.search(rule.column):
        raise InvalidArgument("a column has up to 512 characters, without control characters")
    if (rule.kind in KINDS_WITH_VALUE) != bool(rule.text):
        amount = "an" if rule.kind in KINDS_WITH_VALUE else "no"
        raise InvalidArgument(f"the kind `{rule.kind}` takes {amount} `expression`")
    refuse_column_pattern(rule.column, columns)
    if columns is not None and fold_column(rule.column) not in columns:
        raise InvalidArgument(f"the table has no column `{rule.column}`")
    if rule.kind == "constant":
        try:
            check_constant(rule.text)
        except ValueError as error:
            raise InvalidArgument(f"the expression of `{rule.id}` cannot be used: {error}") from None
    if rule.kind == "expression":
        from pdp.engines.row_access.conditions import check_expression  # noqa: PLC0415  its parser of SQL takes 30 MB

        try:
            check_sql_size(rule.text)
            check_expression(rule.text, rule.dialect, columns, rule.table[-1])
        except ValueError as error:
            raise InvalidFilter(f"the expression of `{rule.id}` cannot be used: {error}") from None


def _check_filter(rule: RowPolicy, known: Mapping[FoldedName, Mapping[str, str]], *, is_new: bool) -> None:
    # The parser of SQL takes 30 MB.
    from pdp.engines.row_access.conditions import check_condition  # noqa: PLC0415
    from pdp.engines.row_access.lookups import check_lookups  # noqa: PLC0415

    if rule.kind or rule.exempt:
        raise InvalidArgument("`kind` and `except` are for masks, which name a `column`")
    try:
        check_sql_size(rule.text)
        check_condition(rule.text, rule.dialect, known.get(rule.covers), rule.table[-1])
        if is_new:
            check_lookups(rule.text, rule.dialect, rule.covers, known)
    except ValueError as error:
        raise InvalidFilter(f"the filter of `{rule.id}` cannot be used: {error}") from None


def table_of(text: str) -> TablePath:
    """Return the path of a table from `<warehouse>.<namespace>.<table>` or a reference; raise InvalidArgument."""
    return _path_of(text, table_path)


def policy_table_of(text: str) -> TablePath:
    """Return the path of the table of a new policy as `table_of` does; raise InvalidArgument for a `*`, too."""
    return _path_of(text, policy_path)


def _path_of(text: str, read: Callable[[str, Sequence[str]], TablePath]) -> TablePath:
    try:
        return read(text, ())
    except (ValueError, InvalidReference) as error:
        raise InvalidArgument(str(error)) from None
