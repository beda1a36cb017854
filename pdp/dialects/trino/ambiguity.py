"""Ambiguous names: known objects that differ only by case, or by how dots divide the name of a schema.

Trino folds case and writes the namespace [a, b] as `a.b`. A name is ambiguous if several known objects match the name.
A name is ambiguous, too, if the only match has other parts: a namespace called `a.b` is not [a, b].

Reads facts, decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from itertools import islice
from typing import Final, Generic, TypeAlias, TypeVar

from immutables import Map

from pdp.facts.nodes import ObjectNode
from pdp.facts.objects import ContainerPath, ObjectName
from pdp.facts.snapshot import Facts
from pdp.model.bounded_cache import BoundedCache
from pdp.model.vocabulary import TABULAR_TYPES

T = TypeVar("T")
_Content: TypeAlias = Map[ObjectName, ObjectNode]
_Index: TypeAlias = Map[ContainerPath, _Content]
_EMPTY: Final[_Content] = Map()
_MEMO_ENTRIES: Final = 4096
"""Schemas, and containers, with remembered values."""
_WAREHOUSES: Final = 16
_LONGEST_REMEMBERED: Final = 256
"""Warehouses with remembered schemas, and characters of a remembered name."""
_LONGEST_NAME: Final = 8192
_MOST_PARTS: Final = 32
"""Characters and dot-separated parts of a schema name. A longer name counts as ambiguous: the search is not bounded."""


def is_ambiguous_schema(facts: Facts, warehouse: str, path: ContainerPath) -> bool:
    """Tell whether a schema, or the nearest known schema above, matches several namespaces or one with other parts."""
    return ambiguous_tables(facts, warehouse, path) is EVERY_NAME


def ambiguous_tables(facts: Facts, warehouse: str, path: ContainerPath) -> Container[str] | None:
    """Return the case-folded names with several known tables or views in a schema; None without such a name.

    Return EVERY_NAME for an ambiguous schema.
    """
    return _schemas.ambiguous_names(facts.index.objects, warehouse, path)


def has_ambiguous_tables(facts: Facts, warehouse: str, paths: Collection[ContainerPath]) -> bool:
    """Tell whether `ambiguous_tables` returns names for any of several schemas."""
    return _schemas.has_ambiguous_names(facts.index.objects, warehouse, paths)


def known_container(facts: Facts, warehouse: str, path: ContainerPath) -> ContainerPath | None:
    """Return the known container that a schema matches in any case; None without one.

    The schema must not be ambiguous: then at most one container matches.
    """
    objects = facts.index.objects
    found = next(_matches(objects, (warehouse,), ".".join(path).casefold()), None)
    return found if found in objects else None


def spellings(objects: _Index, container: ContainerPath, name: str) -> tuple[str, ...]:
    """Return the spellings of a name among the known tables and views of a container."""
    folded = name.casefold()
    content = objects[container]
    plain = (folded,) if any((type, folded) in content for type in TABULAR_TYPES) else ()
    return plain + _unfolded_tables.get(objects, container).get(folded, ())


class _EveryName:
    """Container of every name."""

    def __contains__(self, name: object) -> bool:
        return True


_MISSING: Final = object()
"""Marker of a schema that is not remembered. None means a schema without ambiguous names."""
EVERY_NAME: Final = _EveryName()


class _SchemaMemo:
    """Ambiguous names by schema, for one index. Another index empties the memory."""

    def __init__(self) -> None:
        self.names: BoundedCache[ContainerPath, Container[str] | None] = BoundedCache(
            _MEMO_ENTRIES, _LONGEST_REMEMBERED
        )
        self._plain: BoundedCache[str, set[ContainerPath]] = BoundedCache(_WAREHOUSES, _LONGEST_REMEMBERED)
        """Warehouse -> schemas without ambiguous names."""
        self._index: _Index = Map()

    def ambiguous_names(self, index: _Index, warehouse: str, path: ContainerPath) -> Container[str] | None:
        if index is not self._index:
            self._follow(index)
        key = (warehouse, *path)
        found = self.names.get(key, _MISSING)
        if found is not _MISSING:
            return found  # type: ignore[return-value]
        return self.names.keep(key, _find_ambiguous_names(index, warehouse, path), sum(map(len, key)))

    def has_ambiguous_names(self, index: _Index, warehouse: str, paths: Collection[ContainerPath]) -> bool:
        if index is not self._index:
            self._follow(index)
        plain = self._plain.get(warehouse)
        if plain is None:
            plain = self._plain.keep(warehouse, set(), len(warehouse))
        if plain.issuperset(paths):
            return False
        if any(self.ambiguous_names(index, warehouse, path) is not None for path in paths):
            return True
        plain.update(path for path in paths if sum(map(len, path)) <= _LONGEST_REMEMBERED)
        if len(plain) > _MEMO_ENTRIES:
            plain.clear()
        return False

    def _follow(self, index: _Index) -> None:
        """Forget the names of the index before."""
        self._index = index
        self.names.clear()
        self._plain.clear()


class _ContentMemo(Generic[T]):
    """Values derived from the content of containers, one per container.

    A value is valid while the index holds the very same content. A new index shares all
    unchanged content with the index before.
    """

    def __init__(self, derive: Callable[[_Content], T]) -> None:
        self.values: BoundedCache[ContainerPath, tuple[_Content, T]] = BoundedCache(_MEMO_ENTRIES)
        self._derive = derive

    def get(self, index: _Index, container: ContainerPath) -> T:
        content = index.get(container, _EMPTY)
        if content is _EMPTY:  # not remembered: a request may name any number of unknown containers
            return self._derive(content)
        entry = self.values.get(container)
        if entry is None or entry[0] is not content:
            entry = self.values.keep(container, (content, self._derive(content)))
        return entry[1]


def _find_ambiguous_names(index: _Index, warehouse: str, path: ContainerPath) -> Container[str] | None:
    spelling = ".".join(path).casefold()
    if len(spelling) > _LONGEST_NAME or spelling.count(".") >= _MOST_PARTS:
        return EVERY_NAME
    # The nearest known schema decides on an unknown one. The loop ends at the warehouse, which the empty name matches.
    nearest = spelling
    while not (containers := list(islice(_matches(index, (warehouse,), nearest), 2))):
        nearest = nearest.rpartition(".")[0]
    if len(containers) > 1 or not _has_same_parts(containers[0], path):
        return EVERY_NAME
    if nearest != spelling:
        return None
    return _doubled_tables.get(index, containers[0]) or None


def _has_same_parts(container: ContainerPath, path: ContainerPath) -> bool:
    """Tell whether dots divide a path like the known container: rights on `[a]` say nothing about `["a.b"]`."""
    parts = container[1:]
    return [part.casefold() for part in parts] == [part.casefold() for part in path[: len(parts)]]


def _matches(index: _Index, container: ContainerPath, spelling: str) -> Iterator[ContainerPath]:
    """Yield the known containers below `container` whose relative path is `spelling`, joined by dots and folded."""
    if not spelling:
        yield container
        return
    namespaces = _namespaces.get(index, container)
    if not namespaces:
        return
    # a namespace's own name may contain dots: the first name may end at each dot, or with the text
    end = spelling.find(".")
    while end >= 0:
        for name in namespaces.get(spelling[:end], ()):
            yield from _matches(index, (*container, name), spelling[end + 1 :])
        end = spelling.find(".", end + 1)
    for name in namespaces.get(spelling, ()):
        yield (*container, name)


def _names_by_folding(content: _Content) -> Mapping[str, tuple[str, ...]]:
    """Return the namespaces of a container by their case-folded names."""
    names: dict[str, tuple[str, ...]] = {}
    for type, name in content:
        if type == "namespace":
            folded = name.casefold()
            names[folded] = (*names.get(folded, ()), name)
    return names


def _names_with_doubles(content: _Content) -> frozenset[str]:
    """Return the case-folded names with several spellings among the tables and views of a container."""
    counts = Counter(name.casefold() for name in {name for type, name in content if type != "namespace"})
    return frozenset(name for name, count in counts.items() if count > 1)


def _unfolded_names(content: _Content) -> Mapping[str, tuple[str, ...]]:
    """Return the names of tables and views that differ from their folded spelling, by this spelling."""
    names: dict[str, tuple[str, ...]] = {}
    for name in {name for type, name in content if type != "namespace" and name != name.casefold()}:
        folded = name.casefold()
        names[folded] = (*names.get(folded, ()), name)
    return names


_schemas: Final = _SchemaMemo()
_namespaces: Final = _ContentMemo(_names_by_folding)
_doubled_tables: Final = _ContentMemo(_names_with_doubles)
_unfolded_tables: Final = _ContentMemo(_unfolded_names)
