"""The published schema of the audit: every line that a service writes is valid, and no field is unknown to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from support.clients.http_client import client_of
from support.generators import generated_records, worlds
from support.generators.generated_pdps import decide_and_record, make_pdp
from support.oracles.audit_files import audit_files, file_text
from support.paths import ROOT, TESTS
from support.service.serving import serve_process, settings_of

from pdp.app.facts import build_pdp
from pdp.audit.records.record import AnyRecord, DecisionRecord
from pdp.audit.records.writing import RecordEncoder
from pdp.offline.cases import runner as case_runner
from pdp.offline.cases.cases import find_cases
from pdp.offline.cases.runner import MemoryAudit, run_case

SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "audit-schema.json").read_text())
FORMS = Draft202012Validator.FORMAT_CHECKER


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without room for fields that the schema does not name."""
    strict = deepcopy(schema)
    for definition in strict["$defs"].values():
        definition["additionalProperties"] = False
    return strict


@cache
def validators() -> dict[str, Draft202012Validator]:
    """Return a validator for the lines of each event: its errors are shorter than those of the whole schema."""
    strict = closed(SCHEMA)
    found = {}
    for reference in strict["oneOf"]:
        name = reference["$ref"].rpartition("/")[2]
        for event in strict["$defs"][name]["properties"]["event"]["enum"]:
            found[event] = Draft202012Validator({**strict, "oneOf": [reference]}, format_checker=FORMS)
    return found


def validate(line: dict[str, Any]) -> None:
    validators()[line["event"]].validate(line)


def lines_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield all lines that a service wrote, those of the chain included."""
    for file in audit_files(folder):
        yield from (json.loads(line) for line in file_text(file, running=True).split("\n") if line)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks)
def test_generated_decisions_are_valid(config: Any, rules: Any, grants: Any, checks: Any) -> None:
    _, record = decide_and_record(make_pdp(config, rules, grants), checks)
    for limit in (1, 32):
        validate(json.loads(RecordEncoder("i", limit).encode(record, 0)))


@given(generated_records.records())
def test_any_record_is_valid(record: DecisionRecord) -> None:
    encoder = RecordEncoder("i", 2)
    for line in (encoder.encode(record, 0), encoder.encode_rest(record, 1, "cause")):
        fields = json.loads(line)
        fields["id"] = "01900000-0000-7000-8000-000000000000"
        validate(fields)


class ValidatingAudit(MemoryAudit):
    """Audit that validates each record."""

    validated = 0

    def append(self, record: AnyRecord) -> None:
        super().append(record)
        validate(self.records[-1])
        ValidatingAudit.validated += 1


def test_records_of_the_corpus_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_runner, "MemoryAudit", ValidatingAudit)
    with asyncio.Runner() as runner:
        assert all(run_case(case, build_pdp, runner).passed for case in find_cases([TESTS / "cases"]))
    assert ValidatingAudit.validated > 100


ALICE = "user:oidc~alice"
CHECK = {"principal": ALICE, "action": "read_data", "resource": "table:lake/t"}
GRANT = {"principal": "user:oidc~bob", "privilege": "select", "object": "table:lake/t"}
ROWS = {
    "default": ["lake", "s"],
    "tables": {"t": {"columns": {"region": "VARCHAR", "email": "VARCHAR"}}},
    "policies": [{"id": "eu", "table": "t", "grantees": ["user:alice"], "filter": "region = 'EU'"}],
    "masks": [{"id": "m", "table": "t", "column": "email", "grantees": ["user:alice"], "kind": "null"}],
}


def trino(operation: str, **about: Any) -> dict[str, Any]:
    """Return a body of Trino's plugin."""
    table = {"table": {"catalogName": "lake", "schemaName": "s", "tableName": "t", "columns": ["email"]}}
    context = {"identity": {"user": "alice", "groups": []}, "queryId": "20260131_120000_00001_abcde"}
    return {"input": {"context": context, "action": {"operation": operation, **(about or {"resource": table})}}}


def many(operation: str) -> dict[str, Any]:
    """Return a body about tables in two schemas, enough for columns."""
    names = [
        {"table": {"catalogName": "lake", "schemaName": f"s{row % 2}", "tableName": f"t{row}"}} for row in range(80)
    ]
    return trino(operation, filterResources=names)


REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/check", {"checks": [CHECK, {**CHECK, "action": "nothing"}, {"bad": 1}], "explain": True}),
    ("POST", "/v1/check?", {"checks": [{**CHECK, "resource": {"type": "table", "warehouse": "lake", "path": ["t"],
      "id": "7", "properties": {"password": "x", "a": "b"}}, "actingRole": "role:r", "delegated": True,
      "context": {"api": {"name": "Iceberg", "version": 1}, "actions": ["A"], "arguments": {"x": 1}, "queryId": "q"}}]}),
    ("POST", "/v1/check", {"checks": [{**CHECK, "resource": None, "resources": [f"table:lake/t{row}" for row in range(50)]}]}),
    ("POST", "/v1/check", {"checks": [{"principal": {"id": ALICE, "roles": ["r"], "groups": ["g"],
      "attributes": {"secret": 1}}, "action": "select", "resource": "table_or_view:lake/t"}]}),
    ("POST", "/v1/load", {"principal": ALICE, "target": "table:lake/t", "action": "loadTable",
      "referencedBy": [["s", "v"]], "views": [{"resource": "view:lake/s/v", "properties": {"owner": "bob"}}]}),
    ("POST", "/v1/commit-view", {"principal": ALICE, "view": "view:lake/v", "operation": "commit", "set": {"a": "b"}}),
    ("POST", "/v1/grants", {"add": [GRANT]}),
    ("POST", "/v1/grants", {"add": [GRANT], "actor": ALICE}),
    ("GET", "/v1/grants", None),
    ("POST", "/v1/objects", {"put": [{"object": "project:p1"}], "move": [{"from": "table:lake/a", "to": "table:lake/b"}]}),
    ("POST", "/v1/access", {"resource": "table:lake/t", "action": "read_data"}),
    ("POST", "/v1/list", {"principal": "user:oidc~bob", "action": "read_data", "type": "table", "container": "warehouse:lake"}),
    ("POST", "/v1/data/trino/allow", trino("SelectFromColumns")),
    ("POST", "/v1/data/trino/allow", trino("ExecuteQuery", resource={})),
    ("POST", "/v1/data/trino/batch", many("FilterTables")),
    ("POST", "/v1/data/trino/rowFilters", trino("GetRowFilters")),
    ("POST", "/v1/data/trino/batchColumnMasks", trino("GetColumnMask", filterResources=[
      {"column": {"catalogName": "lake", "schemaName": "s", "tableName": "t", "columnName": "email", "columnType": "varchar"}}])),
    ("POST", "/pdp.v1.DecisionService/Check", {"checks": [{}]}),
    ("POST", "/v1/check", b"{"),
    ("POST", "/v1/grants", b"{"),
    ("POST", "/v1/data/trino/allow", b"{"),
]  # fmt: skip


async def test_every_event_of_a_service_is_valid_over_every_surface(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    config = {
        "store": {"url": "sqlite:///pdp.db"},
        "policies": {"rules": [], "row_access": ["rows.json"]},
        "trino": {"catalogs": {"lake": {"warehouse": "lake"}}},
    }
    async with client_of(settings_of(config, tmp_path)) as client:
        for method, path, body in REQUESTS:
            answer = await client.send(method, path, body, {"X-Request-ID": "mine"})
            assert answer.status in {200, 400, 403, 404}, (path, answer.content)
        for _ in range(30):
            await client.send("POST", "/v1/check", b"{")
        await client.service.stop()
    lines = list(lines_of(tmp_path))
    for line in lines:
        validate(line)
    assert {line["event"] for line in lines} >= {"decision", "filter", "refusal", "management", "service"}
    assert {line["surface"] for line in lines if "surface" in line} >= {"http", "trino", "connect", "list"}


@pytest.mark.process
def test_the_life_of_workers_is_valid(tmp_path: Path) -> None:
    with serve_process(tmp_path, "--workers", "2") as process:
        assert process.terminate() == 0
    lines = list(lines_of(tmp_path))
    for line in lines:
        validate(line)
    assert [line["what"] for line in lines if line["event"] == "service"].count("stopped") == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", 2),
        ("seq", -1),
        ("seq", "1"),
        ("time", "yesterday"),
        ("id", None),
        ("event", "decisions"),
        ("checks", {}),
    ],
)
def test_wrong_values_are_invalid(field: str, value: Any) -> None:
    _, record = decide_and_record(make_pdp({}, {}), [CHECK])
    line = json.loads(RecordEncoder("i").encode(record, 0))
    Draft202012Validator(SCHEMA, format_checker=FORMS).validate(line)
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA, format_checker=FORMS).validate(line | {field: value})
