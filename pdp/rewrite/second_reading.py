"""Second reading of a rewritten text: every table must be open, or stand right behind the filter.

Shares no walk with the rewriter: the result is parsed again, every table of the tree is looked at, and names of common
table expressions are found by climbing from the table to the root. The scopes of the parser's library are a third
opinion. A reference that is not covered denies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from pdp.rewrite.catalog import Catalog, Relation
from pdp.rewrite.errors import NOT_COVERED, RewriteRefused
from pdp.rewrite.functions import is_table_function
from pdp.rewrite.names import INFORMATION_SCHEMA, name_parts
from pdp.rewrite.restrictions import Identities, Restrictions
from pdp.rewrite.syntax import ParsedText

_WRAP_ARGS: Final = frozenset({"kind", "expressions", "from_", "where"})
"""Parts of the query that shows the visible rows of one table."""
_SOURCE_ARGS: Final = frozenset({"this", "db", "catalog", "alias", "version", "when", "sample"})


@lru_cache(maxsize=2_000)
def _filter_tree(text: str, dialect: str) -> exp.Expr:
    return ParsedText(text, dialect).tree


class SecondReading:
    """Reading of one result, for one caller."""

    def __init__(self, catalog: Catalog, dialect: str, restrictions: Restrictions, identities: Identities) -> None:
        self._catalog, self._dialect = catalog, dialect
        self._restrictions, self._identities = restrictions, identities

    def verify(self, result: str | exp.Expr, kind: type[exp.Expr]) -> None:
        """Raise RewriteRefused if a result is no statement of the kind, or shows rows without their filter."""
        tree = ParsedText(result, self._dialect).tree if isinstance(result, str) else result
        if type(tree) is not kind:
            raise RewriteRefused(NOT_COVERED, "the result is another statement than the text")
        common: dict[int, bool] = {}
        for table in tree.find_all(exp.Table):
            if table.find_ancestor(exp.Hint) is None and not self._is_common(table, common):
                self._verify_table(table)
        if isinstance(tree, exp.Query):
            self._verify_scopes(tree, common)

    def _is_common(self, table: exp.Table, common: dict[int, bool]) -> bool:
        """Tell whether a table is a common table expression; note if its name is written as in the expression."""
        if not isinstance(table.this, exp.Identifier) or table.args.get("db"):
            return False
        name = table.name
        found = [visible for visible in _visible_names(table) if visible.lower() == name.lower()]
        if found:
            common[id(table)] = name in found
        return bool(found)

    def _verify_table(self, table: exp.Table) -> None:
        parts = name_parts(table)
        if parts is None:
            if not is_table_function(table.this):
                raise _uncovered(table)
            return
        if len(parts) > 1 and parts[-2].lower() == INFORMATION_SCHEMA:
            return
        default = self._catalog.default
        for relation in self._relations(table, parts, default):
            for identities in self._restrictions.readers(self._identities):
                rows = self._restrictions.rows(relation, identities)
                if rows is None and not self._restrictions.is_restricted(relation, identities):
                    break
                if rows is not None and _is_covered(table, _filter_tree(rows, self._dialect)):
                    break
            else:
                raise _uncovered(table)

    def _relations(self, table: exp.Table, parts: tuple[str, ...], default: tuple[str, ...]) -> list[Relation]:
        """Return the relations of a name; raise RewriteRefused for an unknown name that is read."""
        found = self._catalog.get(parts, self._dialect, default)
        if found is not None:
            return [found]
        if parts[-1].endswith("*"):
            return self._catalog.with_prefix((*parts[:-1], parts[-1][:-1]), default)
        for base in ((*parts[:-1], parts[-1].partition("$")[0]), parts[:-1]):
            if base and (found := self._catalog.get(base, self._dialect, default)):
                return [found]
        target = table.parent.parent if isinstance(table.parent, exp.Schema) else table.parent
        if isinstance(target, exp.Create) and table.find_ancestor(exp.Query) is None:
            return []
        raise _uncovered(table)

    def _verify_scopes(self, tree: exp.Query, common: dict[int, bool]) -> None:
        """Raise RewriteRefused if the library takes a common table expression for a table with hidden rows."""
        try:
            sources = [source for scope in traverse_scope(tree) for source in scope.sources.values()]
        except SqlglotError as error:
            raise RewriteRefused(NOT_COVERED, f"the result cannot be checked: {error}") from None
        for source in sources:
            if isinstance(source, exp.Table) and common.get(id(source)):
                raise _uncovered(source)


def _uncovered(table: exp.Table) -> RewriteRefused:
    return RewriteRefused(NOT_COVERED, f"`{table.name}` is not covered by its filter")


def _visible_names(table: exp.Expr) -> Iterator[str]:
    """Yield the names of the visible common table expressions, from the inside out."""
    node = table
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.With):
            tables = parent.expressions
            if not parent.args.get("recursive"):
                at = next(at for at, found in enumerate(tables) if found is node)
                tables = tables[:at]
            yield from (found.alias for found in tables)
            owner = parent.parent
            if owner is None:
                return
            node = owner
            continue
        with_ = parent.args.get("with_")
        if with_ is not None and with_ is not node:
            yield from (found.alias for found in with_.expressions)
        node = parent


def _is_covered(table: exp.Table, rows: exp.Expr) -> bool:
    """Tell whether a table stands in `(SELECT * FROM table WHERE rows)`."""
    source = table.parent
    query = source.parent if isinstance(source, exp.From) else None
    if not isinstance(query, exp.Select) or not isinstance(query.parent, exp.Subquery):
        return False
    if {name for name, value in query.args.items() if value} - _WRAP_ARGS:
        return False
    if {name for name, value in table.args.items() if value} - _SOURCE_ARGS:
        return False
    shown, where = query.expressions, query.args.get("where")
    if len(shown) != 1 or type(shown[0]) is not exp.Star or any(shown[0].args.values()):
        return False
    return where is not None and where.this == rows
