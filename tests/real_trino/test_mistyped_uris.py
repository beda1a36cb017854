"""Trino's URIs of the service, each mistyped: whatever the service answers at another path, no row more is shown.

A proxy between Trino and the service changes the path of one endpoint, as another URI in Trino's configuration would.
"""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.pages.scenarios import load
from support.servers.real_trino import GROUPS, LEFT_OUT, SQL_PATH, Stand, access_control, serving_policies
from support.servers.trino_distribution import java, server_folder
from support.servers.trino_server import Setup, trino_server

pytestmark = [pytest.mark.process, pytest.mark.timeout(300, func_only=True)]
ENDPOINTS = {
    "single": ("allow", "rowFilters", "columnMask"),
    "batched": ("allow", "batch", "rowFilters", "batchColumnMasks"),
}
"""How Trino asks -> the endpoints that it asks."""
QUESTIONS = ("SELECT * FROM lakehouse.staff.people", "SHOW TABLES FROM lakehouse.staff")


class Retyping:
    """A proxy that sends requests of one endpoint to another path."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.paths: dict[str, str] = {}
        self.sent = 0
        """Requests to a changed path."""


@contextmanager
def retyping(target: str) -> Iterator[tuple[Retyping, str]]:
    """Run a proxy before a service, and yield it with its URL."""
    shared = Retyping(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path = shared.paths.get(self.path, self.path)
            shared.sent += path != self.path
            headers = {"Content-Type": "application/json"}
            try:
                with urllib.request.urlopen(urllib.request.Request(f"{target}{path}", body, headers)) as response:
                    status, answer = response.status, response.read()
            except urllib.error.HTTPError as error:
                with error:
                    status, answer = error.code, error.read()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield shared, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture(scope="module", params=list(ENDPOINTS))
def behind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Stand, Retyping, str]]:
    server_folder()
    java()
    folder: Path = tmp_path_factory.mktemp("mistyped")
    (folder / "trino").mkdir()
    with serving_policies(folder / "pdp") as service, retyping(service.url("")) as (proxy, url):
        lines = access_control(service, LEFT_OUT[request.param])
        lines = {name: value.replace(service.url(""), url) for name, value in lines.items()}
        with trino_server(folder / "trino", Setup(lines, GROUPS, SQL_PATH)) as server:
            stand = Stand(server.port, service, server.seconds)
            assert stand.play("base") == []
            first = load("rows").steps[0]
            assert ask(stand, first.user, first.sql) is not None
            yield stand, proxy, request.param


def ask(stand: Stand, user: str, sql: str) -> list[object] | None:
    """Return the rows of a statement; None for an error."""
    step = replace(load("rows").steps[0], user=user, sql=sql)
    with stand._connect(user) as connection:
        found = stand._ask(step, connection)
    return None if found.error else [*(found.rows or ())]


def mistyped(path: str, mode: str) -> list[str]:
    """Return paths that a person may write in place of one: misspelt, in another case, and that of another endpoint."""
    others = [f"/v1/data/trino/{other}" for other in (*ENDPOINTS[mode], "batch", "batchColumnMasks")]
    return [path[:-1], path.lower() if path != path.lower() else path.upper(), f"{path}/", *sorted({*others} - {path})]


def test_a_mistyped_uri_shows_no_row_more(behind: tuple[Stand, Retyping, str]) -> None:
    stand, proxy, mode = behind
    meant = {sql: ask(stand, "ann", sql) for sql in QUESTIONS}
    assert all(meant.values())
    assert len(meant[QUESTIONS[0]] or ()) == 2
    for endpoint in ENDPOINTS[mode]:
        path = f"/v1/data/trino/{endpoint}"
        for wrong in mistyped(path, mode):
            proxy.paths, before = {path: wrong}, proxy.sent
            for sql, rows in meant.items():
                found = ask(stand, "ann", sql)
                assert all(row in (rows or ()) for row in found or ()), (endpoint, wrong, sql, found)
            assert proxy.sent > before, f"{endpoint} was not asked"
    proxy.paths = {}
    assert {sql: ask(stand, "ann", sql) for sql in QUESTIONS} == meant
