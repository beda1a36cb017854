"""Plans of operations that change more than they name: creations that replace, and schemas with their content.

Trino does not say whether `CREATE TABLE` stands with `OR REPLACE`, nor whether `DROP SCHEMA` stands with `CASCADE`.
Both plans therefore ask about the objects that the stronger form would take away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from pdp.decision.plan import AllOf, AnyOf, FixedDecision, Node, PlanContext, split
from pdp.model.question import Reason, Resource
from pdp.model.trino_operations import PLACE_PROPERTIES
from pdp.trino.known_objects import content_of, known_at, objects_at
from pdp.trino.operation_places import plan_by_place
from pdp.trino.operation_planner import OperationPlanner
from pdp.trino.tables import TABLE_TYPES

_UNKNOWN_OBJECT: Final = "rule:unknown_object"
_EXTERNAL_LOCATIONS: Final = "config:trino.external_locations"
_TOO_MANY: Final = "rule:too_many_objects"
_MOST_SCHEMAS: Final = 10
_DROPPED: Final = ("CATALOG_DROP_ENTITY",)
_RENAMED: Final = ("CATALOG_RENAME_ENTITY_FROM",)


def plan_creation(planner: OperationPlanner) -> Node:
    """Check a creation, and the drop of each object with the name of the new table or view."""
    if planner.resources[0].type not in TABLE_TYPES | {"namespace"}:
        return plan_by_place(planner)
    return planner.context.deny_where(
        partial(_reason_against_creation, planner),
        planner.resources,
        planner.action,
        lambda part: _plan_replacement(planner.with_resources(part)),
    )


def plan_with_content(planner: OperationPlanner) -> Node:
    """Check an operation on a schema, and the drop of each known object below. Too many objects are denied.

    So are many schemas in one check: Trino asks about one, and each may have many objects.
    """
    if planner.resources[0].type != "namespace":
        return plan_by_place(planner)
    if len(planner.resources) > _MOST_SCHEMAS:
        return planner.fixed(False, _TOO_MANY)
    return split(
        planner.resources,
        lambda schema: schema.path,
        lambda _, part: _plan_schema(planner.with_resources(part)),
    )


def _reason_against_creation(planner: OperationPlanner, table: Resource) -> Reason | None:
    """Return the reason against a new table over files that its properties name, or over hidden rows or columns."""
    context = planner.context
    if planner.trino.external_locations == "deny" and _names_place(table):
        return _EXTERNAL_LOCATIONS
    if not context.bundle.row_access.has_policies(table, context.facts):
        return None
    return context.restriction(table).reason if known_at(context.facts, table) else None


def _names_place(table: Resource) -> bool:
    properties = table.arguments.given.get("properties")
    return isinstance(properties, Mapping) and not PLACE_PROPERTIES.isdisjoint(
        name.lower() for name, value in properties.items() if value is not None
    )


def _plan_replacement(planner: OperationPlanner) -> Node:
    """Split the resources by the types of the objects that they would replace."""
    context = planner.context.with_actions(_DROPPED)

    def creation(types: tuple[str, ...], tables: list[Resource]) -> Node:
        create = plan_by_place(planner.with_resources(tables))
        if types:
            return _all_of(create, _drops(context, types, tables))
        if not context.bundle.forbids:
            return create
        return _all_of(create, [_unless_forbidden(context, [_without_arguments(table) for table in tables])])

    return split(planner.resources, lambda table: tuple(found.type for found in objects_at(context, table)), creation)


def _unless_forbidden(context: PlanContext, objects: Sequence[Resource]) -> Node:
    """Deny what forbids keep from being dropped. No permit is needed: nobody knows whether the objects exist."""
    return AnyOf((context.concrete("drop", objects), context.fixed(True, _UNKNOWN_OBJECT, "drop", objects)))


def _drops(context: PlanContext, types: Sequence[str], tables: Sequence[Resource]) -> list[Node]:
    """Return the drops of the objects at the names of `tables`, by their own spelling and by Trino's."""
    columns = zip(*(objects_at(context, table) for table in tables), strict=True)
    drops = []
    for type, objects in zip(types, columns, strict=True):
        drops.append(context.concrete("drop", objects, type))
        if any(known.path != table.path for known, table in zip(objects, tables, strict=True)):
            drops.append(context.concrete("drop", [_without_arguments(table) for table in tables], type))
    return drops


def _plan_schema(planner: OperationPlanner) -> Node:
    """Plan an operation on one schema, which may be named several times."""
    count = len(planner.resources)
    content = content_of(planner.context, planner.resources[0])
    if content is None:
        return planner.fixed(False, _TOO_MANY)
    context = planner.context.with_actions(_DROPPED if planner.name == "DropSchema" else _RENAMED)
    actions = ["delete" if found.type == "namespace" else "drop" for found in content.known]
    parts = [context.concrete(action, [found] * count) for action, found in zip(actions, content.known, strict=True)]
    parts += [_unless_forbidden(context, [found] * count) for found in content.forbidden]
    return _all_of(plan_by_place(planner), parts)


def _all_of(first: Node, others: Sequence[Node]) -> Node:
    """Return the conjunction of a plan and others, in one level, so that a denial names its object once."""
    if not others or (isinstance(first, FixedDecision) and not first.allowed):
        return first
    return AllOf((*(first.parts if isinstance(first, AllOf) else (first,)), *others))


def _without_arguments(table: Resource) -> Resource:
    return Resource("table_or_view", table.warehouse, table.path, table.ref)
