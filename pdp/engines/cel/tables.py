"""Tables of texts for rules that are a single condition on the path: equal texts, prefixes, and a rule for every text.

Rules are known by rank, their position in the order of ids. The smallest rank of a true rule determines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, repeat
from typing import Final

from pdp.memo import Memo

NEVER: Final = 1 << 60
"""The rank that stands for "no rule"."""
_FEW_PREFIXES: Final = 16
_SMALL_TABLE: Final = 64
"""Up to this many entries, making the table of a folder costs less than remembering it."""
_MAX_FOLDERS: Final = 8
_MAX_FOLDER_LENGTH: Final = 256


class PathTables:
    """Ranks by text. `exact` and `starts` map texts to ranks; `always` is the rank of a rule that is true for all."""

    __slots__ = ("_exact", "_few", "_folders", "_lengths", "_prefixes", "_starts", "always")

    def __init__(self, always: int, exact: Mapping[str, int], starts: Mapping[str, int]) -> None:
        self.always = always
        self._exact = {text: rank for text, rank in exact.items() if rank < always}
        self._starts = {text: rank for text, rank in starts.items() if rank < always}
        by_rank = sorted(self._starts.items(), key=lambda start: start[1])
        self._few = by_rank if len(by_rank) <= _FEW_PREFIXES else []
        self._prefixes = tuple(text for text, _ in self._few)
        lengths: dict[int, dict[str, int]] = {}
        for text, rank in by_rank:
            lengths.setdefault(len(text), {})[text] = rank
        self._lengths = [(length, table.get) for length, table in lengths.items()]
        large = len(self._exact) + len(self._starts) > _SMALL_TABLE
        self._folders = Memo[str, PathTables](_MAX_FOLDERS, _MAX_FOLDER_LENGTH) if large else None

    @property
    def is_constant(self) -> bool:
        """Tell whether the answer is the same for every text."""
        return not (self._exact or self._starts)

    def ranks(self, texts: Sequence[str]) -> list[int]:
        """Return for each text the smallest rank of a true rule, or NEVER."""
        ranks = list(map(self._exact.get, texts, repeat(self.always))) if self._exact else [self.always] * len(texts)
        if self._few:
            self._lower_by_few(texts, ranks)
        elif self._lengths:
            self._lower_by_many(texts, ranks)
        return ranks

    def within(self, folder: str) -> PathTables:
        """Return the tables for the rest of a text that begins with `folder`.

        The result is small however many rules there are, since only entries below the folder remain.
        """
        if self._folders is None:
            return self._within(folder)
        tables = self._folders.get(folder)
        return self._folders.keep(folder, self._within(folder), len(folder)) if tables is None else tables

    def add_to(self, exact: dict[str, int], starts: dict[str, int]) -> None:
        """Add the entries to `exact` and `starts`. For a text in both, the smaller rank remains."""
        for own, target in ((self._exact, exact), (self._starts, starts)):
            for text, rank in own.items():
                target[text] = min(rank, target.get(text, NEVER))

    def _within(self, folder: str) -> PathTables:
        # A prefix of the folder itself holds for every text below the folder. A prefix that continues the folder is
        # cut, as are equal texts. All other entries hold for no text below the folder.
        cut = len(folder)
        always = min((rank for text, rank in self._starts.items() if folder.startswith(text)), default=self.always)
        exact = {text[cut:]: rank for text, rank in self._exact.items() if text.startswith(folder)}
        starts = {text[cut:]: rank for text, rank in self._starts.items() if text.startswith(folder) and text != folder}
        return PathTables(min(always, self.always), exact, starts)

    def _lower_by_few(self, texts: Sequence[str], ranks: list[int]) -> None:
        # `startswith` of all prefixes at once filters in C. Prefixes come by rank, so the first match is the smallest.
        few = self._few
        for at in compress(range(len(texts)), map(str.startswith, texts, repeat(self._prefixes))):
            text = texts[at]
            for prefix, rank in few:
                if text.startswith(prefix):
                    if rank < ranks[at]:  # noqa: PLR1730  a call of min() would cost more than all the rest
                        ranks[at] = rank
                    break

    def _lower_by_many(self, texts: Sequence[str], ranks: list[int]) -> None:
        # One dict lookup per distinct length of prefixes. The slice of a shorter text is shorter than every key of the
        # table, so it finds nothing.
        for at, text in enumerate(texts):
            for length, get in self._lengths:
                rank = get(text[:length])
                if rank is not None and rank < ranks[at]:
                    ranks[at] = rank


def merge_tables(tables: Sequence[PathTables]) -> PathTables:
    """Return a table with the smallest rank of all `tables` for every text."""
    if len(tables) == 1:
        return tables[0]
    exact: dict[str, int] = {}
    starts: dict[str, int] = {}
    for table in tables:
        table.add_to(exact, starts)
    return PathTables(min((table.always for table in tables), default=NEVER), exact, starts)
