"""Row policies behind views in Trino, and for loads: those of the owner, of the user of the query, or both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support.authentication import bearer
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import audit_text
from support.paths import RECORDED
from support.servers.idp import ISSUER, jwk, token
from support.service.serving import settings_of

ROWS = {
    "policies": [
        {"id": "bob", "table": "lake.sales.orders", "grantees": ["user:bob"], "filter": "owner = current_user"},
        {"id": "olga", "table": "lake.sales.orders", "grantees": ["user:olga"], "filter": "region = 'EU'"},
        {"id": "eu", "table": "lake.sales.orders", "grantees": ["group:eu"], "filter": "region = 'FR'"},
        {"id": "all", "table": "lake.sales.items", "grantees": ["user:olga"], "filter": True},
        {"id": "few", "table": "lake.sales.items", "grantees": ["user:bob"], "filter": "id < 5", "identity": "checker"},
    ],
    "masks": [
        {"id": "m", "table": "lake.sales.orders", "column": "mail", "kind": "partial", "grantees": ["user:bob"]},
        {"id": "n", "table": "lake.sales.orders", "column": "mail", "kind": "null", "grantees": ["user:olga"]},
        {"id": "o", "table": "lake.sales.orders", "column": "note", "kind": "expression", "expression": "current_user",
         "grantees": ["user:bob"]},
    ],
}  # fmt: skip


def recorded_body(operation: str, endpoint: str) -> dict[str, Any]:
    """Return the first body that a real Trino sent to an endpoint with an operation."""
    for line in (RECORDED / "trino" / "requests.jsonl").read_text().splitlines():
        sent = json.loads(line)
        if sent["endpoint"] == endpoint and sent["request"]["input"]["action"]["operation"] == operation:
            body: dict[str, Any] = sent["request"]
            return body
    raise AssertionError(operation)


EXECUTE = recorded_body("ExecuteQuery", "allow")
FILTERS = recorded_body("GetRowFilters", "rowFilters")
MASKS = recorded_body("GetColumnMask", "batchColumnMasks")


def body_of(recorded: Mapping[str, Any], user: str, query: str, groups: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a recorded body of another user. Trino names the query since 478."""
    body = deepcopy(dict(recorded))
    body["input"]["context"]["identity"] = {"user": user, "groups": list(groups)}
    if query:
        body["input"]["context"]["queryId"] = query
    return body


class Engine:
    """Trino in front of one service."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self.headers: Mapping[str, str] = {}

    async def _ask(self, endpoint: str, body: Mapping[str, Any]) -> Any:
        path, headers = f"/v1/data/trino/{endpoint}", {"Content-Type": "application/json", **self.headers}
        answer = await self._client.send("POST", path, json.dumps(body).encode(), headers)
        assert answer.status == 200, answer.text
        return answer.json()["result"]

    async def execute(self, user: str, query: str, *groups: str) -> None:
        await self._ask("allow", body_of(EXECUTE, user, query, groups))

    async def filters(self, user: str, query: str, table: str = "orders") -> list[dict[str, str]]:
        body = body_of(FILTERS, user, query)
        named = {"catalogName": "lakehouse", "schemaName": "sales", "tableName": table}
        body["input"]["action"]["resource"] = {"table": named}
        found: list[dict[str, str]] = await self._ask("rowFilters", body)
        return found

    async def masks(self, user: str, query: str) -> dict[str, dict[str, str]]:
        body = body_of(MASKS, user, query)
        names = ("mail", "note", "free")
        body["input"]["action"]["filterResources"] = [
            {"column": {"catalogName": "lakehouse", "schemaName": "sales", "tableName": "orders", "columnName": name,
                        "columnType": "varchar"}}
            for name in names
        ]  # fmt: skip
        return {names[each["index"]]: each["viewExpression"] for each in await self._ask("batchColumnMasks", body)}


@asynccontextmanager
async def engine(folder: Path, mode: str, **config: Any) -> AsyncIterator[Engine]:
    (folder / "rows.json").write_text(json.dumps(ROWS))
    base = {
        "policies": {"rules": [], "row_access": ["rows.json"]}, "row_access": {"through_views": mode},
        "trino": {"catalogs": {"lakehouse": {"warehouse": "lake"}}}, "warehouses": {"lake": {}},
    }  # fmt: skip
    async with client_of(settings_of(base | config, folder)) as client:
        yield Engine(client)


BOB_ROWS = {"expression": "owner = 'bob'", "identity": "bob"}
OLGA_ROWS = {"expression": "region = 'EU'"}
NOTHING = [{"expression": "false"}]


@pytest.mark.parametrize(
    ("mode", "behind"), [("owner", [OLGA_ROWS]), ("caller", [BOB_ROWS]), ("both", [OLGA_ROWS, BOB_ROWS])]
)
async def test_the_rows_behind_a_view_follow_the_setting(tmp_path: Path, mode: str, behind: list[Any]) -> None:
    async with engine(tmp_path, mode) as trino:
        await trino.execute("bob", "q1")
        assert await trino.filters("olga", "q1") == behind
        direct = await trino.filters("bob", "q1")
        assert direct == [{"expression": "owner = 'bob'"}], "not behind a view"
        await trino.execute("olga", "q2")
        assert await trino.filters("olga", "q2") == [OLGA_ROWS], "the owner asks"


@pytest.mark.parametrize("mode", ["caller", "both"])
async def test_an_unknown_user_of_the_query_sees_nothing(tmp_path: Path, mode: str) -> None:
    async with engine(tmp_path, mode) as trino:
        for query in ("", "never_executed"):
            assert await trino.filters("olga", query) == NOTHING
            assert set(await trino.masks("olga", query)) == {"mail", "note", "free"}
        await trino.execute("bob", "q1")
        await trino.execute("eve", "q1")
        assert await trino.filters("olga", "q1") == NOTHING, "two users of one query"
        await trino.execute("eve", "q3")
        assert await trino.filters("olga", "q3") == NOTHING, "no policy names the user"
        await trino.execute("g" * 5_000, "q4")
        assert await trino.filters("olga", "q4") == NOTHING, "too long to be remembered"


async def test_groups_of_the_user_count(tmp_path: Path) -> None:
    async with engine(tmp_path, "caller") as trino:
        await trino.execute("carl", "q1", "eu")
        assert await trino.filters("olga", "q1") == [{"expression": "region = 'FR'", "identity": "carl"}]


async def test_policies_with_a_user_of_their_own_keep_the_user(tmp_path: Path) -> None:
    async with engine(tmp_path, "both") as trino:
        await trino.execute("bob", "q1")
        assert await trino.filters("olga", "q1", "items") == [{"expression": "id < 5", "identity": "checker"}]


async def test_masks_behind_a_view_follow_the_setting(tmp_path: Path) -> None:
    for mode, mail, note in (("owner", "NULL", None), ("caller", "****", "bob"), ("both", "NULL", "bob")):
        async with engine(tmp_path, mode) as trino:
            await trino.execute("bob", "q1")
            found = await trino.masks("olga", "q1")
            assert mail in found["mail"]["expression"]
            assert found.get("note", {}).get("identity") == note
            assert "free" not in found


async def test_a_warehouse_can_have_another_mode(tmp_path: Path) -> None:
    async with engine(tmp_path, "owner", warehouses={"lake": {"through_views": "caller"}}) as trino:
        await trino.execute("bob", "q1")
        assert await trino.filters("olga", "q1") == [BOB_ROWS]
        assert await trino.filters("olga", "q2") == NOTHING


@pytest.mark.parametrize(("mode", "storage"), [("owner", "read"), ("caller", "none"), ("both", "none")])
async def test_storage_behind_a_view_follows_the_setting(tmp_path: Path, mode: str, storage: str) -> None:
    chain = {"views": [{"resource": "view:lake/sales/v", "properties": {"trino.run-as-owner": "olga"}}],
             "referencedBy": [["sales", "v"]], "caller": {"idp": "oidc", "subject": "t", "audiences": ["trino"]}}  # fmt: skip
    load = {"principal": "user:oidc~bob", "target": "table:lake/sales/items", "action": "loadTable", **chain}
    (tmp_path / "all.properties").write_text("nessie.server.authorization.rules.all=true")
    engines = {
        "trino": {
            "type": "trino",
            "owner_property": "trino.run-as-owner",
            "identities": {"oidc": {"audiences": ["trino"]}},
        }
    }
    config = {
        "policies": {"rules": ["all.properties"], "row_access": ["rows.json"]}, "trusted_engines": engines,
        "warehouses": {"lake": {"default_ref": "main"}},
    }  # fmt: skip
    async with engine(tmp_path, mode, **config) as trino:
        answer = await trino._client.send(
            "POST", "/v1/load", json.dumps(load).encode(), {"Content-Type": "application/json"}
        )
        assert answer.json()["storageAccess"] == storage, answer.text


IDENTITY = {
    "providers": {"oidc": {"issuer": ISSUER, "jwks": "keys.json", "audiences": ["pdp"]}},
    "callers": {"trino": {"loopback": True, "may_assert": ["principals", "groups"]}},
}


async def test_only_an_execution_that_was_allowed_tells_the_user(tmp_path: Path) -> None:
    """Not a list that names the operation, not a denied one, not one in another's name, not another operation."""
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    limits = {"execute_query": {"allow": ["bob", "olga"]}, "catalogs": {"lakehouse": {"warehouse": "lake"}}}
    async with engine(tmp_path, "caller", trino=limits, identity=IDENTITY) as trino:
        listed = body_of(EXECUTE, "bob", "listed")
        listed["input"]["action"]["filterResources"] = [{}]
        await trino._ask("batch", listed)
        await trino.execute("carl", "denied", "eu")
        other = body_of(EXECUTE, "bob", "other")
        other["input"]["action"]["operation"] = "ReadSystemInformation"
        await trino._ask("allow", other)
        for query in ("listed", "denied", "other"):
            assert await trino.filters("olga", query) == NOTHING, query
        await trino.execute("bob", "q")
        await trino._ask("batch", body_of(EXECUTE, "eve", "q"))
        await trino.execute("eve", "q")
        assert await trino.filters("olga", "q") == [BOB_ROWS], "what is refused spoils no query"


async def test_a_forged_execution_tells_no_user(tmp_path: Path) -> None:
    """Olga asks about her own rows in a query that she says is bob's."""
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    async with engine(tmp_path, "caller", identity=IDENTITY) as trino:
        trino.headers = bearer(token(sub="olga"))
        await trino.execute("bob", "q1")
        assert await trino.filters("olga", "q1") == NOTHING
        await trino.execute("olga", "q2")
        await trino.execute("bob", "q2")
        assert await trino.filters("olga", "q2") == [OLGA_ROWS]
    text = audit_text(tmp_path)
    assert '"queryId":"q1"' in text
    assert '"queryUser":"user:oidc~bob"' not in text
