"""Requests to the documents of Trino's plugin, as clients of OPA send them, and a service that answers them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from support.clients.http_client import Response
from support.service.serving import Process, serve_process

SETTINGS = {
    "warehouses": {"lake": {"project": "p1", "default_ref": "main"}},
    "policies": {"rules": ["rules.yaml"]},
    "store": {"url": "sqlite:///pdp.db"},
    "audit": {"sinks": [{"file": "audit"}]},
    "trino": {"catalogs": {"lakehouse": {"warehouse": "lake"}}},
}
RULES = {"rules": {"readers": "role == 'alice' && path.startsWith('sales.')"}}


def asks(user: str, endpoint: str = "allow") -> dict[str, Any]:
    """Return the body of a question of Trino about the table `sales.orders`."""
    named = {"catalogName": "lakehouse", "schemaName": "sales", "tableName": "orders"}
    column = {"column": {**named, "columnName": "a", "columnType": "varchar"}}
    actions: dict[str, dict[str, Any]] = {
        "allow": {"operation": "SelectFromColumns", "resource": {"table": {**named, "columns": ["a"]}}},
        "batch": {"operation": "FilterTables", "filterResources": [{"table": named}]},
        "rowFilters": {"operation": "GetRowFilters", "resource": {"table": named}},
        "columnMask": {"operation": "GetColumnMask", "resource": column},
        "batchColumnMasks": {"operation": "GetColumnMask", "filterResources": [column]},
    }
    return {"input": {"context": {"identity": {"user": user, "groups": []}}, "action": actions[endpoint]}}


@contextmanager
def opa_service(folder: Path, *arguments: str, **settings: Any) -> Iterator[Process]:
    """Start a service where Alice may read the tables of `sales`."""
    (folder / "pdp.yaml").write_text(yaml.safe_dump({**SETTINGS, **settings}))
    (folder / "rules.yaml").write_text(yaml.safe_dump(RULES))
    with serve_process(folder, "-c", "pdp.yaml", *arguments) as process:
        yield process


def send(service: Process, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
    """Send a request with no header but Host, Content-Length, and those given."""
    connection = http.client.HTTPConnection(service.addresses["http"], timeout=30)
    try:
        connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return Response(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()
