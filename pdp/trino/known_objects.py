"""Known objects behind names of Trino: at the name of a table, and below a schema.

Facts know registered objects and objects with grants. Row policies and forbids name objects, too. Trino folds case, so
a name is found in any case. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec.structs import replace

from pdp.decision.plan import PlanContext
from pdp.facts.objects import container_key
from pdp.facts.snapshot import Facts
from pdp.model.question import NO_ARGUMENTS, Resource
from pdp.model.vocabulary import TABULAR_TYPES
from pdp.trino.ambiguity import known_container, spellings

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
