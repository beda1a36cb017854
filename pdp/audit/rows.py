"""Rows of a record from its JSON, whichever form its entries have. `entry_encoding` describes the forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pdp.model.checks import Resource
from pdp.model.references import format_resource

_SHARED: Final = ("action", "as", "delegated", "cached", "inputs", "load", "change")
"""Keys of an entry of columns that hold for all of its rows."""


def rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a record, one per concrete check and resource, by position in the answer."""
    return _by_position(record["checks"])


def requests(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the checks of the caller that the plan split into several, one row per resource, by position."""
    return _by_position(record.get("requests", ()))


def _by_position(entries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    found = [row for entry in entries for row in (_expand(entry) if "resources" in entry else [dict(entry)])]
    yield from sorted(found, key=lambda row: int(row["at"]))


def _expand(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    shared = {key: entry[key] for key in _SHARED if key in entry}
    at = entry["at"]
    for row, resource in enumerate(_resources(entry["resources"])):
        yield {
            "at": at + row if isinstance(at, int) else at[row],
            **shared,
            "resource": resource,
            "allowed": entry["allowed"][row] == "1",
            "by": [entry["reasons"][entry["by"][row]]],
            "errors": entry["errors"].get(str(row), []),
        }


def _resources(column: Any) -> Sequence[Any]:
    """Return the resources of a column: a list as written, or references of a column of paths."""
    if isinstance(column, list):
        return column
    like = {key: column[key] for key in ("type", "warehouse", "ref")}
    names = column["names"]
    parents = [tuple(path) for path in column.get("parents") or (column["path"],)]
    parent_at = column.get("parentAt") or bytes(len(names))
    return [
        format_resource(Resource(path=(*parents[at], name), **like)) for at, name in zip(parent_at, names, strict=True)
    ]
