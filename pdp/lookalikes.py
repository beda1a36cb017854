"""Names that an engine cannot tell apart: known objects that differ by case, or by where dots divide a schema's name.

An engine that folds case and writes `[a, b]` as `a.b` means one of several objects by such a name, and nobody knows
which. Reads facts, decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from immutables import Map

from pdp.facts import Facts
from pdp.index import Entry
from pdp.objects import Leaf, Place

_NOTHING: Final[Map[Leaf, Entry]] = Map()


_LONGEST_KEPT: Final = 256
"""Characters of the name of a schema that anybody may ask about and that is remembered."""


def is_ambiguous_schema(facts: Facts, warehouse: str, path: Place) -> bool:
    """Whether several known namespaces of a warehouse are one schema to an engine."""
    return ambiguous_tables(facts, warehouse, path) is EVERY


def ambiguous_tables(facts: Facts, warehouse: str, path: Place) -> Container[str] | None:
    """Names in a schema that mean several known tables or views to an engine, in the one case that it folds to.

    EVERY where the schema itself means several namespaces, None where no name is ambiguous.
    """
    find = _found if sum(map(len, path)) <= _LONGEST_KEPT else _found.__wrapped__
    return find(_Here(facts.index.known), warehouse, path)


class _Every:
    """Holds whatever it is asked for."""

    def __contains__(self, name: object) -> bool:
        return True


EVERY: Final = _Every()


class _Here:
    """A map of known objects as a key of what is derived from it: the very same map, not an equal one."""

    __slots__ = ("known",)

    def __init__(self, known: Map[Any, Any]) -> None:
        self.known = known

    def __hash__(self) -> int:
        return id(self.known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Here) and other.known is self.known


@lru_cache(maxsize=4096)
def _found(world: _Here, warehouse: str, path: Place) -> Container[str] | None:
    places = list(_spelt(world, (warehouse,), ".".join(path).casefold()))
    if len(places) > 1:
        return EVERY
    place = places[0] if places else (warehouse, *path)
    return _doubles(_Here(world.known.get(place, _NOTHING))) or None


def _spelt(world: _Here, place: Place, rest: str) -> Iterator[Place]:
    """The places below one that an engine calls `rest`."""
    if not rest:
        yield place
        return
    spaces = _namespaces(_Here(world.known.get(place, _NOTHING)))
    if not spaces:
        return
    end = rest.find(".")
    while True:
        for name in spaces.get(rest if end < 0 else rest[:end], ()):
            yield from _spelt(world, (*place, name), "" if end < 0 else rest[end + 1 :])
        if end < 0:
            return
        end = rest.find(".", end + 1)


@lru_cache(maxsize=1024)
def _namespaces(here: _Here) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for type, name in here.known:
        if type == "namespace":
            folded = name.casefold()
            found[folded] = (*found.get(folded, ()), name)
    return found


@lru_cache(maxsize=1024)
def _doubles(here: _Here) -> frozenset[str]:
    counts = Counter(name.casefold() for name in {name for type, name in here.known if type != "namespace"})
    return frozenset(name for name, count in counts.items() if count > 1)
