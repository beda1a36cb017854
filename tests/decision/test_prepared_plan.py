"""A prepared plan decides as the plain way does, and asks equal questions once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators import worlds
from support.generators.cel_rule_sets import KINDS, groups, rule_sets
from support.generators.generated_pdps import batch, make_pdp

from pdp.decision.active_policies import EngineStack
from pdp.decision.combine import combine_one, combine_rows
from pdp.decision.plan import Leaf
from pdp.decision.prepared_plan import PreparedTree
from pdp.decision.service import Pdp
from pdp.engines.cel.engine import CelEngine
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import ABSTAIN, FAILED, FORBID, PERMIT, EngineQuestion, FixedAnswer, Verdicts
from pdp.engines.grants.engine import GrantsEngine
from pdp.facts.snapshot import Facts
from pdp.model.answer import DEFAULT_DENY
from pdp.model.question import Batch, Check, Principal, Question, Resource


def decided(pdp: Pdp, asked: Batch) -> Any:
    """Return the answer and the record of a batch, without the id, the time and the latency."""
    result = pdp.decide_now(asked)
    assert result
    record = result.record
    answer = msgspec.structs.replace(record.answer, id="")
    return msgspec.structs.replace(record, answer=answer, time=0.0, latency_us=0), result.answer.decision(0)


@given(worlds.configs, worlds.rules, worlds.rules, worlds.grants, worlds.checks)
def test_a_prepared_plan_decides_as_the_plain_way(
    config: Any, rules: Any, forbids: Any, grants: Any, checks: Any
) -> None:
    used = make_pdp(config, rules, grants, forbids)
    for check in [*checks, *checks, *checks]:
        asked = batch([check])
        assert decided(used, asked) == decided(
            make_pdp(config, rules, grants, forbids), asked
        )  # a new service has nothing prepared


@pytest.mark.long
@settings(max_examples=300)
@given(rule_sets, st.lists(groups(), min_size=1, max_size=4), st.sampled_from(KINDS))
def test_a_prepared_question_has_the_verdicts_of_the_engine(
    rules: dict[str, str], asked: list[tuple[EngineQuestion, list[Resource]]], kind: Any
) -> None:
    engine = kind(inline_rules(rules), "oidc")
    calls = [engine.prepare(group, Facts.empty()) for group, _ in asked]
    for (group, _), call in zip(asked, calls, strict=True):
        for given_resource in [resource for _, resources in asked for resource in resources]:
            resource = msgspec.structs.replace(given_resource, type=group.type)
            found = call(resource) if call else None
            if found is not None:
                assert found == engine.decide(group, (resource,), Facts.empty())
                # Equal calls stand for one another, whatever groups they were prepared for.
                assert all(other(resource) == found for other in calls if other == call)


effects = st.sampled_from([ABSTAIN, ABSTAIN, PERMIT, PERMIT, FORBID, FAILED])


@given(
    st.lists(st.tuples(effects, st.sampled_from(["", "x", "y"]), st.sampled_from(["", "", "r"])), max_size=4),
    st.integers(0, 2),
    st.sampled_from(["any", "all"]),
)
def test_one_resource_is_combined_as_a_row_is(given: Any, forbids: int, combine: Any) -> None:
    verdicts = [
        Verdicts(bytes([effect]), (by or ("p" if effect else None),), {0: (rule,)} if rule else {})
        for effect, by, rule in given
    ]
    forbids = min(forbids, len(verdicts))
    stack = EngineStack((None,) * len(verdicts), forbids, combine)  # type: ignore[arg-type]
    found, wanted = combine_one(verdicts, stack), combine_rows(verdicts, forbids, combine, [stack.silence])
    assert (found.effects, list(found.by)) == (wanted.effects, list(wanted.by))
    if found.effects != bytes([PERMIT]):
        assert found.errors == wanted.errors


@given(
    st.lists(
        st.tuples(effects, st.sampled_from(["", "x"]), st.sampled_from(["", "", "r"]), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 3),
    st.sampled_from(["any", "all"]),
)
def test_engines_that_are_always_silent_may_be_left_out(given: Any, forbids: int, combine: Any) -> None:
    columns = [
        Verdicts(bytes([effect]), (by or ("p" if effect else None),), {0: (rule,)} if rule else {})
        for effect, by, rule, _ in given
    ]
    calls = [
        FixedAnswer(column) if fixed else (lambda _, column=column: column)
        for column, (*_, fixed) in zip(columns, given, strict=True)
    ]
    stack = EngineStack((None,) * len(calls), min(forbids, len(calls)), combine)  # type: ignore[arg-type]
    group = EngineQuestion(Question(Principal("user", "u"), "get_metadata"), "table", "w", "main")
    check = Check(Question(group.principal, group.action), (Resource("table", "w", ("a", "t")),), (0,))
    tree = PreparedTree(Leaf(group, ()), group.action)
    tree.add(group, stack, calls)
    verdicts = tree.verdicts(check.resources[0])
    assert verdicts
    found, wanted = tree.decided(check, verdicts).outcome, combine_one(columns, stack)
    assert found is verdicts[-1]
    assert (found.effects, list(found.by)) == (wanted.effects, list(wanted.by))
    if found.effects != bytes([PERMIT]):
        assert found.errors == wanted.errors
    described = msgspec.structs.replace(check.resources[0], properties={"a": "b"})
    assert (tree.verdicts(described) is None) == any(fixed for *_, fixed in given)


BOB = {"principal": {"id": "user:oidc~bob"}, "action": "select", "resource": "table_or_view:w/a/t@main"}


def grants_pdp(*objects: str) -> Pdp:
    grants = [{"principal": "user:oidc~bob", "privilege": "select", "object": object} for object in objects]
    return make_pdp({"authorities": {"default": {"engines": ["grants"]}}}, {}, grants)


def test_a_table_and_a_view_of_one_name_are_one_question_to_rules() -> None:
    engine = CelEngine(inline_rules({"a": "path.startsWith('a')"}), "oidc")
    table, view = (
        engine.prepare(
            EngineQuestion(Question(Principal("user", "u"), "get_metadata"), type, "w", "main"),
            Facts.empty(),
        )
        for type in ("table", "view")
    )
    assert table == view


def test_a_prepared_question_of_grants_survives_the_eviction_of_its_access() -> None:
    pdp = grants_pdp("table:w/a/t")
    engine = next(engine for engine in pdp.bundle.default.engines if isinstance(engine, GrantsEngine))
    for _ in range(4):
        assert decided(pdp, batch([BOB]))[1].allowed
        engine._budget.left = 0
        engine._evict()
    accesses = engine._cache.values()
    held = sum(access.entries for access in accesses)
    assert decided(pdp, batch([BOB]))[1].by == ("grants:select on table:w/a/t via user:oidc~bob",)
    assert held <= sum(access.entries for access in engine._cache.values())
    assert not any(access.retired for access in engine._cache.values())


def test_an_engine_that_fails_after_it_was_prepared_denies_and_is_counted(monkeypatch: Any) -> None:
    pdp = grants_pdp("table:w/a/t")
    for _ in range(3):
        assert decided(pdp, batch([BOB]))[1].allowed

    def fail(*_: Any) -> None:
        raise ValueError("injected")

    monkeypatch.setattr("pdp.engines.grants.effective_access.EffectiveAccess.reason_inside", fail)
    decision = decided(pdp, batch([BOB]))[1]
    assert (decision.allowed, decision.by) == (False, ("grants:failed",))
    assert pdp.telemetry.registry.get_sample_value("pdp_engine_failures_total", {"engine": "grants"}) == 2


def test_new_facts_have_new_questions() -> None:
    pdp, other = grants_pdp("table:w/a/t"), grants_pdp()
    for _ in range(3):
        assert decided(pdp, batch([BOB]))[1].allowed
    pdp.source = other.source
    for _ in range(3):
        assert decided(pdp, batch([BOB]))[1].by == (DEFAULT_DENY,)
