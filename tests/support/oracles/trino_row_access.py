"""A service with row policies and masks, and a client that asks about them as Trino does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

POLICIES = {
    "default": ["lake", "s"],
    "policies": [
        {"id": "eu", "table": "orders", "grantees": ["user:alice"], "filter": "region = 'EU'"},
        {"id": "all", "table": "orders", "grantees": ["user:boss"], "filter": "TRUE"},
        {"id": "dots", "table": "lake.a.b.t", "grantees": ["user:alice"], "filter": "x = 1"},
        {"id": "etl", "table": "roles", "grantees": ["role:etl"], "filter": "x = 1"},
    ],
    "masks": [
        {"id": "pay", "table": "people", "column": "Salary", "grantees": ["allUsers"], "except": ["user:boss"], "kind": "null"},
        {"id": "stars", "table": "people", "column": "name", "grantees": ["user:alice"], "kind": "partial"},
        {"id": "hash", "table": "people", "column": "name", "grantees": ["group:staff"], "kind": "hash"},
        {"id": "zero", "table": "people", "column": "name", "grantees": ["group:interns"], "kind": "constant", "expression": "x"},
    ],
}  # fmt: skip
WORLD = {
    "objects": [{"object": "role:etl", "parent": "project:p"}],
    "grants": [
        *({"principal": f"user:oidc~{who}", "privilege": "select", "object": "warehouse:lake"} for who in ("alice", "boss", "eve")),
        {"principal": "user:oidc~alice", "privilege": "assignee", "object": "role:etl"},
    ],
}  # fmt: skip


class RowAccessClient:
    """Client that asks a service about rows and columns as Trino asks."""

    def __init__(self, http: HttpClient) -> None:
        self.service = http.service
        self._http = http

    async def ask(
        self, endpoint: str, action: dict[str, Any], user: str = "alice", groups: tuple[str, ...] = ()
    ) -> Any:
        """Return the result that an endpoint answers, or the whole answer without a result."""
        context = {"identity": {"user": user, "groups": groups}, "queryId": "q1"}
        status, answer = await self._http.trino(endpoint, {"input": {"context": context, "action": action}})
        assert status == 200, answer
        return answer.get("result", answer)

    async def may(self, operation: str, table: str, user: str = "alice") -> bool:
        """Tell whether a user may use a table; the batch endpoint must agree."""
        allowed: bool = await self.ask("allow", {"operation": operation, "resource": named(table)}, user)
        batch = await self.ask("batch", {"operation": operation, "filterResources": [named(table)]}, user)
        assert batch == ([0] if allowed else [])
        return allowed

    async def rows(self, table: str, user: str = "alice", schema: str = "s") -> Any:
        """Return the row filters of a table."""
        return await self.ask("rowFilters", {"operation": "GetRowFilters", "resource": named(table, schema)}, user)

    async def masks(
        self, table: str, columns: dict[str, str], user: str = "alice", groups: tuple[str, ...] = ()
    ) -> Any:
        """Return the masks of columns by name; the endpoint for single columns must agree."""
        place = named(table)["table"]
        asked = [{"column": {**place, "columnName": name, "columnType": type}} for name, type in columns.items()]
        many = await self.ask(
            "batchColumnMasks", {"operation": "GetColumnMask", "filterResources": asked}, user, groups
        )
        found = {list(columns)[mask["index"]]: mask["viewExpression"]["expression"] for mask in many}
        for name, column in zip(columns, asked, strict=True):
            one = await self.ask("columnMask", {"operation": "GetColumnMask", "resource": column}, user, groups)
            assert one.get("expression") == found.get(name)
        return found


def named(table: str, schema: str = "s") -> dict[str, Any]:
    """Return a table as Trino names it."""
    return {"table": {"catalogName": "k", "schemaName": schema, "tableName": table}}


@asynccontextmanager
async def row_access_client(folder: Path) -> AsyncIterator[RowAccessClient]:
    """Start a service on WORLD and POLICIES, and yield a client of it."""
    (folder / "world.json").write_text(json.dumps(WORLD))
    (folder / "rows.json").write_text(json.dumps(POLICIES))
    config = {
        "store": {"url": "file:world.json"},
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": [], "row_access": ["rows.json"]},
        "trino": {"catalogs": {"k": {"warehouse": "lake", "ref": "main"}}},
    }
    async with client_of(settings_of(config, folder)) as http:
        yield RowAccessClient(http)
