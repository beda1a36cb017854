"""Planner of a Trino operation: parts of plans for all rules, for every place, and for changes of more than is named.

A place is the part of Trino where a resource stands: a system catalog, a metadata table, an unmanaged catalog.

Trino does not say whether `CREATE TABLE` stands with `OR REPLACE`, so the plan asks about the object that it would take
away. `schema_plans.py` plans what a whole schema takes along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Final

from pdp.decision.plan import AllOf, AnyOf, FixedDenial, Leaf, Node, PlanContext, Split, split, without_need
from pdp.dialects.trino.known_objects import AMBIGUOUS_NAME, is_metadata_table, known_at, objects_at
from pdp.dialects.trino.names import base_table, before_sign, most_signs, suffix_of
from pdp.dialects.trino.spelling import TABLE_TYPES, Spelling
from pdp.model.answer import OTHER_SPELLING, Reason
from pdp.model.arrays import PathArray, positions_by
from pdp.model.question import Check, Resource
from pdp.model.trino_operations import (
    MADE_WITH,
    METADATA_TABLES,
    PLACE_PROPERTIES,
    SAME_RIGHT,
    SYSTEM_CATALOG,
    SYSTEM_READS,
    SYSTEM_TABLES,
    TAKEN_WITH,
    TRINO_PREFIX,
    VIEW_STORAGE,
    TrinoOperation,
)
from pdp.model.vocabulary import TABLE_OR_VIEW, OperationStep


class OperationPlanner:
    """One operation on resources of one type, for one principal.

    `name` is `action` without the prefix. `user` is the principal's name in Trino's spelling; empty for a user of
    another identity provider.
    """

    def __init__(self, context: PlanContext, check: Check, operation: TrinoOperation) -> None:
        self.context = context
        self.trino = context.bundle.trino
        self.action = check.question.action
        self.name = check.question.action.removeprefix(TRINO_PREFIX)
        self.resources = check.resources
        self.spelling = Spelling(context.facts, context.bundle)
        self.operation = operation
        self.user = self.trino_name(context.principal.name)
        self.is_user = context.principal.type == "user"
        self.is_admin = self.is_user and self.user in self.trino.admin_users

    @property
    def impersonated(self) -> tuple[str, ...]:
        """Return the users of Trino whom the principal may become."""
        return self.trino.impersonation.get(self.user, ()) if self.is_user else ()

    @property
    def reads(self) -> bool:
        """Tell whether the operation only reads: system schemas and metadata tables permit no other."""
        return self.name in SYSTEM_READS

    def with_resources(self, resources: Sequence[Resource]) -> OperationPlanner:
        """Return the same operation on part of the resources."""
        part = copy(self)
        part.resources = resources
        return part

    def fixed(self, allowed: bool, by: str, resources: Sequence[Resource] | None = None) -> Node:
        """Return a decision of the configuration, on all resources unless `resources` is given. Forbids bind.

        A forbid of the operation with the same right binds, too: a list leaves out what that forbid denies.
        """
        context, resources = self.context, resources or self.resources
        if not allowed:
            return context.denied(by, self.action, resources)
        own, kin = context.permitted(by, self.action, resources), SAME_RIGHT.get(self.name)
        more = self.forbidden_with((kin,) if kin else (), by, resources)
        return AllOf((own, *more), named=False) if more else own

    def forbidden_with(self, operations: Sequence[str], by: str, resources: Sequence[Resource]) -> list[Node]:
        """Return permits of other operations on resources, for their forbids alone."""
        leaves = [self.context.permitted(by, TRINO_PREFIX + operation, resources) for operation in operations]
        may_forbid = self.context.bundle.may_forbid
        return [one for one in leaves if may_forbid(one.group.warehouse, one.group.action, one.group.type)]

    def unknown(self, resources: Sequence[Resource] | None = None) -> Node:
        """Return the denial of an unknown action."""
        return self.fixed(False, "unknown_action", resources)

    def reason_against_stored_rows(self) -> Reason | None:
        """Return the reason against a materialized view, which keeps rows of other tables; None if none.

        Trino stores the rows that the user of the refresh sees, and shows them to others by the policies of the view
        alone. A question does not name the catalog, so the strictest of several catalogs of one ref counts.
        """
        place, bundle = self.resources[0], self.context.bundle
        default = bundle.default_ref(place.warehouse)
        modes = {
            catalog.materialized_views
            for catalog in self.trino.catalogs.values()
            if catalog.warehouse == place.warehouse and (catalog.ref or default) == (place.ref or default)
        }
        if modes == {"allowed"}:
            return None
        is_restricted = bundle.row_access.restricts_in(place.warehouse, self.context.facts)
        return MATERIALIZED_VIEWS if "denied" in modes or is_restricted else None

    def plan_steps(self, resources: Sequence[Resource] | None = None) -> Node:
        """Return the checks of the operation on objects of a warehouse. All checks must permit."""
        parts = [self.plan_step(step, resources or self.resources) for step in self.operation.steps]
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def plan_step(self, step: OperationStep, resources: Sequence[Resource]) -> Node:
        """Return the check of a step."""
        context = self.context.with_actions(step.also) if step.also else self.context
        if step.on == "parent":
            return context.in_parent(step.action, resources)
        type = resources[0].type if step.on in ("given", "table_or_view") else step.on
        if step.on == type == "table_or_view":
            return split(resources, partial(_types_at, context, step), partial(_plan_types, context, step))
        return _plan_types(context, step, (type,), resources)

    def trino_name(self, name: str) -> str:
        """Return a user's name in Trino's spelling; empty for a user of another identity provider."""
        prefix = self.trino.user_prefix
        return name.removeprefix(prefix) if name.startswith(prefix) else ""


_VIEW_ACTIONS: Final = {"read_data": "select", "write_data": "commit"}
"""Action on a table -> the action on a view that Trino means by the same operation."""


def _types_at(context: PlanContext, step: OperationStep, table: Resource) -> tuple[str, ...]:
    """Return the types that a change at a table's name is asked about.

    A right on a view counts for a comment unless only a table is known there, and for a procedure, which may delete
    files of a table, if a view is known there.
    """
    known = {found.type for found in known_at(context.facts, context.bundle, table)}
    may_be_view = "view" in known or (step.action == "commit" and "table" not in known)
    return ("table", "view") if may_be_view else ("table",)


def _plan_types(context: PlanContext, step: OperationStep, types: Sequence[str], resources: Sequence[Resource]) -> Node:
    """Return the check of a step on each of some types: one permit suffices, and a forbid of either denies."""
    actions = [_VIEW_ACTIONS.get(step.action, step.action) if type == "view" else step.action for type in types]
    parts = tuple([context.concrete(action, resources, type) for action, type in zip(actions, types, strict=True)])
    return parts[0] if len(parts) == 1 else AnyOf(parts)


def plan_spelled(planner: OperationPlanner, plan: Callable[[OperationPlanner], Node]) -> Node:
    """Plan an operation on resources under their own names; deny ambiguous names.

    Forbids hold in any case: where a forbid spells a name in another way, the name is also asked in that spelling,
    and needs no permit there.
    """
    named, spelling = planner.resources, planner.spelling
    column = spelling.own_column(named) if type(named) is PathArray and named.type in TABLE_TYPES else None
    if column is not None:
        return plan(planner.with_resources(column))
    own = list(map(spelling.own, named))
    others = [spelling.others(found) if found else [] for found in own]

    def spelled(count: int, rows: Sequence[int]) -> Node:
        if count < 0:
            return planner.fixed(False, AMBIGUOUS_NAME, [named[row] for row in rows])
        columns = zip(*(others[row] for row in rows), strict=True)
        parts = [planner.with_resources(list(column)) for column in columns]
        forbids = [without_need(plan(part), OTHER_SPELLING) for part in parts]
        return all_of(plan(planner.with_resources([found for row in rows if (found := own[row])])), forbids)

    counts = [len(more) if found else -1 for found, more in zip(own, others, strict=True)]
    rows_by = positions_by(range(len(named)), counts.__getitem__)
    planned = tuple(spelled(count, rows) for count, rows in rows_by.items())
    return planned[0] if len(planned) == 1 else Split(tuple(rows_by.values()), planned)


ADMIN: Final = "config:trino.admin_users"
"""The reason of decisions on administrators."""
UNMANAGED: Final = "config:trino.unmanaged_catalogs"
"""The reason of decisions in catalogs without a warehouse."""
_SYSTEM_CATALOG: Final = "rule:system_catalog"
_SYSTEM_SCHEMA: Final = "rule:system_schema"
_OTHER_TYPE: Final = "rule:other_type"
_SELECTS: Final = frozenset({"SelectFromColumns", "CreateViewWithSelectFromColumns"})


def plan_by_place(planner: OperationPlanner) -> Node:
    """Return the plan of an operation with checks: the steps in a warehouse, fixed rules elsewhere."""
    plan_place = PLACES.get(planner.resources[0].type)
    return plan_place(planner) if plan_place else planner.plan_steps()


def _unmanaged_catalog(planner: OperationPlanner) -> Node:
    """Allow what the configuration allows. Forbids are asked about all that the operation does, and to which tables."""
    if planner.trino.unmanaged_catalogs != "allow":
        return planner.fixed(False, UNMANAGED)
    named = planner.resources
    # INVARIANT: every resource of a rename has a destination, or none has one: `_rename` denies the others.
    targets = [target for each in named if (target := each.arguments.destination)]
    if max(most_signs(named), most_signs(targets)) > _MOST_SIGNS:
        return planner.fixed(False, AMBIGUOUS_NAME)
    found: list[Node] = []
    for places, kin in ((_with_bases(named), TAKEN_WITH), (_with_bases(targets), MADE_WITH)):
        for each in places:
            found += [planner.fixed(True, UNMANAGED, each)]
            found += planner.forbidden_with(kin.get(planner.name, ()), UNMANAGED, each)
    return found[0] if len(found) == 1 else AllOf(tuple(found), named=False)


_MOST_SIGNS: Final = 8
"""Most `$` in a name of a catalog without a warehouse."""


def _with_bases(tables: Sequence[Resource]) -> list[Sequence[Resource]]:
    """Return the tables, and those behind names such as `t$files`: before each `$`, beside all others."""
    if not tables:
        return []
    return [tables, *([before_sign(each, at) for each in tables] for at in range(1, most_signs(tables) + 1))]


def _system_catalog(planner: OperationPlanner) -> Node:
    """Open the metadata of Trino's own catalog to every user, the rest to administrators."""
    if planner.is_admin:
        return planner.fixed(True, ADMIN)
    if not planner.reads:
        return planner.fixed(False, _SYSTEM_CATALOG)
    return split(planner.resources, _is_open, lambda open, part: planner.fixed(open, _SYSTEM_CATALOG, part))


def _system_schema(planner: OperationPlanner) -> Node:
    """Open `information_schema` and similar schemas of a mapped catalog to every user of the warehouse."""
    if not planner.reads:
        return planner.fixed(False, _SYSTEM_SCHEMA)
    return split(planner.resources, _is_listed, partial(_listed_system_schema, planner))


def _listed_system_schema(planner: OperationPlanner, listed: bool, resources: Sequence[Resource]) -> Node:
    if not listed:
        return planner.fixed(False, _SYSTEM_SCHEMA, resources)
    warehouses = [Resource("warehouse", resource.warehouse, ref=resource.ref) for resource in resources]
    return planner.context.leaf("warehouse", "get_config", warehouses)


def _metadata_table(planner: OperationPlanner) -> Node:
    """Check `t$snapshots` and other tables about t on t itself. A metadata table has none of its own."""
    return split(
        planner.resources,
        lambda table: "" if is_metadata_table(base_table(table)) else suffix_of(table.path[-1]),
        partial(_metadata_table_of_suffix, planner),
    )


def _metadata_table_of_suffix(planner: OperationPlanner, suffix: str, resources: Sequence[Resource]) -> Node:
    if not planner.reads or suffix not in METADATA_TABLES:
        return planner.fixed(False, "rule:metadata_table", resources)
    context = planner.context
    tables = [base_table(resource) for resource in resources]
    ask = context.concrete if suffix == VIEW_STORAGE else partial(_plan_beside, context)
    if planner.name not in _SELECTS:
        return ask(planner.operation.steps[0].action, tables)
    action = METADATA_TABLES[suffix]
    if action != "read_data":
        return ask(action, tables)
    # `t$files` and similar show values of t, which row filters and masks of t would hide
    return context.deny_restricted(tables, planner.action, partial(ask, action))


def _plan_beside(context: PlanContext, action: str, tables: Sequence[Resource]) -> Node:
    """Check an action on tables with metadata tables. Materialized views have some, too: forbids on a view bind.

    A right on a view opens none of them. An action without a form for views is asked under its own name: an engine that
    knows every action may permit it on the table.
    """
    table = context.leaf("table", action, tables)
    view_action = dict(TABLE_OR_VIEW.get(action, ())).get("view", action)
    group = context.group("view", view_action, tables[0])
    if not context.bundle.may_forbid(group.warehouse, group.action, group.type):
        return table
    return AllOf((table, Leaf(group, tables, _OTHER_TYPE)), named=False)


PLACES: Final[Mapping[str, Callable[[OperationPlanner], Node]]] = {
    "catalog": _unmanaged_catalog,
    "system_catalog": _system_catalog,
    "system_schema": _system_schema,
    "metadata_table": _metadata_table,
}
"""Resource type outside of a warehouse's objects -> its plan."""


def _is_open(resource: Resource) -> bool:
    """Tell whether the `system` catalog, or a schema or table in the catalog, is open to every user."""
    if not resource.path:
        return True
    schema, *table = resource.path
    tables = SYSTEM_CATALOG.get(schema, frozenset())
    return schema in SYSTEM_CATALOG and (not table or tables is None or table[0] in tables)


def _is_listed(resource: Resource) -> bool:
    schema, *table = resource.path
    return schema in SYSTEM_TABLES and (not table or table[0] in SYSTEM_TABLES[schema])


MATERIALIZED_VIEWS: Final = "config:trino.catalogs.materialized_views"
"""The reason of denials of materialized views."""
UNKNOWN_OBJECT: Final = "rule:unknown_object"
"""Reason of the loss of what may stand at a name: nothing needs to permit it."""
_EXTERNAL_LOCATIONS: Final = "config:trino.external_locations"
DROPPED: Final = ("CATALOG_DROP_ENTITY",)
"""Mark of a drop in the `actions` that rules see."""


def plan_creation(planner: OperationPlanner) -> Node:
    """Check a creation, and the drop of each object with the name of the new table or view."""
    if planner.resources[0].type not in TABLE_TYPES | {"namespace"}:
        return plan_by_place(planner)
    if planner.name == "CreateMaterializedView" and (reason := planner.reason_against_stored_rows()):
        return planner.fixed(False, reason)
    return planner.context.deny_where(
        partial(_reason_against_creation, planner),
        planner.resources,
        planner.action,
        lambda part: _plan_replacement(planner.with_resources(part)),
    )


def _reason_against_creation(planner: OperationPlanner, table: Resource) -> Reason | None:
    """Return the reason against a new table over files that its properties name, or over hidden rows or columns."""
    context = planner.context
    if planner.trino.external_locations == "deny" and _names_place(table):
        return _EXTERNAL_LOCATIONS
    if not context.bundle.row_access.has_policies(table, context.facts):
        return None
    return context.restriction(table).reason if known_at(context.facts, context.bundle, table) else None


def _names_place(table: Resource) -> bool:
    properties = table.arguments.given.get("properties")
    return isinstance(properties, Mapping) and not PLACE_PROPERTIES.isdisjoint(
        name.lower() for name, value in properties.items() if value is not None
    )


def _plan_replacement(planner: OperationPlanner) -> Node:
    """Split the resources by the types of the objects that they would replace.

    A grant or policy on a name does not tell what is there: an object of another type may be, unless one is registered.
    """
    context = planner.context.with_actions(DROPPED)

    def creation(key: tuple[tuple[str, ...], bool], tables: list[Resource]) -> Node:
        types, is_registered = key
        create = plan_by_place(planner.with_resources(tables))
        drops = _drops(context, types, tables)
        may_forbid = any(context.bundle.may_forbid(tables[0].warehouse, "drop", type) for type in ("table", "view"))
        if may_forbid and not is_registered:
            drops.append(unless_forbidden(context, [_without_arguments(table) for table in tables]))
        return all_of(create, drops)

    def key_of(table: Resource) -> tuple[tuple[str, ...], bool]:
        types = tuple(found.type for found in objects_at(context, table))
        path = (table.warehouse, *table.path)
        return types, any(context.facts.is_registered((type, path)) for type in types)

    return split(planner.resources, key_of, creation)


def unless_forbidden(context: PlanContext, objects: Sequence[Resource]) -> Node:
    """Deny what forbids keep from being dropped. No permit is needed: nobody knows whether the objects exist."""
    return without_need(context.concrete("drop", objects), UNKNOWN_OBJECT)


def _drops(context: PlanContext, types: Sequence[str], tables: Sequence[Resource]) -> list[Node]:
    """Return the drops of the objects at the names of `tables`."""
    columns = zip(*(objects_at(context, table) for table in tables), strict=True)
    return [context.concrete("drop", objects, type) for type, objects in zip(types, columns, strict=True)]


def all_of(first: Node, others: Sequence[Node]) -> Node:
    """Return the conjunction of a plan and others, in one level, so that a denial names its object once."""
    if not others or isinstance(first, FixedDenial):
        return first
    return AllOf((*(first.parts if isinstance(first, AllOf) else (first,)), *others))


def _without_arguments(table: Resource) -> Resource:
    return Resource("table_or_view", table.warehouse, table.path, table.ref)
