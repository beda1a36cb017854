"""Batches whose decision takes long: their cost is bounded, and others get turns meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.http_client import fetch
from support.faults.neighbours import assert_served
from support.service.serving import Process, serve_process

from pdp.decision.plan import Leaf
from pdp.decision.plan_cache import MAX_TRACED_CHARACTERS, bound_traces, in_parts
from pdp.decision.turns import Resumable
from pdp.engines.engine import EngineQuestion
from pdp.engines.grants.engine import GrantsEngine
from pdp.errors import TooManyChecks
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.arrays import PathArray
from pdp.model.question import Batch, Check, Principal, Question, Resource

BOB = "user:oidc~bob"
WORLD = {
    "objects": [f"table:w/s{schema}/t{number}" for schema in range(20) for number in range(490)],
    "grants": [{"principal": BOB, "privilege": "ownership", "object": "warehouse:w"}],
}
CONFIG: dict[str, Any] = {
    "authorities": {"default": {"engines": ["grants"]}},
    "warehouses": {"w": {}},
    "policies": {"rules": []},
    "store": {"url": "file:world.json"},
    "trino": {"catalogs": {"w": {"warehouse": "w"}}},
    "audit": {"sinks": [{"file": "audit"}]},
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder: Path = tmp_path_factory.mktemp("long")
    (folder / "world.json").write_text(json.dumps(WORLD))
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


def many_checks(count: int, action: str, resource: str) -> bytes:
    named = [
        {"principal": f"user:oidc~u{at}", "action": action, "resource": resource.format(at)} for at in range(count)
    ]
    return json.dumps({"checks": named}).encode()


def deep_checks(count: int, parts: int) -> bytes:
    """Explained checks of tables inside many namespaces: a trace shows each of them by its path."""
    named = [
        {"principal": BOB, "action": "read_data", "resource": f"table:w/{'a/' * parts}t{at}"} for at in range(count)
    ]
    return json.dumps({"explain": True, "checks": named}).encode()


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
