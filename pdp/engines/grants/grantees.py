"""Grantees around an object, and oddities of a grant: for the administration of grants.

Decides nothing: every decision is a check.
"""

from __future__ import annotations

from collections.abc import Iterable

from pdp.facts.objects import Grant, ObjectKey
from pdp.facts.snapshot import Facts


def grant_flags(facts: Facts, grant: Grant) -> tuple[str, ...]:
    """Return the oddities of a grant.

    `unknown_principal`: the grantee has no registration. `orphaned`: the object has another id than the grant.
    """
    registered = facts.object(grant.object).id
    type, _, name = grant.principal.partition(":")
    flags = {
        "unknown_principal": not facts.is_registered((type, (name,))),
        "orphaned": bool(grant.id and registered and grant.id != registered),
    }
    return tuple(flag for flag, holds in flags.items() if holds)


def related_grantees(facts: Facts, key: ObjectKey) -> set[str]:
    """Return all grantees with a grant on the object, above or below; a superset of all principals with access.

    For a role or tag, also all grantees below the project: whoever sees the project sees its roles and tags.
    """
    grantees: set[str] = set()
    for above in (key, *facts.ancestors(key)):
        grantees |= set(facts.node(above).grants)
    for _, node in facts.subtree(facts.parent(key) or key if key[0] in ("role", "tag") else key):
        grantees |= set(node.grants)
    return grantees


def expand_roles(facts: Facts, principals: Iterable[str]) -> set[str]:
    """Return the principals and all members of the roles among them, including members of members."""
    expanded = set(principals)
    pending = list(expanded)
    while pending:
        type, _, name = pending.pop().partition(":")
        new = set(facts.node((type, (name,))).grants) - expanded if type == "role" else set()
        expanded |= new
        pending += new
    return expanded
