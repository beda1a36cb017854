"""Where one principal stands: what it holds on an object, and which grant says so.

Owns the walk from an object up to the server and the look-up of what shows from below; knows no action and no rule.
What is worked out about a container is kept as long as no change touches the principal's grants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final, TypeVar

from immutables import Map

from pdp.engines.grants.rules import ASKS_BELOW, CIRCUMSTANCE, PRECEDENCE, EffectiveRelations, Witness, evaluate
from pdp.facts.nodes import EMPTY_TREE, GranteeNode, GranteeTree, StoredPrivileges
from pdp.facts.objects import (
    BIT,
    VISIBILITY,
    ContainerPath,
    ObjectKey,
    ObjectName,
    container_key,
    join_key,
    key_text,
    split_key,
)
from pdp.facts.snapshot import Facts
from pdp.model.checks import CONTENT_TYPES, Principal
from pdp.model.vocabulary import PRIVILEGES

K = TypeVar("K")
V = TypeVar("V")
Extra = Mapping[ObjectKey, int]
"""Masks of privileges held without a stored grant, by object."""

_AUTHENTICATED: Final = CIRCUMSTANCE["authenticated"]
_MANAGED: Final = CIRCUMSTANCE["managed_access"]
_SELF: Final = CIRCUMSTANCE["self"]
_LONGEST_KEPT: Final = 256
"""Characters of a path that is remembered."""
_MOST_KEPT: Final = 4096
"""What a standing remembers that shares its room with no other."""
_WITH_BELOW: Final = frozenset({"project", "warehouse"})


class ContainerAccess:
    """The inside of one container: what is held on the container, and where in it the principal was granted more.

    `granted` are the leaves at which one of the grantees holds something, or something below shows; mostly none.
    """

    __slots__ = ("_always", "_plain", "above", "granted")

    def __init__(
        self, above: EffectiveRelations, granted: tuple[Map[ObjectName, GranteeNode], ...], always: int
    ) -> None:
        self.above = above
        self.granted = granted
        self._always = always
        self._plain: dict[str, EffectiveRelations] = {}

    def plain(self, type: str) -> EffectiveRelations:
        """What is held on anything of a type in here on which nothing was granted."""
        known = self._plain.get(type)
        if known is None:
            known = self._plain[type] = evaluate(type, self._always, self.above, False)
        return known


@lru_cache(maxsize=4096)
def _blank(above: EffectiveRelations, always: int) -> ContainerAccess:
    """The column of a container in which nothing was granted: one for all containers on which the same is held."""
    return ContainerAccess(above, (), always)


class CacheBudget:
    """How much more may be remembered, by all standings that share it."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, length: int) -> bool:
        """Whether there is room for one more, whose name has so many characters."""
        if length > _LONGEST_KEPT or self.left <= 0:
            return False
        self.left -= 1
        return True


class EffectiveAccess:
    """One principal in one snapshot, or in successors of it that changed nothing about the principal.

    `grantees` are the ids whose grants count, the principal's own first; none for anonymous.
    """

    def __init__(self, facts: Facts, principal: Principal, extra: Extra, room: CacheBudget | None = None) -> None:
        self.facts = facts
        self.principal = principal
        self.extra = extra
        self.grantees = grantees_of(facts, principal)
        self._columns: dict[ContainerPath, ContainerAccess] = {}
        self._room = room or CacheBudget(_MOST_KEPT)
        self._own = {(principal.type, (principal.name,)), *(("role", (role,)) for role in principal.member_of)}
        self._always = _AUTHENTICATED if self.grantees else 0
        self._managed = facts.index.managed
        self._sources = self._read(facts)
        self._holdings = [holdings for holdings, _ in self._sources if holdings]
        self._top: dict[ObjectKey, EffectiveRelations] = {}
        self._aboves: dict[ObjectKey, EffectiveRelations] = {}
        self._reasons: dict[tuple[ObjectKey, int, bool], str] = {}

    def serves(self, facts: Facts) -> bool:
        """Whether all that this standing rests on is the same in another snapshot; from then on it is about that."""
        if facts is self.facts:
            return True
        known = self.facts
        if facts.index.layout is not known.index.layout or facts.projects is not known.projects:
            return False
        pairs = zip(self._sources, self._read(facts), strict=True)
        if any(held is not now_held or joined is not now_joined for (held, joined), (now_held, now_joined) in pairs):
            return False
        self.facts = facts
        return True

    def held(self, key: ObjectKey, id: str = "") -> EffectiveRelations:
        """What the principal holds on an object; `id` is the one that the asked resource carries."""
        place, leaf = split_key(key)
        if place:
            return self.held_inside(self.inside(place), place, leaf, id)
        known = self._top.get(key)
        if known is None or id:
            below = self._shows_below(key) if key[0] in _WITH_BELOW else False
            known = self._held_top(key, id, below)
            if not id:
                self._keep(self._top, key, known, key)
        return known

    def held_inside(
        self, column: ContainerAccess, place: ContainerPath, leaf: ObjectName, id: str
    ) -> EffectiveRelations:
        """What the principal holds on something in a container."""
        type = leaf[0]
        if not column.granted and not self.extra and type != "namespace":
            return column.plain(type)
        below = any(holding.below for holding in _at(leaf, column.granted))
        return evaluate(type, self._stored(column.granted, place, leaf, id), column.above, below)

    def inside(self, place: ContainerPath) -> ContainerAccess:
        """The inside of a warehouse or namespace."""
        column = self._columns.get(place)
        if column is not None:
            return column
        depth = len(place)
        while column is None and depth > 1:  # upward, then down again: paths of any depth need no recursion
            depth -= 1
            column = self._columns.get(place[:depth])
        if column is None:
            depth, column = 1, self._open(place[:1], self._above(("warehouse", place[:1])))
        for length in range(depth + 1, len(place) + 1):
            column = self._open(place[:length], self._container(column, place[: length - 1], place[length - 1]))
        return column

    def stored(self, key: ObjectKey, id: str = "") -> int:
        """The mask of privileges stored for the principal on this very object, and of the circumstances there."""
        place, leaf = split_key(key)
        return self._stored(self._inside_of(place), place, leaf, id)

    def reason(self, key: ObjectKey, id: str, witness: Witness) -> str:
        """The determining grant in the words of `by`."""
        below, distance, rank = witness
        if distance == 0 and not below:
            return self._name(key, PRECEDENCE[rank], id)
        target = self._ancestor(key, distance) if distance else key
        asked = (target, rank, below)
        known = self._reasons.get(asked)
        if known is None:
            known = self._below(target) if below else self._name(target, PRECEDENCE[rank], "")
            self._keep(self._reasons, asked, known, target)
        return known

    def grantee(self, key: ObjectKey, privilege: str, id: str = "") -> str | None:
        """For whom the privilege is stored on the object: the principal itself before the smallest role."""
        grants = self.facts.node(key).grants
        bit = BIT[privilege]
        place, leaf = split_key(key)
        for grantee in self.grantees:
            stored = grants.get(grantee)
            if stored is not None and self._counting(place, leaf, stored, id) & bit:
                return grantee
        return None

    def _read(self, facts: Facts) -> list[tuple[GranteeTree, frozenset[str] | None]]:
        index = facts.index
        return [(index.grantees.get(g, EMPTY_TREE), index.memberships.get(g)) for g in self.grantees]

    def _inside_of(self, place: ContainerPath) -> tuple[Map[ObjectName, GranteeNode], ...]:
        """What the grantees have in a place."""
        return tuple([here for holdings in self._holdings if (here := holdings.get(place)) is not None])

    def _stored(
        self, granted: tuple[Map[ObjectName, GranteeNode], ...], place: ContainerPath, leaf: ObjectName, id: str
    ) -> int:
        """The mask of what counts at a leaf, of all that was granted in its place, and of the circumstances there."""
        mask = self._always | self._circumstances(join_key(place, leaf))
        for holding in _at(leaf, granted):
            mask |= self._counting(place, leaf, holding.stored, id)
        return mask

    def _counting(self, place: ContainerPath, leaf: ObjectName, stored: StoredPrivileges, id: str) -> int:
        return stored.counting(self.facts.node(join_key(place, leaf)).id, id) if stored.ids else stored.mask

    def _circumstances(self, key: ObjectKey) -> int:
        """The mask of what holds on an object beside grants."""
        found = _MANAGED if self._managed and key in self._managed else 0
        if key in self._own:
            found |= _SELF
        return found | self.extra.get(key, 0) if self.extra else found

    def _above(self, key: ObjectKey) -> EffectiveRelations:
        """What is held on a server, project or warehouse, for what is in it: there, nothing asks what is below."""
        known = self._aboves.get(key)
        if known is None:
            known = self._held_top(key, "", False)
            self._keep(self._aboves, key, known, key)
        return known

    def _held_top(self, key: ObjectKey, id: str, below: bool) -> EffectiveRelations:
        parent = self.facts.parent(key)
        above = None if parent is None else self._above(parent) if key[0] not in ASKS_BELOW else self.held(parent)
        return evaluate(key[0], self.stored(key, id), above, below)

    def _container(self, column: ContainerAccess, place: ContainerPath, name: str) -> EffectiveRelations:
        """What is held on a namespace, for what is in it."""
        return evaluate("namespace", self._stored(column.granted, place, ("namespace", name), ""), column.above, False)

    def _open(self, place: ContainerPath, above: EffectiveRelations) -> ContainerAccess:
        granted = self._inside_of(place)
        column = ContainerAccess(above, granted, self._always) if granted else _blank(above, self._always)
        if self._room.take(sum(map(len, place))):
            self._columns[place] = column
        return column

    def _keep(self, memory: dict[K, V], name: K, value: V, about: ObjectKey) -> None:
        if self._room.take(sum(map(len, about[1]))):
            memory[name] = value

    def _shows_below(self, key: ObjectKey) -> bool:
        """Whether something shows below a warehouse or a project."""
        if key[0] == "project":
            return any(self._shows(("warehouse", (name,))) for name in self.facts.warehouses(key[1][0]))
        return any(holding.below for holding in self._at(key))

    def _shows(self, key: ObjectKey) -> bool:
        place, leaf = split_key(key)
        return any(h.below or self._counting(place, leaf, h.stored, "") & VISIBILITY for h in self._at(key))

    def _at(self, key: ObjectKey) -> list[GranteeNode]:
        """What each of the grantees has at an object."""
        place, leaf = split_key(key)
        return _at(leaf, self._inside_of(place))

    def _ancestor(self, key: ObjectKey, distance: int) -> ObjectKey:
        """The object so many steps above another."""
        type, parts = key
        left = len(parts) - distance
        if left > 0 and type in CONTENT_TYPES:
            return container_key(parts[:left])
        return next(islice(self.facts.ancestors(key), distance - 1, None))

    def _below(self, target: ObjectKey) -> str:
        nearest = self._nearest_below(target)
        mask = self.stored(nearest) & VISIBILITY
        return self._name(nearest, next(p for p in PRIVILEGES if mask & BIT[p]), "")

    def _nearest_below(self, target: ObjectKey) -> ObjectKey:
        """The nearest object inside that shows by a grant of its own; of several, the smallest by name."""
        inside: Iterable[ObjectKey]
        if target[0] == "project":
            inside = [("warehouse", (name,)) for name in self.facts.warehouses(target[1][0])]
        else:
            inside = self._granted_inside(target[1])
        while True:
            showing = [key for key in inside if self.stored(key) & VISIBILITY]
            if showing:
                return min(showing, key=key_text)
            inside = {deeper for key in inside if self._shows(key) for deeper in self._granted_inside(key[1])}
            assert inside, f"nothing shows below {key_text(target)}"

    def _granted_inside(self, place: ContainerPath) -> set[ObjectKey]:
        return {join_key(place, leaf) for holdings in self._holdings for leaf in holdings.get(place, ())}

    def _name(self, key: ObjectKey, privilege: str, id: str) -> str:
        if privilege in CIRCUMSTANCE:
            return f"grants:{privilege}"
        grantee = self.grantee(key, privilege, id)
        if grantee is None:
            return "config:store.bootstrap_admins"
        return f"grants:{privilege} on {key_text(key)} via {grantee}"


def _at(leaf: ObjectName, granted: tuple[Map[ObjectName, GranteeNode], ...]) -> list[GranteeNode]:
    return [holding for here in granted if (holding := here.get(leaf)) is not None]


def grantees_of(facts: Facts, principal: Principal) -> tuple[str, ...]:
    """The ids whose grants count for a principal, its own first; of token roles, what they are mapped to."""
    if principal.type == "anonymous":
        return ()
    return (principal.id, *sorted({f"role:{role}" for role in facts.roles_of(principal)} - {principal.id}))
