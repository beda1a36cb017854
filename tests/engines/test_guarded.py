"""Guards of engines of other packages: whatever an engine raises or returns, the group has an answer, and it denies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.processors import format_exc_info
from structlog.testing import capture_logs

from pdp.engines.engine import ABSTAIN, FAILED, PERMIT, READS_POLICIES, Cost, EngineQuestion, Verdicts
from pdp.engines.guarded import AwaitedEngine, FailedEngine, GuardedEngine, InvalidVerdicts, applying
from pdp.facts.snapshot import Facts
from pdp.model.answer import Trace
from pdp.model.question import Question, Resource
from pdp.model.references import parse_principal, parse_resource

GROUP = EngineQuestion(Question(parse_principal("user:oidc~a"), "read_data"), "table", "lake", None)
ENDS = [asyncio.CancelledError, GeneratorExit, SystemExit, StopIteration, StopAsyncIteration, MemoryError]


class Acting:
    """Engine that does whatever a test says."""

    forbids = counts_stored_roles = False

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


def returning(found: Any) -> Callable[[Any], Any]:
    return lambda _: found


def nested(levels: int) -> Trace:
    trace = Trace("x", "y")
    for _ in range(levels):
        trace = Trace("x", "y", "", (trace,))
    return trace


UNSOUND: dict[str, Any] = {
    "no trace": "permit", "none": None, "no text": Trace(1, "y"), "no cause": Trace("x", "y", None),  # type: ignore[arg-type]
    "surrogate": Trace("x", "y", "\ud800"), "no parts": Trace("x", "y", "", [Trace("x", "y")]),  # type: ignore[arg-type]
    "no part": Trace("x", "y", "", (Trace("x", "y"), "z")), "deep": nested(100), "deepest": nested(5000),  # type: ignore[arg-type]
    "wide": Trace("x", "y", "", (Trace("x", "y"),) * 20_000), "doubling": Trace("x", "y", "", (Trace("x", "y", "", (nested(3),) * 500),) * 500),
}  # fmt: skip


@pytest.mark.parametrize("trace", UNSOUND.values(), ids=UNSOUND)
def test_an_explanation_that_no_answer_can_hold_is_left_out(trace: Any) -> None:
    engine = GuardedEngine("odd", Acting(returning(trace)), "")
    found = engine.explain(GROUP, tables(1)[0], Facts.empty())
    assert (found.what, found.outcome, found.parts) == ("odd", "not explained", ())
    for sound in (nested(0), nested(20), Trace("x", "y", "", (nested(1),) * 3000)):
        assert GuardedEngine("odd", Acting(returning(sound)), "").explain(GROUP, tables(1)[0], Facts.empty()) is sound


async def test_texts_of_exceptions_are_in_no_answer_and_no_log() -> None:
    secret = "hunter2"

    def act(_: Any) -> Any:
        raise ValueError(secret) from KeyError(secret)

    guarded, awaited = GuardedEngine("odd", Acting(act), ""), AwaitedEngine("odd", AsyncActing(act), "", 30)
    with capture_logs([format_exc_info]) as logs:
        shown = str(guarded.explain(GROUP, tables(1)[0], Facts.empty()))
        shown += str(await awaited.ask(GROUP, tables(1), Facts.empty()))
        assert type(applying(guarded, "read_data", "table")) is FailedEngine
    assert [line["cause"] for line in logs] == ["ValueError"] * 3
    assert all("in act" in line["exception"] for line in logs)
    assert "hunter" not in shown + str(logs)


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
