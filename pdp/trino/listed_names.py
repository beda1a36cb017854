"""Names that a catalog lists: creations over objects that only the catalog knows are rejected before any decision.

A decision does no I/O, so the catalog is asked first. A catalog that gives no answer denies. Must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec.structs import replace

from pdp.decision.service import Pdp
from pdp.errors import Unavailable
from pdp.model.question import Batch, Check, Rejection, Resource
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.trino.known_objects import known_at
from pdp.trino.tables import TABLE_TYPES, is_ambiguous_name

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
        rejected, checks = dict(batch.rejected), []
        for check in batch.checks:
            listed = [await self._is_listed(resource) for resource in check.resources]
            rejected.update((at, _LISTED) for at, is_listed in zip(check.at, listed, strict=True) if is_listed)
            checks += _without(check, listed)
        return replace(batch, checks=tuple(checks), rejected=rejected)

    async def _is_listed(self, table: Resource) -> bool:
        """Tell whether only the catalog knows an object. The plan asks about objects that the facts know."""
        facts = self._pdp.source.facts
        if table.type not in TABLE_TYPES or is_ambiguous_name(facts, table) or known_at(facts, table):
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
