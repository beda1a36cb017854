"""Bursts of silent connections on each address of a service of one or several processes: probes are answered."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from support.clients.http_client import fetch
from support.service.serving import serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits]

FILES: Final = 1024
"""Usual limit of open files: a tenth of what is left is for diagnostics."""
BURST: Final = 400
PROBES: Final = 8
MOST_SECONDS: Final = 2.0
"""Longest answer to a probe, on a machine that does other work: kubelet waits a second by default, then tries again."""


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_silent_connections_reset_no_probe(tmp_path: Path, workers: int) -> None:
    with serve_process(tmp_path, "--workers", str(workers), limits={"NOFILE": FILES}) as process, ExitStack() as held:
        for listener in ("diagnostics", "http", "diagnostics"):
            host, _, port = process.addresses[listener].rpartition(":")
            for _ in range(BURST):
                held.enter_context(socket.create_connection((host, int(port))))
            for _ in range(PROBES):
                begun = time.monotonic()
                assert fetch(process.url("/health/live", "diagnostics")).status == 200
                assert fetch(process.url("/v1/version")).status == 404
                assert time.monotonic() < begun + MOST_SECONDS
        assert process.terminate() == 0
