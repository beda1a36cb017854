"""Names in subqueries of filters, and when an engine takes them for columns of the filtered table. Parses SQL.

Where the source of a subquery has no such column, `region IN (SELECT region FROM m)` is true for every row. A source is
a part of FROM: a table, a subquery, a common table expression, UNNEST, VALUES, LATERAL or a function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sqlglot import exp

from pdp.engines.row_access.dialects import parse_expression
from pdp.facts.objects import FoldedName, KnownColumns, TablePath, fold_name

_PLAIN_SOURCE: Final = frozenset({"this", "db", "catalog", "alias"})
_OTHER_COLUMNS: Final = ("pivots", "version", "when")
"""Parts of a source with other columns than the table."""
_SCOPES: Final = (exp.Select, exp.SetOperation, exp.Values)
_CONNECTIVES: Final = (exp.Connector, exp.Not, exp.Paren, exp.Where, exp.Having, exp.Join, exp.Select, exp.Alias)


class _Source(NamedTuple):
    """Source of a query: the name there, and the folded columns, None if unknown."""

    name: str
    columns: Collection[str] | None


def check_lookups(text: str, dialect: str, table: FoldedName, known: KnownColumns) -> None:
    """Raise ValueError for a name without a table in a subquery, which an engine may take for the outer column."""
    folded = text.lower()
    if "select" in folded or "values" in folded or "from" in folded or "table" in folded:
        check_names(parse_expression(text, dialect), dialect, table, known)


def check_names(tree: exp.Expr, dialect: str, table: FoldedName, known: KnownColumns) -> None:
    """Raise ValueError as `check_lookups` does, for the tree of a filter."""
    for column in tree.find_all(exp.Column):
        query = column.find_ancestor(*_SCOPES)
        if query is None or len(column.parts) > 1 or not isinstance(column.this, exp.Identifier):
            continue
        if isinstance(query, exp.Select) and _reads_itself(query, table, dialect):
            continue
        sources = _visible(column, query, table, known)
        if sources is not None and _may_be_outer(column, query, sources, known.get(table)):
            lookup = next((source.name for source in sources if source.name), "")
            raise ValueError(outer_name(column.name, lookup, table[1].rpartition(".")[2]))


def unknown_columns(tree: exp.Expr, table: FoldedName, known: KnownColumns) -> Iterator[str]:
    """Yield an error for each name in a subquery without a table, if all columns there are known."""
    for column in tree.find_all(exp.Column):
        query = column.find_ancestor(*_SCOPES)
        names = [part.name.casefold() for part in column.parts if isinstance(part, exp.Identifier)]
        if query is None or not 1 <= len(names) <= 2 or len(names) < len(column.parts) or names[-1][:1] in ("$", "_"):
            continue
        scopes = list(_scopes(query, table, known))
        source = next(
            (one for some in scopes for one in some if len(names) > 1 and one.name.casefold() == names[0]), None
        )
        named = [source] if source else [one for some in scopes for one in some]
        if all(one.columns is not None and names[bool(source)] not in one.columns for one in named) and not (
            source is None and names[0] in _given_names(column)
        ):
            tables = ", ".join(dict.fromkeys(f"`{one.name}`" for one in named if one.name))
            yield f"`{column.parts[bool(source)].name}` in the subquery is no column of {tables}"


def _scopes(query: exp.Expr, table: FoldedName, known: KnownColumns) -> Iterator[list[_Source]]:
    """Yield the sources of a query and of the queries around, and the filtered table."""
    at: exp.Expr | None = query
    while at is not None:
        items = _items(at) if isinstance(at, exp.Select) else []
        found = [one for item in items for one in _sources(item, table, known)]
        yield found if isinstance(at, exp.Select) else [_Source("", None)]
        at = at.find_ancestor(*_SCOPES)
    yield [_Source(table[1].rpartition(".")[2], known.get(table))]


def _given_names(column: exp.Expr) -> frozenset[str]:
    """Return the folded names of outputs and parameters around a column."""
    values = [one for query in column.root().find_all(exp.Select) for one in query.expressions]
    values += [one for function in column.root().find_all(exp.Lambda) for one in function.expressions]
    return frozenset(one.alias_or_name.casefold() for one in values if not isinstance(one, exp.Column))


def lookup_tables(tree: exp.Expr, table: FoldedName) -> Iterator[TablePath]:
    """Yield the paths of the tables that the subqueries of a filter name."""
    for source in tree.find_all(exp.Table):
        is_named = all(isinstance(part, exp.Identifier) for part in source.parts)
        if is_named and not (len(source.parts) == 1 and _common(source)):
            parts = ".".join(part.name for part in source.parts).split(".")
            yield tuple(parts) if len(parts) > 2 else _completed(parts, table)


def outer_name(name: str, lookup: str, table: str) -> str:
    """Return the error for a name of a subquery, and perhaps of a column of the filtered table."""
    own = f"`{table}.{name}`"
    if not lookup:
        return (
            f"`{name}` in the subquery may be the column of the filtered table: write {own}, or give the source of "
            f"the subquery a name with columns, such as `AS s ({name})`"
        )
    other = "give the table of the subquery another name" if lookup.lower() == table.lower() else own
    return (
        f"`{name}` in the subquery is not known as a column of `{lookup}`, and an engine would read the column of the "
        f"filtered table: write `{lookup}.{name}` or {other}"
    )


def part_around(column: exp.Expr) -> exp.Expr:
    """Return the comparison or the value of a query around a column: a part between AND, OR and clauses."""
    node = column
    while node.parent is not None and not isinstance(node.parent, _CONNECTIVES):
        node = node.parent
    return node


def _reads_itself(query: exp.Select, table: FoldedName, dialect: str) -> bool:
    """Tell whether a subquery certainly reads the filtered table and nothing else.

    A bare name then means its own column: the table has the column inside and outside, or nowhere. An old version, new
    names of columns, a query with a name, and a query in between could lack or add the column.
    """
    start = query.args.get("from_")
    source = start.this if start else None
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier) or source.alias_column_names:
        return False
    if any(value and key not in _PLAIN_SOURCE for key, value in source.args.items()):
        return False
    is_alone = not query.args.get("joins") and not query.args.get("laterals")
    is_outermost = query.find_ancestor(exp.Select) is None and query.root().find(exp.With) is None
    return is_alone and is_outermost and _is_named([part.name for part in source.parts], table, dialect)


def _is_named(names: Sequence[str], table: FoldedName, dialect: str) -> bool:
    """Tell whether a name certainly means the filtered table. BigQuery tells tables by capitals, which are unknown."""
    container, namespace = table[0], table[1].rpartition(".")[0]
    if dialect == "bigquery" or "." in names[-1] or (len(names) == 2 and names[0].lower() == container.lower()):
        return False
    whole = [*[container, namespace][: max(0, 3 - len(names))], *names]
    return fold_name(whole[0], whole[1:]) == table


def _visible(column: exp.Column, query: exp.Expr, table: FoldedName, known: KnownColumns) -> list[_Source] | None:
    """Return the sources whose columns a bare name of a query may be; None if the name is certainly no opening one.

    An argument of a source sees the sources before. Where none stands before, as in `UNNEST(tags)`, the author can only
    mean the filtered table.
    """
    if isinstance(query, exp.SetOperation):
        names = _outputs(query)
        return [] if names is None else [_Source("", names)]
    if isinstance(query, exp.Values):
        outer = query.find_ancestor(exp.Select)
        return list(_sources_before(query, outer, table, known)) if outer is not None else []
    if not isinstance(query, exp.Select) or _is_alias_in_order(column, query):
        return None
    if _item_of(column, query) is None:
        return [source for item in _items(query) for source in _sources(item, table, known)]
    return list(_sources_before(column, query, table, known)) or None


def _is_alias_in_order(column: exp.Column, query: exp.Select) -> bool:
    """Tell whether a name is a projection's in the ORDER BY of the same query: engines look there first."""
    order = column.find_ancestor(exp.Order, exp.Select)
    aliases = (one.alias.casefold() for one in query.expressions if isinstance(one, exp.Alias))
    return isinstance(order, exp.Order) and order.parent is query and column.name.casefold() in aliases


def _items(query: exp.Select) -> list[exp.Expr]:
    """Return the clauses that name sources, in the order of the text."""
    start = query.args.get("from_")
    return [*([start] if start else ()), *(query.args.get("laterals") or ()), *(query.args.get("joins") or ())]


def _item_of(node: exp.Expr, query: exp.Select) -> exp.Expr | None:
    """Return the source of a query in which a node stands as an argument; None for a node elsewhere."""
    child = node
    while child.parent is not None and child.parent is not query:
        if isinstance(child.parent, exp.Join) and child.arg_key != "this":
            return None  # a condition of a join sees all sources
        child = child.parent
    return child if child.arg_key in ("from_", "laterals", "joins") else None


def _sources_before(node: exp.Expr, query: exp.Select, table: FoldedName, known: KnownColumns) -> Iterator[_Source]:
    at = _item_of(node, query)
    for item in _items(query):
        if item is at:
            return
        yield from _sources(item, table, known)


def _sources(item: exp.Expr, table: FoldedName, known: KnownColumns) -> Iterator[_Source]:
    """Yield the sources of a FROM, a join or a part of these."""
    if isinstance(item, (exp.From, exp.Join)):
        yield from _sources(item.this, table, known)
        if item.args.get("using"):
            yield _Source("", frozenset(name.name.casefold() for name in item.args["using"]))
        return
    if isinstance(item, exp.Subquery) and not isinstance(item.this, exp.Query) and not item.alias:
        yield from _sources(item.this, table, known)
        return
    yield _Source(_name(item), _columns(item, table, known))
    for join in item.args.get("joins") or ():
        yield from _sources(join, table, known)


def _name(source: exp.Expr) -> str:
    return str(source.alias or (source.name if isinstance(source, exp.Table) else ""))


def _columns(source: exp.Expr, table: FoldedName, known: KnownColumns) -> Collection[str] | None:
    """Return the columns of a source by the text, or of a known table; None if unknown."""
    if any(source.args.get(part) for part in _OTHER_COLUMNS):
        return None
    given = {name.casefold() for name in getattr(source, "alias_column_names", ())}
    if given:
        offset = source.args.get("offset")
        return given | ({offset.name.casefold()} if isinstance(offset, exp.Identifier) else set())
    if isinstance(source, exp.Table):
        return _table_columns(source, table, known) if isinstance(source.this, exp.Identifier) else None
    inside = source.this if isinstance(source, exp.Lateral) else source
    return _outputs(inside.this) if isinstance(inside, exp.Subquery) else None


def _table_columns(source: exp.Table, table: FoldedName, known: KnownColumns) -> Collection[str] | None:
    """Return the columns of a table or common table expression, named as from the filtered table."""
    if len(source.parts) == 1 and (named := _common(source)) is not None:
        return {name.casefold() for name in named.alias_column_names} or _outputs(named.this)
    parts = ".".join(part.name for part in source.parts).split(".")
    full = _completed(parts, table)
    return known.get(fold_name(full[0], full[1:])) or known.get(fold_name(parts[0], parts[1:]))


def _completed(parts: Sequence[str], table: FoldedName) -> TablePath:
    """Return a name within the container, and the namespace, of the filtered table."""
    container, namespace = table[0], table[1].rpartition(".")[0].split(".")
    return (container, *namespace, *parts) if len(parts) == 1 else (container, *parts)


def _common(source: exp.Table) -> exp.CTE | None:
    """Return the common table expression that a name means."""
    query = source.find_ancestor(exp.Query)
    while query is not None:
        start = query.args.get("with_")
        for one in start.expressions if start else ():
            if one.alias.casefold() == source.name.casefold():
                return one if isinstance(one, exp.CTE) else None
        query = query.find_ancestor(exp.Query)
    return None


def _outputs(query: exp.Expr) -> frozenset[str] | None:
    """Return the folded names of the columns of a query; None for a star, with unknown columns."""
    while isinstance(query, (exp.SetOperation, exp.Subquery)):
        query = query.this
    if not isinstance(query, exp.Select) or any(one.is_star for one in query.expressions):
        return None
    return frozenset(one.alias_or_name.casefold() for one in query.expressions if one.alias_or_name)


def _may_be_outer(
    column: exp.Column, query: exp.Expr, sources: Sequence[_Source], own: Mapping[str, str] | None
) -> bool:
    """Tell whether a bare name may be a column of the filtered table, and nothing of the subquery stands beside it."""
    name = column.name.casefold()
    inner = frozenset[str]().union(*(source.columns for source in sources if source.columns is not None))
    if name in inner or (own is not None and name not in own):
        return False
    names = {source.name.casefold() for source in sources if source.name}
    beside = [other for other in part_around(column).find_all(exp.Column) if other is not column]
    for other in beside:
        first = other.parts[0].name.casefold()
        if (first in names) if len(other.parts) > 1 else (first in inner):
            return False
    if own is not None or any(other.name.casefold() == name for other in beside):
        return True
    outside = (other for other in query.root().find_all(exp.Column) if other.find_ancestor(*_SCOPES) is not query)
    return any(other.name.casefold() == name for other in outside)
