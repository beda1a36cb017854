"""Who may change objects and grants, and what a wish to do so comes to in changes.

Pure: a wish on one snapshot becomes a list of changes, or is refused. Which right is needed stands in the tables; what
a right means stands in `model`, like that of every other action. Where the wishes come from and where the changes are
kept is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.model import ACTIONS
from pdp.errors import Forbidden, InvalidArgument
from pdp.facts.objects import (
    SERVER,
    Change,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectDeleted,
    ObjectKey,
    ObjectPut,
    key_text,
)
from pdp.facts.snapshot import Facts
from pdp.model.checks import Principal
from pdp.model.vocabulary import TABULAR_TYPES

CREATE: Final = {
    "project": "create_project",
    "warehouse": "create_warehouse",
    "namespace": "create_namespace",
    "role": "create_role",
    "tag": "create_tag",
    "user": "provision_users",
} | {type: f"create_{type}" for type in TABULAR_TYPES}
"""Object type -> the action on its parent that creates one."""
DELETE: Final = dict.fromkeys(CREATE, "delete") | dict.fromkeys(TABULAR_TYPES, "drop")
"""Object type -> the action on it that deletes it."""
OWNER: Final = {type: "ownership" for type in CREATE if type != "user"} | {"project": "project_admin"}
"""Object type -> the privilege that its creator gets."""
RENAME: Final = {"warehouse": "rename", "namespace": "move"} | dict.fromkeys(TABULAR_TYPES, "rename")
"""Object type -> the action on it that gives it another name where it is."""
ACCEPT: Final = {"namespace": "accept_moved_namespace"} | dict.fromkeys(TABULAR_TYPES, "accept_moved_tabular")
"""Object type -> the action on a new container, beside creating there, that takes a moved object in."""


class Actor(msgspec.Struct, frozen=True):
    """Whose wish it is. `principal` None is an operator of the deployment, who needs no right and owns nothing.

    `principal` is the acting role where one is assumed: only its rights count, and it becomes the owner. `exempt`: it
    needs no right, as an instance admin who acts for itself. `may_report`: its caller speaks for others, as a catalog
    does, so that its word on what was created counts.
    """

    name: str
    principal: Principal | None = None
    exempt: bool = False
    may_report: bool = True


class ObjectPatch(msgspec.Struct, frozen=True):
    """What is to be registered about an object; None leaves what is known."""

    key: ObjectKey
    project: str | None = None
    managed: bool | None = None
    id: str | None = None

    def over(self, known: Object) -> Object:
        """The object after the wish."""
        return Object(
            self.key,
            known.project if self.project is None else self.project,
            known.managed if self.managed is None else self.managed,
            known.id if self.id is None else self.id,
        )


class ObjectEdits(msgspec.Struct, frozen=True):
    """Objects to delete, to move and to put: in this order, and none twice."""

    put: Sequence[ObjectPatch] = ()
    delete: Sequence[ObjectKey] = ()
    move: Sequence[tuple[ObjectKey, ObjectKey]] = ()


class GrantEdits(msgspec.Struct, frozen=True):
    """Grants that are to be there, and that are not to be there."""

    add: Sequence[Grant] = ()
    remove: Sequence[Grant] = ()


class Administration:
    """The model's own word on who may change what.

    `bootstrap_admins` as for the engine; `warehouses` are those that configuration names.
    """

    def __init__(
        self, bootstrap_admins: frozenset[str] = frozenset(), warehouses: frozenset[str] = frozenset()
    ) -> None:
        self._engine = GrantsEngine(bootstrap_admins)
        self._bootstrap_admins = bootstrap_admins
        self._warehouses = warehouses

    def grants(self, facts: Facts, actor: Actor, wishes: GrantEdits) -> tuple[Change, ...]:
        """The changes that fulfil all wishes at once; what is so already is no change.

        Forbidden names the first right that is missing; every right is judged on the facts as they were, so that an
        owner can hand over.
        """
        both = set(wishes.add) & set(wishes.remove)
        if both:
            raise InvalidArgument(f"{_grant_text(min(both))} is to be added and removed")
        changes: list[Change] = []
        for grant in dict.fromkeys(wishes.remove):
            self.require(facts, actor, right_to_remove(grant), grant.object)
            if facts.has(grant):
                changes.append(GrantRemoved(grant))
        for grant in dict.fromkeys(wishes.add):
            self.require(facts, actor, right_to_add(grant), grant.object)
            if not facts.has(grant):
                changes.append(GrantAdded(grant))
        return tuple(changes)

    def objects(self, facts: Facts, actor: Actor, wishes: ObjectEdits) -> tuple[Change, ...]:
        """The changes that fulfil all wishes, one after the other, each on what the ones before left.

        Forbidden names the first right that is missing, InvalidArgument the first wish that makes no sense.
        """
        _refuse_doubles(wishes)
        draft = _Draft(self, actor, facts)
        for key in wishes.delete:
            draft.delete(key)
        for source, target in wishes.move:
            draft.move(source, target)
        for wish in wishes.put:
            draft.put(wish)
        return tuple(draft.changes)

    def require(self, facts: Facts, actor: Actor, action: str, key: ObjectKey) -> None:
        """Forbidden where the actor may not do something to an object."""
        if not self.may(facts, actor, action, key):
            raise Forbidden(f"`{actor.name}` lacks {action} on {key_text(key)}")

    def may(self, facts: Facts, actor: Actor, action: str, key: ObjectKey) -> bool:
        """Whether the actor may do something to an object."""
        return actor.principal is None or actor.exempt or self._engine.may(actor.principal, action, key, facts)

    def is_in_use(self, facts: Facts, key: ObjectKey) -> bool:
        """Whether an object is more than a name: registered or configured, with grants on, below or to it."""
        if key[0] == "warehouse" and key[1][0] in self._warehouses | facts.projects.keys():
            return True
        name = key_text(key)
        granted = name in self._bootstrap_admins or next(facts.grants_to(name), None) is not None
        return granted or next(facts.subtree(key), None) is not None


def right_to_add(grant: Grant) -> str:
    """The action on the object that lets somebody grant this."""
    return "change_ownership" if grant.privilege == "ownership" else f"grant_{grant.privilege}"


def right_to_remove(grant: Grant) -> str:
    """The action on the object that lets somebody take this away: where the model has one of its own, that one."""
    revoke = f"revoke_{grant.privilege}"
    return revoke if revoke in ACTIONS[grant.object[0]] else right_to_add(grant)


@dataclass(slots=True)
class _Draft:
    """Wishes being fulfilled: `facts` are those after the changes so far."""

    rules: Administration
    actor: Actor
    facts: Facts
    changes: list[Change] = field(default_factory=list)

    def delete(self, key: ObjectKey) -> None:
        """With all below it, and with all that was granted on it or, where it is a user or role, to it."""
        if key == SERVER:
            raise InvalidArgument("the server cannot be deleted")
        self._demand(DELETE[key[0]], key)
        inside = [below for below, _ in self.facts.subtree(key) if below != key] if key[0] == "project" else ()
        if inside:
            raise InvalidArgument(f"{key_text(key)} still holds {key_text(min(inside))}")
        made: list[Change] = []
        for below, entry in self.facts.subtree(key):
            made += map(GrantRemoved, self.facts.grants_on(below))
            made += [ObjectDeleted(below)] if entry.registered else []
        if key[0] in ("role", "user"):
            made += map(GrantRemoved, self.facts.grants_to(key_text(key)))
        self._make(list(dict.fromkeys(made)))

    def move(self, source: ObjectKey, target: ObjectKey) -> None:
        """With all below it; grants follow."""
        _refuse_move(source, target)
        old, new = self.facts.parent(source), self.facts.parent(target)
        if source[0] == "warehouse" or old == new:
            self._demand(RENAME[source[0]], source)
        else:
            assert new is not None
            self._demand("move", source)
            self._demand(CREATE[target[0]], new)
            self._demand(ACCEPT[target[0]], new)
        self._refuse_target(source, target)
        made: list[Change] = []
        for below, entry in self.facts.subtree(source):
            moved: ObjectKey = (below[0], (*target[1], *below[1][len(source[1]) :]))
            for grant in self.facts.grants_on(below):
                made += [GrantRemoved(grant), GrantAdded(msgspec.structs.replace(grant, object=moved))]
            if entry.registered:
                made += [ObjectDeleted(below), ObjectPut(msgspec.structs.replace(entry.registered, key=moved))]
        self._make(made)

    def _refuse_target(self, source: ObjectKey, target: ObjectKey) -> None:
        """InvalidArgument where the new name is taken, or configured for something else."""
        if next(self.facts.subtree(target), None) is not None:
            raise InvalidArgument(f"{key_text(target)} is there already")
        for key in (source, target) if source[0] == "warehouse" else ():
            configured = self.facts.projects.get(key[1][0])
            if configured not in (None, self.facts.object(source).project):
                raise InvalidArgument(f"{key_text(key)} belongs to `{configured}` by configuration")

    def put(self, wish: ObjectPatch) -> None:
        """Register an object that is new, or change what is known of one."""
        key = wish.key
        if key == SERVER:
            raise InvalidArgument("the server is always there")
        known = self.facts.object(key)
        after = wish.over(known)
        check_configured_project(self.facts, after)
        is_new = not self.facts.is_registered(key) or (known.id not in ("", after.id))
        if is_new:
            self._create(known, after)
        else:
            self._rebind(known, after)
        if after.managed != known.managed:
            self._demand("set_managed_access", key)
        if not self.facts.is_registered(key) or self.facts.object(key) != after:
            self._make([ObjectPut(after)])

    def _create(self, known: Object, after: Object) -> None:
        """The right to, and the owner. What is in use already belongs to whoever its grants say."""
        key = after.key
        in_use = self.rules.is_in_use(self.facts, key)
        named = msgspec.structs.replace(after, managed=known.managed)
        parent = self.facts.apply(self.facts.sequence, [ObjectPut(named)]).parent(key)
        if self.actor.principal is not None:
            if not self.actor.may_report:
                raise Forbidden(f"`{self.actor.name}` cannot report new objects: that is for a catalog to do")
            if parent is None:
                raise InvalidArgument(f"{key_text(key)} needs a parent: `project:<id>`")
            self._demand(CREATE[key[0]], parent)
        if in_use and parent != self.facts.parent(key):
            self._demand_handing_over(key)
        replaced = known.id not in ("", after.id)
        if replaced:
            self._demand(DELETE[key[0]], key)
        elif in_use and after.id:
            self._demand("change_ownership", key)
        self._make([ObjectPut(named)])
        if self.actor.principal is not None and key[0] in OWNER and (replaced or not in_use):
            owned = Grant(key, OWNER[key[0]], self.actor.principal.id, after.id)
            self._make([] if self.facts.has(owned) else [GrantAdded(owned)])

    def _rebind(self, known: Object, after: Object) -> None:
        """The rights to give an object another project or its first id, on which grants may depend."""
        if after.project != known.project:
            if known.project:
                self._demand(DELETE[known.key[0]], known.key)
            self._demand(CREATE[known.key[0]], ("project", (after.project,)))
            self._demand_handing_over(known.key)
        if after.id != known.id:
            self._demand("change_ownership", known.key)

    def _demand_handing_over(self, key: ObjectKey) -> None:
        """The right to put what is in use into a project, whose administrators may then do everything with it.

        Whoever could become operator of the server may.
        """
        if not self.rules.may(self.facts, self.actor, "grant_operator", SERVER):
            self._demand("change_ownership", key)

    def _demand(self, action: str, key: ObjectKey) -> None:
        self.rules.require(self.facts, self.actor, action, key)

    def _make(self, changes: Sequence[Change]) -> None:
        self.changes += changes
        self.facts = self.facts.apply(self.facts.sequence, changes)


def check_configured_project(facts: Facts, after: Object) -> None:
    """InvalidArgument where a warehouse would be registered in another project than it is configured in."""
    configured = facts.projects.get(after.key[1][0]) if after.key[0] == "warehouse" else None
    if configured and after.project not in ("", configured):
        raise InvalidArgument(f"{key_text(after.key)} belongs to `{configured}` by configuration")


def _refuse_doubles(wishes: ObjectEdits) -> None:
    named = [*(wish.key for wish in wishes.put), *wishes.delete, *(key for pair in wishes.move for key in pair)]
    seen: set[ObjectKey] = set()
    for key in named:
        if key in seen:
            raise InvalidArgument(f"{key_text(key)} is named twice")
        seen.add(key)


def _refuse_move(source: ObjectKey, target: ObjectKey) -> None:
    """InvalidArgument where a move makes no sense whatever is known."""
    said = f"{key_text(source)} cannot move to {key_text(target)}"
    if source[0] not in RENAME:
        raise InvalidArgument(f"{said}: a {source[0]} keeps its name")
    if source[0] != target[0]:
        raise InvalidArgument(f"{said}: that is a {target[0]}")
    if source[0] in ("warehouse", "namespace") and target[1][: len(source[1])] == source[1]:
        raise InvalidArgument(f"{said}: that is below itself")
    if source[0] != "warehouse" and source[1][0] != target[1][0]:
        raise InvalidArgument(f"{said}: that is another warehouse")


def _grant_text(grant: Grant) -> str:
    return f"{grant.privilege} on {key_text(grant.object)} for {grant.principal}"
