"""Rows of an entry of a record, as values or as JSON: the one reader of both forms, rows and columns.

`entries.py` writes both forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import fields

from pdp.audit.records.schema import CheckEntry, FullResource, PathNames
from pdp.model.arrays import PathArray
from pdp.model.question import CONTENT_TYPES, Resource
from pdp.model.references import format_resource

WrittenResource: TypeAlias = str | FullResource | Resource
"""A resource of an entry, as written or as made from the names of a column of paths."""


class EntryError(Exception):
    """An entry whose fields contradict one another."""


class DecisionRow(NamedTuple):
    """One resource of an entry with the decision about the resource; `errors` is None if the record holds none."""

    at: int
    resource: WrittenResource
    allowed: bool
    by: str
    errors: tuple[str, ...] | None
    cached: bool


def entry_rows(entry: CheckEntry) -> Iterator[DecisionRow]:
    """Yield the rows of an entry of either form; raise EntryError if the fields contradict one another."""
    if entry.resources is not None:
        yield from _column_rows(entry, _column_resources(entry.resources))
        return
    if (
        not isinstance(entry.at, int)
        or not entry.by
        or isinstance(entry.allowed, str)
        or isinstance(entry.errors, dict)
    ):
        raise EntryError("a row without its decision")
    errors = None if entry.errors is None else tuple(entry.errors)
    yield DecisionRow(entry.at, entry.resource, entry.allowed, str(entry.by[0]), errors, bool(entry.cached))


def _column_rows(entry: CheckEntry, resources: Sequence[WrittenResource]) -> Iterator[DecisionRow]:
    allowed, errors, positions = entry.allowed, entry.errors, entry.positions
    if not isinstance(allowed, str) or not isinstance(errors, dict):
        raise EntryError("columns without their decisions")
    if len({len(positions), len(resources), len(allowed), len(entry.by)}) != 1:
        raise EntryError("columns of different lengths")
    cached = entry.cached if isinstance(entry.cached, str) else ("0", "1")[entry.cached] * len(allowed)
    if len(cached) != len(allowed):
        raise EntryError("columns of different lengths")
    for row, reason in enumerate(entry.by):
        if not isinstance(reason, int) or not 0 <= reason < len(entry.reasons):
            raise EntryError(f"there is no reason {reason}")
        row_errors = tuple(errors.get(str(row), ())) if errors else ()
        permitted, from_cache = allowed[row] == "1", cached[row] == "1"
        yield DecisionRow(positions[row], resources[row], permitted, entry.reasons[reason], row_errors, from_cache)


def _column_resources(resources: list[str | FullResource] | PathNames) -> Sequence[WrittenResource]:
    if isinstance(resources, list):
        return resources
    if resources.type not in CONTENT_TYPES:
        raise EntryError(f"a {resources.type} has no path")
    if resources.like is not None:
        raise EntryError(f"there is no column {resources.like}")
    names, parents = resources.names, resources.parents or [resources.path]
    parent_at: Sequence[int] = resources.parent_at if resources.parents else bytes(len(names))
    if len(parent_at) != len(names) or not all(0 <= at < len(parents) for at in parent_at):
        raise EntryError("a column of paths without the containers")
    return PathArray(Resource(resources.type, resources.warehouse, ref=resources.ref), parents, parent_at, names)


_OF_ROWS: Final = {*DecisionRow._fields, "resources", "reasons", "error"}
"""Fields of an entry that differ from row to row, and those that a row does not have."""
_SHARED: Final = tuple(field.encode_name for field in fields(CheckEntry) if field.name not in _OF_ROWS)
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
    for number, row in enumerate(entry_rows(msgspec.convert(entry, CheckEntry))):
        yield {
            "at": row.at,
            **shared,
            "cached": row.cached,
            "resource": format_resource(row.resource) if isinstance(row.resource, Resource) else written[number],
            "allowed": row.allowed,
            "by": [row.by],
            "errors": list(row.errors or ()),
        }
