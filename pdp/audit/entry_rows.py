"""Rows of an entry of a record: the one reader of both forms, rows and columns. `entry_encoding` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from pdp.audit.schema import FullResource, PathNames, RecordEntry
from pdp.model.columns import PathColumn
from pdp.model.question import CONTENT_TYPES, Resource

WrittenResource: TypeAlias = str | FullResource | Resource
"""A resource of an entry, as written or as made from the names of a column of paths."""


class EntryError(Exception):
    """An entry whose fields contradict one another."""


class EntryRow(NamedTuple):
    """One resource of an entry with the decision about the resource; `errors` is None if the record holds none."""

    at: int
    resource: WrittenResource
    allowed: bool
    by: str
    errors: tuple[str, ...] | None
    cached: bool


def entry_rows(entry: RecordEntry) -> Iterator[EntryRow]:
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
    yield EntryRow(entry.at, entry.resource, entry.allowed, str(entry.by[0]), errors, bool(entry.cached))


def _column_rows(entry: RecordEntry, resources: Sequence[WrittenResource]) -> Iterator[EntryRow]:
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
        yield EntryRow(positions[row], resources[row], permitted, entry.reasons[reason], row_errors, from_cache)


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
    return PathColumn(Resource(resources.type, resources.warehouse, ref=resources.ref), parents, parent_at, names)
