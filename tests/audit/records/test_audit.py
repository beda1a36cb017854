"""Audit records: every request once, with all that deciding it again needs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from msgspec.structs import fields
from support.generators import worlds
from support.generators.generated_pdps import decide_and_record, make_pdp
from support.oracles.audit_files import all_records, file_audit
from support.service.serving import example_settings, serving

from pdp.audit.records.rows import requests, rows
from pdp.audit.records.schema import CheckEntry
from pdp.audit.records.writing import RecordEncoder
from pdp.decision.bodies import CheckBody
from pdp.decision.codec import decode_checks
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks)
def test_columns_read_back_to_the_same_rows(config: Any, rules: Any, grants: Any, checks: Any) -> None:
    _, recorded = decide_and_record(make_pdp(config, rules, grants), checks)
    forms = [list(rows(json.loads(RecordEncoder("i", limit).encode(recorded, 7)))) for limit in (1, 1000)]
    assert forms[0] == forms[1]
    assert forms[0]


OF_CHECKS: dict[str, Any] = {
    "action": "create_table",
    "as": "role:etl",
    "inputs": 1,
    "delegated": True,
    "otherRoles": {"stored": ["role:etl"]},
    "load": {"entries": 2},
    "change": {"touched": ["owner"]},
    "missing": True,
}
"""Fields of an entry that hold for all of its rows."""


def test_every_field_of_a_check_is_in_each_row_of_columns() -> None:
    of_rows = {"at", "cached", "resource", "resources", "allowed", "by", "reasons", "errors"}
    assert {field.encode_name for field in fields(CheckEntry)} == {*OF_CHECKS, *of_rows, "error"}
    row = {"at": 0, "cached": False, "resource": "namespace:w/s", "allowed": False, "by": ["x"], "errors": []}
    columns = {"at": 0, "resources": ["namespace:w/s"], "allowed": "0", "by": [0], "reasons": ["x"], "errors": {}}
    for key, value in [*OF_CHECKS.items(), ("nothing", None)]:
        shared = {} if key == "nothing" else {key: value}
        assert list(rows({"checks": [columns | shared]})) == [row | shared] == list(rows({"checks": [row | shared]}))


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks)
def test_a_record_decides_again(config: Any, rules: Any, grants: Any, checks: Any) -> None:
    """Every row, asked again as it stands in the record, comes out as it stands there."""
    pdp = make_pdp(config, rules, grants)
    answer, recorded = decide_and_record(pdp, checks)
    record = json.loads(RecordEncoder("i").encode(recorded, 0))
    inputs = [record["inputs"], *record.get("otherInputs", [])]
    for row in requests(record):
        given_inputs = inputs[row.get("inputs", 0)]
        check = {
            "principal": given_inputs["principal"],
            "action": row["action"],
            "resource": row["resource"],
            "context": given_inputs["context"],
        }
        check |= {"actingRole": given_inputs["actingRole"]} if given_inputs["actingRole"] else {}
        check |= {"delegated": checks[row["at"]]["delegated"]}
        again, _ = decide_and_record(pdp, [check])
        assert (bool(again.allowed[0]), list(again.decision(0).by)) == (row["allowed"], row["by"])
    requested = {row["at"] for row in requests(record)}
    for row in rows(record):
        if row["at"] in requested:
            continue
        given_inputs = inputs[row.get("inputs", 0)]
        principal = {**given_inputs["principal"], "id": row["as"]}
        check = {
            "principal": principal,
            "action": row["action"],
            "resource": row["resource"],
            "delegated": row["delegated"],
            "context": given_inputs["context"],
        }
        if row["by"] == ["cannot_assume"]:
            check["actingRole"] = given_inputs["actingRole"]
        again, _ = decide_and_record(pdp, [check])
        assert (bool(again.allowed[0]), list(again.decision(0).by), bool(answer.allowed[row["at"]])) == (
            row["allowed"],
            row["by"],
            row["allowed"],
        )


def test_a_full_resource_reads_back() -> None:
    resource = {
        "type": "table",
        "warehouse": "w",
        "path": ["a/b", "c"],
        "ref": "x/y",
        "contentType": "DELTA_LAKE_TABLE",
        "id": "7",
        "properties": {"k": "v"},
    }
    check = {
        "principal": "user:oidc~a",
        "action": "rename",
        "resource": resource,
        "context": {"arguments": {"destination": "table:w/z/c", "force": True}},
    }
    _, recorded = decide_and_record(make_pdp({}, {}), [check])
    row = next(rows(json.loads(RecordEncoder("i").encode(recorded, 0))))
    arguments = row["resource"].pop("arguments")
    assert arguments == {"destination": "table:w/z/c", "force": True}
    body = {**check, "resource": row["resource"], "context": {"arguments": arguments}}
    again = admit(decode_checks([msgspec.json.encode(body)]).request("test"), EMBEDDED_CALLER)
    assert again.checks[0].resources == recorded.batch.checks[0].resources
    assert isinstance(msgspec.convert(body, CheckBody), CheckBody)


async def test_every_request_is_one_line_and_the_bundle_is_kept(tmp_path: Path) -> None:
    async with serving(example_settings(tmp_path)) as running:
        checks = [
            {"principal": "user:oidc~Alice", "action": "read_data", "resource": f"table:lake/t{number}@prod"}
            for number in range(50)
        ]
        for _ in range(20):
            await running.pdp.check(
                admit(decode_checks([msgspec.json.encode(check) for check in checks]).request("test"), EMBEDDED_CALLER)
            )
        digest, text = running.pdp.bundle.digest, running.pdp.bundle.text
    lines = all_records(tmp_path)
    assert [line["seq"] for line in lines] == list(range(23))
    records = [line for line in lines if line["event"] == "decision"]
    assert {len(list(rows(record))) for record in records} == {50}
    assert {line["schema"] for line in lines} == {1}
    assert (tmp_path / "audit" / "bundles" / digest).read_bytes() == text
    assert len({record["id"] for record in records}) == 20


def test_records_that_come_while_others_are_taken_are_written(tmp_path: Path) -> None:
    check = {"principal": "anonymous", "action": "read_data", "resource": "table:w/a/b"}
    _, one = decide_and_record(make_pdp({}, {}), [check])
    log = file_audit(tmp_path / "audit")

    async def append_many() -> None:
        for _ in range(40_000):
            log.append(one)
            await asyncio.sleep(0)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        asyncio.run(append_many())
    finally:
        sys.setswitchinterval(usual)
    assert log.close(20)
    assert [record["seq"] for record in all_records(tmp_path)] == list(range(40_000))
