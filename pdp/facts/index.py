"""Indexes of facts, and the builder that lets an index follow changes.

An index has two kinds of trees, made of persistent maps. One tree has every known object (`ObjectNode`). Each grantee
has another tree: the objects with grants, and all objects above a visible object (`GranteeNode`). The same code builds
an index from nothing and follows a single change. A change costs its own size and the depth of its object, not the
size of the world. Persistent maps share unchanged parts, so an old index stays valid and cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from immutables import Map

from pdp.facts.nodes import (
    EMPTY_TREE,
    NO_GRANTS,
    NO_PRIVILEGES,
    UNKNOWN,
    GranteeNode,
    GranteeTree,
    ObjectNode,
    StoredPrivileges,
    TreeEdit,
    grantee_node,
    merge,
)
from pdp.facts.objects import (
    MEMBERSHIP,
    SERVER,
    VISIBILITY,
    Change,
    ContainerPath,
    FoldedName,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectDeleted,
    ObjectKey,
    ObjectName,
    ObjectPut,
    RowPolicy,
    RowPolicyPut,
    RuleKey,
    container_key,
    fold_name,
    split_key,
)
from pdp.model.question import CONTENT_TYPES

_WITHOUT_CONTENT: Final = frozenset({"role", "tag"})
"""Types with a project and without content."""


class Index(msgspec.Struct, frozen=True):
    """Indexes of one revision.

    `memberships` maps a grantee to the roles of direct membership. `managed` has the objects with managed access.
    `layout` is a token without content: a new token replaces the old token whenever a registration changes rights
    inside a container of principals whose own grants did not change. The project of a role or tag is no such
    registration. `rules` has the row policies and masks of each table by key.
    """

    objects: Map[ContainerPath, Map[ObjectName, ObjectNode]] = Map()
    grantees: Map[str, GranteeTree] = Map()
    memberships: Map[str, frozenset[str]] = Map()
    managed: Map[ObjectKey, bool] = Map()
    layout: object = None
    rules: Map[FoldedName, Map[RuleKey, RowPolicy]] = Map()

    def node(self, key: ObjectKey) -> ObjectNode:
        """Return the node of an object; `UNKNOWN` for an unknown object."""
        path, name = split_key(key)
        names = self.objects.get(path)
        return names.get(name, UNKNOWN) if names is not None else UNKNOWN

    def after(self, changes: Iterable[Change]) -> Index:
        """Return the index after changes, in order. Adding an existing or removing a missing grant does nothing."""
        builder = _IndexBuilder(self)
        for change in changes:
            builder.follow(change)
        return builder.index()


class _IndexBuilder:
    """Index under construction: a base index and the edits of all changes so far."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._objects = TreeEdit(index.objects)
        self._grantees: dict[str, TreeEdit[GranteeNode]] = {}
        self._memberships: dict[str, frozenset[str]] = {}
        self._managed: dict[ObjectKey, bool | None] = {}
        self._layout = index.layout
        self._rules: dict[FoldedName, dict[RuleKey, RowPolicy | None]] = {}
        # Stores list grants by object, so the split key of the last grant mostly serves the next grant as well.
        # Sharing the split tuples also saves memory: the trees hold them as keys.
        self._last_split: tuple[ObjectKey, tuple[ContainerPath, ObjectName]] = (SERVER, split_key(SERVER))
        self._containers: dict[ContainerPath, tuple[ContainerPath, ObjectName]] = {}

    def follow(self, change: Change) -> None:
        if isinstance(change, GrantAdded):
            self._set_grant(change.grant, wanted=True)
        elif isinstance(change, GrantRemoved):
            self._set_grant(change.grant, wanted=False)
        elif isinstance(change, ObjectPut):
            self._register(change.object.key, change.object)
        elif isinstance(change, ObjectDeleted):
            self._register(change.key, None)
        elif isinstance(change, RowPolicyPut):
            self._rules.setdefault(change.rule.covers, {})[change.rule.key] = change.rule
        else:
            table = change.key[0]
            self._rules.setdefault(fold_name(table[0], table[1:]), {})[change.key] = None

    def index(self) -> Index:
        grantees = dict[str, GranteeTree | None]()
        while self._grantees:  # the memory of each edit serves the next tree
            grantee, edit = self._grantees.popitem()
            grantees[grantee] = edit.tree() or None
            del edit
        memberships = {grantee: roles or None for grantee, roles in self._memberships.items()}
        rules = {table: merge(self._index.rules.get(table), new) or None for table, new in self._rules.items()}
        return Index(
            self._objects.tree(),
            merge(self._index.grantees, grantees),
            merge(self._index.memberships, memberships),
            merge(self._index.managed, self._managed),
            self._layout,
            merge(self._index.rules, rules),
        )

    def _set_grant(self, grant: Grant, *, wanted: bool) -> None:
        key, split = self._last_split
        if grant.object is not key:
            split = split_key(grant.object)
            self._last_split = grant.object, split
        path, name = split
        node = self._objects.get(path, name) or UNKNOWN
        before = node.grants.get(grant.principal, NO_PRIVILEGES)
        if before.has(grant.privilege, grant.id) == wanted:
            return
        after = before.toggle(grant.privilege, grant.id)
        grants = node.grants.delete(grant.principal) if after is None else node.grants.set(grant.principal, after)
        self._set_node(split, node, ObjectNode(node.registered, grants, node.children))
        self._set_privileges(grant.principal, split, after or NO_PRIVILEGES, (node.id, node.id))
        if name[0] == "role":
            self._set_membership(grant.principal, name[1], bool(after and after.counting(node.id) & MEMBERSHIP))

    def _register(self, key: ObjectKey, registered: Object | None) -> None:
        split = split_key(key)
        name = split[1]
        node = self._objects.get(*split) or UNKNOWN
        before = node.registered or Object(key)
        after = registered or Object(key)
        self._set_node(split, node, ObjectNode(registered, node.grants, node.children))
        if (before.project, before.managed) != (after.project, after.managed):
            self._managed[key] = after.managed or None
            if name[0] not in _WITHOUT_CONTENT:
                self._layout = object()
        # A new id decides anew which grants with an id count, although no grant changed: each of these grantees gets a
        # new tree, and so every cache of such a grantee reads again.
        bound = [grantee for grantee, stored in node.grants.items() if stored.ids] if before.id != after.id else []
        for grantee in bound:
            stored = node.grants[grantee]
            self._set_privileges(grantee, split, stored, (before.id, after.id))
            if name[0] == "role":
                self._set_membership(grantee, name[1], bool(stored.counting(after.id) & MEMBERSHIP))

    def _set_node(self, split: tuple[ContainerPath, ObjectName], before: ObjectNode, after: ObjectNode) -> None:
        """Set the node of an object, and update the counts of known objects in the containers above."""
        while True:  # no recursion: namespaces can nest without limit
            path, name = split
            is_known = after.is_known
            self._objects.set(path, name, after if is_known else None)
            # Containers above count this object only once: they change only if the object appears or disappears.
            if (before is not UNKNOWN) == is_known or not path:
                return
            split = self._container(path)
            before = self._objects.get(*split) or UNKNOWN
            after = ObjectNode(before.registered, before.grants, before.children + (1 if is_known else -1))

    def _set_privileges(
        self, grantee: str, split: tuple[ContainerPath, ObjectName], stored: StoredPrivileges, ids: tuple[str, str]
    ) -> None:
        """Set the privileges of a grantee on an object. `ids` are the registered ids before and after the change."""
        path, name = split
        edit = self._grantee_edit(grantee)
        before = edit.get(path, name) or NO_GRANTS
        after = grantee_node(stored, before.below)
        edit.set(path, name, after if after.below or after.stored != NO_PRIVILEGES else None)
        was_visible, is_visible = before.is_visible(ids[0]), after.is_visible(ids[1])
        if was_visible != is_visible and path and name[0] in CONTENT_TYPES:
            self._count_visible(edit, path, 1 if is_visible else -1)

    def _count_visible(self, edit: TreeEdit[GranteeNode], path: ContainerPath, step: int) -> None:
        """Add `step` to the count of visible objects in the container at a path, and above as far as necessary.

        Each container counts only the visible objects directly inside. So the container above needs an update only if
        this container itself appears to the grantee or disappears. A grant then touches the counters up its path
        until a container that was visible already, and no check ever has to ask all children.
        """
        while path:
            path, name = self._container(path)
            before = edit.get(path, name) or NO_GRANTS
            stored, below = before.stored, before.below + step
            edit.set(path, name, grantee_node(stored, below) if below or stored != NO_PRIVILEGES else None)
            # Other objects inside keep the container visible, before and after.
            if before.below and below:
                return
            # A grant on the container itself keeps the container visible, before and after.
            id = (self._objects.get(path, name) or UNKNOWN).id if stored.ids else ""
            if stored.counting(id) & VISIBILITY:
                return

    def _container(self, path: ContainerPath) -> tuple[ContainerPath, ObjectName]:
        split = self._containers.get(path)
        if split is None:
            split = self._containers[path] = split_key(container_key(path))
        return split

    def _grantee_edit(self, grantee: str) -> TreeEdit[GranteeNode]:
        edit = self._grantees.get(grantee)
        if edit is None:
            edit = self._grantees[grantee] = TreeEdit(self._index.grantees.get(grantee, EMPTY_TREE))
        return edit

    def _set_membership(self, grantee: str, role: str, is_member: bool) -> None:
        roles = self._memberships.get(grantee)
        if roles is None:
            roles = self._index.memberships.get(grantee, frozenset())
        self._memberships[grantee] = roles | {role} if is_member else roles - {role}
