"""Circuit breaker: opens after failures in a row, probes after a pause, closes after a success."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pdp.decision.cache.redis import CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def opened() -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    for _ in range(3):
        assert breaker.allows()
        breaker.fail()
    return breaker, clock


def test_single_failures_open_nothing() -> None:
    breaker = CircuitBreaker(Clock())
    for _ in range(10):
        breaker.fail()
        breaker.fail()
        assert breaker.allows()
        breaker.succeed()
    assert breaker.state == "closed"


def test_an_open_breaker_probes_once_after_a_pause() -> None:
    breaker, clock = opened()
    states = [breaker.state]
    assert not breaker.allows()
    clock.now += 1
    assert breaker.allows()
    states.append(breaker.state)
    assert states == ["open", "half_open"]
    assert not any(breaker.allows() for _ in range(5)), "one probe at a time"
    breaker.succeed()
    assert breaker.state == "closed"
    assert all(breaker.allows() for _ in range(5))


def test_pauses_grow_up_to_a_bound() -> None:
    breaker, clock = opened()
    pauses = []
    for _ in range(12):
        started = clock.now
        while not breaker.allows():
            clock.now += 0.05
        pauses.append(clock.now - started)
        breaker.fail()
    assert pauses[0] < 1
    assert pauses[3] > 2 * pauses[0]
    assert max(pauses) < 20


def test_an_abandoned_probe_leaves_room_for_another() -> None:
    breaker, clock = opened()
    clock.now += 1
    assert breaker.allows()
    breaker.abandon()
    assert breaker.allows()


def test_late_failures_do_not_postpone_the_probe() -> None:
    breaker, clock = opened()
    clock.now += 0.3
    for _ in range(100):
        breaker.fail()  # calls from before the breaker opened
    clock.now += 0.4
    assert breaker.allows()


@given(st.lists(st.sampled_from(["allow", "fail", "succeed", "abandon", "wait"]), max_size=60))
def test_no_history_closes_the_breaker_for_ever(history: list[str]) -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    actions: dict[str, Any] = {
        "allow": breaker.allows, "fail": breaker.fail, "succeed": breaker.succeed, "abandon": breaker.abandon,
    }  # fmt: skip
    for step in history:
        if step == "wait":
            clock.now += 0.4
        else:
            actions[step]()
    breaker.abandon()  # whatever call was under way has ended
    clock.now += 60
    assert breaker.allows()
