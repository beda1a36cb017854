"""Trino's names as resources: catalogs, schemas, tables, users, functions, session properties.

Owns how they are read, case, dots and `$` suffixes included. Must not know operations, HTTP or JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from pdp.config.settings import Trino, Warehouse
from pdp.errors import AmbiguousName
from pdp.model.checks import Principal, Resource, Siblings
from pdp.model.references import check_part
from pdp.model.vocabulary import METADATA_TABLES, SYSTEM_TABLES

KEPT: Final = 4096
LONGEST_KEPT: Final = 256
"""Schemas whose names are remembered once read, and how long those names may be."""
_REFERRING: Final = "@#`"
"""Signs that Nessie's catalogs read as a reference in a table name."""
_TELLING: Final = f"{_REFERRING}$"
"""Signs of names that may not be plain tables."""


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
        elif suffix_of(table) in METADATA_TABLES:
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


def suffix_of(table: str) -> str:
    """What stands behind the last `$`, where something stands before it, in the one case that Trino knows."""
    base, _, suffix = table.rpartition("$")
    return suffix.lower() if base else ""


def base_table(resource: Resource) -> Resource:
    """The table that a metadata table is about."""
    *schema, table = resource.path
    return msgspec.structs.replace(resource, type="table", path=(*schema, table.rpartition("$")[0]))
