"""Paced work: its result or its error, and turns of the event loop meanwhile."""

from __future__ import annotations

import asyncio
import sys

import pytest

from pdp.app.reload.pacing import run_paced


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
