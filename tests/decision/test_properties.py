"""Properties of decisions over generated rules, grants, configurations and checks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators import worlds
from support.generators.generated_pdps import batch, decide, make_pdp
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.engines.engine import PERMIT, READS_POLICIES, Cost, Verdicts
from pdp.model.answer import Answer, Trace
from pdp.model.trino_operations import SYSTEM_READS
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp


def decisions(answer: Answer) -> list[Any]:
    return [answer.decision(at) for at in range(len(answer.allowed))]


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks, st.randoms())
def test_a_batch_is_its_singles_in_any_order(config: Any, rules: Any, grants: Any, checks: Any, random: Any) -> None:
    pdp = make_pdp(config, rules, grants)
    together = decisions(decide(pdp, checks))
    assert together == [decisions(decide(pdp, [check]))[0] for check in checks]
    order = list(range(len(checks)))
    random.shuffle(order)
    assert decisions(decide(pdp, [checks[at] for at in order])) == [together[at] for at in order]


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks)
def test_a_single_check_decided_at_once_equals_the_general_way(
    config: Any, rules: Any, grants: Any, checks: Any
) -> None:
    pdp = make_pdp(config, rules, grants)
    decide_at_once_and_in_general(pdp, checks)


def decide_at_once_and_in_general(pdp: Pdp, checks: Sequence[Any]) -> None:
    """Decide each check twice, at once and by the general way; the answers and the records are the same."""
    with asyncio.Runner() as runner:
        for check in checks:
            single = batch([check])
            at_once, general = pdp.decide_now(single), runner.run(pdp.decide(single))
            assert at_once is not None
            record = msgspec.structs.replace(at_once.record, time=0.0, latency_us=0)
            answer = msgspec.structs.replace(record.answer, id=general.record.answer.id, by=list(record.answer.by))
            wanted = msgspec.structs.replace(general.record, time=0.0, latency_us=0)
            assert answer == msgspec.structs.replace(wanted.answer, by=list(wanted.answer.by))
            assert msgspec.structs.replace(record, answer=wanted.answer) == wanted


OPERATIONS = {
    "ExecuteTableProcedure": st.sampled_from([{"procedure": "OPTIMIZE"}, {"procedure": "EVIL"}, {}]),
    "RenameTable": st.sampled_from(
        [{"destination": "table_or_view:w/n/x"}, {"destination": "catalog:c/n/x"}, {"destination": "server"}, {}]
    ),
    "RenameSchema": st.sampled_from([{"destination": "namespace:w/x"}, {"destination": "table:w/n/x"}, {}]),
    **dict.fromkeys(
        [
            "SelectFromColumns",
            "CreateTable",
            "DropTable",
            "ExecuteFunction",
            "ShowTables",
            "FilterTables",
            "ExecuteQuery",
            "ImpersonateUser",
            "SetCatalogSessionProperty",
        ],
        st.just({}),
    ),
}
PLACES = [
    "table_or_view:w/n/t", "table:w/n/t", "view:w/n/v", "namespace:w/n", "warehouse:w", "server", "user:oidc~a", "catalog:c/n/t", "catalog:c",
    "system_catalog:system/runtime/queries", "system_catalog:system/runtime/nodes", "system_schema:w/information_schema/tables",
    "system_schema:w/information_schema/x", "system_schema:w/foo/bar", "metadata_table:w/n/t$files", "metadata_table:w/n/t$refs",
    "metadata_table:w/n/$files", "function:k/n/f", "function:k/n", "function:k/a..b/f", "function:k/system/f", "session_property:k/x",
]  # fmt: skip
operations = st.lists(
    st.sampled_from(sorted(OPERATIONS)).flatmap(
        lambda name: st.builds(
            lambda place, arguments: {
                "principal": "user:oidc~a",
                "action": f"trino:{name}",
                "resource": place,
                "context": {"arguments": arguments},
            },
            st.sampled_from(PLACES),
            OPERATIONS[name],
        )
    ),
    min_size=2,
    max_size=12,
)


@settings(max_examples=300)
@given(worlds.rules, worlds.grants, operations, st.sampled_from(["allow", "deny"]))
def test_operations_of_a_batch_are_its_singles(rules: Any, grants: Any, checks: Any, unmanaged: str) -> None:
    trino = {"catalogs": {"k": {"warehouse": "w", "ref": "main"}}, "unmanaged_catalogs": unmanaged}
    pdp = make_pdp({"trino": trino, "warehouses": {"w": {"default_ref": "main"}}}, rules, grants)
    assert decisions(decide(pdp, checks)) == [decisions(decide(pdp, [check]))[0] for check in checks]


@given(worlds.rules, worlds.grants, operations, st.sampled_from(["allow", "deny"]))
def test_a_single_operation_decided_at_once_equals_the_general_way(
    rules: Any, grants: Any, checks: Any, unmanaged: str
) -> None:
    trino = {"catalogs": {"k": {"warehouse": "w", "ref": "main"}}, "unmanaged_catalogs": unmanaged}
    pdp = make_pdp({"trino": trino, "warehouses": {"w": {"default_ref": "main"}}}, rules, grants)
    decide_at_once_and_in_general(pdp, checks)


@given(worlds.configs, worlds.rules, worlds.grants, worlds.grants, worlds.checks)
def test_a_new_grant_never_removes_access(config: Any, rules: Any, grants: Any, more: Any, checks: Any) -> None:
    added = [grant for grant in more if grant not in grants]
    before = decide(make_pdp(config, rules, grants), checks)
    after = decide(make_pdp(config, rules, [*grants, *added]), checks)
    assert all(now >= then for then, now in zip(before.allowed, after.allowed, strict=True))


@given(worlds.configs, worlds.rules, worlds.grants, worlds.rules, worlds.checks)
def test_a_forbid_never_adds_access(config: Any, rules: Any, grants: Any, forbid: Any, checks: Any) -> None:
    free = decide(make_pdp(config, rules, grants), checks)
    bound = decide(make_pdp(config, rules, grants, forbid), checks)
    assert all(now <= then for then, now in zip(free.allowed, bound.allowed, strict=True))


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks, st.randoms())
def test_the_order_of_rules_and_grants_changes_nothing(
    config: Any, rules: Any, grants: Any, checks: Any, random: Any
) -> None:
    shuffled_rules, shuffled_grants = list(rules.items()), list(grants)
    random.shuffle(shuffled_rules)
    random.shuffle(shuffled_grants)
    first, second = make_pdp(config, rules, grants), make_pdp(config, dict(shuffled_rules), shuffled_grants)
    assert decisions(decide(first, checks)) == decisions(decide(second, checks))


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks)
def test_the_order_of_engines_changes_no_verdict(config: Any, rules: Any, grants: Any, checks: Any) -> None:
    authority = config["authorities"]["default"]
    turned = {**config, "authorities": {"default": {**authority, "engines": authority["engines"][::-1]}}}
    assert (
        decide(make_pdp(config, rules, grants), checks).allowed
        == decide(make_pdp(turned, rules, grants), checks).allowed
    )


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks)
def test_explaining_changes_nothing_and_agrees(config: Any, rules: Any, grants: Any, checks: Any) -> None:
    pdp = make_pdp(config, rules, grants)
    explained = asyncio.run(pdp.check(msgspec.structs.replace(batch(checks), explain=True)))
    assert explained.allowed == decide(pdp, checks).allowed
    for at, allowed in enumerate(explained.allowed):
        assert (explained.traces[at].outcome == "permit") == bool(allowed)


CEDAR = (
    "permit(principal, action, resource);",
    'permit(principal in Lakekeeper::Role::"r", action, resource);',
    'forbid(principal in Lakekeeper::Role::"r", action, resource);',
    'forbid(principal, action, resource) unless { principal in Lakekeeper::Role::"r" };',
    'forbid(principal == Lakekeeper::User::"oidc~u", action, resource);',
    'permit(principal, action == Lakekeeper::Action::"ReadTableData", resource) when { resource.warehouse.name == "lake" };',
)
STACKS = (["grants"], ["cedar"], ["cel"], ["grants", "cel"], ["grants", "cedar"], ["cel", "cedar"])
ROLE_RULES = ("'r' in roles", "!('r' in roles)", "role == 'u'", "true", "op == 'VIEW_REFERENCE'", "size(roles) == 1")


def recombined(trace: Trace) -> str:
    """Return the outcome that the engines of a leaf have together, as their traces tell it."""
    told = [part.outcome for part in trace.parts if part.outcome != "does not apply"]
    if denials := [outcome for outcome in ("forbid", "failed") if outcome in told]:
        return denials[0]
    combine = all if " (all of authority" in trace.why else any
    permits = [part.outcome == "permit" for part in trace.parts if part.what != "cel forbid" and part.outcome in told]
    return "permit" if permits and combine(permits) else "silent"


def engine_leaves(trace: Trace) -> Iterator[Trace]:
    """Yield the parts of a trace that engines decide."""
    if " of authority " in trace.why:
        yield trace
    else:
        for part in trace.parts:
            yield from engine_leaves(part)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(STACKS),
    st.sampled_from(["any", "all"]),
    st.lists(st.sampled_from(CEDAR), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(ROLE_RULES), max_size=2),
    st.lists(st.sampled_from(ROLE_RULES[:3]), max_size=1),
    st.lists(st.sampled_from(["user:oidc~u", "role:r", "role:s"]), max_size=2, unique=True),
    st.booleans(),
    st.sampled_from([None, "r"]),
)
def test_traces_tell_the_decision_under_fresh_and_stale_facts(
    engines: Any, combine: Any, cedar: Any, rules: Any, forbids: Any, readers: Any, member: bool, acting: Any
) -> None:
    grants = [{"principal": who, "privilege": "select", "object": "warehouse:lake"} for who in readers]
    members = [{"principal": "user:oidc~u", "privilege": "assignee", "object": "role:r"}] * member
    config = {
        "warehouses": {"lake": {"default_ref": "main", "project": "p"}},
        "authorities": {"default": {"engines": engines, "combine": combine}},
    }
    data: dict[str, Any] = {
        "config": config,
        "rules": {f"p{at}": rule for at, rule in enumerate(rules)},
        "forbid": {f"f{at}": f"{rule} && path == 'n.t'" for at, rule in enumerate(forbids)},
        "world": {"objects": [], "grants": grants + members},
    }
    if "cedar" in engines:
        data["cedar"] = {"policies": "\n".join(f'@id("c{at}") {policy}' for at, policy in enumerate(cedar))}
    pdp = build_case_pdp(Case("stale", TESTS, data), build_pdp, MemoryAudit())[0]
    checks = [
        {"principal": "user:oidc~u", "action": "read_data", "resource": f"table:lake/n/{name}@main"} for name in "tu"
    ]
    asked = batch([check | ({"actingRole": f"role:{acting}"} if acting else {}) for check in checks])
    for stale in (False, True):
        pdp.source.is_stale = lambda stale=stale: stale  # type: ignore[method-assign, misc]
        plain = asyncio.run(pdp.check(asked))
        explained = asyncio.run(pdp.check(msgspec.structs.replace(asked, explain=True)))
        told = [msgspec.structs.replace(one, trace=None) for one in decisions(explained)]
        assert told == decisions(plain)
        for at, allowed in enumerate(plain.allowed):
            assert (explained.traces[at].outcome == "permit") == bool(allowed)
            for leaf in engine_leaves(explained.traces[at]):
                assert recombined(leaf) == leaf.outcome, leaf


class Broken:
    """An engine that fails in some way."""

    name = "broken"
    digest = ""
    forbids = counts_stored_roles = True
    reads = READS_POLICIES
    cost = Cost.MICROSECONDS

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def applies(self, action: str, type: str) -> bool:
        return True

    def decide(self, group: Any, resources: Sequence[Any], facts: Any) -> Any:
        count = len(resources)
        answers = {
            "short": Verdicts(bytes([PERMIT]) * (count - 1), ["x"] * (count - 1)),
            "long": Verdicts(bytes([PERMIT]) * (count + 1), ["x"] * (count + 1)),
            "uneven": Verdicts(bytes([PERMIT]) * count, []),
            "none": None,
            "bool": True,
        }
        if self.fault in answers:
            return answers[self.fault]
        raise {"recursion": RecursionError, "memory": MemoryError, "value": ValueError, "key": KeyError}[self.fault](
            "injected"
        )

    def explain(self, group: Any, resource: Any, facts: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("fault", ["short", "long", "uneven", "none", "bool", "recursion", "memory", "value", "key"])
@pytest.mark.parametrize("combine", ["any", "all"])
@pytest.mark.parametrize("place", ["first", "last", "forbid"])
def test_no_fault_of_an_engine_allows(fault: str, combine: str, place: str) -> None:
    pdp = make_pdp({"authorities": {"default": {"engines": ["cel"], "combine": combine}}}, {"r": "true"})
    broken: Any = Broken(fault)
    bundle = pdp.bundle
    good = bundle.default.engines
    engines = (broken, *good) if place == "first" else (*good, broken) if place == "last" else good
    forbids = (broken,) if place == "forbid" else ()
    default = msgspec.structs.replace(bundle.default, engines=engines)
    pdp.bundle = msgspec.structs.replace(bundle, default=default, forbids=forbids)
    answer = decide(pdp, [worlds.check("user:oidc~a", "READ_ENTITY_VALUE", "content:w/n/t@main", None, False)] * 3)
    assert (answer.allowed, set(answer.by)) == (b"\0\0\0", {"broken:failed"})
    assert pdp.telemetry.registry.get_sample_value("pdp_engine_failures_total", {"engine": "broken"}) == 1


VIEW = "path == 'n.t' && contentType == 'ICEBERG_VIEW'"


@pytest.mark.parametrize("name", ["t$files", "t$snapshots"])
@pytest.mark.parametrize("operation", sorted(SYSTEM_READS))
def test_forbids_on_a_view_bind_for_metadata_tables(operation: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operation that reads, also one whose action neither a table nor a view has: `allow_all` permits it."""
    monkeypatch.setenv("PDP_DEVELOPMENT", "1")
    check = {"principal": "user:oidc~a", "action": f"trino:{operation}", "resource": f"metadata_table:w/n/{name}"}
    config = {"warehouses": {"w": {"default_ref": "main"}}, "trino": {"catalogs": {"k": {"warehouse": "w"}}}}
    for engines, known in (
        ("allow_all", True),
        ("cel", operation not in ("ShowTables", "ShowSchemas", "AccessCatalog", "FilterCatalogs")),
    ):
        given = {**config, "authorities": {"default": {"engines": [engines]}}}
        open_pdp, pdp = (make_pdp(given, {"r": "true"}, (), forbid) for forbid in (None, {"f": VIEW}))
        assert list(decide(open_pdp, [check]).allowed) == [known]
        answer = decide(pdp, [check])
        assert (list(answer.allowed), list(answer.by)) == ([False], ["cel:f" if known else "unknown_action"])


def test_an_engine_that_forbids_a_view_binds_under_any_name() -> None:
    pdp = make_pdp({"warehouses": {"w": {"default_ref": "main"}}}, {"r": "true"}, (), {"f": VIEW})
    engines = (*pdp.bundle.default.engines, *pdp.bundle.forbids)
    default = msgspec.structs.replace(pdp.bundle.default, engines=engines)
    pdp.bundle = msgspec.structs.replace(pdp.bundle, forbids=(), default=default)
    check = {"principal": "user:oidc~a", "action": "trino:SelectFromColumns", "resource": "metadata_table:w/n/t$files"}
    assert list(decide(pdp, [check]).by) == ["cel:f"]
