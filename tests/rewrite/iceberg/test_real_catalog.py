"""Statements over tables and views of a real Iceberg REST catalog, which no policy file and no request describes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.servers.iceberg_rest import IcebergServer, iceberg_server
from support.service.serving import settings_of

pytestmark = pytest.mark.process
BOB = "user:oidc~bob@example.com"
ORDERS = {"id": "int", "Region": "string", "email": "string", "amount": "decimal(9,2)", "seen": "timestamptz"}
ROWS = {
    "policies": [
        {"id": "eu", "table": "lake.sales.orders", "grantees": ["user:bob@example.com"], "filter": "region = 'EU'"}
    ],
    "masks": [
        {"id": "m", "table": "lake.sales.orders", "column": "email", "kind": "hash", "grantees": ["user:bob@example.com"]},
        {"id": "n", "table": "lake.sales.orders", "column": "seen", "kind": "constant", "expression": 1,
         "grantees": ["user:bob@example.com"]},
    ],
}  # fmt: skip
WORLD = {
    "objects": ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}],
    "grants": [
        {"principal": BOB, "privilege": "select", "object": "warehouse:lake"},
        {"principal": BOB, "privilege": "create", "object": "namespace:lake/moving"},
    ],
}


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergServer]:
    with iceberg_server(tmp_path_factory.mktemp("catalog")) as running:
        yield running


@asynccontextmanager
async def asking(folder: Path, uri: str, relations: dict[str, Any], **more: Any) -> AsyncIterator[HttpClient]:
    (folder / "rows.json").write_text(json.dumps(ROWS))
    (folder / "world.json").write_text(json.dumps(WORLD))
    catalog = {"uri": uri, "ttl_seconds": 0, "timeout_seconds": 20, "relations": relations, **more}
    config: dict[str, Any] = {
        "warehouses": {"lake": {"project": "p1", "catalog": catalog}}, "store": {"url": "file:world.json"},
        "policies": {"rules": [], "row_access": ["rows.json"]}, "limits": {"rewrite_seconds": 60, "request_timeout_seconds": 120},
        "trino": {"catalogs": {"ice": {"warehouse": "lake"}}},
    }  # fmt: skip
    async with client_of(settings_of(config, folder)) as client:
        yield client


async def ready(client: HttpClient, *, wanted: bool = True) -> None:
    """Wait until a service is ready, or is not."""
    for _ in range(1200):
        if bool(client.service.unready()) is not wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(client.service.unready())


async def rewritten(client: HttpClient, sql: str, dialect: str = "duckdb", **more: Any) -> dict[str, Any]:
    body = {"sql": sql, "dialect": dialect, "principal": BOB, **more}
    answer = await client.send("POST", "/v1/rewrite", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return {"status": answer.status, **answer.json()}


async def code(client: HttpClient, sql: str, dialect: str = "duckdb") -> tuple[int, str]:
    answer = await rewritten(client, sql, dialect)
    return answer["status"], answer.get("error", {}).get("code", "")


async def fill(iceberg: IcebergServer) -> None:
    """Describe tables and views, in two namespaces and one below."""
    for parts in (("sales",), ("other",), ("sales", "eu")):
        await iceberg.create_namespace(*parts)
    await iceberg.create_table("sales", "orders", ORDERS)
    await iceberg.create_table("other", "names", {"id": "int", "name": "string"})
    await iceberg.create_table("sales%1Feu", "deep", {"id": "long"})
    text = "SELECT o.id, n.name FROM sales.orders o JOIN names n ON n.id = o.id"
    await iceberg.define_view(
        "other", "joined", {"number": "int", "called": "string"},
        {"spark": f"{text} WHERE 'spark' = 'spark'", "duckdb": text, "trino": text},
    )  # fmt: skip
    await iceberg.define_view(
        "sales", "short", {"id": "int"}, {"duckdb": "SELECT id FROM names"}, default_namespace=["other"]
    )
    await iceberg.define_view("sales", "spark_only", {"id": "int"}, {"spark": "SELECT id FROM orders"})
    await iceberg.define_view("sales", "broken", {"id": "int"}, {"duckdb": "SELECT id FROM ("})
    await iceberg.define_view("sales", "unknown", {"id": "int"}, {"duckdb": "SELECT id FROM nosuch"})
    await iceberg.define_view(
        "sales", "elsewhere", {"id": "int"}, {"duckdb": "SELECT id FROM orders"}, **{"default-catalog": "nosuch"}
    )
    await iceberg.define_view(
        "sales", "ours", {"id": "int"}, {"trino": "SELECT id FROM orders"}, **{"default-catalog": "ice"}
    )


def database() -> duckdb.DuckDBPyConnection:
    found = duckdb.connect()
    found.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.sales; CREATE SCHEMA lake.other")
    found.execute(
        "CREATE TABLE lake.sales.orders AS SELECT * FROM (VALUES (1, 'EU', 'a@x', 1.5, now()), (2, 'US', 'b@x', 2, now())) t(id, Region, email, amount, seen)"
    )
    found.execute("CREATE TABLE lake.other.names AS SELECT * FROM (VALUES (1, 'one'), (2, 'two')) t(id, name)")
    return found


async def test_statements_see_what_the_catalog_describes(iceberg: IcebergServer, tmp_path: Path) -> None:
    await fill(iceberg)
    async with asking(tmp_path, iceberg.uri, {}) as client:
        await ready(client)
        engine = database()

        async def rows(sql: str) -> list[Any]:
            answer = await rewritten(client, sql)
            assert answer["status"] == 200, answer
            return engine.execute(answer["sql"]).fetchall()

        (row,) = await rows("SELECT * FROM lake.sales.orders")
        assert (row[0], row[1], len(row[2]), row[3], row[4]) == (1, "EU", 64, 1.5, None), "the other row is hidden"
        assert await rows("SELECT called, number FROM lake.other.joined") == [("one", 1)]
        assert await rows("SELECT id FROM lake.other.names ORDER BY id") == [(1,), (2,)]
        spark = await rewritten(client, "SELECT * FROM lake.other.joined", "spark")
        assert "'spark'" in spark["sql"]
        assert "WHERE" in (await rewritten(client, "SELECT * FROM ice.sales.ours", "trino"))["sql"]
        assert await code(client, "SELECT id FROM lake.sales.eu.deep", "spark") == (200, "")
        assert (await rewritten(client, "SELECT id FROM lake.sales.short"))["sql"] == "SELECT id FROM lake.sales.short"
        for name, wanted in {
            "spark_only": "RAP_UNSUPPORTED_SOURCE", "broken": "RAP_PARSE_ERROR", "unknown": "RAP_UNKNOWN_RELATION",
            "elsewhere": "RAP_UNKNOWN_RELATION", "nosuch": "RAP_UNKNOWN_RELATION",
        }.items():  # fmt: skip
            assert await code(client, f"SELECT * FROM lake.sales.{name}") == (400, wanted), name
        filtered = await client.post(
            "/v1/filters", {"resource": "table:lake/sales/orders", "principal": BOB, "dialect": "spark"}
        )
        assert filtered[1]["rowFilter"]["expression"]
        assert {mask["column"] for mask in filtered[1]["columnMasks"]} == {"email", "seen"}
        assert "pdp_catalog_relations" in client.service.metrics().decode()
    assert any(record["event"] == "rewrite" for record in all_records(tmp_path))


async def test_a_changed_relation_counts_before_the_next_pass(iceberg: IcebergServer, tmp_path: Path) -> None:
    await iceberg.create_namespace("moving")
    await iceberg.create_table("moving", "t", {"id": "int"})
    await iceberg.create_table("moving", "gone", {"id": "int"})
    await iceberg.create_table("moving", "kept", {"id": "int"})
    await iceberg.define_view("moving", "v", {"id": "int"}, {"duckdb": "SELECT id FROM t"})
    async with asking(tmp_path, iceberg.uri, {"refresh_seconds": 3600}) as client:
        await ready(client)
        assert (await code(client, "SELECT * FROM lake.moving.t"))[0] == 200
        view = {"resource": "view:lake/moving/v", "principal": BOB, "dialect": "duckdb"}
        status, found = await client.post("/v1/filters", view)
        assert (status, found["rowFilter"]) == (200, None)
        await iceberg.drop("moving/tables/t")
        await iceberg.define_view(
            "moving", "t", {"id": "int"}, {"duckdb": "SELECT id FROM sales.orders"}, default_namespace=["sales"]
        )
        status, found = await client.post("/v1/filters", view)
        assert (status, found["error"]["code"]) == (400, "RAP_UNSUPPORTED_SOURCE"), "the view reads hidden rows now"
        answer = await rewritten(client, "SELECT * FROM lake.moving.t")
        assert "'EU'" in answer["sql"], "the view of the same name hides rows"
        answer = await rewritten(client, "SELECT * FROM lake.moving.v")
        assert "'EU'" in answer["sql"], "through another view, too"
        await iceberg.drop("moving/tables/gone")
        assert await code(client, "SELECT * FROM lake.moving.gone") == (400, "RAP_UNKNOWN_RELATION")
        # the engine would find another relation by the name as written
        assert await code(client, "SELECT * FROM lake.moving.KEPT") == (200, "")
        assert await code(client, "SELECT * FROM lake.moving.Kept") == (200, "")
        await iceberg.define_view("moving", "KEPT", {"id": "int"}, {"duckdb": "SELECT id FROM sales.orders"})
        assert await code(client, "SELECT * FROM lake.moving.Kept") == (200, "")
        assert await code(client, "SELECT * FROM lake.moving.KEPT") == (400, "RAP_AMBIGUOUS_NAME")
        # a wildcard can cover a newer table
        assert await code(client, "SELECT * FROM `lake.moving.kep*`", "bigquery") == (400, "RAP_WILDCARD_TABLE")
        # a table that exists by now is replaced, and not created
        await iceberg.create_table("moving", "fresh", {"id": "int"})
        assert await code(client, "CREATE TABLE lake.moving.absent AS SELECT 1 AS id") == (200, "")
        answer = await rewritten(client, "CREATE TABLE lake.moving.fresh AS SELECT 1 AS id")
        assert (answer["status"], answer["error"]["message"]) == (403, "`drop` on `table:lake/moving/fresh` is denied")


@pytest.mark.waits
async def test_a_catalog_without_an_answer_denies_after_a_while(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with iceberg_server(tmp_path_factory.mktemp("stopping")) as iceberg:
        await iceberg.create_namespace("ns")
        await iceberg.create_table("ns", "t", {"id": "int"})
        limits = {"refresh_seconds": 1, "max_stale_seconds": 5}
        async with asking(tmp_path, iceberg.uri, limits, timeout_seconds=1) as client:
            await ready(client)
            os.kill(iceberg.process.pid, signal.SIGSTOP)
            try:
                await ready(client, wanted=False)
                assert "the catalog of warehouse `lake` is not known well enough" in client.service.unready()[0]
                answer = await rewritten(client, "SELECT * FROM lake.ns.t")
                assert (answer["status"], answer["error"]["code"]) == (503, "unavailable")
                assert "did not answer" in answer["error"]["message"]
                assert await code(client, "SELECT * FROM lake.ns.nosuch") == (503, "unavailable")
                assert "catalog lake" in client.service.details()
            finally:
                os.kill(iceberg.process.pid, signal.SIGCONT)
            await ready(client)
            for _ in range(100):
                if await code(client, "SELECT * FROM lake.ns.t") == (200, ""):
                    return
                await asyncio.sleep(0.2)
            raise AssertionError("the catalog answers, and statements are refused")


async def test_statements_wait_for_no_catalog_that_was_never_read(tmp_path: Path) -> None:
    async with asking(tmp_path, "http://127.0.0.1:9", {}) as client:
        assert client.service.unready()
        assert await code(client, "SELECT * FROM lake.sales.orders") == (503, "unavailable")
        assert await code(client, "SELECT 1") == (200, "")
