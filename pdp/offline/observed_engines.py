"""Engines that remember their verdicts, for the coverage of policies by tests."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import msgspec

from pdp.decision.bundle import Authority, Bundle
from pdp.decision.service import Pdp
from pdp.engines.engine import Cost, Engine, Group, Source, Verdicts
from pdp.engines.guarded import AwaitedEngine
from pdp.facts.snapshot import Facts
from pdp.model.question import Resource, Trace


class EngineAnswer(msgspec.Struct, frozen=True):
    """Verdicts of an engine on a group of resources."""

    engine: Engine
    group: Group
    resources: Sequence[Resource]
    facts: Facts
    verdicts: Verdicts


class ObservedEngine:
    """Engine that adds each of its answers to a list."""

    def __init__(self, engine: Engine, answers: list[EngineAnswer]) -> None:
        self.engine = engine
        self._answers = answers

    @property
    def name(self) -> str:
        """Return the name of the observed engine."""
        return self.engine.name

    @property
    def digest(self) -> str:
        """Return the digest of the observed engine."""
        return self.engine.digest

    @property
    def reads(self) -> frozenset[Source]:
        """Return the sources of the verdicts of the observed engine."""
        return self.engine.reads

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict of the observed engine."""
        return self.engine.cost

    def applies(self, action: str, type: str) -> bool:
        """Tell whether the observed engine can decide the action on the type."""
        return self.engine.applies(action, type)

    def decide(self, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Return the verdicts of the observed engine, and remember them."""
        verdicts = self.engine.decide(group, resources, facts)
        self._answers.append(EngineAnswer(self.engine, group, resources, facts, verdicts))
        return verdicts

    def explain(self, group: Group, resource: Resource, facts: Facts) -> Trace:
        """Return the explanation of the observed engine."""
        return self.engine.explain(group, resource, facts)


def observe(pdp: Pdp, answers: list[EngineAnswer]) -> Pdp:
    """Return the same service with engines that add their answers to a list."""
    observed = copy(pdp)
    observed.bundle = _observed_bundle(pdp.bundle, answers)
    return observed


def _observed_bundle(bundle: Bundle, answers: list[EngineAnswer]) -> Bundle:
    engines: dict[int, ObservedEngine] = {}

    def watch(engine: Engine) -> Engine:
        if isinstance(engine, AwaitedEngine):  # the service must see that the engine has to be awaited
            return engine
        if id(engine) not in engines:
            engines[id(engine)] = ObservedEngine(engine, answers)
        return engines[id(engine)]

    def watch_all(authority: Authority) -> Authority:
        return msgspec.structs.replace(authority, engines=tuple(map(watch, authority.engines)))

    return msgspec.structs.replace(
        bundle,
        authorities={name: watch_all(authority) for name, authority in bundle.authorities.items()},
        default=watch_all(bundle.default),
        forbids=tuple(map(watch, bundle.forbids)),
    )
