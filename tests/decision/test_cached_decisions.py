"""Decisions with a cache equal decisions without one: cold, warm, shared, across writes and reloads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.generators import worlds
from support.generators.generated_pdps import LastRecord, batch, decide, make_pdp
from support.service.caches import value_of, with_cache, written

from pdp.decision import turns
from pdp.decision.active_policies import Authority
from pdp.decision.cache.cache import MOST_FIELDS, Cache, FoundVerdicts, Lookup, NewVerdicts
from pdp.decision.cache.keys import resource_fields
from pdp.decision.cache.local import InProcessCache
from pdp.decision.cached_evaluation import CachedEvaluation
from pdp.decision.plan import Leaf
from pdp.decision.service import Pdp
from pdp.engines.engine import PERMIT, READS_POLICIES, Cost, Dependency, Engine, EngineQuestion, Verdicts
from pdp.facts.objects import Grant, GrantAdded, GrantRemoved
from pdp.facts.snapshot import Facts
from pdp.model.answer import Answer
from pdp.model.question import AtLeast, Batch, Principal, Question, Resource
from pdp.store.replica import FixedFacts

CHECK = {"principal": "user:oidc~a", "action": "read_data", "resource": "table:w/n/t@main"}
GROUP = EngineQuestion(Question(Principal("user", "oidc~a"), "read_data"), "table", "w", "main")


def outcomes(answer: Answer) -> list[Any]:
    """Return the decisions without the mark of the cache."""
    return [msgspec.structs.replace(answer.decision(at), cached=False) for at in range(len(answer.allowed))]


def entries(record: Any) -> Any:
    """Return what a record says of concrete checks."""
    return [
        (decided.check.question.action, list(decided.check.at), decided.plain, leaf)
        for decided in record.checks
        for leaf in as_lists(decided.concrete)
    ]


def as_lists(leaves: Sequence[Any]) -> list[Any]:
    return [
        (leaf.group, list(leaf.resources), list(leaf.at), leaf.verdicts.effects, list(leaf.verdicts.by), dict(leaf.verdicts.errors))
        for leaf in leaves
    ]  # fmt: skip


def without_cache(pdp: Pdp) -> Pdp:
    """Return the same service without its cache."""
    plain = copy(pdp)
    plain.cache = None
    return plain


async def decide_and_write(pdp: Pdp, asked: Any) -> Answer:
    """Decide and wait until the new verdicts are kept."""
    answer = await pdp.check(asked)
    await written(pdp)
    return answer


@settings(max_examples=60)
@given(worlds.configs, worlds.rules, worlds.grants, worlds.rules, worlds.checks)
def test_a_cold_and_a_warm_cache_change_nothing(config: Any, rules: Any, grants: Any, forbid: Any, checks: Any) -> None:
    plain = make_pdp(config, rules, grants, forbid)
    cached = with_cache(copy(plain))
    plain.audit, cached.audit = LastRecord(), LastRecord()
    asked = batch(checks)
    wanted = decide(plain, checks)
    with asyncio.Runner() as runner:
        for warm in (False, True, True):
            answer = runner.run(decide_and_write(cached, asked))
            assert outcomes(answer) == outcomes(wanted)
            assert answer.revision == wanted.revision
            assert entries(cached.audit.record) == entries(plain.audit.record)
            assert warm or 1 not in answer.cached


def test_a_warm_decision_says_so_and_singles_warm_a_batch() -> None:
    pdp = with_cache(make_pdp({}, {"r": "path.startsWith('n.')"}))
    checks = [CHECK, {**CHECK, "resource": "table:w/n/u@main"}]
    with asyncio.Runner() as runner:
        first = runner.run(decide_and_write(pdp, batch([CHECK])))
        both = runner.run(decide_and_write(pdp, batch(checks)))
        again = runner.run(decide_and_write(pdp, batch(checks)))
    assert [first.decision(0).cached, *(both.decision(at).cached for at in range(2))] == [False, True, False]
    assert [again.decision(at).cached for at in range(2)] == [True, True]
    assert [again.decision(at).by for at in range(2)] == [("cel:r",), ("cel:r",)]


# --- what is never cached -----------------------------------------------------------------------------------------


LONG = 600.0
"""Seconds that no test waits."""


class SpyCache:
    """A cache that remembers what it was asked and given. A `held` one answers after `open` is set."""

    def __init__(self, *, held: bool = False) -> None:
        self.inner = InProcessCache(100_000, 3600)
        self.asked: list[Lookup] = []
        self.kept: list[NewVerdicts] = []
        self.open = asyncio.Event()
        if not held:
            self.open.set()

    async def find(self, lookups: Sequence[Lookup]) -> Sequence[FoundVerdicts]:
        self.asked += lookups
        await asyncio.sleep(0)
        await self.open.wait()
        return await self.inner.find(lookups)

    async def keep(self, columns: Sequence[NewVerdicts]) -> None:
        self.kept += columns
        await self.inner.keep(columns)

    def keep_near(self, columns: Sequence[NewVerdicts]) -> None:
        """Keep nothing: the spy is asked to keep in its turn."""

    def far_part(self) -> Cache:
        return self

    def state(self) -> str:
        return "ok"

    async def close(self) -> None:
        await self.inner.close()


async def settled() -> None:
    """Let every task go on until it waits for something."""
    for _ in range(200):
        await asyncio.sleep(0)


async def at_once(pdp: Pdp, spy: SpyCache, *batches: Batch) -> list[Answer]:
    """Ask all batches before the held cache answers any."""
    tasks = [asyncio.create_task(pdp.check(each)) for each in batches]
    await settled()
    spy.open.set()
    return await asyncio.gather(*tasks)


async def ask(pdp: Pdp, *checks: Any, **more: Any) -> Answer:
    return await decide_and_write(pdp, msgspec.structs.replace(batch(checks), **more))


async def test_demands_for_a_revision_and_explanations_neither_ask_nor_fill_the_cache() -> None:
    spy = SpyCache()
    pdp = with_cache(make_pdp({}, {"r": "true"}), spy)
    for more in ({"consistency": "full"}, {"consistency": AtLeast(pdp.revision())}, {"explain": True}):
        answer = await ask(pdp, CHECK, **more)
        assert answer.allowed == b"\1"
        assert not answer.cached
    assert (spy.asked, spy.kept) == ([], [])
    await ask(pdp, CHECK)
    for more in ({"consistency": "full"}, {"consistency": AtLeast(pdp.revision())}, {"explain": True}):
        assert not (await ask(pdp, CHECK, **more)).cached


async def test_verdicts_by_stale_facts_are_not_cached() -> None:
    spy = SpyCache()
    pdp = with_cache(
        make_pdp({}, {}, [{"principal": "user:oidc~a", "privilege": "select", "object": "warehouse:w"}]), spy
    )
    assert (await ask(pdp, CHECK)).allowed == b"\1"
    spy.asked.clear()
    spy.kept.clear()
    pdp.source.is_stale = lambda: True  # type: ignore[method-assign]
    stale = await ask(pdp, CHECK)
    assert stale.by == ["store_stale"]
    assert (spy.asked, spy.kept) == ([], [])


async def test_verdicts_with_errors_are_not_cached() -> None:
    spy = SpyCache()
    pdp = with_cache(make_pdp({}, {"r": "roles[9] == 'x'"}), spy)
    for _ in range(2):
        answer = await ask(pdp, CHECK)
        assert answer.decision(0).errors == ("r",)
    # the grants engine is silent without errors, the rules are asked again
    assert len(spy.asked) == 4
    assert len(spy.kept) == 1


async def test_rules_about_time_are_decided_each_time() -> None:
    spy = SpyCache()
    config = {"authorities": {"default": {"engines": ["cel"]}}}
    pdp = with_cache(make_pdp(config, {"r": "now < timestamp(1000)"}), spy)
    for seconds, allowed in ((999, True), (1001, False), (999, True)):
        pdp.clock = lambda seconds=seconds: seconds  # type: ignore[misc]
        assert (await ask(pdp, CHECK)).allowed == bytes([allowed])
    assert (spy.asked, spy.kept) == ([], [])


async def test_a_rule_about_time_does_not_keep_other_engines_from_the_cache() -> None:
    spy = SpyCache()
    member = {"principal": "user:oidc~a", "privilege": "select", "object": "warehouse:w"}
    pdp = with_cache(make_pdp({}, {"r": "now < timestamp(1000)"}, [member]), spy)
    plain = without_cache(pdp)
    for seconds in (999, 1001, 1002, 998):
        pdp.clock = plain.clock = lambda seconds=seconds: seconds  # type: ignore[misc]
        answer = await ask(pdp, CHECK)
        assert outcomes(answer) == outcomes(await plain.check(batch([CHECK])))
        assert answer.decision(0).cached is (seconds != 999)
    assert len(spy.kept) == 1


FULL = {
    "principal": {"id": "user:oidc~a", "roles": ["r"], "groups": ["g"], "attributes": {"k": 1}},
    "action": "get_metadata",
    "resource": {"type": "table", "warehouse": "w", "path": ["n", "t"], "ref": "main", "refType": "BRANCH", "id": "i", "properties": {"p": "q"}},
    "delegated": False,
    "context": {"api": {"name": "Iceberg", "version": 1}, "actions": ["A"], "arguments": {"x": 1}, "queryId": "q"},
}  # fmt: skip
CHANGES: list[tuple[tuple[str, ...], Any]] = [
    (("principal", "id"), "user:oidc~b"), (("principal", "roles"), ["s"]), (("principal", "roles"), []),
    (("principal", "roles"), ["r", "s"]), (("principal", "groups"), ["h"]), (("principal", "attributes"), {"k": 2}),
    (("principal", "attributes"), {}), (("action",), "read_data"), (("actingRole",), "role:r"), (("delegated",), True),
    (("resource", "type"), "view"), (("resource", "warehouse"), "v"), (("resource", "path"), ["n", "u"]),
    (("resource", "path"), ["n.t"]), (("resource", "path"), ["n", "t", "u"]), (("resource", "ref"), "dev"),
    (("resource", "refType"), "TAG"), (("resource", "id"), "j"), (("resource", "properties"), {"p": "r"}),
    (("resource", "properties"), {}), (("context", "api"), {"name": "Iceberg", "version": 2}),
    (("context", "api"), {"name": "Other", "version": 1}), (("context", "actions"), ["B"]),
    (("context", "actions"), []), (("context", "arguments"), {"x": 2}), (("context", "arguments"), {"y": 1}),
]  # fmt: skip


def changed(check: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return a check with another value at a path."""
    head, *rest = path
    return {**check, head: changed(check[head], tuple(rest), value) if rest else value}


async def keys_of(check: Any) -> set[tuple[bytes, bytes]]:
    """Return the keys and fields that a check asks a cache for."""
    spy = SpyCache()
    config = {"authorities": {"default": {"engines": ["cel"]}}}
    member = {"principal": "user:oidc~a", "privilege": "assignee", "object": "role:r"}
    pdp = with_cache(make_pdp(config, {"r": "role in roles"}, [member], {"f": "false"}), spy)
    answer = await ask(pdp, check)
    assert spy.asked, answer
    return {(lookup.key, field) for lookup in spy.asked for field in lookup.fields}


@pytest.mark.parametrize(
    ("path", "value"), CHANGES, ids=lambda given: ".".join(given) if isinstance(given, tuple) else ""
)
async def test_every_field_of_a_check_changes_the_key(path: tuple[str, ...], value: Any) -> None:
    assert not await keys_of(FULL) & await keys_of(changed(FULL, path, value))


async def test_the_id_of_a_query_changes_no_key() -> None:
    assert await keys_of(FULL) == await keys_of(changed(FULL, ("context", "queryId"), "other"))


class CountingEngine:
    """An engine that counts the resources it decides, and permits what a function says."""

    name = "slow"
    digest = "slow"
    forbids, counts_stored_roles = True, False
    cost = Cost.MILLISECONDS

    def __init__(self, verdict: Any = None, reads: frozenset[Dependency] = READS_POLICIES) -> None:
        self.reads = reads
        self.asked: list[str] = []
        self._verdict = verdict or (lambda resource: (PERMIT, "slow:yes"))

    def applies(self, action: str, type: str) -> bool:
        return True

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        self.asked += [".".join(resource.path) for resource in resources]
        found = [self._verdict(resource) for resource in resources]
        return Verdicts(bytes([effect for effect, _ in found]), [by for _, by in found])

    explain: Any = None


def service_of(engine: Any, cache: Cache | None = None, combine: Any = "any") -> Pdp:
    pdp = make_pdp({"authorities": {"default": {"engines": ["cel"]}}}, {})
    pdp.bundle = msgspec.structs.replace(pdp.bundle, authorities={}, default=Authority("default", (engine,), combine))
    return with_cache(pdp, cache)


@pytest.mark.parametrize("fault", ["raises", "failed", "short"])
async def test_an_engine_that_fails_is_asked_again(fault: str) -> None:
    engine: Any = CountingEngine(lambda resource: (3, "slow:failed"))
    if fault != "failed":
        given: Any = {"raises": ValueError("injected"), "short": None}[fault]

        def broken(*arguments: Any) -> Verdicts:
            engine.asked.append("t")
            if given:
                raise given
            return Verdicts(b"", [])

        engine.decide = broken
    spy = SpyCache()
    pdp = service_of(engine, spy)
    for count in (1, 2):
        assert (await ask(pdp, CHECK)).allowed == b"\0"
        assert len(engine.asked) == count
    assert spy.kept == []


async def test_an_undeclared_engine_is_asked_each_time() -> None:
    engine = CountingEngine(reads=frozenset())
    pdp = service_of(engine)
    for _ in range(3):
        await ask(pdp, CHECK)
    assert len(engine.asked) == 3


async def test_a_cached_engine_is_asked_once() -> None:
    engine = CountingEngine()
    pdp = service_of(engine)
    for _ in range(3):
        assert (await ask(pdp, CHECK)).by == ["slow:yes"]
    assert len(engine.asked) == 1


async def test_without_all_only_costly_engines_are_cached() -> None:
    cheap = CountingEngine()
    cheap.cost = Cost.MICROSECONDS
    for engine, cached in ((cheap, False), (CountingEngine(), True)):
        pdp = service_of(engine)
        assert pdp.cache
        pdp.cache._every_engine = False
        assert pdp.cache.serves(pdp.bundle) is cached
        assert (pdp.decide_now(batch([CHECK])) is None) is cached


# --- single flight ------------------------------------------------------------------------------------------------


async def test_what_many_ask_at_once_is_decided_once() -> None:
    engine = CountingEngine()
    spy = SpyCache(held=True)
    pdp = service_of(engine, spy)
    answers = await at_once(pdp, spy, *[batch([CHECK])] * 50)
    assert len(engine.asked) == 1
    assert {answer.by[0] for answer in answers} == {"slow:yes"}
    assert sum(answer.decision(0).cached for answer in answers) == 49
    assert pdp.cache
    assert value_of(pdp.cache.metrics, "pdp_cache_joined_total") == 49
    assert pdp.cache.flights.count() == 0


async def test_overlapping_batches_share_what_they_have_in_common() -> None:
    engine = CountingEngine()
    spy = SpyCache(held=True)
    pdp = service_of(engine, spy)
    checks = [{**CHECK, "resource": f"table:w/n/t{number}@main"} for number in range(30)]
    parts = [checks[start : start + 10][:: 1 if start % 2 else -1] for start in range(20)]
    answers = await at_once(pdp, spy, *map(batch, parts))
    assert all(answer.allowed == b"\1" * 10 for answer in answers)
    assert len(engine.asked) == len(set(engine.asked)) == 29


async def test_a_cancelled_leader_fails_no_follower() -> None:
    engine = CountingEngine()
    pdp = service_of(engine, SpyCache(held=True))
    leader = asyncio.create_task(pdp.check(batch([CHECK])))
    await settled()
    followers = [asyncio.create_task(pdp.check(batch([CHECK]))) for _ in range(20)]
    await settled()
    leader.cancel()
    answers = await asyncio.gather(*followers)
    assert {answer.by[0] for answer in answers} == {"slow:yes"}
    assert leader.cancelled()
    assert pdp.cache
    assert pdp.cache.flights.count() == 0


async def test_a_failing_leader_fails_itself_alone() -> None:
    engine: Any = CountingEngine()
    calls = 0

    def flaky(group: Any, resources: Sequence[Any], facts: Any) -> Verdicts:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("injected")
        return Verdicts(bytes([PERMIT]) * len(resources), ["slow:yes"] * len(resources))

    engine.decide = flaky
    spy = SpyCache(held=True)
    pdp = service_of(engine, spy)
    answers = await at_once(pdp, spy, *[batch([CHECK])] * 5)
    assert sorted(answer.by[0] or "" for answer in answers) == ["slow:failed", *["slow:yes"] * 4]


async def test_requests_of_two_bundles_or_revisions_never_meet() -> None:
    def permits_by_facts(resource: Resource) -> tuple[int, str]:
        return PERMIT, "slow:yes"

    engine = CountingEngine(permits_by_facts, frozenset({Dependency.POLICIES, Dependency.FACTS}))
    spy = SpyCache(held=True)
    pdp = service_of(engine, spy)
    first = asyncio.create_task(pdp.check(batch([CHECK])))
    await settled()
    pdp.source = FixedFacts(Facts(pdp.source.facts.epoch, pdp.source.facts.sequence + 1))
    second = asyncio.create_task(pdp.check(batch([CHECK])))
    await settled()
    pdp.bundle = msgspec.structs.replace(pdp.bundle, text=b"another", digest="another")
    third = asyncio.create_task(pdp.check(batch([CHECK])))
    await settled()
    spy.open.set()
    answers = await asyncio.gather(first, second, third)
    assert len(engine.asked) == 3
    assert len({answer.revision for answer in answers}) == 3
    assert not any(answer.cached for answer in answers)


async def test_nobody_waits_long_for_a_slow_leader() -> None:
    engine = CountingEngine()
    spy = SpyCache(held=True)
    pdp = service_of(engine, spy)
    assert pdp.cache
    pdp.cache.timeout = 0.01
    leader = asyncio.create_task(pdp.check(batch([CHECK])))
    await settled()
    answer = await pdp.check(batch([CHECK]))
    assert answer.by == ["slow:yes"]
    assert not leader.done()
    spy.open.set()
    await leader


@pytest.mark.parametrize(
    ("cost", "near", "far", "asked"),
    [
        (Cost.MILLISECONDS, 0, LONG, 1), (Cost.MILLISECONDS, LONG, 0, 11), (Cost.MILLISECONDS, 0, None, 11),
        (Cost.MILLISECONDS, LONG, None, 1), (Cost.MICROSECONDS, 0, LONG, 11), (Cost.MICROSECONDS, LONG, 0, 1),
    ],
)  # fmt: skip
async def test_followers_have_patience_with_costly_engines(
    cost: Cost, near: float, far: float | None, asked: int
) -> None:
    """Without any patience, followers decide before the leader. With a lot of patience, none does."""
    engine = CountingEngine()
    engine.cost = cost
    spy = SpyCache(held=True)
    pdp = service_of(engine, spy)
    assert pdp.cache
    pdp.cache.timeout, pdp.cache.patience = near, far
    answers = await at_once(pdp, spy, *[batch([CHECK])] * 11)
    assert {answer.by[0] for answer in answers} == {"slow:yes"}
    assert len(engine.asked) == asked
    assert pdp.cache.flights.count() == 0


@pytest.mark.parametrize("fault", ["cancelled", "raises"])
async def test_patient_followers_of_a_lost_leader_decide_at_once(fault: str) -> None:
    engine: Any = CountingEngine()
    spy = SpyCache(held=True)
    pdp = service_of(engine, spy)
    assert pdp.cache
    pdp.cache.timeout, pdp.cache.patience = 0.01, 60
    leader = asyncio.create_task(pdp.check(batch([CHECK])))
    await settled()
    followers = [asyncio.create_task(pdp.check(batch([CHECK]))) for _ in range(10)]
    await settled()
    if fault == "cancelled":
        leader.cancel()
    else:
        spy.inner.find = None  # type: ignore[assignment, method-assign]
        spy.open.set()
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*followers)
    assert {answer.by[0] for answer in answers} == {"slow:yes"}
    (lost,) = await asyncio.gather(leader, return_exceptions=True)
    assert isinstance(lost, BaseException)


@pytest.mark.parametrize("combine", ["any", "all"])
async def test_cached_verdicts_combine_with_engines_that_are_not_cached(combine: Any) -> None:
    costly = CountingEngine(lambda resource: (PERMIT, "slow:yes") if resource.path[-1] == "t1" else (0, None))
    cheap: Any = CountingEngine(
        lambda resource: (PERMIT, "cheap:yes") if resource.path[-1] == "t2" else (0, None), frozenset()
    )
    cheap.name = "cheap"
    pdp = service_of(costly, None, combine)
    default = Authority("default", (cheap, costly), combine)
    pdp.bundle = msgspec.structs.replace(pdp.bundle, default=default)
    checks = [{**CHECK, "resource": f"table:w/n/t{number}@main"} for number in range(3)]
    wanted = outcomes(await without_cache(pdp).check(batch(checks)))
    for _ in range(2):
        assert outcomes(await ask(pdp, *checks)) == wanted
    assert len(costly.asked) == 6
    assert [decision.allowed for decision in wanted] == ([False, True, True] if combine == "any" else [False] * 3)


async def test_resources_without_a_key_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(resources: Sequence[Resource]) -> list[bytes] | None:
        nonlocal calls
        calls += 1
        return resource_fields(resources)

    monkeypatch.setattr("pdp.decision.cached_evaluation.resource_fields", counted)
    spy, engines = SpyCache(), (CountingEngine(), CountingEngine())
    pdp = service_of(engines[0], spy)
    pdp.bundle = msgspec.structs.replace(pdp.bundle, default=Authority("default", engines, "any"))
    assert pdp.cache
    leaves = [Leaf(GROUP, [Resource("table", "w", ("n", "t"), properties={"k": 1 << 70})])]
    await CachedEvaluation(leaves, pdp._basis(), pdp.cache).run()
    assert calls == 1
    assert (spy.asked, [len(engine.asked) for engine in engines]) == ([], [1, 1])


def many_tables(count: int) -> Any:
    names = [f"table:w/n/t{number}@main" for number in range(count)]
    return {key: value for key, value in CHECK.items() if key != "resource"} | {"resources": names}


@pytest.mark.parametrize(("count", "cached"), [(MOST_FIELDS, True), (MOST_FIELDS + 1, False), (9_000, False)])
async def test_batches_are_cached_up_to_a_bound(count: int, cached: bool) -> None:
    engine, spy = CountingEngine(lambda one: (PERMIT, "slow:yes") if one.path[-1] < "t5" else (0, None)), SpyCache()
    pdp = service_of(engine, spy)
    check = many_tables(count)
    wanted = outcomes(await without_cache(pdp).check(batch([check])))
    engine.asked.clear()
    for _ in range(2):
        assert outcomes(await ask(pdp, check)) == wanted
    assert len(engine.asked) == count * (1 if cached else 2)
    assert bool(spy.asked) is bool(spy.kept) is cached


@pytest.mark.parametrize("size", [MOST_FIELDS // 2, MOST_FIELDS // 2 + 1])
async def test_the_bound_counts_each_engine(size: int) -> None:
    spy, engines = SpyCache(), (CountingEngine(), CountingEngine(lambda one: (0, None)))
    engines[1].name = "other"
    pdp = service_of(engines[0], spy)
    pdp.bundle = msgspec.structs.replace(pdp.bundle, default=Authority("default", engines, "any"))
    for _ in range(2):
        assert (await ask(pdp, many_tables(size))).allowed == b"\1" * size
    assert bool(spy.asked) is bool(spy.kept) is (size <= MOST_FIELDS // 2)


async def test_others_have_turns_while_the_keys_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """With turns as short as can be, a task that only counts runs at least once for each 100 keys."""
    ticks = 0

    async def count() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    pdp = service_of(CountingEngine())
    assert pdp.cache
    leaves = [Leaf(GROUP, [Resource("table", "w", ("n", str(at))) for at in range(MOST_FIELDS)])]
    evaluation = CachedEvaluation(leaves, pdp._basis(), pdp.cache)
    monkeypatch.setattr(turns, "TURN_SECONDS", -1)
    evaluation._pace.begin()
    counting = asyncio.create_task(count())
    (members,) = await evaluation._members()
    assert len(members.questions) == 1
    assert ticks >= MOST_FIELDS // 100 - 1
    counting.cancel()


# --- generated histories ------------------------------------------------------------------------------------------

RULE_SETS = [{}, {"r": "path.startsWith('n.')"}, {"r": "role=='a'", "s": "ref=='main'"}, {"e": "roles[7]=='x'"}]
GRANTS = [
    Grant((type, path), privilege, principal)
    for type, path in (("table", ("w", "n", "t")), ("namespace", ("w", "n")), ("warehouse", ("w",)))
    for privilege in ("select", "ownership")
    for principal in ("user:oidc~a", "role:r")
]


class CachedWorld(RuleBasedStateMachine):
    """Two services at revisions of their own share one cache; each answers as it would without."""

    runner: asyncio.Runner

    @initialize(config=worlds.configs, rules=st.sampled_from(RULE_SETS))
    def begin(self, config: Any, rules: Any) -> None:
        self.runner = asyncio.Runner()
        self.config = config
        cache = InProcessCache(100_000, 3600)
        self.history = [Facts("epoch", 1)]
        first = make_pdp(config, rules)
        first.source = FixedFacts(self.history[0])
        self.services = [with_cache(copy(first), cache), with_cache(copy(first), cache)]

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()

    @rule(grant=st.sampled_from(GRANTS), remove=st.booleans())
    def write(self, grant: Grant, remove: bool) -> None:
        """Write to the store. No service has the new revision yet."""
        newest = self.history[-1]
        change: Any = GrantRemoved(grant) if remove else GrantAdded(grant)
        self.history.append(newest.apply(newest.sequence + 1, [change]))

    @rule(at=st.integers(0, 1))
    def follow(self, at: int) -> None:
        """Bring one service to the newest revision."""
        self.services[at].source = FixedFacts(self.history[-1])

    @rule(at=st.integers(0, 1), rules=st.sampled_from(RULE_SETS), forbid=st.sampled_from(RULE_SETS))
    def reload(self, at: int, rules: Any, forbid: Any) -> None:
        """Give one service other policies."""
        self.services[at].bundle = make_pdp(self.config, rules, (), forbid).bundle

    @rule()
    def restore(self) -> None:
        """Start a new history of the store, with the same numbers of revisions."""
        newest = self.history[-1]
        self.history = [Facts(f"{newest.epoch}x", max(1, newest.sequence - 1))]

    @rule(at=st.integers(0, 1), checks=worlds.checks, flush=st.booleans())
    def ask(self, at: int, checks: Any, flush: bool) -> None:
        """Ask one service. The answer is that of a service without a cache at the same revision."""
        pdp, asked = self.services[at], batch(checks)
        wanted = self.runner.run(without_cache(pdp).check(asked))
        answer = self.runner.run(decide_and_write(pdp, asked) if flush else pdp.check(asked))
        assert outcomes(answer) == outcomes(wanted)
        assert answer.revision == wanted.revision

    @rule(at=st.integers(0, 1), checks=worlds.checks)
    def ask_for_the_newest(self, at: int, checks: Any) -> None:
        """After a write at revision r, a reader that asks for r never gets an older answer."""
        pdp, newest = self.services[at], self.history[-1]
        facts = pdp.source.facts
        if (facts.epoch, facts.sequence) != (newest.epoch, newest.sequence):
            return
        asked = msgspec.structs.replace(batch(checks), consistency=AtLeast(f"{newest.epoch}.{newest.sequence}"))
        answer = self.runner.run(pdp.check(asked))
        assert outcomes(answer) == outcomes(self.runner.run(without_cache(pdp).check(asked)))
        assert not answer.cached

    @invariant()
    def no_flight_is_left(self) -> None:
        for pdp in getattr(self, "services", ()):
            assert pdp.cache
            assert pdp.cache.flights.count() == 0


CachedWorld.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCachedWorld = CachedWorld.TestCase


def test_the_engine_protocol_is_met_by_the_test_engine() -> None:
    engine: Engine = CountingEngine()
    assert engine.applies("a", "table")
