"""Trino's SQL as its author wrote it: without comments, otherwise to the letter, and only as far as Trino can read it.

The parser of `translation` reads more than Trino does, and writes some of Trino's literals with another meaning:
`DECIMAL '1.5'` becomes `CAST('1.5' AS DECIMAL)`, which is 2. So Trino always gets the text of the author.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sqlglot import Token, exp

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
