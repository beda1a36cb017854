"""Explanations of wrong verdicts in policy tests: the rule that decided, or the rule or grant that came closest.

Owns the engines that remember their verdicts, for this and for coverage.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Final

import msgspec

from pdp.decision.active_policies import ActivePolicies, Authority
from pdp.decision.service import Pdp
from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.engine import Cost, Dependency, Engine, EngineQuestion, Verdicts
from pdp.engines.guarded import AwaitedEngine
from pdp.errors import Place
from pdp.facts.snapshot import Facts
from pdp.model.answer import Answer, Reason, Trace
from pdp.model.question import Batch, Resource
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.model.vocabulary import CATALOG_ACTIONS, NESSIE_CHECKS
from pdp.offline.cases.outcomes import CaseOutcome, Problem

_RULE: Final = re.compile(r"(?:^|: )cel:(.+)$")
_LONGEST_TEXT: Final = 200
_MOST_CAUSES: Final = 4


def explain_outcome(outcome: CaseOutcome, pdp: Pdp, batch: Batch, runner: asyncio.Runner) -> CaseOutcome:
    """Return the outcome with an explanation of each wrong verdict and each raising rule.

    Decides the batch once more, with traces.
    """
    if not any(_needs_reason(problem) for problem in (*outcome.problems, *outcome.warnings)):
        return outcome
    answer = runner.run(pdp.check(msgspec.structs.replace(batch, explain=True)))
    problems = [_explained(problem, answer, pdp.bundle, batch) for problem in outcome.problems]
    warnings = [_explained(problem, answer, pdp.bundle, batch) for problem in outcome.warnings]
    return msgspec.structs.replace(outcome, problems=tuple(problems), warnings=tuple(warnings))


def rule_text(bundle: ActivePolicies, reason: Reason) -> str:
    """Return the place and the text of the rule that a reason names; empty for any other reason."""
    match = _RULE.search(reason)
    for engine in rule_engines(bundle) if match else ():
        for rule in engine.rules:
            if match and rule.id == match[1]:
                place = "" if rule.place.file == Place().file else f"{rule.place}: "
                return f"rule {rule.id}: {place}{_shortened(rule.program.text)}"
    return ""


def rule_engines(bundle: ActivePolicies) -> Iterator[CelEngine | CelForbid]:
    """Yield the engines of rules: the forbidding ones first. An engine of several authorities comes several times."""
    authorities = (bundle.default, *bundle.authorities.values())
    for engine in (*bundle.forbids, *(engine for authority in authorities for engine in authority.engines)):
        found = engine.engine if isinstance(engine, ObservedEngine) else engine
        if isinstance(found, CelEngine | CelForbid):
            yield found


def _needs_reason(problem: Problem) -> bool:
    is_about_decision = problem.wrong_verdict or bool(problem.raised) or problem.unknown_action
    return problem.check is not None and is_about_decision


def _explained(problem: Problem, answer: Answer, bundle: ActivePolicies, batch: Batch) -> Problem:
    """Return the problem with the cause of the decision."""
    if problem.check is None or not _needs_reason(problem):
        return problem
    if problem.unknown_action:
        return msgspec.structs.replace(problem, why=_near_actions(batch, problem.check))
    decision = answer.decision(problem.check)
    by_rule = rule_text(bundle, decision.by[0])
    trace = decision.trace
    if problem.raised:
        causes: Sequence[str] = list(_errors_of(trace, problem.raised)) if trace else ()
    elif decision.allowed or by_rule:
        causes = [by_rule] if by_rule else []
    else:
        causes = list(_misses(trace)) if trace else []
    unique = list(dict.fromkeys(causes))
    return msgspec.structs.replace(problem, why="; ".join(unique[:_MOST_CAUSES]))


def _near_actions(batch: Batch, at: int) -> str:
    """Return the action of a check, and the known action of the type with the most similar name."""
    check = next(check for check in batch.checks if at in check.at)
    type = check.resources[0].type
    types = ("table", "view") if type == "table_or_view" else (type,)
    operations = [f"trino:{name}" for name in TRINO_OPERATIONS]
    known = [action for type in types for action in CATALOG_ACTIONS.get(type, ())] + sorted(NESSIE_CHECKS) + operations
    near = difflib.get_close_matches(check.question.action, known, 1)
    return f"`{check.question.action}` on a {type}" + (f", did you mean `{near[0]}`?" if near else "")


def _misses(trace: Trace) -> Iterator[str]:
    """Yield why the engines of a denied check are silent: the nearest rules, and the smallest missing grant."""
    if trace.what == "cel forbid":
        return
    if trace.outcome != "permit" and trace.why.startswith("nearest miss: "):
        yield f"{trace.why} for {trace.what}"
        return
    if trace.what.startswith("cedar: ") and trace.outcome in ("silent", "forbid"):
        yield trace.why
        return
    if trace.what.startswith("grants: ") and trace.outcome != "permit":
        yield trace.why
        return
    for part in trace.parts:
        yield from _misses(part)


def _errors_of(trace: Trace, rules: Sequence[str]) -> Iterator[str]:
    """Yield the messages of raising rules."""
    if trace.outcome == "error" and trace.what.removeprefix("rule ").removeprefix("policy ") in rules:
        yield f"{trace.what}: {trace.why}"
        return
    for part in trace.parts:
        yield from _errors_of(part, rules)


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


class EngineAnswer(msgspec.Struct, frozen=True):
    """Verdicts of an engine on a group of resources."""

    engine: Engine
    group: EngineQuestion
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
    def reads(self) -> frozenset[Dependency]:
        """Return the sources of the verdicts of the observed engine."""
        return self.engine.reads

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict of the observed engine."""
        return self.engine.cost

    @property
    def counts_stored_roles(self) -> bool:
        """Tell whether verdicts of the observed engine rest on stored roles."""
        return self.engine.counts_stored_roles

    @property
    def has_forbids(self) -> bool:
        """Tell whether a policy of the observed engine forbids."""
        return bool(getattr(self.engine, "has_forbids", self.engine.forbids))

    @property
    def forbids(self) -> bool:
        """Tell whether a verdict of the observed engine may forbid."""
        return self.engine.forbids

    @property
    def forbids_read(self) -> frozenset[str]:
        """Return the evidence read by forbids of the observed engine; empty for an engine that does not say."""
        return getattr(self.engine, "forbids_read", frozenset())

    def applies(self, action: str, type: str) -> bool:
        """Tell whether the observed engine can decide the action on the type."""
        return self.engine.applies(action, type)

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Return the verdicts of the observed engine, and remember them."""
        verdicts = self.engine.decide(group, resources, facts)
        self._answers.append(EngineAnswer(self.engine, group, resources, facts, verdicts))
        return verdicts

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the explanation of the observed engine."""
        return self.engine.explain(group, resource, facts)


def observe(pdp: Pdp, answers: list[EngineAnswer]) -> Pdp:
    """Return the same service with engines that add their answers to a list."""
    observed = copy(pdp)
    observed.bundle = _observed_bundle(pdp.bundle, answers)
    return observed


def _observed_bundle(bundle: ActivePolicies, answers: list[EngineAnswer]) -> ActivePolicies:
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
