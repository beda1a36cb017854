"""Texts of determining grants, as in `by` of a decision: the same text whatever path found the grant."""

from __future__ import annotations

from collections.abc import Iterable

from pdp.engines.grants.principal_grants import PrincipalGrants
from pdp.engines.grants.rules import CIRCUMSTANCE_BIT
from pdp.facts.objects import BIT, VISIBILITY, ContainerPath, ObjectKey, key_text
from pdp.model.question import Reason
from pdp.model.vocabulary import PRIVILEGES


def grant_reason(key: ObjectKey, privilege: str, grantee: str) -> Reason:
    """Return the text of a stored grant."""
    return f"grants:{privilege} on {key_text(key)} via {grantee}"


def grant_reason_around(type: str, path: ContainerPath, privilege: str, grantee: str) -> tuple[str, str]:
    """Return the text of a stored grant on an object in a container: the text before and after the object's name."""
    return f"grants:{privilege} on {key_text((type, path))}/", f" via {grantee}"


def reason_on(grants: PrincipalGrants, key: ObjectKey, privilege: str, id: str = "") -> Reason:
    """Return the text of a privilege or circumstance of a principal on an object."""
    if privilege in CIRCUMSTANCE_BIT:
        return f"grants:{privilege}"
    grantee = grants.grantee_with(key, privilege, id)
    return "config:store.bootstrap_admins" if grantee is None else grant_reason(key, privilege, grantee)


def reason_below(grants: PrincipalGrants, key: ObjectKey) -> Reason:
    """Return the text of the grant below an object that shows the object to the principal."""
    nearest = _nearest_visible_below(grants, key)
    mask = grants.stored_mask(nearest) & VISIBILITY
    return reason_on(grants, nearest, next(privilege for privilege in PRIVILEGES if mask & BIT[privilege]))


def _nearest_visible_below(grants: PrincipalGrants, target: ObjectKey) -> ObjectKey:
    """Return the nearest object below that a grant of its own shows; among equals the smallest by name.

    Searches level by level, only through objects with a visible object below. So a decision names the same grant
    whatever the order of the maps, and the search is as small as the principal's visible part of the tree.
    """
    level: Iterable[ObjectKey]
    if target[0] == "project":
        level = [("warehouse", (name,)) for name in grants.facts.warehouses(target[1][0])]
    else:
        level = grants.keys_inside(target[1])
    while True:
        visible = [key for key in level if grants.stored_mask(key) & VISIBILITY]
        if visible:
            return min(visible, key=key_text)
        level = {key for above in level if grants.is_visible(above) for key in grants.keys_inside(above[1])}
        assert level, f"no visible object below {key_text(target)}"
