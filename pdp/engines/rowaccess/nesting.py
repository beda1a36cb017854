"""Bounds on the nesting of SQL, found in the text before the parser runs.

The compiled parser recurses without a limit of its own: deeper texts can end the process. Some forms take the parser a
time that doubles with each level.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import Parser, Tokenizer

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
