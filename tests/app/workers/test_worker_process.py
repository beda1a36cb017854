"""One worker process, driven from this process. The test run refuses every fork of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.service.serving import settings_of

from pdp.app.workers.channel import Assignment
from pdp.app.workers.process import WorkerFailed, WorkerProcess, describe_exit
from pdp.config.settings import Settings
from pdp.surfaces.listeners import bind, bound_address, close

pytestmark = [pytest.mark.process, pytest.mark.waits]

CONFIG: Mapping[str, Any] = {"policies": {"rules": []}, "store": {"url": "sqlite:///pdp.db"}}


@asynccontextmanager
async def launched(settings: Settings) -> AsyncIterator[tuple[WorkerProcess, str, str]]:
    """A worker with the sockets of two places, its address, and the address of the other place."""
    own, other = (bind("127.0.0.1:0", "server.http", shared=True) for _ in range(2))
    descriptors: dict[int, tuple[int, ...]] = {1: (own[0].fileno(),), 2: (other[0].fileno(),)}
    assignment = Assignment(1, settings.model_dump_json().encode(), str(settings.path("")), "127.0.0.1:0", descriptors)
    try:
        worker = await WorkerProcess.launch(assignment)
        try:
            yield worker, bound_address("127.0.0.1:0", own), bound_address("127.0.0.1:0", other)
        finally:
            worker.kill()
            await worker.ended()
    finally:
        close(*own, *other)


async def status(address: str) -> int:
    async with aiohttp.ClientSession() as client, client.get(f"http://{address}/nothing") as response:
        return response.status


async def test_a_worker_answers_questions_and_stops_on_order(tmp_path: Path) -> None:
    async with launched(settings_of(CONFIG, tmp_path)) as (worker, address, _):
        assert await worker.health(10) == ()
        assert b"pdp_ready 1.0" in await worker.metrics(10)
        assert len(worker.bundle) >= 16
        assert await status(address) == 404
        assert await worker.stop(30)
        assert worker.last is not None
        assert b"pdp_ready 0.0" in worker.last.text
        with pytest.raises(TimeoutError):
            await worker.health(10)


async def test_a_worker_accepts_for_another_place_until_ordered_otherwise(tmp_path: Path) -> None:
    async with launched(settings_of(CONFIG, tmp_path)) as (worker, _, other):
        for _ in range(2):
            worker.accept_for((2,))
            await worker.health(10)
            assert await status(other) == 404
            worker.accept_for(())
            await worker.health(10)
            with pytest.raises(TimeoutError):
                async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(0.5)) as client:
                    await client.get(f"http://{other}/nothing")  # the connection waits in the queue
        assert await worker.stop(30)


async def test_a_worker_that_is_killed_is_known_to_have_lost_records(tmp_path: Path) -> None:
    async with launched(settings_of(CONFIG, tmp_path)) as (worker, _, _):
        worker.kill()
        assert await worker.ended() == -9
        assert not await worker.stop(30)


async def test_the_cause_of_a_failed_start_is_reported(tmp_path: Path) -> None:
    settings = settings_of({**CONFIG, "policies": {"rules": ["missing.properties"]}}, tmp_path)
    with pytest.raises(WorkerFailed, match=r"missing\.properties"):
        async with launched(settings):
            pass
    assert describe_exit(-9) == "signal SIGKILL"
    assert describe_exit(1) == "exit code 1"
