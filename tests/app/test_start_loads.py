"""What each start loads: lines of this product, and packages of others. A merge of files must make no start heavier.

A start here is a process of the service, a group of commands, or the work of an executor. Most of a start's time goes
into modules that it loads. Raise a bound only for a feature that the start needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.paths import ROOT

pytestmark = pytest.mark.process

LOAD = """
import importlib, json, sys
from pathlib import Path
importlib.import_module(sys.argv[1])
lines, others = 0, set()
for name, module in list(sys.modules.items()):
    file = getattr(module, "__file__", None) or ""
    if name.partition(".")[0] == "pdp":
        lines += len(Path(file).read_text().splitlines()) if file.endswith(".py") else 0
    elif "site-packages" in file:
        others.add(name.partition(".")[0])
print(json.dumps([lines, sorted(others)]))
"""
VALUES = "annotated_types msgspec pydantic pydantic_core typing_extensions typing_inspection yaml"
LOGS = "attr greenlet pygments rich structlog"
RECORDS = "immutables prometheus_client uuid_utils zstandard"
POLICIES = "immutables javaproperties prometheus_client uuid_utils"
HTTP = "aiohappyeyeballs aiohttp aiosignal frozenlist idna multidict propcache yarl"
TOKENS = "_cffi_backend cryptography jwt"
GRPC = "google grpc grpc_health grpc_reflection grpc_tools"
ALWAYS = {"_distutils_hack"}

STARTS = {
    "pdp.app": (300, ""),
    "pdp.app.run": (4_300, f"{VALUES} {LOGS}"),
    "pdp.app.workers.supervisor": (12_500, f"{VALUES} {LOGS} {HTTP} immutables prometheus_client uuid_utils"),
    "pdp.app.workers.worker": (54_600, f"{VALUES} {LOGS} {POLICIES} {HTTP} {GRPC} uvloop zstandard"),
    "pdp.app.serving": (54_200, f"{VALUES} {LOGS} {POLICIES} {HTTP} {GRPC} uvloop zstandard"),
    "pdp.app.reload.loader_process": (34_800, f"{VALUES} {LOGS} {POLICIES}"),
    "pdp.rewrite.process.worker": (16_500, f"{VALUES} immutables mypy_extensions sqlglot uuid_utils"),
    "pdp.app.archived_bundle": (40_400, f"{VALUES} {LOGS} {POLICIES} {HTTP}"),
    "pdp.cli.main": (750, f"click {LOGS}"),
    "pdp.cli.serve": (4_700, f"click {VALUES} {LOGS}"),
    "pdp.cli.check": (9_700, f"click {VALUES} immutables prometheus_client uuid_utils"),
    "pdp.cli.test.command": (36_300, f"click {VALUES} {LOGS} {POLICIES}"),
    "pdp.cli.lint": (34_100, f"click {VALUES} {LOGS} {POLICIES} {HTTP} {TOKENS} zstandard"),
    "pdp.cli.explain.command": (25_400, f"click {VALUES} {LOGS} {POLICIES}"),
    "pdp.cli.rewrite": (4_100, f"click {VALUES}"),
    "pdp.cli.trino_config": (4_400, f"click {VALUES}"),
    "pdp.cli.bundle": (4_600, f"click {VALUES}"),
    "pdp.cli.migrate": (37_000, f"click {VALUES} {LOGS} {POLICIES}"),
    "pdp.cli.config.command": (25_200, f"click {VALUES} {LOGS} {POLICIES} {HTTP} {TOKENS}"),
    "pdp.cli.config.init": (540, "click"),
    "pdp.cli.dry_run.command": (33_900, f"click {VALUES} {LOGS} {POLICIES} zstandard"),
    "pdp.cli.grants.command": (11_900, f"click {VALUES} {LOGS} immutables uuid_utils"),
    "pdp.cli.grants.policy": (7_100, f"click {VALUES} immutables uuid_utils"),
    "pdp.cli.audit": (15_300, f"click {VALUES} {LOGS} {RECORDS}"),
    "pdp.cli.lake": (100, "click"),
    "pdp.cli.lake.ingest": (4_300, f"click {VALUES} rich"),
    "pdp.cli.lake.replay": (34_300, f"click {VALUES} {LOGS} {POLICIES} zstandard"),
    "pdp.cli.lake.report": (4_400, f"click {VALUES} {LOGS}"),
    "pdp.cli.lake.suggest": (14_400, f"click {VALUES} {LOGS} {POLICIES}"),
    "pdp.cli.lake.history": (9_900, f"click {VALUES} immutables prometheus_client rich uuid_utils"),
    "pdp.cli.lake.demo": (4_500, f"click {VALUES} {LOGS}"),
    "pdp.lake.replay.tasks": (21_500, f"{VALUES} {LOGS} {RECORDS}"),
    "pdp.lake.ingest.passes": (6_600, "immutables msgspec numpy pyarrow typing_extensions zstandard uuid_utils"),
    "pdp.lake.demo.clock": (200, ""),
}
"""Module that a process or a command begins with -> most lines of this product, and packages of others."""


@pytest.mark.parametrize("module", STARTS)
def test_a_start_loads_no_more_than_it_needs(module: str) -> None:
    most, packages = STARTS[module]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, module],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines, others = json.loads(done.stdout)
    assert lines <= most
    assert set(others) - ALWAYS <= {*packages.split()}
