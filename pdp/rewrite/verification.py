"""Second reading of a rewritten text: every table must be open, or stand right behind the filter and the masks.

Shares no walk with the rewriter: the result is parsed again, every table of the tree is looked at, and names of common
table expressions are found by climbing from the table to the root. The scopes of the parser's library are a third
opinion. A reference that is not covered denies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from pdp.rewrite.binding import HIDDEN, check_qualified, looks_around
from pdp.rewrite.catalog import Catalog, Relation
from pdp.rewrite.errors import AMBIGUOUS_NAME, NOT_COVERED, RewriteRefused
from pdp.rewrite.fast_ways import FastVerification
from pdp.rewrite.functions import is_table_function
from pdp.rewrite.names import INFORMATION_SCHEMA, PATH, name_parts
from pdp.rewrite.session_functions import USERS
from pdp.rewrite.sql import parse_part
from pdp.rewrite.visible_relations import MAX_VIEW_DEPTH, Identities, VisiblePart, VisibleRelations

_WRAP_ARGS: Final = frozenset({"kind", "expressions", "from_", "where", "offset"})
"""Parts of the query that shows the visible rows of one table. The offset is a barrier, and skips no row."""
_PLAIN_ARGS: Final = frozenset({"kind", "expressions", "from_"})
_VISIBLE: Final = "_rap_visible"
"""Name in place of a source, with more underscores where the text has the name."""
_PLAIN: Final = "_plain"
"""End of the name in place of a source with bare names."""
_SOURCE_ARGS: Final = frozenset({"this", "db", "catalog", "alias", "version", "when", "sample"})


@lru_cache(maxsize=2_000)
def _tables_of(text: str, dialect: str) -> tuple[tuple[str, ...], ...]:
    """Return the names of all tables of a view's text; an empty name for a source without a name."""
    tables = [table for table in parse_part(text, dialect).find_all(exp.Table) if not _is_common(table, {})]
    functions = [table for table in tables if name_parts(table) is None and not is_table_function(table.this, dialect)]
    names = [name_parts(table) for table in tables if table not in functions]
    return (*((("",),) * len(functions)), *(name for name in names if name))


@lru_cache(maxsize=500)
def _source_tree(text: str, dialect: str) -> exp.Expr:
    """Return the tree of a query on a source; raise RewriteRefused if the text is more than the source."""
    tree = parse_part(f"SELECT * FROM {text}", dialect)  # noqa: S608  parsed, never executed
    source = tree.args["from_"].this if isinstance(tree, exp.Select) and tree.args.get("from_") else None
    if not isinstance(source, exp.Subquery) or {key for key, value in tree.args.items() if value} - _PLAIN_ARGS:
        raise RewriteRefused(NOT_COVERED, "a source of the result is no subquery")
    return tree


@lru_cache(maxsize=2_000)
def _only_table(source: str, dialect: str) -> tuple[str, ...] | None:
    """Return the name of the only table of a source; None for a source with more than that."""
    tables = list(_source_tree(source, dialect).find_all(exp.Table))
    return name_parts(tables[0]) if len(tables) == 1 else None


@lru_cache(maxsize=2_000)
def _is_source_covered(source: str, part: VisiblePart, dialect: str) -> bool:
    table = _source_tree(source, dialect).find(exp.Table)
    return table is not None and _is_covered(table, part, dialect)


def _new_name(text: str) -> str:
    """Return a name that a text does not contain."""
    name, folded = _VISIBLE, text.lower()
    while name in folded:
        name = f"_{name}"
    return name


@lru_cache(maxsize=2_000)
def _part_tree(part: VisiblePart, dialect: str) -> exp.Expr:
    """Return the tree of the query of a visible part; raise RewriteRefused for a bare column among qualified ones."""
    tree = parse_part(part.query("t"), dialect)
    if part.row:
        check_qualified(tree)
    return tree


class Verification:
    """Reading of one result, for one caller."""

    def __init__(self, catalog: Catalog, dialect: str, restrictions: VisibleRelations, identities: Identities) -> None:
        self._catalog, self._dialect = catalog, dialect
        self._restrictions, self._identities = restrictions, identities
        self.words: FastVerification | None = None
        """Quick reading, if the policies allow one. What that reading does not know is parsed."""

    def verify(self, result: str | exp.Expr, sources: Iterable[tuple[str, str]], kind: type[exp.Expr]) -> None:
        """Raise RewriteRefused if a result is no statement of the kind, or shows rows without their filter.

        `sources` are the parts of the result with filters, each beside itself with the stand-in for the unforeseen
        name. Each is read for itself, and so is the rest of the result with a name in place of the sources: together
        these are the result, and sources that come again are read once. The caller's unchanged text comes as a tree.
        """
        visible = ""
        if isinstance(result, str):
            visible = _new_name(result)
            # the longest first: a source may hold another one
            for source, named in sorted(set(sources), key=lambda pair: len(pair[0]), reverse=True):
                is_plain = self._verify_source(named)
                result = result.replace(source, visible + _PLAIN if is_plain else visible)
            is_query = issubclass(kind, exp.Query) and not issubclass(kind, exp.Subquery)
            if is_query and self.words and self.words.covers(result, visible, visible + _PLAIN):
                return
            result = parse_part(result, self._dialect)
        if type(result) is not kind:
            raise RewriteRefused(NOT_COVERED, "the result is another statement than the text")
        self._verify_tree(result, visible)

    def _verify_source(self, source: str) -> bool:
        """Raise RewriteRefused for a source without its filter. A source of one table is remembered as covered.

        Tell whether bare names of a filter allow the source only where an engine looks for names nowhere else.
        """
        self._verify_paths(_source_tree(source, self._dialect))
        parts = _only_table(source, self._dialect)
        relation = self._catalog.get(parts, self._dialect, self._catalog.default) if parts else None
        if relation is None or relation.view is not None:
            return self._verify_tree(_source_tree(source, self._dialect), "")
        parts_of_readers = list(self._parts(relation))
        if not any(part for part, _ in parts_of_readers):  # the text of a view with the reader's name on an open table
            return self._verify_tree(_source_tree(source, self._dialect), "")
        for part, is_plain in parts_of_readers:
            if part is not None and _is_source_covered(source, part, self._dialect):
                return is_plain
        raise RewriteRefused(NOT_COVERED, f"`{relation.name[-1]}` is not covered by its filter")

    def _parts(self, relation: Relation) -> Iterator[tuple[VisiblePart | None, bool]]:
        """Yield the visible parts of a relation for all readers, each with the need of a place without names around.

        Qualified parts come first.
        """
        readers = self._restrictions.readers(self._identities)
        for identities in readers:
            part = self._restrictions.visible(relation, identities)
            yield part.named(HIDDEN) if part else None, False
        for identities in readers:
            yield self._restrictions.visible(relation, identities, "plain"), True

    def _verify_tree(self, tree: exp.Expr, visible: str) -> bool:
        """Raise RewriteRefused for a table without its filter; return the need of a place without names around."""
        self._verify_paths(tree)
        common: dict[int, bool] = {}
        needs_plain_place = False
        for table in tree.find_all(exp.Table, *USERS):
            if not isinstance(table, exp.Table):
                raise RewriteRefused(NOT_COVERED, "the result asks for the user of the engine's session")
            is_plain = False
            if visible and table.name.startswith(visible) and not table.args.get("db"):
                is_plain = table.name != visible
            elif not _is_common(table, common) and table.find_ancestor(exp.Hint) is None:
                is_plain = self._verify_table(table)
            if is_plain and looks_around(table, self._dialect):
                raise _uncovered(table)
            needs_plain_place |= is_plain
        if common and isinstance(tree, exp.Query):
            self._verify_scopes(tree, common)
        return needs_plain_place

    def _verify_paths(self, tree: exp.Expr) -> None:
        """Raise RewriteRefused for an array path with the name of a table with hidden rows, known or not."""
        for unnest in tree.find_all(exp.Unnest) if self._dialect == "bigquery" else ():
            parts = [part.name for part in unnest.expressions[0].parts] if unnest.meta.get(PATH) else ()
            if parts and self._restrictions.hides_name(parts):
                message = (
                    f"`{'.'.join(parts)}` is an array here, and a table with policies: give its source another alias"
                )
                raise RewriteRefused(AMBIGUOUS_NAME, message)

    def _verify_table(self, table: exp.Table) -> bool:
        """Raise RewriteRefused for a table without its filter; return the need of a place without names around."""
        parts = name_parts(table)
        if parts is None:
            if not is_table_function(table.this, self._dialect):
                raise _uncovered(table)
            return False
        if len(parts) > 1 and parts[-2].lower() == INFORMATION_SCHEMA:
            return False
        default = self._catalog.default
        found = [self._is_plain(table, relation) for relation in self._relations(table, parts, default)]
        return True in found

    def _is_plain(self, table: exp.Table, relation: Relation) -> bool:
        """Tell whether a covered table needs a place without names around; raise RewriteRefused for another table."""
        for identities in self._restrictions.readers(self._identities):
            if self._restrictions.visible(relation, identities) is None and not self._reads_hidden_rows(
                relation, identities, MAX_VIEW_DEPTH
            ):
                return False
        for part, is_plain in self._parts(relation):
            if part is not None and _is_covered(table, part, self._dialect):
                return is_plain
        raise _uncovered(table)

    def _reads_hidden_rows(self, relation: Relation, identities: Identities, depth: int) -> bool:
        """Tell whether the text of a view reads hidden rows, or more views than the depth allows."""
        view = relation.view
        if view is None:
            return False
        inside = self._restrictions.inside(relation, view, identities)
        for parts in _tables_of(view.sql, self._dialect):
            found = self._catalog.get(parts, self._dialect, relation.text_schema)
            if found is None or depth == 0 or self._restrictions.visible(found, inside) is not None:
                return parts[-2:-1] != (INFORMATION_SCHEMA,)
            if self._reads_hidden_rows(found, inside, depth - 1):
                return True
        return False

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
    if table.name.lstrip("_").startswith(_VISIBLE.lstrip("_")):
        return RewriteRefused(NOT_COVERED, "a table with hidden rows stands where its filter is not certain")
    return RewriteRefused(NOT_COVERED, f"`{table.name}` is not covered by its filter")


def _is_common(table: exp.Table, common: dict[int, bool]) -> bool:
    """Tell whether a table is a common table expression; note if the name is written as in the expression."""
    if not isinstance(table.this, exp.Identifier) or table.args.get("db"):
        return False
    name = table.name
    found = [visible for visible in _visible_names(table) if visible.lower() == name.lower()]
    if found:
        common[id(table)] = name in found
    return bool(found)


def _visible_names(table: exp.Expr) -> Iterator[str]:
    """Yield the names of the visible common table expressions, from the inside out."""
    node = table
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.With):
            tables = parent.expressions
            if not parent.args.get("recursive"):
                at = next((at for at, found in enumerate(tables) if found is node), None)
                if at is None:
                    raise RewriteRefused(NOT_COVERED, f"`{table.name}` stands in a part of WITH that is not known")
                tables = tables[:at]
            yield from (found.alias for found in tables)
            owner = parent.parent
            if owner is None:
                return
            node = owner
            continue
        with_ = parent.args.get("with_")
        if isinstance(with_, exp.With) and with_ is not node:
            yield from (found.alias for found in with_.expressions)
        node = parent


def _is_covered(table: exp.Table, part: VisiblePart, dialect: str) -> bool:
    """Tell whether a table stands in `(SELECT columns FROM table WHERE rows)`, as in the query of the visible part."""
    source = table.parent
    query = source.parent if isinstance(source, exp.From) else None
    if not isinstance(query, exp.Select) or not isinstance(query.parent, exp.Subquery):
        return False
    if {name for name, value in query.args.items() if value} - _WRAP_ARGS:
        return False
    offset = query.args.get("offset")
    if offset is not None and offset.expression != exp.Literal.number(0):
        return False
    if {name for name, value in table.args.items() if value} - _SOURCE_ARGS or table.alias != part.row:
        return False
    wanted = _part_tree(part, dialect)
    return query.expressions == wanted.expressions and query.args.get("where") == wanted.args.get("where")
