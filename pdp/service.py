"""The one path of a request: one bundle and one revision for the whole batch, plan, decide, fold, audit.

Holds what is current and nothing else; engines decide, plans say what to ask. In an authorization path the only
fallback is deny: an engine that raises has failed, and a failure denies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import structlog
from uuid6 import uuid7

from pdp.audit.record import Asked, Asking, Decided
from pdp.bundle import Authority, Bundle
from pdp.engines.engine import EFFECT_NAMES, FAILED, FORBID, PERMIT, Engine, Group, Verdicts
from pdp.errors import InvalidArgument, Unavailable
from pdp.facts import Facts
from pdp.inspection import guards, is_seen_through, permitted, reduced
from pdp.model import DEFAULT_DENY, Answer, AtLeast, Batch, Check, Reason, Resource, Trace
from pdp.plan import AllOf, AnyOf, Fixed, Leaf, Node, Split, fold, leaves, plan
from pdp.references import format_resource
from pdp.telemetry import Telemetry
from pdp.trino import plan_operation

CHUNK = 2000
"""Resources judged before the event loop gets a turn."""

_ALLOWED: Final = bytes(effect == PERMIT for effect in range(256))
"""Effects to what an answer says."""
log = structlog.get_logger()


Decisions = Callable[[Leaf | Fixed], Verdicts]


class AuditLog(Protocol):
    """Where decided batches go; it must not wait for a disk."""

    def admit(self) -> None:
        """Raise Unavailable while records cannot be taken."""
        ...

    def append(self, decided: Decided) -> None:
        """Take a decided batch."""
        ...


class Pdp:
    """The decision service."""

    def __init__(self, bundle: Bundle, facts: Facts, audit: AuditLog, telemetry: Telemetry) -> None:
        self.bundle = bundle
        self.facts = facts
        self.audit = audit
        self.telemetry = telemetry

    def revision(self) -> str:
        """`<store epoch>.<sequence>.<bundle digest>` of what decides now."""
        return _revision(self.bundle, self.facts)

    async def check(self, batch: Batch) -> Answer:
        """Decide a batch; raises Unavailable where its consistency or its audit cannot be served."""
        started = time.perf_counter()
        self.audit.admit()
        bundle, facts = self.bundle, self.facts
        _check_consistency(batch, facts)
        visible = None if is_seen_through(batch) else await self._visible(batch, bundle, facts)
        batch = batch if visible is None else permitted(batch, visible)
        trees = [plan(check, bundle, facts, plan_operation) for check in batch.checks]
        concrete = [list(leaves(tree, check.at)) for check, tree in zip(batch.checks, trees, strict=True)]
        decided = await self._decide_leaves([leaf for found in concrete for leaf, _ in found], bundle, facts)
        answer = await _Fold(bundle, facts, decided).answer(batch, trees)
        elapsed = time.perf_counter() - started
        asked = tuple(
            Asked(
                check,
                _is_plain(check, tree),
                tuple(Asking(leaf.group, leaf.resources, at, decided(leaf)) for leaf, at in found),
            )
            for check, tree, found in zip(batch.checks, trees, concrete, strict=True)
        )
        self.audit.append(Decided(batch, answer, asked, bundle.digest, bundle.text, time.time(), int(elapsed * 1e6)))
        self._count(answer, batch.surface, elapsed)
        return answer if visible is None else reduced(answer, visible)

    async def _visible(self, batch: Batch, bundle: Bundle, facts: Facts) -> bytes:
        """1 for each position whose object's grants the caller's own principal may read."""
        checks = guards(batch)
        trees = [plan(check, bundle, facts, plan_operation) for check in checks]
        concrete = [leaf for check, tree in zip(checks, trees, strict=True) for leaf, _ in leaves(tree, check.at)]
        decided = await self._decide_leaves(concrete, bundle, facts)
        asked, refused = set[int](), set[int]()
        for check, tree in zip(checks, trees, strict=True):
            asked.update(check.at)
            effects = fold(tree, decided).effects
            refused.update(at for at, effect in zip(check.at, effects, strict=True) if effect != PERMIT)
        return bytes(at in asked and at not in refused for at in range(batch.size))

    async def _decide_leaves(self, asked: Sequence[Leaf | Fixed], bundle: Bundle, facts: Facts) -> Decisions:
        """Every leaf's verdicts: each engine is asked once per group, whatever tree a leaf stands in."""
        groups: dict[Group, list[Leaf]] = {}
        for leaf in asked:
            if isinstance(leaf, Leaf):
                groups.setdefault(leaf.group, []).append(leaf)
        found: dict[int, Verdicts] = {}
        turn = 0
        for group, members in groups.items():
            resources = members[0].resources if len(members) == 1 else [r for leaf in members for r in leaf.resources]
            parts = []
            for start in range(0, len(resources), CHUNK):
                some = resources[start : start + CHUNK] if len(resources) > CHUNK else resources
                parts.append(self._decide(group, some, bundle, facts))
                turn += len(some)
                if turn >= CHUNK:
                    turn = 0
                    await asyncio.sleep(0)
            found.update(_shared_out(_joined(parts), members))
        return lambda leaf: found[id(leaf)] if isinstance(leaf, Leaf) else fold(leaf, _no_leaf)

    def _decide(self, group: Group, resources: Sequence[Resource], bundle: Bundle, facts: Facts) -> Verdicts:
        authority = bundle.authority(group.warehouse)
        engines = [engine for engine in authority.engines if engine.applies(group.action, group.type)]
        forbids = [engine for engine in bundle.forbids if engine.applies(group.action, group.type)]
        verdicts = [self._judge(engine, group, resources, facts) for engine in (*forbids, *engines)]
        if len(verdicts) == 1 and engines:
            return verdicts[0]
        silence: Reason | None = None if engines else "unknown_action"
        return _combine(authority, verdicts, len(forbids), [silence] * len(resources))

    def _judge(self, engine: Engine, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        try:
            verdicts = engine.decide(group, resources, facts)
            if len(verdicts.effects) != len(resources) or len(verdicts.by) != len(resources):
                raise ValueError(f"{len(verdicts.effects)} effects for {len(resources)} resources")
        except Exception:
            log.exception("engine failed, all denied", engine=engine.name, action=group.action, type=group.type)
            self.telemetry.engine_failures.labels(engine.name).inc()
            count = len(resources)
            return Verdicts(bytes([FAILED]) * count, [f"{engine.name}:failed"] * count)
        return verdicts

    def _count(self, answer: Answer, surface: str, elapsed: float) -> None:
        permits = answer.allowed.count(1)
        self.telemetry.decided(surface, permits, len(answer.allowed) - permits, elapsed)


class _Fold:
    """Decided leaves folded into the answer of a batch."""

    def __init__(self, bundle: Bundle, facts: Facts, decided: Decisions) -> None:
        self._bundle = bundle
        self._facts = facts
        self._decided = decided

    async def answer(self, batch: Batch, trees: Sequence[Node]) -> Answer:
        if len(trees) == 1 and batch.checks[0].at == range(batch.size) and not batch.explain:
            return self._whole(batch, fold(trees[0], self._decided))
        allowed = bytearray(batch.size)
        by: list[Reason | None] = [None] * batch.size
        errors: dict[int, tuple[str, ...]] = {}
        traces: dict[int, Trace] = {}
        for check, tree in zip(batch.checks, trees, strict=True):
            verdicts = fold(tree, self._decided)
            for at, effect, reason in zip(check.at, verdicts.effects, verdicts.by, strict=True):
                if effect == PERMIT:
                    allowed[at] = 1
                by[at] = reason
            errors.update((check.at[row], raised) for row, raised in verdicts.errors.items())
            if batch.explain:
                for row, at in enumerate(check.at):
                    traces[at] = self._trace(tree, row)
                    await asyncio.sleep(0)
        for at, rejected in batch.rejected.items():
            by[at] = rejected.by
        return self._made(batch, bytes(allowed), by, errors, traces)

    def _whole(self, batch: Batch, verdicts: Verdicts) -> Answer:
        """One check that is the whole batch, in order: its columns are the answer's."""
        return self._made(batch, verdicts.effects.translate(_ALLOWED), verdicts.by, verdicts.errors, {})

    def _made(
        self,
        batch: Batch,
        allowed: bytes,
        by: Sequence[Reason | None],
        errors: Mapping[int, tuple[str, ...]],
        traces: Mapping[int, Trace],
    ) -> Answer:
        revision = _revision(self._bundle, self._facts)
        return Answer(str(uuid7()), revision, allowed, by, errors, batch.rejected, traces)

    def _trace(self, node: Node, row: int) -> Trace:
        if isinstance(node, Split):
            part = next(part for part, at in enumerate(node.at) if row in at)
            return self._trace(node.parts[part], node.at[part].index(row))
        verdicts = fold(node, self._decided)
        outcome, why = EFFECT_NAMES[verdicts.effects[row]], verdicts.by[row] or DEFAULT_DENY
        if isinstance(node, AllOf | AnyOf):
            what = "all of" if isinstance(node, AllOf) else "any of"
            return Trace(what, outcome, why, tuple(self._trace(part, row) for part in node.parts))
        group, resource = node.group, node.resources[row]
        what = f"{group.action} on {format_resource(resource, group.ref, group.type)} as {group.principal.id}"
        if isinstance(node, Fixed):
            return Trace(what, outcome, why)
        authority = self._bundle.authority(group.warehouse)
        parts = tuple(self._explain(engine, group, resource) for engine in (*self._bundle.forbids, *authority.engines))
        return Trace(what, outcome, f"{why} ({authority.combine} of authority {authority.name})", parts)

    def _explain(self, engine: Engine, group: Group, resource: Resource) -> Trace:
        if not engine.applies(group.action, group.type):
            return Trace(engine.name, "does not apply")
        return engine.explain(group, resource, self._facts)


def _combine(
    authority: Authority, verdicts: Sequence[Verdicts], forbids: int, silence: list[Reason | None]
) -> Verdicts:
    """One verdict per resource: a forbid wins, a failure denies, then any or all of the engines that apply."""
    effects = bytearray(len(silence))
    by = silence
    errors: dict[int, tuple[str, ...]] = {}
    engines = verdicts[forbids:]
    wanted = max(1, len(engines)) if authority.combine == "all" else 1
    for at in range(len(effects)):
        found = [verdict.effects[at] for verdict in verdicts]
        raised = {rule for verdict in verdicts for rule in verdict.errors.get(at, ())}
        for effect in (FORBID, FAILED, PERMIT):
            if effect in found and (effect != PERMIT or found[forbids:].count(PERMIT) >= wanted):
                effects[at] = effect
                by[at] = verdicts[found.index(effect)].by[at]
                break
        if raised and effects[at] != PERMIT:
            errors[at] = tuple(sorted(raised))
    return Verdicts(bytes(effects), by, errors)


def _joined(columns: Sequence[Verdicts]) -> Verdicts:
    if len(columns) == 1:
        return columns[0]
    by: list[Reason | None] = []
    errors: dict[int, tuple[str, ...]] = {}
    for column in columns:
        errors.update((len(by) + row, raised) for row, raised in column.errors.items())
        by.extend(column.by)
    return Verdicts(b"".join(column.effects for column in columns), by, errors)


def _shared_out(verdicts: Verdicts, members: Sequence[Leaf]) -> dict[int, Verdicts]:
    """The verdicts of a group, handed back to the leaves it was made of."""
    if len(members) == 1:
        return {id(members[0]): verdicts}
    shares = {}
    start = 0
    for leaf in members:
        stop = start + len(leaf.resources)
        errors = {row - start: raised for row, raised in verdicts.errors.items() if start <= row < stop}
        shares[id(leaf)] = Verdicts(verdicts.effects[start:stop], verdicts.by[start:stop], errors)
        start = stop
    return shares


def _no_leaf(leaf: Leaf) -> Verdicts:
    raise AssertionError("a fixed answer has no leaves")


def _is_plain(check: Check, tree: Node) -> bool:
    """Whether the concrete checks of a tree are the request itself."""
    return isinstance(tree, Leaf | Fixed) and tree.group.action == check.action and tree.resources is check.resources


def _revision(bundle: Bundle, facts: Facts) -> str:
    return f"{facts.epoch}.{facts.sequence}.{bundle.digest}"


def _check_consistency(batch: Batch, facts: Facts) -> None:
    wanted = batch.consistency
    if not isinstance(wanted, AtLeast):
        if wanted not in ("minimize_latency", "full"):
            raise InvalidArgument(f"consistency `{wanted}` is none of `minimize_latency`, `full`, `atLeast`")
        return
    epoch, _, rest = wanted.at_least.partition(".")
    sequence = rest.partition(".")[0]
    if not (sequence.isascii() and sequence.isdecimal() and len(sequence) < 20):
        raise InvalidArgument(f"revision `{wanted.at_least}` is not `<epoch>.<sequence>.<digest>`")
    if epoch != facts.epoch or int(sequence) > facts.sequence:
        raise Unavailable(
            f"revision `{wanted.at_least}` is not served here: the store is at {facts.epoch}.{facts.sequence}"
        )
