"""Mutated statements, and the tables, functions and parameters that the reader sees in them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlglot import exp
from support.rewriting import recorded_cases

from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.functions import is_table_function
from pdp.rewrite.names import name_parts
from pdp.rewrite.readings import check_readings
from pdp.rewrite.sql import ParsedText

PIECES: Final = (
    "SELECT", "FROM", "from", "closed", "t", "x", "1", "1.", ".5", "0x1", "1e5", "1e+5d", "1_0", "@", "?", ":a", ".", ",", "*", "-", "+",
    "!", "~", "<", ">", "=", "|", "&", "^", "(", ")", "[", "]", "'a'", '"x"', "`x`", "::int", "AS", "IS", "NOT", "DISTINCT", "JOIN", "ON",
    "UNION ALL", "WHERE", "IN", "CASE WHEN", "THEN", "END", "EXTRACT(year", "/**/", "--", ":", "->", "LATERAL", "TABLE", "#", "$1", "f(", "USING",
    "r'", "\\", "''", '"', "`", "/*", "*/", "\n", "TABLESAMPLE", "VALUES", "WITH", "EXISTS", "SEMI", "NATURAL", "OVER", "user", "||", "|>",
)  # fmt: skip


class Seen(NamedTuple):
    """Names of tables, and the number of parameters, in lower case."""

    tables: frozenset[str]
    parameters: int


def taken(text: str, dialect: str) -> Seen | None:
    """Return what the reader sees in a text; None for a text that is not taken."""
    try:
        parsed = ParsedText(text, dialect, statement=True)
        check_readings(parsed, dialect)
    except RewriteRefused:
        return None
    found = list(parsed.tree.find_all(exp.Table))
    named = [table for table in found if name_parts(table) is not None]
    if any(not is_table_function(table.this, dialect) for table in found if table not in named):
        return None
    tables = frozenset(table.name.lower() for table in named)
    return Seen(tables, sum(1 for _ in parsed.tree.find_all(exp.Placeholder, exp.Parameter)))


def seeds(dialect: str) -> list[str]:
    """Return the recorded statements of a dialect that the reader takes."""
    return [case["sql"] for case in recorded_cases() if case["dialect"] == dialect and taken(case["sql"], dialect)]


_WORDS: Final = re.compile(r"\s+|\w+|.", re.DOTALL)


_ALIKE: Final = str.maketrans("skiSKI", "\u017f\u212a\u0131\u017f\u212a\u0130")
"""Letters that are others in capitals, or in lower case: to some readers a word with them is one of SQL."""


def mutated(text: str, dice: random.Random, pieces: Sequence[str] = PIECES) -> str:
    """Return a statement with some words put in, left out, doubled or exchanged."""
    words = _WORDS.findall(text)
    for _ in range(dice.choice((1, 1, 2, 3))):
        at = dice.randrange(len(words))
        kind = dice.randrange(10)
        if kind < 3:
            words[at:at] = [dice.choice(("", " ")), dice.choice(pieces), dice.choice(("", " "))]
        elif kind < 5:
            words[at : at + 1] = [dice.choice(pieces)]
        elif kind == 5:
            words[at] = words[at].translate(_ALIKE)
        elif kind < 8 and len(words) > 1:
            del words[at]
        else:
            other = dice.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        words = words or [" "]
    return "".join(words)
