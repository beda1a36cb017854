"""Trino's names and operations as plans: which checks an operation needs, and which answers no engine makes.

Owns the reading of catalog, schema and table names and every rule of an operation. Must not know HTTP or JSON: the
surface hands over names and receives an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Final

import msgspec

from pdp.config import Trino, Warehouse
from pdp.errors import AmbiguousName, InvalidReference
from pdp.model import Check, Principal, Resource, Siblings
from pdp.plan import AllOf, Asker, Node, split
from pdp.references import check_part
from pdp.vocabulary import (
    METADATA_TABLES,
    SYSTEM_CATALOG,
    SYSTEM_READS,
    SYSTEM_TABLES,
    TABLE_PROCEDURES,
    TRINO_OPERATIONS,
    TRINO_PREFIX,
    Step,
    TrinoOperation,
)

KEPT: Final = 4096
LONGEST_KEPT: Final = 256
"""Schemas whose names are remembered once read, and how long those names may be."""
_REFERRING: Final = "@#`"
"""Signs that Nessie's catalogs read as a reference in a table name."""
_TELLING: Final = f"{_REFERRING}$"
"""Signs of names that may not be plain tables."""
ADMIN: Final = "config:trino.admin_users"
_SELECTS = frozenset({"SelectFromColumns", "CreateViewWithSelectFromColumns"})


class Names:
    """Names as Trino spells them to resources; raises InvalidReference on an empty or unprintable part."""

    def __init__(self, trino: Trino, warehouses: Mapping[str, Warehouse]) -> None:
        self.trino = trino
        self._nessie = frozenset(name for name, warehouse in warehouses.items() if warehouse.kind == "nessie")
        self._schemas: dict[tuple[str, str], Resource] = {}

    def principal(self, user: str, groups: Sequence[str]) -> Principal:
        """The principal behind Trino's user and groups; mapped groups are roles, as rules see them and for grants."""
        roles = tuple(role for group in groups if (role := self.trino.groups.get(group)))
        return Principal("user", self.trino.user_prefix + check_part(user), roles, tuple(groups), member_of=roles)

    def user(self, name: str) -> Resource:
        """A user as the object of an operation."""
        return Resource("user", name=self.trino.user_prefix + check_part(name))

    def catalog(self, name: str) -> Resource:
        """The warehouse behind a catalog, Trino's own `system`, or a catalog that nothing stands behind."""
        mapped = self.trino.catalogs.get(name)
        if mapped:
            return Resource("warehouse", mapped.warehouse, ref=mapped.ref)
        return Resource("system_catalog" if name == "system" else "catalog", check_part(name))

    def schema(self, catalog: str, schema: str) -> Resource:
        """The namespace behind a schema: `a.b` is [a, b]."""
        known = self._schemas.get((catalog, schema))
        if known is None:
            known = self._schema(self.catalog(catalog), schema)
            if len(self._schemas) < KEPT and len(catalog) + len(schema) <= LONGEST_KEPT:
                self._schemas[catalog, schema] = known
        return known

    def table(self, catalog: str, schema: str, table: str) -> Resource:
        """The table or view of a name; `t$files` and its kin are tables about t."""
        within = self.schema(catalog, schema)
        if (
            within.warehouse in self._nessie
            and within.type == "namespace"
            and any(sign in table for sign in _REFERRING)
        ):
            raise AmbiguousName(f"`{table}` may be a table reference of Nessie's")
        type = "table_or_view"
        if within.type != "namespace":
            type = within.type
        elif _suffix(table) in METADATA_TABLES:
            type = "metadata_table"
        return Resource(type, within.warehouse, (*within.path, check_part(table)), within.ref)

    def tables(self, catalog: str, schema: str, names: Sequence[str]) -> Siblings | None:
        """Many tables of one schema, the names of which are printable; None where they are not plain tables."""
        within = self.schema(catalog, schema)
        joined = "\n".join(names)
        if within.type != "namespace" or not all(names) or any(sign in joined for sign in _TELLING):
            return None
        return Siblings(Resource("table_or_view", within.warehouse, within.path, within.ref), names)

    def function(self, catalog: str, schema: str, name: str) -> Resource:
        """A function or procedure, by its Trino name."""
        return Resource("function", check_part(catalog), (check_part(schema), check_part(name)))

    def session_property(self, catalog: str, name: str) -> Resource:
        """A session property; `catalog` is empty for a system property."""
        return Resource("session_property", catalog or "system", (check_part(name),))

    def _schema(self, catalog: Resource, schema: str) -> Resource:
        if catalog.type != "warehouse":
            return Resource(catalog.type, catalog.warehouse, (check_part(schema),))
        if schema in SYSTEM_TABLES:
            return Resource("system_schema", catalog.warehouse, (schema,), catalog.ref)
        return Resource("namespace", catalog.warehouse, tuple(map(check_part, schema.split("."))), catalog.ref)


def plan_operation(asker: Asker, check: Check) -> Node | None:
    """The tree of a `trino:` action; None for every other action."""
    if not check.action.startswith(TRINO_PREFIX):
        return None
    operation = TRINO_OPERATIONS.get(check.action.removeprefix(TRINO_PREFIX))
    if operation is None:
        return asker.fixed(False, "unknown_action", check.action, check.resources)
    if operation.delegated:
        asker = msgspec.structs.replace(asker, delegated=True)
    asked = _Operation(asker, check, operation)
    if check.resources[0].type not in _types(operation):
        return asked.unknown()
    if isinstance(check.resources, Siblings) or check.resources[0].type not in _PARTS:
        return asked.planned()
    return split(
        check.resources,
        _is_whole,
        lambda whole, some: asked.about(some).planned() if whole else asked.unknown(some),
    )


def _types(operation: TrinoOperation) -> frozenset[str]:
    """The types of resources that an operation can be about."""
    return _RULE_TYPES.get(operation.rule) or _STEP_TYPES[operation.steps[0].on] | _PLACES.keys()


def _is_whole(resource: Resource) -> bool:
    """Whether a resource has the parts that Trino's names have; a native request could leave some out."""
    least, most = _PARTS[resource.type]
    return least <= len(resource.path) <= most


class _Operation:
    """One operation on resources of one type, as somebody."""

    def __init__(self, asker: Asker, check: Check, operation: TrinoOperation) -> None:
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
        return split(self.resources, lambda resource: _suffix(resource.path[-1]), self._metadata_table)

    def table_procedure(self) -> Node:
        """ALTER TABLE ... EXECUTE: the known procedures write."""
        return split(
            self.resources,
            lambda table: str(table.arguments.given.get("procedure", "")).upper() in TABLE_PROCEDURES,
            lambda known, some: (
                self.about(some).placed() if known else self.fixed(False, "rule:unknown_procedure", some)
            ),
        )

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
        return split(self.resources, lambda function: (function.warehouse, *function.path), self._function)

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

    def _step(self, step: Step, resources: Sequence[Resource]) -> Node:
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
        action = METADATA_TABLES[suffix] if self.name in _SELECTS else self.operation.steps[0].action
        return self.asker.leaf("table", action, [_base_table(resource) for resource in resources])

    def _function(self, name: tuple[str, ...], resources: Sequence[Resource]) -> Node:
        catalog, schema, _ = name
        changes = self.name in ("CreateFunction", "DropFunction")
        if not changes and catalog in self.trino.functions.builtin_catalogs:
            return self.fixed(True, "config:trino.functions.builtin_catalogs", resources)
        if not changes and ".".join(name) in self.trino.functions.allow:
            return self.fixed(True, "config:trino.functions.allow", resources)
        try:
            within = Names(self.trino, self.asker.bundle.warehouses).schema(catalog, schema)
        except InvalidReference:
            return self.unknown(resources)
        if within.type == "namespace":
            step = self.operation.steps[0]
            return self._step(step._replace(on="given"), [within] * len(resources))
        if within.type == "catalog":
            return self.fixed(self.trino.unmanaged_catalogs == "allow", "config:trino.unmanaged_catalogs", resources)
        return self.fixed(False, "config:trino.functions.allow", resources)


_PLACES: Final[Mapping[str, Callable[[_Operation], Node]]] = {
    "catalog": _Operation.unmanaged,
    "system_catalog": _Operation.system_catalog,
    "system_schema": _Operation.system_schema,
    "metadata_table": _Operation.metadata_table,
}
_TABLES: Final = frozenset({"table_or_view", "table", "view"})
_STEP_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "given": _TABLES | {"namespace", "warehouse"},
    "table": _TABLES,
    "view": _TABLES,
    "namespace": frozenset({"namespace"}),
    "parent": _TABLES | {"namespace"},
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


def _suffix(table: str) -> str:
    """What stands behind the last `$`, where something stands before it."""
    base, _, suffix = table.rpartition("$")
    return suffix if base else ""


def _ends_alike(source: str, destination: Resource | None) -> bool:
    """Whether a rename ends in the kind of place where it began."""
    if destination is None:
        return False
    in_warehouse = _TABLES | {"namespace", "metadata_table"}
    return (source in in_warehouse) == (destination.type in in_warehouse - {"metadata_table"})


def _base_table(resource: Resource) -> Resource:
    *schema, table = resource.path
    return msgspec.structs.replace(resource, type="table", path=(*schema, table.rpartition("$")[0]))
