"""Guards of engines of other packages: whatever an engine raises or returns, the group has an answer, and it denies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pdp.engines.engine import ABSTAIN, FAILED, PERMIT, READS_POLICIES, Cost, EngineQuestion, Verdicts
from pdp.engines.guarded import AwaitedEngine, FailedEngine, GuardedEngine, InvalidVerdicts, applying
from pdp.facts.snapshot import Facts
from pdp.model.question import Question, Resource
from pdp.model.references import parse_principal, parse_resource

GROUP = EngineQuestion(Question(parse_principal("user:oidc~a"), "read_data"), "table", "lake", None)
ENDS = [asyncio.CancelledError, GeneratorExit, SystemExit, StopIteration, StopAsyncIteration, MemoryError]


class Acting:
    """Engine that does whatever a test says."""

    name, digest, reads, cost = "odd", "1", READS_POLICIES, Cost.MICROSECONDS

    def __init__(self, act: Callable[[Any], Any]) -> None:
        self.act = act

    def applies(self, action: str, type: str) -> Any:
        return self.act([])

    def decide(self, group: EngineQuestion, resources: Any, facts: Facts) -> Any:
        return self.act(resources)

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Any:
        return self.act([resource])


class AsyncActing(Acting):
    """Such an engine that is awaited."""

    async def decide(self, group: EngineQuestion, resources: Any, facts: Facts, deadline: float) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        return self.act(resources)


def raising(error: type[BaseException]) -> Callable[[Any], Any]:
    def act(resources: Any) -> Any:
        raise error

    return act


def reason(text: str) -> Callable[[Any], Any]:
    return lambda resources: Verdicts(bytes([PERMIT]) * len(resources), [text] * len(resources))


def emptying(resources: Any) -> Any:
    count = len(resources)
    resources.clear()
    return Verdicts(bytes([PERMIT]) * count, ["odd:x"] * count)


def raised_text(resources: Any) -> Any:
    return Verdicts(bytes([ABSTAIN]) * len(resources), [None] * len(resources), {0: ("\ud800",)})


ACTS = [*map(raising, ENDS), reason("odd:\ud800"), emptying, raised_text]


def tables(count: int) -> list[Resource]:
    return [parse_resource(f"table:lake/s/t{number}") for number in range(count)]


@pytest.mark.parametrize("act", ACTS)
async def test_an_engine_that_ends_the_request_fails_its_group(act: Callable[[Any], Any]) -> None:
    resources = tables(3)
    with pytest.raises((InvalidVerdicts, StopIteration, StopAsyncIteration, MemoryError, AttributeError)):
        GuardedEngine("odd", Acting(act), "").decide(GROUP, resources, Facts.empty())
    found = await AwaitedEngine("odd", AsyncActing(act), "", 30).ask(GROUP, resources, Facts.empty())
    assert (list(found.effects), found.by) == ([FAILED] * 3, ["odd:failed"] * 3)
    assert len(resources) == 3


@pytest.mark.parametrize("end", ENDS)
def test_an_engine_that_ends_the_request_in_other_methods(end: type[BaseException]) -> None:
    engine = GuardedEngine("odd", Acting(raising(end)), "")
    assert type(applying(engine, "read_data", "table")) is FailedEngine
    assert engine.explain(GROUP, tables(1)[0], Facts.empty()).outcome == "not explained"


async def test_a_cancelled_request_stays_cancelled() -> None:
    started = asyncio.Event()

    class Waiting(AsyncActing):
        async def decide(self, group: EngineQuestion, resources: Any, facts: Facts, deadline: float) -> Any:  # type: ignore[override]
            started.set()
            await asyncio.sleep(3600)

    engine = AwaitedEngine("odd", Waiting(raising(ValueError)), "", 7200)
    task = asyncio.create_task(engine.ask(GROUP, tables(1), Facts.empty()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
