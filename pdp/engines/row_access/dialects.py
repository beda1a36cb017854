"""Texts of policies to Trino's SQL, within bounds on their nesting.

Trino puts the text into a query, in parentheses. So the text must be exactly one expression: `FALSE) OR (1=1` would
close the parentheses and open others. Every text is parsed before use; the bounds are kept before the parser runs. Must
not know principals, nor choose among policies.

The parser recurses without a limit of its own: deeper texts can end the process, and some forms take a time that
doubles with each level. The parser reads more than Trino does, and writes some of Trino's literals with another
meaning: `DECIMAL '1.5'` becomes `CAST('1.5' AS DECIMAL)`, which is 2. So Trino always gets the text of the author,
without comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import sqlglot
from sqlglot import Dialect, Parser, Token, Tokenizer, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError, TokenError

from pdp.engines.row_access.caller_calls import mark_calls
from pdp.engines.row_access.portable import FUNCTIONS, PARTS, adapt
from pdp.engines.row_access.portable_patterns import check_operators
from pdp.engines.row_access.portable_values import folds_caller
from pdp.engines.row_access.trino import FALSE, MARK, PLAIN, UntranslatableSql, mark_caller, text_sql

PARSER_ERRORS: Final = (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError)
"""Errors that the parser of SQL raises for some invalid texts."""
DIALECT: Final = "trino"
_ALIKE: Final = frozenset(
    {"athena", "bigquery", "databricks", "duckdb", "hive", "presto", "snowflake", "spark", "spark2"}
)
"""Dialects with Trino's comparisons. Others fold case, skip blanks, sort by language or treat '' as NULL."""
HOMES: Final = frozenset({"bigquery", "duckdb", "spark", DIALECT})
"""Dialects of engines that get filters and masks as their authors wrote them."""
_QUOTED: Final = frozenset(
    {TokenType.STRING, TokenType.IDENTIFIER, TokenType.RAW_STRING, TokenType.NATIONAL_STRING, TokenType.HEREDOC_STRING}
)
_MOST_TOKENS: Final = 20_000
"""Words and signs of one text."""
_OF_QUERIES: Final = ((exp.AggFunc, "an aggregate"), (exp.Window, "a window"), (exp.Star, "a star"))
"""Expressions that only a query can contain: in a filter, only a subquery."""


def translate_expression(text: str, dialect: str, types: Mapping[str, str] | None = None) -> str:
    """Return an expression as Trino's SQL; an expression in Trino's dialect stays as written, without its comments.

    A function of the caller becomes a mark of `trino`. Raise ValueError if the text is not exactly one expression, or
    contains an aggregate, window, parameter or random value. Raise UntranslatableSql if the expression has no certain
    meaning in Trino.
    """
    return expression_sql(*author_tree(text, dialect), dialect, types)


def expression_sql(text: str, tree: exp.Expr, dialect: str, types: Mapping[str, str] | None = None) -> str:
    """Return an expression of `author_tree` as Trino's SQL, as `translate_expression` does. Changes the tree."""
    return mark_caller(text) if dialect == DIALECT else _generated(tree, text, dialect, types)


def _generated(tree: exp.Expr, text: str, dialect: str, types: Mapping[str, str] | None) -> str:
    """Return the tree of a text of another dialect as Trino's SQL; raise the errors of `translate_expression`."""
    if dialect not in _ALIKE:
        raise UntranslatableSql(f"comparisons in `{dialect}` are not Trino's")
    check_operators(text, dialect)
    tree, others = mark_calls(tree, dialect), (*FUNCTIONS, *PARTS) if dialect in HOMES else ()
    if unfit := next((node for node in tree.walk() if not is_portable(node, others)), None):
        name, other = unportable_name(unfit), instead_of(unfit)
        raise UntranslatableSql(f"`{name}` in `{dialect}` has no certain meaning in `{DIALECT}`: write {other}")
    if has_uncertain_escape(text, dialect):
        raise UntranslatableSql(f"a backslash in a text of `{dialect}` has no certain meaning")
    known = types or {}
    adapted = adapt(tree, dialect, DIALECT, lambda column: known.get(column.parts[-1].name.casefold(), ""))
    try:
        sql = adapted.sql(dialect=DIALECT, comments=False)
    except RecursionError:
        raise ValueError("it is too long") from None
    return f"{sql}{PLAIN}" if MARK in sql and folds_caller(adapted) else sql


def translate_filter(text: str, dialect: str, types: Mapping[str, str] | None = None) -> str | None:
    """Return a row filter as Trino's SQL; None for TRUE. Raise the errors of `translate_expression`.

    `types` are those of known columns, by folded name.
    """
    return filter_sql(*author_tree(text, dialect), dialect, types)


def filter_sql(text: str, tree: exp.Expr, dialect: str, types: Mapping[str, str] | None = None) -> str | None:
    """Return a filter of `author_tree` as Trino's SQL, as `translate_filter` does. Changes the tree."""
    root = tree.unnest()
    if isinstance(root, exp.Literal):
        raise ValueError("it is a value, not a condition")  # noqa: TRY004  a text's value, not a Python type
    if isinstance(root, exp.Boolean):
        return None if root.this else FALSE
    return expression_sql(text, root, dialect, types)


def translate_constant(value: str) -> str:
    """Return the literal that a text spells (`5`, `TRUE`, `'x'`); any other text as a text literal."""
    try:
        text, tree = _author_text(value)
    except ValueError:
        return text_sql(value)
    number = tree.this if isinstance(tree, exp.Neg) else tree
    if isinstance(number, (exp.Boolean, exp.Null)):
        return tree.sql(dialect=DIALECT)
    return text.strip() if isinstance(number, exp.Literal) else text_sql(value)


def same_sql(first: str, second: str) -> bool:
    """Tell whether two expressions of Trino differ in blanks, comments, outer parentheses and case of names alone."""
    try:
        return first == second or _canonical(first) == _canonical(second)
    except ValueError:
        return False


def _canonical(text: str) -> str:
    return parse_expression(text, DIALECT).unnest().sql(dialect=DIALECT, comments=False, normalize=True)


def author_tree(text: str, dialect: str) -> tuple[str, exp.Expr]:
    """Return an author's expression as text and tree; raise ValueError. Trino's text has no comments."""
    return _author_text(text) if dialect == DIALECT else (text, parse_expression(text, dialect))


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


_PORTABLE: Final = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Is,
    exp.Boolean, exp.Null, exp.Literal, exp.Column, exp.Identifier, exp.Neg,
)  # fmt: skip
"""Expressions with the same meaning in all dialects that compare as Trino does."""
OF_SUBQUERIES: Final = (
    exp.SessionUser, exp.CurrentUser, exp.Exists, exp.Subquery, exp.Select, exp.From, exp.Where, exp.Table,
    exp.TableAlias, exp.Star,
)  # fmt: skip
"""Further expressions with the same meaning in the dialects of the rewriter."""
_PARAMETERS: Final = (exp.Placeholder, exp.Parameter, exp.SessionParameter)
_RANDOM: Final = tuple(
    kind
    for name in ("Rand", "Randn", "Randstr", "Uuid", "Shuffle", "Uniform", "Normal", "Zipf", "Nextval")
    if (kind := getattr(exp, name, None)) is not None
)
_RANDOM_NAMES: Final = frozenset(
    """rand random randn randstr random_normal random_poisson secure_rand secure_random shuffle uniform uuid uuid_string
    uuidv4 uuidv7 gen_random_uuid generate_uuid newid monotonically_increasing_id nextval setseed""".split()  # noqa: SIM905
)
"""Functions with another value in each call, as engines name them."""


def is_portable(node: exp.Expr, others: tuple[type[exp.Expr], ...] = ()) -> bool:
    """Tell whether a part, or one of the `others`, means the same in every dialect, or can be written so."""
    if isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null):
        return exp.NullSafeEQ in others and isinstance(node.expression, exp.Boolean)
    return isinstance(node, (*_PORTABLE, *others))


def unportable_name(node: exp.Expr) -> str:
    """Return the name of a part without a certain meaning in another dialect, as SQL calls it."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper()
    return node.sql_name() if isinstance(node, exp.Func) else _SIGNS.get(type(node), type(node).__name__.upper())


_SIGNS: Final[dict[type, str]] = {exp.Div: "/", exp.IntDiv: "DIV", exp.Mod: "%", exp.RegexpLike: "~", exp.Dot: "."}
_INSTEAD: Final[dict[type, str]] = {
    exp.ILike: "LOWER(..) LIKE", exp.Div: "a comparison with a product",
}  # fmt: skip


def instead_of(node: exp.Expr) -> str:
    """Return what to write in place of a part without a certain meaning in another dialect."""
    return _INSTEAD.get(type(node), "a form that docs/row-access.md lists")


_WITHOUT_ESCAPES: Final = frozenset({"athena", "duckdb", "presto", "trino"})
"""Dialects in whose texts a backslash is a sign like any other."""
_ESCAPED: Final = _QUOTED - {TokenType.RAW_STRING}
_ESCAPE: Final = re.compile(r"""\\(?:[\\'"nrt]|(.))""", re.DOTALL)


def has_uncertain_escape(text: str, dialect: str) -> bool:
    r"""Tell whether a text of SQL has a backslash that the parser may read otherwise than an engine of the dialect.

    Engines differ on most escapes: Spark keeps the backslash of `\%`. They agree on quotes, backslashes and blanks.
    """
    return (
        "\\" in text
        and dialect not in _WITHOUT_ESCAPES
        and any(
            token.token_type in _QUOTED - {TokenType.RAW_STRING}
            and any(escape[1] for escape in _ESCAPE.finditer(written))
            for token in Dialect.get_or_raise(dialect).tokenize(text)
            for written in [text[token.start : token.end + 1]]
        )
    )


def unfit_part(node: exp.Expr) -> str:
    """Return the name of a part that no filter and no mask holds; empty for another part."""
    if isinstance(node, _PARAMETERS):
        return "a parameter"
    is_named = isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)) and node.name.lower() in _RANDOM_NAMES
    return "a random value" if is_named or isinstance(node, _RANDOM) else ""


MAX_DEPTH: Final = 48
MAX_JOINS: Final = 256
MAX_DOUBLING: Final = 6
"""Most levels, joins, and levels of forms that take the parser twice the time with each level."""
_STEP: Final = re.compile(r"(\b\w+\s*)?([(\[{<])|[)\]}]|\b(?:case|end)\b")
_TYPES: Final = frozenset(
    word.lower() for word, kind in Tokenizer.KEYWORDS.items() if kind in Parser.TYPE_TOKENS and word.isidentifier()
) | {"date", "timestamp", "string", "array", "list", "map", "struct", "row", "right", "left", "if", "null"}
"""Words before a bracket that the parser reads as a type first, and then again as a function."""
_REPEATED: Final = re.compile(
    r"(?:(?:\b(?:not|interval|distinct|all|any|prior)\b|[-+~!])\s*){24}|(?:\b\w+\s*->\s*){24}"
    r"|(?:(?:::|\.|\bcollate\b)\s*\w*\s*){64}|(?:\[[^\[\]]*\]\s*){48}|(?:\([^()]*\)\s*){48}"
    r"|\b\w{1000}"
)
"""Forms that nest without brackets, or by brackets in a row, and words longer than any name."""
_JOIN: Final = re.compile(r"\b(?:(cross\s+|natural\s+(?:\w+\s+)*)?(join)|(on|using))\b")
_SET: Final = re.compile(r"\b(?:join|union|except|intersect|minus)\b|\|>")
_SHORT: Final = 256
"""Characters of a text in which no form without brackets can nest too deep."""


def is_deep(bare: str) -> bool:
    """Tell whether a text may nest beyond the bounds, or takes the parser a time that doubles with each level.

    `bare` is in lower case, with blanks in place of quoted pieces and comments.
    """
    brackets = bare.count("(") + bare.count("[") + bare.count("{") + bare.count("<")
    if brackets + bare.count("case") > MAX_DOUBLING and _has_deep_brackets(bare):
        return True
    if bare.count("join") > MAX_DOUBLING and _open_joins(bare) > MAX_DOUBLING:
        return True
    return len(bare) > _SHORT and (_REPEATED.search(bare) is not None or len(_SET.findall(bare)) > MAX_JOINS)


def _has_deep_brackets(bare: str) -> bool:
    """Tell whether brackets nest beyond the bounds: all of them, or those after a word that can be a type."""
    open_types: list[bool] = []
    cases = types = 0
    for match in _STEP.finditer(bare):
        word, bracket = match.groups()
        if bracket == "<":
            types_here = word is not None and word.strip() in _TYPES
            cases += types_here  # closed by a sign that also compares: counted, never closed
        elif bracket:
            is_type = word is not None and word.strip() in _TYPES
            open_types.append(is_type)
            types += is_type
        elif match[0] == "case":
            cases += 1
        elif match[0] == "end":
            cases = max(cases - 1, 0)
        elif open_types:
            types -= open_types.pop()
        if len(open_types) + cases > MAX_DEPTH or types > MAX_DOUBLING:
            return True
    return False


def _open_joins(bare: str) -> int:
    """Return the largest number of joins in a row that wait for their condition."""
    waiting = most = 0
    for match in _JOIN.finditer(bare):
        crossed, join, _ = match.groups()
        if not join:
            waiting = max(waiting - 1, 0)
        elif not crossed:
            waiting += 1
            most = max(most, waiting)
    return most


_PIECE: Final = re.compile(
    r"""(?P<quoted>(?:\b[uU]&)?'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<comment>--[^\r\n]*|/\*.*?\*/)|(?P<open>/\*)""",
    re.DOTALL,
)
"""Texts, quoted names and comments, as the lexer of Trino finds them. Comments do not nest."""
_BARE: Final = re.compile(r"(?:[\w \t\r\n=<>+\-*/%?(),.\[\];:]|!=|\|\|)*", re.ASCII)
"""Everything else in an expression: no typographic quotes, no odd blanks, no operators of other systems."""
_FOREIGN: Final = frozenset(
    {
        *("DCOLON", "NULLSAFE_EQ", "DIV", "RLIKE", "IRLIKE", "ILIKE", "GLOB", "SIMILAR_TO", "ISNULL", "NOTNULL", "XOR"),
        *("NATIONAL_STRING", "COLON_EQ"),
    }
)
"""Tokens that the parser reads and Trino does not."""
_FOREIGN_PAIRS: Final = frozenset({("STRING", "STRING"), ("COMMA", "R_PAREN"), ("COMMA", "R_BRACKET")})
"""Pairs of tokens in a row that the parser reads and Trino does not."""


def strip_comments(text: str) -> str:
    """Return the text without comments and a last semicolon: both could end the parentheses around the text.

    Raise ValueError for a comment without an end.
    """

    def replacement(piece: re.Match[str]) -> str:
        if piece["open"]:
            raise ValueError("it does not parse: a comment does not end")
        return piece[0] if piece["quoted"] else " "

    stripped = _PIECE.sub(replacement, text)
    if stripped == text and not text.rstrip().endswith(";"):
        return text
    return stripped.rstrip().removesuffix(";").rstrip()


def check_readable(text: str, tokens: Sequence[Token], tree: exp.Expr) -> None:
    """Raise ValueError if Trino cannot read an expression that the parser has read."""
    if not _BARE.fullmatch(_PIECE.sub(" ", text)):
        raise ValueError("it does not parse in Trino: quotes are ' and \", blanks are blanks, operators are Trino's")
    names = [token.token_type.name for token in tokens]
    foreign = next((t.text for t, name in zip(tokens, names, strict=True) if name in _FOREIGN or t.text == "=="), None)
    if foreign is not None:
        raise ValueError(f"it does not parse in Trino: `{foreign}`")
    if any(token.comments or token.text == ";" for token in tokens) or not _FOREIGN_PAIRS.isdisjoint(pairwise(names)):
        raise ValueError("it does not parse in Trino")
    if any(isinstance(node.expression, exp.Boolean) for node in tree.find_all(exp.Is)):
        raise ValueError("it does not parse in Trino: IS TRUE and IS FALSE")
