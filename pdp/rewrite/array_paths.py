"""Array paths of BigQuery, such as `o.tags` after `orders AS o`: sources that the parser takes for no tables.

The parser divides quoted names at dots before it looks for the alias, and drops the clauses behind a path. The engine
takes a quoted name with dots for a table, and a path with clauses of a table as well.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from pdp.rewrite.errors import UNSUPPORTED_SOURCE, RewriteRefused
from pdp.rewrite.syntax import ParsedText, place_of

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
