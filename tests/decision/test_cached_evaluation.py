"""Evaluation with a cache in numbers: its time grows with the batch."""

from __future__ import annotations

import time
from typing import Any

from pdp.decision.cache.cache import Lookup
from pdp.decision.cached_evaluation import PendingVerdicts
from pdp.engines.engine import ABSTAIN, Verdicts


def reading_time(count: int) -> float:
    """Return the processor time of reading the verdicts of `count` rows in chunks. Each rule raised on each row."""
    nothing: Any = None
    question = PendingVerdicts(nothing, nothing, [nothing] * count, Lookup(b"k", []))
    raised = dict.fromkeys(range(count), ("r",))
    question.put(range(count), Verdicts(bytes([ABSTAIN]) * count, [None] * count, raised))
    started = time.process_time()
    parts = [question.verdicts(start, start + 100) for start in range(0, count, 100)]
    taken = time.process_time() - started
    assert [part.errors for part in parts] == [dict.fromkeys(range(100), ("r",))] * (count // 100)
    return taken


def test_errors_are_read_in_linear_time() -> None:
    few = min(reading_time(5_000) for _ in range(5))
    many = min(reading_time(40_000) for _ in range(3))
    assert many < 24 * few


def test_errors_keep_their_rows() -> None:
    nothing: Any = None
    question = PendingVerdicts(nothing, nothing, [nothing] * 10, Lookup(b"k", []))
    verdicts = Verdicts(bytes([ABSTAIN]) * 10, [None] * 10, {7: ("s",), 2: ("r",), 9: ("t",)})
    question.put(range(10), verdicts)
    assert question.verdicts(0, 10).errors == verdicts.errors
    assert question.verdicts(2, 9).errors == {0: ("r",), 5: ("s",)}
    assert question.verdicts(3, 7).errors == {}
