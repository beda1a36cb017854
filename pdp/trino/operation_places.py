"""Plans by the place of the resources: warehouses, unmanaged and system catalogs, system schemas, metadata tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from pdp.decision.plan import Node, split
from pdp.model.question import Resource
from pdp.model.trino_operations import METADATA_TABLES, SYSTEM_CATALOG, SYSTEM_TABLES
from pdp.trino.names import base_table, suffix_of
from pdp.trino.operation_planner import OperationPlanner

ADMIN: Final = "config:trino.admin_users"
"""The reason of decisions on administrators."""
UNMANAGED: Final = "config:trino.unmanaged_catalogs"
"""The reason of decisions in catalogs without a warehouse."""
_SYSTEM_CATALOG: Final = "rule:system_catalog"
_SYSTEM_SCHEMA: Final = "rule:system_schema"
_SELECTS: Final = frozenset({"SelectFromColumns", "CreateViewWithSelectFromColumns"})


def plan_by_place(planner: OperationPlanner) -> Node:
    """Return the plan of an operation with checks: the steps in a warehouse, fixed rules elsewhere."""
    plan_place = PLACES.get(planner.resources[0].type)
    return plan_place(planner) if plan_place else planner.plan_steps()


def _unmanaged_catalog(planner: OperationPlanner) -> Node:
    return planner.fixed(planner.trino.unmanaged_catalogs == "allow", UNMANAGED)


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
    """Check `t$snapshots` and other tables about t on t itself."""
    return split(
        planner.resources, lambda table: suffix_of(table.path[-1]), partial(_metadata_table_of_suffix, planner)
    )


def _metadata_table_of_suffix(planner: OperationPlanner, suffix: str, resources: Sequence[Resource]) -> Node:
    if suffix not in METADATA_TABLES:
        return planner.plan_steps([replace(resource, type="table_or_view") for resource in resources])
    if not planner.reads:
        return planner.fixed(False, "rule:metadata_table", resources)
    context = planner.context
    tables = [base_table(resource) for resource in resources]
    if planner.name not in _SELECTS:
        return context.leaf("table", planner.operation.steps[0].action, tables)
    action = METADATA_TABLES[suffix]
    if action != "read_data":
        return context.leaf("table", action, tables)
    # `t$files` and similar show values of t, which row filters and masks of t would hide
    return context.deny_restricted(tables, planner.action, lambda part: context.leaf("table", action, part))


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
