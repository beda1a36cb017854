"""Conditions of row policies and expressions of masks, read once. Loads the parser of SQL.

A filter must be one expression that is true or false. Types decide where they are certain: of a column with a known
type, and of functions whose type the parser knows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from pdp.engines.row_access.dialects import (
    DIALECT,
    author_tree,
    expression_sql,
    filter_sql,
    parse_expression,
    translate_constant,
)
from pdp.engines.row_access.policies import check_sql_size
from pdp.engines.row_access.policy_set import Mask, Policy
from pdp.engines.row_access.trino import FALSE, UntranslatableSql

Form: TypeAlias = Literal["condition", "column", "value", "undecided"]
"""Form of an expression: a condition, a bare column, certainly no condition, or of an unknown type."""
_VALUES: Final = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe, exp.Concat, exp.Neg, exp.Null, exp.Literal,
    exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.Array, exp.Tuple, exp.Interval, exp.SessionUser,
    exp.CurrentUser,
)  # fmt: skip
"""Expressions that are no conditions, whatever their parts are."""
_CONDITIONS: Final = (
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Is, exp.Like,
    exp.ILike, exp.Boolean, exp.Exists, exp.RegexpLike, exp.StartsWith, exp.EndsWith, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.ArrayContains, exp.ArrayContainsAll, exp.Contains, exp.SimilarTo, exp.ArrayOverlaps,
)  # fmt: skip
"""Expressions that are conditions, whatever their parts are."""
_CASTING: Final = frozenset({"duckdb"})
"""Dialects with numbers and texts as conditions: an expression of no known type could be true for every row there."""
_OPEN: Final = "TRUE"
_READINGS: Final = 16_384
_SHORT: Final = 512
"""Texts remembered from one load to the next, and characters of such a text."""


class Reading(NamedTuple):
    """Filter or expression of an author, as read. `sql` is Trino's; None for the filter TRUE.

    `closed` says why the text has no certain meaning in Trino, or is empty. `columns` are the names outside of
    subqueries, in parts. `has_query`: there are subqueries. `fault` says which part is a value in the place of a
    condition, or is empty. `tested` are the columns in such places.
    """

    sql: str | None
    closed: str
    form: Form
    columns: tuple[tuple[str, ...], ...]
    has_query: bool
    fault: str = ""
    tested: tuple[str, ...] = ()


def read_filter(text: str, dialect: str, types: Mapping[str, str] | None = None) -> Reading:
    """Return the reading of a filter; raise ValueError unless it is exactly one expression.

    `types` are those of known columns, by folded name. Only a filter of another dialect than Trino's depends on types.
    """
    return _reading(text, dialect, types, is_filter=True)


def read_expression(text: str, dialect: str, types: Mapping[str, str] | None = None) -> Reading:
    """Return the reading of a mask's expression, as `read_filter` does."""
    return _reading(text, dialect, types, is_filter=False)


def _reading(text: str, dialect: str, types: Mapping[str, str] | None, *, is_filter: bool) -> Reading:
    check_sql_size(text)
    folded = text.casefold() if types and dialect != DIALECT else ""
    known = tuple((name, type) for name, type in types.items() if name in folded) if types and folded else ()
    return (_remembered if len(text) <= _SHORT else _read)(text, dialect, is_filter, known)


def _read(text: str, dialect: str, is_filter: bool, types: tuple[tuple[str, str], ...]) -> Reading:
    text, tree = author_tree(text, dialect)
    form, has_query = form_of(tree, {}, dialect), tree.find(exp.Query, exp.Values) is not None
    columns = dict.fromkeys(
        tuple(part.name.casefold() for part in node.parts)
        for node in tree.walk(prune=lambda node: isinstance(node, exp.Query))
        if isinstance(node, exp.Column)
    )
    try:
        sql, closed = (filter_sql if is_filter else expression_sql)(text, tree, dialect, dict(types)), ""
    except UntranslatableSql as error:
        sql, closed = "", str(error)
    fault, tested = _read_tests(tree, dialect) if is_filter else ("", ())
    return Reading(sql, closed, form, tuple(columns), has_query, fault, tested)


_remembered: Final = lru_cache(_READINGS)(_read)


def policy_for_trino(policy: Policy, types: Mapping[str, str] | None) -> tuple[Policy, str]:
    """Return a policy in Trino's SQL, and why no row passes there, or nothing; raise ValueError as `read_filter`.

    The filter TRUE stays the word.
    """
    reading = read_filter(policy.text, policy.dialect, types)
    text = FALSE if reading.closed else _OPEN if reading.sql is None else reading.sql
    return replace(policy, text=text, dialect=DIALECT, others=()), reading.closed


def mask_for_trino(mask: Mask, types: Mapping[str, str] | None) -> tuple[Mask, str]:
    """Return a mask in Trino's SQL, and why it is NULL there, or nothing; raise ValueError as `read_expression`."""
    text, closed = "", ""
    if mask.kind == "constant":
        text = translate_constant(mask.text)
    elif mask.kind == "expression":
        reading = read_expression(mask.text, mask.dialect, types)
        text, closed = reading.sql or "", reading.closed
    kind = "null" if closed else mask.kind
    return replace(mask, kind=kind, text=text, dialect=DIALECT, others=()), closed


def check_condition(text: str, dialect: str, columns: Mapping[str, str] | None) -> Reading:
    """Return the reading of a filter; raise ValueError unless it is one condition.

    `columns` maps folded names to types; None if the columns are unknown.
    """
    reading = read_filter(text, dialect, columns)
    _check_tests(reading.fault, reading.tested, columns)
    form = reading.form
    if form == "undecided" and columns:
        form = form_of(parse_expression(text, dialect), columns, dialect)
    if form == "column" and columns is not None:
        _check_column_form(reading.columns[0][-1], columns)
    elif form == "value":
        raise ValueError("it is a value, not a condition")
    elif form == "undecided" and columns is not None and dialect in _CASTING:
        raise ValueError("it may be a value, not a condition: compare it with TRUE")
    return reading


def _check_column_form(name: str, columns: Mapping[str, str]) -> None:
    if not columns.get(name.casefold(), "").lower().startswith("bool"):
        raise ValueError(column_form(name))


def column_form(name: str) -> str:
    """Return the error for a bare column as a condition, whose type is not known to be boolean."""
    return f"`{name}` is a column, not a condition: compare it with a value"


def check_form(tree: exp.Expr, dialect: str, columns: Mapping[str, str]) -> None:
    """Raise ValueError unless the tree of a filter is a condition, as `check_condition` does."""
    _check_tests(*_read_tests(tree, dialect), columns)
    form = form_of(tree, columns, dialect)
    if form == "column":
        _check_column_form(tree.unnest().name, columns)
    elif form == "value":
        raise ValueError("it is a value, not a condition")
    elif form == "undecided" and dialect in _CASTING:
        raise ValueError("it may be a value, not a condition: compare it with TRUE")


_EMPTY: Final = "`IN ()` has no values: an engine refuses it"
_NO_TEST: Final = "a value stands where AND, OR, NOT, WHEN, WHERE or ON takes a condition: compare it"


def _check_tests(fault: str, tested: Collection[str], columns: Mapping[str, str] | None) -> None:
    """Raise ValueError for a value in the place of a condition: some engines take 1 for TRUE, and others refuse it."""
    if fault:
        raise ValueError(fault)
    for name in tested:
        if columns and columns.get(name) and not columns[name].lower().startswith("bool"):
            raise ValueError(_NO_TEST)


def _read_tests(tree: exp.Expr, dialect: str) -> tuple[str, tuple[str, ...]]:
    """Return the fault of the conditions inside a filter, and the columns that stand for conditions.

    Columns of subqueries are left out, which may be of another table, and so are fields of columns.
    """
    columns: dict[str, None] = {}
    pending = [] if form_of(tree, {}, dialect) == "value" else _results_of(tree.unnest())
    for node in tree.walk():
        pending += _tests_of(node)
        if isinstance(node, exp.In) and not any(node.args.get(key) for key in _MEMBERS):
            return _EMPTY, ()
    while pending:
        root = pending.pop().unnest()
        pending += (results := _results_of(root))
        if isinstance(root, exp.Column):
            if len(root.parts) == 1 and not root.find_ancestor(exp.Query):
                columns[root.name.casefold()] = None
        elif not results and not isinstance(root, (exp.Null, exp.Query)) and form_of(root, {}, dialect) == "value":
            return _NO_TEST, ()
    return "", tuple(columns)


_MEMBERS: Final = ("expressions", "query", "unnest", "field")
"""Arguments of IN, one of which has the members."""


def _tests_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the parts of a node that must be conditions."""
    found: list[exp.Expr | None] = []
    if isinstance(node, exp.Connector):
        found = [node.this, node.expression]
    elif isinstance(node, exp.If):
        is_compared = isinstance(node.parent, exp.Case) and node.parent.this is not None
        found = [] if is_compared else [node.this]
    elif isinstance(node, (exp.Not, exp.Where, exp.Having)):
        found = [node.this]
    elif isinstance(node, exp.Join):
        found = [node.args.get("on")]
    return [part for part in found if isinstance(part, exp.Expr)]


def _results_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the results of CASE or IF, which are conditions where the whole is one."""
    branches = [node] if isinstance(node, exp.If) else node.args.get("ifs") or [] if isinstance(node, exp.Case) else []
    found = [branch.args.get("true") for branch in branches]
    found += [node.args.get("default" if isinstance(node, exp.Case) else "false")] if branches else []
    return [part for part in found if isinstance(part, exp.Expr)]


def unknown_column(reading: Reading, columns: Collection[str], table: str) -> str:
    """Return the first name outside of subqueries beside the columns of a table; empty without one."""
    for first, *others in reading.columns:
        name = others[0] if others and first == table.casefold() and first not in columns else first
        if name not in columns:
            return name
    return ""


def form_of(tree: exp.Expr, columns: Mapping[str, str], dialect: str) -> Form:
    """Return the form of an expression on columns with types, as far as these are known."""
    root = tree.unnest()
    if isinstance(root, _CONDITIONS):
        return "condition"
    if isinstance(root, exp.Column):
        return "column"
    if isinstance(root, _VALUES):
        return "value"
    known = _type_of(root, columns, dialect)
    return "condition" if known == "BOOLEAN" else "undecided" if known in ("UNKNOWN", "NULL") else "value"


def _type_of(root: exp.Expr, columns: Mapping[str, str], dialect: str) -> str:
    """Return the type of an expression as the parser's library knows it; `UNKNOWN` in doubt."""

    def typed(node: exp.Expr) -> exp.Expr:
        kind = columns.get(node.name.casefold(), "") if isinstance(node, exp.Column) and len(node.parts) == 1 else ""
        return exp.Cast(this=exp.Null(), to=exp.DataType.build(kind, dialect=dialect)) if kind else node

    try:
        found = annotate_types(root.copy().transform(typed, copy=False), dialect=dialect).type
    except (SqlglotError, ValueError, KeyError):
        return "UNKNOWN"
    return found.this.name if found is not None else "UNKNOWN"
