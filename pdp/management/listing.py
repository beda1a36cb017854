"""Listing of grants: the grants of a filter, sorted, with flags. Pure; rights are checked elsewhere (`service`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdp.engines.grants.edits import grant_flags
from pdp.facts.objects import SERVER, Grant, key_text
from pdp.facts.snapshot import Facts
from pdp.management.requests import GrantFilter, GrantListing


def matching_grants(facts: Facts, filter: GrantFilter) -> Iterator[Grant]:
    """Yield the grants of a filter, in no order.

    Starts from the smallest index: the grants on the object, below the object, to the principal, or all grants.
    """
    if filter.object is not None and not filter.below:
        grants: Iterable[Grant] = facts.grants_on(filter.object)
    elif filter.object is not None and not filter.principal:
        grants = (grant for key, _ in facts.subtree(filter.object) for grant in facts.grants_on(key))
    else:
        grants = facts.grants_to(filter.principal) if filter.principal else facts.grants()
        top = filter.object
        if top is not None:
            grants = (
                grant for grant in grants if top in (SERVER, grant.object) or top in facts.ancestors(grant.object)
            )
    for grant in grants:
        if filter.principal in ("", grant.principal) and filter.privilege in ("", grant.privilege):
            yield grant


def list_grants(facts: Facts, grants: Iterable[Grant]) -> list[GrantListing]:
    """Return grants in order, with their flags."""
    return sorted((describe_grant(facts, grant) for grant in grants), key=lambda listing: listing.name)


def describe_grant(facts: Facts, grant: Grant) -> GrantListing:
    """Return a grant with its flags and its name for sorting."""
    name = "\x00".join((key_text(grant.object), grant.privilege, grant.principal, grant.id))
    return GrantListing(grant, grant_flags(facts, grant), name)
