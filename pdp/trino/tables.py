"""What Trino means by the name of a schema or table: which object, whether only one, and what of it is seen.

Owns doubt about names, and tables that are about tables. Must not know operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pdp.decision.plan import PlanContext
from pdp.engines.rowaccess.engine import UNRESTRICTED, Restriction, hide_everything
from pdp.errors import AmbiguousName
from pdp.model.checks import Resource, Siblings
from pdp.model.vocabulary import METADATA_TABLES
from pdp.trino.ambiguity import ambiguous_tables, is_ambiguous_schema
from pdp.trino.names import base_table, suffix_of

AMBIGUOUS: Final = AmbiguousName.code
TABLES: Final = frozenset({"table_or_view", "table", "view"})
OF_SCHEMAS: Final = TABLES | {"namespace", "metadata_table"}
"""Types of what a mapped catalog's schemas hold, and of those."""


def names_metadata_tables(resources: Sequence[Resource]) -> bool:
    """Whether a table is named by which Trino would mean one about it; its own names say so already."""
    if isinstance(resources, Siblings) or resources[0].type not in TABLES:
        return False
    return any(map(is_metadata_table, resources))


def is_metadata_table(table: Resource) -> bool:
    """Whether Trino would mean by a name what a table is stored as."""
    return bool(table.path) and suffix_of(table.path[-1]) in METADATA_TABLES


def restriction_of(asker: PlanContext, table: Resource) -> Restriction:
    """What of the table or view that Trino names is seen: nothing where it cannot be known which one is meant."""
    if table.type in OF_SCHEMAS and ambiguity(asker, [table]):
        return hide_everything(AMBIGUOUS)
    if table.type == "metadata_table":
        restricted = asker.restricted(base_table(table)) if _shows_values(table) else None
        return hide_everything(restricted) if restricted else UNRESTRICTED
    if table.type not in TABLES:
        return UNRESTRICTED
    return asker.restriction(table)


def ambiguity(asker: PlanContext, resources: Sequence[Resource]) -> Callable[[Resource], bool] | None:
    """Tells which of some resources of one type several known objects could be meant by; None where none is."""
    if isinstance(resources, Siblings):
        like = resources.like
        if ambiguous_tables(asker.facts, like.warehouse, like.path) is None:
            return None
    elif not any(_is_ambiguous(asker, resource) for resource in resources):
        return None
    return partial(_is_ambiguous, asker)


def _is_ambiguous(asker: PlanContext, resource: Resource) -> bool:
    to = resource.arguments.destination
    if to and to.type in OF_SCHEMAS and _is_ambiguous(asker, to):
        return True
    if resource.type == "namespace":
        return is_ambiguous_schema(asker.facts, resource.warehouse, resource.path)
    names = ambiguous_tables(asker.facts, resource.warehouse, resource.path[:-1])
    if names is None:
        return False
    table = base_table(resource) if resource.type == "metadata_table" else resource
    return table.path[-1].casefold() in names


def _shows_values(table: Resource) -> bool:
    return METADATA_TABLES.get(suffix_of(table.path[-1])) == "read_data"
