"""Explanations of row access: every policy and mask of a table, with the reason why the entry counts or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from pdp.engines.row_access.engine import NO_ROWS, RowAccessEngine
from pdp.engines.row_access.members import Grantee, Members
from pdp.engines.row_access.policy_set import Mask, TablePolicies
from pdp.engines.row_access.trino import FALSE
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason
from pdp.model.question import Principal, Resource

_MOST_NAMES: Final = 20
"""Grantees and groups that a sentence lists."""
RESTRICTIVE: Final = "restrictive: "
"""Start of the reason of a restrictive policy."""


class ExplainedEntry(msgspec.Struct, frozen=True):
    """Policy or mask. `text` is the filter of a policy, or the kind of a mask. `column` is empty for a policy."""

    id: str
    counts: bool
    why: str
    text: str
    column: str = ""


class RowExplanation(msgspec.Struct, frozen=True):
    """Explained restriction: the final filter, true for every row and false for no row, and masks by column."""

    filter: str | bool
    by: Reason
    policies: tuple[ExplainedEntry, ...]
    masks: tuple[ExplainedEntry, ...]


def explain_restriction(access: RowAccessEngine, principal: Principal, table: Resource, facts: Facts) -> RowExplanation:
    """Return the restriction of a table for a principal, with every policy and mask."""
    restriction = access.restrict(principal, table, facts)
    entries = access.policies_of(table, facts)
    policies = []
    for policy in entries.policies:
        is_limit = policy.restrictive
        counts, why = explain_match(principal, policy.grantees, access.members, facts, generous=is_limit)
        why = f"{RESTRICTIVE}{why}" if is_limit else why
        text = access.members.bind(policy.text, principal, facts) or FALSE
        policies.append(ExplainedEntry(policy.id, counts, why, text))
    held = {column: mask.id for column, mask in restriction.masks.items()}
    masks = _masks(entries, principal, access.members, facts, held)
    rows = restriction.rows
    shown = True if rows is None else False if rows == NO_ROWS else rows.expression
    return RowExplanation(shown, restriction.by, tuple(policies), tuple(masks))


def _masks(
    entries: TablePolicies, principal: Principal, members: Members, facts: Facts, held: dict[str, str]
) -> Iterator[ExplainedEntry]:
    for column, masks in entries.masks.items():
        for mask in masks:
            counts, why = explain_mask(principal, mask.grantees, mask.exempt, members, facts)
            if counts and held.get(column) != mask.id:
                counts, why = False, f"the mask `{held.get(column, '')}` of the column hides more"
            yield ExplainedEntry(mask.id, counts, why, _text(mask), column)


def _text(mask: Mask) -> str:
    return f"{mask.kind}: {mask.text}" if mask.text else mask.kind


def explain_mask(
    principal: Principal, grantees: Sequence[Grantee], exempt: Sequence[Grantee], members: Members, facts: Facts
) -> tuple[bool, str]:
    """Return whether a mask hides its column from a principal, and the reason."""
    counts, why = explain_match(principal, grantees, members, facts, generous=True)
    exempts, because = explain_match(principal, exempt, members, facts)
    return (False, f"exempt: {because}") if counts and exempts else (counts, why)


def explain_match(
    principal: Principal, grantees: Sequence[Grantee], members: Members, facts: Facts, *, generous: bool = False
) -> tuple[bool, str]:
    """Return whether grantees name a principal, and the grantee by which, or all grantees and the principal.

    `generous` is for lists whose members see less: there, doubt counts.
    """
    matches = members.may_match if generous else members.matches
    found = next((one for one in grantees if matches(principal, (one,), facts)), None)
    who = _who(principal, members)
    if found is not None:
        return True, f"`{found.text}` names {who}"
    listed = ", ".join(f"`{one.text}`" for one in grantees[:_MOST_NAMES])
    more = f" and {len(grantees) - _MOST_NAMES} more" if len(grantees) > _MOST_NAMES else ""
    return False, f"none of {listed}{more} names {who}" if listed else f"no grantee names {who}"


def _who(principal: Principal, members: Members) -> str:
    """Return a principal as grantees see principals: the member and the groups."""
    if principal.type == "anonymous":
        return "a caller without a name"
    member = members.member(principal) or f"{principal.type}:{principal.name}"
    groups = ", ".join(f"`{group}`" for group in principal.groups[:_MOST_NAMES])
    roles = ", whose roles are unknown" if "member_of" in principal.unknown else ""
    if groups:
        return f"`{member}` with the groups {groups}{roles}"
    return f"`{member}`, whose groups are unknown" if principal.bare else f"`{member}` without groups{roles}"
