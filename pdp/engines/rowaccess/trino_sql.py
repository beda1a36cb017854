"""Row filters and masks as Trino's SQL. Knows no principal: which of them apply is decided elsewhere.

A text that goes into a query must be one expression and nothing more: `FALSE) OR (1=1` is two halves of something
else once it stands in parentheses. So every text is parsed before it is used.
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
"""The filter that lets no row through."""
_ALIKE: Final = frozenset(
    {"athena", "bigquery", "databricks", "duckdb", "hive", "presto", "snowflake", "spark", "spark2"}
)
"""Dialects whose comparisons are Trino's: others fold case, skip blanks, sort by language or take '' for NULL."""
_PORTABLE: Final = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Is,
    exp.Boolean, exp.Null, exp.Literal, exp.Column, exp.Identifier, exp.Neg,
)  # fmt: skip
"""What means the same in these dialects."""
_OF_QUERIES: Final = ((exp.AggFunc, "an aggregate"), (exp.Window, "a window"), (exp.Star, "a star"))
"""What stands in a query alone, so in a filter in a subquery alone."""
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
"""Types that a constant can be cast to."""
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"')
_PLAIN_TYPE: Final = re.compile(r"[A-Za-z][\w ,()]*")
"""A type's name, its parameters and the names of a row's fields, once what is quoted is out."""
_LONGEST_TYPE: Final = 4096
"""Signs of a type that are looked at; whoever creates a table chooses how many there are."""
_KEPT_SIGNS: Final = 4
_FEWEST_SIGNS: Final = 8
"""How many signs a partial mask keeps, of values that have at least so many."""


class UntranslatableSql(ValueError):
    """An expression that is fine where it was written and has no certain meaning in Trino."""


def expression(text: str, dialect: str) -> str:
    """One expression as Trino's SQL, unchanged where it is Trino's already.

    Raises ValueError where it is not one expression without aggregates, windows, parameters and random values;
    Unspeakable where it is, and cannot be said in Trino.
    """
    tree = _parsed(text, dialect)
    if dialect == DIALECT:
        return text if _is_plain_text(text) else tree.sql(dialect=DIALECT, comments=False)
    if dialect not in _ALIKE:
        raise UntranslatableSql(f"comparisons in `{dialect}` are not Trino's")
    if not all(map(_is_portable, tree.walk())):
        raise UntranslatableSql(f"it is `{dialect}` and more than comparisons of columns with values")
    return tree.sql(dialect=DIALECT, comments=False)


def predicate(text: str, dialect: str) -> str | None:
    """A row filter as Trino's SQL; None for TRUE, which filters nothing. Raises as `expression` does."""
    tree = _parsed(text, dialect).unnest()
    if isinstance(tree, exp.Literal):
        raise ValueError("it is a value, not a condition")  # noqa: TRY004  a text's value, not a Python type
    if isinstance(tree, exp.Boolean):
        return None if tree.this else FALSE
    return expression(text, dialect)


def any_of(filters: Sequence[str]) -> str:
    """A row that one of some filters lets through is let through; one filter stays as it is."""
    return filters[0] if len(filters) == 1 else " OR ".join(f"({text})" for text in filters)


def constant(value: str) -> str:
    """A value as a literal: the literal that it spells, or else the text that it is."""
    try:
        tree = _parsed(value, DIALECT)
    except ValueError:
        return _literal(value)
    number = tree.this if isinstance(tree, exp.Neg) else tree
    return tree.sql(dialect=DIALECT, comments=False) if isinstance(number, _LITERALS) else _literal(value)


def masked(kind: str, value: str, column: str, type: str) -> str:
    """What stands in a column's place: an expression of exactly the column's type, as Trino demands.

    `value` is the SQL of a `constant` or of an `expression`. What a type cannot hold is NULL.
    """
    if not _is_type(type):
        return null(type)
    base = re.split(r"\W", type, maxsplit=1)[0].lower()
    text = 'CAST("{}" AS varchar)'.format(column.replace('"', '""'))
    if base == "char":
        text = f"rtrim({text})"  # blanks that fill a value up are no signs of it
    made = None
    if kind == "expression":
        made = value
    elif kind == "constant" and base in _FROM_CONSTANTS:
        # by way of a text, which can be tried as anything; a number as a date is no failure but a wrong query
        return f"TRY_CAST({value if base == 'json' else f'CAST({value} AS varchar)'} AS {type})"
    elif kind == "hash" and base in _TEXTS:
        made = f"lower(to_hex(sha256(to_utf8({text}))))"
    elif kind == "partial" and base in _TEXTS:
        made = f"IF(length({text}) >= {_FEWEST_SIGNS}, '****' || substr({text}, -{_KEPT_SIGNS}), '****')"
    return null(type) if made is None else f"CAST({made} AS {type})"


def null(type: str) -> str:
    """NULL of a type; bare, which Trino takes as any, where the type's text could be read as more than a type."""
    return f"CAST(NULL AS {type})" if _is_type(type) else "NULL"


def _is_type(text: str) -> bool:
    """Whether a text cannot end the cast that it stands in.

    Trino writes names of a row's fields without quotes, and whoever creates a table chooses them.
    """
    if len(text) > _LONGEST_TYPE:
        return False
    bare = _QUOTED.sub("", text)
    depth = lowest = 0
    for sign in bare:
        depth += (sign == "(") - (sign == ")")
        lowest = min(lowest, depth)
    return depth == lowest == 0 and _PLAIN_TYPE.fullmatch(bare) is not None


def _is_portable(node: exp.Expr) -> bool:
    """Whether a part of an expression means the same in Trino, which has no IS TRUE."""
    return isinstance(node, _PORTABLE) and not (isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null))


def _parsed(text: str, dialect: str) -> exp.Expr:
    try:
        found = sqlglot.parse(text, read=dialect)
    except (SqlglotError, RecursionError, ValueError) as error:
        raise ValueError(f"it does not parse: {_first_line(str(error))}") from None
    if len(found) != 1 or not isinstance(found[0], exp.Condition) or isinstance(found[0], exp.Query):
        raise ValueError("it is not one expression")
    tree: exp.Expr = found[0]
    outside = tree.walk(prune=lambda node: isinstance(node, exp.Query))
    for nodes, kinds in ((tree.walk(), _UNFIT), (outside, _OF_QUERIES)):
        unfit = next((what for node in nodes for kind, what in kinds if isinstance(node, kind)), None)
        if unfit or any(node.name.lower() in _RANDOM for node in tree.find_all(exp.Anonymous)):
            raise ValueError(f"it holds {unfit or 'a random value'}")
    return tree


def _is_plain_text(text: str) -> bool:
    """Whether a text holds neither comments nor a semicolon, which would not stay within parentheses."""
    return not any(token.comments or token.text == ";" for token in sqlglot.tokenize(text, read=DIALECT))


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _first_line(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text.partition("\n")[0]).strip().rstrip(".")
