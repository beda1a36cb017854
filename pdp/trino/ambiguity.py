"""Names that an engine cannot tell apart: known objects that differ by case, or by where dots divide a schema's name.

An engine that folds case and writes `[a, b]` as `a.b` means one of several objects by such a name, and nobody knows
which. Where only a namespace called `a.b` is known, `a.b` is not `[a, b]` either. Reads facts, decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from itertools import islice
from typing import Final, Generic, TypeAlias, TypeVar

from immutables import Map

from pdp.facts.index import ObjectNode
from pdp.facts.objects import ContainerPath, ObjectName
from pdp.facts.snapshot import Facts

T = TypeVar("T")
_Here: TypeAlias = Map[ObjectName, ObjectNode]
_World: TypeAlias = Map[ContainerPath, _Here]
_NOTHING: Final[_Here] = Map()
_LONGEST_KEPT: Final = 256
"""Characters of the name of a schema that anybody may ask about and that is remembered."""
_LONGEST: Final = 8192
_MOST_PARTS: Final = 32
"""Signs and parts of a name that are looked at; of a longer one nobody could tell in time what it means."""
_KEPT: Final = 4096
"""Schemas, and places, about which something is remembered."""


def is_ambiguous_schema(facts: Facts, warehouse: str, path: ContainerPath) -> bool:
    """Whether several known namespaces are one schema to an engine, or what holds it where it is not known itself."""
    return ambiguous_tables(facts, warehouse, path) is EVERY


def ambiguous_tables(facts: Facts, warehouse: str, path: ContainerPath) -> Container[str] | None:
    """Names in a schema that mean several known tables or views to an engine, in the one case that it folds to.

    EVERY where the schema itself means several namespaces or another one, None where no name is ambiguous.
    """
    known = facts.index.objects
    if sum(map(len, path)) > _LONGEST_KEPT:
        return _find(known, warehouse, path)
    return _found.of(known, (warehouse, *path), lambda: _find(known, warehouse, path))


class _Every:
    """Holds whatever it is asked for."""

    def __contains__(self, name: object) -> bool:
        return True


EVERY: Final = _Every()


class _Newest(Generic[T]):
    """What was derived, by place, of the map that was asked about last: another map takes its room, so none is kept."""

    def __init__(self) -> None:
        self._known: _World = Map()
        self._kept: dict[ContainerPath, T] = {}

    def of(self, known: _World, about: ContainerPath, derive: Callable[[], T]) -> T:
        if known is not self._known or len(self._kept) >= _KEPT:
            self._known, self._kept = known, {}
        if about not in self._kept:
            self._kept[about] = derive()
        return self._kept[about]


class _Derived(Generic[T]):
    """What was derived of what is known at a place, as long as that is the very same map; of each place the last."""

    def __init__(self, derive: Callable[[_Here], T]) -> None:
        self._derive = derive
        self._kept: dict[ContainerPath, tuple[_Here, T]] = {}

    def of(self, known: _World, place: ContainerPath) -> T:
        here = known.get(place, _NOTHING)
        if here is _NOTHING:
            return self._derive(here)
        found = self._kept.get(place)
        if found is None or found[0] is not here:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            found = self._kept[place] = here, self._derive(here)
        return found[1]


def _find(known: _World, warehouse: str, path: ContainerPath) -> Container[str] | None:
    spelling = ".".join(path).casefold()
    if len(spelling) > _LONGEST or spelling.count(".") >= _MOST_PARTS:
        return EVERY
    whole = spelling
    while not (places := _places(known, warehouse, spelling)):
        spelling = spelling.rpartition(".")[0]
    if len(places) > 1 or not _is_divided_alike(places[0], path):
        return EVERY
    return (_doubles.of(known, places[0]) or None) if spelling == whole else None


def _is_divided_alike(place: ContainerPath, path: ContainerPath) -> bool:
    """Whether dots divide a path as they divide the known place: rights on `[a]` say nothing of `["a.b"]`."""
    parts = place[1:]
    return [part.casefold() for part in parts] == [part.casefold() for part in path[: len(parts)]]


def _places(known: _World, warehouse: str, spelling: str) -> list[ContainerPath]:
    """The places that an engine calls so, two at most; the warehouse itself has no name in it."""
    return list(islice(_spelt(known, (warehouse,), spelling), 2))


def _spelt(known: _World, place: ContainerPath, rest: str) -> Iterator[ContainerPath]:
    """The places below one that an engine calls `rest`."""
    if not rest:
        yield place
        return
    spaces = _namespaces.of(known, place)
    if not spaces:
        return
    end = rest.find(".")
    while True:
        for name in spaces.get(rest if end < 0 else rest[:end], ()):
            yield from _spelt(known, (*place, name), "" if end < 0 else rest[end + 1 :])
        if end < 0:
            return
        end = rest.find(".", end + 1)


def _by_spelling(here: _Here) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for type, name in here:
        if type == "namespace":
            folded = name.casefold()
            found[folded] = (*found.get(folded, ()), name)
    return found


def _spelt_alike(here: _Here) -> frozenset[str]:
    counts = Counter(name.casefold() for name in {name for type, name in here if type != "namespace"})
    return frozenset(name for name, count in counts.items() if count > 1)


_found: Final = _Newest[Container[str] | None]()
_namespaces: Final = _Derived(_by_spelling)
_doubles: Final = _Derived(_spelt_alike)
