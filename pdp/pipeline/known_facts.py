"""Revisions of facts that a lake has: by changes, or by a snapshot of all facts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Final

from pdp.pipeline.lake import Lake

_RANGES: Final = """
SELECT epoch, snapshot, min(sequence) AS first, max(sequence) AS last
FROM (
  SELECT epoch, snapshot, sequence,
    sequence - row_number() OVER (PARTITION BY epoch, snapshot ORDER BY sequence) AS run
  FROM (SELECT DISTINCT epoch, snapshot, sequence FROM {facts})
)
GROUP BY epoch, snapshot, run
ORDER BY first
"""
"""Revisions without a gap in between, as one row."""


class KnownFacts:
    """Revisions of a lake, as ranges and those added since. `ranges` have epoch, snapshot, first and last revision."""

    def __init__(self, ranges: Iterable[tuple[str, bool, int, int]] = ()) -> None:
        self._ranges: dict[tuple[str, bool], tuple[list[int], list[int]]] = {}
        self._added: set[tuple[str, bool, int]] = set()
        for epoch, snapshot, first, last in sorted(ranges):
            firsts, lasts = self._ranges.setdefault((epoch, snapshot), ([], []))
            firsts.append(first)
            lasts.append(last)

    def has_changes(self, epoch: str, sequence: int) -> bool:
        """Tell whether the lake has the changes of a revision."""
        return self._has(epoch, False, sequence)

    def has(self, epoch: str, sequence: int) -> bool:
        """Tell whether the lake has the changes or a snapshot of a revision."""
        return self._has(epoch, False, sequence) or self._has(epoch, True, sequence)

    def add_changes(self, epoch: str, sequence: int) -> None:
        """Keep a revision whose changes are in the lake."""
        self._added.add((epoch, False, sequence))

    def add_snapshot(self, epoch: str, sequence: int) -> None:
        """Keep a revision whose snapshot is in the lake."""
        self._added.add((epoch, True, sequence))

    def _has(self, epoch: str, snapshot: bool, sequence: int) -> bool:
        if (epoch, snapshot, sequence) in self._added:
            return True
        firsts, lasts = self._ranges.get((epoch, snapshot), ([], []))
        place = bisect_right(firsts, sequence)
        return place > 0 and sequence <= lasts[place - 1]


def read_known_facts(lake: Lake) -> KnownFacts:
    """Return the revisions of a lake."""
    rows: list[Any] = lake.spark.sql(_RANGES.format(facts=lake.name("facts"))).collect()
    return KnownFacts((row.epoch, bool(row.snapshot), row.first, row.last) for row in rows)
