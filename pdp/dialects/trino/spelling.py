"""Spelling of resources: Trino lowers every name, and policies are asked about an object under the object's own name.

A known object has the spelling that facts or declarations of policies give. An unknown object has Trino's. Forbids hold
in any case: a name is also asked under the spelling of each text that a forbid compares with paths, for forbids alone.

Owns types of resources and metadata tables. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pdp.decision.active_policies import ActivePolicies
from pdp.dialects.trino.names import suffix_of
from pdp.engines.engine import DOT_IN_PART
from pdp.engines.known_names import (
    AMBIGUOUS,
    SchemaNames,
    all_names_of_schema,
    has_unknown_sign,
    names_of_schema,
    need_care,
)
from pdp.engines.spelled_names import MOST_SPELLINGS, other_texts
from pdp.facts.snapshot import Facts
from pdp.model.arrays import PathArray
from pdp.model.question import Resource
from pdp.model.trino_operations import METADATA_TABLES

TABLE_TYPES: Final = frozenset({"table_or_view", "table", "view"})
SCHEMA_TYPES: Final = TABLE_TYPES | {"namespace", "metadata_table"}
"""Types of schemas of a mapped catalog, and of their content."""


class Spelling:
    """Spelling of names by one bundle and one snapshot of the facts."""

    __slots__ = ("_facts", "_names")

    def __init__(self, facts: Facts, bundle: ActivePolicies) -> None:
        self._facts = facts
        self._names = bundle.spelled

    def alone(self, resources: Sequence[Resource]) -> Sequence[Resource] | None:
        """Return resources of one type under their own names, which are all that forbids compare with.

        Return the very same resources if they have their own names already; None if more names matter.
        """
        if len(resources) == 1 and type(resources) is not PathArray:
            own = self._alone(resources[0])
            if own is resources[0]:
                return resources
            return None if own is None else [own]
        if self.are_own(resources):
            return resources
        return self.own_column(resources) if type(resources) is PathArray and resources.type in TABLE_TYPES else None

    def _alone(self, resource: Resource) -> Resource | None:
        if resource.type not in SCHEMA_TYPES:
            return resource
        if resource.arguments.destination is not None:
            return resource if self.is_own(resource) else None
        names = self._names_near(resource)
        own = resource if names is None else self._own(names, resource)
        return None if own is None or (names is not None and self._others(names, own)) else own

    def are_own(self, resources: Sequence[Resource]) -> bool:
        """Tell whether resources of one type have no spelling beside the named one."""
        if type(resources) is PathArray and resources.type in TABLE_TYPES:
            joined = "".join(resources.names)
            is_plain = joined == joined.casefold() and not has_unknown_sign(joined)
            if is_plain and not need_care(self._facts, resources.warehouse, resources.parents, self._names):
                return True
        return all(map(self.is_own, resources)) if resources[0].type in SCHEMA_TYPES else True

    def is_own(self, resource: Resource) -> bool:
        """Tell whether a resource and the destination have no spelling beside the named one."""
        kind = resource.type
        destination = resource.arguments.destination
        if kind not in SCHEMA_TYPES:
            return True
        names = self._names_near(resource)
        if names is not None and (self._own(names, resource) is not resource or self._others(names, resource)):
            return False
        return destination is None or self.is_own(destination)

    def own(self, resource: Resource) -> Resource | None:
        """Return a resource of SCHEMA_TYPES and the destination under their own names; None for an ambiguous name."""
        destination = resource.arguments.destination
        if destination is not None and destination.type in SCHEMA_TYPES:
            spelled = self.own(destination)
            if spelled is None:
                return None
            if spelled != destination:
                resource = replace(resource, arguments=replace(resource.arguments, destination=spelled))
        names = self._names_near(resource)
        found = resource if names is None else self._own(names, resource)
        if found is None or (names is not None and len(self._others(names, found)) > MOST_SPELLINGS):
            return None
        return found

    def own_column(self, tables: PathArray) -> PathArray | None:
        """Return a column of tables under their own names; None for ambiguous names, and where forbids spell names."""
        warehouse, spelled = tables.warehouse, self._names
        schemas = [
            names_of_schema(self._facts, warehouse, path, spelled) or SchemaNames(path) for path in tables.parents
        ]
        parents = [names.path for names in schemas]
        joined = "".join(tables.names)
        if (
            any(names is AMBIGUOUS or names.doubled or names.texts for names in schemas)
            or len(set(parents)) < len(parents)
            or joined != joined.casefold()
            or has_unknown_sign(joined)
        ):
            return None
        own = []
        for place, name in zip(tables.parent_at, tables.names, strict=True):
            found = schemas[place].unfolded.get(name)
            if found and found[0].lower() != name:
                return None
            own.append(found[0] if found else name)
        like = Resource(tables.type, warehouse, ref=tables.ref)
        return PathArray(like, parents, tables.parent_at, own)

    def others(self, own: Resource) -> list[Resource]:
        """Return a resource with its own name under every other name of forbids."""
        names = self._names_near(own)
        found = self._others(names, own) if names is not None else []
        destination = own.arguments.destination
        if destination is not None and destination.type in SCHEMA_TYPES:
            found += [
                replace(own, arguments=replace(own.arguments, destination=other)) for other in self.others(destination)
            ]
        return found

    def _names_near(self, resource: Resource) -> SchemaNames | None:
        """Return the names of the schema of a resource; None if no name there needs care."""
        path = resource.path
        if not path:
            return None
        if resource.type == "namespace":
            return names_of_schema(self._facts, resource.warehouse, path, self._names)
        names = names_of_schema(self._facts, resource.warehouse, path[:-1], self._names)
        if has_unknown_sign(path[-1]):
            return AMBIGUOUS
        if names is None and path[-1] != path[-1].casefold():
            return all_names_of_schema(self._facts, resource.warehouse, path[:-1], self._names)
        return names

    def _own(self, names: SchemaNames, resource: Resource) -> Resource | None:
        if names is AMBIGUOUS:
            return None
        path = names.path
        if resource.type != "namespace":
            base, suffix = _divided(resource)
            table = names.own_spelling(base)
            if table is None:
                return None
            path = (*path, table + suffix)
        return resource if path == resource.path else replace(resource, path=path)

    def _others(self, names: SchemaNames, own: Resource) -> list[Resource]:
        if not names.texts:
            return []
        base, suffix = _divided(own)
        path = own.path if own.type == "namespace" else (*own.path[:-1], base)
        depth = len(path)
        found = []
        for text in other_texts(".".join(part.replace(".", DOT_IN_PART) for part in path), names.texts):
            *above, last = (part.replace(DOT_IN_PART, ".") for part in text.split(".", depth - 1))
            if len(above) == depth - 1:
                found.append(replace(own, path=(*above, last + suffix)))
        return found


def is_metadata_name(table: str) -> bool:
    """Tell whether Trino reads a name as a metadata table's."""
    return "$" in table and suffix_of(table) in METADATA_TABLES


def _divided(table: Resource) -> tuple[str, str]:
    """Return the name of a table, and the suffix behind the name of a metadata table's base."""
    name = table.path[-1]
    if table.type != "metadata_table" or not is_metadata_name(name):
        return name, ""
    base, sign, suffix = name.rpartition("$")
    return base, sign + suffix
