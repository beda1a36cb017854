"""Paced work: its result or its error, and turns of the event loop meanwhile."""

from __future__ import annotations

import asyncio
import gc
import sys
import time

import pytest

from pdp.app.reload.published import SMALL_COLLECTIONS, run_paced


def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


async def test_the_loop_turns_while_work_goes_on() -> None:
    turns = 0
    work = asyncio.create_task(run_paced(lambda: fibonacci(20)))
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    assert await work == 6765
    assert turns > 10


async def test_an_error_is_raised_where_the_work_is_awaited() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_paced(lambda: 1 // 0)


async def test_a_cancelled_wait_leaves_the_work_alone() -> None:
    work = asyncio.create_task(run_paced(lambda: fibonacci(18)))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await run_paced(lambda: "next") == "next"


async def test_no_other_thread_is_profiled() -> None:
    before = sys.getprofile()
    await run_paced(lambda: fibonacci(5))
    assert sys.getprofile() is before


def slow_thresholds() -> tuple[int, int, int]:
    time.sleep(0.05)
    return gc.get_threshold()


async def test_collections_are_small_while_work_goes_on_and_as_before_afterwards() -> None:
    while (usual := gc.get_threshold()) == SMALL_COLLECTIONS:  # noqa: ASYNC110  work of a test before
        await asyncio.sleep(0.01)
    first = asyncio.create_task(run_paced(slow_thresholds))
    assert await run_paced(gc.get_threshold) == SMALL_COLLECTIONS
    assert await first == SMALL_COLLECTIONS
    assert gc.get_threshold() == usual
    with pytest.raises(ZeroDivisionError):
        await run_paced(lambda: 1 // 0)
    assert gc.get_threshold() == usual
