"""W3C trace context of a request: into every record of the request, over every surface, and into no decision."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.service.serving import settings_of

from pdp.surfaces.refusals import NO_IDS, read_ids
from pdp.surfaces.wire import decision_pb2 as wire

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
CHECK = {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/t"}
CONNECT = {
    "principal": {"id": "user:oidc~alice"}, "action": "read_data", "resource": {"reference": "table:lake/t"},
}  # fmt: skip
TABLE = {"table": {"catalogName": "lake", "schemaName": "s", "tableName": "t", "columns": ["c"]}}
TRINO = {
    "input": {
        "context": {"identity": {"user": "a"}, "queryId": "20260101_1"},
        "action": {"operation": "SelectFromColumns", "resource": TABLE},
    }
}
REQUESTS: dict[str, tuple[str, str, Any]] = {
    "check": ("POST", "/v1/check", {"checks": [CHECK]}),
    "many checks": ("POST", "/v1/check", {"checks": [CHECK] * 3}),
    "check in aiohttp": ("POST", "/v1/check?", {"checks": [CHECK]}),
    "load": ("POST", "/v1/load", {"principal": "user:oidc~alice", "target": "table:lake/t", "action": "loadTable"}),
    "list grants": ("GET", "/v1/grants", None),
    "trino": ("POST", "/v1/data/trino/allow", TRINO),
    "connect": ("POST", "/pdp.v1.DecisionService/Check", {"checks": [CONNECT]}),
    "connect grants": ("POST", "/pdp.v1.GrantsService/ListGrants", {}),
    "malformed": ("POST", "/v1/check", b"{"),
    "malformed in aiohttp": ("POST", "/v1/check?", b"{"),
    "malformed grants": ("POST", "/v1/grants", b"{"),
    "malformed connect": ("POST", "/pdp.v1.DecisionService/Check", b"{"),
}
INVALID = [
    [""], [TRACE], [PARENT.upper()], [f"{PARENT} "], [f" {PARENT}x"], [f"{PARENT}-"], [f"{PARENT}-x"], [PARENT[:-1]],
    [f"ff{PARENT[2:]}"], [f"00-{'0' * 32}-{SPAN}-01"], [f"00-{TRACE}-{'0' * 16}-01"], [f"00-{TRACE[1:]}-{SPAN}-01"],
    [f"00-{TRACE}-{SPAN}x-01"], [f"0g{PARENT[2:]}"], [f"01{PARENT[2:]}x"], [f"01{PARENT[2:]}-{'a' * 600}"],
    [f"{PARENT}\n"], [f"01{PARENT[2:]}-a\nb"], [f"01{PARENT[2:]}-\N{LATIN SMALL LETTER E WITH ACUTE}"],
    [PARENT, PARENT], [PARENT.replace("0", "\N{ARABIC-INDIC DIGIT ZERO}")],
]  # fmt: skip


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpClient]:
    config = {"store": {"url": "sqlite:///pdp.db"}, "trino": {"catalogs": {"lake": {"warehouse": "lake"}}}}
    async with client_of(settings_of(config, tmp_path)) as client:
        yield client


def trace_of(record: dict[str, Any]) -> tuple[str, str]:
    return record.get("traceId", ""), record.get("spanId", "")


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_every_record_of_a_request_names_its_trace(
    client: HttpClient, tmp_path: Path, request_: tuple[str, str, Any]
) -> None:
    with_trace = {"traceparent": PARENT, "tracestate": "vendor=secret", "X-Request-ID": "mine"}
    given = await client.send(*request_, headers=with_trace)
    alone = await client.send(*request_, headers={"Traceparent": PARENT})
    without = await client.send(*request_)
    assert given.status == alone.status == without.status
    await client.service.stop()
    records = [record for record in all_records(tmp_path) if record["event"] != "service"]
    assert [trace_of(record) for record in records] == [(TRACE, SPAN), (TRACE, SPAN), ("", "")]
    assert [record.get("requestId", "") for record in records] == ["mine", "", ""]
    assert "vendor" not in str(records)
    same = [{key: record[key] for key in ("checks", "code", "operation") if key in record} for record in records]
    assert same[0] == same[1] == same[2]


@pytest.mark.parametrize("sent", INVALID, ids=range(len(INVALID)))
def test_an_invalid_trace_is_ignored(sent: list[str]) -> None:
    assert read_ids((), sent) is NO_IDS
    assert read_ids(("mine",), sent).request_id == "mine", "the other id stays"


@pytest.mark.parametrize(
    "sent", ["00-" + PARENT[3:], "01" + PARENT[2:], "cc" + PARENT[2:] + "-what-ever", PARENT[:-2] + "00"]
)
def test_a_later_version_may_say_more(sent: str) -> None:
    ids = read_ids((), (sent,))
    assert (ids.request_id, ids.trace_id, ids.span_id) == ("", TRACE, SPAN)


@pytest.mark.parametrize("path", ["/v1/check", "/v1/check?", "/pdp.v1.DecisionService/Check"])
@pytest.mark.parametrize("sent", [["x"], [f"{PARENT}-x"], [PARENT, PARENT], ["a" * 7000]])
async def test_a_request_with_an_invalid_trace_is_answered(
    client: HttpClient, tmp_path: Path, path: str, sent: list[str]
) -> None:
    body = {"checks": [CONNECT]} if "Service" in path else {"checks": [CHECK]}
    answer = await client.send("POST", path, body, [("traceparent", value) for value in sent])
    assert answer.status == 200
    await client.service.stop()
    assert [trace_of(record) for record in all_records(tmp_path) if record["event"] == "decision"] == [("", "")]


async def test_traces_on_one_connection_stay_apart(client: HttpClient, tmp_path: Path) -> None:
    spans = ["a" * 16, "b" * 16, "b" * 16, "", "c" * 16]
    for span in spans:
        headers = {"traceparent": f"00-{TRACE}-{span}-00"} if span else {}
        assert (await client.send("POST", "/v1/check", {"checks": [CHECK]}, headers)).status == 200
    await client.service.stop()
    decided = [record for record in all_records(tmp_path) if record["event"] == "decision"]
    assert [trace_of(record)[1] for record in decided] == spans


@pytest.mark.parametrize(("sent", "found"), [([PARENT], TRACE), (["x"], ""), ([PARENT.upper()], "")])
async def test_grpc_has_the_trace_in_metadata(client: HttpClient, tmp_path: Path, sent: list[str], found: str) -> None:
    check = wire.Check(
        principal=wire.Principal(id="user:oidc~alice"),
        action="read_data",
        resource=wire.Resource(reference="table:lake/t"),
    )
    metadata = [("traceparent", value) for value in sent]
    async with grpc.aio.insecure_channel(client.service.addresses["grpc"]) as channel:
        send: Any = channel.unary_unary("/pdp.v1.DecisionService/Check", lambda one: one, lambda one: one)
        await send(wire.CheckRequest(checks=[check]).SerializeToString(), metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError):
            await send(b"\xff", metadata=metadata)
    await client.service.stop()
    records = {record["event"]: record for record in all_records(tmp_path)}
    assert trace_of(records["decision"])[0] == trace_of(records["refusal"])[0] == found
