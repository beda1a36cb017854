"""Masks of many columns, and lists of many tables: neighbours are served meanwhile, and answers come in time or deny."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import Response, fetch
from support.faults.neighbours import assert_served
from support.service.serving import Process, serve_process

pytestmark = pytest.mark.process
BATCH = "/v1/data/trino/batch"
MASKS = "/v1/data/trino/batchColumnMasks"
MOST_GROUPS = 10_000
FEW = 256
NESTED = "row(" * 60 + "x timestamp" + ")" * 60
CONFIG = {
    "warehouses": {"lake": {"default_ref": "main"}},
    "policies": {"rules": [], "row_access": ["rows.yaml"]},
    "trino": {"catalogs": {"k": {"warehouse": "lake"}}},
    "audit": {"sinks": [{"file": "audit"}]},
    "identity": {"callers": {"local": {"loopback": True, "may_assert": ["principals", "groups"]}}},
}
ROWS = {"masks": [{"id": "m", "table": "lake.s.m", "column": "email", "grantees": ["allUsers"], "kind": "partial"}]}


def serve(folder: Path, **limits: float) -> AbstractContextManager[Process]:
    (folder / "rows.yaml").write_text(json.dumps(ROWS))
    (folder / "pdp.json").write_text(json.dumps({**CONFIG, "limits": limits}))
    return serve_process(folder, "-c", "pdp.json")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serve(tmp_path_factory.mktemp("columns")) as process:
        yield process


def body(operation: str, resources: Sequence[Any], groups: int = 0) -> bytes:
    identity = {"user": "alice", "groups": [f"g{at}" for at in range(groups)]}
    action = {"operation": operation, "filterResources": resources}
    return json.dumps({"input": {"context": {"identity": identity}, "action": action}}).encode()


def masks(count: int, name: str, type: str) -> bytes:
    """A body about columns. `{}` in the name or type stands for the number of the column."""
    return body("GetColumnMask", [column(name.format(at), type.format(at)) for at in range(count)])


def column(name: str, type: str, table: str = "m") -> Any:
    names = {"catalogName": "k", "schemaName": "s", "tableName": table}
    return {"column": {**names, "columnName": name, "columnType": type}}


def tables(count: int, **more: Any) -> list[Any]:
    names = {"catalogName": "k", "schemaName": "s"}
    return [{"table": {**names, "tableName": f"t{at}", **more}} for at in range(count)]


LARGE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "one nested type": (MASKS, lambda: masks(90_000, "email", NESTED)),
    "distinct nested types": (MASKS, lambda: masks(90_000, "email", NESTED.replace(" ", "{} "))),
    "distinct plain columns": (MASKS, lambda: masks(100_000, "c{}", "varchar")),
    "selects": (BATCH, lambda: body("SelectFromColumns", tables(100_000, columns=["a"]))),
}


@pytest.mark.parametrize("attack", LARGE)
def test_neighbours_are_served_meanwhile(process: Process, attack: str) -> None:
    path, make = LARGE[attack]
    content = make()
    answer = assert_served(process, lambda: fetch(process.url(path), content, timeout=60))
    assert answer.status == 200, answer.text[:500]


def test_three_lists_at_once_hold_up_nobody(process: Process) -> None:
    content = LARGE["selects"][1]()

    def ask_thrice() -> list[Response]:
        with ThreadPoolExecutor(3) as threads:
            return list(threads.map(lambda _: fetch(process.url(BATCH), content, timeout=60), range(3)))

    assert {answer.status for answer in assert_served(process, ask_thrice)} == {200}


@pytest.mark.parametrize("count", [FEW, FEW + 1])
def test_few_and_many_columns_have_equal_masks(process: Process, count: int) -> None:
    """A column of each kind among others: masked, hidden, unmasked, and with a type that is none."""
    kinds = [("email", "varchar"), ("$path", "varchar"), ("c", "date"), ("EMAIL", "integer"), ("email", "varchar)")]
    asked = [kinds[at % len(kinds)] for at in range(count)]
    answer = fetch(process.url(MASKS), body("GetColumnMask", [column(*each) for each in asked]))
    found = {mask["index"]: mask["viewExpression"]["expression"] for mask in answer.json()["result"]}
    alone: dict[tuple[str, str], str | None] = {}
    for kind in kinds:
        [*mask] = fetch(process.url(MASKS), body("GetColumnMask", [column(*kind)])).json()["result"]
        alone[kind] = mask[0]["viewExpression"]["expression"] if mask else None
    assert [found.get(at) for at in range(count)] == [alone[each] for each in asked]
    assert alone["email", "varchar)"] == "NULL"
    assert alone["c", "date"] is None


def test_columns_of_several_tables_are_refused_in_any_number(process: Process) -> None:
    for count in (1, FEW):
        columns = [column("a", "date")] * count + [column("a", "date", "n")]
        answer = fetch(process.url(MASKS), body("GetColumnMask", columns))
        assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_argument")


def test_the_audit_has_the_masks_of_many_columns(tmp_path: Path) -> None:
    with serve(tmp_path) as process:
        fetch(process.url(MASKS), masks(6000, "c{}", "varchar"))
        fetch(process.url(MASKS), masks(1, "email", "varchar"))
        process.terminate()
        many, one = [record["masks"] for record in process.records() if "masks" in record]
    assert many == {f"c{at}": None for at in range(6000)}
    assert one == {"email": "row_access:m"}


def test_an_answer_that_takes_too_long_shows_nothing(tmp_path: Path) -> None:
    content = masks(90_000, "email", NESTED.replace(" ", "{} "))
    with serve(tmp_path, request_timeout_seconds=1) as process:
        began = time.monotonic()
        answer = fetch(process.url(MASKS), content, timeout=60)
        seconds = time.monotonic() - began
    assert answer.status in (200, 503)
    if answer.status == 200:
        assert len(answer.json()["result"]) == 90_000
    assert seconds < 5


@pytest.mark.parametrize("size", [1, 2000])
@pytest.mark.parametrize("operation", ["FilterTables", "SelectFromColumns"])
def test_groups_beyond_the_limit_are_refused(process: Process, operation: str, size: int) -> None:
    answer = fetch(process.url(BATCH), body(operation, tables(size, columns=["a"]), MOST_GROUPS))
    assert answer.status == 200
    answer = fetch(process.url(BATCH), body(operation, tables(size), MOST_GROUPS + 1))
    assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_argument")
    assert f"more than {MOST_GROUPS}" in answer.json()["error"]["message"]


@pytest.mark.parametrize("endpoint", ["allow", "rowFilters", "columnMask", "batchColumnMasks"])
def test_groups_are_bounded_at_every_endpoint(process: Process, endpoint: str) -> None:
    answer = fetch(process.url(f"/v1/data/trino/{endpoint}"), body("GetColumnMask", [], MOST_GROUPS + 1))
    assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_argument")
    assert f"more than {MOST_GROUPS}" in answer.json()["error"]["message"]


@pytest.mark.parametrize("field", ["roles", "groups"])
@pytest.mark.parametrize("path", ["/v1/check", "/pdp.v1.DecisionService/Check"])
def test_claims_of_a_principal_in_a_check_are_bounded(process: Process, path: str, field: str) -> None:
    """Connect reads the same messages as gRPC."""
    principal = {"id": "user:oidc~alice", field: [f"g{at}" for at in range(MOST_GROUPS + 1)]}
    resource = "table:lake/s/t" if path == "/v1/check" else {"reference": "table:lake/s/t"}
    check = {"principal": principal, "action": "read_data", "resource": resource}
    answer = fetch(process.url(path), {"checks": [check]})
    assert answer.status == 200, answer.text
    [decision] = answer.json()["decisions"]
    assert not decision.get("allowed")
    assert decision["error"]["code"] in ("invalid_argument", "ERROR_CODE_INVALID_ARGUMENT")
    assert f"more than {MOST_GROUPS}" in decision["error"]["message"]
