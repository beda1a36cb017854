"""Names of Trino as resources: catalogs, schemas, tables, users, functions, session properties.

Owns case, dots and `$` suffixes in names. Must not know operations, HTTP or JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pdp.config.warehouses import TrinoSettings, WarehouseSettings
from pdp.engines.known_names import may_be_table_reference
from pdp.errors import AmbiguousName, InvalidArgument
from pdp.model.arrays import Path, PathArray
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Principal, Resource
from pdp.model.references import MAX_NAME, MAX_PATH, MOST_PARTS, NESSIE_SIGNS, check_part, check_path
from pdp.model.trino_operations import METADATA_TABLES, SYSTEM_TABLES

_PRINCIPALS: Final = 4096
_LONGEST_PRINCIPAL: Final = 1024
"""Principals that are remembered, and characters of the user and groups of a remembered principal."""
_SCHEMAS: Final = 4096
_LONGEST_SCHEMA: Final = 256
"""Schemas that are remembered, and characters of a remembered catalog and schema name."""
_CATALOGS: Final = 16
_PATHS: Final = 1024
"""Catalogs, and schemas of each of them, with remembered paths."""
SPECIAL_SIGNS: Final = f"{NESSIE_SIGNS}$"
"""Characters of names that may not be plain tables."""


class Names:
    """Names in Trino's spelling to resources. Every method raises InvalidReference on an empty or unprintable part."""

    def __init__(self, trino: TrinoSettings, warehouses: Mapping[str, WarehouseSettings]) -> None:
        self.trino = trino
        self._nessie = frozenset(name for name, warehouse in warehouses.items() if warehouse.kind == "nessie")
        self._principals: BoundedCache[tuple[str, tuple[str, ...]], Principal] = BoundedCache(
            _PRINCIPALS, _LONGEST_PRINCIPAL
        )
        self._schemas: BoundedCache[tuple[str, str], Resource] = BoundedCache(_SCHEMAS, _LONGEST_SCHEMA)
        self._paths: BoundedCache[str, BoundedCache[str, Path]] = BoundedCache(_CATALOGS, _LONGEST_SCHEMA)
        """Catalog -> schema -> path of the namespace."""

    def principal(self, user: str, groups: Sequence[str]) -> Principal:
        """Return the principal of a user and groups. Mapped groups become roles, for rules and for grants."""
        key = (user, tuple(groups))
        principal = self._principals.get(key)
        if principal is None:
            principal = self._principals.keep(key, self._principal(*key), len(user) + sum(map(len, groups)))
        return principal

    def _principal(self, user: str, groups: tuple[str, ...]) -> Principal:
        roles = tuple(role for group in groups if (role := self.trino.groups.get(group)))
        name, unknown = self.trino.user_prefix + check_part(user), tuple(sorted(self.trino.unknown))
        return Principal("user", name, roles, groups, member_of=roles, unknown=unknown)

    def user(self, name: str) -> Resource:
        """Return a user as the resource of an operation."""
        return Resource("user", name=self.trino.user_prefix + check_part(name))

    def catalog(self, name: str) -> Resource:
        """Return the warehouse of a mapped catalog, Trino's own catalog `system`, or an unmanaged catalog."""
        mapped = self.trino.catalogs.get(name) or self.trino.catalogs.get(name := name.lower())
        if mapped:
            return Resource("warehouse", mapped.warehouse, ref=mapped.ref)
        return Resource("system_catalog" if name == "system" else "catalog", check_part(name))

    def schema(self, catalog: str, schema: str) -> Resource:
        """Return the namespace of a schema: [a, b] for the schema `a.b`."""
        resource = self._schemas.get((catalog, schema))
        if resource is None:
            resource = self._schema(self.catalog(catalog), schema)
            self._schemas.keep((catalog, schema), resource, len(catalog) + len(schema))
        return resource

    def namespaces(self, catalog: str, schemas: Collection[str]) -> dict[str, Path | None]:
        """Return the paths of the namespaces of schemas, each as `namespace` does."""
        known = self._paths.get(catalog)
        if known is None:
            known = self._paths.keep(catalog, BoundedCache(_PATHS, _LONGEST_SCHEMA), len(catalog))
        found: dict[str, Path | None] = dict(zip(schemas, map(known.get, schemas), strict=True))
        for schema in [schema for schema, path in found.items() if path is None]:
            path = found[schema] = self.namespace(catalog, schema)
            if path:
                known.keep(schema, path, len(schema))
        return found

    def namespace(self, catalog: str, schema: str) -> Path | None:
        """Return the path of the namespace of a schema that has room for any name.

        Return None for another schema, an invalid name, and one that is too long for some names of tables.
        """
        try:
            resource = self.schema(catalog, schema)
        except InvalidArgument:
            return None
        return resource.path if resource.type == "namespace" and _has_room(resource.path, schema) else None

    def table(self, catalog: str, schema: str, table: str) -> Resource:
        """Return the table or view of a name; a metadata table for `t$files` and similar names.

        Raise AmbiguousName if the name may be a table reference of Nessie.
        """
        parent = self.schema(catalog, schema)
        type = parent.type
        is_plain = len(table) <= MAX_NAME and table.isascii() and table.isidentifier()
        if is_plain and type == "namespace" and _has_room(parent.path, schema):
            return Resource("table_or_view", parent.warehouse, (*parent.path, table), parent.ref)
        if type == "namespace":
            if parent.warehouse in self._nessie and may_be_table_reference(table):
                raise AmbiguousName(f"`{table}` may be a table reference of Nessie's")
            is_metadata = "$" in table and suffix_of(table) in METADATA_TABLES
            type = "metadata_table" if is_metadata else "table_or_view"
        named = Resource(type, parent.warehouse, check_path(type, (*parent.path, table)), parent.ref)
        return in_lower_case(named) if type in _LOWERED else named

    def function(self, catalog: str, schema: str, name: str) -> Resource:
        """Return a function or procedure, with Trino's catalog in place of a warehouse."""
        return in_lower_case(Resource("function", check_part(catalog), (check_part(schema), check_part(name))))

    def session_property(self, catalog: str, name: str) -> Resource:
        """Return a session property; `catalog` is empty for a system property."""
        return in_lower_case(Resource("session_property", catalog or "system", (check_part(name),)))

    def _schema(self, catalog: Resource, schema: str) -> Resource:
        if catalog.type != "warehouse":
            return Resource(catalog.type, catalog.warehouse, (check_part(schema).lower(),))
        if schema.lower() in SYSTEM_TABLES:
            return Resource("system_schema", catalog.warehouse, (schema.lower(),), catalog.ref)
        return Resource("namespace", catalog.warehouse, check_path("namespace", tuple(schema.split("."))), catalog.ref)


def _has_room(path: Path, schema: str) -> bool:
    """Tell whether a namespace has room for any name of a table, however long."""
    return len(path) < MOST_PARTS and len(schema) <= MAX_PATH - MAX_NAME


_LOWERED: Final = frozenset({"catalog", "system_catalog", "system_schema", "function", "session_property"})
"""Types of names that no spelling of an object stands for."""


def in_lower_case(resource: Resource) -> Resource:
    """Return a resource outside of a warehouse's objects in lower case, as Trino lowers every name; others unchanged.

    The same holds for the destination.
    """
    target = resource.arguments.destination
    if target is not None and (lowered := in_lower_case(target)) is not target:
        resource = replace(resource, arguments=replace(resource.arguments, destination=lowered))
    if resource.type not in _LOWERED:
        return resource
    catalog = resource.warehouse if resource.type == "system_schema" else resource.warehouse.lower()
    path = tuple([part.lower() for part in resource.path])
    is_same = path == resource.path and catalog == resource.warehouse
    return resource if is_same else replace(resource, warehouse=catalog, path=path)


def are_lowered(resources: Sequence[Resource]) -> bool:
    """Tell whether Trino lowers the names of resources of one type as they are, without regard to known objects."""
    return type(resources) is not PathArray and resources[0].type in _LOWERED


def suffix_of(table: str) -> str:
    """Return the text after the last `$` in lower case, as Trino spells suffixes; empty without a name before `$`."""
    base, _, suffix = table.rpartition("$")
    return suffix.lower() if base else ""


def most_signs(tables: Sequence[Resource]) -> int:
    """Return the most `$` in a name of a table, as in `t$files`."""
    return max((each.path[-1].count("$") for each in tables if each.path), default=0)


def before_sign(table: Resource, number: int) -> Resource:
    """Return the table with the name before a `$`, counted from 1; the same table without such a name."""
    parts = table.path[-1].split("$") if table.path else []
    base = "$".join(parts[:number])
    return replace(table, path=(*table.path[:-1], base)) if base and number < len(parts) else table


def base_table(resource: Resource) -> Resource:
    """Return the table or materialized view behind a metadata table."""
    *schema, table = resource.path
    return replace(resource, type="table_or_view", path=(*schema, table.rpartition("$")[0]))
