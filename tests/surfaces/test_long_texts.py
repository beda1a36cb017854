"""Attacks by one long text, or by many free values: every later step would take time for each character."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.clients.http_client import Response, fetch
from support.faults.neighbours import assert_served
from support.oracles.audit_files import audit_records
from support.service.serving import Process, serve_process

from pdp.decision.bodies import MAX_TEXT, MAX_VALUES
from pdp.model.references import MAX_CLAIM_TEXT, MAX_NAME, MAX_PATH

pytestmark = pytest.mark.process
LONG = 7_900_000
MOST_RECORDED = 1 << 16
"""Bytes of a record of a refused check."""
ALICE = "user:oidc~Alice"
TABLE = "table:lake/Foo@prod"
MANY = {str(at): 1 for at in range(100_000)}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serve_process(tmp_path_factory.mktemp("long")) as process:
        yield process


def check(**fields: Any) -> dict[str, Any]:
    return {"principal": ALICE, "action": "read_data", "resource": TABLE, **fields}


NATIVE: dict[str, dict[str, Any]] = {
    "a name of escapes": check(resource="table:lake/s/" + "%61" * (LONG // 3)),
    "a name of percent signs": check(resource={"type": "table", "warehouse": "lake", "path": ["s", "%" * LONG]}),
    "a path": check(resource={"type": "table", "warehouse": "lake", "path": ["a" * 4000] * 250}),
    "a ref": check(resource={"type": "table", "warehouse": "lake", "path": ["s", "t"], "ref": "r" * LONG}),
    "an id": check(resource={"type": "table", "warehouse": "lake", "path": ["s", "t"], "id": "%" * LONG}),
    "a principal": check(principal="user:oidc~" + "%" * LONG),
    "a role": check(actingRole="role:" + "%" * LONG),
    "an action": check(action="%" * LONG),
    "an action with a control character": check(action="read_data\x9b"),
    "an action on two lines": check(action="read\u2028data"),
    "a group": check(principal={"id": ALICE, "groups": ["%" * LONG]}),
    "attributes": check(principal={"id": ALICE, "attributes": MANY}),
    "a long attribute": check(principal={"id": ALICE, "attributes": {"a": "%" * LONG}}),
    "arguments": check(context={"arguments": MANY}),
    "a name in arguments": check(context={"arguments": {"name": "%" * LONG}}),
    "actions": check(context={"actions": ["a"] * 100_000}),
    "an api": check(context={"api": {"name": "%" * LONG, "version": 1}}),
    "properties": check(resource={"reference": TABLE, "properties": MANY}),
}


@pytest.mark.parametrize("shape", NATIVE)
def test_native_checks(process: Process, shape: str) -> None:
    body = json.dumps({"checks": [NATIVE[shape]]}).encode()
    answer = assert_served(process, lambda: fetch(process.url("/v1/check"), body)).json()
    (decision,) = answer["decisions"]
    assert (decision["allowed"], decision["error"]["code"]) == (False, "invalid_argument")
    assert len(json.dumps(decision)) < MOST_RECORDED
    assert len(json.dumps(record_of(process, answer["decisionId"]))) < MOST_RECORDED


def record_of(process: Process, id: str) -> dict[str, Any]:
    """Return the record of a decision, once it is written."""
    for _ in range(200):
        for record in audit_records(process.folder, running=True):
            if record["id"] == id:
                return record
    raise AssertionError("no record")


def trino(endpoint: str, user: str = "Alice", operation: str = "SelectFromColumns", **action: Any) -> tuple[str, Any]:
    context = {"identity": {"user": user, "groups": []}}
    return endpoint, {"input": {"context": context, "action": {"operation": operation, **action}}}


def table(schema: str = "s", name: str = "t", **more: Any) -> dict[str, Any]:
    return {"table": {"catalogName": "lakehouse", "schemaName": schema, "tableName": name, **more}}


TRINO: dict[str, tuple[str, Any]] = {
    "a table of percent signs": trino("allow", resource=table(name="%" * LONG)),
    "a table": trino("allow", resource=table(name="a" * LONG)),
    "a schema": trino("allow", resource=table(schema="a." * 400_000)),
    "a user": trino("allow", user="x" * LONG, operation="ExecuteQuery"),
    "an operation": trino("allow", operation="o" * LONG),
    "an operation on two lines": trino("allow", operation="Select\u2028Columns"),
    "properties": trino("allow", operation="CreateTable", resource=table(properties=MANY)),
    "a listed table": trino("batch", operation="FilterTables", filterResources=[table(name="%" * LONG), table()]),
    "a listed plain table": trino("batch", operation="FilterTables", filterResources=[table(name="a" * LONG), table()]),
    "a listed schema": trino(
        "batch",
        operation="FilterSchemas",
        filterResources=[{"schema": {"catalogName": "lakehouse", "schemaName": "a." * 400_000}}],
    ),
}


@pytest.mark.parametrize("shape", TRINO)
def test_bodies_of_trino(process: Process, shape: str) -> None:
    endpoint, body = TRINO[shape]
    text = json.dumps(body).encode()

    def ask() -> Response:
        return fetch(process.url(f"/v1/data/trino/{endpoint}"), text)

    answer = assert_served(process, ask)
    if answer.status == 200:
        assert answer.json()["result"] in (False, [])
    else:
        assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_argument")
    assert len(answer.content) < MOST_RECORDED


def load(**fields: Any) -> dict[str, Any]:
    return {"action": "loadTable", "principal": ALICE, "target": "table:lake/s/t", **fields}


LOADS = {
    "a table": load(target={"type": "table", "warehouse": "lake", "path": ["s", "%" * 1_000_000]}),
    "a reference": load(target="table:lake/s/" + "%25" * 1_000_000),
    "a chain": load(referencedBy="%1F".join(["s", "%25" * 300_000])),
    "views": load(views=[{"resource": "view:lake/s/v", "properties": MANY}]),
}


@pytest.mark.parametrize("shape", LOADS)
def test_loads(process: Process, shape: str) -> None:
    body = json.dumps(LOADS[shape]).encode()
    answer = assert_served(process, lambda: fetch(process.url("/v1/load"), body))
    assert answer.status == 400 or answer.json()["allowed"] is False
    assert len(answer.content) < MOST_RECORDED


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        (check(resource=f"table:lake/s/{'t' * MAX_NAME}"), check(resource=f"table:lake/s/{'t' * (MAX_NAME + 1)}")),
        (
            check(resource=f"table:lake/{'/'.join(['n' * (MAX_PATH // 8)] * 8)}"),
            check(resource=f"table:lake/{'/'.join(['n' * (MAX_PATH // 8)] * 8)}/t"),
        ),
        (
            check(context={"arguments": {"a": [1] * (MAX_VALUES - 1)}}),
            check(context={"arguments": {"a": [1] * MAX_VALUES}}),
        ),
        (
            check(context={"arguments": {"a": "x" * (MAX_TEXT - 1)}}),
            check(context={"arguments": {"a": "x" * MAX_TEXT}}),
        ),
        (
            check(principal={"id": ALICE, "groups": ["g" * MAX_CLAIM_TEXT]}),
            check(principal={"id": ALICE, "groups": ["g" * MAX_CLAIM_TEXT, "h"]}),
        ),
    ],
    ids=["name", "path", "values", "text", "claims"],
)
def test_the_bounds_are_exact(process: Process, within: dict[str, Any], beyond: dict[str, Any]) -> None:
    answer = fetch(process.url("/v1/check"), {"checks": [within, beyond]}).json()
    assert ["error" in decision for decision in answer["decisions"]] == [False, True]


def test_masks_of_no_list_are_no_answer(process: Process) -> None:
    """Trino reads an empty answer as: no column is masked."""
    column = {"catalogName": "lakehouse", "schemaName": "s", "tableName": "t", "columnName": "c", "columnType": "int"}
    for action in ({"resource": {"column": column}}, {}, {"filterResources": None}):
        path, body = trino("batchColumnMasks", operation="GetColumnMask", **action)
        assert fetch(process.url(f"/v1/data/trino/{path}"), body).status == 400
