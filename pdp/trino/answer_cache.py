"""Bounded cache of answers to repeated bodies.

A cached answer holds only for the very bundle and facts that decided the first one. Each repetition is recorded in the
audit like the first answer.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from pdp.decision.bundle import Bundle
from pdp.decision.service import BatchResult, Pdp
from pdp.facts.snapshot import Facts
from pdp.model.checks import Caller

LONGEST_BODY: Final = 128 << 10
"""Bytes of a body whose answer is cached."""
_BUDGET: Final = 12 << 20
_ENTRY_COST: Final = 4096
_BYTE_COST: Final = 3
"""Bytes of memory: of all entries, of an entry by itself, and per byte of an entry's body (decision included)."""
_BYTES_PER_RESOURCE: Final = 40
"""Bytes of a body per resource, at least. Shorter bodies are not cached: each would keep many objects in memory."""

AnswerKey: TypeAlias = tuple[str, Caller, bytes]
"""Endpoint, caller and body."""
Basis: TypeAlias = tuple[Bundle, Facts]
"""The policies and the facts of a decision."""


class CachedAnswer(msgspec.Struct, frozen=True, gc=False):
    """An encoded answer and the decided batch."""

    result: BatchResult
    answer: bytes


class AnswerCache:
    """Answers by endpoint, caller and body, all for one bundle and one snapshot of the facts.

    A lookup with another bundle or snapshot empties the cache.
    """

    def __init__(self, pdp: Pdp) -> None:
        self._pdp = pdp
        self._basis: Basis | None = None
        self._entries: dict[AnswerKey, CachedAnswer] = {}
        self._cost = 0

    def current_basis(self) -> Basis | None:
        """Return the bundle and facts of a decision made now; None if the facts are stale and no answer is cached."""
        basis = self._pdp.bundle, self._pdp.source.facts
        return None if self._pdp.source.is_stale() else basis

    def repeat(self, key: AnswerKey) -> bytes | None:
        """Return the cached answer and record the repetition; None if the request must be decided.

        A failure counts as a miss: the decision then meets the same failure, and denies or raises as configured.
        """
        if len(key[2]) > LONGEST_BODY:
            return None
        pdp = self._pdp
        try:
            cached = self._get(pdp.bundle, pdp.source.facts, key)
            if cached is None or pdp.source.is_stale():
                return None
            pdp.repeat(cached.result)
        except Exception:  # noqa: BLE001  a miss; see above
            return None
        return cached.answer

    def put(self, basis: Basis, key: AnswerKey, cached: CachedAnswer) -> None:
        """Keep an answer unless the basis is outdated, or the body is too long or too short."""
        if not self._is_current(*basis):
            return
        size = len(key[2])
        if size > LONGEST_BODY or size < cached.result.record.batch.size * _BYTES_PER_RESOURCE:
            return
        cost = _ENTRY_COST + _BYTE_COST * size
        if self._cost + cost > _BUDGET:
            self._clear()
        self._entries[key] = cached
        self._cost += cost

    def _get(self, bundle: Bundle, facts: Facts, key: AnswerKey) -> CachedAnswer | None:
        if not self._is_current(bundle, facts):
            self._clear()
            self._basis = (bundle, facts)
            return None
        return self._entries.get(key)

    def _is_current(self, bundle: Bundle, facts: Facts) -> bool:
        # identity, not equality: equal facts may belong to another revision, which the record must name
        basis = self._basis
        return basis is not None and basis[0] is bundle and basis[1] is facts

    def _clear(self) -> None:
        self._entries.clear()
        self._cost = 0
