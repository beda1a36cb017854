"""Rows of a record as JSON objects, whichever form its entries have. `entry_rows` reads the forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from pdp.audit.entry_rows import entry_rows
from pdp.audit.schema import RecordEntry
from pdp.model.question import Resource
from pdp.model.references import format_resource

_SHARED: Final = ("action", "as", "delegated", "inputs", "load", "change")
"""Keys of an entry of columns that hold for all of its rows."""


def rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a record, one per concrete check and resource, by position in the answer."""
    return _by_position(whole_record(record)["checks"])


def requests(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the checks of the caller that the plan split into several, one row per resource, by position."""
    return _by_position(whole_record(record).get("requests", ()))


def whole_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the names of all columns, where it was written with references (`like`)."""
    columns: list[Mapping[str, Any]] = []
    whole = {key: [_whole_entry(entry, columns) for entry in record.get(key, ())] for key in ("checks", "requests")}
    return {**record, **{key: entries for key, entries in whole.items() if key in record}}


def _whole_entry(entry: Mapping[str, Any], columns: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return an entry with its names. `columns` are those with names so far; another one is added."""
    resources = entry.get("resources")
    if not isinstance(resources, Mapping):
        return entry
    if "like" not in resources:
        columns.append(resources)
        return entry
    own = {key: value for key, value in resources.items() if key != "like"}
    return {**entry, "resources": {**columns[resources["like"]], **own}}


def _by_position(entries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    found = [row for entry in entries for row in (_expand(entry) if "resources" in entry else [dict(entry)])]
    yield from sorted(found, key=lambda row: int(row["at"]))


def _expand(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    shared = {key: entry[key] for key in _SHARED if key in entry}
    written = entry["resources"]
    for number, row in enumerate(entry_rows(msgspec.convert(entry, RecordEntry))):
        yield {
            "at": row.at,
            **shared,
            "cached": row.cached,
            "resource": format_resource(row.resource) if isinstance(row.resource, Resource) else written[number],
            "allowed": row.allowed,
            "by": [row.by],
            "errors": list(row.errors or ()),
        }
