"""Rules that are a condition on a text alone, as tables: equal texts, prefixes, and what holds for every text.

Rules are known by rank; the smallest rank that is true determines. A table of paths becomes one of names once the
folder is known, and is small then, however many rules there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, repeat
from typing import Final

NEVER: Final = 1 << 60
"""The rank of no rule."""
_FEW: Final = 16
_QUICK: Final = 64
_FOLDERS_KEPT: Final = 8
_LONGEST_KEPT: Final = 256


class PathTables:
    """`exact` and `starts` map texts to ranks; `always` is the rank of a rule that is true of all."""

    __slots__ = ("_exact", "_few", "_folders", "_lengths", "_prefixes", "_starts", "always")

    def __init__(self, always: int, exact: Mapping[str, int], starts: Mapping[str, int]) -> None:
        self.always = always
        self._exact = {text: rank for text, rank in exact.items() if rank < always}
        self._starts = {text: rank for text, rank in starts.items() if rank < always}
        by_rank = sorted(self._starts.items(), key=lambda start: start[1])
        self._few = by_rank if len(by_rank) <= _FEW else []
        self._prefixes = tuple(text for text, _ in self._few)
        lengths: dict[int, dict[str, int]] = {}
        for text, rank in by_rank:
            lengths.setdefault(len(text), {})[text] = rank
        self._lengths = [(length, table.get) for length, table in lengths.items()]
        self._folders: dict[str, PathTables] = {}

    @property
    def fixed(self) -> bool:
        """Whether the answer is the same for every text."""
        return not (self._exact or self._starts)

    def ranks(self, texts: Sequence[str]) -> list[int]:
        """For each text the smallest rank of a rule that is true, or NEVER."""
        found = list(map(self._exact.get, texts, repeat(self.always))) if self._exact else [self.always] * len(texts)
        if self._few:
            self._mark_few(texts, found)
        elif self._lengths:
            self._mark_many(texts, found)
        return found

    def within(self, folder: str) -> PathTables:
        """The tables for what follows `folder` in a text that begins with it; kept where finding them is work."""
        if len(self._exact) + len(self._starts) <= _QUICK:
            return self._within(folder)
        known = self._folders.get(folder)
        if known is None:
            known = self._within(folder)
            if len(folder) <= _LONGEST_KEPT:
                if len(self._folders) >= _FOLDERS_KEPT:
                    self._folders.clear()
                self._folders[folder] = known
        return known

    def add_to(self, exact: dict[str, int], starts: dict[str, int]) -> None:
        """Put the own entries in, where no smaller rank stands."""
        for mine, theirs in ((self._exact, exact), (self._starts, starts)):
            for text, rank in mine.items():
                theirs[text] = min(rank, theirs.get(text, NEVER))

    def _within(self, folder: str) -> PathTables:
        cut = len(folder)
        always = min((rank for text, rank in self._starts.items() if folder.startswith(text)), default=self.always)
        exact = {text[cut:]: rank for text, rank in self._exact.items() if text.startswith(folder)}
        starts = {text[cut:]: rank for text, rank in self._starts.items() if text.startswith(folder) and text != folder}
        return PathTables(min(always, self.always), exact, starts)

    def _mark_few(self, texts: Sequence[str], found: list[int]) -> None:
        few = self._few
        for at in compress(range(len(texts)), map(str.startswith, texts, repeat(self._prefixes))):
            text = texts[at]
            for prefix, rank in few:
                if text.startswith(prefix):
                    if rank < found[at]:  # noqa: PLR1730  a call of min() would cost more than all the rest
                        found[at] = rank
                    break

    def _mark_many(self, texts: Sequence[str], found: list[int]) -> None:
        for at, text in enumerate(texts):
            for length, get in self._lengths:
                rank = get(text[:length])
                if rank is not None and rank < found[at]:
                    found[at] = rank


def merged(tables: Sequence[PathTables]) -> PathTables:
    """One table that answers as all of them together."""
    if len(tables) == 1:
        return tables[0]
    exact: dict[str, int] = {}
    starts: dict[str, int] = {}
    for table in tables:
        table.add_to(exact, starts)
    return PathTables(min((table.always for table in tables), default=NEVER), exact, starts)
