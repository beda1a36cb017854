"""DuckDB's own parser as a judge of what the rewriter has read, where the extra `duckdb` is installed.

The judge is another program than the reader: a word that DuckDB takes for a table is no column, whatever the reader
took the word for. The parser runs in the rewriting process, within the limits of the process, on a database without
tables, files and extensions. DuckDB shows the tree of queries alone, so changes are judged by their query.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from sqlglot import exp

from pdp.rewrite.errors import NOT_COVERED, RewriteRefused
from pdp.rewrite.names import TABLE_FUNCTIONS, name_parts
from pdp.rewrite.sql import ParsedText, parse_part

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1, "memory_limit": "256MB", "enable_external_access": False, "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
}  # fmt: skip
_QUERY_WORD: Final = re.compile(r"\b(?:select|with|values|from)\b", re.IGNORECASE)
_PARSER: Final = "parser"


class DuckdbJudge:
    """Parser of DuckDB. `parse` returns the tree of a text as JSON."""

    def __init__(self, parse: Callable[[str], str]) -> None:
        self._parse = parse

    @classmethod
    def start(cls) -> DuckdbJudge | None:
        """Return the judge; None without DuckDB."""
        try:
            import duckdb  # noqa: PLC0415  an extra
        except ImportError:
            return None
        database = duckdb.connect(config=_SETTINGS)

        def parse(text: str) -> str:
            row = database.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
            return str(row[0]) if row else ""

        return cls(parse)

    def check(self, parsed: ParsedText, result: str, replaced: Iterable[str], sources: Iterable[str]) -> None:
        """Raise RewriteRefused if DuckDB sees other tables in a result than the reader.

        `replaced` has the names in the caller's text that the `sources` stand for. A result without a tree of DuckDB is
        no query, and passes.
        """
        tree, start = parsed.tree, 0
        if isinstance(tree, (exp.Insert, exp.Create)):
            query = tree.expression
            if not isinstance(query, exp.Query) or tree.args.get("with_") or tree.args.get("returning"):
                return
            tree, start = query, _start_of_query(parsed)
        elif not isinstance(tree, exp.Query):
            return
        found = self._tree(result[start:], is_whole=start == 0)
        if found is None:
            return
        wanted = _names(tree)
        wanted.subtract(replaced)
        for source in sources:
            wanted.update(_names(parse_part(f"SELECT * FROM {source}", "duckdb")))  # noqa: S608  parsed, never executed
        seen = Counter(_tables(found))
        if seen != +wanted:
            raise RewriteRefused(NOT_COVERED, "DuckDB reads other tables in the result than the rewriter")

    def _tree(self, text: str, *, is_whole: bool) -> Any:
        """Return the tree of a query by DuckDB; None for a text without one. Raise RewriteRefused for no SQL."""
        found = json.loads(self._parse(text))
        if not found.get("error"):
            return found["statements"]
        if is_whole and found.get("error_type") == _PARSER:
            raise RewriteRefused(NOT_COVERED, "DuckDB does not parse the result")
        return None


def _start_of_query(parsed: ParsedText) -> int:
    """Return the place of the query of a change: the first word of a query outside of quotes."""
    word = _QUERY_WORD.search(parsed.lexical.bare)
    return word.start() if word else 0


def _names(tree: exp.Expr) -> Counter[str]:
    """Return the last parts of the names of all tables that the reader sees."""
    named = (name_parts(table) for table in tree.find_all(exp.Table))
    return Counter(parts[-1].lower() for parts in named if parts)


def _tables(tree: Any) -> Iterator[str]:
    """Yield the names of all tables that DuckDB sees; raise RewriteRefused for a source of another kind."""
    parts = [tree]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            kind = part.get("type")
            if kind == "BASE_TABLE":
                yield part["table_name"].lower()
            elif kind == "SHOW_REF":
                raise RewriteRefused(NOT_COVERED, "DuckDB reads a description of a table in the result")
            elif kind == "TABLE_FUNCTION" and part["function"].get("function_name", "").lower() not in TABLE_FUNCTIONS:
                raise RewriteRefused(NOT_COVERED, "DuckDB reads a table function in the result")
            parts += part.values()
