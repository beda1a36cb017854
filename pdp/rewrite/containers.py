"""First parts of full names: warehouses, or an engine's catalogs. Two containers never share a name here.

Warehouses are compared letter by letter, engines mostly fold case. So two spellings of one folded name can be two
warehouses, or one. A service knows: every spelling is a warehouse. Files alone do not: a policy on `LAKE.a.t` beside a
table `lake.a.t` means that table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from pdp.facts.row_policies import FoldedName, fold_name

RelationKey: TypeAlias = FoldedName
"""Key of a relation: the container as spelled, and the folded rest, joined by dots. A short name has no container."""
FULL_NAME_PARTS: Final = 3


def key_of(parts: Sequence[str]) -> RelationKey:
    """Return the key of a name. A name of fewer than three parts has an empty container."""
    return fold_name(parts[0], parts[1:]) if len(parts) >= FULL_NAME_PARTS else fold_name("", parts)


def key_name(key: RelationKey) -> str:
    """Return a key as a text for messages."""
    return ".".join(filter(None, key))


def fold_ascii(text: str) -> str:
    """Return a text with the ASCII letters in lower case: all that every engine folds alike."""
    return (
        text.lower() if text.isascii() else text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")
    )


class Containers:
    """Known containers. Immutable."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._spellings: dict[str, tuple[str, ...]] = {}
        self._dotted = False
        self._add(names)

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            known = self._spellings.get(name.lower(), ())
            if name and name not in known:
                self._spellings[name.lower()] = (*known, name)
        self._dotted = any("." in name for name in self._spellings)

    def joined(self, names: Iterable[str]) -> Containers:
        """Return these and more containers. A new spelling is another container."""
        new = Containers(self)
        new._add(names)
        return new

    def spelled(self, names: Iterable[str]) -> Containers:
        """Return these and more containers. A new spelling of a single known container is that container."""
        return self.joined([self.spell(name) for name in names])

    def spell(self, name: str) -> str:
        """Return a name as the only known container of any case is spelled; otherwise as given."""
        known = self._spellings.get(name.lower(), ())
        return known[0] if len(known) == 1 else name

    def spell_key(self, key: RelationKey) -> RelationKey:
        """Return a key with the known spelling of the container."""
        return (self.spell(key[0]), key[1])

    def has_twins(self, name: str) -> bool:
        """Tell whether two containers differ from a name in case alone: an engine that folds case means either."""
        return len(self._spellings.get(name.lower(), ())) > 1

    def divides_two_ways(self, parts: Sequence[str]) -> bool:
        """Tell whether a name of parts that dots divide can begin with two containers: `lake.a.b.t` in `lake.a`."""
        if not self._dotted:
            return False
        divided = ".".join(parts).lower().split(".")
        return sum(".".join(divided[:end]) in self._spellings for end in range(1, len(divided) - 1)) > 1

    def __contains__(self, folded: object) -> bool:
        """Tell whether a container has a name, given in lower case."""
        return folded in self._spellings

    def __iter__(self) -> Iterator[str]:
        """Yield all containers."""
        return (name for some in self._spellings.values() for name in some)
