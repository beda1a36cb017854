"""Conditions of row policies, checked against the columns of their table. Loads the parser of SQL.

A filter must be one expression that is true or false. Types decide where they are certain: of a column with a known
type, and of functions whose type the parser knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from pdp.engines.row_access.dialects import (
    UntranslatableSql,
    outer_name,
    parse_expression,
    part_around,
    translate_expression,
    translate_filter,
)
from pdp.facts.row_policies import FoldedName, fold_name

_VALUES: Final = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe, exp.Concat, exp.Neg, exp.Null, exp.Literal,
    exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.Array, exp.Tuple, exp.Interval, exp.SessionUser,
    exp.CurrentUser,
)  # fmt: skip
"""Expressions that are no conditions, whatever their parts are."""
_PLAIN_SOURCE: Final = frozenset({"this", "db", "catalog", "alias"})
_UNDECIDED: Final = frozenset({"UNKNOWN", "BOOLEAN", "NULL"})


def check_condition(text: str, dialect: str, columns: Mapping[str, str] | None, table: str) -> None:
    """Raise ValueError unless a text is one condition on columns of a table.

    `columns` maps folded names to types; None if the columns are unknown. A bare column is a condition only if its
    type is known to be boolean.
    """
    with suppress(UntranslatableSql):  # other engines than Trino can evaluate the filter
        translate_filter(text, dialect)
    tree = parse_expression(text, dialect)
    root = tree.unnest()
    if isinstance(root, _VALUES):
        raise ValueError("it is a value, not a condition")  # noqa: TRY004  a text's value, not a Python type
    if isinstance(root, exp.Column):
        kind = (columns or {}).get(root.name.casefold(), "")
        if not kind.lower().startswith("bool"):
            raise ValueError(f"`{root.name}` is a column, not a condition: compare it with a value")
    elif not isinstance(root, exp.Boolean) and _type_of(root, columns, dialect) not in _UNDECIDED:
        raise ValueError("it is a value, not a condition")
    _check_columns(tree, columns, table)


def check_expression(text: str, dialect: str, columns: Mapping[str, str] | None, table: str) -> None:
    """Raise ValueError unless a text is one expression on columns of a table."""
    with suppress(UntranslatableSql):  # other engines than Trino can evaluate the expression
        translate_expression(text, dialect)
    _check_columns(parse_expression(text, dialect), columns, table)


def _check_columns(tree: exp.Expr, columns: Mapping[str, str] | None, table: str) -> None:
    """Raise ValueError for a column that the table does not have. Subqueries have columns of their own."""
    if columns is None:
        return
    for node in tree.walk(prune=lambda node: isinstance(node, exp.Query)):
        if isinstance(node, exp.Column):
            first, *others = [part.name.casefold() for part in node.parts]
            name = others[0] if others and first == table.casefold() and first not in columns else first
            if name not in columns:
                raise ValueError(f"`{name}` is no column of the table")


def _type_of(root: exp.Expr, columns: Mapping[str, str] | None, dialect: str) -> str:
    """Return the type of an expression as the parser's library knows it; `UNKNOWN` in doubt."""
    types = {name: kind for name, kind in (columns or {}).items() if kind}
    tree = root.copy()
    for column in tree.find_all(exp.Column):
        try:
            column.type = exp.DataType.build(types.get(column.name.casefold(), "unknown"), dialect=dialect)
        except SqlglotError:
            column.type = exp.DataType.build("unknown")
    try:
        found = annotate_types(tree, dialect=dialect).type
    except (SqlglotError, ValueError, KeyError):
        return "UNKNOWN"
    return found.this.name if found is not None else "UNKNOWN"


KnownColumns: TypeAlias = Mapping[FoldedName, Mapping[str, str]]
"""Table -> folded columns with their types."""


def check_lookups(text: str, dialect: str, table: FoldedName, known: KnownColumns) -> None:
    """Raise ValueError for a name without a table in a subquery, which an engine may take for the outer column.

    Where the table of the subquery has no such column, `region IN (SELECT region FROM m)` is true for every row.
    """
    if "select" not in text.lower():
        return
    tree = parse_expression(text, dialect)
    for column in tree.find_all(exp.Column):
        query = column.find_ancestor(exp.Select)
        if query is not None and len(column.parts) == 1 and isinstance(column.this, exp.Identifier):
            sources = [] if _reads_itself(query, table, dialect) else _sources(query)
            if sources and _may_be_outer(
                column, query, [(one, _columns(one, table, known)) for one in sources], known.get(table)
            ):
                lookup = sources[0].alias or sources[0].name
                raise ValueError(outer_name(column.name, lookup, table[1].rpartition(".")[2]))


def _reads_itself(query: exp.Select, table: FoldedName, dialect: str) -> bool:
    """Tell whether a subquery certainly reads the filtered table and nothing else.

    A bare name then means its own column: the table has the column inside and outside, or nowhere. An old version, new
    names of columns, a query with a name, and a query in between could lack or add the column.
    """
    start = query.args.get("from_")
    source = start.this if start else None
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier) or source.alias_column_names:
        return False
    if any(value and key not in _PLAIN_SOURCE for key, value in source.args.items()):
        return False
    is_alone = not query.args.get("joins") and not query.args.get("laterals")
    is_outermost = query.find_ancestor(exp.Select) is None and query.root().find(exp.With) is None
    return is_alone and is_outermost and _is_named([part.name for part in source.parts], table, dialect)


def _is_named(names: Sequence[str], table: FoldedName, dialect: str) -> bool:
    """Tell whether a name certainly means the filtered table. BigQuery tells tables by capitals, which are unknown."""
    container, namespace = table[0], table[1].rpartition(".")[0]
    if dialect == "bigquery" or "." in names[-1] or (len(names) == 2 and names[0].lower() == container.lower()):
        return False
    whole = [*[container, namespace][: max(0, 3 - len(names))], *names]
    return fold_name(whole[0], whole[1:]) == table


def _sources(query: exp.Select) -> list[exp.Table]:
    start = query.args.get("from_")
    parts = [*([start] if start else ()), *(query.args.get("joins") or ())]
    return [part.this for part in parts if isinstance(part.this, exp.Table)]


def _columns(source: exp.Table, table: FoldedName, known: KnownColumns) -> Mapping[str, str] | None:
    """Return the columns of a table of a subquery, named as from the filtered table; None if they are unknown."""
    parts = ".".join(part.name for part in source.parts).split(".")
    container, namespace = table[0], table[1].rpartition(".")[0].split(".")
    full = [container, *namespace, *parts] if len(parts) == 1 else [container, *parts]
    return known.get(fold_name(full[0], full[1:])) or known.get(fold_name(parts[0], parts[1:]))


def _may_be_outer(
    column: exp.Column, query: exp.Select, sources: Sequence[tuple[exp.Table, Mapping[str, str] | None]],
    own: Mapping[str, str] | None,
) -> bool:  # fmt: skip
    """Tell whether a bare name may be a column of the filtered table, and nothing of the subquery stands beside it."""
    name = column.name.casefold()
    if any(columns is not None and name in columns for _, columns in sources) or (own is not None and name not in own):
        return False
    names = {(source.alias or source.name).casefold() for source, _ in sources}
    part = part_around(column)
    beside = [other for other in part.find_all(exp.Column) if other is not column]
    if any(len(other.parts) > 1 and other.parts[0].name.casefold() in names for other in beside):
        return False
    if own is not None or any(other.name.casefold() == name for other in beside):
        return True
    outside = (other for other in query.root().find_all(exp.Column) if other.find_ancestor(exp.Select) is not query)
    return any(other.name.casefold() == name for other in outside)
