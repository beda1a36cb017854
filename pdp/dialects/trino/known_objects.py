"""Known objects behind names of Trino: at the name of a table, below a schema, and in a catalog's listing.

Facts know registered objects and objects with grants. Row policies and forbids name objects, too. Trino folds case, so
a name is found in any case. Decides nothing.

A decision does no I/O, so a catalog that lists names is asked first. A catalog that gives no answer denies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from pdp.decision.plan import PlanContext
from pdp.decision.service import Pdp
from pdp.dialects.trino.ambiguity import (
    ambiguous_tables,
    has_ambiguous_tables,
    is_ambiguous_schema,
    known_container,
    spellings,
)
from pdp.dialects.trino.names import base_table, suffix_of
from pdp.engines.row_access.engine import UNRESTRICTED, Restriction, hide_everything
from pdp.errors import AmbiguousName, Unavailable
from pdp.facts.objects import container_key
from pdp.facts.snapshot import Facts
from pdp.model.answer import Rejection
from pdp.model.arrays import PathArray
from pdp.model.question import NO_ARGUMENTS, Batch, Check, Resource
from pdp.model.trino_operations import METADATA_TABLES, TRINO_OPERATIONS
from pdp.model.vocabulary import TABULAR_TYPES

MAX_OBJECTS_BELOW: Final = 500
"""Known objects below a schema that one operation on the schema asks about."""


def objects_at(context: PlanContext, table: Resource) -> tuple[Resource, ...]:
    """Return the objects at a table's name: known objects by type, else `table_or_view` where row access covers it.

    The name must not be ambiguous.
    """
    if known := known_at(context.facts, table):
        return known
    is_covered = context.bundle.row_access.covers(table, context.facts)
    return (replace(table, type="table_or_view", arguments=NO_ARGUMENTS),) if is_covered else ()


def known_at(facts: Facts, table: Resource) -> tuple[Resource, ...]:
    """Return the objects that facts know at a table's name, in their own spelling. The name must not be ambiguous."""
    objects = facts.index.objects
    container = known_container(facts, table.warehouse, table.path[:-1])
    return tuple(
        replace(table, type=type, path=(*container[1:], name), arguments=NO_ARGUMENTS)
        for name in (spellings(objects, container, table.path[-1]) if container else ())
        for type in TABULAR_TYPES
        if container and (type, name) in objects[container]
    )


class SchemaContent(NamedTuple):
    """Objects below a schema: `known` to facts or row policies, and `forbidden`, which only forbids name."""

    known: tuple[Resource, ...]
    forbidden: tuple[Resource, ...]


def content_of(context: PlanContext, schema: Resource) -> SchemaContent | None:
    """Return the content of a namespace; None for more than MAX_OBJECTS_BELOW."""
    every = chain(_known_below(context, schema), _covered_below(context, schema))
    known = sorted(islice(every, MAX_OBJECTS_BELOW + 1), key=attrgetter("path", "type"))
    forbidden = tuple(islice(_forbidden_below(context, schema), MAX_OBJECTS_BELOW + 1))
    return SchemaContent(tuple(known), forbidden) if len(known) + len(forbidden) <= MAX_OBJECTS_BELOW else None


def _known_below(context: PlanContext, schema: Resource) -> Iterator[Resource]:
    container = known_container(context.facts, schema.warehouse, schema.path)
    if container is None:
        return
    for (type, path), _ in context.facts.subtree(container_key(container)):
        if path != container:
            yield Resource(type, schema.warehouse, path[1:], schema.ref)


def _covered_below(context: PlanContext, schema: Resource) -> Iterator[Resource]:
    """Yield the tables of row policies below a namespace that facts do not know."""
    for path in context.bundle.row_access.tables_below(schema, context.facts):
        table = Resource("table_or_view", schema.warehouse, path, schema.ref)
        container = known_container(context.facts, schema.warehouse, path[:-1])
        if container is None or not spellings(context.facts.index.objects, container, path[-1]):
            yield table


def _forbidden_below(context: PlanContext, schema: Resource) -> Iterator[Resource]:
    inside = ".".join((*schema.path, "")).casefold()
    for path in context.bundle.undroppable:
        is_here = path.warehouses is None or schema.warehouse in path.warehouses
        if is_here and path.text.casefold().startswith(inside):
            yield Resource("table_or_view", schema.warehouse, tuple(path.text.split(".")), schema.ref)


AMBIGUOUS_NAME: Final = AmbiguousName.code
"""The reason of denials of ambiguous names."""
TABLE_TYPES: Final = frozenset({"table_or_view", "table", "view"})
SCHEMA_TYPES: Final = TABLE_TYPES | {"namespace", "metadata_table"}
"""Types of schemas of a mapped catalog, and of their content."""


def has_metadata_tables(resources: Sequence[Resource]) -> bool:
    """Tell whether a resource with the type of a table has the name of a metadata table.

    Names from Trino itself are already typed; only the native API sends such resources, and never in columns.
    """
    if type(resources) is PathArray or resources[0].type not in TABLE_TYPES:
        return False
    return any(map(is_metadata_table, resources))


def is_metadata_table(table: Resource) -> bool:
    """Tell whether Trino reads the table's name as a metadata table's."""
    return bool(table.path) and "$" in table.path[-1] and suffix_of(table.path[-1]) in METADATA_TABLES


def restriction_of(context: PlanContext, table: Resource) -> Restriction:
    """Return the restriction of a table or view; no rows and no values for an ambiguous name."""
    if table.type in SCHEMA_TYPES and is_ambiguous_name(context.facts, table):
        return hide_everything(AMBIGUOUS_NAME)
    if table.type == "metadata_table":
        reason = context.restriction_reason(base_table(table)) if _shows_values(table) else None
        return hide_everything(reason) if reason else UNRESTRICTED
    if table.type not in TABLE_TYPES:
        return UNRESTRICTED
    return context.restriction(table)


def has_ambiguous_names(facts: Facts, resources: Sequence[Resource]) -> bool:
    """Tell whether a name among resources of one type is ambiguous. Only names of schemas and of their content are."""
    if resources[0].type not in SCHEMA_TYPES:
        return False
    if type(resources) is PathArray and resources.type in TABLE_TYPES and not _has_ambiguous_tables(facts, resources):
        return False
    return any(is_ambiguous_name(facts, resource) for resource in resources)


def has_simple_name(facts: Facts, resource: Resource) -> bool:
    """Tell whether the name of a resource is neither ambiguous nor the name of a metadata table."""
    kind = resource.type
    if kind not in SCHEMA_TYPES:
        return True
    if kind in TABLE_TYPES and is_metadata_table(resource):
        return False
    return not is_ambiguous_name(facts, resource)


def _has_ambiguous_tables(facts: Facts, tables: PathArray) -> bool:
    return has_ambiguous_tables(facts, tables.warehouse, tables.parents)


def is_ambiguous_name(facts: Facts, resource: Resource) -> bool:
    """Tell whether the name of a resource of SCHEMA_TYPES, or of its destination, is ambiguous."""
    destination = resource.arguments.destination
    if destination and destination.type in SCHEMA_TYPES and is_ambiguous_name(facts, destination):
        return True
    if resource.type == "namespace":
        return is_ambiguous_schema(facts, resource.warehouse, resource.path)
    names = ambiguous_tables(facts, resource.warehouse, resource.path[:-1])
    if names is None:
        return False
    table = base_table(resource) if resource.type == "metadata_table" else resource
    return table.path[-1].casefold() in names


def _shows_values(table: Resource) -> bool:
    return METADATA_TABLES.get(suffix_of(table.path[-1])) == "read_data"


_LISTED: Final = Rejection(
    "name_listed", "the catalog has an object of this name", by="config:trino.create_over_listed"
)


class NameCatalog(Protocol):
    """Catalog of one warehouse."""

    async def lists(self, name: Resource) -> bool:
        """Tell whether the catalog has a table or view of a name; raise Unavailable if the catalog gives no answer."""
        ...


class ListedNames:
    """Rejection of creations by `trino.create_over_listed`. `catalogs` are by warehouse."""

    def __init__(self, pdp: Pdp, catalogs: Mapping[str, NameCatalog]) -> None:
        self._pdp = pdp
        self._catalogs = catalogs
        self._denies = pdp.bundle.trino.create_over_listed == "deny"

    def concerns(self, operation: str) -> bool:
        """Tell whether the catalog is asked about the names of an operation."""
        return self._denies and operation in TRINO_OPERATIONS and TRINO_OPERATIONS[operation].rule == "creation"

    async def reject_listed(self, batch: Batch) -> Batch:
        """Return the batch with rejections of names that the catalog lists and the facts do not know.

        Raise Unavailable if a catalog gives no answer.
        """
        rejected, checks = dict(batch.rejected), []
        for check in batch.checks:
            listed = [await self._is_listed(resource) for resource in check.resources]
            rejected.update((at, _LISTED) for at, is_listed in zip(check.at, listed, strict=True) if is_listed)
            checks += _without(check, listed)
        return replace(batch, checks=tuple(checks), rejected=rejected)

    async def _is_listed(self, table: Resource) -> bool:
        """Tell whether only the catalog knows an object. The plan asks about objects that the facts know."""
        facts = self._pdp.source.facts
        if table.type not in TABLE_TYPES or is_ambiguous_name(facts, table) or known_at(facts, table):
            return False
        if table.ref not in (None, self._pdp.bundle.default_ref(table.warehouse)):
            raise Unavailable(f"the catalog of warehouse `{table.warehouse}` answers for its default ref alone")
        catalog = self._catalogs.get(table.warehouse)
        if catalog is None:
            raise Unavailable(f"warehouse `{table.warehouse}` has no catalog to ask")
        return await catalog.lists(table)


def _without(check: Check, left_out: list[bool]) -> list[Check]:
    """Return the check without some resources, in a list; an empty list if none is left."""
    rows = [row for row, is_out in enumerate(left_out) if not is_out]
    if len(rows) == len(left_out):
        return [check]
    resources, at = [check.resources[row] for row in rows], [check.at[row] for row in rows]
    return [replace(check, resources=resources, at=at)] if rows else []
