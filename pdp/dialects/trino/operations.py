"""Plans of Trino's operations: entry point, valid resource types, and the operations with a rule of their own.

`operation_planner.py` has the parts of plans. Must not know HTTP or JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final

from msgspec.structs import replace

from pdp.decision.plan import AllOf, Node, PlanContext, split, without_need
from pdp.dialects.trino.known_objects import (
    has_other_type,
    is_metadata_table,
    typed_by_name,
)
from pdp.dialects.trino.names import Names, are_lowered, in_lower_case
from pdp.dialects.trino.operation_planner import (
    ADMIN,
    PLACES,
    UNKNOWN_OBJECT,
    UNMANAGED,
    OperationPlanner,
    plan_by_place,
    plan_creation,
    plan_spelled,
)
from pdp.dialects.trino.schema_plans import plan_with_content
from pdp.dialects.trino.spelling import SCHEMA_TYPES, TABLE_TYPES
from pdp.errors import InvalidReference
from pdp.model.answer import Reason
from pdp.model.arrays import PathArray
from pdp.model.question import Check, Resource
from pdp.model.trino_operations import (
    MAINTENANCE,
    TAKEN_WITH,
    TRINO_OPERATIONS,
    TRINO_PREFIX,
    TrinoOperation,
)

PROCEDURES: Final = "config:trino.procedures"
"""The reason of decisions on procedures."""
_IMPERSONATION: Final = "config:trino.impersonation"
_VIEW_OWNER: Final = "rule:view_owner"
_WAREHOUSE_TYPES: Final = TABLE_TYPES | {"namespace"}
"""Types of what a rename may move within a warehouse."""


def _table_procedure(planner: OperationPlanner) -> Node:
    """Check ALTER ... EXECUTE as a write; deny procedures that neither maintain a table nor are configured.

    Materialized views have those of maintenance alone.
    """
    allowed = {name.upper() for name in planner.trino.procedures.allow}

    def of(kind: str, part: Sequence[Resource]) -> Node:
        if not kind:
            return planner.fixed(False, PROCEDURES, part)
        return plan_by_place(planner.with_resources(part if kind == "maintenance" else list(map(_as_table, part))))

    def kind_of(table: Resource) -> str:
        name = str(table.arguments.given.get("procedure", "")).upper()
        return "maintenance" if name in MAINTENANCE else "listed" if name in allowed else ""

    return split(planner.resources, kind_of, of)


def _as_table(resource: Resource) -> Resource:
    return replace(resource, type="table") if resource.type in TABLE_TYPES else resource


def _view_owner(planner: OperationPlanner) -> Node:
    """Deny a new owner of a view whom the principal may not impersonate. The view then runs as the new owner.

    A forbid of the impersonation of another user denies, too.
    """
    return planner.context.deny_where(
        partial(_reason_against_owner, planner),
        planner.resources,
        planner.action,
        lambda part: split(part, _new_owner, partial(_view_of_owner, planner)),
    )


def _view_of_owner(planner: OperationPlanner, owner: str, views: Sequence[Resource]) -> Node:
    node = plan_by_place(planner.with_resources(views))
    if owner == planner.user:
        return node
    user = Resource("user", name=planner.trino.user_prefix + owner)
    become = planner.context.permitted(_IMPERSONATION, f"{TRINO_PREFIX}ImpersonateUser", [user] * len(views))
    return AllOf((node, become), named=False)


def _new_owner(view: Resource) -> str:
    """Return the name of the grantee of a request; empty without one."""
    owner = view.arguments.given.get("grantee")
    is_user = isinstance(owner, Mapping) and str(owner.get("type")).upper() == "USER"
    return str(owner.get("name") or "") if isinstance(owner, Mapping) and is_user else ""


def _reason_against_owner(planner: OperationPlanner, view: Resource) -> Reason | None:
    """Return the reason against the grantee of a request; None for the principal, or a user from its list."""
    owner = view.arguments.given.get("grantee")
    if not isinstance(owner, Mapping) or str(owner.get("type")).upper() != "USER":
        return _VIEW_OWNER
    name = _new_owner(view)
    is_listed = name in planner.impersonated or (planner.is_user and bool(name) and name == planner.user)
    return None if is_listed else _IMPERSONATION


def _whole_table(planner: OperationPlanner) -> Node:
    """Deny an operation on a whole table if rows or columns are hidden from the principal."""
    if planner.resources[0].type not in TABLE_TYPES:
        return plan_by_place(planner)
    return planner.context.deny_restricted(
        planner.resources, planner.action, lambda part: plan_by_place(planner.with_resources(part))
    )


def _refresh(planner: OperationPlanner) -> Node:
    """Deny the refresh of a materialized view where the rows would go around row policies."""
    reason = planner.reason_against_stored_rows() if planner.resources[0].type in TABLE_TYPES else None
    return planner.fixed(False, reason) if reason else plan_by_place(planner)


def _rename(planner: OperationPlanner) -> Node:
    """Deny a rename from a warehouse to any other place, or back."""
    source_type = planner.resources[0].type
    return split(
        planner.resources,
        lambda resource: _has_similar_target(source_type, resource.arguments.destination),
        lambda similar, part: (
            plan_with_content(planner.with_resources(part))
            if similar
            else planner.fixed(False, "rule:rename_target", part)
        ),
    )


def _has_similar_target(source_type: str, destination: Resource | None) -> bool:
    """Tell whether both ends of a rename are in warehouses, or neither is. A metadata table is no target in one."""
    if destination is None:
        return False
    return (source_type in _WAREHOUSE_TYPES | {"metadata_table"}) == (destination.type in _WAREHOUSE_TYPES)


def _procedure(planner: OperationPlanner) -> Node:
    """Allow CALL to administrators, and the configured procedures to every user."""
    allowed = set(planner.trino.procedures.allow)
    if planner.is_admin:
        return planner.fixed(True, ADMIN)
    return split(
        planner.resources,
        _full_name,
        lambda name, part: planner.fixed(name in allowed, PROCEDURES, part),
    )


def _function(planner: OperationPlanner) -> Node:
    """Check functions of a mapped catalog on their schema, other functions by the configuration."""
    allowed = set(planner.trino.functions.allow)
    names = Names(planner.trino, planner.context.bundle.warehouses)
    return split(
        planner.resources,
        lambda function: (function.warehouse, function.path[0], _full_name(function) in allowed),
        partial(_functions_of_schema, planner, names),
    )


def _functions_of_schema(
    planner: OperationPlanner, names: Names, place: tuple[str, str, bool], resources: Sequence[Resource]
) -> Node:
    """Plan functions of one schema. `place` is catalog, schema, and whether the configuration lists the functions."""
    catalog, schema, listed = place
    changes = planner.name in ("CreateFunction", "DropFunction")
    if not changes and catalog in planner.trino.functions.builtin_catalogs:
        return planner.fixed(True, "config:trino.functions.builtin_catalogs", resources)
    try:
        parent = names.schema(catalog, schema)
    except InvalidReference:
        return planner.unknown(resources)
    if parent.type == "namespace":
        schemas = planner.with_resources([parent] * len(resources))
        return plan_spelled(schemas, _plan_in_schema)
    if parent.type == "catalog":
        found = planner.fixed(planner.trino.unmanaged_catalogs == "allow", UNMANAGED, resources)
        more = planner.forbidden_with(TAKEN_WITH.get(planner.name, ()), UNMANAGED, resources)
        return AllOf((found, *more), named=False) if more else found
    return planner.fixed(listed and not changes, "config:trino.functions.allow", resources)


def _plan_in_schema(planner: OperationPlanner) -> Node:
    """Check functions on their schema. CREATE may replace, so forbids of what it takes away bind, too."""
    may_forbid = planner.context.bundle.may_forbid(planner.resources[0].warehouse, "update_properties", "namespace")
    own, *taken = [
        planner.plan_step(TRINO_OPERATIONS[name].steps[0]._replace(on="given"), planner.resources)
        for name in (planner.name, *(TAKEN_WITH.get(planner.name, ()) if may_forbid else ()))
    ]
    return AllOf((own, *(without_need(node, UNKNOWN_OBJECT) for node in taken)), named=False) if taken else own


def _execute_query(planner: OperationPlanner) -> Node:
    allowed = planner.trino.execute_query.allow
    permitted = planner.is_user and ("*" in allowed or planner.user in allowed)
    return planner.fixed(permitted, "config:trino.execute_query")


def _administrative(planner: OperationPlanner) -> Node:
    return planner.fixed(planner.is_admin, ADMIN)


def _own_query(planner: OperationPlanner) -> Node:
    """Allow operations on a query to administrators and to the query's own user."""
    if planner.is_admin:
        return planner.fixed(True, ADMIN)
    name = planner.context.principal.name
    return split(
        planner.resources,
        lambda owner: planner.is_user and owner.name == name,
        lambda own, part: planner.fixed(own, "rule:own_query", part),
    )


def _impersonation(planner: OperationPlanner) -> Node:
    """Allow a user to become another user from the configured list."""
    return split(
        planner.resources,
        lambda user: planner.trino_name(user.name) in planner.impersonated,
        lambda listed, part: planner.fixed(listed, _IMPERSONATION, part),
    )


def _session_property(planner: OperationPlanner) -> Node:
    """Allow SET SESSION, except for the denied properties of the configuration."""
    denied = {name.casefold() for name in planner.trino.session_properties.deny}  # Trino lowers these names, too
    return split(
        planner.resources,
        lambda property: _property_name(property).casefold() not in denied,
        lambda permitted, part: planner.fixed(permitted, "config:trino.session_properties", part),
    )


def _property_name(property: Resource) -> str:
    """Return the name as the configuration spells the name: the catalog in front, unless the property is Trino's."""
    return ".".join(property.path if property.warehouse == "system" else (property.warehouse, *property.path))


def _full_name(function: Resource) -> str:
    return ".".join((function.warehouse, *function.path))


RULES: Final[Mapping[str, Callable[[OperationPlanner], Node]]] = {
    "catalog": _administrative,
    "content": plan_with_content,
    "creation": plan_creation,
    "table_procedure": _table_procedure,
    "view_owner": _view_owner,
    "rename": _rename,
    "whole_table": _whole_table,
    "refresh": _refresh,
    "procedure": _procedure,
    "function": _function,
    "execute_query": _execute_query,
    "admin": _administrative,
    "own_query": _own_query,
    "impersonation": _impersonation,
    "session_property": _session_property,
    "filter": OperationPlanner.unknown,
}
"""Rule -> its plan. Row filters and masks have endpoints of their own, so `filter` is no verdict."""


_STEP_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "given": TABLE_TYPES | {"namespace", "warehouse"},
    "table": TABLE_TYPES,
    "view": TABLE_TYPES,
    "table_or_view": TABLE_TYPES,
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
    if not check.question.action.startswith(TRINO_PREFIX):
        return None
    operation = TRINO_OPERATIONS.get(check.question.action.removeprefix(TRINO_PREFIX))
    if operation is None:
        return context.denied("unknown_action", check.question.action, check.resources)
    if operation.delegated:
        context = context.asking(delegated=True)
    if has_other_type(check.resources):
        return split(
            check.resources,
            is_metadata_table,
            lambda _, tables: _plan(context, replace(check, resources=list(map(typed_by_name, tables))), operation),
        )
    return _plan(context, check, operation)


def _plan(context: PlanContext, check: Check, operation: TrinoOperation) -> Node:
    """Return the plan for resources of one type: deny wrong types, ambiguous names and incomplete names."""
    if are_lowered(check.resources):
        check = replace(check, resources=list(map(in_lower_case, check.resources)))
    planner = OperationPlanner(context, check, operation)
    resources = check.resources
    kind = resources[0].type
    if kind not in _valid_types(operation):
        return planner.unknown()
    if kind in SCHEMA_TYPES and not planner.spelling.are_own(resources):
        return plan_spelled(planner, _plan_complete)
    return _plan_complete(planner)


def _plan_complete(planner: OperationPlanner) -> Node:
    """Return the plan for resources of one type under their own names; deny incomplete names."""
    resources = planner.resources
    if type(resources) is PathArray or resources[0].type not in _PART_COUNTS:
        return _plan_rule(planner)
    return split(
        resources,
        _is_complete,
        lambda complete, part: _plan_rule(planner.with_resources(part)) if complete else planner.unknown(part),
    )


def _plan_rule(planner: OperationPlanner) -> Node:
    rule = planner.operation.rule
    return RULES[rule](planner) if rule else plan_by_place(planner)


@cache
def _valid_types(operation: TrinoOperation) -> frozenset[str]:
    return _RULE_TYPES.get(operation.rule) or _STEP_TYPES[operation.steps[0].on] | PLACES.keys()


def _is_complete(resource: Resource) -> bool:
    """Tell whether a resource has all parts of a Trino name. A request of the native API may omit parts."""
    least, most = _PART_COUNTS[resource.type]
    return least <= len(resource.path) <= most
