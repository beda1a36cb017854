"""Every body that a real Trino sent gets a definite answer of the shape that Trino accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.paths import RECORDED as RECORDED_FOLDER
from support.serving import serving, settings_of

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
    async with serving(settings) as service, aiohttp.ClientSession() as session:
        for endpoint, body in bodies:
            async with session.post(
                f"http://{service.addresses['http']}/v1/data/trino/{endpoint}", json=body
            ) as response:
                assert response.status == 200, await response.text()
                assert response.content_type == "application/json"
                assert well_formed(endpoint, body["input"]["action"], await response.json()), body


async def test_all_recorded_statements_get_answers_that_trino_accepts(settings: Any) -> None:
    statements = list(lines("sequences.jsonl"))
    assert len(statements) == 490
    async with serving(settings) as service, aiohttp.ClientSession() as session:
        for statement in statements:
            for request in statement["requests"]:
                url = f"http://{service.addresses['http']}/v1/data/trino/{request['endpoint']}"
                async with session.post(url, json=request["request"]) as response:
                    answer = await response.json()
                    assert response.status == 200, (statement["sql"], answer)
                    assert well_formed(request["endpoint"], request["request"]["input"]["action"], answer), statement[
                        "sql"
                    ]


async def test_a_batch_is_the_set_of_its_single_answers(settings: Any) -> None:
    batches = [line["request"] for line in lines("requests.jsonl") if line["endpoint"] == "batch"]
    decided = set()
    async with serving(settings) as service, aiohttp.ClientSession() as session:
        base = f"http://{service.addresses['http']}/v1/data/trino"
        for body in batches:
            action = body["input"]["action"]
            items = action["filterResources"]
            if action["operation"] == "FilterColumns":
                table = items[0]["table"]
                items = [{"table": {**table, "columns": [column]}} for column in table["columns"]]
            singles = []
            for at, item in enumerate(items):
                single = {"input": {**body["input"], "action": {"operation": action["operation"], "resource": item}}}
                async with session.post(f"{base}/allow", json=single) as response:
                    if (await response.json())["result"]:
                        singles.append(at)
            async with session.post(f"{base}/batch", json=body) as response:
                assert (await response.json())["result"] == singles, body
            decided.add(len(singles) > 0)
    assert decided == {True, False}


async def test_a_thousand_tables_are_filtered_by_grants(settings: Any) -> None:
    body = json.loads((RECORDED / "filter_tables_1000.json").read_text())
    tables = [item["table"]["tableName"] for item in body["input"]["action"]["filterResources"]]
    for item in body["input"]["action"]["filterResources"][::2]:
        item["table"]["schemaName"] = "s"
    async with serving(settings) as service, aiohttp.ClientSession() as session:
        url = f"http://{service.addresses['http']}/v1/data/trino/batch"
        async with session.post(url, json=body) as response:
            assert (await response.json())["result"] == list(range(0, len(tables), 2))
