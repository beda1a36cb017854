"""The modules that a service imports: those that its configuration needs, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT
from support.service.serving import FREE_PORTS

pytestmark = pytest.mark.process

SERVE = """
import asyncio, json, sys
from pathlib import Path
from pdp.app.process import quick_imports
with quick_imports():
    import pdp.cli.main, pdp.cli.serve
    from pdp.app.service import Service
from pdp.config.load import load_settings

async def start_and_stop():
    service = Service(load_settings(Path(sys.argv[1]), sys.argv[2:]))
    await service.start()
    await service.stop()

asyncio.run(start_and_stop())
print(json.dumps(sorted(sys.modules)))
"""
PLAIN = {
    "authorities": {"default": {"engines": ["cel", "grants"]}},
    "policies": {"rules": ["rules.properties"]},
}
RULES = "nessie.server.authorization.rules.a=op=='READ_ENTITY_VALUE' && role in ['Alice'] && path.startsWith('a.')\n"
UNUSED = {
    "alembic",
    "cryptography",
    "jwt",
    "mako",
    "pdp.audit.push.http",
    "pdp.audit.reader",
    "pdp.cli.dry_run.command",
    "pdp.cli.lint",
    "pdp.engines.cel.lint",
    "pdp.engines.row_access.validation",
    "pdp.offline",
    "psycopg",
    "re2",
    "rich",
    "sqlalchemy",
    "sqlglot",
}
"""Modules that neither start nor a decision by rules and grants needs."""
ROW_POLICY = """
policies:
  - {id: own, table: lake.sales.orders, grantees: ["user:Alice"], filter: "owner = 'Alice'"}
"""


def imported(folder: Path, settings: object) -> set[str]:
    """Return the modules of a service that has started in a new process."""
    (folder / "pdp.yaml").write_text(json.dumps(settings))
    (folder / "rules.properties").write_text(RULES)
    free = [f"server.{name}={value}" for name, value in FREE_PORTS.items()]
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(folder / "pdp.yaml"), *free],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_a_service_imports_no_module_that_it_does_not_need(tmp_path: Path) -> None:
    modules = imported(tmp_path, PLAIN)
    assert modules & UNUSED == set()
    assert {"pdp.engines.cel.engine", "pdp.surfaces.grpc.server", "pdp.store.sqlite"} <= modules


def test_an_import_of_rich_succeeds_after_the_quick_imports() -> None:
    script = "from pdp.app.process import quick_imports\nwith quick_imports(): pass\nimport gc, rich.console"
    done = subprocess.run([sys.executable, "-c", f"{script}\nassert gc.isenabled()"], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0


def test_row_policies_bring_the_parser_of_sql(tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text(ROW_POLICY)
    policies = {"rules": ["rules.properties"], "row_access": ["rows.yaml"]}
    assert "sqlglot" in imported(tmp_path, PLAIN | {"policies": policies})
