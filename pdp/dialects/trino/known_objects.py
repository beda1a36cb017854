"""Known objects behind names of Trino: at the name of a table, below a schema, and in a catalog's listing.

Facts know registered objects and objects with grants. Entity files declare objects. Row policies and forbids name
objects, too. Decides nothing.

A decision does no I/O, so a catalog that lists names is asked first. A catalog that gives no answer denies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter, is_
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from pdp.decision.active_policies import ActivePolicies
from pdp.decision.plan import MOST_OBJECTS_BELOW, Node, PlanContext, Planner, split
from pdp.decision.service import Pdp
from pdp.dialects.trino.names import are_lowered, base_table, in_lower_case, most_signs, suffix_of
from pdp.dialects.trino.spelling import SCHEMA_TYPES, TABLE_TYPES, Spelling, is_metadata_name
from pdp.engines.engine import ForbiddenPath
from pdp.engines.known_names import KnownObjects
from pdp.engines.row_access.engine import UNRESTRICTED, Restriction, hide_everything
from pdp.engines.spelled_names import ANY_NAME, names_below
from pdp.errors import AmbiguousName, Unavailable
from pdp.facts.snapshot import Facts
from pdp.model.answer import Rejection
from pdp.model.arrays import PathArray
from pdp.model.question import NO_ARGUMENTS, Batch, Check, Resource
from pdp.model.trino_operations import METADATA_TABLES, TRINO_OPERATIONS, TRINO_PREFIX
from pdp.model.vocabulary import DATA_ACTIONS, LOADS, ROW_ACTIONS

"""A name of a table that nobody knows."""

_TABLES: Final = TABLE_TYPES | {"metadata_table"}


def objects_at(context: PlanContext, table: Resource) -> tuple[Resource, ...]:
    """Return the objects at a table's own name: known ones by type, else `table_or_view` where row access covers it."""
    if known := known_at(context.facts, context.bundle, table):
        return known
    is_covered = context.bundle.row_access.covers(table, context.facts)
    return (replace(table, type="table_or_view", arguments=NO_ARGUMENTS),) if is_covered else ()


def known_at(facts: Facts, bundle: ActivePolicies, table: Resource) -> tuple[Resource, ...]:
    """Return the objects that facts know, or policies declare, at a table's own name."""
    *container, name = (table.warehouse, *table.path)
    types = KnownObjects.of(facts, bundle.spelled).tabular_types(tuple(container), name)
    return tuple(replace(table, type=type, arguments=NO_ARGUMENTS) for type in types)


class SchemaContent(NamedTuple):
    """Objects below a schema: `known` to facts or row policies, and `forbidden`, which only forbids name.

    `arriving` is a name below the destination of a rename that an unknown object may get.
    """

    known: tuple[Resource, ...]
    forbidden: tuple[Resource, ...]
    arriving: tuple[Resource, ...]


def content_of(context: PlanContext, schema: Resource) -> SchemaContent | None:
    """Return the content of a namespace; None for more than MOST_OBJECTS_BELOW."""
    target = schema.arguments.destination
    texts = context.bundle.unmovable if target else context.bundle.undroppable
    every = chain(_known_below(context, schema), _covered_below(context, schema))
    known = sorted(islice(every, MOST_OBJECTS_BELOW + 1), key=attrgetter("path", "type"))
    forbidden = tuple(islice(_forbidden_below(schema, texts), MOST_OBJECTS_BELOW + 1))
    new = target and Resource("table_or_view", target.warehouse, (*target.path, ANY_NAME), target.ref)
    arriving = (new,) if new else ()
    is_bounded = len(known) + len(forbidden) <= MOST_OBJECTS_BELOW
    return SchemaContent(tuple(known), forbidden, arriving) if is_bounded else None


def _known_below(context: PlanContext, schema: Resource) -> Iterator[Resource]:
    """Yield the objects below a namespace, named by its own name, that facts know or policies declare."""
    for type, (warehouse, *path) in context.bundle.objects_below(context.facts, (schema.warehouse, *schema.path)):
        yield Resource(type, warehouse, tuple(path), schema.ref)


def _covered_below(context: PlanContext, schema: Resource) -> Iterator[Resource]:
    """Yield the tables of row policies below a namespace that facts do not know and policies do not declare."""
    spelling = Spelling(context.facts, context.bundle)
    for path in context.bundle.row_access.tables_below(schema, context.facts):
        table = Resource("table_or_view", schema.warehouse, path, schema.ref)
        own = spelling.own(table)
        if own is None or not known_at(context.facts, context.bundle, own):
            yield own or table


def _forbidden_below(schema: Resource, texts: Sequence[ForbiddenPath]) -> Iterator[Resource]:
    """Yield the objects below a schema that forbids name."""
    for path in names_below(schema.warehouse, schema.path, texts):
        yield Resource("table_or_view", schema.warehouse, path, schema.ref)


AMBIGUOUS_NAME: Final = AmbiguousName.code
"""The reason of denials of ambiguous names."""


def has_other_type(resources: Sequence[Resource]) -> bool:
    """Tell whether a table has the type of a metadata table and no such name, or the name and not the type.

    Names from Trino itself are already typed; only the native API sends such resources, and never in columns.
    """
    if type(resources) is PathArray or resources[0].type not in _TABLES:
        return False
    is_typed = resources[0].type == "metadata_table"
    for table in resources:
        path = table.path
        if path and ("$" in path[-1] and is_metadata_name(path[-1])) != is_typed:
            return True
    return False


def is_metadata_table(table: Resource) -> bool:
    """Tell whether Trino reads the table's name as a metadata table's."""
    return bool(table.path) and is_metadata_name(table.path[-1])


def typed_by_name(table: Resource) -> Resource:
    """Return a resource of a table with the type that the name has in Trino."""
    if table.type not in _TABLES or not table.path or is_metadata_table(table) == (table.type == "metadata_table"):
        return table
    return replace(table, type="table_or_view" if table.type == "metadata_table" else "metadata_table")


_ABOUT_TABLES: Final = frozenset({*LOADS, *ROW_ACTIONS, "get_metadata", "include_in_list", "commit"})
"""Actions, operations on rows and loads that metadata tables have as Trino judges them."""


def names_metadata(check: Check) -> bool:
    """Tell whether a check of another caller than Trino is about tables with names such as `t$files`."""
    resources = check.resources
    if check.question.action not in _ABOUT_TABLES:
        return False
    if type(resources) is PathArray:
        return resources.type in TABLE_TYPES and "$" in "".join(resources.names)
    if resources[0].type not in TABLE_TYPES:
        return False
    return any(resource.path and "$" in resource.path[-1] and is_metadata_table(resource) for resource in resources)


def native_base(table: Resource) -> Resource:
    """Return the table behind a metadata table in the type that the caller names; any other table as it is."""
    return replace(base_table(table), type=table.type) if is_metadata_table(table) else table


def restriction_of(context: PlanContext, table: Resource) -> Restriction:
    """Return the restriction of a table or view; no rows and no values for an ambiguous name."""
    if table.type not in SCHEMA_TYPES:
        return UNRESTRICTED
    own = Spelling(context.facts, context.bundle).own(typed_by_name(table))
    if own is None:
        return hide_everything(AmbiguousName.code)
    if own.type == "metadata_table":
        base = base_table(own)
        if is_metadata_table(base):
            return hide_everything("rule:metadata_table")
        reason = context.restriction_reason(base) if _shows_values(own) else None
        return hide_everything(reason) if reason else UNRESTRICTED
    return context.restriction(own) if own.type in TABLE_TYPES else UNRESTRICTED


def own_names(check: Check, bundle: ActivePolicies, facts: Facts) -> Check | None:
    """Return an operation on resources under their own names.

    None for metadata tables and hidden ones of other catalogs, for ambiguous names and names that forbids spell in
    another way, and for several resources outside a column.
    """
    if not check.question.action.startswith(TRINO_PREFIX):
        return None if names_metadata(check) else check
    resources = check.resources
    if are_lowered(resources):
        if resources[0].type == "catalog" and most_signs(resources):
            return None
        lowered = list(map(in_lower_case, resources))
        return check if all(map(is_, lowered, resources)) else replace(check, resources=lowered)
    if has_other_type(resources):
        return None
    own = Spelling(facts, bundle).alone(resources)
    return check if own is resources else replace(check, resources=own) if own else None


def meant_by_names(check: Check, bundle: ActivePolicies, facts: Facts) -> Check:
    """Return a check about the meant objects. An ambiguous name stays: no operation permits anything there."""
    if not check.question.action.startswith(TRINO_PREFIX):
        return replace(check, resources=list(map(native_base, check.resources))) if names_metadata(check) else check
    if are_lowered(check.resources):
        return replace(check, resources=list(map(in_lower_case, check.resources)))
    spelling = Spelling(facts, bundle)
    if not has_other_type(check.resources) and spelling.are_own(check.resources):
        return check

    def meant(resource: Resource) -> Resource:
        resource = typed_by_name(resource)
        return spelling.own(resource) or resource if resource.type in SCHEMA_TYPES else resource

    return replace(check, resources=list(map(meant, check.resources)))


def _shows_values(table: Resource) -> bool:
    return METADATA_TABLES.get(suffix_of(table.path[-1])) == "read_data"


_LISTED: Final = Rejection(
    "name_listed", "the catalog has an object of this name", by="config:trino.create_over_listed"
)


class NameCatalog(Protocol):
    """Catalog of one warehouse."""

    async def lists(self, name: Resource) -> bool:
        """Tell whether the catalog has a table or view of a name; raise Unavailable if the catalog gives no answer."""
        ...


class ListedNames:
    """Rejection of creations by `trino.create_over_listed`. `catalogs` are by warehouse."""

    def __init__(self, pdp: Pdp, catalogs: Mapping[str, NameCatalog]) -> None:
        self._pdp = pdp
        self._catalogs = catalogs
        self._denies = pdp.bundle.trino.create_over_listed == "deny"

    def concerns(self, operation: str) -> bool:
        """Tell whether the catalog is asked about the names of an operation."""
        return self._denies and operation in TRINO_OPERATIONS and TRINO_OPERATIONS[operation].rule == "creation"

    async def reject_listed(self, batch: Batch) -> Batch:
        """Return the batch with rejections of names that the catalog lists and the facts do not know.

        Raise Unavailable if a catalog gives no answer.
        """
        rejected, checks, refused = dict(batch.rejected), list[Check](), list(batch.refused)
        for check in batch.checks:
            listed = [await self._is_listed(resource) for resource in check.resources]
            rejected.update((at, _LISTED) for at, is_listed in zip(check.at, listed, strict=True) if is_listed)
            checks += _without(check, listed)
            refused += _without(check, [not each for each in listed])
        return replace(batch, checks=tuple(checks), rejected=rejected, refused=tuple(refused))

    async def _is_listed(self, table: Resource) -> bool:
        """Tell whether only the catalog knows an object. The plan asks about objects that the facts know."""
        facts = self._pdp.source.facts
        own = Spelling(facts, self._pdp.bundle).own(table) if table.type in TABLE_TYPES else None
        if own is None or known_at(facts, self._pdp.bundle, own):
            return False
        if table.ref not in (None, self._pdp.bundle.default_ref(table.warehouse)):
            raise Unavailable(f"the catalog of warehouse `{table.warehouse}` answers for its default ref alone")
        catalog = self._catalogs.get(table.warehouse)
        if catalog is None:
            raise Unavailable(f"warehouse `{table.warehouse}` has no catalog to ask")
        return await catalog.lists(table)


def _without(check: Check, left_out: list[bool]) -> list[Check]:
    """Return the check without some resources, in a list; an empty list if none is left."""
    rows = [row for row, is_out in enumerate(left_out) if not is_out]
    if len(rows) == len(left_out):
        return [check]
    resources, at = [check.resources[row] for row in rows], [check.at[row] for row in rows]
    return [replace(check, resources=resources, at=at)] if rows else []


_NO_METADATA_TABLE: Final = "rule:metadata_table"
_WRITES: Final = frozenset({"write_data", "commit", "UPDATE_ENTITY"})


def with_metadata_tables(plan_load: Planner) -> Planner:
    """Return a planner of loads that judges `t$files` and similar names as Trino does, in checks as well.

    The right to t decides, and nothing shows values of t that row policies or masks hide. Nothing writes there.
    """

    def plan(context: PlanContext, check: Check) -> Node | None:
        if not names_metadata(check):
            return plan_load(context, check)

        def node(suffix: str, tables: Sequence[Resource]) -> Node:
            if suffix == _NO_METADATA_TABLE:
                return context.denied(_NO_METADATA_TABLE, action, tables)
            if suffix:
                return _plan_native(context, check, suffix, tables, plan_load)
            return plan_load(context, replace(check, resources=tables)) or context.concrete(action, tables)

        action = check.question.action
        return split(check.resources, _native_suffix, node)

    return plan


def _native_suffix(table: Resource) -> str:
    """Return the suffix of a metadata table, empty for another table. A metadata table has none of its own."""
    if not is_metadata_table(table):
        return ""
    return _NO_METADATA_TABLE if is_metadata_table(native_base(table)) else suffix_of(table.path[-1])


def _plan_native(
    context: PlanContext, check: Check, suffix: str, tables: Sequence[Resource], plan_load: Planner
) -> Node:
    """Plan a load or action on metadata tables of one suffix."""
    action, bases = check.question.action, list(map(native_base, tables))
    if action in _WRITES:
        return context.denied(_NO_METADATA_TABLE, action, tables)
    if load := plan_load(context, replace(check, resources=bases)):
        return load
    if action not in ROW_ACTIONS:
        return context.concrete(action, bases)
    if METADATA_TABLES[suffix] != "read_data":
        return context.concrete(METADATA_TABLES[suffix] if action in DATA_ACTIONS else action, bases)
    return context.deny_restricted(bases, action, lambda part: context.concrete(action, part))
