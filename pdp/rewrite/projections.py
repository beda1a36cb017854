"""Names for projections named by text, and array paths of BigQuery, such as `o.tags` after `orders AS o`.

DuckDB names a column without an alias after the text of its expression. Where the text holds a filter, the name would
show the filter.

The parser takes array paths for no tables. It divides quoted names at dots before it looks for the alias, and drops the
clauses behind a path. The engine takes a quoted name with dots for a table, and a path with clauses of a table as well.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from pdp.rewrite.errors import UNSUPPORTED_SOURCE, RewriteRefused
from pdp.rewrite.sql import Edit, ParsedText, place_of

NAMED_BY_TEXT: Final = frozenset({"duckdb"})
_BOUNDARY: Final = re.compile(
    r"[()\[\]{},;]|\b(?:select|from|where|group|having|order|limit|offset|union|except|intersect|qualify|window|using)\b",
    re.IGNORECASE,
)
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")


def alias_edits(node: exp.Table, start: int, bare: str, taken: str) -> list[Edit]:
    """Return the insertions that name each unnamed projection around a table whose name begins at `start`.

    Raise RewriteRefused for an unnamed projection over a named window that holds the table.
    """
    owners = _unnamed_owners(node)
    if not any(unnamed for _, unnamed in owners):
        return []
    levels = _select_levels(bare, start)
    if len(levels) != len(owners):
        raise RewriteRefused(UNSUPPORTED_SOURCE, "give the column with the subquery a name (AS)")
    edits = []
    for (position, unnamed), level in zip(owners, levels, strict=True):
        if unnamed:
            end = _end_of_projection(bare, start, level)
            edits.append(Edit(end, end, f" AS {taken}{position}"))
    return edits


def _unnamed_owners(node: exp.Expr) -> list[tuple[int, bool]]:
    """Return the queries around a table, inner first: the position of the projection, and if it needs a name."""
    owners = []
    while (parent := node.parent) is not None:
        # The SELECT of the query around a common table expression comes after the expression.
        if isinstance(parent, exp.Select) and node.arg_key != "with_":
            if node.arg_key == "windows":
                _check_named_windows(parent)
            is_projection = node.arg_key == "expressions"
            unnamed = is_projection and not isinstance(node, (exp.Alias, exp.Aliases, exp.Column, exp.Star))
            owners.append((node.index or 0, unnamed))
        node = parent
    return owners


def _check_named_windows(query: exp.Select) -> None:
    """Raise RewriteRefused for an unnamed projection over a named window: the name would hold the window's text."""
    for projection in query.expressions:
        if not isinstance(projection, (exp.Alias, exp.Aliases)) and projection.find(exp.Window):
            raise RewriteRefused(UNSUPPORTED_SOURCE, "give the column over the named window a name (AS)")


def _select_levels(bare: str, start: int) -> list[int]:
    """Return the levels of the queries around a place, inner first, as brackets closed since the place."""
    depth = outside = 0
    levels: list[int] = []
    for match in reversed(list(_BOUNDARY.finditer(bare, 0, start))):
        sign = match[0].lower()
        if sign in _CLOSING:
            depth -= 1
        elif sign in _OPENING:
            depth += 1
            outside = max(outside, depth)
        elif sign == "select" and depth == outside and outside not in levels:
            levels.append(outside)
    return levels


def _end_of_projection(bare: str, start: int, level: int) -> int:
    """Return the end of the projection around a place, whose query stands `level` brackets further out."""
    depth = 0
    for match in _BOUNDARY.finditer(bare, start):
        sign = match[0].lower()
        if sign in _OPENING:
            depth -= 1
        elif sign in _CLOSING:
            depth += 1
            if depth > level:
                return _before(bare, match.start())
        elif depth == level and sign != "select" and not _is_comparison(bare, match.start(), sign):
            return _before(bare, match.start())
    return _before(bare, len(bare))


def _before(bare: str, end: int) -> int:
    return len(bare[:end].rstrip())


def _is_comparison(bare: str, at: int, sign: str) -> bool:
    """Tell whether FROM belongs to IS DISTINCT FROM."""
    return sign == "from" and bare[:at].rstrip().lower().endswith("distinct")


_TABLE_CLAUSE: Final = re.compile(
    r"\s*(?:as\b\s*)?(?:\w+\s*)?(?:@|(?:for|pivot|unpivot|tablesample|match_recognize)\b)", re.IGNORECASE
)
"""Clauses of tables alone, after an alias or none."""


def check_array_paths(parsed: ParsedText) -> None:
    """Raise RewriteRefused for a path that the engine can take for a table."""
    for unnest in parsed.tree.find_all(exp.Unnest):
        for path in unnest.expressions:
            if isinstance(path, (exp.Column, exp.Dot, exp.Alias)):
                _check(path, unnest, parsed)


def _check(path: exp.Expr, unnest: exp.Unnest, parsed: ParsedText) -> None:
    parts = list(path.find_all(exp.Identifier))
    places = [place_of(part) for part in parts]
    written = [parsed.text[start:end].strip("`") for start, end in places]
    query = unnest.find_ancestor(exp.Select)
    # Behind PIVOT the name of a table is no longer known: a path that begins with the name is a table.
    is_pivoted = isinstance(unnest.parent, exp.Join) and query is not None and query.find(exp.Pivot) is not None
    is_divided = written != [part.name for part in parts] or any("." in part for part in written)
    if is_pivoted or is_divided or _TABLE_CLAUSE.match(parsed.lexical.bare, max(end for _, end in places)):
        raise RewriteRefused(UNSUPPORTED_SOURCE, f"`{'.'.join(written)}` could be a table or an array: use UNNEST()")
