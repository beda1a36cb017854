"""Quick second reading: the words of a rewritten text, without the parser.

To read a relation, a plain text has to contain the last part of the name as a word. So a plain text without the names
of relations with policies, and without those of views, shows hidden rows in its sources alone, and those are read for
themselves. An alias (`AS orders`) is no read. In every doubt the parser reads the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pdp.rewrite.functions import SCALARS

LONGEST: Final = 4_000
_PLAIN: Final = re.compile(r"(?:[\w\s.,()=<>+*%]|-(?!-)|/(?!\*)|'[\w .:%/-]*'(?!'))*", re.ASCII)
_WORD: Final = re.compile(r"'[^']*'|[\w.]+|[(),]|[=<>+*/%-]+", re.ASCII)
_BEFORE_BRACKETS: Final = SCALARS | frozenset(
    """all and any as between by case distinct else except exists filter from having in intersect is join like not on or
    over select then union when where with within""".split()  # noqa: SIM905
)
"""Words that may stand before an opening parenthesis."""
_DOUBTFUL: Final = frozenset(
    """alter apply attach call copy create delete describe drop execute explain explode export insert into lateral
    match_recognize merge pivot pragma prepare set show stack summarize table tablesample truncate unnest unpivot update
    use values""".split()  # noqa: SIM905
)
"""Words that leave a text to the parser."""
_LATERAL_JOINS: Final = frozenset({"duckdb"})
"""Dialects in which a joined subquery sees the sources to its left."""


class WordReading:
    """Reading of texts of one dialect for one set of policies and one catalog."""

    def __init__(self, closed: Iterable[str], dialect: str) -> None:
        """Prepare the reading. `closed` has the last parts of names that a text must not read."""
        self._closed = frozenset(closed)
        self._sources = frozenset({"from"} if dialect in _LATERAL_JOINS else {"from", "join"})

    def covers(self, text: str, visible: str, plain: str) -> bool:
        """Tell whether a text is certainly one query that shows no hidden row.

        `visible` and `plain` stand for the sources that were read. A plain source has bare names, so an engine must not
        look for names outside: the source stands in FROM, and so does every parenthesis around the source.
        """
        if len(text) > LONGEST or not _PLAIN.fullmatch(text):
            return False
        words = _WORD.findall(text.lower())
        if not words or words[0] not in ("select", "with") or not _DOUBTFUL.isdisjoint(words):
            return False
        around: list[bool] = []
        before = last = ""
        for word in words:
            if word == "(":
                if last not in _BEFORE_BRACKETS and (last[-1:].isalnum() or last[-1:] in "_')"):
                    return False
                around.append(not self._is_source(last, before) and last != "as")
            elif word == ")":
                if not around:
                    return False
                around.pop()
            elif word == plain and True not in around and self._is_source(last, before):
                pass
            elif not self._is_read(word, last, visible):
                return False
            before, last = last, word
        return not around

    def _is_source(self, last: str, before: str) -> bool:
        """Tell whether a source stands after two words. IS DISTINCT FROM compares."""
        return last in self._sources and before != "distinct"

    def _is_read(self, word: str, last: str, visible: str) -> bool:
        """Tell whether a word reads no closed relation and no file, after the word before."""
        if word[0] == "'":
            return last not in ("from", "join") and "." not in word and "/" not in word
        if word in self._closed:
            return last == "as"
        if word.startswith(visible):
            return word == visible
        return "." not in word or self._closed.isdisjoint(word.split("."))
