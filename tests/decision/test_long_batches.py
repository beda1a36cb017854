"""Batches whose decision takes long: their cost is bounded, and others get turns meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.http_client import fetch
from support.faults.neighbours import assert_served
from support.service.serving import Process, serve_process

from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.decision.codec import decode_call
from pdp.decision.evaluation import CHUNK, ChunkSize, Evaluator, decide_in_chunks
from pdp.decision.plan import Leaf
from pdp.decision.plan_cache import MAX_TRACED_CHARACTERS, bound_traces, in_parts
from pdp.decision.turns import Resumable
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import Engine, EngineQuestion, TurnOver, Verdicts
from pdp.engines.grants.engine import GrantsEngine
from pdp.errors import TooManyChecks
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.arrays import PathArray
from pdp.model.question import Batch, Check, Principal, Question, Resource
from pdp.offline.cases.runner import MemoryAudit

BOB, NESTED = "user:oidc~bob", "user:oidc~nested"
LINKS = 1_000
WORLD = {
    "objects": [f"table:w/s{schema}/t{number}" for schema in range(20) for number in range(490)],
    "grants": [
        {"principal": BOB, "privilege": "ownership", "object": "warehouse:w"},
        {"principal": NESTED, "privilege": "assignee", "object": "role:r0"},
        *({"principal": f"role:r{at}", "privilege": "assignee", "object": f"role:r{at + 1}"} for at in range(LINKS)),
    ],
}
CONFIG: dict[str, Any] = {
    "authorities": {
        "default": {"engines": ["grants"]},
        "policies": {"engines": ["cedar"], "warehouses": ["c"]},
        "both": {"engines": ["cel", "grants"], "warehouses": ["b"]},
    },
    "warehouses": {"w": {}, "c": {}, "b": {"default_ref": "main"}},
    "policies": {"rules": ["a.properties"], "cedar": {"policies": ["a.cedar"]}},
    "store": {"url": "file:world.json"},
    "trino": {"catalogs": {name: {"warehouse": name} for name in "wcb"}},
    "audit": {"sinks": [{"file": "audit"}]},
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder: Path = tmp_path_factory.mktemp("long")
    (folder / "world.json").write_text(json.dumps(WORLD))
    (folder / "a.properties").write_text("nessie.server.authorization.rules.a=path.startsWith('a.b')\n")
    (folder / "a.cedar").write_text(
        'permit(principal in Lakekeeper::Role::"r5", action, resource in Lakekeeper::Namespace::"c/s");'
    )
    (folder / "pdp.yaml").write_text(json.dumps(CONFIG))
    with serve_process(folder, "--config", "pdp.yaml") as process:
        yield process


def checks(count: int, action: str, **more: object) -> bytes:
    """Many checks of operations on schemas. Each has a query of its own, so none is joined to another."""
    named = [
        {"principal": BOB, "action": action, "resource": f"namespace:w/s{at % 20}", "context": {"queryId": f"q{at}"}}
        for at in range(count)
    ]
    return json.dumps({"checks": named, **more}).encode()


def many_checks(count: int, action: str, resource: str, principal: str = "user:oidc~u{}") -> bytes:
    named = [
        {"principal": principal.format(at), "action": action, "resource": resource.format(at)} for at in range(count)
    ]
    return json.dumps({"checks": named}).encode()


def moves(count: int) -> bytes:
    named = [
        {
            "principal": BOB,
            "action": "move",
            "resource": f"table:w/s1/t{at}",
            "context": {"arguments": {"destination": f"table:w/s2/t{at}"}},
        }
        for at in range(count)
    ]
    return json.dumps({"checks": named}).encode()


def deep_checks(count: int, parts: int) -> bytes:
    """Explained checks of tables inside many namespaces: a trace shows each of them by its path."""
    named = [
        {"principal": BOB, "action": "read_data", "resource": f"table:w/{'a/' * parts}t{at}"} for at in range(count)
    ]
    return json.dumps({"explain": True, "checks": named}).encode()


def deep_names(
    count: int, warehouse: str, action: str = "read_data", *, parts: int = 250, principal: str = BOB
) -> bytes:
    """One check of objects, each deep in a namespace of its own."""
    type = "namespace" if action == "list_tables" else "table"
    names = [f"{type}:{warehouse}/b{at}/{'a/' * parts}t" for at in range(count)]
    return json.dumps({"checks": [{"principal": principal, "action": action, "resources": names}]}).encode()


def deep_tables(count: int, warehouse: str) -> list[dict[str, Any]]:
    """Tables, each in a schema of its own with many parts."""
    schema = "a." * 249
    return [
        {"table": {"catalogName": warehouse, "schemaName": f"s{at}.{schema}z", "tableName": "t"}} for at in range(count)
    ]


def long_tables(name: str) -> list[dict[str, Any]]:
    """Tables of one schema with long names."""
    return [{"table": {"catalogName": "b", "schemaName": "s", "tableName": f"{name}{at}"}} for at in range(2_000)]


def schemas(count: int) -> list[dict[str, Any]]:
    return [{"schema": {"catalogName": "w", "schemaName": f"s{at}"}} for at in range(count)]


def tables(count: int) -> list[dict[str, Any]]:
    """Tables, each in a schema of its own."""
    return [{"table": {"catalogName": "w", "schemaName": f"s{at}", "tableName": "t"}} for at in range(count)]


def filtered(operation: str, resources: list[dict[str, Any]]) -> bytes:
    context = {"identity": {"user": "bob", "groups": []}, "softwareStack": {"trinoVersion": "476"}}
    action = {"operation": operation, "filterResources": resources}
    return json.dumps({"input": {"context": context, "action": action}}).encode()


ATTACKS = {
    "drops of schemas": ("/v1/check", 400, checks(10_000, "trino:DropSchema")),
    "some drops of schemas": ("/v1/check", 200, checks(90, "trino:DropSchema")),
    "explained drops": ("/v1/check", 400, checks(50, "trino:DropSchema", explain=True)),
    "some explained drops": ("/v1/check", 200, checks(10, "trino:DropSchema", explain=True)),
    "explained deep paths": ("/v1/check", 400, deep_checks(90, 200)),
    "some explained deep paths": ("/v1/check", 200, deep_checks(11, 200)),
    "principals without number": ("/v1/check", 200, many_checks(10_000, "read_data", "table:w/s1/t{}")),
    "schemas of Trino": ("/v1/data/trino/batch", 200, filtered("FilterSchemas", schemas(100_000))),
    "tables of Trino in many schemas": ("/v1/data/trino/batch", 200, filtered("FilterTables", tables(100_000))),
    "deep names": ("/v1/check", 200, deep_names(1_500, "w")),
    "deep names of a user with many roles": ("/v1/check", 200, deep_names(600, "w", principal=NESTED)),
    "deep names for two engines": ("/v1/check", 200, deep_names(600, "b")),
    "deep namespaces": ("/v1/check", 200, deep_names(600, "b", "list_tables")),
    "deep tables or views": ("/v1/check", 200, deep_names(300, "b", "trino:SelectFromColumns")),
    "deep names for Cedar": ("/v1/check", 200, deep_names(60, "c")),
    "many namespaces for Cedar": ("/v1/check", 200, deep_names(2_000, "c", parts=6)),
    "deep schemas of Trino for Cedar": ("/v1/data/trino/batch", 200, filtered("FilterTables", deep_tables(20, "c"))),
    "deep schemas of Trino": ("/v1/data/trino/batch", 200, filtered("FilterTables", deep_tables(1_000, "w"))),
    "nested roles for Cedar": ("/v1/check", 200, many_checks(50, "read_data", "table:c/s{}/t", NESTED)),
    "moves": ("/v1/check", 200, moves(10_000)),
    "long names with marks": ("/v1/data/trino/batch", 200, filtered("FilterTables", long_tables("a\u0301" * 1_000))),
    "warehouses without number": ("/v1/check", 200, many_checks(10_000, "read_data", "table:w{}/s1/t")),
}


@pytest.mark.process
@pytest.mark.parametrize("attack", ATTACKS)
def test_neighbours_are_served_during_a_long_decision(process: Process, attack: str) -> None:
    path, status, body = ATTACKS[attack]
    answer = assert_served(process, lambda: fetch(process.url(path), body, timeout=60))
    assert answer.status == status, answer.content[:300]
    if status == 400:
        assert answer.json()["error"]["code"] == "too_many_checks"


lengths = st.lists(st.integers(1, 200), min_size=1, max_size=250)


@given(st.integers(1, 500), lengths)
def test_what_all_traces_show_is_bounded(count: int, parts: list[int]) -> None:
    """Many checks, deep paths and long names: accepted or not, no request gets traces of more than a few megabytes."""
    path = tuple("x" * length for length in parts)
    question = EngineQuestion(Question(Principal("user", "oidc~bob"), "read_data"), "table", "w", None)
    leaf = Leaf(question, [Resource("table", "w", path)] * count)
    shown = sum(len(part.what) for part in GrantsEngine().explain(question, leaf.resources[0], Facts.empty()).parts)
    try:
        bound_traces([leaf])
    except TooManyChecks:
        assert count * max(shown * 3, 40 * (len(path) + 1)) > MAX_TRACED_CHARACTERS
    else:
        assert count * shown <= MAX_TRACED_CHARACTERS + count * len(path) * len("namespace:/")


def run(steps: Resumable[Batch]) -> Batch:
    """Return the result of steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from([8, 60, 4_000])), min_size=1, max_size=6), st.booleans())
def test_no_part_of_a_long_check_has_many_long_names(runs: list[tuple[int, int]], column: bool) -> None:
    names = ["x" * length for count, length in runs for _ in range(count)]
    resources = (
        PathArray.in_one(Resource("table", "w"), ("s",), names)
        if column
        else [Resource("table", "w", ("s", name)) for name in names]
    )
    check = Check(Question(Principal("user", "oidc~bob"), "read_data"), resources, range(len(names)))
    parts = run(in_parts(Batch("http", EMBEDDED_CALLER, len(names), (check,)))).checks
    assert [resource.path[-1] for part in parts for resource in part.resources] == names
    assert [at for part in parts for at in part.at] == list(range(len(names)))
    assert max(sum(len(resource.path[-1]) for resource in part.resources) for part in parts) <= 1 << 18
    assert len(parts) <= 1 + sum(map(len, names)) // (1 << 16)


def test_a_column_below_a_long_name_is_long() -> None:
    resources = PathArray.in_one(Resource("table", "w"), ("x" * 4_000,), ["t"] * 1_000)
    check = Check(Question(Principal("user", "oidc~bob"), "read_data"), resources, range(1_000))
    parts = run(in_parts(Batch("http", EMBEDDED_CALLER, 1_000, (check,)))).checks
    assert max(len(part.resources) for part in parts) <= 66


@given(st.integers(1, 25_000), st.booleans())
def test_parts_of_a_long_check_are_the_check(count: int, column: bool) -> None:
    names = [f"t{at}" for at in range(count)]
    resources = (
        PathArray.in_one(Resource("table", "w"), ("s",), names)
        if column
        else [Resource("table", "w", ("s", name)) for name in names]
    )
    check = Check(Question(Principal("user", "oidc~bob"), "read_data"), resources, range(count))
    parts = run(in_parts(Batch("http", EMBEDDED_CALLER, count, (check,)))).checks
    assert [resource.path[-1] for part in parts for resource in part.resources] == names
    assert [at for part in parts for at in part.at] == list(range(count))
    sizes = {len(part.resources) for part in parts}
    assert max(sizes) - min(sizes) <= 1


def decided(folder: Path, monkeypatch: pytest.MonkeyPatch, body: bytes) -> list[tuple[int, int]]:
    """Return how many resources, and parts of their names, each call of an engine is about."""
    calls: list[tuple[int, int]] = []
    decide = Evaluator.decide_by_engine

    def note(self: Evaluator, engine: Engine, group: EngineQuestion, resources: Sequence[Resource]) -> Verdicts:
        calls.append((len(resources), sum(len(resource.path) for resource in resources)))
        return decide(self, engine, group, resources)

    (folder / "a.cedar").write_text("permit(principal, action, resource);")
    config = {
        "authorities": {"default": {"engines": ["grants"]}, "policies": {"engines": ["cedar"], "warehouses": ["c"]}},
        "warehouses": {"w": {}, "c": {}},
        "policies": {"rules": [], "cedar": {"policies": ["a.cedar"]}},
    }
    rules = inline_rules({})
    pdp = build_pdp(make_settings(config, folder), Facts.empty(), (rules, rules), MemoryAudit())
    monkeypatch.setattr(Evaluator, "decide_by_engine", note)
    request, _ = decode_call(body, 10_000)
    asyncio.run(pdp.check(admit(request, EMBEDDED_CALLER)))
    return calls


@pytest.mark.parametrize("parts", [60, 250])
def test_no_engine_is_asked_about_many_deep_names_in_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    calls = decided(tmp_path, monkeypatch, deep_names(400, "w", parts=parts))
    assert sum(count for count, _ in calls) >= 400  # some are asked again: the first turns go without a task
    assert max(looked for _, looked in calls) < (CHUNK + 1) * 5
    assert calls[0][1] < 250 * 5


@pytest.mark.parametrize("count", [65, 500])
def test_an_engine_of_milliseconds_begins_with_few_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    calls = decided(tmp_path, monkeypatch, deep_names(count, "c", parts=1))
    assert sum(count for count, _ in calls) >= count
    assert calls[0][0] <= 64


@given(st.lists(st.integers(1, 250), min_size=1, max_size=300), st.integers(1, 3), st.booleans(), st.data())
def test_chunks_are_the_resources_in_order(lengths: list[int], columns: int, arrays: bool, data: st.DataObject) -> None:
    paths = [("p",) * length + (f"t{at}",) for at, length in enumerate(lengths)]
    every: list[Sequence[Resource]] = []
    for _ in range(columns):
        if arrays:
            parents = list(dict.fromkeys(path[:-1] for path in paths))
            at = [parents.index(path[:-1]) for path in paths]
            every.append(PathArray(Resource("table", "w"), parents, at, [path[-1] for path in paths]))
        else:
            every.append([Resource("table", "w", path) for path in paths])
    size, found = ChunkSize(), list[Resource]()

    def decide(chunk: Sequence[Resource]) -> Verdicts:
        assert len(chunk) == 1 or sum(1 + (len(resource.path) - 1) // 4 for resource in chunk) <= size.now
        if len(chunk) > 1 and data.draw(st.booleans()):
            raise TurnOver
        found.extend(chunk)
        return Verdicts(bytes(len(chunk)), [None] * len(chunk))

    count = sum(len(verdicts.effects) for part in decide_in_chunks(every, size, decide) for verdicts in part)
    assert found == [resource for column in every for resource in column]
    assert count == len(found)
