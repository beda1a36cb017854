"""Materialized views in Trino: their refresh stores rows that row policies hide, and their storage has names of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.clients.http_client import HttpClient, client_of, fetch
from support.oracles.converging import until
from support.paths import ROOT
from support.service.serving import serve_process, settings_of

from pdp.app.assembly import build_bundle, read_rules
from pdp.model.trino_operations import METADATA_TABLES, TRINO_OPERATIONS

POLICY = {"id": "p", "grantees": ["user:etl"], "filter": "TRUE"}
MASK = {"id": "m", "grantees": ["user:bob"], "column": "c", "kind": "null"}
RESTRICTED: dict[str, dict[str, Any]] = {
    "a policy on the table behind": {"policies": [POLICY | {"table": "lake.src.orders"}]},
    "a policy on a table elsewhere": {"policies": [POLICY | {"table": "lake.far.away.t"}]},
    "a mask on the table behind": {"masks": [MASK | {"table": "lake.src.orders"}]},
    "a policy on its own name": {"policies": [POLICY | {"table": "lake.mart.mv"}]},
    "a policy on its own name in another case": {"policies": [POLICY | {"table": "lake.Mart.MV"}]},
    "a mask on its own name": {"masks": [MASK | {"table": "lake.mart.mv"}]},
}
FREE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a policy in another warehouse": {"policies": [POLICY | {"table": "pond.s.t"}]},
}
STORING = ["CreateMaterializedView", "RefreshMaterializedView"]
DENIED = "config:trino.catalogs.materialized_views"
WORLD = {
    "objects": [
        "project:p", {"object": "warehouse:lake", "parent": "project:p"}, {"object": "warehouse:pond", "parent": "project:p"},
        "view:lake/mart/mv", "view:pond/mart/mv",
    ],
    "grants": [
        *({"principal": "user:oidc~etl", "privilege": right, "object": f"warehouse:{name}"}
          for right in ("modify", "create") for name in ("lake", "pond")),
        {"principal": "user:oidc~bob", "privilege": "select", "object": "view:lake/mart/mv"},
        {"principal": "user:oidc~sue", "privilege": "select", "object": "namespace:lake/mart"},
        {"principal": "user:oidc~tom", "privilege": "select", "object": "table:lake/mart/mv"},
        {"principal": "user:oidc~own", "privilege": "ownership", "object": "warehouse:lake"},
    ],
}  # fmt: skip
USERS = ("etl", "bob", "sue", "tom", "own", "eve")


class Trino:
    """Client that asks a service as Trino asks."""

    def __init__(self, http: HttpClient) -> None:
        self.http = http

    async def ask(self, endpoint: str, action: dict[str, Any], user: str) -> Any:
        body = {"input": {"context": {"identity": {"user": user, "groups": []}, "queryId": "q1"}, "action": action}}
        status, answer = await self.http.trino(endpoint, body)
        assert status == 200, answer
        return answer.get("result", answer)

    async def may(self, operation: str, table: str = "mv", user: str = "etl", **place: str) -> bool:
        named: dict[str, Any] = {"table": {"catalogName": "k", "schemaName": "mart", "tableName": table, **place}}
        if operation == "FilterColumns":  # the answer lists columns
            named["table"]["columns"] = ["c"]
        more: dict[str, Any] = {}
        if operation.startswith("Rename"):
            more = {"targetResource": {"table": {"catalogName": "k", "schemaName": "mart", "tableName": "fresh"}}}
        allowed: bool = await self.ask("allow", {"operation": operation, "resource": named, **more}, user)
        batch = await self.ask("batch", {"operation": operation, "filterResources": [named], **more}, user)
        assert batch == ([0] if allowed else []), operation
        return allowed

    async def rows(self, table: str, user: str) -> Any:
        named = {"table": {"catalogName": "k", "schemaName": "mart", "tableName": table}}
        return await self.ask("rowFilters", {"operation": "GetRowFilters", "resource": named}, user)

    async def native(self, operation: str, resource: str, user: str = "etl") -> dict[str, Any]:
        check = {"principal": f"user:oidc~{user}", "action": f"trino:{operation}", "resource": resource}
        decision: dict[str, Any] = (await self.http.check(check))[1]["decisions"][0]
        return decision


def config_of(
    folder: Path, rows: dict[str, Any], forbid: dict[str, str] | None = None, **config: Any
) -> dict[str, Any]:
    (folder / "world.json").write_text(json.dumps(WORLD))
    policies: dict[str, Any] = {"rules": []}
    if rows:
        (folder / "rows.json").write_text(json.dumps(rows))
        policies["row_access"] = ["rows.json"]
    if forbid:
        (folder / "forbid.yaml").write_text(yaml.safe_dump({"rules": forbid}))
        policies["forbid"] = ["forbid.yaml"]
    base = {
        "store": {"url": "file:world.json"}, "authorities": {"default": {"engines": ["grants"]}},
        "warehouses": {"lake": {"default_ref": "main"}, "pond": {"default_ref": "main"}},
        "trino": {"catalogs": {"k": {"warehouse": "lake"}}}, "policies": policies,
    }  # fmt: skip
    return base | config


def catalogs(**modes: str) -> dict[str, Any]:
    named = {name: {"materialized_views": mode} if mode else {} for name, mode in modes.items()}
    return {"catalogs": {name: {"warehouse": "lake"} | mode for name, mode in named.items()}}


@asynccontextmanager
async def trino(
    folder: Path, rows: dict[str, Any], forbid: dict[str, str] | None = None, **config: Any
) -> AsyncIterator[Trino]:
    async with client_of(settings_of(config_of(folder, rows, forbid, **config), folder)) as http:
        yield Trino(http)


# --- creating and refreshing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [*RESTRICTED, *FREE])
@pytest.mark.parametrize("mode", ["", "denied", "allowed"])
async def test_rows_are_stored_where_no_policy_is_or_policies_protect_the_view(
    what: str, mode: str, tmp_path: Path
) -> None:
    rows = (RESTRICTED | FREE)[what]
    allowed = mode == "allowed" or (mode != "denied" and what in FREE)
    async with trino(tmp_path, rows, trino=catalogs(k=mode)) as client:
        for operation in STORING:
            assert await client.may(operation, "mv" if operation.startswith("R") else "fresh") is allowed
        for operation in ("CreateView", "CreateTable"):
            assert await client.may(operation, "fresh"), "others are as before"
        assert not await client.may("RefreshMaterializedView", user="eve")
        decision = await client.native("RefreshMaterializedView", "view:lake/mart/mv")
        assert decision["allowed"] is allowed
        assert (decision["by"] == [DENIED]) is not allowed


@pytest.mark.parametrize(
    ("protected", "allowed"), [("warehouse:lake", False), ("namespace:lake/src", False), ("warehouse:pond", True)]
)
async def test_a_protected_container_is_a_policy(protected: str, allowed: bool, tmp_path: Path) -> None:
    async with trino(tmp_path, {}, row_access={"protected": [protected]}) as client:
        assert await client.may("RefreshMaterializedView") is allowed


@pytest.mark.parametrize(
    "resource", ["view", "table", "table_or_view", "metadata_table"]
)  # fmt: skip
@pytest.mark.parametrize("ref", ["", "@main", "@dev"])
async def test_no_type_and_no_ref_of_the_native_api_goes_around(resource: str, ref: str, tmp_path: Path) -> None:
    async with trino(tmp_path, RESTRICTED["a policy on the table behind"], trino=catalogs(k="unrestricted")) as client:
        for operation, name in itertools.product(STORING, ("mv", "fresh", "Mv", "x$other")):
            decision = await client.native(operation, f"{resource}:lake/mart/{name}{ref}")
            assert (decision["allowed"], decision["by"]) == (False, [DENIED]), (operation, name)
    async with trino(tmp_path, RESTRICTED["a policy on its own name"], trino=catalogs(k="allowed")) as client:
        decision = await client.native("CreateMaterializedView", f"{resource}:lake/mart/mv{ref}", "own")
        assert not decision["allowed"], "the view hides rows from the user"


async def test_the_strictest_of_several_catalogs_of_one_ref_counts(tmp_path: Path) -> None:
    """A question names no catalog. Both catalogs have the same storage."""
    rows = RESTRICTED["a policy on the table behind"]
    async with trino(tmp_path, rows, trino=catalogs(k="allowed", other="")) as client:
        assert not await client.may("RefreshMaterializedView")
        assert not await client.may("RefreshMaterializedView", catalogName="other")
    of_refs = catalogs(k="allowed", other="")
    of_refs["catalogs"]["other"]["ref"] = "dev"
    async with trino(tmp_path, rows, trino=of_refs) as client:
        assert await client.may("RefreshMaterializedView")
        assert not await client.may("RefreshMaterializedView", catalogName="other")
    of_refs["catalogs"]["other"]["ref"] = "main"
    async with trino(tmp_path, rows, trino=of_refs) as client:
        assert not await client.may("RefreshMaterializedView"), "the default ref under its name"


async def test_policies_of_the_store_count_from_their_first_day_to_their_last(tmp_path: Path) -> None:
    config = {"store": {"url": "sqlite:///pdp.db", "seed": "world.json"}}
    table = {"table": "table:lake/src/orders", "grantees": ["allAuthenticatedUsers"]}
    async with trino(tmp_path, {}, **config) as client:
        http = client.http
        for path, body in (
            ("/v1/row-access-policies", {**table, "id": "p", "filter": "x = 1"}),
            ("/v1/column-masks", {**table, "id": "m", "column": "c", "kind": "null"}),
        ):
            assert [await client.may(name, "fresh") for name in STORING] == [True, True]
            assert (await http.post(path, body))[0] == 200
            assert [await client.may(name, "fresh") for name in STORING] == [False, False]
            column = "&column=c" if "column" in body else ""
            gone = await http.send("DELETE", f"{path}/{body['id']}?table=table:lake/src/orders{column}")
            assert gone.status == 200, gone.text
        assert (
            await http.post(
                "/v1/row-access-policies", {**table, "table": "table:pond/s/t", "id": "p", "filter": "x = 1"}
            )
        )[0] == 200
        assert await client.may("RefreshMaterializedView"), "a policy in another warehouse"


@pytest.mark.process
@pytest.mark.waits
def test_policies_of_files_count_from_their_first_reload_to_their_last(tmp_path: Path) -> None:
    rows = tmp_path / "rows" / "a.yaml"
    rows.parent.mkdir()
    config = config_of(tmp_path, {}, store={"url": "sqlite:///pdp.db", "seed": "world.json"})
    config["policies"] |= {"row_access": [{"path": "rows/*.yaml", "allow_empty": True}], "refresh_seconds": 0.1}
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    named = {"table": {"catalogName": "k", "schemaName": "mart", "tableName": "mv"}}
    identity = {"context": {"identity": {"user": "etl", "groups": []}}}
    body = json.dumps({"input": {**identity, "action": {"operation": "RefreshMaterializedView", "resource": named}}})
    with serve_process(tmp_path) as process:

        def may() -> bool:
            found: bool = fetch(process.url("/v1/data/trino/allow"), body.encode()).json()["result"]
            return found

        assert may()
        for what in ("a policy on the table behind", "a mask on the table behind"):
            rows.with_suffix(".new").write_text(json.dumps(RESTRICTED[what]))
            rows.with_suffix(".new").replace(rows)
            until(lambda: not may())
            rows.unlink()
            until(may)
        assert process.terminate() == 0


# --- names of the storage ------------------------------------------------------------------------------------------

SUFFIXES = sorted(METADATA_TABLES)
VALUES = [suffix for suffix in SUFFIXES if METADATA_TABLES[suffix] == "read_data"]
ON_TABLES = sorted(
    name for name, known in TRINO_OPERATIONS.items()
    if any(step.on in ("given", "table", "view", "table_or_view", "parent") for step in known.steps)
    and not name.endswith(("Catalog", "Catalogs", "Schemas", "Schema", "SchemaAuthorization", "ShowTables", "ShowFunctions"))
)  # fmt: skip


def spellings(suffix: str) -> Iterator[str]:
    yield f"mv${suffix}"
    yield f"mv${suffix.upper()}"
    yield f"MV${suffix.title()}"


@pytest.mark.parametrize(
    "forbid",
    [
        "",
        "path == 'mart.mv'",
        "path == 'mart.mv' && contentType == 'ICEBERG_VIEW'",
        "path == 'mart.mv' && contentType == 'ICEBERG_TABLE'",
        "path.startsWith('mart.m')",
    ],
)
async def test_what_a_view_keeps_is_read_by_those_who_read_the_view(forbid: str, tmp_path: Path) -> None:
    async with trino(tmp_path, {}, {"f": forbid} if forbid else None) as client:
        for user, operation in itertools.product(
            USERS, ("SelectFromColumns", "CreateViewWithSelectFromColumns", "ShowColumns", "FilterTables")
        ):
            wanted = await client.may(operation, "mv", user)
            for name in spellings("materialized_view_storage"):
                assert await client.may(operation, name, user) == wanted, (operation, user, name)
            for name in ("mv$files", "mv$snapshots"):
                allowed = await client.may(operation, name, user)
                assert allowed == (wanted and user != "bob"), (
                    operation,
                    user,
                    name,
                )  # bob has a right on the view alone


@pytest.mark.parametrize(
    "what", ["a policy on its own name", "a policy on its own name in another case", "a mask on its own name"]
)
@pytest.mark.parametrize("mode", ["", "allowed"])
async def test_policies_on_the_view_hold_for_what_it_keeps(what: str, mode: str, tmp_path: Path) -> None:
    async with trino(tmp_path, RESTRICTED[what], trino=catalogs(k=mode)) as client:
        for suffix in VALUES:
            for name in spellings(suffix):
                assert not await client.may("SelectFromColumns", name, "bob"), name
                assert not await client.may("CreateViewWithSelectFromColumns", name, "bob"), name
                assert await client.may("SelectFromColumns", name, "etl"), "nothing is hidden from the user"
                assert await client.rows(name, "bob") == [{"expression": "false"}]
                assert await client.rows(name, "etl") == []


async def test_no_operation_is_open_under_the_name_of_the_storage_alone(tmp_path: Path) -> None:
    async with trino(tmp_path, RESTRICTED["a policy on its own name"], trino=catalogs(k="allowed")) as client:
        for operation, user in itertools.product(ON_TABLES, ("own", "sue")):
            open = [suffix for suffix in SUFFIXES if await client.may(operation, f"mv${suffix}", user)]
            assert not open or await client.may(operation, "mv", user), (operation, user, open)


@pytest.mark.parametrize(
    "name", ["mv$files$partitions", "mv$materialized_view_storage$files", "mv$Files$materialized_view_storage"]
)
async def test_a_metadata_table_has_none_of_its_own(name: str, tmp_path: Path) -> None:
    async with trino(tmp_path, RESTRICTED["a policy on its own name"]) as client:
        for user in USERS:
            assert not await client.may("SelectFromColumns", name, user)
            assert await client.rows(name, user) == [{"expression": "false"}]


async def test_the_type_of_a_metadata_table_does_not_take_the_policies_away(tmp_path: Path) -> None:
    async with trino(tmp_path, RESTRICTED["a policy on its own name"], trino=catalogs(k="allowed")) as client:
        for name in ("mv", "MV"):
            assert not (await client.native("TruncateTable", f"metadata_table:lake/mart/{name}", "own"))["allowed"]


# --- sharing by a view ---------------------------------------------------------------------------------------------

SHARED = {
    "objects": [
        "project:p", {"object": "warehouse:lake", "parent": "project:p", "managedAccess": True}, "view:lake/mart/v",
    ],
    "grants": [
        *({"principal": "user:oidc~ann", "privilege": right, "object": "warehouse:lake"} for right in ("select", "create")),
        {"principal": "user:oidc~bob", "privilege": "select", "object": "view:lake/mart/v"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("forbidden", [False, True])
async def test_the_forbid_of_the_page_stops_sharing_that_managed_access_does_not(
    forbidden: bool, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "views.md").read_text()
    rules = yaml.safe_load(page.partition("# forbids.yaml")[2].partition("\n")[2].partition("```")[0])["rules"]
    engine = {"type": "trino", "owner_property": "run-as", "identities": {"oidc": {"audiences": ["trino"]}}}
    load = {
        "principal": "user:oidc~bob", "action": "loadTable", "target": "table:lake/hr/pay", "referencedBy": "mart%1Fv",
        "views": [{"resource": "view:lake/mart/v", "properties": {"run-as": "ann"}}],
        "caller": {"idp": "oidc", "subject": "svc", "audiences": ["trino"]},
    }  # fmt: skip
    config = config_of(tmp_path, {}, rules if forbidden else None, trusted_engines={"trino": engine})
    (tmp_path / "world.json").write_text(json.dumps(SHARED))
    async with client_of(settings_of(config, tmp_path)) as http:
        client = Trino(http)
        behind = {"schemaName": "hr", "user": "ann"}
        assert await client.may("CreateViewWithSelectFromColumns", "pay", **behind) is not forbidden
        assert await client.may("SelectFromColumns", "pay", **behind), "the owner's own reading"
        assert await client.may("CreateViewWithSelectFromColumns", "pay", schemaName="hrx", user="ann"), "elsewhere"
        loaded = (await http.post("/v1/load", load))[1]
        assert (loaded["referencedByUsed"], loaded["allowed"]) == (True, not forbidden)
        own = {**load, "principal": "user:oidc~ann", "referencedBy": [], "views": []}
        assert (await http.post("/v1/load", own))[1]["allowed"]


def test_a_catalog_beside_policies_is_named(tmp_path: Path) -> None:
    """A view of one catalog can keep rows of another."""
    for mode, is_named in (("unrestricted", True), ("denied", False), ("allowed", False)):
        named = {"k": {"warehouse": "lake"}, "mart": {"warehouse": "pond", "materialized_views": mode}}
        config = config_of(tmp_path, RESTRICTED["a policy on the table behind"], trino={"catalogs": named})
        settings = settings_of(config, tmp_path)
        found = [text for text in build_bundle(settings, *read_rules(settings)).warnings if "materialized" in text]
        assert [("`mart`" in text, "`lake`" in text) for text in found] == ([(True, True)] if is_named else [])
