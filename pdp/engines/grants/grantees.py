"""Who can have to do with an object, and what is odd about a grant: for those who look after grants.

Owns no decision: who may do what is decided like every check.
"""

from __future__ import annotations

from collections.abc import Iterable

from pdp.facts.objects import Grant, ObjectKey
from pdp.facts.snapshot import Facts


def grant_flags(facts: Facts, grant: Grant) -> tuple[str, ...]:
    """What is odd about a grant: `unknown_principal` nobody registered, `orphaned` for an id that the object lost."""
    known = facts.object(grant.object).id
    type, _, name = grant.principal.partition(":")
    flags = {
        "unknown_principal": not facts.is_registered((type, (name,))),
        "orphaned": bool(grant.id and known and grant.id != known),
    }
    return tuple(flag for flag, holds in flags.items() if holds)


def related_grantees(facts: Facts, key: ObjectKey) -> set[str]:
    """Everybody whose grants can matter to an object: those on it, above it and below it.

    What stands beside the warehouses of a project can be seen by whoever sees the project.
    """
    found: set[str] = set()
    for above in (key, *facts.ancestors(key)):
        found |= set(facts.node(above).grants)
    for _, entry in facts.subtree(facts.parent(key) or key if key[0] in ("role", "tag") else key):
        found |= set(entry.grants)
    return found


def expand_roles(facts: Facts, principals: Iterable[str]) -> set[str]:
    """The principals and all members of the roles among them, through other roles too."""
    found = set(principals)
    fringe = list(found)
    while fringe:
        type, _, name = fringe.pop().partition(":")
        new = set(facts.node((type, (name,))).grants) - found if type == "role" else set()
        found |= new
        fringe += new
    return found
