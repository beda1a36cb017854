"""Plans of Trino's operations: entry point, valid resource types, ambiguous names.

Must not know HTTP or JSON. `operation_places` and `operation_rules` hold the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Final

from msgspec.structs import replace

from pdp.decision.plan import Node, PlanContext, split
from pdp.facts.snapshot import Facts
from pdp.model.columns import PathColumn
from pdp.model.question import Check, Resource
from pdp.model.trino_operations import TRINO_OPERATIONS, TRINO_PREFIX, TrinoOperation
from pdp.trino.operation_places import PLACES, plan_by_place
from pdp.trino.operation_planner import OperationPlanner
from pdp.trino.operation_rules import RULES
from pdp.trino.tables import (
    AMBIGUOUS_NAME,
    SCHEMA_TYPES,
    TABLE_TYPES,
    has_ambiguous_names,
    has_metadata_tables,
    has_plain_name,
    is_ambiguous_name,
    is_metadata_table,
)

_STEP_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "given": TABLE_TYPES | {"namespace", "warehouse"},
    "table": TABLE_TYPES,
    "view": TABLE_TYPES,
    "namespace": frozenset({"namespace"}),
    "parent": TABLE_TYPES | {"namespace"},
}
"""Target of an operation's first step -> resource types that a request may name."""
_RULE_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "catalog": frozenset({"warehouse", "catalog", "system_catalog"}),
    "function": frozenset({"function"}),
    "procedure": frozenset({"function"}),
    "execute_query": frozenset({"server"}),
    "admin": frozenset({"server"}),
    "own_query": frozenset({"user"}),
    "impersonation": frozenset({"user"}),
    "session_property": frozenset({"session_property"}),
    "filter": frozenset({"table_or_view"}),
}
"""Rule -> resource types that a request may name. For other rules, the operation's first step says the types."""
_PART_COUNTS: Final[Mapping[str, tuple[int, int]]] = {
    "function": (2, 2),
    "session_property": (1, 1),
    "system_schema": (1, 2),
    "system_catalog": (0, 2),
    "metadata_table": (1, 64),
}
"""Type -> least and most parts of a Trino name below its catalog."""


def plan_operation(context: PlanContext, check: Check) -> Node | None:
    """Return the plan of a `trino:` action; None for every other action."""
    if not check.action.startswith(TRINO_PREFIX):
        return None
    operation = TRINO_OPERATIONS.get(check.action.removeprefix(TRINO_PREFIX))
    if operation is None:
        return context.fixed(False, "unknown_action", check.action, check.resources)
    if operation.delegated:
        context = replace(context, delegated=True)
    if has_metadata_tables(check.resources):
        return split(
            check.resources,
            is_metadata_table,
            lambda metadata, tables: _plan(context, _with_tables(check, tables, metadata), operation),
        )
    return _plan(context, check, operation)


def has_plain_names(check: Check, facts: Facts) -> bool:
    """Tell whether no name of a check of an operation is ambiguous or the name of a metadata table."""
    if not check.action.startswith(TRINO_PREFIX):
        return True
    resources = check.resources
    if type(resources) is PathColumn:
        return not has_ambiguous_names(facts, resources)
    if len(resources) == 1:
        return has_plain_name(facts, resources[0])
    return not (has_metadata_tables(resources) or has_ambiguous_names(facts, resources))


def _plan(context: PlanContext, check: Check, operation: TrinoOperation) -> Node:
    """Return the plan for resources of one type: deny wrong types, ambiguous names and incomplete names."""
    planner = OperationPlanner(context, check, operation)
    resources = check.resources
    kind = resources[0].type
    if kind not in _valid_types(operation):
        return planner.unknown()
    if kind in SCHEMA_TYPES and has_ambiguous_names(context.facts, resources):
        is_ambiguous = partial(is_ambiguous_name, context.facts)
        return split(
            resources,
            is_ambiguous,
            lambda ambiguous, part: (
                planner.fixed(False, AMBIGUOUS_NAME, part) if ambiguous else _plan_rule(planner.with_resources(part))
            ),
        )
    if type(resources) is PathColumn or kind not in _PART_COUNTS:
        return _plan_rule(planner)
    return split(
        resources,
        _is_complete,
        lambda complete, part: _plan_rule(planner.with_resources(part)) if complete else planner.unknown(part),
    )


def _plan_rule(planner: OperationPlanner) -> Node:
    rule = planner.operation.rule
    return RULES[rule](planner) if rule else plan_by_place(planner)


def _with_tables(check: Check, tables: Sequence[Resource], metadata: bool) -> Check:
    if metadata:
        tables = [replace(table, type="metadata_table") for table in tables]
    return replace(check, resources=tables)


@cache
def _valid_types(operation: TrinoOperation) -> frozenset[str]:
    return _RULE_TYPES.get(operation.rule) or _STEP_TYPES[operation.steps[0].on] | PLACES.keys()


def _is_complete(resource: Resource) -> bool:
    """Tell whether a resource has all parts of a Trino name. A request of the native API may omit parts."""
    least, most = _PART_COUNTS[resource.type]
    return least <= len(resource.path) <= most
