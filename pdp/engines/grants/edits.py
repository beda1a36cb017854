"""Edits of objects and grants, as requested, and the actor who requests them.

Owns the action that each edit requires, the grantees around an object, and the questions to the grants engine.

The actions are Lakekeeper's, with two choices of this service: see docs/decisions/0006-grants-from-memory.md. `model`
says who may do an action: every decision is a check.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pdp.engines.grants.model import ACTIONS, CONTENT, NESSIE, RENAME_AWAY, granting
from pdp.facts.objects import Grant, Object, ObjectKey, changes_container, key_of
from pdp.facts.snapshot import Facts
from pdp.model.question import CONTENT_TYPES, Principal, Resource
from pdp.model.vocabulary import TABULAR_TYPES


class Actor(msgspec.Struct, frozen=True):
    """Principal behind an edit.

    `principal` None is an operator of the deployment: needs no right and owns nothing. Under an acting role
    `principal` is the role: only the rights of the role count, and the role becomes the owner. An `exempt` actor needs
    no right: an instance admin without an acting role. `may_report`: the caller speaks for others, like a catalog, so
    its reports count: new objects, moves, deletions, ids and projects. `person` is the id of the principal behind a
    role: who acts as the role, or the role itself.
    """

    name: str
    principal: Principal | None = None
    exempt: bool = False
    may_report: bool = True
    person: str = ""


class ObjectPatch(msgspec.Struct, frozen=True):
    """New registration of an object. None leaves a field as registered."""

    key: ObjectKey
    project: str | None = None
    managed: bool | None = None
    id: str | None = None

    def apply_to(self, registered: Object) -> Object:
        """Return the registration after the patch."""
        return Object(
            self.key,
            registered.project if self.project is None else self.project,
            registered.managed if self.managed is None else self.managed,
            registered.id if self.id is None else self.id,
        )


class ObjectEdits(msgspec.Struct, frozen=True):
    """Objects to delete, to move and to put, carried out in this order. No object occurs twice."""

    put: Sequence[ObjectPatch] = ()
    delete: Sequence[ObjectKey] = ()
    move: Sequence[tuple[ObjectKey, ObjectKey]] = ()


class GrantEdits(msgspec.Struct, frozen=True):
    """Grants to add and to remove."""

    add: Sequence[Grant] = ()
    remove: Sequence[Grant] = ()


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

MANAGE: Final = "grant_manage_grants"
"""Action on a table that writing its row policies requires; on the container, for those that belong to the name."""


def right_to_add(grant: Grant) -> str:
    """Return the action on the object that adds the grant."""
    return granting(grant.privilege)


def right_to_remove(grant: Grant) -> str:
    """Return the action on the object that removes the grant: `revoke_...` if the model has one, else as to add."""
    revoke = f"revoke_{grant.privilege}"
    return revoke if revoke in ACTIONS[grant.object[0]] else right_to_add(grant)


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


MOVE: Final = {(RENAME[type], type): RENAME_AWAY for type in TABULAR_TYPES} | {
    (CREATE[type], container): ACCEPT[type]
    for type in ACCEPT
    for container in ("warehouse", "namespace")
    if ACCEPT[type] in ACTIONS[container]
}
"""Action and type of a rename, and of a creation -> the action that is required if the object changes its container."""
_CONCRETE_CONTENT: Final = CONTENT_TYPES - {"table_or_view"}


class RelationQuestion:
    """Question of an action on objects of a type. There is one instance for each; compared by identity.

    `relation` is empty if the object of the relation is not the resource itself: then `target_of` finds both.
    """

    __slots__ = ("action", "is_inside", "move", "relation", "type")

    def __init__(self, action: str, type: str) -> None:
        self.action = action
        self.type = type
        rule = NESSIE[action].get(type, NESSIE[action][""]) if action in NESSIE else action
        self.relation = "" if type == "content" or "." in rule else rule
        self.is_inside = bool(self.relation) and type in CONTENT_TYPES
        self.move = MOVE.get((action, type), "")

    def is_move(self, resource: Resource) -> bool:
        """Tell whether the question is about an object that changes its container."""
        return bool(self.move) and changes_container(resource)

    def target_of(self, resource: Resource) -> tuple[str, ObjectKey, str]:
        """Return the relation that a check asks for, the object of the relation, and the id in the check."""
        key = key_of(resource, self.type)
        if self.relation:
            return self.move if self.is_move(resource) else self.relation, key, resource.id
        concrete = CONTENT.get(resource.content_type, "table") if self.type == "content" else self.type
        rules = NESSIE[self.action]
        direction, _, relation = rules.get(concrete, rules[""]).rpartition(".")
        if not direction:
            return relation, (concrete, key[1]), resource.id
        # The relation is on the parent, a namespace or the warehouse. The id in the check is the child's: drop the id.
        parts = key[1][:-1]
        return relation, ("namespace" if len(parts) > 1 else "warehouse", parts), ""


QUESTIONS: Final = {
    (action, type): RelationQuestion(action, type)
    for action, type in [
        *((action, type) for type, actions in ACTIONS.items() for action in actions),
        *((action, type) for action in NESSIE for type in sorted(_CONCRETE_CONTENT)),
    ]
}
"""Question of each canonical action of a type, and of each content check of Nessie on a path."""
