"""What each start loads: lines of this product, and packages of others. A merge of files must make no start heavier.

A start here is a process of the service, a group of commands, or the work of an executor. Most of a start's time goes
into modules that it loads. Raise a bound only for a feature that the start needs.
"""

from __future__ import annotations

import pytest
from support.service.commands import run_script

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
URLS = "idna multidict propcache yarl"
HTTP = f"{URLS} aiohappyeyeballs aiohttp aiosignal frozenlist"
TOKENS = "_cffi_backend cryptography jwt"
GRPC = "google grpc grpc_health grpc_reflection grpc_tools"
ALWAYS = {"_distutils_hack"}

STARTS = {
    "pdp.app": (320, ""),
    "pdp.app.run": (5_100, f"{VALUES} {LOGS}"),
    "pdp.app.workers.supervisor": (13_600, f"{VALUES} {LOGS} {URLS} immutables prometheus_client uuid_utils"),
    "pdp.app.workers.worker": (56_600, f"{VALUES} {LOGS} {POLICIES} {URLS} {GRPC} uvloop zstandard"),
    "pdp.app.serving": (56_200, f"{VALUES} {LOGS} {POLICIES} {URLS} {GRPC} uvloop zstandard"),
    "pdp.app.reload.loader_process": (34_100, f"{VALUES} {LOGS} {POLICIES}"),
    "pdp.rewrite.process.worker": (18_400, f"{VALUES} immutables mypy_extensions sqlglot uuid_utils"),
    "pdp.app.archived_bundle": (39_700, f"{VALUES} {LOGS} {POLICIES} {URLS}"),
    "pdp.cli.main": (780, f"click {LOGS}"),
    "pdp.cli.serve": (5_400, f"click {VALUES} {LOGS}"),
    "pdp.cli.check": (11_100, f"click {VALUES} immutables prometheus_client uuid_utils"),
    "pdp.cli.test.command": (39_700, f"click {VALUES} {LOGS} {POLICIES}"),
    "pdp.cli.lint": (37_700, f"click {VALUES} {LOGS} {POLICIES} {HTTP} {TOKENS} zstandard"),
    "pdp.cli.explain": (28_000, f"click {VALUES} {LOGS} {POLICIES}"),
    "pdp.cli.rewrite": (4_800, f"click {VALUES}"),
    "pdp.cli.trino_config": (5_100, f"click {VALUES}"),
    "pdp.cli.bundle": (5_300, f"click {VALUES}"),
    "pdp.cli.migrate": (40_300, f"click {VALUES} {LOGS} {POLICIES}"),
    "pdp.cli.config.command": (28_200, f"click {VALUES} {LOGS} {POLICIES} {HTTP} {TOKENS}"),
    "pdp.cli.config.init": (540, "click"),
    "pdp.cli.dry_run.command": (37_000, f"click {VALUES} {LOGS} {POLICIES} zstandard"),
    "pdp.cli.grants.command": (13_300, f"click {VALUES} {LOGS} immutables uuid_utils"),
    "pdp.cli.grants.policy": (8_100, f"click {VALUES} immutables uuid_utils"),
    "pdp.cli.audit": (16_700, f"click {VALUES} {LOGS} {RECORDS}"),
    "pdp.cli.lake": (100, "click"),
    "pdp.cli.lake.ingest": (5_100, f"click {VALUES} rich"),
    "pdp.cli.lake.replay": (37_300, f"click {VALUES} {LOGS} {POLICIES} zstandard"),
    "pdp.cli.lake.report": (5_100, f"click {VALUES} {LOGS}"),
    "pdp.cli.lake.suggest": (15_700, f"click {VALUES} {LOGS} {POLICIES}"),
    "pdp.cli.lake.history": (11_100, f"click {VALUES} immutables prometheus_client rich uuid_utils"),
    "pdp.cli.lake.demo": (5_300, f"click {VALUES} {LOGS}"),
    "pdp.lake.replay.tasks": (22_800, f"{VALUES} {LOGS} {RECORDS}"),
    "pdp.lake.ingest.passes": (6_800, "immutables msgspec numpy pyarrow typing_extensions zstandard uuid_utils"),
    "pdp.lake.demo.clock": (200, ""),
}
"""Module that a process or a command begins with -> most lines of this product, and packages of others."""


@pytest.mark.parametrize("module", STARTS)
def test_a_start_loads_no_more_than_it_needs(module: str) -> None:
    most, packages = STARTS[module]
    lines, others = run_script(LOAD, module)
    assert lines <= most
    assert set(others) - ALWAYS <= {*packages.split()}
