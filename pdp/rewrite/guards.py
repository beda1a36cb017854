"""Guards against other readings by an engine: barriers, and DuckDB's own parser as a judge.

An engine may evaluate a condition of the statement before the filter of the source. An error about a hidden row prints
the row's values. A barrier is a clause around the source that the optimizer of the engine does not move conditions
through. That is measured (`tests/rewrite/test_barriers.py`), the engine does not promise it. A statement whose
expressions cannot fail on any row needs no barrier. Such expressions compare columns with columns and literals of the
same kind, and call functions that take every value.

The judge is a second reader, where the extra `duckdb` is installed. A word that DuckDB takes for a table is no column,
whatever the rewriter took the word for. The parser runs in the
rewriting process, within the limits of the process, on a database without tables, files and extensions. DuckDB shows
the tree of queries alone, so changes are judged by their query.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from pdp.rewrite.catalog import Relation
from pdp.rewrite.errors import NOT_COVERED, RewriteRefused
from pdp.rewrite.functions import TABLE_FUNCTIONS
from pdp.rewrite.names import name_parts
from pdp.rewrite.sql import LexicalText, ParsedText, parse_part

BARRIERS: Final = {
    "duckdb": "(SELECT CASE WHEN hash(COLUMNS(*)) IS NOT NULL THEN COLUMNS(*) END FROM ({}) AS _rap_rows OFFSET 0)",
    "spark": "(SELECT * FROM ({}) TABLESAMPLE (100 PERCENT))",
}
"""Dialect -> query of the visible rows behind a barrier. All clauses keep every row.

DuckDB reads a field of a struct in the scan and casts it there, before the filter and through `OFFSET 0`, unless an
expression makes each column anew. DuckDB also folds conditions by the minimum and maximum of all rows, hidden or not:
then the absence of an error tells hidden values. CASE has no statistics, as DuckDB does not know that no hash is NULL.
`COLUMNS(*)` keeps names and types.
"""
MASK_BARRIERS: Final = frozenset({"duckdb"})
"""Dialects that derive statistics of a mask from statistics of the column: a mask needs the barrier, too."""
_TOTAL: Final = frozenset(
    {
        *(exp.Select, exp.From, exp.Where, exp.Table, exp.TableAlias, exp.Subquery, exp.CTE, exp.With),
        *(exp.Identifier, exp.Column, exp.Star, exp.Alias, exp.Paren, exp.Literal, exp.Boolean, exp.Null),
        *(exp.Group, exp.Order, exp.Ordered, exp.Having, exp.Limit, exp.Offset),
        *(
            exp.And,
            exp.Or,
            exp.Not,
            exp.Distinct,
            exp.Count,
            exp.Min,
            exp.Max,
            exp.Window,
            exp.RowNumber,
            exp.Exists,
            exp.Tuple,
        ),
    }
)
"""Parts that fail for no value of a column, whatever the type of the column is."""
_COMPARISONS: Final = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In,
)  # fmt: skip
_CONNECTED: Final[Mapping[type[exp.Expr], tuple[str, ...]]] = {
    exp.And: ("this", "expression"), exp.Or: ("this", "expression"), exp.Not: ("this",), exp.Where: ("this",),
    exp.Having: ("this",), exp.Join: ("on",),
}  # fmt: skip
"""Parts that take conditions. An engine casts any other value to a condition, which can fail."""
_CONDITIONS: Final = (*_COMPARISONS, exp.And, exp.Or, exp.Not, exp.Is, exp.Like, exp.Exists, exp.Boolean)
_OF_TEXTS: Final = (exp.Like, exp.Lower, exp.Upper, exp.Length, exp.Trim)
_OF_NUMBERS: Final = (exp.Sum, exp.Avg)
_INTEGERS: Final = frozenset({"int", "integer", "bigint", "smallint", "tinyint", "int64", "long"})
_TEXTS: Final = frozenset({"varchar", "text", "string"})
_LONGEST_INTEGER: Final = 18
"""Digits of an integer that fits every larger type."""


def is_total(tree: exp.Expr, relations: Iterable[Relation], dialect: str) -> bool:
    """Tell whether no expression of a query can fail on a row of its sources, and no order of groups tells of others.

    DuckDB groups by the range of all values where it is small, so the order of groups would tell a hidden maximum.
    """
    if dialect == "duckdb" and tree.find(exp.Group, exp.Distinct):
        return False
    kinds = _kinds(tree, relations)
    return all(_is_total_node(node, kinds) for node in tree.walk())


def _is_total_node(node: exp.Expr, kinds: Mapping[str, str]) -> bool:
    """Tell whether a part cannot fail if its own parts do not."""
    cls = type(node)
    operands = [node.args.get(key) for key in _CONNECTED.get(cls, ())]
    if any(operand is not None and not isinstance(operand.unnest(), _CONDITIONS) for operand in operands):
        return False
    if isinstance(node, _COMPARISONS):
        return _is_comparison(node, kinds)
    if isinstance(node, exp.Is):
        return isinstance(node.expression, exp.Null)
    if isinstance(node, exp.Join):
        # a natural join compares columns that nobody names
        return not node.args.get("method") and all(_kind(exp.Column(this=part), kinds) for part in _using(node))
    if isinstance(node, exp.Like) and not isinstance(node.expression, exp.Literal):
        return False  # a backslash at the end of a pattern fails, and the error prints the pattern
    if isinstance(node, _OF_TEXTS):
        return all(_kind(part, kinds) == "text" for part in node.iter_expressions())
    if isinstance(node, _OF_NUMBERS):
        return _kind(node.this, kinds) == "integer"
    return cls in _TOTAL


def _using(join: exp.Join) -> Sequence[exp.Expr]:
    return [part.copy() for part in join.args.get("using") or ()]


def _kinds(tree: exp.Expr, relations: Iterable[Relation]) -> Mapping[str, str]:
    """Return the kinds of columns by name, without names that the query gives itself or that have several kinds.

    A relation of unknown columns may have a column of any name and kind.
    """
    relations = list(relations)
    if not all(relation.columns for relation in relations):
        return {}
    found: dict[str, set[str]] = {}
    for relation in relations:
        for name, type in relation.columns.items():
            found.setdefault(name.lower(), set()).add(_kind_of(type))
    given = {node.alias.lower() for node in tree.find_all(exp.Alias)}
    given |= {part.name.lower() for node in tree.find_all(exp.TableAlias) for part in node.args.get("columns") or ()}
    return {name: min(kinds) for name, kinds in found.items() if len(kinds) == 1 and name not in given}


def _kind_of(type: str) -> str:
    """Return the kind of a type: values of one kind are compared without a cast that can fail."""
    base = type.lower().partition("(")[0].strip()
    if base in _INTEGERS:
        return "integer"
    return "text" if base in _TEXTS else type.strip().lower()


def _kind(node: exp.Expr, kinds: Mapping[str, str]) -> str:
    """Return the kind of a column or literal; empty in doubt."""
    if isinstance(node, exp.Column):
        return kinds.get(node.name.lower(), "") if isinstance(node.this, exp.Identifier) else ""
    if isinstance(node, exp.Literal):
        is_short = node.name.isdigit() and len(node.name) <= _LONGEST_INTEGER
        return "text" if node.is_string else "integer" if is_short else ""
    if isinstance(node, (exp.Lower, exp.Upper, exp.Trim)):
        return "text"
    return "integer" if isinstance(node, (exp.Length, exp.Count)) else ""


def _is_comparison(node: exp.Expr, kinds: Mapping[str, str]) -> bool:
    """Tell whether all operands are of one kind. A text beside a column of another known kind is read as that kind."""
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        return False
    parts = list(node.iter_expressions())
    found = {_kind(part, kinds) for part in parts}
    if "" in found:
        return False
    columns = {_kind(part, kinds) for part in parts if not isinstance(part, exp.Literal)}
    literals = {_kind(part, kinds) for part in parts if isinstance(part, exp.Literal)}
    return len(columns) <= 1 and (literals <= columns or literals == {"text"})


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
    return Counter(table.name.lower() for table in tree.find_all(exp.Table) if name_parts(table))


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
