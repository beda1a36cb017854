"""Tables of the actions that an edit of objects or grants requires. `model` says who may do an action.

The actions are Lakekeeper's, with two choices of this service: see docs/decisions/0006-grants-from-memory.md.
"""

from __future__ import annotations

from typing import Final

from pdp.engines.grants.model import ACTIONS
from pdp.facts.objects import Grant
from pdp.model.vocabulary import TABULAR_TYPES

CREATE: Final = {
    "project": "create_project",
    "warehouse": "create_warehouse",
    "namespace": "create_namespace",
    "role": "create_role",
    "tag": "create_tag",
    "user": "provision_users",
} | {type: f"create_{type}" for type in TABULAR_TYPES}
"""Object type -> action on the parent that creates an object."""
DELETE: Final = dict.fromkeys(CREATE, "delete") | dict.fromkeys(TABULAR_TYPES, "drop")
"""Object type -> action on the object that deletes the object."""
OWNER: Final = {type: "ownership" for type in CREATE if type != "user"} | {"project": "project_admin"}
"""Object type -> privilege of the creator."""
RENAME: Final = {"warehouse": "rename", "namespace": "move"} | dict.fromkeys(TABULAR_TYPES, "rename")
"""Object type -> action on the object that gives the object another name in the same container."""
ACCEPT: Final = {"namespace": "accept_moved_namespace"} | dict.fromkeys(TABULAR_TYPES, "accept_moved_tabular")
"""Object type -> action on the new container of a moved object, required beside the right to create there."""


def right_to_add(grant: Grant) -> str:
    """Return the action on the object that adds the grant."""
    return "change_ownership" if grant.privilege == "ownership" else f"grant_{grant.privilege}"


def right_to_remove(grant: Grant) -> str:
    """Return the action on the object that removes the grant: `revoke_...` if the model has one, else as to add."""
    revoke = f"revoke_{grant.privilege}"
    return revoke if revoke in ACTIONS[grant.object[0]] else right_to_add(grant)
