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
from pdp.rewrite.sql import LexicalText, ParsedText, parse_part

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1, "memory_limit": "256MB", "enable_external_access": False, "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
}  # fmt: skip
_QUERY_WORD: Final = re.compile(r"\b(?:select|with|values|from)\b", re.IGNORECASE)
_BEHIND_QUERY: Final = re.compile(r"\bon\s+conflict\b|\bwith\s+(?:no\s+)?data\b|;\s*\Z", re.IGNORECASE)
"""Clauses behind the query of a change."""
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
        except ModuleNotFoundError as error:
            if error.name != "duckdb":  # an extra that is installed and broken
                raise
            return None
        database = duckdb.connect(config=_SETTINGS)

        def parse(text: str) -> str:
            row = database.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
            return str(row[0]) if row else ""

        return cls(parse)

    def check(self, parsed: ParsedText, result: str, replaced: Iterable[str], sources: Iterable[str]) -> None:
        """Raise RewriteRefused if DuckDB sees tables of other names in a result than the reader.

        Names are compared by their last part. `replaced` has the names in the caller's text that the `sources` stand
        for. A query without a tree of DuckDB, such as a PIVOT, passes.
        """
        tree, text = parsed.tree, result
        if isinstance(tree, (exp.Insert, exp.Create)):
            query = tree.expression
            if not isinstance(query, exp.Query) or tree.args.get("with_") or tree.args.get("returning"):
                return
            tree, text = query, _query_of_change(result)
        elif not isinstance(tree, exp.Query):
            return
        found = self._tree(text)
        if found is None:
            return
        wanted = _names(tree)
        wanted.subtract(replaced)
        for source in sources:
            wanted.update(_names(parse_part(f"SELECT * FROM {source}", "duckdb")))  # noqa: S608  parsed, never executed
        seen = Counter(_tables(found))
        if seen != +wanted:
            raise RewriteRefused(NOT_COVERED, "DuckDB reads other tables in the result than the rewriter")

    def _tree(self, text: str) -> Any:
        """Return the tree of a query by DuckDB; None for a text without one. Raise RewriteRefused for no SQL."""
        found = json.loads(self._parse(text))
        if not found.get("error"):
            return found["statements"]
        if found.get("error_type") == _PARSER:
            raise RewriteRefused(NOT_COVERED, "DuckDB does not parse the result")
        return None


def _query_of_change(text: str) -> str:
    """Return the query of an INSERT or CREATE: from its first word, or the parentheses before, to the clauses behind.

    A query that is cut in a wrong place does not parse, or has other tables than the reader saw: both are refused.
    """
    bare = LexicalText(text, "duckdb").bare
    word = _QUERY_WORD.search(bare)
    start = word.start() if word else 0
    while bare[:start].rstrip().endswith("("):
        start = bare[:start].rstrip().rfind("(")
    behind = _BEHIND_QUERY.search(bare, start)
    return text[start : behind.start() if behind else len(text)]


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
