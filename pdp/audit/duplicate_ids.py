"""Search for ids that come twice in a long audit, in little memory."""

from __future__ import annotations

import heapq
from array import array
from typing import Final

_CHUNK: Final = 1_000_000


class DuplicateIds:
    """Hashes of ids, 8 bytes for each. Equal hashes make an id suspect; a second reading compares the ids."""

    def __init__(self) -> None:
        self._chunks: list[array[int]] = []
        self._newest: array[int] = array("q")

    def add(self, id: str) -> None:
        """Add an id."""
        self._newest.append(hash(id))
        if len(self._newest) >= _CHUNK:
            self._sort()

    def suspects(self) -> set[int]:
        """Return the hashes that came twice or more often."""
        self._sort()
        found: set[int] = set()
        last: int | None = None
        for each in heapq.merge(*self._chunks):
            if each == last:
                found.add(each)
            last = each
        return found

    def _sort(self) -> None:
        self._chunks.append(array("q", sorted(self._newest)))
        self._newest = array("q")
