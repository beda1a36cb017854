"""Policies and masks of one table, compiled to Trino's SQL. Chooses nothing for a principal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from pdp.engines.rowaccess.document import KINDS
from pdp.engines.rowaccess.members import Grantee


class Policy(msgspec.Struct, frozen=True):
    """Rows that grantees see. `predicate` None means every row. `identity` is the user of Trino who evaluates."""

    id: str
    grantees: tuple[Grantee, ...]
    predicate: str | None
    identity: str = ""


class Mask(msgspec.Struct, frozen=True):
    """Mask of a column for grantees, except for exempt members. `value` is SQL."""

    id: str
    kind: str
    grantees: tuple[Grantee, ...]
    exempt: tuple[Grantee, ...] = ()
    value: str = ""
    identity: str = ""


class TablePolicies(msgspec.Struct, frozen=True):
    """Policies of a table by id, and masks by folded column name. The mask that hides most comes first."""

    policies: tuple[Policy, ...] = ()
    masks: Mapping[str, tuple[Mask, ...]] = {}

    def reads_facts(self) -> bool:
        """Tell whether memberships of roles can change the restriction."""
        masks = [mask for masks in self.masks.values() for mask in masks]
        lists = [policy.grantees for policy in self.policies]
        lists += [grantees for mask in masks for grantees in (mask.grantees, mask.exempt)]
        return any(grantee.kind == "role" for grantees in lists for grantee in grantees)


def sort_masks(masks: Iterable[Mask]) -> tuple[Mask, ...]:
    """Return the masks of a column in order: the mask that hides most first, by id among equals."""
    return tuple(sorted(masks, key=lambda mask: (KINDS.index(mask.kind), mask.id)))


NO_POLICIES: Final = TablePolicies()
