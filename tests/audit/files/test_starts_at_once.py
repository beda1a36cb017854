"""Starts of several instances in one folder at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pdp.audit.files.folder import AuditFolder

STARTS = 8
ROUNDS = 50


def test_instances_that_start_together_disturb_nobody(tmp_path: Path) -> None:
    """Each start looks for dead instances: a file for a lock may be one of an instance that begins just now."""
    together = threading.Barrier(STARTS)

    def start(number: int) -> None:
        for turn in range(ROUNDS):
            together.wait(30)
            folder = AuditFolder(tmp_path / "audit", f"{turn:03}{number:02}")
            together.wait(30)
            folder.close()

    with ThreadPoolExecutor(STARTS) as pool:
        for done in [pool.submit(start, number) for number in range(STARTS)]:
            done.result(60)
