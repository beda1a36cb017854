"""Many questions with a bound on the number of open ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
Q = TypeVar("Q")


async def in_parallel(ask: Callable[[Q], Awaitable[A]], questions: Sequence[Q], most: int) -> AsyncIterator[A]:
    """Yield the answers in the order of the questions, `most` of them asked at once. The first error ends all."""
    for start in range(0, len(questions), most * most):
        gate = asyncio.Semaphore(most)

        async def asked(question: Q, gate: asyncio.Semaphore = gate) -> A:
            async with gate:
                return await ask(question)

        tasks = [asyncio.ensure_future(asked(question)) for question in questions[start : start + most * most]]
        try:
            for answer in await asyncio.gather(*tasks):
                yield answer
        finally:
            for task in tasks:
                task.cancel()
