"""The indexes of facts, and how they follow changes: persistent maps, so that a successor shares the unchanged parts.

Owns two indexes. One holds every known object by its place (`ObjectNode`). The other holds, for every grantee, the
places of its grants and of everything visible below them (`GranteeNode`). Building from nothing and following a change
are the same code. A change costs its own size and the depth of its object, not the size of the world.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
from immutables import Map

from pdp.facts.objects import (
    BIT,
    MEMBERSHIP,
    SERVER,
    VISIBILITY,
    Change,
    ContainerPath,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectKey,
    ObjectName,
    ObjectPut,
    container_key,
    split_key,
)
from pdp.model.checks import CONTENT_TYPES

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class StoredPrivileges(msgspec.Struct, frozen=True, gc=False):
    """What one grantee was granted on one object: `mask` for whatever id the object has, `ids` for one id each."""

    mask: int
    ids: tuple[tuple[str, int], ...] = ()

    def counting(self, registered: str, asked: str = "") -> int:
        """The mask of what counts for an object registered with one id and asked about with another, both may be ""."""
        if not self.ids:
            return self.mask
        found = self.mask
        for id, mask in self.ids:
            if registered in ("", id) and asked in ("", id):
                found |= mask
        return found

    def toggled(self, privilege: str, id: str) -> StoredPrivileges | None:
        """The same with a privilege given or taken; None where nothing is left."""
        bit = BIT[privilege]
        if not id:
            return _stored(self.mask ^ bit) if not self.ids else _kept(StoredPrivileges(self.mask ^ bit, self.ids))
        ids = dict(self.ids)
        ids[id] = ids.get(id, 0) ^ bit
        return _kept(StoredPrivileges(self.mask, tuple(sorted((id, mask) for id, mask in ids.items() if mask))))

    def has(self, privilege: str, id: str) -> bool:
        """Whether this very grant is there."""
        return bool((dict(self.ids).get(id, 0) if id else self.mask) & BIT[privilege])


class ObjectNode(msgspec.Struct, frozen=True, gc=False):
    """A known object: registered, or granted on, or above one that is. `children` counts the known ones inside."""

    registered: Object | None = None
    grants: Map[str, StoredPrivileges] = Map()
    children: int = 0

    @property
    def id(self) -> str:
        """The id it is registered with."""
        return self.registered.id if self.registered else ""


class GranteeNode(msgspec.Struct, frozen=True, gc=False):
    """What one grantee has at one object; `below` counts what shows directly inside it."""

    stored: StoredPrivileges
    below: int = 0


NOTHING: Final = StoredPrivileges(0)
UNKNOWN: Final = ObjectNode()
_NOWHERE: Final = GranteeNode(NOTHING)
GranteeTree: TypeAlias = Map[ContainerPath, Map[ObjectName, GranteeNode]]
"""Everywhere that one grantee holds something, or something below shows."""
EMPTY_TREE: Final[GranteeTree] = Map()


class Index(msgspec.Struct, frozen=True):
    """One state. `layout` is another object after whatever may change the rights of one whose grants did not change."""

    objects: Map[ContainerPath, Map[ObjectName, ObjectNode]] = Map()
    grantees: Map[str, GranteeTree] = Map()
    memberships: Map[str, frozenset[str]] = Map()
    managed: Map[ObjectKey, bool] = Map()
    layout: object = None

    def node(self, key: ObjectKey) -> ObjectNode:
        """What is known of an object."""
        place, leaf = split_key(key)
        here = self.objects.get(place)
        return here.get(leaf, UNKNOWN) if here is not None else UNKNOWN

    def after(self, changes: Iterable[Change]) -> Index:
        """The state after some changes, in order. A change that is no change (a grant that is there) is none."""
        following = _IndexBuilder(self)
        for change in changes:
            following.follow(change)
        return following.index()


class _Overlay(Generic[V]):
    """A tree being changed: what is new lies over what was."""

    __slots__ = ("_base", "_new")

    def __init__(self, base: Map[ContainerPath, Map[ObjectName, V]]) -> None:
        self._base = base
        self._new: dict[ContainerPath, dict[ObjectName, V | None]] = {}

    def get(self, place: ContainerPath, leaf: ObjectName) -> V | None:
        here = self._new.get(place)
        if here is not None and leaf in here:
            return here[leaf]
        before = self._base.get(place)
        return None if before is None else before.get(leaf)

    def set(self, place: ContainerPath, leaf: ObjectName, value: V | None) -> None:
        here = self._new.get(place)
        if here is None:
            here = self._new[place] = {}
        here[leaf] = value

    def tree(self) -> Map[ContainerPath, Map[ObjectName, V]]:
        found = {place: _merged(self._base.get(place), leaves) for place, leaves in self._new.items()}
        return _merged(self._base, {place: here or None for place, here in found.items()})


class _IndexBuilder:
    """An index following changes."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._known = _Overlay(index.objects)
        self._holdings: dict[str, _Overlay[GranteeNode]] = {}
        self._memberships: dict[str, frozenset[str]] = {}
        self._managed: dict[ObjectKey, bool | None] = {}
        self._layout = index.layout
        # worlds are built in the order of objects: what is derived from a key is derived once, and kept once
        self._last: tuple[ObjectKey, tuple[ContainerPath, ObjectName]] = (SERVER, split_key(SERVER))
        self._containers: dict[ContainerPath, tuple[ContainerPath, ObjectName]] = {}

    def follow(self, change: Change) -> None:
        if isinstance(change, GrantAdded):
            self._toggle(change.grant, wanted=True)
        elif isinstance(change, GrantRemoved):
            self._toggle(change.grant, wanted=False)
        elif isinstance(change, ObjectPut):
            self._register(change.object.key, change.object)
        else:
            self._register(change.key, None)

    def index(self) -> Index:
        holdings = {grantee: overlay.tree() or None for grantee, overlay in self._holdings.items()}
        memberships = {grantee: roles or None for grantee, roles in self._memberships.items()}
        return Index(
            self._known.tree(),
            _merged(self._index.grantees, holdings),
            _merged(self._index.memberships, memberships),
            _merged(self._index.managed, self._managed),
            self._layout,
        )

    def _toggle(self, grant: Grant, *, wanted: bool) -> None:
        key, found = self._last
        if grant.object is not key:
            found = split_key(grant.object)
            self._last = grant.object, found
        place, leaf = found
        entry = self._known.get(place, leaf) or UNKNOWN
        before = entry.grants.get(grant.principal, NOTHING)
        if before.has(grant.privilege, grant.id) == wanted:
            return
        after = before.toggled(grant.privilege, grant.id)
        grants = entry.grants.delete(grant.principal) if after is None else entry.grants.set(grant.principal, after)
        self._keep(found, entry, ObjectNode(entry.registered, grants, entry.children))
        self._hold(grant.principal, found, after or NOTHING, (entry.id, entry.id))
        if leaf[0] == "role":
            self._join(grant.principal, leaf[1], bool(after and after.counting(entry.id) & MEMBERSHIP))

    def _register(self, key: ObjectKey, registered: Object | None) -> None:
        found = split_key(key)
        leaf = found[1]
        entry = self._known.get(*found) or UNKNOWN
        was = entry.registered or Object(key)
        now = registered or Object(key)
        self._keep(found, entry, ObjectNode(registered, entry.grants, entry.children))
        bound = [grantee for grantee, stored in entry.grants.items() if stored.ids] if was.id != now.id else []
        if bound or (was.project, was.managed) != (now.project, now.managed):
            self._layout = object()
            self._managed[key] = now.managed or None
        for grantee in bound:
            stored = entry.grants[grantee]
            self._hold(grantee, found, stored, (was.id, now.id))
            if leaf[0] == "role":
                self._join(grantee, leaf[1], bool(stored.counting(now.id) & MEMBERSHIP))

    def _keep(self, at: tuple[ContainerPath, ObjectName], before: ObjectNode, after: ObjectNode) -> None:
        """An object's entry, and its container's count of those inside."""
        while True:  # no recursion: namespaces nest as deep as anybody likes
            place, leaf = at
            is_known = after.registered is not None or after.children > 0 or bool(after.grants)
            self._known.set(place, leaf, after if is_known else None)
            if (before is not UNKNOWN) == is_known or not place:
                return
            at = self._container(place)
            before = self._known.get(*at) or UNKNOWN
            after = ObjectNode(before.registered, before.grants, before.children + (1 if is_known else -1))

    def _hold(
        self, grantee: str, at: tuple[ContainerPath, ObjectName], stored: StoredPrivileges, ids: tuple[str, str]
    ) -> None:
        """What a grantee holds at an object, whose registered id was the first and is the second of `ids`."""
        place, leaf = at
        overlay = self._overlay(grantee)
        before = overlay.get(place, leaf) or _NOWHERE
        after = _holding(stored.mask, before.below) if not stored.ids else GranteeNode(stored, before.below)
        overlay.set(place, leaf, after if after.below or after.stored != NOTHING else None)
        was, now = _shows(before, ids[0]), _shows(after, ids[1])
        if was != now and place and leaf[0] in CONTENT_TYPES:
            self._shift(overlay, place, 1 if now else -1)

    def _shift(self, overlay: _Overlay[GranteeNode], place: ContainerPath, step: int) -> None:
        """Tell the containers above that one more inside shows, or one less: as far up as it makes a difference."""
        while place:
            place, leaf = self._container(place)
            before = overlay.get(place, leaf) or _NOWHERE
            stored, below = before.stored, before.below + step
            after = _holding(stored.mask, below) if not stored.ids else GranteeNode(stored, below)
            overlay.set(place, leaf, after if below or stored != NOTHING else None)
            # what was granted on the container itself did not change: only a count from or to zero can matter
            if before.below and below:
                return
            id = (self._known.get(place, leaf) or UNKNOWN).id if stored.ids else ""
            if stored.counting(id) & VISIBILITY:
                return

    def _container(self, place: ContainerPath) -> tuple[ContainerPath, ObjectName]:
        found = self._containers.get(place)
        if found is None:
            found = self._containers[place] = split_key(container_key(place))
        return found

    def _overlay(self, grantee: str) -> _Overlay[GranteeNode]:
        overlay = self._holdings.get(grantee)
        if overlay is None:
            overlay = self._holdings[grantee] = _Overlay(self._index.grantees.get(grantee, EMPTY_TREE))
        return overlay

    def _join(self, grantee: str, role: str, member: bool) -> None:
        roles = self._memberships.get(grantee)
        if roles is None:
            roles = self._index.memberships.get(grantee, frozenset())
        self._memberships[grantee] = roles | {role} if member else roles - {role}


def _shows(holding: GranteeNode, registered: str) -> bool:
    return holding.below > 0 or bool(holding.stored.counting(registered) & VISIBILITY)


def _merged(before: Map[K, V] | None, news: Mapping[K, V | None]) -> Map[K, V]:
    """A map with new values; None takes a key out."""
    changing = (before if before is not None else Map[K, V]()).mutate()
    for key, value in news.items():
        if value is not None:
            changing[key] = value
        else:
            changing.pop(key, None)
    return changing.finish()


def _kept(stored: StoredPrivileges) -> StoredPrivileges | None:
    return stored if stored.mask or stored.ids else None


@lru_cache(maxsize=4096)
def _stored(mask: int) -> StoredPrivileges | None:
    """Millions of grants share few masks."""
    return StoredPrivileges(mask) if mask else None


@lru_cache(maxsize=4096)
def _holding(mask: int, below: int) -> GranteeNode:
    return GranteeNode(_stored(mask) or NOTHING, below)
