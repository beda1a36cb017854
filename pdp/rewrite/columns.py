"""Columns with the full name of their table: a wrapped table is known by its last name alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sqlglot import exp

from pdp.rewrite.errors import UNSUPPORTED_SOURCE, RewriteRefused
from pdp.rewrite.references import Reference, References, scope_of
from pdp.rewrite.splice import Edit
from pdp.rewrite.syntax import place_of

_SHORTEST: Final = 2
"""Parts of the shortest full name: a schema and a table."""


def qualifier_edits(references: References, wrapped: Mapping[int, str]) -> list[Edit]:
    """Return the edits of columns such as `sales.orders.id`. `wrapped`: id of a reference -> name without an alias."""
    by_scope: dict[int, list[Reference]] = {}
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


def _names_of(references: References, wrapped: Mapping[int, str]) -> Iterator[tuple[str, ...]]:
    """Yield the names of the wrapped relations without an alias."""
    for reference in references.found:
        if wrapped.get(id(reference)) and reference.relations:
            yield reference.relations[0].name


def _edit(column: exp.Column, by_scope: Mapping[int, list[Reference]], wrapped: Mapping[int, str]) -> Edit | None:
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


def _length(reference: Reference, names: list[str]) -> int:
    """Count the parts of the full name of a relation without an alias; 0 for another name."""
    if reference.alias or len(reference.relations) != 1:
        return 0
    full = [part.lower() for part in reference.relations[0].name]
    for length in range(len(names), _SHORTEST - 1, -1):
        if names[:length] == full[-length:]:
            return length
    return 0


def _check_whole_row(names: list[str], sources: Iterable[Reference]) -> None:
    """Raise RewriteRefused for the full name of a table in place of its row, if the name could be a column as well."""
    for source in sources:
        for relation in source.relations:
            if not relation.columns or not relation.columns.keys().isdisjoint((names[0], names[-1])):
                message = f"`{'.'.join(names)}` could be a row or a column: give the table an alias"
                raise RewriteRefused(UNSUPPORTED_SOURCE, message)
