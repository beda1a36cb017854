"""Barriers between a source with hidden rows and the expressions of a statement.

An engine may evaluate a condition of the statement before the filter of the source. An error about a hidden row prints
the row's values. A barrier is a clause around the source that the optimizer of the engine does not move conditions
through. That is measured (`tests/rewrite/test_barriers.py`), the engine does not promise it.

A statement whose expressions cannot fail on any row needs no barrier. Such expressions compare columns with columns
and literals of the same kind, and call functions that take every value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from pdp.rewrite.catalog import Relation

BARRIERS: Final = {
    "duckdb": "(SELECT CASE WHEN hash(COLUMNS(*)) IS NOT NULL THEN COLUMNS(*) END FROM ({}) AS _rap_rows OFFSET 0)",
    "spark": "(SELECT * FROM ({}) TABLESAMPLE (100 PERCENT))",
}
"""Dialect -> query of the visible rows behind a barrier. All clauses keep every row.

DuckDB reads a field of a struct in the scan and casts it there, before the filter and through `OFFSET 0`, unless an
expression makes each column anew. DuckDB also folds conditions by the minimum and maximum of all rows, hidden or not:
then the absence of an error tells hidden values. CASE has no statistics, as DuckDB does not know that no hash is NULL.
`COLUMNS(*)` keeps names and types.
"""
MASK_BARRIERS: Final = frozenset({"duckdb"})
"""Dialects that derive statistics of a mask from statistics of the column: a mask needs the barrier, too."""
_TOTAL: Final = frozenset(
    {
        *(exp.Select, exp.From, exp.Where, exp.Table, exp.TableAlias, exp.Subquery, exp.CTE, exp.With),
        *(exp.Identifier, exp.Column, exp.Star, exp.Alias, exp.Paren, exp.Literal, exp.Boolean, exp.Null),
        *(exp.Group, exp.Order, exp.Ordered, exp.Having, exp.Limit, exp.Offset),
        *(
            exp.And,
            exp.Or,
            exp.Not,
            exp.Distinct,
            exp.Count,
            exp.Min,
            exp.Max,
            exp.Window,
            exp.RowNumber,
            exp.Exists,
            exp.Tuple,
        ),
    }
)
"""Parts that fail for no value of a column, whatever the type of the column is."""
_COMPARISONS: Final = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In,
)  # fmt: skip
_CONNECTED: Final[Mapping[type[exp.Expr], tuple[str, ...]]] = {
    exp.And: ("this", "expression"), exp.Or: ("this", "expression"), exp.Not: ("this",), exp.Where: ("this",),
    exp.Having: ("this",), exp.Join: ("on",),
}  # fmt: skip
"""Parts that take conditions. An engine casts any other value to a condition, which can fail."""
_CONDITIONS: Final = (*_COMPARISONS, exp.And, exp.Or, exp.Not, exp.Is, exp.Like, exp.Exists, exp.Boolean)
_OF_TEXTS: Final = (exp.Like, exp.Lower, exp.Upper, exp.Length, exp.Trim)
_OF_NUMBERS: Final = (exp.Sum, exp.Avg)
_INTEGERS: Final = frozenset({"int", "integer", "bigint", "smallint", "tinyint", "int64", "long"})
_TEXTS: Final = frozenset({"varchar", "text", "string"})
_LONGEST_INTEGER: Final = 18
"""Digits of an integer that fits every larger type."""


def is_total(tree: exp.Expr, relations: Iterable[Relation], dialect: str) -> bool:
    """Tell whether no expression of a query can fail on a row of its sources, and no order of groups tells of others.

    DuckDB groups by the range of all values where it is small, so the order of groups would tell a hidden maximum.
    """
    if dialect == "duckdb" and tree.find(exp.Group, exp.Distinct):
        return False
    kinds = _kinds(tree, relations)
    return all(_is_total_node(node, kinds) for node in tree.walk())


def _is_total_node(node: exp.Expr, kinds: Mapping[str, str]) -> bool:
    """Tell whether a part cannot fail if its own parts do not."""
    cls = type(node)
    operands = [node.args.get(key) for key in _CONNECTED.get(cls, ())]
    if any(operand is not None and not isinstance(operand.unnest(), _CONDITIONS) for operand in operands):
        return False
    if isinstance(node, _COMPARISONS):
        return _is_comparison(node, kinds)
    if isinstance(node, exp.Is):
        return isinstance(node.expression, exp.Null)
    if isinstance(node, exp.Join):
        # a natural join compares columns that nobody names
        return not node.args.get("method") and all(_kind(exp.Column(this=part), kinds) for part in _using(node))
    if isinstance(node, exp.Like) and not isinstance(node.expression, exp.Literal):
        return False  # a backslash at the end of a pattern fails, and the error prints the pattern
    if isinstance(node, _OF_TEXTS):
        return all(_kind(part, kinds) == "text" for part in node.iter_expressions())
    if isinstance(node, _OF_NUMBERS):
        return _kind(node.this, kinds) == "integer"
    return cls in _TOTAL


def _using(join: exp.Join) -> Sequence[exp.Expr]:
    return [part.copy() for part in join.args.get("using") or ()]


def _kinds(tree: exp.Expr, relations: Iterable[Relation]) -> Mapping[str, str]:
    """Return the kinds of columns by name, without names that the query gives itself or that have several kinds.

    A relation of unknown columns may have a column of any name and kind.
    """
    relations = list(relations)
    if not all(relation.columns for relation in relations):
        return {}
    found: dict[str, set[str]] = {}
    for relation in relations:
        for name, type in relation.columns.items():
            found.setdefault(name.lower(), set()).add(_kind_of(type))
    given = {node.alias.lower() for node in tree.find_all(exp.Alias)}
    given |= {part.name.lower() for node in tree.find_all(exp.TableAlias) for part in node.args.get("columns") or ()}
    return {name: min(kinds) for name, kinds in found.items() if len(kinds) == 1 and name not in given}


def _kind_of(type: str) -> str:
    """Return the kind of a type: values of one kind are compared without a cast that can fail."""
    base = type.lower().partition("(")[0].strip()
    if base in _INTEGERS:
        return "integer"
    return "text" if base in _TEXTS else type.strip().lower()


def _kind(node: exp.Expr, kinds: Mapping[str, str]) -> str:
    """Return the kind of a column or literal; empty in doubt."""
    if isinstance(node, exp.Column):
        return kinds.get(node.name.lower(), "") if isinstance(node.this, exp.Identifier) else ""
    if isinstance(node, exp.Literal):
        is_short = node.name.isdigit() and len(node.name) <= _LONGEST_INTEGER
        return "text" if node.is_string else "integer" if is_short else ""
    if isinstance(node, (exp.Lower, exp.Upper, exp.Trim)):
        return "text"
    return "integer" if isinstance(node, (exp.Length, exp.Count)) else ""


def _is_comparison(node: exp.Expr, kinds: Mapping[str, str]) -> bool:
    """Tell whether all operands are of one kind. A text beside a column of another known kind is read as that kind."""
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        return False
    parts = list(node.iter_expressions())
    found = {_kind(part, kinds) for part in parts}
    if "" in found:
        return False
    columns = {_kind(part, kinds) for part in parts if not isinstance(part, exp.Literal)}
    literals = {_kind(part, kinds) for part in parts if isinstance(part, exp.Literal)}
    return len(columns) <= 1 and (literals <= columns or literals == {"text"})
