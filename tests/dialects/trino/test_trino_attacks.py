"""Attacks on Trino's endpoints that a review came up with, each as whoever would try it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import audit_records
from support.service.serving import settings_of

WORLD = {
    "objects": ["project:p", {"object": "warehouse:lake", "parent": "project:p"}],
    "grants": [
        {"principal": "user:oidc~ann", "privilege": "modify", "object": "warehouse:lake"},
        {"principal": "user:oidc~olga", "privilege": "ownership", "object": "namespace:lake/olgas"},
        {"principal": "user:oidc~eve", "privilege": "create", "object": "namespace:lake/s"},
        {"principal": "user:oidc~pam", "privilege": "ownership", "object": "table:lake/s/salaries"},
        {"principal": "role:super", "privilege": "select", "object": "warehouse:lake"},
    ],
}
CONFIG = {
    "store": {"url": "file:world.json"},
    "warehouses": {"lake": {"default_ref": "main"}},
    "policies": {"row_access": ["rows.yaml"]},
    "trino": {"catalogs": {"k": {"warehouse": "lake", "materialized_views": "allowed"}}, "groups": {"devs": "analyst"}},
    "identity": {
        "providers": {
            "oidc": {
                "issuer": "https://idp.invalid",
                "audiences": ["pdp"],
                "jwks": "keys.json",
                "role_map": {"analyst": "super"},
            }
        },
        "callers": {"local": {"loopback": True, "may_assert": ["principals", "groups", "roles", "delegated"]}},
    },
}
ROWS = {
    "policies": [{"id": "some", "table": "lake.s.t", "grantees": ["role:super"], "filter": "TRUE"}],
    "masks": [{"id": "pay", "table": "lake.s.m", "column": "c", "grantees": ["user:ann"], "kind": "null"}],
}


class TrinoClient:
    """Client that asks a service as Trino asks."""

    def __init__(self, http: HttpClient) -> None:
        self.http = http

    async def post(self, endpoint: str, action: Any, user: str = "ann", groups: Any = ()) -> tuple[int, Any]:
        groups = groups if groups is None else list(groups)
        identity = {"user": user, "groups": groups}
        return await self.http.trino(endpoint, {"input": {"context": {"identity": identity}, "action": action}})

    async def allow(self, operation: str, table: str, **more: Any) -> Any:
        named = {"table": {"catalogName": "k", "schemaName": "s", "tableName": table}}
        return (await self.post("allow", {"operation": operation, "resource": named}, **more))[1]["result"]


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[TrinoClient]:
    (folder / "world.json").write_text(json.dumps(WORLD))
    (folder / "rows.yaml").write_text(json.dumps(ROWS))
    key = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    (folder / "keys.json").write_text(json.dumps({"keys": [{**key, "kid": "k", "alg": "ES256"}]}))
    async with client_of(settings_of(CONFIG, folder)) as http:
        yield TrinoClient(http)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[TrinoClient]:
    async with served(tmp_path) as found:
        yield found


async def test_a_mapped_group_is_not_mapped_again_as_a_role_of_a_token(client: TrinoClient) -> None:
    assert await client.allow("SelectFromColumns", "t", user="bob", groups=["devs"]) is False
    table = {"table": {"catalogName": "k", "schemaName": "s", "tableName": "t"}}
    asked = {"operation": "GetRowFilters", "resource": table}
    assert (await client.post("rowFilters", asked, "bob", ["devs"]))[1] == {"result": [{"expression": "false"}]}


@pytest.mark.parametrize("suffix", ["files", "FILES", "Partitions", "all_Entries"])
async def test_a_table_about_a_restricted_one_is_denied_in_any_case(client: TrinoClient, suffix: str) -> None:
    assert await client.allow("SelectFromColumns", f"m${suffix}") is False
    assert await client.allow("SelectFromColumns", f"free${suffix}") is True
    for name in (f"table:lake/s/m${suffix}", f"table_or_view:lake/s/m${suffix}"):
        check = {"principal": "user:oidc~ann", "action": "trino:SelectFromColumns", "resource": name}
        assert not (await client.http.check(check))[1]["decisions"][0]["allowed"]


async def test_a_deletion_that_is_one_end_of_a_rename_is_denied(client: TrinoClient) -> None:
    check = {"principal": "user:oidc~ann", "action": "DELETE_ENTITY", "resource": "table:lake/s/m@main"}
    moved = check | {"context": {"actions": ["CATALOG_RENAME_ENTITY_FROM"]}}
    first, second = (await client.http.check(check, moved))[1]["decisions"]
    assert first["allowed"]
    assert (second["allowed"], second["by"]) == (False, ["row_access:pay"])


@pytest.mark.parametrize("operation", ["CreateCatalog", "DropCatalog"])
@pytest.mark.parametrize("catalog", ["k", "fresh", "system"])
async def test_nobody_puts_storage_under_the_name_of_a_catalog(
    client: TrinoClient, operation: str, catalog: str
) -> None:
    asked = {"operation": operation, "resource": {"catalog": {"name": catalog}}}
    assert await client.post("allow", asked) == (200, {"result": False})


@pytest.mark.parametrize("procedure", ["ADD_FILES", "add_files", "ADD_FILES_FROM_TABLE", "ROLLBACK_TO_SNAPSHOT"])
async def test_nobody_reads_the_files_of_another_table_into_an_own_one(client: TrinoClient, procedure: str) -> None:
    table = {"catalogName": "k", "schemaName": "s", "tableName": "own"}
    for name, allowed in (("OPTIMIZE", True), (procedure, False)):
        resource = {"table": table, "function": {"functionName": name}}
        asked = {"operation": "ExecuteTableProcedure", "resource": resource}
        assert await client.post("allow", asked) == (200, {"result": allowed})


@pytest.mark.parametrize(
    ("grantee", "allowed"),
    [
        ({"type": "USER", "name": "boss"}, False),
        ({"type": "USER", "name": "olga"}, True),
        ({"type": "USER", "name": "Olga"}, False),
        ({"type": "ROLE", "name": "olga"}, False),
        ({"type": "OWNER", "name": "olga"}, False),
        (None, False),
    ],
)
async def test_nobody_makes_a_view_run_as_another_user(client: TrinoClient, grantee: Any, allowed: bool) -> None:
    view = {"table": {"catalogName": "k", "schemaName": "olgas", "tableName": "v"}}
    asked = {"operation": "SetViewAuthorization", "resource": view, "grantee": grantee}
    assert await client.post("allow", asked, "olga") == (200, {"result": allowed})


@pytest.mark.parametrize("operation", ["CreateTable", "CreateView", "CreateMaterializedView"])
async def test_whoever_may_create_replaces_nothing_of_others(client: TrinoClient, operation: str) -> None:
    assert await client.allow(operation, "fresh", user="eve") is True
    for name in ("salaries", "SALARIES", "m"):
        assert await client.allow(operation, name, user="eve") is False, name
    check = {"principal": "user:oidc~eve", "action": f"trino:{operation}", "resource": "table_or_view:lake/s/salaries"}
    decision = (await client.http.check(check))[1]["decisions"][0]
    assert (decision["allowed"], decision["by"]) == (False, ["table:lake/s/salaries@main: default_deny"])


@pytest.mark.parametrize("operation", ["CreateTable", "CreateMaterializedView"])
@pytest.mark.parametrize("property", ["external_location", "EXTERNAL_LOCATION", "avro_schema_url"])
async def test_nobody_makes_a_table_of_the_files_of_others(client: TrinoClient, operation: str, property: str) -> None:
    table = {"catalogName": "k", "schemaName": "s", "tableName": "fresh"}
    for properties, allowed in (
        ({property: "s3://lake/salaries"}, False),
        ({property: None, "format": "ORC"}, True),
        ({"location": "s3://lake/fresh"}, True),
    ):
        asked = {"operation": operation, "resource": {"table": {**table, "properties": properties}}}
        assert await client.post("allow", asked, "eve") == (200, {"result": allowed}), properties


def column(table: str = "m", type: str = "varchar") -> dict[str, Any]:
    return {
        "column": {
            "catalogName": "k", "schemaName": "s", "tableName": table, "columnName": "c", "columnType": type,
        }
    }  # fmt: skip


async def test_masks_are_asked_of_one_table_at_a_time(client: TrinoClient) -> None:
    asked = {"operation": "GetColumnMask", "filterResources": [column("m"), column("n")]}
    status, answer = await client.post("batchColumnMasks", asked)
    assert (status, answer["error"]["code"]) == (400, "invalid_argument")
    assert await client.post("batchColumnMasks", {"operation": "GetColumnMask", "filterResources": []}) == (
        200,
        {"result": []},
    )


async def test_a_type_of_any_length_is_masked_at_once(client: TrinoClient) -> None:
    fields = ", ".join(f"f{at} varchar" for at in range(200_000))
    asked = {"operation": "GetColumnMask", "resource": column(type=f"row({fields})")}
    began = time.monotonic()
    assert await client.post("columnMask", asked) == (200, {"result": {"expression": "NULL"}})
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("endpoint", ["allow", "batch", "rowFilters", "columnMask", "batchColumnMasks"])
async def test_a_flood_of_objects_is_refused_before_they_are_made(client: TrinoClient, endpoint: str) -> None:
    flood = {"operation": "FilterTables", "filterResources": [{}] * 400_000}
    status, answer = await client.post(endpoint, flood)
    assert (status, answer["error"]["code"]) == (400, "too_many_checks")


async def test_a_newer_trino_may_say_null_for_what_is_not_there(client: TrinoClient) -> None:
    action = {
        "operation": "ExecuteQuery", "resource": None, "filterResources": None, "targetResource": None, "grantee": None,
    }  # fmt: skip
    assert await client.post("allow", action, groups=None) == (200, {"result": True})


async def test_what_no_answer_could_be_made_for_is_recorded(client: TrinoClient, tmp_path: Path) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("injected")

    client.http.service.pdp.bundle.row_access.restrict = broken  # type: ignore[method-assign]
    table = {"table": {"catalogName": "k", "schemaName": "s", "tableName": "m"}}
    asked = {"operation": "GetRowFilters", "resource": table}
    assert await client.post("rowFilters", asked) == (200, {"result": [{"expression": "false"}]})
    await client.http.service.stop()
    (record,) = audit_records(tmp_path)
    assert (record["surface"], record["checks"][0]["by"]) == ("trino", ["internal_failure"])
