"""Calls of resolvers: beside each other, within bounds, off the event loop, and with one deadline for all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.oracles.converging import awaited

from pdp.engines.engine import FAILED, PERMIT, EngineQuestion, Verdicts
from pdp.engines.guarded import AwaitedEngine
from pdp.engines.scopes.engine import ScopesEngine
from pdp.engines.scopes.kind import MOST_AWAITED, MOST_THREADS, ResolvingScopes
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, Question, Resource

PATIENCE = 60.0


class Gate:
    """Function that counts its calls, and lets each end once the test says so."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.calls: list[str] = []
        self.running = self.most = 0
        self._lock = threading.Lock()

    def enter(self, table: str) -> None:
        with self._lock:
            self.calls.append(table)
            self.running += 1
            self.most = max(self.most, self.running)

    def leave(self) -> None:
        with self._lock:
            self.running -= 1

    def sync(self, user: Any, catalog: str, schema: str, table: str) -> bool:
        self.enter(table)
        try:
            return self.open.wait(PATIENCE)
        finally:
            self.leave()

    async def later(self, user: Any, catalog: str, schema: str, table: str) -> bool:
        self.enter(table)
        try:
            while not self.open.is_set():  # noqa: ASYNC110  an event of threads
                await asyncio.sleep(0.001)
            return True
        finally:
            self.leave()

    def returned(self, *arguments: Any) -> Any:
        return self.later(*arguments)


@contextmanager
def gate() -> Iterator[Gate]:
    """Let every call end with the test."""
    made = Gate()
    try:
        yield made
    finally:
        made.open.set()


def engine_of(resolver: Callable[..., Any], seconds: float = PATIENCE) -> AwaitedEngine:
    scopes = ResolvingScopes(ScopesEngine([], "oidc", strict=True), {"readPermission": ("mine", resolver)})
    return AwaitedEngine(scopes.name, scopes, scopes.digest, seconds)


def ask(engine: AwaitedEngine, count: int, user: str = "alice", distinct: int | None = None) -> asyncio.Task[Verdicts]:
    group = EngineQuestion(Question(Principal("user", f"oidc~{user}"), "read_data"), "table", "lake", None)
    resources = [Resource("table", "lake", ("s", f"t{number % (distinct or count)}")) for number in range(count)]
    return asyncio.create_task(engine.ask(group, resources, Facts.empty()))


@pytest.mark.parametrize(
    ("form", "bound"), [("sync", MOST_THREADS), ("later", MOST_AWAITED), ("returned", MOST_AWAITED)]
)
async def test_calls_run_beside_each_other_up_to_a_bound(form: str, bound: int) -> None:
    """The event loop goes on meanwhile. The bound holds for all requests together."""
    with gate() as at:
        engine = engine_of(getattr(at, form))
        asked = [ask(engine, 3 * bound, user, distinct=2 * bound) for user in ("alice", "bob")]
        await awaited(lambda: at.running == bound)
        at.open.set()
        for found in await asyncio.gather(*asked):
            assert found.effects == bytes([PERMIT]) * 3 * bound
    assert at.most == bound
    assert len(at.calls) == 2 * 2 * bound


@pytest.mark.parametrize("form", ["sync", "later", "returned"])
async def test_the_deadline_holds_for_all_calls_together(form: str) -> None:
    """No table is asked about after the deadline, and later questions have all slots again."""
    with gate() as at:
        engine = engine_of(getattr(at, form), seconds=0.1)
        found = await ask(engine, 300)
        assert (set(found.effects), set(found.by)) == ({FAILED}, {"scopes:late"})
        at.open.set()
        await awaited(lambda: at.running == 0)
        bound = 300 if form == "returned" else MOST_THREADS if form == "sync" else MOST_AWAITED
        assert len(at.calls) <= bound
    patient = engine._engine
    assert isinstance(patient, ResolvingScopes)
    again = AwaitedEngine("scopes", patient, "d", PATIENCE)
    assert (await ask(again, 300)).effects == bytes([PERMIT]) * 300


async def test_a_function_that_hangs_takes_no_more_threads_than_its_own() -> None:
    with gate() as at:
        engine = engine_of(at.sync, seconds=0.05)
        for _ in range(5):
            assert (await ask(engine, 20)).by[0] == "scopes:late"
        assert at.running <= MOST_THREADS
        assert len(at.calls) <= MOST_THREADS


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_a_failure_denies_its_own_table(form: str) -> None:
    """Also an exception that would end a process. A resolver may change its user."""

    def answer(user: Any, catalog: str, schema: str, table: str) -> Any:
        assert "seen" not in user
        user["seen"] = True
        if table == "t1":
            raise ValueError("no")
        return {"t2": 1, "t3": False}.get(table, True)

    async def later(*arguments: Any) -> Any:
        return answer(*arguments)

    found = await ask(engine_of(answer if form == "sync" else later), 5)
    assert found.by == [
        "scopes:mine", "scopes:mine: ValueError: no", "scopes:mine: returned int, not a boolean", None, "scopes:mine",
    ]  # fmt: skip
    assert found.errors == {1: ("mine",), 2: ("mine",)}


async def test_an_order_to_exit_denies() -> None:
    def leave(*_: Any) -> bool:
        raise SystemExit(3)

    found = await ask(engine_of(leave), 3)
    assert set(found.by) == {"scopes:failed"}
