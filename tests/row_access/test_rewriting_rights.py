"""Refusals of the rewriter tell nothing about policies to principals without a right to the relations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.service.serving import settings_of

pytestmark = pytest.mark.process
NOBODY, READER, OWNER = "user:oidc~nobody", "user:oidc~reader", "user:oidc~owner"
SECRETS = ("secret_vip", "lake.hr", "vault", "9876")
"""Parts of the policies: an id, tables and values of filters."""
ROWS: dict[str, Any] = {
    "default": ["lake", "sales"],
    "tables": {
        name: {"columns": {"id": "INTEGER", "s": "VARCHAR"}}
        for name in ("orders", "odd", "lookup", "plain", "masked", "lake.hr.vault")
    },
    "views": {
        "behind": {"sql": "SELECT id FROM odd"},
        "deep": {"sql": "SELECT id FROM behind"},
        "metadata": {"sql": "SELECT * FROM orders$files"},
        "loop": {"sql": "SELECT id FROM odd, loop"},
    },
    "policies": [
        {"id": "secret_vip", "table": "odd", "grantees": ["allUsers"],
         "filter": "date_add('day', 9876, current_date) > current_date AND s IN (SELECT q.pan FROM lake.hr.vault q)"},
        {"id": "secret_vip2", "table": "orders", "grantees": ["allUsers"], "filter": "id > 9876"},
        {"id": "secret_vip3", "table": "masked", "grantees": ["user:x@example.com"],
         "filter": "id IN (SELECT id FROM lookup)"},
    ],
    "masks": [{"id": "secret_vip4", "table": "masked", "column": "s", "kind": "null", "grantees": ["allUsers"]}],
}  # fmt: skip
WORLD: dict[str, Any] = {
    "objects": ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}],
    "grants": [
        {"principal": READER, "privilege": "modify", "object": "namespace:lake/sales"},
        {"principal": READER, "privilege": "create", "object": "namespace:lake/sales"},
        {"principal": OWNER, "privilege": "ownership", "object": "warehouse:lake"},
    ],
}  # fmt: skip
REFUSED = [
    ("SELECT * FROM odd", "RAP_FILTER_INVALID"),
    ("SELECT id FROM plain WHERE id IN (SELECT id FROM odd)", "RAP_FILTER_INVALID"),
    ("WITH x AS (SELECT id FROM odd) SELECT id FROM x", "RAP_FILTER_INVALID"),
    ("SELECT * FROM behind", "RAP_FILTER_INVALID"),
    ("SELECT * FROM deep", "RAP_FILTER_INVALID"),
    ("SELECT rowid FROM orders", "RAP_HIDDEN_COLUMN"),
    ("INSERT INTO orders VALUES (1, 'a')", "RAP_WRITE_NEEDS_FULL_ACCESS"),
    ("UPDATE orders SET s = 'a' WHERE id = 1", "RAP_WRITE_NEEDS_FULL_ACCESS"),
    ("DELETE FROM orders WHERE id = 1", "RAP_WRITE_NEEDS_FULL_ACCESS"),
    ("DELETE FROM lookup WHERE id = 1", "RAP_WRITE_NEEDS_FULL_ACCESS"),
    ("INSERT INTO lookup SELECT id, s FROM plain", "RAP_WRITE_NEEDS_FULL_ACCESS"),
    ("CREATE MATERIALIZED VIEW fresh AS SELECT * FROM orders", "RAP_MATERIALIZE"),
    ("CREATE TABLE fresh CLONE orders", "RAP_COPY_NEEDS_FULL_ACCESS"),
    ("CREATE TEMPORARY VIEW fresh AS SELECT * FROM orders", "RAP_UNSUPPORTED_STATEMENT"),
    ('SELECT * FROM "orders$files"', "RAP_METADATA_TABLE"),
    ("SELECT * FROM loop", "RAP_VIEW_CYCLE"),
]  # fmt: skip
"""Statements that policies or texts of views refuse, with the code for a principal with every right."""
DIALECTS = ("duckdb", "spark", "bigquery", "trino")


@asynccontextmanager
async def asking(
    folder: Path,
    rows: Mapping[str, Any] = ROWS,
    forbid: Mapping[str, str] | None = None,
    world: Mapping[str, Any] | None = None,
    lake: Mapping[str, Any] | None = None,
) -> AsyncIterator[HttpClient]:
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "forbid.yaml").write_text(json.dumps({"rules": forbid or {"none": "role == 'nobody'"}}))
    (folder / "world.json").write_text(json.dumps(world or WORLD))
    config: dict[str, Any] = {
        "warehouses": {"lake": {"project": "p1", **(lake or {})}, "nes": {"kind": "nessie", "default_ref": "main"}}, "store": {"url": "file:world.json"},
        "policies": {"rules": [], "row_access": ["rows.json"], "forbid": ["forbid.yaml"]}, "trino": {"catalogs": {"lake": {"warehouse": "lake"}}},
        "limits": {"rewrite_seconds": 60, "request_timeout_seconds": 60},
    }  # fmt: skip
    async with client_of(settings_of(config, folder)) as client:
        yield client


async def ask(client: HttpClient, path: str, principal: str, **body: Any) -> dict[str, Any]:
    sent = json.dumps({"principal": principal, **body}).encode()
    answer = await client.send("POST", path, sent, {"Content-Type": "application/json"})
    found: dict[str, Any] = {"status": answer.status, **answer.json()}
    return found


async def test_without_a_right_every_refusal_is_the_denial(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        plain = await ask(client, "/v1/rewrite", NOBODY, sql="SELECT id FROM plain", dialect="duckdb")
        assert (plain["status"], plain["error"]["code"]) == (403, "RAP_ACCESS_DENIED")
        for sql, code in REFUSED:
            codes = []
            for dialect in DIALECTS:
                mine = await ask(client, "/v1/rewrite", OWNER, sql=sql, dialect=dialect)
                codes.append(mine.get("error", {}).get("code", ""))
                found = await ask(client, "/v1/rewrite", NOBODY, sql=sql, dialect=dialect)
                is_known = codes[-1] in (code, "")  # else the dialect itself refuses the text
                allowed = {"RAP_ACCESS_DENIED"} if is_known else {"RAP_ACCESS_DENIED", codes[-1]}
                assert found["error"]["code"] in allowed, (sql, dialect, found)
                assert not is_known or found["status"] == 403
                assert not [part for part in SECRETS if part in json.dumps(found)], (sql, dialect)
            assert code in codes, (sql, codes)


async def test_only_readers_of_grants_see_the_policy_behind_a_refusal(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        answers = []
        for sql, code in REFUSED:
            for dialect in DIALECTS:
                found = await ask(client, "/v1/rewrite", READER, sql=sql, dialect=dialect)
                mine = await ask(client, "/v1/rewrite", OWNER, sql=sql, dialect=dialect)
                codes = [answer.get("error", {}).get("code", "") for answer in (found, mine)]
                assert codes[0] == codes[1], (sql, dialect, found, mine)
                assert not [part for part in SECRETS if part in json.dumps(found)], (sql, dialect, found)
                assert "filters read" not in json.dumps(found)
                answers.append(mine["error"]["message"] if codes[1] == code == "RAP_FILTER_INVALID" else "")
        assert any("secret_vip" in text for text in answers), "the owner sees the cause"
        for dialect in ("duckdb", "spark", "bigquery"):
            body = {"resource": "table:lake/sales/odd", "dialect": dialect}
            shown = await ask(client, "/v1/filters", READER, **body)
            assert shown["error"]["code"] == "RAP_FILTER_INVALID"
            assert not [part for part in SECRETS if part in json.dumps(shown)]
            assert "secret_vip" in (await ask(client, "/v1/filters", OWNER, **body))["error"]["message"]
            assert (await ask(client, "/v1/filters", NOBODY, **body))["error"]["code"] == "RAP_ACCESS_DENIED"


async def test_the_record_has_the_cause_that_the_answer_withholds(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        for sql in ("SELECT * FROM odd", "DELETE FROM lookup WHERE id = 1"):
            await ask(client, "/v1/rewrite", READER, sql=sql, dialect="duckdb")
        await ask(client, "/v1/rewrite", NOBODY, sql="SELECT * FROM odd", dialect="duckdb")
    events = [record for record in all_records(tmp_path) if record["event"] == "rewrite"]
    assert [event["code"] for event in events] == [
        "RAP_FILTER_INVALID",
        "RAP_WRITE_NEEDS_FULL_ACCESS",
        "RAP_ACCESS_DENIED",
    ]
    assert "secret_vip" in events[0]["message"]
    assert "filters read `lookup`" in events[1]["message"]
    assert [event["tables"][0]["table"] for event in events] == [
        f"table:lake/sales/{name}" for name in ("odd", "lookup", "odd")
    ]
    assert events[2]["decision"]


FORBIDS = {
    "path.startsWith('sec.')": (
        "CREATE TABLE lake.SEC.fresh AS SELECT 1 AS a",
        "CREATE TABLE lake.sec.fresh AS SELECT 1 AS a",
    ),
    "path == 'sales.PLAIN'": ("SELECT id FROM lake.sales.plain", "INSERT INTO lake.sales.plain VALUES (1, 'a')"),
    "path.startsWith('Sales.') && path.endsWith('.lookup')": (
        "SELECT id FROM lookup",
        "DELETE FROM lake.sales.lookup WHERE TRUE",
    ),
}
"""Forbid -> statements that it denies. Engines fold names."""


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_forbid_of_a_name_in_another_spelling_binds_for_statements(dialect: str, tmp_path: Path) -> None:
    for forbid, statements in FORBIDS.items():
        async with asking(tmp_path, forbid={"f": forbid}) as client:
            for sql in statements:
                answer = await ask(client, "/v1/rewrite", OWNER, dialect=dialect, sql=sql)
                assert (answer["status"], answer["error"]["code"]) == (403, "RAP_ACCESS_DENIED"), (sql, answer)
            answer = await ask(client, "/v1/rewrite", OWNER, dialect=dialect, sql="SELECT id FROM lake.sales.masked")
            assert answer["status"] != 403, answer
            answer = await ask(
                client, "/v1/rewrite", OWNER, dialect=dialect, sql="CREATE TABLE lake.other.x AS SELECT 1 AS a"
            )
            assert answer["status"] == 200, answer


async def test_a_forbid_in_another_spelling_binds_for_filters(tmp_path: Path) -> None:
    """The filter of a table shows the rows of every spelling."""
    async with asking(tmp_path, forbid={"f": "path == 'sales.PLAIN'"}) as client:
        for table, status in (("plain", 403), ("Plain", 403), ("lookup", 200)):
            answer = await ask(client, "/v1/filters", OWNER, dialect="duckdb", resource=f"table:lake/sales/{table}")
            assert answer["status"] == status, answer


COPIES: dict[str, Any] = {
    "default": ["lake", "sales"],
    "tables": {name: {"columns": {"id": "INTEGER", "s": "VARCHAR"}} for name in ("orders", "masked", "plain")},
    "policies": [
        {"id": "all", "table": "orders", "grantees": ["user:owner"], "filter": "TRUE"},
        {"id": "few", "table": "orders", "grantees": ["user:reader"], "filter": "id > 9876"},
    ],
    "masks": [{"id": "m", "table": "masked", "column": "s", "kind": "null", "grantees": ["user:reader"]}],
}


async def test_a_copy_that_no_policy_covers_is_told(tmp_path: Path) -> None:
    async with asking(tmp_path, COPIES) as client:
        for word in ("COPY", "CLONE"):
            for name, wanted in (("orders", 1), ("masked", 1), ("plain", 0)):
                sql = f"CREATE TABLE fresh {word} {name}"
                answer = await ask(client, "/v1/rewrite", OWNER, sql=sql, dialect="bigquery")
                warnings = answer.get("warnings", [])
                assert (answer["sql"], len(warnings)) == (sql, wanted), (sql, answer)
                assert all(
                    f"policies and masks of `lake.sales.{name}` do not follow to the copy" in text for text in warnings
                )
        copied = await ask(client, "/v1/rewrite", READER, sql="CREATE TABLE fresh COPY orders", dialect="bigquery")
        assert copied["error"]["code"] == "RAP_COPY_NEEDS_FULL_ACCESS"
        assert "warnings" not in copied


NAMED: dict[str, Any] = {
    "default": ["lake", "sales"],
    "tables": {
        name: {"columns": {"id": "INTEGER", "s": "VARCHAR"}} for name in ("orders", "masked", "plain", "limited")
    },
    "views": {"v": {"sql": "SELECT id FROM orders"}, "owned": {"sql": "SELECT id FROM orders", "owner": "user:nobody"}},
    "policies": [
        {"id": "few", "table": "orders", "grantees": ["user:reader"], "filter": "id > 9876"},
        {"id": "limit", "table": "orders", "grantees": ["allUsers"], "filter": "id > 1", "restrictive": True},
        {"id": "limit", "table": "limited", "grantees": ["allUsers"], "filter": "id > 1", "restrictive": True},
    ],
    "masks": [{"id": "m", "table": "masked", "column": "s", "kind": "null", "grantees": ["allUsers"]}],
}


async def test_a_reader_whom_no_policy_names_is_told(tmp_path: Path) -> None:
    """An empty result, or a table made of nothing, looks like data that is gone."""
    orders, limited = (
        f"no row of `lake.sales.{name}` is visible: none of its row policies names the reader"
        for name in ("orders", "limited")
    )
    texts = {
        "SELECT id FROM orders": [orders], "CREATE OR REPLACE TABLE fresh AS (SELECT * FROM orders)": [orders], "SELECT id FROM v": [orders],
        "SELECT id FROM plain WHERE id IN (SELECT id FROM orders)": [orders], "SELECT id FROM limited": [limited],
        "SELECT id FROM orders UNION ALL SELECT id FROM limited": [limited, orders], "SELECT id FROM plain": [], "SELECT id FROM masked": [],
        "INSERT INTO plain SELECT * FROM orders": [orders],
    }  # fmt: skip
    async with asking(tmp_path, NAMED) as client:
        for sql, wanted in texts.items():
            mine = await ask(client, "/v1/rewrite", OWNER, sql=sql, dialect="bigquery")
            assert sorted(mine.get("warnings", [])) == wanted, (sql, mine)
            theirs = await ask(client, "/v1/rewrite", READER, sql=sql, dialect="bigquery")
            assert [text for text in theirs.get("warnings", []) if "orders" in text] == [], (sql, theirs)


MAKER = "user:oidc~maker"
LOCKED: dict[str, Any] = {
    "objects": [
        *WORLD["objects"], "table:lake/sales/Kept", "view:lake/sales/seen", "table:lake/own/mine", {"object": "warehouse:nes", "parent": "project:p1"},
    ],
    "grants": [
        *WORLD["grants"],
        {"principal": MAKER, "privilege": "create", "object": "namespace:lake/sales"},
        {"principal": MAKER, "privilege": "create", "object": "warehouse:nes"},
        {"principal": MAKER, "privilege": "ownership", "object": "namespace:lake/own"},
    ],
}  # fmt: skip
CREATIONS = [
    f"CREATE {replace}{kind} {{}} AS SELECT 1 AS a" for replace in ("", "OR REPLACE ") for kind in ("TABLE", "VIEW")
]
QUOTES = {"spark": "`", "duckdb": '"', "trino": '"', "bigquery": "`"}


@pytest.mark.parametrize("dialect", QUOTES)
async def test_a_creation_needs_the_drop_of_what_stands_at_its_name(tmp_path: Path, dialect: str) -> None:
    """The store knows objects that no catalog describes. Who may only create replaces none, in any spelling."""
    taken = [
        "lake.sales.Kept",
        "lake.sales.kept",
        "lake.SALES.KEPT",
        "lake.sales.seen",
    ]
    free = ["lake.sales.fresh", "lake.own.mine", "lake.own.MINE"]
    async with asking(tmp_path, world=LOCKED) as client:
        for statement in CREATIONS:
            if dialect == "bigquery" and "VIEW" in statement:
                continue
            for name in taken:
                answer = await ask(client, "/v1/rewrite", MAKER, sql=statement.format(name), dialect=dialect)
                assert answer["error"]["code"] in ("RAP_ACCESS_DENIED", "ambiguous_name"), (statement, name, answer)
            for name in free:
                answer = await ask(client, "/v1/rewrite", MAKER, sql=statement.format(name), dialect=dialect)
                assert "sql" in answer, (statement, name, answer)


@pytest.mark.parametrize("dialect", QUOTES)
async def test_forbids_keep_what_may_stand_at_the_name_of_a_creation(tmp_path: Path, dialect: str) -> None:
    rules = {
        "a": "action == 'drop' && path.startsWith('sales.keep')",
        "b": "op == 'DELETE_ENTITY' && path == 'sales.Locked'",
    }
    async with asking(tmp_path, forbid=rules) as client:
        for name, passes in (("keep", False), ("KEEPER", False), ("locked", False), ("Locked", False), ("other", True)):
            for statement in CREATIONS[:1] if dialect == "bigquery" else CREATIONS:
                sql = statement.format(f"lake.sales.{name}")
                answer = await ask(client, "/v1/rewrite", READER, sql=sql, dialect=dialect)
                assert ("sql" in answer) is passes, (sql, answer)


MADE = {"new_view": "action == 'create_view'", "new_table": "action == 'create_table'",
        "view_kind": "op == 'CREATE_ENTITY' && contentType == 'ICEBERG_VIEW'", "drop": "action == 'drop'"}  # fmt: skip


async def test_a_creation_is_asked_about_what_it_makes_whatever_stands_there(tmp_path: Path) -> None:
    described = {
        "tables": {"lake.sales.a_table": {"columns": {"a": "INTEGER"}}},
        "views": {"lake.sales.a_view": {"sql": "SELECT 1 AS a"}},
    }
    rules = {name: f"{rule} && role == '{name}'" for name, rule in MADE.items()}
    world = {**WORLD, "grants": [{"principal": f"user:oidc~{name}", "privilege": "ownership", "object": "warehouse:lake"} for name in [*MADE, "free"]]}  # fmt: skip
    async with asking(tmp_path, forbid=rules, world=world) as client:
        for statement in CREATIONS:
            for name in ("a_table", "a_view", "fresh"):
                sql = statement.format(f"lake.sales.{name}")
                passing = {
                    user
                    for user in (*MADE, "free")
                    if "sql" in await ask(client, "/v1/rewrite", f"user:oidc~{user}", sql=sql, dialect="duckdb", catalog=described)
                }  # fmt: skip
                made = {"new_view", "view_kind"} if "VIEW" in statement else {"new_table"}
                assert passing == {*MADE, "free"} - {"drop"} - made, sql


@pytest.mark.parametrize("dialect", QUOTES)
async def test_no_statement_names_a_table_at_a_reference_of_a_nessie(tmp_path: Path, dialect: str) -> None:
    sign = QUOTES[dialect]
    async with asking(tmp_path, world=LOCKED) as client:
        for warehouse, refused in (("nes", True), ("lake", False)):
            for name in ("t@prod", "t#12", "t@prod#12"):
                sql = f"CREATE TABLE {warehouse}.sales.{sign}{name}{sign} AS SELECT 1 AS a"
                answer = await ask(client, "/v1/rewrite", MAKER, sql=sql, dialect=dialect)
                assert (answer.get("error", {}).get("code") == "ambiguous_name") is refused, (sql, answer)


VERSIONS = {
    "spark": "{table} VERSION AS OF {version}", "trino": "{table} FOR VERSION AS OF {version}",
    "duckdb": "{table} AT (VERSION => {version})",
}  # fmt: skip
TEXTS = [
    "SELECT id FROM {}", "SELECT p.id FROM plain p JOIN {} ON TRUE", "WITH x AS (SELECT id FROM {}) SELECT id FROM x",
    "SELECT id FROM plain WHERE EXISTS (SELECT 1 FROM {})", "INSERT INTO sink SELECT id FROM {}",
]  # fmt: skip


@pytest.mark.parametrize("dialect", VERSIONS)
@pytest.mark.parametrize("text", TEXTS)
async def test_a_branch_of_a_table_needs_the_right_to_that_ref(dialect: str, text: str, tmp_path: Path) -> None:
    """Also beside a right to the default ref, which the table's name alone means."""
    rows = {"default": ["lake", "sales"], "tables": {name: {"columns": {"id": "INTEGER"}} for name in ("plain", "own", "sink")}, "policies": [{"id": "p", "table": "sink", "grantees": ["allUsers"], "filter": "TRUE"}]}  # fmt: skip
    forbid = {"prod": "ref == 'prod' && path == 'sales.own'", "snapshots": "ref == 'DETACHED' && path == 'sales.own'"}
    versions = {"'dev'": 200, "'prod'": 403, "8954597067493422955": 403, "'8954597067493422955'": 403, "concat('pr', 'od')": 400}  # fmt: skip
    async with asking(tmp_path, rows, forbid, lake={"default_ref": "main"}) as client:
        for version, status in versions.items():
            sql = text.format(VERSIONS[dialect].format(table="own", version=version))
            found = await ask(client, "/v1/rewrite", READER, sql=sql, dialect=dialect)
            assert found["status"] == status, (sql, found)
            free = text.format(VERSIONS[dialect].format(table="plain", version=version)).replace("plain p JOIN", "own p JOIN")  # fmt: skip
            if status != 400:
                assert (await ask(client, "/v1/rewrite", READER, sql=free, dialect=dialect))["status"] == 200, free
        times = {"spark": "own TIMESTAMP AS OF '2024-01-01'", "trino": "own FOR TIMESTAMP AS OF TIMESTAMP '2024-01-01 00:00:00'", "duckdb": "own AT (TIMESTAMP => TIMESTAMP '2024-01-01')"}  # fmt: skip
        found = await ask(client, "/v1/rewrite", READER, sql=text.format(times[dialect]), dialect=dialect)
        assert found["status"] == 200, found
    tables = [one["table"] for record in all_records(tmp_path) if record["event"] == "rewrite" for one in record.get("tables", ())]  # fmt: skip
    assert {"table:lake/sales/own@prod", "table:lake/sales/own@DETACHED", "table:lake/sales/own@dev"} <= set(tables)
