"""Every body that a real Trino sent gets a definite answer of the shape that Trino accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import client_of
from support.paths import RECORDED as RECORDED_FOLDER
from support.service.serving import settings_of

RECORDED = RECORDED_FOLDER / "trino"
WORLD = {
    "objects": ["project:p", {"object": "warehouse:lake", "parent": "project:p"}],
    "grants": [{"principal": "user:oidc~alice", "privilege": "select", "object": "namespace:lake/s"}],
}
CATALOGS = {name: {"warehouse": "lake", "ref": "main"} for name in ("iceberg", "memory")}


def lines(name: str) -> Iterator[dict[str, Any]]:
    for line in (RECORDED / name).read_text().splitlines():
        yield json.loads(line)


def well_formed(endpoint: str, action: dict[str, Any], answer: Any) -> bool:
    """Whether Trino would take the answer: booleans, index lists in range, no filter, no mask."""
    if endpoint == "columnMask":
        return bool(answer == {})
    result = answer["result"]
    if endpoint == "allow":
        return result is True or result is False
    if endpoint in ("rowFilters", "batchColumnMasks"):
        return bool(result == [])
    items = action["filterResources"]
    size = len(items[0]["table"]["columns"]) if action["operation"] == "FilterColumns" else len(items)
    return all(type(at) is int and 0 <= at < size for at in result) and result == sorted(set(result))


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    (tmp_path / "world.json").write_text(json.dumps(WORLD))
    return settings_of({"store": {"url": "file:world.json"}, "trino": {"catalogs": CATALOGS}}, tmp_path)


async def test_all_recorded_bodies_get_an_answer_that_trino_accepts(settings: Any) -> None:
    bodies = [(line["endpoint"], line["request"]) for line in lines("requests.jsonl")]
    assert len(bodies) == 365
    async with client_of(settings) as client:
        for endpoint, body in bodies:
            status, answer = await client.trino(endpoint, body)
            assert status == 200, answer
            assert well_formed(endpoint, body["input"]["action"], answer), body


async def test_all_recorded_statements_get_answers_that_trino_accepts(settings: Any) -> None:
    statements = list(lines("sequences.jsonl"))
    assert len(statements) == 490
    async with client_of(settings) as client:
        for statement in statements:
            for request in statement["requests"]:
                endpoint, body = request["endpoint"], request["request"]
                status, answer = await client.trino(endpoint, body)
                assert status == 200, (statement["sql"], answer)
                assert well_formed(endpoint, body["input"]["action"], answer), statement["sql"]


async def test_a_batch_is_the_set_of_its_single_answers(settings: Any) -> None:
    batches = [line["request"] for line in lines("requests.jsonl") if line["endpoint"] == "batch"]
    decided = set()
    async with client_of(settings) as client:
        for body in batches:
            action = body["input"]["action"]
            items = action["filterResources"]
            if action["operation"] == "FilterColumns":
                table = items[0]["table"]
                items = [{"table": {**table, "columns": [column]}} for column in table["columns"]]
            singles = []
            for at, item in enumerate(items):
                single = {"input": {**body["input"], "action": {"operation": action["operation"], "resource": item}}}
                if (await client.trino("allow", single))[1]["result"]:
                    singles.append(at)
            assert (await client.trino("batch", body))[1]["result"] == singles, body
            decided.add(len(singles) > 0)
    assert decided == {True, False}


async def test_a_thousand_tables_are_filtered_by_grants(settings: Any) -> None:
    body = json.loads((RECORDED / "filter_tables_1000.json").read_text())
    tables = [item["table"]["tableName"] for item in body["input"]["action"]["filterResources"]]
    for item in body["input"]["action"]["filterResources"][::2]:
        item["table"]["schemaName"] = "s"
    async with client_of(settings) as client:
        assert (await client.trino("batch", body))[1]["result"] == list(range(0, len(tables), 2))
