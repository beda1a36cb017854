"""Edits of objects and grants, as requested, and the actor who requests them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pdp.facts.objects import Grant, Object, ObjectKey
from pdp.model.question import Principal


class Actor(msgspec.Struct, frozen=True):
    """Principal behind an edit.

    `principal` None is an operator of the deployment: needs no right and owns nothing. Under an acting role
    `principal` is the role: only the rights of the role count, and the role becomes the owner. An `exempt` actor needs
    no right: an instance admin without an acting role. `may_report`: the caller speaks for others, like a catalog, so
    its reports count: new objects, moves, deletions, ids and projects.
    """

    name: str
    principal: Principal | None = None
    exempt: bool = False
    may_report: bool = True


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
