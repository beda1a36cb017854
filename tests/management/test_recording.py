"""Records of management: every write and list, done or refused, with its actor, over real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.service.serving import settings_of

from pdp.audit.records.rows import requests

ALICE, BOB = "user:oidc~alice", "user:oidc~bob"
GRANT = {"principal": BOB, "privilege": "select", "object": "table:lake/t"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpClient]:
    config = {"store": {"url": "sqlite:///pdp.db"}}
    async with client_of(settings_of(config, tmp_path)) as client:
        yield client


async def records(client: HttpClient, folder: Path, event: str = "management") -> list[dict[str, Any]]:
    """Stop the service and return its records of an event."""
    await client.service.stop()
    return [record for record in all_records(folder) if record["event"] == event]


async def test_a_write_of_grants_is_recorded_whole(client: HttpClient, tmp_path: Path) -> None:
    grants = [{**GRANT, "object": f"table:lake/t{number}"} for number in range(300)]
    answer = await client.send("POST", "/v1/grants", {"add": grants}, {"X-Request-ID": "mine"})
    removed = await client.send("POST", "/v1/grants", {"remove": grants[:1]})
    assert (answer.status, removed.status) == (200, 200)
    first, second = await records(client, tmp_path)
    assert (first["operation"], first["allowed"], first["caller"]) == ("write_grants", True, "loopback")
    assert first["asked"] == {"add": grants}
    assert second["asked"] == {"remove": grants[:1]}
    assert first["revision"] == answer.json()["revision"] != second["revision"]
    assert (first["id"], first["requestId"]) == (answer.headers["X-Decision-ID"], "mine")


async def test_a_refused_write_is_recorded_with_the_actor(client: HttpClient, tmp_path: Path) -> None:
    grants = [{**GRANT, "object": f"table:lake/t{number}"} for number in range(300)]
    answer = await client.send("POST", "/v1/grants", {"add": grants, "actor": ALICE})
    assert answer.status == 403
    objects = await client.send(
        "POST", "/v1/objects", {"delete": ["table:lake/t"], "move": [{"from": "table:lake/a", "to": "table:lake/b"}],
                                "put": [{"object": "table:lake/c", "id": "7"}], "actor": ALICE},
    )  # fmt: skip
    assert objects.status == 403
    first, second = await records(client, tmp_path)
    assert (first["allowed"], first["actor"], first["code"]) == (False, ALICE, "forbidden")
    assert "lacks" in first["message"]
    assert len(first["asked"]["add"]) + first["leftOut"] == 300
    assert len(first["asked"]["add"]) == 100
    assert "revision" not in first
    assert (second["operation"], second["actor"], second["allowed"]) == ("write_objects", ALICE, False)
    assert second["asked"]["move"] == [{"from": "table:lake/a", "to": "table:lake/b"}]
    assert answer.headers["X-Request-ID"] == answer.headers["X-Decision-ID"] == first["id"]


async def test_a_refused_role_is_recorded(client: HttpClient, tmp_path: Path) -> None:
    refused = await client.send("POST", "/v1/grants", {"add": [GRANT], "actor": ALICE, "actingRole": "role:admin"})
    assert refused.status == 403
    (record,) = await records(client, tmp_path)
    assert (record["actor"], record["actingRole"], record["allowed"]) == (ALICE, "role:admin", False)


async def test_a_recorded_refusal_has_no_second_record(client: HttpClient, tmp_path: Path) -> None:
    await client.send("POST", "/v1/grants", {"add": [GRANT], "actor": ALICE})
    await client.send(
        "POST", "/pdp.v1.GrantsService/WriteGrants", {"add": [GRANT], "actor": {"principal": {"id": ALICE}}}
    )
    assert await records(client, tmp_path, "refusal") == []


async def test_a_caller_without_the_right_to_write_is_recorded(tmp_path: Path) -> None:
    callers = {"local": {"loopback": True, "may_assert": ["principals"]}}
    config = {"store": {"url": "sqlite:///pdp.db"}, "identity": {"callers": callers}}
    async with client_of(settings_of(config, tmp_path)) as client:
        assert (await client.send("POST", "/v1/grants", {"add": [GRANT], "actor": ALICE})).status == 403
        (record,) = await records(client, tmp_path)
    assert (record["caller"], record["actor"], record["code"]) == ("local", ALICE, "forbidden")


async def test_lists_are_recorded_and_lead_to_their_checks(client: HttpClient, tmp_path: Path) -> None:
    await client.send("POST", "/v1/grants", {"add": [GRANT]})
    await client.send("GET", f"/v1/grants?principal={BOB}&actor={ALICE}")
    await client.send("GET", f"/v1/grants?object=table:lake/t&actor={ALICE}")
    await client.send("POST", "/v1/access", {"resource": "table:lake/t", "action": "read_data"})
    query = {"principal": BOB, "action": "read_data", "type": "table", "container": "warehouse:lake"}
    await client.send("POST", "/v1/list", query)
    _, listed, refused, access, objects = await records(client, tmp_path)
    assert (listed["operation"], listed["actor"], listed["asked"]) == ("list_grants", ALICE, {"principal": BOB})
    assert (refused["allowed"], refused["code"], refused["asked"]) == (False, "forbidden", {"object": "table:lake/t"})
    assert access["asked"] == {"action": "read_data", "resource": "table:lake/t"}
    assert objects["asked"] == {"action": "read_data", "type": "table", "container": "warehouse:lake"}
    checks = [record for record in all_records(tmp_path) if record.get("surface") == "list"]
    assert {record["requestId"] for record in checks} == {access["id"], objects["id"]}


async def test_a_page_of_a_list_is_one_record_of_what_it_shows(tmp_path: Path) -> None:
    """A batch of candidates was a record of its own, with every denied name: 9 MB for 300,000 tables."""
    names = [f"table:lake/s{number % 3}/t{number}" for number in range(3000)]
    granted = names[7::500]
    grants = [{"principal": BOB, "privilege": "select", "object": name} for name in granted]
    config = {"store": {"url": "file:world.json"}, "warehouses": {"lake": {}}}
    (tmp_path / "world.json").write_text(json.dumps({"objects": names, "grants": grants}))
    query = {"principal": BOB, "action": "read_data", "type": "table", "container": "warehouse:lake"}
    async with client_of(settings_of(config, tmp_path)) as client:
        _, listed = await client.post("/v1/list", {**query, "pageSize": 4})
        _, rest = await client.post("/v1/list", {**query, "pageSize": 4, "pageToken": listed["nextPageToken"]})
        _, nothing = await client.post("/v1/list", {**query, "principal": ALICE})
    assert sorted(listed["objects"] + rest["objects"]) == sorted(granted)
    assert nothing["objects"] == []
    pages = [record for record in all_records(tmp_path) if record.get("surface") == "list"]
    assert [[row["resource"] for row in requests(page)] for page in pages] == [listed["objects"], rest["objects"], []]
    shown = [row for page in pages for row in requests(page)]
    assert all(row["allowed"] and row["by"][0].startswith("grants:") for row in shown), shown
    asked = [page["listing"]["asked"] for page in pages]
    assert asked == [query, query, {**query, "principal": ALICE}]
    counts = [(page["listing"]["candidates"], page["listing"]["permitted"]) for page in pages]
    assert (counts[0][0] + counts[1][0], counts[2]) == (len(names), (len(names), 0))
    assert [permitted for _, permitted in counts[:2]] == [4, 2]
    assert max(len(json.dumps(page)) for page in pages) < 2000


POLICY = {"id": "p", "table": "table:lake/s/t", "grantees": ["allUsers"], "filter": "TRUE"}
CHANGES = [
    ("POST", "/v1/grants", {"add": [GRANT]}),
    ("POST", "/v1/objects", {"put": ["table:lake/u"]}),
    ("POST", "/v1/row-access-policies", POLICY),
    ("POST", "/v1/column-masks", {"id": "m", "table": "table:lake/s/t", "column": "c", "grantees": ["allUsers"], "kind": "hash"}),
    ("DELETE", "/v1/row-access-policies/old?table=table:lake/s/t", None),
    ("POST", "/v1/row-access-policies:batchDelete", {"table": "table:lake/s/t", "ids": ["old"]}),
    ("POST", "/pdp.v1.GrantsService/WriteGrants", {"add": [GRANT]}),
]  # fmt: skip


@asynccontextmanager
async def served(folder: Path, **audit: str) -> AsyncIterator[HttpClient]:
    config = {
        "store": {"url": "sqlite:///pdp.db"},
        "audit": {"sinks": [{"file": "audit/"}], **audit},
        "limits": {"request_timeout_seconds": 1},
    }
    async with client_of(settings_of(config, folder)) as client:
        old = await client.send("POST", "/v1/row-access-policies", POLICY | {"id": "old"})
        assert old.status == 200
        yield client


@asynccontextmanager
async def no_disk(folder: Path) -> AsyncIterator[None]:
    """Let no file be written to the folder of the audit."""
    audit, aside = folder / "audit", folder / "aside"
    audit.rename(aside)
    audit.write_text("")
    try:
        yield
    finally:
        audit.unlink()
        aside.rename(audit)


@pytest.mark.parametrize("on_full", ["deny", "block"])
async def test_nothing_is_changed_that_the_audit_cannot_tell_of(tmp_path: Path, on_full: str) -> None:
    """Also the first change after the disk failed, of which nobody knows before."""
    async with served(tmp_path, durability="request", on_full=on_full) as client:
        facts = client.service.source.facts
        async with no_disk(tmp_path):
            for method, path, body in CHANGES:
                assert (await client.send(method, path, body)).status == 503, path
            assert client.service.source.facts is facts
        assert (await client.send("POST", "/v1/grants", {"add": [GRANT]})).status in (200, 503)


async def test_a_change_goes_on_without_the_audit_where_records_may_be_lost(tmp_path: Path) -> None:
    async with served(tmp_path, durability="request", on_full="drop") as client, no_disk(tmp_path):
        for method, path, body in CHANGES[:3]:
            assert (await client.send(method, path, body)).status == 200, path


@pytest.mark.parametrize("durability", ["request", "batch"])
async def test_a_change_is_recorded_before_it_begins_where_answers_wait(tmp_path: Path, durability: str) -> None:
    async with served(tmp_path, durability=durability) as client:
        await client.send("POST", "/v1/grants", {"add": [GRANT]}, {"X-Request-ID": "mine"})
        await client.send("GET", "/v1/grants")
        *begun, done, listed = [one for one in await records(client, tmp_path) if one["operation"].endswith("_grants")]
    assert (done["allowed"], listed["operation"], len(begun)) == (True, "list_grants", durability == "request")
    for one in begun:
        assert (one["allowed"], one["code"], one["asked"], one["requestId"]) == (False, "begun", done["asked"], "mine")
        assert done["id"] in one["message"]
        assert one["id"] != done["id"]
        assert "revision" not in one
