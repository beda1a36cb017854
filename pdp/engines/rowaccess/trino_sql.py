"""Row filters and masks as Trino's SQL. Knows no principal, and does not choose among policies.

Trino puts the text into a query, in parentheses. So the text must be exactly one expression: `FALSE) OR (1=1` would
close the parentheses and open others. Every text is parsed before use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

DIALECT: Final = "trino"
FALSE: Final = "false"
"""Filter without rows."""
_ALIKE: Final = frozenset(
    {"athena", "bigquery", "databricks", "duckdb", "hive", "presto", "snowflake", "spark", "spark2"}
)
"""Dialects with Trino's comparisons. Others fold case, skip blanks, sort by language or treat '' as NULL."""
_PORTABLE: Final = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Is,
    exp.Boolean, exp.Null, exp.Literal, exp.Column, exp.Identifier, exp.Neg,
)  # fmt: skip
"""Expressions with the same meaning in these dialects."""
_OF_QUERIES: Final = ((exp.AggFunc, "an aggregate"), (exp.Window, "a window"), (exp.Star, "a star"))
"""Expressions that only a query can contain: in a filter, only a subquery."""
_UNFIT: Final = (
    (exp.Placeholder, "a parameter"),
    (exp.Parameter, "a parameter"),
    (exp.Rand, "a random value"),
    (exp.Randn, "a random value"),
    (exp.Uuid, "a random value"),
    (exp.Shuffle, "a random value"),
)
_RANDOM: Final = frozenset({"rand", "random", "secure_rand", "secure_random", "uuid", "shuffle"})
_LITERALS: Final = (exp.Literal, exp.Boolean, exp.Null)
_TEXTS: Final = frozenset({"varchar", "char"})
_FROM_CONSTANTS: Final = _TEXTS | {
    *("boolean", "tinyint", "smallint", "integer", "int", "bigint", "real", "double", "decimal"),
    *("date", "time", "timestamp", "uuid", "ipaddress", "json"),
}
"""Types to which a constant can be cast."""
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"')
_PLAIN_TYPE: Final = re.compile(r"[A-Za-z][\w ,()]*")
"""Name of a type, its parameters and the field names of a row, without quoted names."""
_LONGEST_TYPE: Final = 4096
"""Characters of a type. A longer type gets a bare NULL: the creator of a table chooses the length."""
_VISIBLE_CHARACTERS: Final = 4
_SHORTEST_VALUE: Final = 8
"""Characters that a partial mask shows at the end of a value, and the shortest value for which it does."""


class UntranslatableSql(ValueError):
    """Valid expression of another dialect without a certain meaning in Trino."""


def translate_expression(text: str, dialect: str) -> str:
    """Return an expression as Trino's SQL; an expression in Trino's dialect stays as written.

    Raise ValueError if the text is not exactly one expression, or contains an aggregate, window, parameter or random
    value. Raise UntranslatableSql if the expression has no certain meaning in Trino.
    """
    tree = _parse(text, dialect)
    if dialect == DIALECT:
        # The text itself, not the parser's rendering: Trino gets what the author wrote and reviewed.
        return text if _is_plain_text(text) else tree.sql(dialect=DIALECT, comments=False)
    if dialect not in _ALIKE:
        raise UntranslatableSql(f"comparisons in `{dialect}` are not Trino's")
    if not all(map(_is_portable, tree.walk())):
        raise UntranslatableSql(f"it is `{dialect}` and more than comparisons of columns with values")
    return tree.sql(dialect=DIALECT, comments=False)


def translate_filter(text: str, dialect: str) -> str | None:
    """Return a row filter as Trino's SQL; None for TRUE. Raise the errors of `translate_expression`."""
    tree = _parse(text, dialect).unnest()
    if isinstance(tree, exp.Literal):
        raise ValueError("it is a value, not a condition")  # noqa: TRY004  a text's value, not a Python type
    if isinstance(tree, exp.Boolean):
        return None if tree.this else FALSE
    return translate_expression(text, dialect)


def join_filters(filters: Sequence[str]) -> str:
    """Return a filter for the rows of any of the filters; a single filter stays as written."""
    return filters[0] if len(filters) == 1 else " OR ".join(f"({text})" for text in filters)


def translate_constant(value: str) -> str:
    """Return the literal that a text spells (`5`, `TRUE`, `'x'`); any other text as a text literal."""
    try:
        tree = _parse(value, DIALECT)
    except ValueError:
        return _literal(value)
    number = tree.this if isinstance(tree, exp.Neg) else tree
    return tree.sql(dialect=DIALECT, comments=False) if isinstance(number, _LITERALS) else _literal(value)


def mask_sql(kind: str, value: str, column: str, type: str) -> str:
    """Return the expression in place of a column, of exactly the column's type, as Trino demands.

    `value` is the SQL of a `constant` or `expression`. A value that does not fit the type becomes NULL.
    """
    if not _is_type(type):
        return null_sql(type)
    base = re.split(r"\W", type, maxsplit=1)[0].lower()
    text = 'CAST("{}" AS varchar)'.format(column.replace('"', '""'))
    if base == "char":
        text = f"rtrim({text})"  # without the blanks that pad a value
    sql = None
    if kind == "expression":
        sql = value
    elif kind == "constant" and base in _FROM_CONSTANTS:
        # By way of a text: TRY_CAST accepts a text for every type, but a cast from a number to a date fails the query.
        return f"TRY_CAST({value if base == 'json' else f'CAST({value} AS varchar)'} AS {type})"
    elif kind == "hash" and base in _TEXTS:
        sql = f"lower(to_hex(sha256(to_utf8({text}))))"
    elif kind == "partial" and base in _TEXTS:
        sql = f"IF(length({text}) >= {_SHORTEST_VALUE}, '****' || substr({text}, -{_VISIBLE_CHARACTERS}), '****')"
    return null_sql(type) if sql is None else f"CAST({sql} AS {type})"


def null_sql(type: str) -> str:
    """Return NULL of a type; a bare NULL, valid for any type, if the text of the type could contain other SQL."""
    return f"CAST(NULL AS {type})" if _is_type(type) else "NULL"


def _is_type(text: str) -> bool:
    """Tell whether a text is safe as the type in a cast.

    Trino sends the field names of a row type without quotes, and the creator of a table chooses the names. So a type
    is safe only if its parentheses match and it consists of names, numbers, commas and blanks.
    """
    if len(text) > _LONGEST_TYPE:
        return False
    bare = _QUOTED.sub("", text)
    depth = lowest = 0
    for character in bare:
        depth += (character == "(") - (character == ")")
        lowest = min(lowest, depth)
    return depth == lowest == 0 and _PLAIN_TYPE.fullmatch(bare) is not None


def _is_portable(node: exp.Expr) -> bool:
    """Tell whether a part of an expression means the same in Trino. Trino has no IS TRUE."""
    return isinstance(node, _PORTABLE) and not (isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null))


def _parse(text: str, dialect: str) -> exp.Expr:
    try:
        trees = sqlglot.parse(text, read=dialect)
    except (SqlglotError, RecursionError, ValueError) as error:
        raise ValueError(f"it does not parse: {_first_line(str(error))}") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Condition) or isinstance(trees[0], exp.Query):
        raise ValueError("it is not one expression")
    tree: exp.Expr = trees[0]
    outside = tree.walk(prune=lambda node: isinstance(node, exp.Query))
    for nodes, kinds in ((tree.walk(), _UNFIT), (outside, _OF_QUERIES)):
        unfit = next((label for node in nodes for kind, label in kinds if isinstance(node, kind)), None)
        if unfit or any(node.name.lower() in _RANDOM for node in tree.find_all(exp.Anonymous)):
            raise ValueError(f"it holds {unfit or 'a random value'}")
    return tree


def _is_plain_text(text: str) -> bool:
    """Tell whether a text has no comment and no semicolon: both could end the parentheses around the text."""
    return not any(token.comments or token.text == ";" for token in sqlglot.tokenize(text, read=DIALECT))


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _first_line(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text.partition("\n")[0]).strip().rstrip(".")
