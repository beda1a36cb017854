"""Names of tables in policies: dotted names and references, to the path that a policy covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pdp.facts.row_policies import TablePath
from pdp.model.references import check_part, parse_resource
from pdp.model.trino_operations import METADATA_TABLES, SYSTEM_TABLES

_TABLES: Final = frozenset({"table", "view", "table_or_view", "dataset", "generic_table"})


def table_path(text: str, default: Sequence[str]) -> TablePath:
    """Return the path of a table, written as `<warehouse>.<namespace>.<table>`, within `default` or as a reference.

    Raise ValueError or InvalidReference for any other text, and for a table that policies do not cover.
    """
    if ":" in text:
        resource = parse_resource(text)
        if resource.type not in _TABLES or resource.ref is not None:
            raise ValueError(f"`{text}` is no table or view without a ref")
        _refuse_uncovered(text, resource.path)
        return resource.warehouse, *resource.path
    parts = text.split(".")
    if len(parts) == 1:
        parts = [*default, *parts]
    elif len(parts) == 2 and default:
        parts = [default[0], *parts]
    if len(parts) < 3 or any(not part or part != part.strip() for part in parts):
        raise ValueError(f"`{text}` is no `<warehouse>.<namespace>.<table>`")
    warehouse, *path = map(check_part, parts)
    _refuse_uncovered(text, path)
    return warehouse, *path


def _refuse_uncovered(text: str, path: Sequence[str]) -> None:
    """Raise ValueError for a metadata table and a system table: a policy there would hide nothing."""
    if suffix := next((s for s in METADATA_TABLES if path[-1].lower().endswith(f"${s}")), ""):
        raise ValueError(f"`{text}` shows what its table holds: `${suffix}` is covered by policies on that")
    if path[0].lower() in SYSTEM_TABLES:
        raise ValueError(f"`{text}` stands in a schema of the engine's own, which policies do not cover")
