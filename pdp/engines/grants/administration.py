"""Administration of objects and grants: an edit on a snapshot becomes a list of changes, or is refused.

Pure. `edits` says which action an edit requires, `model` says who may do the action. Knows neither the origin of an
edit nor the storage of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from pdp.config.references import unknown_warehouse
from pdp.engines.grants.edits import (
    ACCEPT,
    CREATE,
    DELETE,
    MANAGE,
    OWNER,
    RENAME,
    Actor,
    GrantEdits,
    ObjectEdits,
    ObjectPatch,
    right_to_add,
    right_to_remove,
)
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.row_policy_moves import (
    TableId,
    rules_by_id,
    rules_of_dropped,
    rules_of_moved,
    rules_of_returned,
    tombstones_under,
)
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
    RowPolicy,
    container_key,
    key_text,
    resource_of,
)
from pdp.facts.snapshot import Facts
from pdp.model.question import CONTENT_TYPES, NO_ARGUMENTS, Arguments, named
from pdp.model.vocabulary import TABULAR_TYPES

RequiredRight: TypeAlias = tuple[str, ObjectKey, Arguments]
"""An action on an object, with the arguments that name what is made or moved."""


class Administration:
    """Judgement of edits by the model alone.

    `bootstrap_admins` are the engine's; `warehouses` are those that the configuration lists. If it lists any, grants
    and objects are in one of them, or in a warehouse that is registered. `names_role` tells whether policies name a
    role.
    """

    def __init__(
        self,
        bootstrap_admins: frozenset[str] = frozenset(),
        warehouses: frozenset[str] = frozenset(),
        names_role: Callable[[str, Facts], bool] = lambda *_: False,
    ) -> None:
        self.names_role = names_role
        self._engine = GrantsEngine(bootstrap_admins)
        self._bootstrap_admins = bootstrap_admins
        self._warehouses = warehouses
        self.required: list[RequiredRight] | None = None
        """The rights that edits required, in order; None if nobody asks."""

    def noting(self) -> Administration:
        """Return the same judgement, with a note of every required right."""
        copied = Administration(self._bootstrap_admins, self._warehouses, self.names_role)
        copied.required = []
        return copied

    def edit_grants(self, facts: Facts, actor: Actor, edits: GrantEdits) -> tuple[Change, ...]:
        """Return the changes for all edits at once; an edit without effect makes no change.

        Judges every right on the facts before the edits, so that an owner can hand over ownership. Raise Forbidden
        for the first missing right, InvalidArgument for a grant to add and to remove.
        """
        both = set(edits.add) & set(edits.remove)
        if both:
            raise InvalidArgument(f"{_grant_text(min(both))} is to be added and removed")
        changes: list[Change] = []
        for grant in dict.fromkeys(edits.remove):
            self.require(facts, actor, right_to_remove(grant), grant.object)
            if facts.has(grant):
                changes.append(GrantRemoved(grant))
        for grant in dict.fromkeys(edits.add):
            self.require(facts, actor, right_to_add(grant), grant.object)
            self.require_known_warehouse(facts, grant.object)
            if not facts.has(grant):
                changes.append(GrantAdded(grant))
        return tuple(changes)

    def edit_objects(self, facts: Facts, actor: Actor, edits: ObjectEdits) -> tuple[Change, ...]:
        """Return the changes for all edits, in order, each judged on the facts after the edits before.

        Raise Forbidden for the first missing right, InvalidArgument for the first impossible edit.
        """
        _refuse_doubles(edits)
        draft = _ObjectDraft(self, actor, facts)
        for key in edits.delete:
            draft.delete(key)
        for source, target in edits.move:
            draft.move(source, target)
        for patch in edits.put:
            draft.put(patch)
        return tuple(draft.changes)

    def require(
        self, facts: Facts, actor: Actor, action: str, key: ObjectKey, arguments: Arguments = NO_ARGUMENTS
    ) -> None:
        """Raise Forbidden if the actor may not do an action on an object. `arguments` name what is made or moved."""
        if self.required is not None:
            self.required.append((action, key, arguments))
        if not self.may(facts, actor, action, key):
            raise Forbidden(f"`{actor.name}` lacks {action} on {key_text(key)}")

    def may(self, facts: Facts, actor: Actor, action: str, key: ObjectKey) -> bool:
        """Tell whether the actor may do an action on an object."""
        return actor.principal is None or actor.exempt or self._engine.may(actor.principal, action, key, facts)

    def require_known_warehouse(self, facts: Facts, key: ObjectKey) -> None:
        """Raise InvalidArgument for an object in a warehouse that nobody knows: its name is most likely a mistake."""
        if key[0] != "warehouse" and key[0] not in CONTENT_TYPES:
            return
        name = key[1][0]
        unknown = unknown_warehouse(name, self._warehouses)
        if unknown and not facts.is_registered(("warehouse", (name,))):
            raise InvalidArgument(f"{key_text(key)}: {unknown}")

    def is_in_use(self, facts: Facts, key: ObjectKey) -> bool:
        """Tell whether an object is registered or configured, or has grants on, below or to the object."""
        if key[0] == "warehouse" and key[1][0] in self._warehouses | facts.projects.keys():
            return True
        name = key_text(key)
        has_grants = name in self._bootstrap_admins or next(facts.grants_to(name), None) is not None
        return has_grants or next(facts.subtree(key), None) is not None


@dataclass(slots=True)
class _ObjectDraft:
    """Edits of objects in progress. `facts` are the facts after the changes so far."""

    rules: Administration
    actor: Actor
    facts: Facts
    changes: list[Change] = field(default_factory=list)
    rules_by_id: dict[TableId, list[RowPolicy]] | None = None
    """Row policies by the stable ids of their tables, once an id was put."""

    def delete(self, key: ObjectKey) -> None:
        """Delete an object with all objects below and all their grants; of a user or role, also the grants to it."""
        if key == SERVER:
            raise InvalidArgument("the server cannot be deleted")
        self._require_report()
        self._require(DELETE[key[0]], key)
        inside = [below for below, _ in self.facts.subtree(key) if below != key] if key[0] == "project" else ()
        if inside:
            raise InvalidArgument(f"{key_text(key)} still holds {key_text(min(inside))}")
        changes: list[Change] = []
        for below, node in self.facts.subtree(key):
            changes += map(GrantRemoved, self.facts.grants_on(below))
            changes += [ObjectDeleted(below)] if node.registered else []
        if key[0] == "user" and not self.rules.may(self.facts, self.actor, "delete_users", SERVER):
            # users may delete themselves; a policy that binds members binds those who may not leave the role
            for grant in self.facts.grants_to(key_text(key)):
                if grant.object[0] == "role":
                    self._require(right_to_remove(grant), grant.object)
        if key[0] in ("role", "user"):
            changes += map(GrantRemoved, self.facts.grants_to(key_text(key)))
        changes += rules_of_dropped(self.facts, key)
        self._apply(list(dict.fromkeys(changes)))  # a grant to a role on itself is on and to the role

    def move(self, source: ObjectKey, target: ObjectKey) -> None:
        """Move an object with all objects below; the grants follow."""
        _refuse_move(source, target)
        self._require_report()
        old_parent, new_parent = self.facts.parent(source), self.facts.parent(target)
        is_move = source[0] != "warehouse" and old_parent != new_parent
        self._require("move" if is_move else RENAME[source[0]], source, Arguments(destination=resource_of(target)))
        if source[0] != "warehouse":
            assert new_parent is not None
            self._require(CREATE[target[0]], new_parent, named(target[1][-1]))
            if is_move:
                self._require(ACCEPT[target[0]], new_parent)
        if target[0] != "warehouse":
            self.rules.require_known_warehouse(self.facts, target)
        self._refuse_target(source, target)
        changes: list[Change] = []
        for below, node in self.facts.subtree(source):
            moved: ObjectKey = (below[0], (*target[1], *below[1][len(source[1]) :]))
            for grant in self.facts.grants_on(below):
                changes += [GrantRemoved(grant), GrantAdded(msgspec.structs.replace(grant, object=moved))]
            if node.registered:
                changes += [ObjectDeleted(below), ObjectPut(msgspec.structs.replace(node.registered, key=moved))]
        ends = old_parent is None or self.rules.may(self.facts, self.actor, MANAGE, old_parent)
        rules = rules_of_moved(self.facts, source, target, ends=ends)
        for rule in tombstones_under(self.facts, rules):
            self._require(MANAGE, container_key(rule.table[:-1]))
        self._apply([*changes, *rules])

    def _refuse_target(self, source: ObjectKey, target: ObjectKey) -> None:
        """Raise InvalidArgument if the new name is in use, or configured for another project."""
        for there in (target, *(key for key in _namesakes(target) if key != source)):
            if next(self.facts.subtree(there), None) is not None:
                raise InvalidArgument(f"{key_text(there)} is there already")
        for key in (source, target) if source[0] == "warehouse" else ():
            configured = self.facts.projects.get(key[1][0])
            if configured not in (None, self.facts.object(source).project):
                raise InvalidArgument(f"{key_text(key)} belongs to `{configured}` by configuration")

    def _refuse_namesake(self, key: ObjectKey) -> None:
        """Raise InvalidArgument for a name that another object has. An engine that names it may mean either."""
        for namesake in filter(self.facts.is_registered, _namesakes(key)):
            raise InvalidArgument(f"{key_text(namesake)} has the name of {key_text(key)}: delete it first")

    def put(self, patch: ObjectPatch) -> None:
        """Register a new object, or change the registration of a known object."""
        key = patch.key
        if key == SERVER:
            raise InvalidArgument("the server is always there")
        before = self.facts.object(key)
        after = patch.apply_to(before)
        check_configured_project(self.facts, after)
        # Another id means that the object was dropped and another object took its name.
        is_new = not self.facts.is_registered(key) or (before.id not in ("", after.id))
        if is_new or msgspec.structs.replace(after, managed=before.managed) != before:
            self._require_report()
        # the rules are those of before: the new name has the id only afterwards
        owned = self._rules_of_id(key, after.id) if after.id != before.id else []
        if is_new:
            self._create(before, after)
        else:
            self._rebind(before, after)
        if after.managed != before.managed:
            self._require("set_managed_access", key)
        if not self.facts.is_registered(key) or self.facts.object(key) != after:
            self._apply([ObjectPut(after)])
        self._apply(rules_of_returned(self.facts, key, owned))

    def _rules_of_id(self, key: ObjectKey, id: str) -> list[RowPolicy]:
        """Return the row policies of the table with a stable id, wherever the table was."""
        if not id or key[0] not in TABULAR_TYPES or not self.facts.index.rules:
            return []
        if self.rules_by_id is None:
            self.rules_by_id = rules_by_id(self.facts)
        return self.rules_by_id.get((key[1][0], id), [])

    def _create(self, before: Object, after: Object) -> None:
        """Create an object and make the actor its owner, unless grants exist already: then they name the owners."""
        key = after.key
        self._refuse_namesake(key)
        in_use = any(self.rules.is_in_use(self.facts, each) for each in (key, *_namesakes(key)))
        # managed access needs a right on the new object, so the flag follows in `put`
        created = msgspec.structs.replace(after, managed=before.managed)
        parent = self.facts.apply(self.facts.sequence, [ObjectPut(created)]).parent(key)
        if self.actor.principal is not None:
            if parent is None:
                raise InvalidArgument(f"{key_text(key)} needs a parent: `project:<id>`")
            self._require(CREATE[key[0]], parent, named(key[1][-1]))
        if key[0] != "warehouse":
            self.rules.require_known_warehouse(self.facts, key)
        is_named = key[0] == "role" and self.rules.names_role(key[1][0], self.facts)
        if is_named or (in_use and parent != self.facts.parent(key)):
            self._require_handing_over(key)
        replaced = before.id not in ("", after.id)
        if replaced:
            self._require(DELETE[key[0]], key)
        elif in_use and after.id:
            self._require("change_ownership", key)
        gone = rules_of_dropped(self.facts, key) if replaced else []
        self._apply([*gone, ObjectPut(created)])
        if self.actor.principal is not None and key[0] in OWNER and (replaced or not in_use):
            ownership = Grant(key, OWNER[key[0]], self.actor.principal.id, after.id)
            self._apply([] if self.facts.has(ownership) else [GrantAdded(ownership)])

    def _rebind(self, before: Object, after: Object) -> None:
        """Require the rights to give an object another project or its first id: grants may depend on both."""
        if after.project != before.project:
            if before.project:
                self._require(DELETE[before.key[0]], before.key)
            self._require(CREATE[before.key[0]], ("project", (after.project,)), named(before.key[1][-1]))
            self._require_handing_over(before.key)
        if after.id != before.id:
            self._require("change_ownership", before.key)

    def _require_handing_over(self, key: ObjectKey) -> None:
        """Require the right to put an object in use into a project, whose administrators gain all rights on it.

        A principal who could become operator of the server has this right.
        """
        if not self.rules.may(self.facts, self.actor, "grant_operator", SERVER):
            self._require("change_ownership", key)

    def _require_report(self) -> None:
        """Raise Forbidden for an actor whose caller does not speak for a catalog.

        Only the catalog knows its names: grants that follow a move, or end with a delete, must follow its objects.
        """
        if not self.actor.may_report:
            message = "cannot report new objects, moves or deletions: that is for a catalog to do"
            raise Forbidden(f"`{self.actor.name}` {message}")

    def _require(self, action: str, key: ObjectKey, arguments: Arguments = NO_ARGUMENTS) -> None:
        self.rules.require(self.facts, self.actor, action, key, arguments)

    def _apply(self, changes: Sequence[Change]) -> None:
        self.changes += changes
        self.facts = self.facts.apply(self.facts.sequence, changes)


def check_configured_project(facts: Facts, after: Object) -> None:
    """Raise InvalidArgument if a warehouse is to be registered in another project than the configured project."""
    configured = facts.projects.get(after.key[1][0]) if after.key[0] == "warehouse" else None
    if configured and after.project not in ("", configured):
        raise InvalidArgument(f"{key_text(after.key)} belongs to `{configured}` by configuration")


def _refuse_doubles(edits: ObjectEdits) -> None:
    keys = [*(patch.key for patch in edits.put), *edits.delete, *(key for pair in edits.move for key in pair)]
    known: set[ObjectKey] = set()
    for key in keys:
        if key in known:
            raise InvalidArgument(f"{key_text(key)} is named twice")
        known.add(key)


def _refuse_move(source: ObjectKey, target: ObjectKey) -> None:
    """Raise InvalidArgument for a move that is impossible on any facts."""
    move = f"{key_text(source)} cannot move to {key_text(target)}"
    if source[0] not in RENAME:
        raise InvalidArgument(f"{move}: a {source[0]} keeps its name")
    if source[0] != target[0]:
        raise InvalidArgument(f"{move}: that is a {target[0]}")
    if source[0] in ("warehouse", "namespace") and target[1][: len(source[1])] == source[1]:
        raise InvalidArgument(f"{move}: that is below itself")
    if source[0] != "warehouse" and source[1][0] != target[1][0]:
        raise InvalidArgument(f"{move}: that is another warehouse")


def _grant_text(grant: Grant) -> str:
    return f"{grant.privilege} on {key_text(grant.object)} for {grant.principal}"


def _namesakes(key: ObjectKey) -> list[ObjectKey]:
    """Return the keys that the object could have as an object of another type, such as a view in place of a table."""
    type, path = key
    return [(other, path) for other in TABULAR_TYPES if other != type] if type in TABULAR_TYPES else []
