"""Masks of columns as SQL of an engine's dialect, and names around a replaced source.

The names are those of columns with the full name of their table, and of projections named by text: DuckDB names a
column without an alias after the text of its expression. Where the text holds a filter, the name would show the filter.

A mask in the engine's own dialect stays to the letter, without comments. A mask without a certain meaning in the
dialect is NULL. NULL is written as a CASE without a true branch, so that the type of the column stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from sqlglot import exp
from sqlglot.errors import SqlglotError

from pdp.engines.row_access.dialects import translate_constant
from pdp.engines.row_access.mask_kinds import FIXED_VALUE, kind_sql
from pdp.engines.row_access.policies import KINDS, KINDS_WITH_VALUE
from pdp.engines.row_access.policy_set import Mask
from pdp.engines.row_access.portable_values import family_of
from pdp.engines.row_access.trino import SHORTEST_VALUE, VISIBLE_CHARACTERS, masked_value
from pdp.facts.objects import fold_column
from pdp.rewrite.binding import ROW, Form
from pdp.rewrite.catalog import Catalog, Relation, RelationKey
from pdp.rewrite.errors import FILTER_INVALID, UNSUPPORTED_SOURCE, RewriteRefused
from pdp.rewrite.filters import FilterText, mask_expression
from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.mentions import TableMention, TableMentions, scope_of
from pdp.rewrite.process.messages import DIALECTS
from pdp.rewrite.sql import Edit, place_of, quote_name, quote_text

_WITHOUT_VALUE: Final = frozenset(KINDS) - KINDS_WITH_VALUE - {"null"}
_TRY_CAST: Final = {"duckdb": "TRY_CAST", "spark": "TRY_CAST", "bigquery": "SAFE_CAST"}
_HASH: Final = {
    "duckdb": "SHA256({})",
    "spark": "SHA2({}, 256)",
    "bigquery": "TO_HEX(SHA256({}))",
}
"""Hexadecimal SHA-256 of a text in UTF-8, in lower case: the same in every dialect."""
_CASTABLE: Final = (
    exp.DataType.TEXT_TYPES | exp.DataType.NUMERIC_TYPES | exp.DataType.TEMPORAL_TYPES | {exp.DataType.Type.BOOLEAN}
)
"""Types to which constants are cast."""


class MaskCompiler:
    """Expressions in place of columns. Those with an expression of the author are parsed once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[tuple[Mask, RelationKey, str], FilterText | None] = {}

    def columns(
        self, relation: Relation, masks: Mapping[str, tuple[Mask, CallerIdentity]], names: Mapping[str, str],
        dialect: str, form: Form,
    ) -> str:  # fmt: skip
        """Return the columns of a relation as SQL, some of them masked.

        `names` has the types of all columns by name. `masks` has the mask of a column, and the reader under the mask.
        Raise RewriteRefused for a relation with unknown columns.
        """
        _require_columns(relation, names)
        shown = []
        for name, type in names.items():
            quoted = quote_name(name, dialect)
            value = f"{ROW}.{quoted}" if form == "qualified" else quoted
            found = masks.get(fold_column(name))
            if found:
                value = f"{self._masked(found, relation, _Column(value, type, form), dialect)} AS {quoted}"
            shown.append(value)
        return ", ".join(shown)

    def expressions(
        self, relation: Relation, masks: Mapping[str, tuple[Mask, CallerIdentity]], names: Mapping[str, str],
        dialect: str,
    ) -> list[tuple[str, str]]:  # fmt: skip
        """Return the masked columns alone, with their expressions; raise RewriteRefused as `columns` does."""
        _require_columns(relation, names)
        return [
            (name, self._masked(masks[fold_column(name)], relation, _Column(quote_name(name, dialect), type), dialect))
            for name, type in names.items()
            if fold_column(name) in masks
        ]

    def _masked(self, found: tuple[Mask, CallerIdentity], relation: Relation, column: _Column, dialect: str) -> str:
        """Return the expression in place of a column; a NULL of the column's type without a certain expression."""
        mask, reader = found
        value, type = _value(mask), _type(column.type, dialect)
        if mask.kind == "expression":
            expression = self._expression(mask, relation, dialect)
            value = expression.bind(reader.values, dialect, column.form, unknown="") if expression else ""
        sql = None
        if mask.kind == "constant" and ROW in value.lower():
            value = ""  # a name of the rewriter, which rendering can change
        if type is not None and (value or mask.kind in _WITHOUT_VALUE):
            sql = (_trino if dialect == "trino" else _sql)(mask.kind, value, column.sql, type, dialect)
        return sql or f"CASE WHEN FALSE THEN {column.sql} END"

    def _expression(self, mask: Mask, relation: Relation, dialect: str) -> FilterText | None:
        """Return the expression of a mask; None without a certain meaning in the dialect."""
        key = (mask, relation.key, dialect)
        if key not in self._known:
            try:
                found = mask_expression(mask.text, mask.dialect, relation, self._catalog, dialect)
            except RewriteRefused:
                found = None
            self._known[key] = found
        return self._known[key]


def _value(mask: Mask) -> str:
    """Return the expression, or the constant as a literal of Trino."""
    return _literal(mask.text) if mask.kind == "constant" else mask.text


_LITERALS: Final = 1_024
"""Constants with remembered literals."""
_literal: Final = lru_cache(_LITERALS)(translate_constant)


class _Column(NamedTuple):
    """Column as SQL, with its type as text, and the form of expressions that read the column."""

    sql: str
    type: str
    form: Form = "author"


def _require_columns(relation: Relation, names: Mapping[str, str]) -> None:
    if not names:
        message = f"a column of `{relation.name[-1]}` is masked, and the columns are unknown"
        raise RewriteRefused(FILTER_INVALID, message)
    if any(ROW in f"{name} {type}".lower() for name, type in names.items()):
        raise RewriteRefused(FILTER_INVALID, f"a column of `{relation.name[-1]}` holds `{ROW}`, a name of the rewriter")


def _type(text: str, dialect: str) -> exp.DataType | None:
    """Return the type of a column, as the target or another dialect writes types; None for an unknown type."""
    for read in (dialect, *DIALECTS) if text else ():
        try:
            found = exp.DataType.build(text, dialect=read)
        except (SqlglotError, ValueError, RecursionError):
            continue
        if found.this not in (exp.DataType.Type.USERDEFINED, exp.DataType.Type.UNKNOWN):
            return found
    return None


def _trino(kind: str, value: str, column: str, type: exp.DataType, dialect: str) -> str:
    """Return the expression that Trino's plugin gets for a mask."""
    return masked_value(kind, value, column, type.sql(dialect=dialect))


def _sql(kind: str, value: str, column: str, type: exp.DataType, dialect: str) -> str | None:
    """Return the expression of a dialect beside Trino, with the meaning of Trino's; None for NULL. `column` is SQL."""
    name = type.sql(dialect=dialect)
    if kind == "expression":
        return f"CAST({value} AS {name})"
    if kind == "constant":
        text = _constant(value, dialect)
        return f"{_TRY_CAST[dialect]}({text} AS {name})" if text and type.this in _CASTABLE else None
    if kind == FIXED_VALUE:
        return _fixed_value(type, dialect)
    if type.this not in exp.DataType.TEXT_TYPES:
        return kind_sql(kind, column, family_of(type), name, dialect)
    text = column
    if type.this in (exp.DataType.Type.CHAR, exp.DataType.Type.NCHAR):
        text = f"RTRIM({text})"  # without the blanks that pad a value
    if kind == "hash":
        return _cut(_HASH[dialect].format(text), type)
    if kind == "partial":
        end = f"CONCAT('****', SUBSTR({text}, -{VISIBLE_CHARACTERS}))"
        return _cut(f"CASE WHEN LENGTH({text}) >= {SHORTEST_VALUE} THEN {end} ELSE '****' END", type)
    return kind_sql(kind, text, "text", name, dialect)


_FIELDS: Final = {
    "duckdb": ("STRUCT_PACK({})", "{name} := {value}", quote_name),
    "spark": ("NAMED_STRUCT({})", "{name}, {value}", quote_text),
    "bigquery": ("STRUCT({})", "{value} AS {name}", quote_name),
}
"""Struct of a dialect, one of its fields, and the quotes of a name."""


def _fixed_value(type: exp.DataType, dialect: str) -> str | None:
    """Return the fixed value of a type; None for a type without one, and for a struct with such a field."""
    family = family_of(type)
    if family != "struct":
        bare = type.transform(_without_length)
        sql = kind_sql(FIXED_VALUE, "", family, bare.sql(dialect=dialect), dialect)
        return _cut(sql, type) if sql and family == "text" else sql
    struct, form, quote = _FIELDS[dialect]
    fields = []
    for part in type.expressions:
        kind = part.args.get("kind") if isinstance(part, exp.ColumnDef) else None
        value = _fixed_value(kind, dialect) if isinstance(kind, exp.DataType) else None
        if not value:
            return None
        try:
            fields.append(form.format(name=quote(part.name, dialect), value=value))
        except RewriteRefused:
            return None
    return struct.format(", ".join(fields)) if fields else None


def _without_length(node: exp.Expr) -> exp.Expr:
    """Return a text without its length, which Spark has in tables alone, and any other part of a type as it is."""
    is_text = isinstance(node, exp.DataType) and node.this in exp.DataType.TEXT_TYPES
    return exp.DataType(this=exp.DataType.Type.TEXT) if is_text else node


def _cut(sql: str, type: exp.DataType) -> str:
    """Return a text cut to the length of the type."""
    length = type.expressions[0].name if type.expressions else ""
    return f"SUBSTR({sql}, 1, {length})" if length.isdigit() else sql


def _constant(value: str, dialect: str) -> str:
    """Return Trino's literal as a text literal of a dialect; an empty text for NULL, and without a certain literal."""
    if value.upper() == "NULL":
        return ""
    bare = value[1:-1].replace("''", "'") if value.startswith("'") else value
    try:
        return quote_text(bare.lower() if bare.upper() in ("TRUE", "FALSE") else bare, dialect)
    except RewriteRefused:
        return ""


_SHORTEST: Final = 2
"""Parts of the shortest full name: a schema and a table."""


def qualifier_edits(references: TableMentions, wrapped: Mapping[int, str]) -> list[Edit]:
    """Return the edits of columns such as `sales.orders.id`. `wrapped`: id of a reference -> name without an alias."""
    by_scope: dict[int, list[TableMention]] = {}
    for reference in references.found:
        by_scope.setdefault(id(scope_of(reference.node)), []).append(reference)
    edits = []
    tables = {tuple(part.lower() for part in name[-2:]) for name in _names_of(references, wrapped)}
    rows = [column for *pair, column in references.pairs if tuple(pair) in tables] if references.pairs else []
    for column in (*references.columns, *rows):
        edit = _edit(column, by_scope, wrapped)
        if edit:
            edits.append(edit)
    return edits


def _names_of(references: TableMentions, wrapped: Mapping[int, str]) -> Iterator[tuple[str, ...]]:
    """Yield the names of the wrapped relations without an alias."""
    for reference in references.found:
        if wrapped.get(id(reference)) and reference.relations:
            yield reference.relations[0].name


def _edit(column: exp.Column, by_scope: Mapping[int, list[TableMention]], wrapped: Mapping[int, str]) -> Edit | None:
    """Return the edit of a column in the nearest query with the table; None if the column stays."""
    parts = column.parts
    names = [part.name.lower() for part in parts]
    scope = scope_of(column)
    while scope is not None:
        here = by_scope.get(id(scope), [])
        if any(reference.exposed_name.lower() == names[0] for reference in here):
            return None  # a field of a column of that source
        for reference in here:
            length = _length(reference, names)
            if length:
                new = wrapped.get(id(reference), "")
                if new and length == len(names):
                    _check_whole_row(names, here)
                return Edit(place_of(parts[0])[0], place_of(parts[length - 1])[1], new) if new else None
        scope = scope_of(scope)
    return None


def _length(reference: TableMention, names: list[str]) -> int:
    """Count the parts of the full name of a relation without an alias; 0 for another name."""
    if reference.alias or len(reference.relations) != 1:
        return 0
    full = [part.lower() for part in reference.relations[0].name]
    for length in range(len(names), _SHORTEST - 1, -1):
        if names[:length] == full[-length:]:
            return length
    return 0


def _check_whole_row(names: list[str], sources: Iterable[TableMention]) -> None:
    """Raise RewriteRefused for the full name of a table in place of its row, if the name could be a column as well."""
    for source in sources:
        for relation in source.relations:
            if not relation.columns or not relation.columns.keys().isdisjoint((names[0], names[-1])):
                message = f"`{'.'.join(names)}` could be a row or a column: give the table an alias"
                raise RewriteRefused(UNSUPPORTED_SOURCE, message)


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
