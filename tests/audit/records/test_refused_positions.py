"""Refused positions: the record has what was asked there, and no reader takes the position for a decided check."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from jsonschema import Draft202012Validator
from support.authentication import bearer, oidc
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.paths import ROOT
from support.servers.idp import provider, token
from support.service.command_line import COMPOSITION
from support.service.serving import settings_of

from pdp.audit.records.recorded import ReadReport, RecordFilter, RecordReader
from pdp.audit.records.schema import RECORD, Record
from pdp.audit.records.tables import asked_text
from pdp.cli.main import cli

BOB, VICTIM = "user:oidc~bob", "user:oidc~PROBEVICTIM"
TABLE = "table:lake/PROBET/x"
TRINO = {"table": {"catalogName": "lake", "schemaName": "PROBET", "tableName": "x"}}
ASKED = {"principal": VICTIM, "action": "read_data", "resource": TABLE}
"""A check of another principal."""
OWN = {"action": "read_data", "resource": TABLE}
STATED: dict[str, Any] = {
    "principal": ASKED,
    "roles": {**OWN, "principal": {"id": BOB, "roles": ["admin"]}},
    "groups": {**OWN, "principal": {"id": BOB, "groups": ["staff"]}},
    "attributes": {**OWN, "principal": {"id": BOB, "attributes": {"clearance": "top", "password": "hidden-value"}}},
    "delegated": {**OWN, "delegated": True},
    "properties": {**OWN, "resource": {"reference": TABLE, "properties": {"owner": "mallory"}}},
    "acting role": {**ASKED, "actingRole": "role:admin"},
    "escapes": {**ASKED, "resource": "table:lake/PROBET/x%22%E2%80%AE"},
}
"""Evidence that nobody may assert, one check each."""
SCHEMA = Draft202012Validator(json.loads((ROOT / "docs" / "audit-schema.json").read_text()))


@asynccontextmanager
async def asking(folder: Path, inspect: str = "deny") -> AsyncIterator[HttpClient]:
    """Yield a client of a service on which users may assert nothing."""
    async with provider() as idp:
        world = {"grants": [{"principal": BOB, "privilege": "select", "object": "table:lake/own/t"}]}
        (folder / "world.json").write_text(json.dumps(world))
        identity = {"providers": {"oidc": oidc(idp)}, "inspect": inspect}
        trino = {"catalogs": {"lake": {"warehouse": "lake"}}}
        config = {"store": {"url": "file:world.json"}, "warehouses": {"lake": {}}, "identity": identity, "trino": trino}
        async with client_of(settings_of(config, folder)) as client:
            yield client


async def ask(client: HttpClient, path: str, body: Any) -> Any:
    """Ask with a token of bob; return the answer."""
    answer = await client.send("POST", path, body, bearer(token(sub="bob")))
    assert answer.status == 200, answer.text
    return answer.json()


async def written(client: HttpClient, folder: Path) -> list[dict[str, Any]]:
    """Stop the service; return its decision records, each valid by the schema and without a check to decide again."""
    await client.service.stop()
    records = [record for record in all_records(folder) if record["event"] in ("decision", "filter")]
    for record in records:
        SCHEMA.validate(record)
    return records


def decoded(record: dict[str, Any]) -> Record:
    return RECORD.decode(json.dumps(record))


def replayed(record: dict[str, Any]) -> list[tuple[int, str]]:
    """Return the positions and principals of the checks that a replay decides again."""
    reader = RecordReader(decoded(record), "f:1", ReadReport(), RecordFilter(at_revision=True))
    return [(found.at, found.check.question.principal.id) for found in reader.checks()]


def inputs_of(record: dict[str, Any], entry: dict[str, Any]) -> Any:
    return [record["inputs"], *record.get("otherInputs", [])][entry.get("inputs", 0)]


def shown(folder: Path, command: str, *arguments: str) -> str:
    """Return the output of a command of `pdp audit` about the audit of a service."""
    ended = CliRunner().invoke(cli, ["audit", command, "--audit", str(folder / "audit"), *arguments], obj=COMPOSITION)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


async def test_each_refused_statement_is_recorded(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        for check in STATED.values():
            (decision,) = (await ask(client, "/v1/check", {"checks": [check]}))["decisions"]
            assert decision["error"]["code"] == "assertion_not_allowed"
        records = await written(client, tmp_path)
    for (name, check), record in zip(STATED.items(), records, strict=True):
        (entry,) = record["checks"]
        named = check.get("principal", BOB)
        wanted = named if isinstance(named, str) else named["id"]
        if name not in ("delegated", "properties"):
            assert entry["as"] == wanted == inputs_of(record, entry)["principal"]["id"], name
        assert entry["action"] == "read_data"
        assert "PROBET/x" in str(entry["resource"]), name
        assert (entry["allowed"], entry["error"]["code"]) == (False, "assertion_not_allowed")
        assert replayed(record) == []
        assert asked_text(decoded(record)) is None
    text = json.dumps(records)
    assert "hidden-value" not in text
    assert '"***"' in text
    by_name = dict(zip(STATED, records, strict=True))
    assert by_name["roles"]["inputs"]["principal"]["roles"] == ["admin"]
    assert by_name["groups"]["inputs"]["principal"]["groups"] == ["staff"]
    assert by_name["acting role"]["inputs"]["actingRole"] == "role:admin"
    assert by_name["delegated"]["checks"][0]["delegated"] is True
    assert by_name["properties"]["checks"][0]["resource"]["properties"] == {"owner": "mallory"}


async def test_other_surfaces_record_refused_positions(tmp_path: Path) -> None:
    def trino(action: dict[str, Any]) -> dict[str, Any]:
        return {"input": {"context": {"identity": {"user": "PROBEVICTIM", "groups": []}}, "action": action}}

    connect = {"checks": [{**ASKED, "principal": {"id": VICTIM}, "resource": {"reference": TABLE}}]}
    many = {"operation": "FilterTables", "filterResources": [TRINO, TRINO]}
    view = {"principal": VICTIM, "view": "view:lake/PROBET/x", "operation": "replace", "set": {}, "remove": []}
    async with asking(tmp_path) as client:
        await ask(client, "/pdp.v1.DecisionService/Check", connect)
        await ask(client, "/v1/load", {"principal": VICTIM, "action": "loadTable", "target": TABLE})
        await ask(client, "/v1/commit-view", view)
        await ask(client, "/v1/data/trino/allow", trino({"operation": "SelectFromColumns", "resource": TRINO}))
        await ask(client, "/v1/data/trino/batch", trino(many))
        await ask(client, "/v1/data/trino/rowFilters", trino({"operation": "GetRowFilters", "resource": TRINO}))
        records = await written(client, tmp_path)
    assert len(records) == 6
    for record in records:
        for entry in record["checks"]:
            assert entry["as"] == VICTIM, record
            assert "PROBET/x" in entry["resource"]
            assert entry["action"]
        assert replayed(record) == []


async def test_a_refused_position_keeps_its_place_among_others(tmp_path: Path) -> None:
    own, bad = {**OWN, "resource": "table:lake/own/t"}, {**OWN, "resource": "nonsense"}
    other = {**ASKED, "principal": "user:oidc~other", "action": "drop"}
    orders = list(permutations([own, ASKED, bad, other]))
    async with asking(tmp_path) as client:
        for order in orders:
            await ask(client, "/v1/check", {"checks": order})
        records = await written(client, tmp_path)
    for order, record in zip(orders, records, strict=True):
        entries = {entry["at"]: entry for entry in record["checks"]}
        assert [entries[order.index(check)].get("as") for check in (own, ASKED, bad, other)] == [
            BOB, VICTIM, None, "user:oidc~other",
        ]  # fmt: skip
        assert [entries[at]["allowed"] for at in range(4)] == [check is own for check in order]
        assert entries[order.index(other)]["action"] == "drop"
        for check in (own, ASKED, other):
            entry = entries[order.index(check)]
            assert inputs_of(record, entry)["principal"]["id"] == entry["as"]
        assert replayed(record) == [(order.index(own), BOB)]


async def test_a_list_of_refused_resources_is_recorded_whole(tmp_path: Path) -> None:
    names = [f"table:lake/PROBET/t{number}" for number in range(100)]
    async with asking(tmp_path) as client:
        await ask(client, "/v1/check", {"checks": [{"principal": VICTIM, "action": "read_data", "resources": names}]})
        (record,) = await written(client, tmp_path)
    assert [(entry["at"], entry["resource"]) for entry in record["checks"]] == list(enumerate(names))
    assert "otherInputs" not in record


async def test_a_refused_inspection_is_recorded(tmp_path: Path) -> None:
    async with asking(tmp_path, "read_assignments") as client:
        (decision,) = (await ask(client, "/v1/check", {"checks": [ASKED]}))["decisions"]
        assert decision["by"] == ["invalid_check"]
        await ask(client, "/v1/check", {"checks": [OWN, ASKED]})
        alone, beside = await written(client, tmp_path)
    for record in (alone, beside):
        entry = record["checks"][-1]
        assert (entry["as"], entry["resource"], entry["allowed"]) == (VICTIM, TABLE, False)
        assert inputs_of(record, entry)["principal"]["id"] == VICTIM
    assert (replayed(alone), replayed(beside)) == ([], [(0, BOB)])


async def test_probes_are_found_by_readers(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        await ask(client, "/v1/check", {"checks": [ASKED, {**OWN, "resource": "nonsense"}]})
        await written(client, tmp_path)
    for choice in (("--resource", "table:lake/PROBET/*"), ("--principal", VICTIM), ("--action", "read_data")):
        text = await asyncio.to_thread(shown, tmp_path, "tail", *choice)
        assert f"{VICTIM} read_data {TABLE}  invalid check: caller `{BOB}` may not assert principals" in text
    table = await asyncio.to_thread(shown, tmp_path, "export", "--format", "csv")
    exported = list(csv.DictReader(io.StringIO(table)))
    assert [(row["principal"], row["resource"], row["invalid"], row["allowed"]) for row in exported] == [
        (VICTIM, TABLE, "assertion_not_allowed", "false"), ("", "", "invalid_argument", "false"),
    ]  # fmt: skip
