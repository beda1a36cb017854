"""Names in filters and masks that only the filtered row can satisfy.

An engine looks for a bare name in the queries around a subquery, too. Where a table lacks a column of the filter (an
old version, a catalog that lags), the engine would take a column of the caller's query. So each column is qualified
with the generated name of its own source, and a missing column is an error of the engine. A filter without subqueries
stays as written at a place where an engine looks for names nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Final, Literal, NamedTuple, TypeAlias

from sqlglot import exp

from pdp.engines.row_access.caller_calls import is_caller_call
from pdp.engines.row_access.lookups import outer_name, part_around
from pdp.engines.row_access.trino import CLAIM, CLAIM_NAME
from pdp.rewrite.errors import unusable_filter
from pdp.rewrite.sql import Edit, ParsedText, place_of

Form: TypeAlias = Literal["author", "plain", "qualified"]
"""Form of a filter: as written; qualified where a subquery reads another table; qualified everywhere."""
ROW: Final = "_rap_row"
"""Name of the filtered row in compiled filters. Tables of subqueries have the name with a number."""
HIDDEN: Final = f"{ROW}_hidden"
"""Stand-in for a name that nobody can foresee, in checks of the result."""
_IMPLICITLY_LATERAL: Final = frozenset({"duckdb"})
"""Dialects in which every subquery sees the sources to its left."""
_PLAIN_SOURCE: Final = frozenset({"this", "db", "catalog", "alias"})
_NAMES: Final = (exp.Column, exp.Table, exp.TableAlias, exp.Alias, exp.Join)
"""Parents of identifiers that this module reads, or that name nothing but an output."""
_NAMED_PARTS: Final = frozenset({"group", "order", "having", "qualify", "distinct"})
"""Parts of a query in which a name can mean an output of the query."""
_INSIDE: Final[dict[type, frozenset[str]]] = {
    exp.Select: frozenset({"from_", "with_"}), exp.From: frozenset({"this"}), exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this"}), exp.Subquery: frozenset({"this", "with_"}), exp.Table: frozenset({"this"}),
    exp.Union: frozenset({"this", "expression", "with_"}), exp.Except: frozenset({"this", "expression", "with_"}),
    exp.Intersect: frozenset({"this", "expression", "with_"}), exp.Join: frozenset({"this"}),
    exp.Create: frozenset({"expression"}), exp.Insert: frozenset({"expression"}),
}  # fmt: skip
"""Places, by parent, from which an engine sees no names of the text around. Joins depend on the dialect."""


class FilterSource(NamedTuple):
    """Table that a name can belong to: the written name, the columns in lower case, and the generated name."""

    exposed: str
    columns: Mapping[str, str]
    alias: str
    node: exp.Table | None = None


class BoundColumn(NamedTuple):
    """Column of a filter with its source. `length` counts the parts of the written qualifier: 0 or 1."""

    column: exp.Column
    length: int
    alias: str

    def edit(self) -> Edit:
        """Return the edit of the text that qualifies the column with the generated name."""
        start, end = place_of(self.column.parts[0])
        return Edit(start, end, self.alias) if self.length else Edit(start, start, f"{self.alias}.")

    def qualify(self) -> None:
        """Qualify the column in the tree."""
        _, *rest = parts = self.column.parts
        names = [exp.to_identifier(self.alias), *(rest if self.length else parts)]
        for key, name in zip(("this", "table", "db", "catalog"), reversed(names), strict=False):
            self.column.set(key, name)
        if len(names) > 4:
            raise unusable_filter("a column has too many parts")


def alias_edit(source: FilterSource) -> Edit:
    """Return the edit of the text that gives the generated name to a table of a subquery."""
    alias = source.node.args.get("alias") if source.node else None
    if alias is not None:
        return Edit(*place_of(alias.this), source.alias)
    end = max(place_of(part)[1] for part in source.node.parts) if source.node else 0
    return Edit(end, end, f" AS {source.alias}")


def rename(source: FilterSource) -> None:
    """Give the generated name to a table of a subquery in the tree."""
    if source.node:
        source.node.set("alias", exp.TableAlias(this=exp.to_identifier(source.alias)))


def bind_columns(tree: exp.Expr, own: FilterSource, sources: Sequence[FilterSource]) -> list[BoundColumn]:
    """Return the columns of a filter with their sources; raise RewriteRefused for a name without a certain source."""
    _check_identifiers(tree)
    by_table = {id(source.node): source for source in sources}
    bound = []
    for column in tree.find_all(exp.Column):
        if column.arg_key == "this" and isinstance(column.parent, (exp.PropertyEQ, exp.Kwarg)):
            continue  # the name of a field, not a value
        parts = [part.name.lower() if isinstance(part, exp.Identifier) else "*" for part in column.parts]
        for scope in _scopes(column, parts[0], by_table, own):
            found = _source_of(parts, scope)
            if found:
                bound.append(BoundColumn(column, found[0], found[1].alias))
                break
        else:
            raise unusable_filter(f"`{parts[0]}` is no column of its table")
    _check_lookups(bound, own, by_table)
    return bound


def _check_lookups(bound: Sequence[BoundColumn], own: FilterSource, by_table: Mapping[int, FilterSource]) -> None:
    """Raise RewriteRefused for a part of a subquery that reads the filtered row alone, by a name without a table."""
    aliases = {id(found.column): found.alias for found in bound}
    for found in bound:
        query = found.column.find_ancestor(exp.Select, exp.Values)
        if query is None or found.length or found.alias != own.alias:
            continue
        beside = part_around(found.column).find_all(exp.Column)
        if all(aliases.get(id(other), own.alias) == own.alias for other in beside):
            tables = _tables(query) if isinstance(query, exp.Select) else ()
            lookup = next((by_table[id(table)].exposed for table in tables), "")
            raise unusable_filter(outer_name(found.column.name, lookup, own.exposed))


def _scopes(
    column: exp.Column, first: str, by_table: Mapping[int, FilterSource], own: FilterSource
) -> Iterator[Sequence[FilterSource]]:  # fmt: skip
    """Yield the sources of the queries around a column, from the inside out; the filtered row comes last."""
    node: exp.Expr = column
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.Select):
            if node.arg_key in _NAMED_PARTS and _is_output(parent, first):
                raise unusable_filter(f"`{first}` is a column and an output of the same query")
            yield [by_table[id(table)] for table in _tables(parent)]
        node = parent
    yield [own]


def _tables(query: exp.Select) -> Iterator[exp.Table]:
    """Yield the tables of a query; raise RewriteRefused for another source."""
    start = query.args.get("from_")
    for part in (*([start] if start else ()), *(query.args.get("joins") or ())):
        if not isinstance(part.this, exp.Table) or any(
            value and key not in _PLAIN_SOURCE for key, value in part.this.args.items()
        ):
            raise unusable_filter("a subquery of a filter reads tables alone")
        if part.this.alias_column_names:
            raise unusable_filter(f"`{part.this.name}` has new names of columns, which filters do not support")
        yield part.this


def _source_of(parts: Sequence[str], scope: Sequence[FilterSource]) -> tuple[int, FilterSource] | None:
    """Return the source of a name in one query, and the number of qualifying parts; raise RewriteRefused in doubt."""
    named = [source for source in scope if len(parts) > 1 and source.exposed == parts[0]]
    having = [source for source in scope if parts[0] in source.columns]
    if len(named) + len(having) > 1:
        raise unusable_filter(f"`{parts[0]}` could mean more than one column")
    if named and parts[1] != "*" and parts[1] not in named[0].columns:
        raise unusable_filter(f"`{parts[1]}` is no column of its table")
    return (1, named[0]) if named else (0, having[0]) if having else None


def _is_output(query: exp.Select, name: str) -> bool:
    """Tell whether a query calls another value than the column of that name so."""
    return any(
        isinstance(value, exp.Alias) and value.alias.lower() == name and value.this.name.lower() != name
        for value in query.expressions
    )


def _check_identifiers(tree: exp.Expr) -> None:
    """Raise RewriteRefused for a name at a place that this module does not read, such as `region.lower()`."""
    for node in tree.find_all(exp.Identifier, exp.Comprehension, exp.Star):
        parent = node.parent
        if isinstance(node, exp.Comprehension) or (isinstance(node, exp.Star) and any(node.args.values())):
            raise unusable_filter("it holds a comprehension or a star with exceptions")
        if not isinstance(node, exp.Identifier) or isinstance(parent, _NAMES):
            continue
        if isinstance(parent, exp.Dot) and node.arg_key == "expression":
            continue  # a field of a value
        if isinstance(parent, (exp.PropertyEQ, exp.Kwarg)) and node.arg_key == "this":
            continue
        if not _is_parameter(node):
            raise unusable_filter(f"`{node.name}` stands where filters support no name")


def _is_parameter(name: exp.Identifier) -> bool:
    """Tell whether a name is that of a parameter of a function around the name."""
    node: exp.Expr = name
    while (node := node.parent) is not None:  # type: ignore[assignment]
        if isinstance(node, exp.Lambda) and any(part.name == name.name for part in node.expressions):
            return True
    return False


def looks_around(node: exp.Expr, dialect: str) -> bool:
    """Tell whether an engine looks for names outside of a table's place in the text, seen from the outermost query."""
    while (parent := node.parent) is not None:
        known = _INSIDE.get(type(parent))
        is_joined = isinstance(parent, exp.Select) and node.arg_key == "joins" and dialect not in _IMPLICITLY_LATERAL
        if not is_joined and (known is None or node.arg_key not in known):
            return True
        node = parent
    return False


def unforeseen_name() -> str:
    """Return a name of the filtered row that no column, alias or field of the caller has, because nobody knows it."""
    return f"{ROW}_{token_hex(8)}"


def check_qualified(tree: exp.Expr) -> None:
    """Raise RewriteRefused unless every column of a compiled filter has a generated qualifier.

    Reads nothing but the tree of the finished text.
    """
    for column in tree.find_all(exp.Column):
        is_key = column.arg_key == "this" and isinstance(column.parent, (exp.PropertyEQ, exp.Kwarg))
        if not is_key and (len(column.parts) == 1 or not column.parts[0].name.startswith(ROW)):
            raise unusable_filter(f"`{column.name}` has no certain source")


_CALLER: Final = re.compile(
    r"(?<![\w.])(?:(?:session_user|current_user)\b(?:\s*\(\s*\))?|current_(?P<list>groups|roles)\s*\(\s*\)"
    r"|current_claim\s*\((?P<claim>\s*)\)|(?P<test>is_member|is_account_group_member)\s*\()",
    re.IGNORECASE,
)
"""Functions of the caller in a text without its quoted pieces."""
_NAMED_CLAIM: Final = re.compile(rf"\s*'({CLAIM_NAME})'\s*", re.ASCII)


def caller_edits(parsed: ParsedText, dialect: str) -> list[Edit]:
    """Return the edits with a mark for each function of the caller; raise RewriteRefused for an uncertain place."""
    found = [_caller_edit(parsed.text, match, dialect) for match in _CALLER.finditer(parsed.lexical.bare)]
    edits = [edit for edit in found if edit is not None]
    kinds = (exp.SessionUser, exp.CurrentUser)
    calls = [node for node in parsed.tree.walk() if isinstance(node, kinds) or is_caller_call(node, dialect)]
    if len(edits) != len(calls):
        raise unusable_filter("the name of the caller has no certain place")
    return edits


def _caller_edit(text: str, match: re.Match[str], dialect: str) -> Edit | None:
    """Return the edit with the mark of a function of the caller; None for a call of another function."""
    start, end = match.span()
    if match["test"] is not None:
        return Edit(start, end, "array_contains(\0groups\0, ") if dialect == "spark" else None
    mark = (match["list"] or "caller").lower()
    if match["claim"] is not None:
        named = _NAMED_CLAIM.fullmatch(text, *match.span("claim"))
        if named is None:
            return None
        mark = f"{CLAIM}{named[1]}"
    return Edit(start, end, f"\0{mark}\0")
