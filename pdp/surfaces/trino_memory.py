"""What Trino's surface remembers between requests: answers to bodies it may see again, and who runs a query.

Both are bounded and neither decides: an answer holds for the very bundle and facts that it was made of, and whoever
runs a query is named in the audit alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

import msgspec

from pdp.bundle import Bundle
from pdp.facts import Facts
from pdp.service import Shown

_BYTES: Final = 4 << 20
"""Bytes of bodies that are kept; what was decided about them takes two or three times as much."""
_QUERIES: Final = 10_000


class Kept(msgspec.Struct, frozen=True):
    """An answer, and what was decided for it."""

    shown: Shown
    answer: bytes


class Answers:
    """Answers by what was asked, of one bundle and one snapshot of the facts; with the next ones, all is forgotten."""

    def __init__(self) -> None:
        self._made_of: tuple[Bundle, Facts] | None = None
        self._kept: dict[Hashable, Kept] = {}
        self._bytes = 0

    def of(self, bundle: Bundle, facts: Facts, asked: Hashable) -> Kept | None:
        """The answer that was given when this very thing was asked."""
        made_of = self._made_of
        if made_of is None or made_of[0] is not bundle or made_of[1] is not facts:
            self._forget()
            self._made_of = (bundle, facts)
            return None
        return self._kept.get(asked)

    def keep(self, bundle: Bundle, facts: Facts, asked: Hashable, size: int, kept: Kept) -> None:
        """Remember an answer to `size` bytes, unless what it was made of has gone."""
        made_of = self._made_of
        if made_of is None or made_of[0] is not bundle or made_of[1] is not facts or size > _BYTES // 4:
            return
        if self._bytes + size > _BYTES:
            self._forget()
        self._kept[asked] = kept
        self._bytes += size

    def _forget(self) -> None:
        self._kept.clear()
        self._bytes = 0


class Queries:
    """Who runs a query: whoever it is first asked about. Views then ask as their owners, under the same id."""

    def __init__(self) -> None:
        self._users: OrderedDict[tuple[str, str], str] = OrderedDict()

    def other_user(self, caller: str, query: str, principal: str) -> str:
        """The id of who runs a query of a caller's, where that is another than `principal`; empty otherwise."""
        user = self._users.setdefault((caller, query), principal)
        if len(self._users) > _QUERIES:
            self._users.popitem(last=False)
        return user if user != principal else ""
