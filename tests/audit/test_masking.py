"""Masks of secrets, in every place that shows properties, attributes or arguments."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import client_of
from support.oracles.audit_files import audit_records, audit_text
from support.service.serving import settings_of

from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport
from pdp.model.redaction import MASK, Redactor

HIDDEN = "hunter2"
SECRETS = {
    "db.PassWord": HIDDEN,
    "clientSecret": HIDDEN,
    "s3.session-TOKEN": [HIDDEN],
    "s3.access-key-id": {"a": HIDDEN},
    "aws_credentials": 7,
    "nested": {"list": [{"password": HIDDEN, "plain": "shown"}]},
    "pin": "pin 4711",
}
RULES = {"a": "properties['clientSecret'] == 'x' && attributes['apiKey'] == 'y' && properties['pin'] == 'z'"}


def resources(count: int) -> list[dict[str, Any]]:
    """Return tables with secrets."""
    return [
        {"type": "table", "warehouse": "lake", "path": [f"t{number}"], "ref": "main", "properties": SECRETS}
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [1, 3, 100])
async def test_no_secret_is_recorded_or_explained(tmp_path: Path, count: int) -> None:
    (tmp_path / "rules.yaml").write_text(json.dumps({"rules": RULES}))
    config = {"policies": {"rules": ["rules.yaml"]}, "audit": {"sinks": [{"file": "audit"}], "mask": ["PIN"]}}
    principal = {"id": "user:oidc~alice", "attributes": {"apiKey": HIDDEN, "team": "shown"}}
    check = {"principal": principal, "action": "read_data", "context": {"arguments": {"authToken": HIDDEN}}}
    async with client_of(settings_of(config, tmp_path)) as client:
        status, answer = await client.check({**check, "resources": resources(count)}, explain=True)
        assert status == 200, answer
        assert "properties is {" in json.dumps(answer)
        assert HIDDEN not in json.dumps(answer)
        assert "pin 4711" not in json.dumps(answer)
        assert (await client.check({**check, "resources": resources(count)}))[0] == 200
    text = audit_text(tmp_path)
    assert HIDDEN not in text
    assert "pin 4711" not in text
    assert '"plain":"shown"' in text
    assert '"team":"shown"' in text
    assert len(audit_records(tmp_path)) == 2


def _text(folder: Path) -> str:
    return audit_text(folder)


async def test_a_record_that_is_encoded_beside_the_loop_has_no_secret(tmp_path: Path) -> None:
    """Long records had only the words that are masked by default, none of `audit.mask`."""
    config = {"audit": {"sinks": [{"file": "audit"}], "mask": ["PIN"]}}
    tables = [
        {"type": "table", "warehouse": "lake", "path": [f"t{at}"], "properties": {"pin": HIDDEN}} for at in range(6000)
    ]
    async with client_of(settings_of(config, tmp_path)) as client:
        assert (await client.check({"principal": "user:oidc~alice", "action": "read_data", "resources": tables}))[
            0
        ] == 200
        for _ in range(500):  # at the stop, nothing is encoded beside the loop
            if '"event":"decision"' in _text(tmp_path):
                break
            await asyncio.sleep(0.01)
    assert HIDDEN not in _text(tmp_path)


async def test_a_masked_check_is_not_decided_again(tmp_path: Path) -> None:
    plain = {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/t"}
    async with client_of(settings_of({}, tmp_path)) as client:
        secret = {**plain, "resource": resources(1)[0]}
        attributes = {**plain, "principal": {"id": "user:oidc~alice", "attributes": {"apiKey": HIDDEN}}}
        for check in (plain, secret, attributes):
            assert (await client.check(check))[0] == 200
    report = ReadReport()
    assert len(list(read_audit(tmp_path / "audit", report))) == 1
    assert sum(report.skipped.values()) == 2
    assert all("masked" in place for place in report.first.values())


@pytest.mark.parametrize("count", [1, 3, 100])
async def test_a_record_lists_what_is_missing(tmp_path: Path, count: int) -> None:
    config = {"audit": {"sinks": [{"file": "audit"}], "mask": ["PIN", "properties", "arg"]}}
    principal = {"id": "user:oidc~alice", "attributes": {"apiKey": HIDDEN, "team": {"a/b~c.token": HIDDEN}}}
    arguments = {"SQL": f"SELECT '{HIDDEN}'", "list": [{"password": HIDDEN}], "sqlDialect": "trino", "name": "n"}
    check = {"principal": principal, "action": "read_data", "context": {"arguments": arguments}}
    async with client_of(settings_of(config, tmp_path)) as client:
        assert (await client.check({**check, "resources": resources(count)}))[0] == 200
        assert (await client.check({**check, "resource": "table:lake/t"}))[0] == 200
        plain = {"principal": "user:oidc~bob", "action": "read_data", "resource": "table:lake/t"}
        assert (await client.check(plain))[0] == 200
    many, one, bare = audit_records(tmp_path)
    assert HIDDEN not in json.dumps([many, one, bare])
    assert many["inputs"]["principal"]["masked"] == ["/attributes/apiKey", "/attributes/team/a~1b~0c.token"]
    [entry, *_] = many["checks"]
    shown = entry["resources"] if "resources" in entry else [row["resource"] for row in many["checks"]]
    in_arguments = ["/arguments/SQL", "/arguments/list/0/password"]
    in_properties = [
        "db.PassWord", "clientSecret", "s3.session-TOKEN", "s3.access-key-id", "aws_credentials",
        "nested/list/0/password", "pin",
    ]  # fmt: skip
    for resource in shown:
        assert resource["masked"] == [*(f"/properties/{key}" for key in in_properties), *in_arguments]
        assert resource["arguments"]["sqlDialect"] == "trino"
    assert len(shown) == count
    assert one["checks"][0]["resource"]["masked"] == in_arguments
    assert "masked" not in json.dumps(bare)


@pytest.mark.parametrize("masked", [True, ["/properties/password"]])
async def test_both_forms_of_a_masked_record_are_skipped(tmp_path: Path, masked: object) -> None:
    async with client_of(settings_of({}, tmp_path)) as client:
        check = {"principal": "user:oidc~alice", "action": "read_data", "resource": resources(1)[0]}
        assert (await client.check(check))[0] == 200
    [record] = audit_records(tmp_path)
    record["checks"][0]["resource"]["masked"] = masked
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "decisions-a.jsonl").write_text(json.dumps(record) + "\n")
    report = ReadReport()
    assert list(read_audit(tmp_path / "old", report)) == []
    assert sum(report.skipped.values()) == 1


def test_values_without_a_secret_stay_the_same_object() -> None:
    values = {"a": [1, {"b": "c"}], "d": {"e": (1, 2)}}
    assert Redactor().masked(values) is values
    assert Redactor(["E"]).masked(values) == {"a": [1, {"b": "c"}], "d": {"e": "***"}}


def test_a_masker_forgets_keys_and_masks_as_before() -> None:
    masker = Redactor(["pin"])
    for number in range(3000):
        assert masker.masked({f"Pin{number}": 1, f"other{number}": "a"}) == {
            f"Pin{number}": MASK,
            f"other{number}": "a",
        }
    assert len(masker._known) <= 1024
    long = "x" * 500 + "Token"
    assert masker.masked({long: 1}) == {long: MASK}
    assert long not in masker._known
