"""Plans of operations on a whole schema, with what stands below: known objects, and those that nobody knows.

Trino does not say whether `DROP SCHEMA` stands with `CASCADE`, so the plan asks about the objects that it would take
away. A rename takes them along, so both ends of each are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pdp.decision.plan import MOVED_ALONG, TOO_MANY_OBJECTS, Node, PlanContext, split, without_need
from pdp.dialects.trino.known_objects import SchemaContent, content_of
from pdp.dialects.trino.operation_planner import DROPPED, OperationPlanner, all_of, plan_by_place, unless_forbidden
from pdp.facts.objects import moved
from pdp.model.question import Resource

_MOST_SCHEMAS: Final = 10
_RENAMED: Final = ("CATALOG_RENAME_ENTITY_FROM",)


def plan_with_content(planner: OperationPlanner) -> Node:
    """Check an operation on a schema, and the drop of each known object below. Too many objects are denied.

    So are many schemas in one check: Trino asks about one, and each may have many objects.
    """
    if planner.resources[0].type != "namespace":
        return plan_by_place(planner)
    if len(planner.resources) > _MOST_SCHEMAS:
        return planner.fixed(False, TOO_MANY_OBJECTS)
    return split(
        planner.resources,
        lambda schema: (schema.path, (target := schema.arguments.destination) and target.path),
        lambda _, part: _plan_schema(planner.with_resources(part)),
    )


def _plan_schema(planner: OperationPlanner) -> Node:
    """Plan an operation on one schema, which may be named several times."""
    count = len(planner.resources)
    content = content_of(planner.context, planner.resources[0])
    if content is None:
        return planner.fixed(False, TOO_MANY_OBJECTS)
    context = planner.context.with_actions(DROPPED if planner.name == "DropSchema" else _RENAMED)
    actions = ["delete" if found.type == "namespace" else "drop" for found in content.known]
    parts = [context.concrete(action, [found] * count) for action, found in zip(actions, content.known, strict=True)]
    parts += [unless_forbidden(context, [found] * count) for found in content.forbidden]
    if planner.resources[0].arguments.destination and context.bundle.may_forbid_moves(planner.resources[0].warehouse):
        parts += _other_departures(planner, content)
        parts += [
            without_need(context.arrivals(type, [found] * count), MOVED_ALONG)
            for type, found in _other_arrivals(planner, content)
        ]
    return all_of(plan_by_place(planner), parts)


def _other_departures(planner: OperationPlanner, content: SchemaContent) -> Iterator[Node]:
    """Yield the renames of objects below a renamed schema, but for those that the rename asks about in any case.

    These are other spellings of forbids, and tables or views of row policies.
    """
    schemas = planner.resources
    for found in content.known:
        others = planner.spelling.others(found)
        for other in [found, *others] if found.type == "table_or_view" else others:
            yield from _departures(planner.context, other, schemas)


def _departures(context: PlanContext, found: Resource, schemas: Sequence[Resource]) -> Iterator[Node]:
    new = [moved(found.type, found.path, schema) for schema in schemas]
    for type in _types_of(found):
        yield context.departures((type, (found.warehouse, *found.path)), schemas, new)


def _other_arrivals(planner: OperationPlanner, content: SchemaContent) -> Iterator[tuple[str, Resource]]:
    """Yield new names below a renamed schema by type, but for those that the rename asks about in any case.

    These are other spellings of forbids, tables or views of row policies, and names of objects that nobody knows.
    """
    schema = planner.resources[0]
    for found in content.known:
        new = moved(found.type, found.path, schema)
        others = planner.spelling.others(new)
        for other in [new, *others] if found.type == "table_or_view" else others:
            for type in _types_of(found):
                yield type, other
    for found in content.arriving:
        for type in _types_of(found):
            yield type, found


def _types_of(found: Resource) -> tuple[str, ...]:
    return ("table", "view") if found.type == "table_or_view" else (found.type,)
