"""Trino's operations as plans: which checks an operation needs, and which answers no engine makes.

Owns every rule of an operation. Must not know HTTP or JSON: the surface hands over names and receives an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Final

import msgspec

from pdp.decision.plan import AllOf, Node, PlanContext, split
from pdp.errors import InvalidReference
from pdp.model.checks import Check, Resource, Siblings
from pdp.model.vocabulary import (
    METADATA_TABLES,
    SYSTEM_CATALOG,
    SYSTEM_READS,
    SYSTEM_TABLES,
    TABLE_PROCEDURES,
    TRINO_OPERATIONS,
    TRINO_PREFIX,
    OperationStep,
    TrinoOperation,
)
from pdp.trino.ambiguity import is_ambiguous_schema
from pdp.trino.names import Names, base_table, suffix_of
from pdp.trino.tables import (
    AMBIGUOUS,
    OF_SCHEMAS,
    TABLES,
    ambiguity,
    is_metadata_table,
    names_metadata_tables,
)

ADMIN: Final = "config:trino.admin_users"
_SELECTS = frozenset({"SelectFromColumns", "CreateViewWithSelectFromColumns"})


def plan_operation(asker: PlanContext, check: Check) -> Node | None:
    """The tree of a `trino:` action; None for every other action."""
    if not check.action.startswith(TRINO_PREFIX):
        return None
    operation = TRINO_OPERATIONS.get(check.action.removeprefix(TRINO_PREFIX))
    if operation is None:
        return asker.fixed(False, "unknown_action", check.action, check.resources)
    if operation.delegated:
        asker = msgspec.structs.replace(asker, delegated=True)
    if names_metadata_tables(check.resources):
        return split(
            check.resources,
            is_metadata_table,
            lambda is_one, some: _planned(asker, _about(check, some, is_one), operation),
        )
    return _planned(asker, check, operation)


def _planned(asker: PlanContext, check: Check, operation: TrinoOperation) -> Node:
    asked = _Operation(asker, check, operation)
    if check.resources[0].type not in _types(operation):
        return asked.unknown()
    if check.resources[0].type in OF_SCHEMAS and (is_ambiguous := ambiguity(asker, check.resources)):
        return split(
            check.resources,
            is_ambiguous,
            lambda denied, some: asked.fixed(False, AMBIGUOUS, some) if denied else asked.about(some).planned(),
        )
    if isinstance(check.resources, Siblings) or check.resources[0].type not in _PARTS:
        return asked.planned()
    return split(
        check.resources,
        _is_whole,
        lambda whole, some: asked.about(some).planned() if whole else asked.unknown(some),
    )


def _about(check: Check, tables: Sequence[Resource], is_metadata: bool) -> Check:
    if is_metadata:
        tables = [msgspec.structs.replace(table, type="metadata_table") for table in tables]
    return msgspec.structs.replace(check, resources=tables)


def _types(operation: TrinoOperation) -> frozenset[str]:
    """The types of resources that an operation can be about."""
    return _RULE_TYPES.get(operation.rule) or _STEP_TYPES[operation.steps[0].on] | _PLACES.keys()


def _is_whole(resource: Resource) -> bool:
    """Whether a resource has the parts that Trino's names have; a native request could leave some out."""
    least, most = _PARTS[resource.type]
    return least <= len(resource.path) <= most


class _Operation:
    """One operation on resources of one type, as somebody."""

    def __init__(self, asker: PlanContext, check: Check, operation: TrinoOperation) -> None:
        self.asker = asker
        self.trino = asker.bundle.trino
        self.action = check.action
        self.name = check.action.removeprefix(TRINO_PREFIX)
        self.resources = check.resources
        self.operation = operation
        self.user = self._bare(asker.principal.name)
        self.admin = asker.principal.type == "user" and self.user in self.trino.admin_users

    def about(self, resources: Sequence[Resource]) -> _Operation:
        """The same operation on some of its resources."""
        part = copy(self)
        part.resources = resources
        return part

    def planned(self) -> Node:
        """The tree, by the operation's rule or by where the resources are."""
        return _RULES[self.operation.rule](self) if self.operation.rule else self.placed()

    def placed(self) -> Node:
        """The tree of an operation that needs checks, by where the resources are."""
        return _PLACES.get(self.resources[0].type, _Operation.steps)(self)

    def fixed(self, allowed: bool, by: str, resources: Sequence[Resource] | None = None) -> Node:
        return self.asker.fixed(allowed, by, self.action, resources or self.resources)

    def steps(self, resources: Sequence[Resource] | None = None) -> Node:
        """The checks that the operation needs on objects of a warehouse."""
        parts = tuple(self._step(step, resources or self.resources) for step in self.operation.steps)
        return parts[0] if len(parts) == 1 else AllOf(parts)

    def unmanaged(self) -> Node:
        """A catalog that no warehouse stands behind."""
        if self.name in ("CreateCatalog", "DropCatalog"):
            return self.fixed(self.admin, ADMIN)
        return self.fixed(self.trino.unmanaged_catalogs == "allow", "config:trino.unmanaged_catalogs")

    def system_catalog(self) -> Node:
        """Trino's own catalog: its metadata is open, the rest is the administrators'."""
        if self.admin:
            return self.fixed(True, ADMIN)
        if self.name not in SYSTEM_READS:
            return self.fixed(False, "rule:system_catalog")
        return split(self.resources, _is_open, lambda open, some: self.fixed(open, "rule:system_catalog", some))

    def system_schema(self) -> Node:
        """`information_schema` and kin of a mapped catalog: who may use the warehouse sees what it lists."""
        if self.name not in SYSTEM_READS:
            return self.fixed(False, "rule:system_schema")
        return split(self.resources, _is_listed, self._system_schema)

    def metadata_table(self) -> Node:
        """`t$snapshots` and kin, about t; `t$files` and kin show values of t."""
        return split(self.resources, lambda resource: suffix_of(resource.path[-1]), self._metadata_table)

    def table_procedure(self) -> Node:
        """ALTER TABLE ... EXECUTE: the known procedures write."""
        return split(
            self.resources,
            lambda table: str(table.arguments.given.get("procedure", "")).upper() in TABLE_PROCEDURES,
            lambda known, some: (
                self.about(some).placed() if known else self.fixed(False, "rule:unknown_procedure", some)
            ),
        )

    def whole_table(self) -> Node:
        """What would empty or change what somebody sees only in part."""
        if self.resources[0].type not in TABLES:
            return self.placed()
        return self.asker.unless_restricted(self.resources, self.action, lambda some: self.about(some).placed())

    def rename(self) -> Node:
        """A rename stays where it is: within warehouses, or outside of them."""
        within = self.resources[0].type
        return split(
            self.resources,
            lambda resource: _ends_alike(within, resource.arguments.destination),
            lambda alike, some: self.about(some).placed() if alike else self.fixed(False, "rule:rename_target", some),
        )

    def procedure(self) -> Node:
        """CALL: administrators, and what the configuration lists."""
        listed = set(self.trino.procedures.allow)
        if self.admin:
            return self.fixed(True, ADMIN)
        return split(
            self.resources, _full_name, lambda name, some: self.fixed(name in listed, "config:trino.procedures", some)
        )

    def function(self) -> Node:
        """Functions: those of a mapped catalog belong to their schema."""
        listed = set(self.trino.functions.allow)
        names = Names(self.trino, self.asker.bundle.warehouses)
        return split(
            self.resources,
            lambda function: (function.warehouse, function.path[0], _full_name(function) in listed),
            partial(self._function, names),
        )

    def execute_query(self) -> Node:
        """Running a query at all."""
        listed = self.trino.execute_query.allow
        named = self.asker.principal.type == "user"
        return self.fixed(named and ("*" in listed or self.user in listed), "config:trino.execute_query")

    def administrative(self) -> Node:
        """What administrators alone may do."""
        return self.fixed(self.admin, ADMIN)

    def own_query(self) -> Node:
        """Queries belong to the user who started them."""
        if self.admin:
            return self.fixed(True, ADMIN)
        me = self.asker.principal
        return split(
            self.resources,
            lambda owner: me.type == "user" and owner.name == me.name,
            lambda own, some: self.fixed(own, "rule:own_query", some),
        )

    def impersonation(self) -> Node:
        """Becoming another user."""
        allowed = self.trino.impersonation.get(self.user, ()) if self.asker.principal.type == "user" else ()
        return split(
            self.resources,
            lambda user: self._bare(user.name) in allowed,
            lambda may, some: self.fixed(may, "config:trino.impersonation", some),
        )

    def session_property(self) -> Node:
        """SET SESSION."""
        denied = set(self.trino.session_properties.deny)
        return split(
            self.resources,
            lambda item: (
                ".".join(item.path if item.warehouse == "system" else (item.warehouse, *item.path)) not in denied
            ),
            lambda may, some: self.fixed(may, "config:trino.session_properties", some),
        )

    def unknown(self, resources: Sequence[Resource] | None = None) -> Node:
        """What no engine and no rule judges; row filters and masks are answers of their own, never a verdict."""
        return self.fixed(False, "unknown_action", resources)

    def _bare(self, name: str) -> str:
        """A user as Trino names it; empty for a user of another provider."""
        prefix = self.trino.user_prefix
        return name.removeprefix(prefix) if name.startswith(prefix) else ""

    def _step(self, step: OperationStep, resources: Sequence[Resource]) -> Node:
        asker = self.asker.with_actions(step.also) if step.also else self.asker
        if step.on == "parent":
            return asker.in_parent(step.action, resources)
        type = resources[0].type if step.on == "given" else step.on
        return asker.concrete(
            "select" if (type, step.action) == ("view", "read_data") else step.action, resources, type
        )

    def _system_schema(self, listed: bool, resources: Sequence[Resource]) -> Node:
        if not listed:
            return self.fixed(False, "rule:system_schema", resources)
        warehouses = [Resource("warehouse", resource.warehouse, ref=resource.ref) for resource in resources]
        return self.asker.leaf("warehouse", "get_config", warehouses)

    def _metadata_table(self, suffix: str, resources: Sequence[Resource]) -> Node:
        if suffix not in METADATA_TABLES:
            return self.steps([msgspec.structs.replace(resource, type="table_or_view") for resource in resources])
        if self.name not in SYSTEM_READS:
            return self.fixed(False, "rule:metadata_table", resources)
        if self.name not in _SELECTS:
            return self._about_base(self.operation.steps[0].action, resources)
        if METADATA_TABLES[suffix] != "read_data":
            return self._about_base(METADATA_TABLES[suffix], resources)
        tables = [base_table(resource) for resource in resources]
        return self.asker.unless_restricted(
            tables, self.action, lambda some: self.asker.leaf("table", "read_data", some)
        )

    def _about_base(self, action: str, resources: Sequence[Resource]) -> Node:
        return self.asker.leaf("table", action, [base_table(resource) for resource in resources])

    def _function(self, names: Names, place: tuple[str, str, bool], resources: Sequence[Resource]) -> Node:
        catalog, schema, listed = place
        changes = self.name in ("CreateFunction", "DropFunction")
        if not changes and catalog in self.trino.functions.builtin_catalogs:
            return self.fixed(True, "config:trino.functions.builtin_catalogs", resources)
        try:
            within = names.schema(catalog, schema)
        except InvalidReference:
            return self.unknown(resources)
        if within.type == "namespace" and is_ambiguous_schema(self.asker.facts, within.warehouse, within.path):
            return self.fixed(False, AMBIGUOUS, resources)
        if within.type == "namespace":
            step = self.operation.steps[0]
            return self._step(step._replace(on="given"), [within] * len(resources))
        if within.type == "catalog":
            return self.fixed(self.trino.unmanaged_catalogs == "allow", "config:trino.unmanaged_catalogs", resources)
        return self.fixed(listed and not changes, "config:trino.functions.allow", resources)


_PLACES: Final[Mapping[str, Callable[[_Operation], Node]]] = {
    "catalog": _Operation.unmanaged,
    "system_catalog": _Operation.system_catalog,
    "system_schema": _Operation.system_schema,
    "metadata_table": _Operation.metadata_table,
}
_STEP_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "given": TABLES | {"namespace", "warehouse"},
    "table": TABLES,
    "view": TABLES,
    "namespace": frozenset({"namespace"}),
    "parent": TABLES | {"namespace"},
}
"""What a step is about -> the types that may be named for it."""
_RULE_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "function": frozenset({"function"}),
    "procedure": frozenset({"function"}),
    "execute_query": frozenset({"server"}),
    "admin": frozenset({"server"}),
    "own_query": frozenset({"user"}),
    "impersonation": frozenset({"user"}),
    "session_property": frozenset({"session_property"}),
    "filter": frozenset({"table_or_view"}),
}
"""Rule -> the types that may be named for it; a rule that is not here follows the operation's steps."""
_PARTS: Final[Mapping[str, tuple[int, int]]] = {
    "function": (2, 2),
    "session_property": (1, 1),
    "system_schema": (1, 2),
    "system_catalog": (0, 2),
    "metadata_table": (1, 64),
}
"""Type -> how many parts a name of Trino has below its catalog, at least and at most."""
_RULES: Final[Mapping[str, Callable[[_Operation], Node]]] = {
    "table_procedure": _Operation.table_procedure,
    "rename": _Operation.rename,
    "whole_table": _Operation.whole_table,
    "procedure": _Operation.procedure,
    "function": _Operation.function,
    "execute_query": _Operation.execute_query,
    "admin": _Operation.administrative,
    "own_query": _Operation.own_query,
    "impersonation": _Operation.impersonation,
    "session_property": _Operation.session_property,
    "filter": _Operation.unknown,
}


def _is_open(resource: Resource) -> bool:
    """Whether something of the `system` catalog is open to everyone: the catalog, a schema, a table."""
    if not resource.path:
        return True
    schema, *table = resource.path
    tables = SYSTEM_CATALOG.get(schema, frozenset())
    return schema in SYSTEM_CATALOG and (not table or tables is None or table[0] in tables)


def _is_listed(resource: Resource) -> bool:
    schema, *table = resource.path
    return schema in SYSTEM_TABLES and (not table or table[0] in SYSTEM_TABLES[schema])


def _full_name(function: Resource) -> str:
    return ".".join((function.warehouse, *function.path))


def _ends_alike(source: str, destination: Resource | None) -> bool:
    """Whether a rename ends in the kind of place where it began."""
    if destination is None:
        return False
    in_warehouse = TABLES | {"namespace", "metadata_table"}
    return (source in in_warehouse) == (destination.type in in_warehouse - {"metadata_table"})
