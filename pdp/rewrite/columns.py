"""Columns with the full name of their table: a wrapped table is known by its last name alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

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
    for column in references.columns:
        edit = _edit(column, by_scope, wrapped)
        if edit:
            edits.append(edit)
    return edits


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
                return Edit(place_of(parts[0])[0], place_of(parts[length - 1])[1], new) if new else None
        scope = scope_of(scope)
    return None


def _length(reference: Reference, names: list[str]) -> int:
    """Count the parts of the full name of a relation without an alias; 0 for another name."""
    if reference.alias or len(reference.relations) != 1:
        return 0
    full = [part.lower() for part in reference.relations[0].name]
    for length in range(len(names) - 1, _SHORTEST - 1, -1):
        if names[:length] == full[-length:]:
            return length
    return 0
