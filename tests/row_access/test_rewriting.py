"""POST /v1/rewrite, /v1/filters and the same over gRPC: the rewriter's answers, with evidence, rights and records."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import duckdb
import grpc
import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.clients.rpc_clients import ConnectClient, GrpcClient, RpcClient, RpcError
from support.oracles.audit_files import all_records
from support.rewriting import FOLDER, POLICIES, code_of, known_rows, recorded_cases, recorded_data, recorded_service
from support.service.serving import settings_of

from pdp.rewrite.process.local import RewriteRequest
from pdp.rewrite.sql import parse_part
from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]
CALLERS = recorded_data()["callers"]
ALICE, BOB, BOSS = (f"user:oidc~{name}@example.com" for name in ("alice", "bob", "boss"))
OPEN = {"all.properties": "nessie.server.authorization.rules.all=true"}
ROWS: dict[str, Any] = {
    "default": ["lake", "sales"],
    "tables": {
        "orders": {"columns": {"id": "INTEGER", "region": "VARCHAR", "email": "VARCHAR"}},
        "items": {"columns": {"order_id": "INTEGER"}},
        "lake.hr.salaries": {"columns": {"who": "VARCHAR"}},
    },
    "views": {
        "owned": {"sql": "SELECT id FROM orders", "owner": "user:olga@example.com"},
        "plain": {"sql": "SELECT id FROM orders"},
        "leaky": {"sql": "SELECT who FROM lake.hr.salaries", "owner": "user:eve@example.com"},
    },
    "policies": [
        {"id": "us", "table": "table:lake/sales/orders", "grantees": ["user:bob@example.com"], "filter": "region = 'US'"},
        {"id": "own", "table": "orders", "grantees": ["role:etl"], "filter": "email = SESSION_USER()",
         "dialect": "duckdb"},
        {"id": "some", "table": "orders", "grantees": ["role:etl"], "filter": "id > 5", "dialect": "duckdb"},
        {"id": "olga", "table": "orders", "grantees": ["user:olga@example.com"], "filter": True},
    ],
    "masks": [{"id": "m", "table": "orders", "column": "email", "kind": "null", "grantees": ["user:bob@example.com"]}],
}  # fmt: skip
WORLD: dict[str, Any] = {
    "objects": ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"},
                {"object": "role:etl", "parent": "project:p1"}],
    "grants": [
        {"principal": BOB, "privilege": "select", "object": "namespace:lake/sales"},
        {"principal": "user:oidc~olga@example.com", "privilege": "select", "object": "namespace:lake/sales"},
        {"principal": "role:etl", "privilege": "modify", "object": "namespace:lake/sales"},
        {"principal": BOSS, "privilege": "ownership", "object": "namespace:lake/sales"},
        {"principal": "user:oidc~carol", "privilege": "assignee", "object": "role:etl"},
    ],
}  # fmt: skip
CAROL = "user:oidc~carol"


@asynccontextmanager
async def asking(folder: Path, rows: Mapping[str, Any] = ROWS, **config: Any) -> AsyncIterator[HttpClient]:
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "world.json").write_text(json.dumps(WORLD))
    base: dict[str, Any] = {
        "warehouses": {"lake": {"project": "p1", "default_ref": "main"}}, "store": {"url": "file:world.json"},
        "policies": {"rules": [], "row_access": ["rows.json"]}, "limits": {"rewrite_seconds": 60, "request_timeout_seconds": 60},
    }  # fmt: skip
    async with client_of(settings_of(base | config, folder)) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """Start one service for the tests that change nothing in it."""
    async with asking(tmp_path_factory.mktemp("shared")) as shared:
        yield shared


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client_of_views(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """Start one service with more views, as `client` does."""
    more = {"deep": {"sql": "SELECT id FROM plain"}, "free": {"sql": "SELECT order_id FROM items"}}
    async with asking(tmp_path_factory.mktemp("views"), ROWS | {"views": ROWS["views"] | more}) as shared:
        yield shared


async def rewritten(client: HttpClient, sql: str, principal: Any = BOB, **more: Any) -> dict[str, Any]:
    body = {"sql": sql, "dialect": "duckdb", "principal": principal, **more}
    answer = await client.send("POST", "/v1/rewrite", json.dumps(body).encode(), {"Content-Type": "application/json"})
    found: dict[str, Any] = {"status": answer.status, **answer.json()}
    return found


async def filtered(client: HttpClient, **body: Any) -> dict[str, Any]:
    body = {"resource": "table:lake/sales/orders", "principal": BOB, **body}
    answer = await client.send("POST", "/v1/filters", json.dumps(body).encode(), {"Content-Type": "application/json"})
    found: dict[str, Any] = {"status": answer.status, **answer.json()}
    return found


def principal_of(caller: str) -> Any:
    who = CALLERS[caller]
    if not who["authenticated"]:
        return {"id": "anonymous"}
    return {"id": f"user:oidc~{who['principal'].partition(':')[2]}", "groups": who.get("groups", [])}


async def test_every_recorded_case_has_the_answer_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "all.properties").write_text(OPEN["all.properties"])
    policies = {"rules": ["all.properties"], "row_access": [str(POLICIES)]}
    service, compared = recorded_service(), 0
    async with asking(tmp_path, policies=policies, authorities={"default": {"engines": ["cel"]}}) as client:
        for case in recorded_cases():
            who = CALLERS[case["caller"]]
            if case.get("policies") or who["principal"].startswith("serviceAccount:"):
                continue
            groups = tuple(who.get("groups", ()))
            request = RewriteRequest(case["sql"], case["dialect"], who["principal"], groups, who["authenticated"])
            answer = await rewritten(client, case["sql"], principal_of(case["caller"]), dialect=case["dialect"])
            code = code_of(service, request)
            assert answer.get("error", {}).get("code", "") == code, case["id"]
            if not code:
                assert known_rows(answer["sql"]) == known_rows(service.rewrite(request)), case["id"]
            compared += 1
    assert compared > 150
    assert FOLDER.exists()


async def test_a_statement_shows_what_the_principal_may_see(client: HttpClient) -> None:
    mine = await rewritten(client, "SELECT id FROM orders")
    assert (mine["status"], mine["changed"]) == (200, True)
    assert "WHERE region = 'US') AS orders" in mine["sql"]
    assert "CASE WHEN FALSE" in mine["sql"] or "NULL" in mine["sql"], "the mask"
    assert mine["revision"]
    assert mine["decisionId"]
    member = await rewritten(client, "SELECT id FROM orders", CAROL)
    assert "(email = 'carol') OR (id > 5)" in member["sql"]
    owned = await rewritten(client, "SELECT id FROM owned")
    assert (owned["sql"], owned["changed"]) == ("SELECT id FROM owned", False), "the owner sees every row"


@pytest.mark.parametrize(
    ("sql", "principal", "more", "status", "code"),
    [
        ("SELECT who FROM lake.hr.salaries", BOB, {}, 403, "RAP_ACCESS_DENIED"),
        ("SELECT who FROM leaky", BOB, {}, 403, "RAP_ACCESS_DENIED"),
        ("SELECT id FROM plain", ALICE, {}, 403, "RAP_ACCESS_DENIED"),
        ("SELECT id FROM orders", "anonymous", {}, 403, "RAP_ACCESS_DENIED"),
        ("INSERT INTO items SELECT id FROM orders", BOB, {}, 403, "RAP_ACCESS_DENIED"),
        ("CREATE TABLE x AS SELECT id FROM orders", BOB, {}, 403, "RAP_ACCESS_DENIED"),
        ("CREATE VIEW x AS SELECT id FROM items", BOB, {}, 403, "RAP_ACCESS_DENIED"),
        ("SELECT id FROM orders", BOB, {"actingRole": "role:etl"}, 403, "RAP_ACCESS_DENIED"),
        ("SELECT id FROM orders", CAROL, {"actingRole": "role:etl"}, 400, "RAP_FILTER_INVALID"),
        ("SELECT id FROM nosuch", BOB, {}, 400, "RAP_UNKNOWN_RELATION"),
        ("SELECT 1; SELECT 2", BOB, {}, 400, "RAP_MULTI_STATEMENT"),
        ("SELECT id FROM orders", BOB, {"dialect": "oracle"}, 400, "RAP_UNSUPPORTED_STATEMENT"),
        ("CREATE ROW ACCESS POLICY p ON orders FILTER USING (TRUE)", BOB, {"dialect": "bigquery"}, 403, "forbidden"),
        ("x" * 100_001, BOB, {}, 400, "RAP_PARSE_ERROR"),
        ("(" * 50_000, BOB, {}, 400, "RAP_PARSE_ERROR"),
        ("SELECT 1", BOB, {"more": 1}, 400, "invalid_argument"),
        ("SELECT 1", BOB, {"authenticated": True}, 400, "invalid_argument"),
        ("SELECT 1", "bob", {}, 400, "invalid_argument"),
        ("SELECT 1", BOB, {"dialect": 5}, 400, "invalid_argument"),
        ("SELECT 1", BOB, {"actingRole": ""}, 400, "invalid_argument"),
        ("SELECT 1", BOB, {"catalog": {"views": {"v": {}}}}, 400, "invalid_argument"),
        ("SELECT 1", BOB, {"catalog": {"views": {"v": {"sql": 1}}}}, 400, "invalid_argument"),
        ("SELECT 1", BOB, {"catalog": {"default": ["lake"]}}, 400, "invalid_argument"),
        ("SELECT 1", BOB, {"catalog": {"tables": {"a..b": {}}}}, 400, "RAP_UNKNOWN_RELATION"),
    ],
)
async def test_a_statement_is_refused(
    client: HttpClient, sql: str, principal: str, more: dict[str, Any], status: int, code: str
) -> None:
    answer = await rewritten(client, sql, principal, **more)
    assert (answer["status"], answer["error"]["code"]) == (status, code), answer
    assert "sql" not in answer
    again = await rewritten(client, "SELECT order_id FROM items")
    assert again["status"] == 200, "the neighbour"


UNREAD = ("SELECT who FROM {}", "SELECT 1 FROM orders, {}", "INSERT INTO {} SELECT id FROM orders", "DELETE FROM {}")


@pytest.mark.parametrize("sql", [*UNREAD, "WITH c AS (SELECT 1 FROM {}) SELECT 1 FROM c"])
@pytest.mark.parametrize("dialect", ["duckdb", "trino", "spark", "bigquery"])
async def test_a_relation_without_the_right_to_it_is_denied_described_or_not(
    client: HttpClient, sql: str, dialect: str
) -> None:
    """The refusal would tell which relations are described."""
    answers = [
        await rewritten(client, sql.format(name), BOB, dialect=dialect)
        for name in ("lake.hr.salaries", "lake.hr.nosuch", "lake.nowhere.nosuch")
    ]
    assert {(each["status"], each["error"]["code"]) for each in answers} == {(403, "RAP_ACCESS_DENIED")}
    shapes = {each["error"]["message"].replace("nosuch", "salaries").replace("nowhere", "hr") for each in answers}
    assert len(shapes) == 1, shapes


async def test_tables_of_the_request_count_beside_those_of_files(client: HttpClient) -> None:
    supplied = {
        "tables": {"more": {"columns": {"a": "INT"}}, "orders": {}},
        "views": {"v": {"sql": "SELECT * FROM orders"}},
    }
    assert (await rewritten(client, "SELECT a FROM more", catalog=supplied))["sql"] == "SELECT a FROM more"
    assert "region = 'US'" in (await rewritten(client, "SELECT id FROM orders", catalog=supplied))["sql"]
    assert "region = 'US'" in (await rewritten(client, "SELECT id FROM v", catalog=supplied))["sql"]
    other = await rewritten(client, "SELECT id FROM sales.orders", catalog={"default": ["lake", "hr"]})
    assert 'FROM "lake"."sales"."orders" WHERE' in other["sql"]
    short = await rewritten(client, "SELECT id FROM orders", catalog={"default": ["lake", "hr"]})
    assert short["error"]["code"] == "RAP_ACCESS_DENIED"


async def test_names_of_trino_are_those_of_its_catalogs(tmp_path: Path) -> None:
    async with asking(tmp_path, trino={"catalogs": {"lakehouse": {"warehouse": "lake"}}}) as client:
        found = await rewritten(client, "SELECT id FROM lakehouse.sales.orders", dialect="trino")
        assert "FROM lakehouse.sales.orders WHERE region = 'US'" in found["sql"]
        unknown = await rewritten(client, "SELECT id FROM lake.sales.orders", dialect="trino")
        assert unknown["error"]["code"] == "RAP_UNKNOWN_RELATION"
        duckdb = await rewritten(client, "SELECT id FROM lake.sales.orders")
        assert "FROM lake.sales.orders WHERE region = 'US'" in duckdb["sql"]


async def test_a_caller_asserts_nothing_beyond_its_rights(tmp_path: Path) -> None:
    callers = {"callers": {"local": {"loopback": True, "may_assert": ["principals"]}}}
    async with asking(tmp_path, identity=callers) as client:
        assert (await rewritten(client, "SELECT order_id FROM items"))["status"] == 200
        grouped = await rewritten(client, "SELECT 1", {"id": BOB, "groups": ["eu"]})
        supplied = await rewritten(client, "SELECT 1", catalog={"default": ["lake", "sales"]})
        assert [found["error"]["code"] for found in (grouped, supplied)] == ["assertion_not_allowed"] * 2


async def test_an_owner_of_a_supplied_view_is_delegation(tmp_path: Path) -> None:
    callers = {"callers": {"local": {"loopback": True, "may_assert": ["principals", "properties"]}}}
    view = {"mine": {"sql": "SELECT id, email FROM orders", "owner": "user:olga@example.com"}}
    async with asking(tmp_path, identity=callers) as client:
        found = await rewritten(client, "SELECT * FROM mine", catalog={"default": ["lake", "sales"], "views": view})
        assert found["error"]["code"] == "assertion_not_allowed"


@pytest.mark.parametrize("dialect", ["trino", "duckdb", "spark", "bigquery"])
async def test_filters_come_in_the_dialect_of_the_engine(client: HttpClient, dialect: str) -> None:
    columns = [{"name": "email", "type": "varchar"}]
    mine = await filtered(client, dialect=dialect, columns=columns)
    assert mine["rowFilter"] == {"expression": "region = 'US'"}
    assert [mask["column"] for mask in mine["columnMasks"]] == ["email"]
    everything = await filtered(client, dialect=dialect, columns=columns, principal="user:oidc~olga@example.com")
    assert (everything["rowFilter"], everything["columnMasks"]) == (None, [])
    denied = await filtered(client, dialect=dialect, columns=columns, principal=ALICE)
    assert (denied["status"], denied["error"]["code"]) == (403, "RAP_ACCESS_DENIED")
    wrong = await filtered(client, dialect=dialect, resource="namespace:lake/sales")
    assert wrong["error"]["code"] == "invalid_argument"


@pytest.mark.parametrize("dialect", ["trino", "duckdb", "spark", "bigquery"])
@pytest.mark.parametrize("kind", ["view", "table_or_view", "table"])
async def test_a_view_on_hidden_rows_has_no_filter_but_a_reason(
    client_of_views: HttpClient, dialect: str, kind: str
) -> None:
    for name, shown in (("plain", False), ("deep", False), ("owned", True), ("free", True)):
        found = await filtered(client_of_views, dialect=dialect, resource=f"{kind}:lake/sales/{name}")
        code = found.get("error", {}).get("code", "")
        assert (code, found.get("rowFilter")) == ("" if shown else "RAP_UNSUPPORTED_SOURCE", None), (name, found)
        assert shown or f"{name}` reads hidden rows" in found["error"]["message"]


async def test_a_filter_without_a_certain_meaning_is_denied_with_the_reason(tmp_path: Path) -> None:
    odd = {"id": "odd", "table": "orders", "grantees": ["user:bob@example.com", "user:boss@example.com"],
           "filter": "reverse(region) = 'U'"}  # fmt: skip
    async with asking(tmp_path, ROWS | {"policies": [odd], "masks": []}) as client:
        found = await filtered(client, dialect="bigquery")
        assert (found["status"], found["error"]["code"]) == (400, "RAP_FILTER_INVALID")
        assert "odd" not in found["error"]["message"], "who may read rows may not read policies"
        shown = await filtered(client, dialect="bigquery", principal=BOSS)
        assert "odd" in shown["error"]["message"]
        assert (await filtered(client, dialect="trino"))["rowFilter"] == {"expression": "reverse(region) = 'U'"}
        missing = await filtered(client, dialect="oracle")
        assert missing["error"]["code"] == "RAP_UNSUPPORTED_STATEMENT"


async def test_the_record_of_a_rewriting_has_tables_and_policies_and_no_text(tmp_path: Path) -> None:
    secret = "canary-4711"
    async with asking(tmp_path) as client:
        done = await rewritten(client, f"SELECT id FROM orders WHERE email = '{secret}'")
        refused = await rewritten(client, f"SELECT id FROM orders WHERE email = '{secret}' ((")
        denied = await rewritten(client, f"SELECT who FROM lake.hr.salaries WHERE who = '{secret}'")
    records = {record["id"]: record for record in all_records(tmp_path)}
    assert secret not in json.dumps(records)
    found = records[done["decisionId"]]
    assert (found["event"], found["principal"], found["allowed"], found["changed"]) == ("rewrite", BOB, True, True)
    used = {"table": "table:lake/sales/orders", "use": "read", "policies": ["us"], "masks": ["m"]}
    assert found["tables"] == [used]
    assert records[found["decision"]]["event"] == "decision"
    events = [record for record in records.values() if record["event"] == "rewrite"]
    assert [event.get("code", "") for event in events] == ["", refused["error"]["code"], denied["error"]["code"]]
    assert not [record for record in records.values() if record["event"] == "refusal"]


@pytest.mark.parametrize("protocol", ["grpc", "connect", "connect-json"])
async def test_grpc_gives_the_answers_of_http(client: HttpClient, protocol: str) -> None:
    channel = grpc.aio.insecure_channel(client.service.addresses["grpc"])
    rpc: RpcClient = GrpcClient(channel)
    if protocol != "grpc":
        rpc = ConnectClient(client, json=protocol.endswith("json"))
    for sql in ("SELECT id FROM orders", "SELECT id FROM owned", "SELECT order_id FROM items"):
        request = wire.RewriteRequest(sql=sql, dialect="duckdb", principal=wire.Principal(id=BOB))
        found = await rpc.call("Rewrite", request)
        wanted = await rewritten(client, sql)
        assert (found.sql, found.changed) == (wanted["sql"], wanted["changed"])
    for sql, code in (
        ("SELECT 1; SELECT 2", "RAP_MULTI_STATEMENT"),
        ("SELECT who FROM leaky", "RAP_ACCESS_DENIED"),
    ):
        with pytest.raises(RpcError) as error:
            await rpc.call("Rewrite", wire.RewriteRequest(sql=sql, dialect="duckdb", principal=wire.Principal(id=BOB)))
        assert error.value.code == code
    asked = wire.RowFilterRequest(
        resource=wire.Resource(reference="table:lake/sales/orders"), dialect="duckdb",
        principal=wire.Principal(id=BOB),
    )  # fmt: skip
    answer = await rpc.call("RowFilter", asked)
    assert answer.row_filter.expression == "region = 'US'"
    assert [mask.column for mask in answer.column_masks] == ["email"]
    await channel.close()


async def test_ddl_changes_stored_policies_and_the_next_statement_obeys(tmp_path: Path) -> None:
    owner = "user:oidc~owner@example.com"
    objects: list[Any] = [
        *WORLD["objects"],
        {"object": "warehouse:lake", "parent": "project:p1", "managedAccess": False},
    ]
    grants = [*WORLD["grants"], {"principal": owner, "privilege": "ownership", "object": "warehouse:lake"}]
    (tmp_path / "seed.json").write_text(json.dumps({"objects": objects[:1] + objects[2:], "grants": grants}))
    store = {"url": "sqlite:///pdp.db", "seed": "seed.json"}
    create = "CREATE OR REPLACE ROW ACCESS POLICY few ON `lake.sales.items` GRANT TO ('user:bob@example.com') FILTER USING (order_id < 3)"
    async with asking(tmp_path, store=store) as client:
        open_text = "SELECT order_id FROM items"
        assert (await rewritten(client, open_text))["sql"] == open_text
        denied = await rewritten(client, create, BOB, dialect="bigquery")
        assert denied["status"] == 403
        other = await rewritten(client, create, owner, dialect="duckdb")
        assert other["error"]["code"] == "RAP_NO_POLICY_STORE"
        done = await rewritten(client, create, owner, dialect="bigquery")
        assert (done["status"], done["operation"], done["sql"]) == (200, "CREATE_ROW_ACCESS_POLICY", ""), done
        at = {"consistency": {"atLeast": done["revision"]}}
        assert "WHERE order_id < 3" in (await rewritten(client, open_text, **at))["sql"]
        assert "WHERE FALSE" in (await rewritten(client, open_text, owner, **at))["sql"]
        assert (await filtered(client, dialect="duckdb", resource="table:lake/sales/items"))["rowFilter"] == {
            "expression": "order_id < 3"
        }
        gone = await rewritten(client, "DROP ALL ROW ACCESS POLICIES ON items", owner, dialect="bigquery")
        at = {"consistency": {"atLeast": gone["revision"]}}
        assert (await rewritten(client, open_text, **at))["sql"] == open_text
        for short, default, table in (
            ("sales.items", ["lake", "hr"], "lake/sales/items"), ("items", ["lake", "hr"], "lake/hr/items"),
            ("sales.items", ["other", "sales"], "other/sales/items"), ("lake.sales.items", ["other", "hr"], "lake/sales/items"),
        ):  # fmt: skip
            text, asked = (
                f"CREATE ROW ACCESS POLICY few ON {short} FILTER USING (TRUE)",
                {"catalog": {"default": default}},
            )
            found = await rewritten(client, text, BOB, dialect="bigquery", **asked)
            assert (found["status"], f"table:{table}" in json.dumps(found)) == (403, True), found
        odd = await rewritten(client, "DROP ROW ACCESS POLICY few ON items CASCADE", owner, dialect="bigquery")
        assert odd["error"]["code"] == "RAP_PARSE_ERROR"


async def test_a_stored_filter_reads_what_its_author_may_read(tmp_path: Path) -> None:
    """The author of a policy would otherwise learn values of any described table by the rows of the own table."""
    zed, admin = "user:oidc~zed@example.com", "user:oidc~admin@example.com"
    grants = [
        *WORLD["grants"],
        {"principal": zed, "privilege": "ownership", "object": "table:lake/sales/items"},
        {"principal": zed, "privilege": "select", "object": "table:lake/sales/regions"},
        {"principal": admin, "privilege": "ownership", "object": "warehouse:lake"},
    ]
    (tmp_path / "seed.json").write_text(json.dumps({"objects": WORLD["objects"], "grants": grants}))
    tables = ROWS["tables"] | {"regions": {"columns": {"r": "INTEGER"}}, "lake.hr.pay": {"columns": {"id": "INTEGER"}}}
    async with asking(
        tmp_path, ROWS | {"tables": tables}, store={"url": "sqlite:///pdp.db", "seed": "seed.json"}
    ) as client:

        async def post(path: str, **body: Any) -> dict[str, Any]:
            headers = {"Content-Type": "application/json"}
            found = await client.send("POST", path, json.dumps(body).encode(), headers)
            assert found.status == 200, found.json()
            return {"consistency": {"atLeast": found.json()["revision"]}}

        async def answers(at: Any) -> set[int]:
            texts = ("SELECT * FROM items", "SELECT o.id FROM orders o JOIN items i ON i.order_id = o.id")
            rewrites = [await rewritten(client, text, dialect=d, **at) for text in texts for d in ("duckdb", "trino")]
            body = {"resource": "table:lake/sales/items", "columns": [{"name": "order_id", "type": "integer"}]}
            filters = [await filtered(client, dialect=d, **body, **at) for d in ("duckdb", "spark", "trino")]
            return {found["status"] for found in (*rewrites, *filters)}

        policy = {"id": "z", "table": "table:lake/sales/items", "grantees": ["allUsers"], "actor": zed}
        peeking = "order_id IN (SELECT s.id FROM lake.hr.pay s)"
        reading = "order_id IN (SELECT x.r FROM lake.sales.regions x)"
        assert await answers(await post("/v1/row-access-policies", **policy, filter=reading)) == {200}
        drop = {"table": policy["table"], "ids": ["z"], "actor": zed}
        await post("/v1/row-access-policies:batchDelete", **drop)
        assert await answers(await post("/v1/row-access-policies", **policy, filter=peeking)) == {403}
        grant = {"principal": zed, "privilege": "select", "object": "table:lake/hr/pay"}
        assert await answers(await post("/v1/grants", add=[grant], actor=admin)) == {200}
        assert await answers(await post("/v1/grants", remove=[grant], actor=admin)) == {403}
        await post("/v1/row-access-policies:batchDelete", **drop)
        assert await answers(await post("/v1/row-access-policies", **policy | {"actor": admin}, filter=peeking)) == {
            200
        }


async def test_members_by_a_claim_are_those_of_row_filters(tmp_path: Path) -> None:
    """A subject in the form of somebody's address is not that member where a claim has the address."""
    member = {"claim": "email", "service_accounts": ["*.svc.example"]}
    policies = [*ROWS["policies"], {"id": "svc", "table": "orders", "grantees": ["serviceAccount:etl@a.svc.example"],
                                    "filter": "id = 7"}]  # fmt: skip
    rows = ROWS | {"policies": policies, "masks": []}
    async with asking(tmp_path, rows, row_access={"member": member}) as client:
        for email, condition in (("bob@example.com", "region = 'US'"), ("etl@a.svc.example", "id = 7"), ("", "FALSE")):
            principal = {"id": BOB} | ({"attributes": {"email": email}} if email else {})
            answer = await rewritten(client, "SELECT id FROM orders", principal)
            assert (answer["status"], f"WHERE {condition})" in answer["sql"]) == (200, True), answer
            found = await filtered(client, principal=principal, dialect="trino")
            assert found["rowFilter"]["expression"].lower() == condition.lower(), found


@pytest.mark.parametrize(
    ("general", "lake", "shown"),
    [
        ("owner", None, "SELECT id FROM owned"), ("caller", None, "WHERE region = 'US'"), ("both", None, "region = 'US'"),
        ("owner", "caller", "WHERE region = 'US'"), ("caller", "owner", "SELECT id FROM owned"),
    ],
)  # fmt: skip
async def test_views_run_for_whom_the_setting_says(tmp_path: Path, general: str, lake: str | None, shown: str) -> None:
    warehouse = {"project": "p1"} | ({"through_views": lake} if lake else {})
    async with asking(tmp_path, row_access={"through_views": general}, warehouses={"lake": warehouse}) as client:
        assert shown in (await rewritten(client, "SELECT id FROM owned"))["sql"]


VIEW = "INFORMATION_SCHEMA.ROW_ACCESS_POLICIES"
COLUMNS = ["table_catalog", "table_schema", "table_name", "policy_name", "grantees", "filter_predicate",
           "creation_time", "last_modified_time"]  # fmt: skip


async def test_the_view_of_policies_shows_those_that_the_principal_may_see(tmp_path: Path) -> None:
    admin, clerk = "user:oidc~admin", "user:oidc~clerk"
    hidden = {"id": "pay", "table": "lake.hr.salaries", "grantees": ["user:boss@example.com"], "filter": "who = 'x'\n"}
    rows = ROWS | {"policies": [*ROWS["policies"], hidden]}
    grants = [
        {"principal": admin, "privilege": "ownership", "object": "warehouse:lake"},
        {"principal": clerk, "privilege": "ownership", "object": "namespace:lake/hr"},
    ]
    (tmp_path / "seed.json").write_text(json.dumps(WORLD | {"grants": [*WORLD["grants"], *grants]}))
    create = "CREATE ROW ACCESS POLICY few ON `lake.sales.items` GRANT TO ('user:a@b.c', 'user:d@e.f') FILTER USING (order_id < 3)"
    database = duckdb.connect()
    async with asking(tmp_path, rows, store={"url": "sqlite:///pdp.db", "seed": "seed.json"}) as client:
        made = await rewritten(client, create, admin, dialect="bigquery")
        at = {"consistency": {"atLeast": made["revision"]}}

        async def shown(principal: str, sql: str = f"SELECT * FROM lake.{VIEW} ORDER BY 3, 4") -> list[Any]:
            found = await rewritten(client, sql, principal, **at)
            assert found["status"] == 200, found
            result = database.execute(found["sql"])
            assert [column[0] for column in result.description or ()] == COLUMNS
            return result.fetchall()

        every = await shown(admin)
        assert [row[3] for row in every] == ["few", "olga", "own", "some", "us", "pay"]
        assert every[0][:6] == ("lake", "sales", "items", "few", "user:a@b.c,user:d@e.f", "order_id < 3")
        assert every[0][6] is not None
        assert every[-1][6:] == (None, None)
        assert [row[3] for row in await shown(clerk)] == ["pay"]
        assert await shown(BOB) == [], "who may read rows may not read grants"
        bigquery = await rewritten(client, f"SELECT policy_name FROM hr.{VIEW}", admin, dialect="bigquery", **at)
        assert "'pay'" in bigquery["sql"]
        assert "'few'" not in bigquery["sql"]
        copied, other = f"CREATE TABLE lake.sales.copy AS SELECT * FROM lake.{VIEW}", f"SELECT * FROM other.x.{VIEW}.y"
        for text, status in ((copied, 400), (other, 403)):
            assert (await rewritten(client, text, admin, **at))["status"] == status
        supplied = {"views": {"v": {"sql": f"SELECT * FROM lake.{VIEW}"}}}
        assert (await rewritten(client, "SELECT * FROM v", admin, catalog=supplied, **at))["status"] == 400
        for dialect in ("spark", "trino"):
            found = await rewritten(client, f"SELECT v.policy_name FROM lake.{VIEW} v", admin, dialect=dialect, **at)
            assert "'few'" in found["sql"], found


@pytest.mark.parametrize("text", ["${env:HOME}", "a${b}${c}", "$", "${", "$${x}", "{$}", "it's ${x} \\ ${y}"])
async def test_the_view_of_policies_shows_a_variable_to_the_letter(tmp_path: Path, text: str) -> None:
    """Spark would replace a variable in the text of the statement."""
    quoted = text.replace("'", "''")
    hidden = {"id": "v", "table": "lake.sales.items", "grantees": ["allUsers"], "filter": f"region = '{quoted}'"}
    rows = ROWS | {"policies": [hidden | {"dialect": "trino"}], "masks": []}
    admin = "user:oidc~admin"
    grants = [{"principal": admin, "privilege": "ownership", "object": "warehouse:lake"}]
    (tmp_path / "seed.json").write_text(json.dumps(WORLD | {"grants": [*WORLD["grants"], *grants]}))
    async with asking(tmp_path, rows, store={"url": "sqlite:///pdp.db", "seed": "seed.json"}) as client:
        for dialect in ("duckdb", "trino", "spark", "bigquery"):
            place = f"sales.{VIEW}" if dialect == "bigquery" else f"lake.{VIEW}"
            found = await rewritten(client, f"SELECT filter_predicate FROM {place}", admin, dialect=dialect)
            assert found["status"] == 200, found
            assert "${" not in found["sql"]
            plain = parse_part(found["sql"], dialect).sql("duckdb")
            assert duckdb.sql(plain).fetchall() == [(f"region = '{quoted}'",)], (dialect, found["sql"])


VALUES = (
    "list_contains(current_groups(), region) OR list_contains(current_roles(), region) OR email = current_claim('mail')"
)


async def test_values_of_the_caller_reach_every_answer(tmp_path: Path) -> None:
    policy = {"id": "v", "table": "orders", "grantees": ["allUsers"], "filter": VALUES, "dialect": "duckdb"}
    rows = ROWS | {"policies": [policy], "masks": []}
    bob = {"id": BOB, "groups": ["EU", "o'n"], "roles": ["US"], "attributes": {"mail": "b@x.example"}}
    other = bob | {"groups": ["FR"], "roles": [], "attributes": {"mail": "c@x.example"}}
    async with asking(tmp_path, rows) as client:
        for dialect, eu in (
            ("duckdb", "['EU', 'o''n']"),
            ("trino", "ARRAY['EU', 'o''n']"),
            ("spark", r"array('EU', 'o\'n')"),
        ):
            columns = [{"name": "id", "type": "integer"}]
            for _ in range(2):
                text = (await filtered(client, principal=bob, dialect=dialect, columns=columns))["rowFilter"][
                    "expression"
                ]
                assert all(part in text for part in (eu, "'US'", "'b@x.example'")), text
                text = (await filtered(client, principal=other, dialect=dialect, columns=columns))["rowFilter"][
                    "expression"
                ]
                assert "'FR'" in text
                assert not any(part in text for part in ("EU", "'US'", "b@x")), text
            unknown: tuple[dict[str, object], ...] = ({}, {"mail": 3})
            for attributes in unknown:
                found = await filtered(
                    client, principal=bob | {"attributes": attributes}, dialect=dialect, columns=columns
                )
                assert found["rowFilter"]["expression"].upper() == "FALSE"
        found = await rewritten(client, "SELECT id FROM orders", bob)
        assert all(part in found["sql"] for part in ("['EU', 'o''n']", "['US']", "'b@x.example'"))
