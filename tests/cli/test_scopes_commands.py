"""Permission files of scopes on the command line: lint, dry runs, explanations and the check of a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.service.commands import run_pdp

pytestmark = pytest.mark.process
CONFIG = {
    "authorities": {"default": {"engines": ["grants"]}, "lakeql": {"engines": ["scopes"], "warehouses": ["hive"]}},
    "policies": {"rules": [], "scopes": {"permissions": ["permissions.json"], "strict": True}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pdp.yaml").write_text(json.dumps(CONFIG))
    write(tmp_path / "permissions.json", "events", "users")
    return tmp_path


def write(file: Path, *tables: str) -> None:
    rule = {"catalog": "hive", "schema": "raw", "tables": tables}
    file.write_text(json.dumps([{"name": "svc", "permissions": {"Query": [rule], "Mutation": []}}]))


def asked(table: str) -> dict[str, Any]:
    return {"principal": "user:oidc~svc", "action": "read_data", "resource": f"table:hive/raw/{table}"}


def test_lint_reads_files_folders_and_the_configuration(folder: Path) -> None:
    assert run_pdp("lint", "--strict", cwd=folder).returncode == 0
    write(folder / "permissions.json", "events", "*")
    for paths in ((), ("permissions.json",), (".",)):
        done = run_pdp("lint", "--format", "json", *paths, cwd=folder)
        found = json.loads(done.stdout)
        assert [(each["code"], each["rule"]) for each in found] == [("scopes-literal", "svc")]
        assert done.returncode == 1
    done = run_pdp("config", "check", cwd=folder)
    assert done.returncode != 0
    assert "`*` is no pattern: write whole names, or `*` as the first name for all tables" in done.stdout + done.stderr
    (folder / "permissions.json").write_text('[{"name": "svc", "permissions": {"Querry": []}}]')
    for command in (("lint",), ("config", "check")):
        done = run_pdp(*command, cwd=folder)
        assert done.returncode == 1
        assert "permissions.json:1:" in done.stdout
        assert "Querry" in done.stdout


def test_a_dry_run_finds_who_gains_and_who_loses(folder: Path) -> None:
    write(folder / "next.json", "users", "items")
    (folder / "checks.jsonl").write_text(
        "".join(json.dumps(asked(name)) + "\n" for name in ("events", "users", "items"))
    )
    sides = ("--baseline", "permissions.json", "--candidate", "next.json", "--checks", "checks.jsonl")
    done = run_pdp("dry-run", "-c", "pdp.yaml", *sides, cwd=folder)
    assert done.returncode == 3
    assert "2 of 3 checks different: 1 gained, 1 lost" in done.stdout
    assert "table:hive/raw/events  scopes:svc -> default_deny" in done.stdout


def test_an_explanation_names_the_rules_and_the_smallest_change(folder: Path) -> None:
    done = run_pdp("explain", "--principal", "user:oidc~svc", "--action", "read_data", "--resource",
                   "table:hive/raw/items", cwd=folder)  # fmt: skip
    assert "one more rule for svc in `Query` with catalog hive, schema raw, table items would permit it" in done.stdout
    assert "rule 0: hive.raw: events, users: does not match" in done.stdout


def test_deployed_permissions_decide_tests_with_a_configuration(folder: Path) -> None:
    case = {"note": "deployed", "checks": [asked("events"), asked("items")], "want": [True, False]}
    (folder / "tests.json").write_text(json.dumps([case, {**case, "note": "named", "permissions": "permissions.json"}]))
    assert run_pdp("test", "-c", "pdp.yaml", "tests.json", cwd=folder).returncode == 0
    other = {**case, "permissions": [{"name": "svc"}]}
    (folder / "tests.json").write_text(json.dumps([other]))
    done = run_pdp("test", "-c", "pdp.yaml", "tests.json", cwd=folder)
    assert done.returncode == 1
    assert "`permissions` of the test are not deployed" in done.stdout
