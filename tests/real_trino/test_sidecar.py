"""`deploy/sidecar.yaml` with a real Trino: both containers in one network, as processes on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trino.dbapi
from support.clients.http_client import fetch
from support.oracles.containers import ADDRESS, pod_of
from support.servers.trino_distribution import VERSION
from support.servers.trino_server import Setup, trino_server
from support.service.deployment import probe_url, read_image, read_manifest
from trino.exceptions import TrinoQueryError

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

COUNT = "SELECT count(*) FROM tpch.tiny.nation"


def answer(port: int, user: str, sql: str) -> object:
    """Return the rows of a query, or the name of its error."""
    with trino.dbapi.Connection(
        host="127.0.0.1", port=port, user=user, max_attempts=1, request_timeout=30
    ) as connection:
        try:
            return connection.cursor().execute(sql).fetchall()
        except TrinoQueryError as error:
            return error.error_name


def test_a_trino_with_the_mounted_files_asks_the_service_beside_it(tmp_path: Path) -> None:
    manifest = read_manifest()
    mounted = manifest.mounted_files("trino", "/etc/trino")
    assert manifest.container("trino")["image"].endswith(f":{VERSION}")
    lines = dict(line.split("=", 1) for line in mounted["access-control.properties"].splitlines())
    (tmp_path / "pod").mkdir()
    (tmp_path / "trino").mkdir()
    with (
        pod_of(manifest, read_image(), tmp_path / "pod") as pod,
        trino_server(tmp_path / "trino", Setup(lines)) as server,
    ):
        assert answer(server.port, "Alice", COUNT) != [[25]], "Trino answers without the service"
        with pod.running("pdp") as process:
            url = probe_url(manifest.container("pdp"), "readinessProbe", ADDRESS)
            assert _in_time(lambda: _is_ready(url)), pod.log("pdp")
            assert answer(server.port, "Alice", COUNT) == [[25]]
            assert answer(server.port, "Bob", COUNT) == "PERMISSION_DENIED"
            grant = ("pdp", "grants", "add", "-c", "/etc/pdp/pdp.yaml", "user:oidc~Bob", "assignee", "role:analyst")
            granted = pod.execute("pdp", *grant)
            assert granted.returncode == 0, granted.stderr
            assert _in_time(lambda: answer(server.port, "Bob", COUNT) == [[25]])
            assert process.poll() is None, pod.log("pdp")


def _in_time(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def _is_ready(url: str) -> bool:
    try:
        return fetch(url, timeout=5).status == 200
    except OSError:
        return False
