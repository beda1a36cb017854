"""Guards around engines that are not part of the product: an invalid, missing or late answer denies the whole group."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from pdp.engines.engine import (
    ABSTAIN,
    EFFECT_NAMES,
    FAILED,
    FORBID,
    PERMIT,
    AsyncEngine,
    Cost,
    Dependency,
    Engine,
    EngineQuestion,
    Verdicts,
)
from pdp.facts.snapshot import Facts
from pdp.model.answer import Trace
from pdp.model.question import Resource
from pdp.model.redaction import without_text
from pdp.model.references import format_resource

_EFFECTS: Final = frozenset((ABSTAIN, PERMIT, FORBID, FAILED))
_LONGEST_REASON: Final = 1000
NOT_EXPLAINED: Final = "not explained"
"""Outcome in a trace of an engine without an explanation."""
_MOST_LEVELS: Final = 32
_MOST_PARTS: Final = 10_000
"""Levels and parts of an explanation: answers over gRPC may not nest without limit."""
_ENDS: Final = (asyncio.CancelledError, GeneratorExit, SystemExit)
"""Exceptions that would end the request or the process without an answer, and that any package may raise."""
log = structlog.get_logger()


class InvalidVerdicts(Exception):
    """Verdicts of a wrong length or type. The text names the engine and the fault."""


def log_failure(event: str, error: BaseException, **fields: str) -> None:
    """Log the failure of an engine with its traceback, and without a text that may quote values of a request."""
    cause = str(error) if isinstance(error, InvalidVerdicts) else type(error).__name__
    log.error(event, **fields, cause=cause, exc_info=without_text(error))


def checked(engine: str, verdicts: object, count: int) -> Verdicts:
    """Return the verdicts of an engine on `count` resources; raise InvalidVerdicts for anything else."""
    fault = _fault(engine, verdicts, count)
    if fault:
        raise InvalidVerdicts(f"engine `{engine}`: {fault}")
    assert isinstance(verdicts, Verdicts)
    return verdicts


def _fault(engine: str, verdicts: object, count: int) -> str:
    """Return the fault of verdicts; empty for valid ones."""
    if type(verdicts) is not Verdicts:
        return f"`decide` returned {type(verdicts).__name__}, not Verdicts"
    effects, by = verdicts.effects, verdicts.by
    if type(effects) is not bytes or not isinstance(by, (list, tuple)):
        return "`effects` are bytes, and `by` is a list or a tuple"
    if len(effects) != count or len(by) != count:
        return f"{len(effects)} effects and {len(by)} reasons for {count} resources"
    if not _EFFECTS.issuperset(effects):
        return f"an effect is none of {', '.join(EFFECT_NAMES)}"
    for effect, reason in zip(effects, by, strict=True):
        if effect and not (type(reason) is str and reason.startswith(f"{engine}:") and len(reason) < _LONGEST_REASON):
            return f"a {EFFECT_NAMES[effect]} has a reason that begins with `{engine}:`, below 1,000 characters"
        if not effect and reason is not None:
            return "silence has the reason None"
    if not all(map(_is_unicode, {*by} - {None})):
        return "a reason has a lone surrogate, which no answer can hold"
    return _fault_of_errors(verdicts.errors, count)


def _fault_of_errors(errors: object, count: int) -> str:
    if not isinstance(errors, Mapping):
        return "`errors` is a mapping"
    for row, raised in errors.items():
        if type(row) is not int or not 0 <= row < count:
            return "`errors` has positions of resources"
        if type(raised) is not tuple or not all(type(rule) is str for rule in raised):
            return "`errors` has tuples of texts"
        if not all(map(_is_unicode, raised)):
            return "`errors` has a lone surrogate, which no answer can hold"
    return ""


def _is_unicode(text: str | None) -> bool:
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        return False
    return True


def _unchangeable(resources: Sequence[Resource]) -> Sequence[Resource]:
    """Return the resources in a form that an engine cannot empty: others read the same list."""
    return tuple(resources) if type(resources) is list else resources


def _is_ended(task: asyncio.Task[Any] | None) -> bool:
    """Tell whether others end the request of a task: a cancellation, or a closed coroutine, which no task runs."""
    try:
        return task is None or task.cancelling() > 0 or asyncio.current_task() is not task
    except RuntimeError:  # no event loop runs
        return True


class FailedEngine:
    """Engine in place of one whose `applies` raised: the service denies, as after any failure of an engine."""

    cost: Final = Cost.MICROSECONDS
    forbids: Final = True
    counts_stored_roles: Final = True

    def __init__(self, name: str, digest: str, reads: frozenset[Dependency]) -> None:
        self.name = name
        self.digest = digest
        self.reads = reads

    def applies(self, action: str, type: str) -> bool:
        """Return True: silence could open what the engine forbids."""
        return True

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Raise InvalidVerdicts."""
        raise InvalidVerdicts(f"engine `{self.name}`: `applies` raised")

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return a trace that names the failure."""
        return Trace(self.name, EFFECT_NAMES[FAILED], "`applies` raised")


def unexplained(engine: str, error: BaseException) -> Trace:
    """Return the trace in place of an explanation that raised. The exception's text may quote values of the request."""
    log_failure("engine explains nothing", error, engine=engine)
    return Trace(engine, NOT_EXPLAINED, f"`explain` raised {type(error).__name__}")


def _is_sound(trace: object) -> bool:
    """Tell whether an answer can hold a trace: texts of Unicode, and parts within the limits."""
    level: list[Any] = [trace]
    count = 1
    for _ in range(_MOST_LEVELS):
        if not all(type(part) is Trace and _has_sound_texts(part) and type(part.parts) is tuple for part in level):
            return False
        level = [inner for part in level for inner in part.parts]
        count += len(level)
        if not level or count > _MOST_PARTS:
            break
    return not level


def _has_sound_texts(trace: Trace) -> bool:
    return all(type(text) is str and _is_unicode(text) for text in (trace.what, trace.outcome, trace.why))


def applying(engine: Engine, action: str, type: str) -> Engine | None:
    """Return the engine that decides an action on a type in place of `engine`; None if the engine does not apply."""
    try:
        return engine if engine.applies(action, type) else None
    except (Exception, *_ENDS) as error:  # noqa: BLE001  the engine in its place fails, which denies
        log_failure("engine failed, all denied", error, engine=engine.name, action=action, type=type)
        return FailedEngine(engine.name, engine.digest, engine.reads)


class _Guard:
    """Common part of both guards: description of the engine behind a guard."""

    def __init__(self, name: str, engine: Engine | AsyncEngine, digest: str) -> None:
        self._name = name
        self._digest = digest
        self._reads = engine.reads
        self._cost = engine.cost
        # an engine of another package may lack both: silence says nothing, so such an engine may do both
        self._forbids = getattr(engine, "forbids", True) is not False
        self._counts_stored_roles = getattr(engine, "counts_stored_roles", True) is not False

    @property
    def name(self) -> str:
        """Return the name of the engine in the configuration."""
        return self._name

    @property
    def digest(self) -> str:
        """Return the digest of the package, the options and the engine's own policies."""
        return self._digest

    @property
    def reads(self) -> frozenset[Dependency]:
        """Return the sources of the engine's verdicts."""
        return self._reads

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict."""
        return self._cost

    @property
    def forbids(self) -> bool:
        """Tell whether the engine may forbid; True unless the engine says False."""
        return self._forbids

    @property
    def counts_stored_roles(self) -> bool:
        """Tell whether the engine may read roles beside those of the principal; True unless the engine says False."""
        return self._counts_stored_roles


class GuardedEngine(_Guard):
    """Engine of another package. Raises InvalidVerdicts in place of invalid verdicts, so that the service denies."""

    def __init__(self, name: str, engine: Engine, digest: str) -> None:
        super().__init__(name, engine, digest)
        self._engine = engine

    def applies(self, action: str, type: str) -> bool:
        """Tell whether the engine can decide the action on the type."""
        return bool(self._engine.applies(action, type))

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Return the engine's verdicts."""
        count = len(resources)
        try:
            return checked(self._name, self._engine.decide(group, _unchangeable(resources), facts), count)
        except _ENDS as error:
            raise InvalidVerdicts(f"engine `{self._name}`: `decide` raised {type(error).__name__}") from error

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the engine's explanation; the bare verdict in place of an invalid explanation."""
        try:
            trace = self._engine.explain(group, resource, facts)
        except (Exception, *_ENDS) as error:  # noqa: BLE001  an explanation decides nothing
            return unexplained(self._name, error)
        return trace if _is_sound(trace) else Trace(self._name, NOT_EXPLAINED, "`explain` returned no valid Trace")


class AwaitedEngine(_Guard):
    """Engine that the service awaits before verdicts are combined. `timeout` is in seconds.

    Like any engine, but `decide` raises: a path without `ask` denies.
    """

    def __init__(self, name: str, engine: AsyncEngine, digest: str, timeout: float) -> None:
        super().__init__(name, engine, digest)
        self._engine = engine
        self._timeout = timeout

    def applies(self, action: str, type: str) -> bool:
        """Tell whether the engine can decide the action on the type."""
        return bool(self._engine.applies(action, type))

    async def ask(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Return the engine's verdicts; all failed if the engine raises, is late, or answers with anything else."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        count, task = len(resources), asyncio.current_task()
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._engine.decide(group, _unchangeable(resources), facts, deadline)
            if asyncio.get_running_loop().time() > deadline:  # the engine held the loop, or ignored its end
                raise TimeoutError
            return checked(self._name, found, count)
        except TimeoutError:
            log.warning("engine is late, all denied", engine=self._name, seconds=self._timeout, action=group.action)
            why = "late"
        except (Exception, *_ENDS) as error:
            if isinstance(error, _ENDS) and _is_ended(task):
                raise
            log_failure("engine failed, all denied", error, engine=self._name, action=group.action, type=group.type)
            why = "failed"
        return Verdicts(bytes([FAILED]) * count, [f"{self._name}:{why}"] * count)

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Raise RuntimeError: the verdicts need a wait, and the caller cannot wait."""
        raise RuntimeError(f"engine `{self._name}` must be awaited")

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return a trace without a verdict. `explain_verdict` has one."""
        return Trace(self._name, "not asked", "the engine must be awaited")

    def explain_verdict(self, group: EngineQuestion, resource: Resource, verdict: tuple[int, str | None]) -> Trace:
        """Return the trace of a verdict that `ask` returned."""
        effect, reason = verdict
        what = f"{self._name}: {group.action} on {format_resource(resource, group.ref, group.type)}"
        return Trace(f"{what} for {group.principal.id}", EFFECT_NAMES[effect], reason or "")
