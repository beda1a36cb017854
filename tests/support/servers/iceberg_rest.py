"""A real Iceberg REST catalog for tests: Apache Iceberg's own reference server, fetched once from Maven Central."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from support.servers.maven import fetched
from support.untested import not_tested

VERSION = "1.10.0"
ARTIFACT = f"org.apache.iceberg:iceberg-open-api:{VERSION}"
SHA256 = "99379edef1a65b51c40a63971ffab46d38966821af26ef6224bd217eeacae8d7"
JAR = Path.home() / ".cache" / "pdp-tests" / f"iceberg-open-api-{VERSION}.jar"
SUBJECT = "with a real catalog"
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "x", "required": False, "type": "int"}]}


def jar() -> Path:
    """The server's jar, checked; skips where it cannot be had."""
    if shutil.which("java") is None:
        not_tested(SUBJECT, "no `java` on the PATH")
    return fetched(ARTIFACT, JAR, SHA256, SUBJECT)


class IcebergServer:
    """The server, and what a test does to it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.uri = f"http://127.0.0.1:{port}"

    async def call(self, method: str, path: str, body: Any) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.uri}/v1/{path}", json=body) as response,
        ):
            assert response.status < 300, await response.text()
            return await response.json(content_type=None) if response.status == 200 and await response.read() else None

    async def create_namespace(self, *parts: str) -> None:
        await self.call("POST", "namespaces", {"namespace": parts, "properties": {}})

    async def create_view(self, namespace: str, name: str, properties: dict[str, str]) -> None:
        """`namespace` is encoded as in a path."""
        version = {
            "version-id": 1,
            "timestamp-ms": 1,
            "schema-id": 0,
            "summary": {},
            "default-namespace": ["a"],
            "representations": [{"type": "sql", "sql": "select 1 x", "dialect": "trino"}],
        }
        body = {"name": name, "schema": SCHEMA, "view-version": version, "properties": properties}
        await self.call("POST", f"namespaces/{namespace}/views", body)

    async def create_table(self, namespace: str, name: str, columns: dict[str, Any]) -> None:
        """`columns` has Iceberg's types; `namespace` is encoded as in a path."""
        await self.call("POST", f"namespaces/{namespace}/tables", {"name": name, "schema": schema_of(columns)})

    async def define_view(
        self, namespace: str, name: str, columns: dict[str, Any], texts: dict[str, str], **version: Any
    ) -> None:
        """A view with texts by dialect; `version` has more keys of the version."""
        default = version.pop("default_namespace", namespace.split("%1F"))
        texts_of = [{"type": "sql", "sql": sql, "dialect": dialect} for dialect, sql in texts.items()]
        body = {
            "version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}, "default-namespace": default,
            "representations": texts_of, **version,
        }  # fmt: skip
        view = {"name": name, "schema": schema_of(columns), "view-version": body, "properties": {}}
        await self.call("POST", f"namespaces/{namespace}/views", view)

    async def drop(self, path: str) -> None:
        """`path` is `<namespace>/tables/<name>` or `<namespace>/views/<name>`, encoded."""
        await self.call("DELETE", f"namespaces/{path}", None)

    async def set_properties(self, view: str, properties: dict[str, str]) -> None:
        """`view` is `<namespace>/views/<name>`, encoded."""
        updates = [{"action": "set-properties", "updates": properties}]
        await self.call("POST", f"namespaces/{view}", {"requirements": [], "updates": updates})


def schema_of(columns: dict[str, Any]) -> dict[str, Any]:
    fields = [
        {"id": number, "name": name, "required": False, "type": type}
        for number, (name, type) in enumerate(columns.items(), 1)
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


@contextmanager
def iceberg_server(folder: Path) -> Iterator[IcebergServer]:
    """A running server with its own empty catalog."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # by default the tables are in the memory of one connection, and gone when the server's pool opens another
    database = f"jdbc:sqlite:{folder / 'catalog.db'}"
    settings = {"CATALOG_REST_PORT": str(port), "CATALOG_WAREHOUSE": folder.as_uri(), "CATALOG_URI": database}
    command = ["java", "-Xmx256m", "-cp", str(jar()), "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log, cwd=folder)
    try:
        _await(process, port, folder)
        yield IcebergServer(process, port)
    finally:
        process.kill()
        process.wait(10)


def _await(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"the catalog did not start: {(folder / 'server.log').read_text()[-2000:]}")
