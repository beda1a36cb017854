"""Workers that start while policies are published: all end with the newest policies, whatever the files are."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.oracles.converging import awaited
from support.service.serving import settings_of

from pdp.app.assembly import build_bundle
from pdp.app.reload.load_messages import LoadedPolicies, Published
from pdp.app.reload.reloader import ServedPolicies
from pdp.app.workers.supervisor import Supervisor
from pdp.config.settings import Settings
from pdp.engines.cel.rules import inline_rules

pytestmark = [pytest.mark.process, pytest.mark.waits]

SECONDS_OF_LONG_PAUSE = 3600


def configured(folder: Path) -> Settings:
    (folder / "rules.yaml").write_text(json.dumps({"rules": {"a": "role=='alice'"}}))
    policies = {"rules": ["rules.yaml"], "refresh_seconds": SECONDS_OF_LONG_PAUSE}
    return settings_of({"policies": policies, "store": {"url": "sqlite:///pdp.db"}}, folder)


def policies_for(settings: Settings, user: str) -> LoadedPolicies:
    """Policies that the loader would return after an edit."""
    no_extensions: frozenset[str] = frozenset()
    rules = inline_rules({"a": f"role=='{user}'"}, no_extensions)
    bundle = build_bundle(settings, rules, inline_rules({}, no_extensions))
    return LoadedPolicies(Published(bundle.text), bundle.digest)


@asynccontextmanager
async def supervising(settings: Settings) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(settings, 2, lambda: settings)
    try:
        await supervisor.start()
        yield supervisor
    finally:
        assert await supervisor.stop()


def worker_ids() -> set[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    found = {int(child) for task in tasks for child in task.read_text().split()}
    return {child for child in found if "app.worker" in Path(f"/proc/{child}/cmdline").read_text()}


async def stopped_start(supervisor: Supervisor) -> int:
    """Kill a worker, and stop the next process of its place in the middle of the start."""
    before = worker_ids()
    worker = supervisor._slots[1].worker
    assert worker
    os.kill(worker.pid, signal.SIGKILL)
    await awaited(lambda: worker_ids() - before)
    (started,) = worker_ids() - before
    os.kill(started, signal.SIGSTOP)
    return started


async def both_serve(supervisor: Supervisor, policies: LoadedPolicies) -> None:
    await awaited(lambda: all(slot.worker for slot in supervisor._slots))
    assert supervisor.served() == {ServedPolicies(policies.digest, None)}


@pytest.mark.long
@pytest.mark.parametrize("goes_on", ["before", "meanwhile", "after"])
async def test_a_worker_that_starts_during_a_publication_ends_with_the_newest_policies(
    tmp_path: Path, goes_on: str
) -> None:
    settings = configured(tmp_path)
    other, newest = policies_for(settings, "bob"), policies_for(settings, "eve")
    async with supervising(settings) as supervisor:
        started = await stopped_start(supervisor)
        if goes_on == "before":
            os.kill(started, signal.SIGCONT)
        publication = asyncio.create_task(supervisor.publish(other))
        if goes_on == "meanwhile":
            await asyncio.sleep(0)
            os.kill(started, signal.SIGCONT)
        await publication
        await supervisor.publish(newest)
        if goes_on == "after":
            os.kill(started, signal.SIGCONT)
        await both_serve(supervisor, newest)


@pytest.mark.long
async def test_a_worker_that_cannot_serve_the_newest_policies_does_not_serve(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    good = policies_for(settings, "bob")
    async with supervising(settings) as supervisor:
        slot = supervisor._slots[1]
        started = await stopped_start(supervisor)
        slot.hold(Published(b"{}"))
        os.kill(started, signal.SIGCONT)
        await awaited(lambda: started not in worker_ids())
        assert slot.worker is None
        await supervisor.publish(good)
        await both_serve(supervisor, good)


async def test_workers_with_different_policies_converge(tmp_path: Path) -> None:
    """Without a publication, on the policies of the first; later on the published ones."""
    settings = configured(tmp_path)
    async with supervising(settings) as supervisor:
        first, second = (slot.worker for slot in supervisor._slots)
        assert first
        assert second
        begin, other = first.bundle, policies_for(settings, "bob")
        for worker, wanted in ((second, begin), (first, other.digest)):
            odd = policies_for(settings, "eve")
            await worker.switch(await worker.prepare(odd.published), odd.published)
            assert len(supervisor.served()) == 2
            await supervisor.converge()
            assert supervisor.served() == {ServedPolicies(wanted, None)}
            await supervisor.publish(other)
