"""The parser's side of a text: tokens, one tree, errors as refusals, quoted names and texts of each dialect."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from sqlglot import Dialect, Parser, Token, Tokenizer, exp

from pdp.engines.row_access.dialects import PARSER_ERRORS
from pdp.rewrite.errors import FILTER_INVALID, PARSE_ERROR, UNSUPPORTED_STATEMENT, RewriteRefused
from pdp.rewrite.lexical import LexicalText

_QUOTES: Final = {"trino": '"', "duckdb": '"', "spark": "`", "bigquery": "`"}
_ESCAPING: Final = frozenset({"spark", "bigquery"})
"""Dialects in whose texts a backslash escapes the next character."""
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\\$\\{")
_OPENING: Final = re.compile(r"[\s(]*(\w+)")
STATEMENTS: Final = frozenset(
    "select with from table values insert update delete merge create truncate pivot unpivot".split()  # noqa: SIM905
)
"""First words of the statements that are read. The parser keeps other statements as a text of its own."""


class _Grammars(threading.local):
    """Tokenizers and parsers of this thread. Both begin anew with each text; making them costs as much as a text."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Tokenizer, Parser]] = {}

    def of(self, dialect: str) -> tuple[Tokenizer, Parser]:
        """Return the tokenizer and parser of a dialect."""
        found = self._known.get(dialect)
        if found is None:
            grammar = Dialect.get_or_raise(dialect)
            found = self._known[dialect] = grammar.tokenizer(), grammar.parser()
        return found


_GRAMMARS: Final = _Grammars()
logging.getLogger("sqlglot").setLevel(logging.ERROR)
"""The parser warns of statements that it keeps as text. Those are refused."""


class ParsedText:
    """Text with lexical reading, tokens and a single tree."""

    __slots__ = ("lexical", "text", "tokens", "tree")

    def __init__(self, text: str, dialect: str, *, statement: bool = False) -> None:
        """Read a text; raise RewriteRefused unless the text is a single statement or expression."""
        self.text = text
        self.lexical = LexicalText(text, dialect)
        if statement:
            _check_opening(self.lexical.bare)
        tokenizer, parser = _GRAMMARS.of(dialect)
        try:
            self.tokens = tokenizer.tokenize(text)
            self.lexical.check_tokens(self.tokens)
            if dialect == "spark":
                _check_scripts(self.tokens, text)
            trees = parser.parse(self.tokens, text)
        except RecursionError:
            raise RewriteRefused(PARSE_ERROR, "the text is nested too deeply") from None
        except PARSER_ERRORS as error:
            raise RewriteRefused(PARSE_ERROR, f"the text does not parse: {_first_line(str(error))}") from None
        self.tree = _only_tree(trees)


def parse_part(text: str, dialect: str) -> exp.Expr:
    """Return the tree of a text made of parts that were read before; raise RewriteRefused."""
    tokenizer, parser = _GRAMMARS.of(dialect)
    try:
        return _only_tree(parser.parse(tokenizer.tokenize(text), text))
    except PARSER_ERRORS as error:
        raise RewriteRefused(PARSE_ERROR, f"the text does not parse: {_first_line(str(error))}") from None


def _only_tree(trees: Sequence[exp.Expr | None]) -> exp.Expr:
    found = [tree for tree in trees if tree is not None]
    if len(found) != 1:
        raise RewriteRefused(PARSE_ERROR, "the text is not exactly one statement")
    if isinstance(found[0], exp.Command):
        raise RewriteRefused(UNSUPPORTED_STATEMENT, f"{found[0].name.upper()} is not supported")
    return found[0]


def _check_opening(bare: str) -> None:
    """Raise RewriteRefused for an unsupported kind of statement."""
    opening = _OPENING.match(bare)
    if opening and opening[1].lower() not in STATEMENTS:
        raise RewriteRefused(UNSUPPORTED_STATEMENT, f"{opening[1].upper()[:40]} is not supported")


def _check_scripts(tokens: Sequence[Token], text: str) -> None:
    """Raise RewriteRefused for `USING 'script'`: Spark runs the script on the rows."""
    for token, following in pairwise(tokens):
        if token.text.lower() == "using" and text[following.start] in "'\"":
            raise RewriteRefused(UNSUPPORTED_STATEMENT, "scripts (TRANSFORM, MAP and REDUCE) are not supported")


def quote_name(name: str, dialect: str) -> str:
    """Return a name in quotes; raise RewriteRefused for a name that the dialect cannot quote with certainty."""
    quote = _QUOTES[dialect]
    if _UNSAFE.search(name) or (dialect == "bigquery" and ("`" in name or "\\" in name)):
        raise RewriteRefused(PARSE_ERROR, "a name has a character that cannot be quoted")
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"


def quote_names(parts: Iterable[str], dialect: str) -> str:
    """Return a full name, each part in quotes."""
    return ".".join(quote_name(part, dialect) for part in parts)


def quote_text(value: str, dialect: str) -> str:
    """Return a text literal; raise RewriteRefused for a value that has no certain literal in the dialect."""
    if _UNSAFE.search(value):
        raise RewriteRefused(FILTER_INVALID, "the name of the caller has a character that no literal holds for certain")
    if dialect in _ESCAPING:
        return "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
    return "'{}'".format(value.replace("'", "''"))


def place_of(identifier: exp.Expr) -> tuple[int, int]:
    """Return the place of an identifier in the text; raise RewriteRefused if the parser did not note the place."""
    start, end = identifier.meta.get("start"), identifier.meta.get("end")
    if start is None or end is None:
        raise RewriteRefused(PARSE_ERROR, f"`{identifier.name}` has no certain place in the text")
    return start, end + 1


def _first_line(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text.partition("\n")[0]).strip().rstrip(".")[:200]
