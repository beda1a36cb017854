"""Tables as Trino names them: ambiguous names, metadata tables, and the restriction of a table.

Must not know operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pdp.decision.plan import PlanContext
from pdp.engines.row_access.engine import UNRESTRICTED, Restriction, hide_everything
from pdp.errors import AmbiguousName
from pdp.facts.snapshot import Facts
from pdp.model.columns import PathColumn
from pdp.model.question import Resource
from pdp.model.trino_operations import METADATA_TABLES
from pdp.trino.ambiguity import ambiguous_tables, has_ambiguous_tables, is_ambiguous_schema
from pdp.trino.names import base_table, suffix_of

AMBIGUOUS_NAME: Final = AmbiguousName.code
"""The reason of denials of ambiguous names."""
TABLE_TYPES: Final = frozenset({"table_or_view", "table", "view"})
SCHEMA_TYPES: Final = TABLE_TYPES | {"namespace", "metadata_table"}
"""Types of schemas of a mapped catalog, and of their content."""


def has_metadata_tables(resources: Sequence[Resource]) -> bool:
    """Tell whether a resource with the type of a table has the name of a metadata table.

    Names from Trino itself are already typed; only the native API sends such resources, and never in columns.
    """
    if type(resources) is PathColumn or resources[0].type not in TABLE_TYPES:
        return False
    return any(map(is_metadata_table, resources))


def is_metadata_table(table: Resource) -> bool:
    """Tell whether Trino reads the table's name as a metadata table's."""
    return bool(table.path) and "$" in table.path[-1] and suffix_of(table.path[-1]) in METADATA_TABLES


def restriction_of(context: PlanContext, table: Resource) -> Restriction:
    """Return the restriction of a table or view; no rows and no values for an ambiguous name."""
    if table.type in SCHEMA_TYPES and is_ambiguous_name(context.facts, table):
        return hide_everything(AMBIGUOUS_NAME)
    if table.type == "metadata_table":
        reason = context.restriction_reason(base_table(table)) if _shows_values(table) else None
        return hide_everything(reason) if reason else UNRESTRICTED
    if table.type not in TABLE_TYPES:
        return UNRESTRICTED
    return context.restriction(table)


def has_ambiguous_names(facts: Facts, resources: Sequence[Resource]) -> bool:
    """Tell whether a name among resources of one type is ambiguous. Only names of schemas and of their content are."""
    if resources[0].type not in SCHEMA_TYPES:
        return False
    if type(resources) is PathColumn and resources.type in TABLE_TYPES and not _has_ambiguous_tables(facts, resources):
        return False
    return any(is_ambiguous_name(facts, resource) for resource in resources)


def has_plain_name(facts: Facts, resource: Resource) -> bool:
    """Tell whether the name of a resource is neither ambiguous nor the name of a metadata table."""
    kind = resource.type
    if kind not in SCHEMA_TYPES:
        return True
    if kind in TABLE_TYPES and is_metadata_table(resource):
        return False
    return not is_ambiguous_name(facts, resource)


def _has_ambiguous_tables(facts: Facts, tables: PathColumn) -> bool:
    return has_ambiguous_tables(facts, tables.warehouse, tables.parents)


def is_ambiguous_name(facts: Facts, resource: Resource) -> bool:
    """Tell whether the name of a resource of SCHEMA_TYPES, or of its destination, is ambiguous."""
    destination = resource.arguments.destination
    if destination and destination.type in SCHEMA_TYPES and is_ambiguous_name(facts, destination):
        return True
    if resource.type == "namespace":
        return is_ambiguous_schema(facts, resource.warehouse, resource.path)
    names = ambiguous_tables(facts, resource.warehouse, resource.path[:-1])
    if names is None:
        return False
    table = base_table(resource) if resource.type == "metadata_table" else resource
    return table.path[-1].casefold() in names


def _shows_values(table: Resource) -> bool:
    return METADATA_TABLES.get(suffix_of(table.path[-1])) == "read_data"
