"""What Trino's surface remembers between requests: answers to bodies it may see again, who runs a query, complaints.

All is bounded and nothing of it decides: an answer holds for the very bundle and facts that it was made of, and whoever
runs a query is named in the audit alone.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

import msgspec
import structlog

from pdp.decision.bundle import Bundle
from pdp.decision.service import BatchResult
from pdp.errors import Unavailable
from pdp.facts.snapshot import Facts

log = structlog.get_logger()
_BYTES: Final = 12 << 20
_OF_ENTRY: Final = 4096
_OF_BYTE: Final = 3
"""What all that is kept may cost, and what it does: an entry by itself, and each byte of a body with its decision."""
LONGEST: Final = 128 << 10
_FEWEST_OF_RESOURCE: Final = 40
"""Bytes of a body whose answer is kept, and bytes that each resource of it has, so that few bytes keep few objects."""
_QUERIES: Final = 10_000
_LONGEST_KEPT: Final = 256
"""Characters of the id of somebody who is remembered."""


class CachedAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer, and what was decided for it."""

    shown: BatchResult
    answer: bytes


class AnswerCache:
    """Answers by what was asked, of one bundle and one snapshot of the facts; with the next ones, all is forgotten."""

    def __init__(self) -> None:
        self._made_of: tuple[Bundle, Facts] | None = None
        self._kept: dict[Hashable, CachedAnswer] = {}
        self._cost = 0

    def of(self, bundle: Bundle, facts: Facts, asked: Hashable) -> CachedAnswer | None:
        """The answer that was given when this very thing was asked."""
        made_of = self._made_of
        if made_of is None or made_of[0] is not bundle or made_of[1] is not facts:
            self._forget()
            self._made_of = (bundle, facts)
            return None
        return self._kept.get(asked)

    def keep(self, bundle: Bundle, facts: Facts, asked: Hashable, size: int, kept: CachedAnswer) -> None:
        """Remember an answer to `size` bytes, unless what it was made of has gone."""
        made_of = self._made_of
        if made_of is None or made_of[0] is not bundle or made_of[1] is not facts:
            return
        if size > LONGEST or size < kept.shown.decided.batch.size * _FEWEST_OF_RESOURCE:
            return
        cost = _OF_ENTRY + _OF_BYTE * size
        if self._cost + cost > _BYTES:
            self._forget()
        self._kept[asked] = kept
        self._cost += cost

    def _forget(self) -> None:
        self._kept.clear()
        self._cost = 0


class QueryOwners:
    """Who runs a query: whoever it is first asked about. Views then ask as their owners, under the same id."""

    def __init__(self) -> None:
        self._users: OrderedDict[tuple[str, str], str] = OrderedDict()

    def other_user(self, caller: str, query: str, principal: str) -> str:
        """The id of who runs a query of a caller's, where that is another than `principal`; empty otherwise."""
        if len(principal) > _LONGEST_KEPT:
            return self._users.get((caller, query), "")
        user = self._users.setdefault((caller, query), principal)
        self._users.move_to_end((caller, query))
        if len(self._users) > _QUERIES:
            self._users.popitem(last=False)
        return user if user != principal else ""


class FailureLog:
    """Failures in the log: at most one line a second, which counts those that went unsaid."""

    def __init__(self) -> None:
        self._next = 0.0
        self._unsaid = 0

    def say(self, operation: str, error: Exception) -> None:
        """Log that a request failed; with where in our code, unless it is one of the failures that are expected."""
        now = time.monotonic()
        if now < self._next:
            self._unsaid += 1
            return
        expected = isinstance(error, Unavailable | TimeoutError)
        log.error(
            "trino request failed", operation=operation[:100], why=str(error) or type(error).__name__,
            unsaid=self._unsaid, exc_info=None if expected else error,
        )  # fmt: skip
        self._next, self._unsaid = now + 1, 0
