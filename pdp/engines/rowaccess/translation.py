"""Texts of policies to Trino's SQL. Knows no principal, and does not choose among policies.

Trino puts the text into a query, in parentheses. So the text must be exactly one expression: `FALSE) OR (1=1` would
close the parentheses and open others. Every text is parsed before use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import sqlglot
from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError, TokenError

from pdp.engines.rowaccess.expression_parts import is_portable, unfit_part
from pdp.engines.rowaccess.nesting import MAX_DEPTH, is_deep
from pdp.engines.rowaccess.trino_sql import CALLER, FALSE
from pdp.engines.rowaccess.trino_text import check_readable, strip_comments

PARSER_ERRORS: Final = (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError)
"""Errors that the parser of SQL raises for some invalid texts."""
DIALECT: Final = "trino"
_ALIKE: Final = frozenset(
    {"athena", "bigquery", "databricks", "duckdb", "hive", "presto", "snowflake", "spark", "spark2"}
)
"""Dialects with Trino's comparisons. Others fold case, skip blanks, sort by language or treat '' as NULL."""
_QUOTED: Final = frozenset(
    {TokenType.STRING, TokenType.IDENTIFIER, TokenType.RAW_STRING, TokenType.NATIONAL_STRING, TokenType.HEREDOC_STRING}
)
_MOST_TOKENS: Final = 20_000
"""Words and signs of one text."""
_OF_QUERIES: Final = ((exp.AggFunc, "an aggregate"), (exp.Window, "a window"), (exp.Star, "a star"))
"""Expressions that only a query can contain: in a filter, only a subquery."""


class UntranslatableSql(ValueError):
    """Valid expression of another dialect without a certain meaning in Trino."""


def translate_expression(text: str, dialect: str) -> str:
    """Return an expression as Trino's SQL; an expression in Trino's dialect stays as written, without its comments.

    Raise ValueError if the text is not exactly one expression, or contains an aggregate, window, parameter or random
    value. Raise UntranslatableSql if the expression has no certain meaning in Trino.
    """
    if dialect == DIALECT:
        return _author_text(text)[0]
    return _generated(parse_expression(text, dialect), dialect)


def _generated(tree: exp.Expr, dialect: str) -> str:
    """Return a tree of another dialect as Trino's SQL; raise the errors of `translate_expression`."""
    if dialect not in _ALIKE:
        raise UntranslatableSql(f"comparisons in `{dialect}` are not Trino's")
    if not all(map(is_portable, tree.walk())):
        raise UntranslatableSql(f"it is `{dialect}` and more than comparisons of columns with values")
    try:
        return tree.sql(dialect=DIALECT, comments=False)
    except RecursionError:
        raise ValueError("it is too long") from None


def translate_filter(text: str, dialect: str) -> str | None:
    """Return a row filter as Trino's SQL; None for TRUE. Raise the errors of `translate_expression`.

    SESSION_USER() and CURRENT_USER of another dialect become the mark CALLER.
    """
    tree = (_author_text(text)[1] if dialect == DIALECT else parse_expression(text, dialect)).unnest()
    if isinstance(tree, exp.Literal):
        raise ValueError("it is a value, not a condition")  # noqa: TRY004  a text's value, not a Python type
    if isinstance(tree, exp.Boolean):
        return None if tree.this else FALSE
    if dialect == DIALECT:
        return translate_expression(text, dialect)
    return _generated(tree.transform(_marked, copy=False), dialect)


def _marked(node: exp.Expr) -> exp.Expr:
    return exp.Literal.string(CALLER[1:-1]) if isinstance(node, (exp.SessionUser, exp.CurrentUser)) else node


def translate_constant(value: str) -> str:
    """Return the literal that a text spells (`5`, `TRUE`, `'x'`); any other text as a text literal."""
    try:
        text, tree = _author_text(value)
    except ValueError:
        return _literal(value)
    number = tree.this if isinstance(tree, exp.Neg) else tree
    if isinstance(number, (exp.Boolean, exp.Null)):
        return tree.sql(dialect=DIALECT)
    return text.strip() if isinstance(number, exp.Literal) else _literal(value)


def same_sql(first: str, second: str) -> bool:
    """Tell whether two expressions of Trino differ in blanks, comments, outer parentheses and case of names alone."""
    try:
        return first == second or _canonical(first) == _canonical(second)
    except ValueError:
        return False


def _canonical(text: str) -> str:
    return parse_expression(text, DIALECT).unnest().sql(dialect=DIALECT, comments=False, normalize=True)


def _author_text(text: str) -> tuple[str, exp.Expr]:
    """Return an expression in Trino's dialect as written, without comments, and its tree; raise ValueError."""
    text = strip_comments(text)
    tree = parse_expression(text, DIALECT)
    check_readable(text, sqlglot.tokenize(text, read=DIALECT), tree)
    return text, tree


def _check_depth(tokens: Sequence[Token]) -> None:
    """Raise ValueError for a text that can end the process in the parser, or keep the parser busy."""
    if len(tokens) > _MOST_TOKENS:
        raise ValueError(f"it has more than {_MOST_TOKENS} words and signs")
    bare = " ".join("x" if token.token_type in _QUOTED else token.text.lower() for token in tokens)
    if is_deep(bare):
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def parse_expression(text: str, dialect: str) -> exp.Expr:
    """Return the tree of a text that is exactly one expression; raise ValueError as `translate_expression` does."""
    if "\0" in text:
        raise ValueError("it does not parse: a NUL character")
    try:
        grammar = Dialect.get_or_raise(dialect)
        tokens = grammar.tokenize(text)
        _check_depth(tokens)
        trees = grammar.parser().parse(tokens, text)
    except ParseError as error:
        raise ValueError(f"it does not parse: {_cause(error)}") from None
    except TokenError:
        raise ValueError("it does not parse: a quote or a comment does not end") from None
    except RecursionError:
        raise ValueError("it does not parse: it is nested too deeply") from None
    except PARSER_ERRORS as error:
        raise ValueError(f"it does not parse: {_first_line(str(error))}") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Condition) or isinstance(trees[0], exp.Query):
        raise ValueError("it is not one expression")
    tree: exp.Expr = trees[0]
    outside = tree.walk(prune=lambda node: isinstance(node, exp.Query))
    unfit = next(filter(None, map(unfit_part, tree.walk())), None) or next(
        (label for node in outside for kind, label in _OF_QUERIES if isinstance(node, kind)), None
    )
    if unfit:
        raise ValueError(f"it holds {unfit}")
    return tree


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _cause(error: ParseError) -> str:
    """Return the cause of an error without the names of the parser's classes, with its place in the text."""
    first = error.errors[0] if error.errors else {}
    cause, token = str(first.get("description", "")), str(first.get("highlight") or "")
    if cause.startswith("Required keyword"):
        cause = f"something is missing after `{token}`"
    elif cause.startswith("Expecting "):
        cause = f"`{cause.removeprefix('Expecting ')}` is missing after `{token}`"
    else:
        cause = f"unexpected `{token}`"
    return f"{cause} at line {first.get('line', 1)}, column {first.get('col', 1)} of the text"


def _first_line(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text.partition("\n")[0]).strip().rstrip(".")
