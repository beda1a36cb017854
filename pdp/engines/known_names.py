"""Known names behind a schema as engines that fold names read it: its own spelling, and names that need care.

Trino lowers names and writes the namespace [a, b] as `a.b`. A name is ambiguous if several known objects match the
name, or if the only match has other parts: a namespace called `a.b` is not [a, b]. So is a name that equals a known one
by full case folding and not in lower case, such as `strasse` beside `stra\N{LATIN SMALL LETTER SHARP S}e`.

Reads facts and names that policies spell. Decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar
from unicodedata import category

import msgspec
from immutables import Map

from pdp.engines.engine import ForbiddenPath
from pdp.engines.spelled_names import NO_NAMES, SpelledNames
from pdp.facts.nodes import ObjectNode
from pdp.facts.objects import ContainerPath, ObjectName
from pdp.facts.snapshot import Facts
from pdp.model.bounded_cache import BoundedCache
from pdp.model.references import NESSIE_SIGNS
from pdp.model.vocabulary import TABULAR_TYPES

if TYPE_CHECKING:  # the settings take pydantic
    from pdp.config.warehouses import WarehouseSettings

T = TypeVar("T")
_Content: TypeAlias = Map[ObjectName, ObjectNode]
_Index: TypeAlias = Map[ContainerPath, _Content]
_EMPTY: Final[_Content] = Map()
_MEMO_ENTRIES: Final = 4096
"""Schemas, and containers, with remembered values."""
_WAREHOUSES: Final = 16
_LONGEST_REMEMBERED: Final = 256
"""Warehouses with remembered schemas, and characters of a remembered name."""


class KnownObjects(msgspec.Struct, frozen=True, eq=False):
    """Objects by container, known to facts or declared by policies."""

    objects: _Index
    declared: _Index = Map()

    @classmethod
    def of(cls, facts: Facts, names: SpelledNames = NO_NAMES) -> KnownObjects:
        """Return the objects of facts and policies."""
        return cls(facts.index.objects, names.declared)

    def content(self, container: ContainerPath) -> _Content:
        """Return the names in a container. Equal content of facts and policies is the very same map."""
        known = self.objects.get(container, _EMPTY)
        more = self.declared.get(container) if self.declared else None
        if more is None or known is _EMPTY:
            return more or known
        entry = _joined.get(container)
        if entry is None or entry[0] is not known or entry[1] is not more:
            entry = _joined.keep(container, (known, more, known.update(more)))
        return entry[2]

    def tabular_types(self, container: ContainerPath, name: str) -> list[str]:
        """Return the types of the tables, views and the like with a name in a container."""
        content = self.content(container)
        return [type for type in TABULAR_TYPES if (type, name) in content]

    def container(self, warehouse: str, path: ContainerPath) -> ContainerPath | None:
        """Return the container that a schema matches in any case; None without one.

        The schema must not be ambiguous: then at most one container matches.
        """
        folded = ".".join(path).casefold()
        end, containers = _nearest(self, warehouse, folded)
        found = containers[0]
        return found if end == len(folded) and (found in self.objects or found in self.declared) else None


_joined: Final[BoundedCache[ContainerPath, tuple[_Content, _Content, _Content]]] = BoundedCache(_MEMO_ENTRIES)
"""Container -> content of the facts, declared content, and both."""


class SchemaNames(msgspec.Struct, frozen=True, eq=False):
    """Names of a schema that need care.

    `path` is the own name of the schema: the nearest known schema's, and Trino's below. `unfolded` has the
    known tables and views with capitals by folded name, and `doubled` the folded names of several. `texts` are those
    of forbids that may meet another spelling of names in the schema.
    """

    path: ContainerPath
    content: _Content = _EMPTY
    unfolded: Mapping[str, tuple[str, ...]] = {}
    doubled: frozenset[str] = frozenset()
    texts: tuple[ForbiddenPath, ...] = ()

    def own_spelling(self, table: str) -> str | None:
        """Return the spelling of the known table or view of a name, else the name; None for an ambiguous name."""
        folded = table.casefold()
        if folded in self.doubled:
            return None
        unfolded = self.unfolded.get(folded)
        if unfolded:
            found = unfolded[0]
        elif folded != table and any((type, folded) in self.content for type in TABULAR_TYPES):
            found = folded
        else:
            return table
        return found if found.lower() == table.lower() else None


def names_of_schema(
    facts: Facts, warehouse: str, path: ContainerPath, spelled: SpelledNames = NO_NAMES
) -> SchemaNames | None:
    """Return the names of a schema that need care, or AMBIGUOUS; None if all folded names mean what they say."""
    return _schemas.names_of(facts.index.objects, spelled, warehouse, path)


def all_names_of_schema(
    facts: Facts, warehouse: str, path: ContainerPath, spelled: SpelledNames = NO_NAMES
) -> SchemaNames:
    """Return the names of a schema for a name of a table that is not folded. Trino sends no such name."""
    known = KnownObjects.of(facts, spelled)
    return _find_names(known, spelled, warehouse, path, has_capitals=True) or SchemaNames(path)


def need_care(facts: Facts, warehouse: str, paths: Collection[ContainerPath], spelled: SpelledNames = NO_NAMES) -> bool:
    """Tell whether `names_of_schema` returns names for any of several schemas."""
    return _schemas.need_care(facts.index.objects, spelled, warehouse, paths)


_MISSING: Final = object()
"""Marker of a schema that is not remembered. None means a schema without names that need care."""
AMBIGUOUS: Final = SchemaNames(())
"""Names of an ambiguous schema."""


class _SchemaMemo:
    """Names that need care by schema, for one index and one set of policies. Others empty the memory."""

    def __init__(self) -> None:
        self.names: BoundedCache[ContainerPath, SchemaNames | None] = BoundedCache(_MEMO_ENTRIES, _LONGEST_REMEMBERED)
        self._plain: BoundedCache[str, set[ContainerPath]] = BoundedCache(_WAREHOUSES, _LONGEST_REMEMBERED)
        """Warehouse -> schemas without names that need care."""
        self._index: _Index = Map()
        self._spelled = NO_NAMES

    def names_of(self, index: _Index, spelled: SpelledNames, warehouse: str, path: ContainerPath) -> SchemaNames | None:
        if index is not self._index or spelled is not self._spelled:
            self._follow(index, spelled)
        key = (warehouse, *path)
        found = self.names.get(key, _MISSING)
        if found is not _MISSING:
            return found  # type: ignore[return-value]
        known = KnownObjects(index, spelled.declared)
        return self.names.keep(key, _find_names(known, spelled, warehouse, path), sum(map(len, key)))

    def need_care(self, index: _Index, spelled: SpelledNames, warehouse: str, paths: Collection[ContainerPath]) -> bool:
        if index is not self._index or spelled is not self._spelled:
            self._follow(index, spelled)
        plain = self._plain.get(warehouse)
        if plain is None:
            plain = self._plain.keep(warehouse, set(), len(warehouse))
        if plain.issuperset(paths):
            return False
        if any(self.names_of(index, spelled, warehouse, path) is not None for path in paths):
            return True
        plain.update(path for path in paths if sum(map(len, path)) <= _LONGEST_REMEMBERED)
        if len(plain) > _MEMO_ENTRIES:
            plain.clear()
        return False

    def _follow(self, index: _Index, spelled: SpelledNames) -> None:
        """Forget the names of the index and the policies before."""
        self._index, self._spelled = index, spelled
        self.names.clear()
        self._plain.clear()


class _ContentMemo(Generic[T]):
    """Values derived from the content of containers, one per container.

    A value is valid while the container has the very same content. A new index shares all unchanged content with the
    index before.
    """

    def __init__(self, derive: Callable[[_Content], T]) -> None:
        self.values: BoundedCache[ContainerPath, tuple[_Content, T]] = BoundedCache(_MEMO_ENTRIES)
        self._derive = derive

    def get(self, container: ContainerPath, content: _Content) -> T:
        if content is _EMPTY:  # not remembered: a request may name any number of unknown containers
            return self._derive(content)
        entry = self.values.get(container)
        if entry is None or entry[0] is not content:
            entry = self.values.keep(container, (content, self._derive(content)))
        return entry[1]


def _find_names(
    known: KnownObjects, spelled: SpelledNames, warehouse: str, path: ContainerPath, *, has_capitals: bool = False
) -> SchemaNames | None:
    joined = ".".join(path)
    folded = joined.casefold()
    if has_unknown_sign(joined):
        return AMBIGUOUS
    end, containers = _nearest(known, warehouse, folded)  # the nearest known schema decides on an unknown one
    above = containers[0][1:]
    if len(containers) > 1 or not _is_spelled_alike(above, path[: len(above)]):
        return AMBIGUOUS
    own = (*above, *path[len(above) :])
    content = known.content(containers[0]) if end == len(folded) else _EMPTY
    doubled, unfolded = _doubled_tables.get(containers[0], content), _unfolded_tables.get(containers[0], content)
    is_plain = own == path and joined == folded and not unfolded and not has_capitals
    # To a name without capitals, a text without capitals is no other spelling.
    texts = tuple(spelled.texts_near(warehouse, folded, with_capitals=is_plain))
    if is_plain and not doubled and not texts:
        return None
    return SchemaNames(own, content, unfolded, doubled, texts)


def may_be_table_reference(table: str) -> bool:
    """Tell whether a Nessie may read the name of a table as a table at a reference, such as `t@branch`."""
    return not set(table).isdisjoint(NESSIE_SIGNS)


def reads_table_reference(warehouse: WarehouseSettings | None, table: str) -> bool:
    """Tell whether a warehouse is a Nessie's, and may read the name of a table as a table at a reference."""
    return warehouse is not None and warehouse.kind == "nessie" and may_be_table_reference(table)


def has_unknown_sign(name: str) -> bool:
    """Tell whether a name has a sign of a newer Unicode. Trino may lower the sign, and the service cannot."""
    # names without end may be joined here: signs without a meaning are not printable, and few others are
    return not (name.isascii() or name.isprintable()) and any(category(sign) == "Cn" for sign in set(name))


def _is_spelled_alike(own: ContainerPath, path: ContainerPath) -> bool:
    """Tell whether dots divide two paths alike, and Trino lowers both to one name.

    Rights on `[a]` say nothing about `["a.b"]`.
    """
    if own == path:
        return True
    is_divided_alike = [part.casefold() for part in own] == [part.casefold() for part in path]
    return is_divided_alike and ".".join(own).lower() == ".".join(path).lower()


def _nearest(known: KnownObjects, warehouse: str, spelling: str) -> tuple[int, list[ContainerPath]]:
    """Return the known containers whose path, joined by dots and folded, is the longest beginning of a spelling.

    Return the length of the beginning first. The warehouse matches the empty one. A namespace's own name may contain
    dots, so a name may end at each dot, or with the text. A container's path tells where the container ends, so no
    container is looked at twice.
    """
    top: ContainerPath = (warehouse,)
    longest, found, pending = 0, [top], [(0, top)]
    while pending:
        start, container = pending.pop()
        namespaces = _namespaces.get(container, known.content(container))
        for end in _ends(spelling, start, namespaces.longest):
            for name in namespaces.by_folded.get(spelling[start:end], ()):
                inside = (*container, name)
                pending.append((end + 1, inside))
                if end > longest:
                    longest, found = end, []
                if end == longest:
                    found.append(inside)
    return longest, found


def _ends(spelling: str, start: int, most: int) -> Iterator[int]:
    """Yield where a name of up to `most` characters that begins at `start` may end."""
    last = min(start + most, len(spelling))
    end = spelling.find(".", start, last + 1)
    while end >= 0:
        yield end
        end = spelling.find(".", end + 1, last + 1)
    if last == len(spelling) > start:
        yield last


class _FoldedNames(NamedTuple):
    """Namespaces of a container by their case-folded names, and the length of the longest of these."""

    by_folded: Mapping[str, tuple[str, ...]]
    longest: int


def _names_by_folding(content: _Content) -> _FoldedNames:
    """Return the namespaces of a container by their case-folded names."""
    names: dict[str, tuple[str, ...]] = {}
    for type, name in content:
        if type == "namespace":
            folded = name.casefold()
            names[folded] = (*names.get(folded, ()), name)
    return _FoldedNames(names, max(map(len, names), default=0))


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
