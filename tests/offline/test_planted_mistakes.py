"""Mistakes planted in policies with full coverage: the tests, their coverage or lint find each of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.paths import TESTS
from support.service.command_line import COMPOSITION

from pdp.cli.main import cli

PLANTED = TESTS / "offline" / "planted"
MISTAKES = {
    "a rule loses the condition on the ref": ("rules.yaml", " && ref == 'main' && path", " && path"),
    "a prefix loses its dot": ("rules.yaml", "path.startsWith('sales.')\"\n  view", "path.startsWith('sales')\"\n  view"),
    "a rule loses the condition on the role": ("rules.yaml", "'analyst' in roles && ", ""),
    "a rule permits one more operation": (
        "rules.yaml",
        "op == 'READ_ENTITY_VALUE'",
        "op in ['READ_ENTITY_VALUE', 'DELETE_ENTITY']",
    ),
    "a list gets one more operation": ("rules.yaml", "'UPDATE_ENTITY']", "'UPDATE_ENTITY', 'DELETE_REFERENCE']"),
    "a list loses an operation": ("rules.yaml", "op in ['CREATE_ENTITY', 'UPDATE_ENTITY']", "op == 'UPDATE_ENTITY'"),
    "a rule gets a back door": ("rules.yaml", "(ref == 'main'", "(role == 'mallory' || ref == 'main'"),
    "an or becomes an and": ("rules.yaml", "ref == 'main' || ", "ref == 'main' && "),
    "a misspelt role": ("rules.yaml", "(ref == 'main' || 'engineer' in", "(ref == 'main' || 'enginer' in"),
    "a misspelt operation": ("rules.yaml", "VIEW_REFERENCE", "VIEW_REFERENCES"),
    "a rule loses an exception": ("rules.yaml", " && !path.startsWith('sales.')", ""),
    "a rule for a stranger": ("rules.yaml", "rules:", "rules:\n  more: \"role == 'mallory'\""),
    "a rule for everybody": ("rules.yaml", "rules:", 'rules:\n  more: "true"'),
    "a misspelt forbidden path": ("forbid.yaml", "sales.secret.", "sales.secrets."),
    "a forbid without its exception": ("forbid.yaml", " && role != 'auditor'", ""),
    "a forbid with one more exception": ("forbid.yaml", "!= 'auditor'", "!= 'auditor' && role != 'mallory'"),
    "a forbid that is not configured": ("pdp.yaml", "forbid: [forbid.yaml]", "forbid: []"),
    "another default ref": ("pdp.yaml", "default_ref: main", "default_ref: dev1"),
    "a stronger privilege": ("world.yaml", "privilege: select", "privilege: ownership"),
    "a weaker privilege": ("world.yaml", "privilege: select", "privilege: describe"),
    "a grant on the container": ("world.yaml", "table:lake/stage/orders", "namespace:lake/stage"),
    "a grant on the warehouse": ("world.yaml", 'modify, object: "namespace:lake/stage"', 'modify, object: "warehouse:lake"'),
    "a grant to a stranger": (
        "world.yaml",
        "grants:",
        'grants:\n  - {principal: "user:oidc~mallory", privilege: select, object: "warehouse:lake"}',
    ),
    "one more member": (
        "world.yaml",
        "grants:",
        'grants:\n  - {principal: "user:oidc~mallory", privilege: assignee, object: "role:etl"}',
    ),
    "another member": ("world.yaml", "oidc~bob", "oidc~mallory"),
    "one more grantee of rows": ("rows.yaml", '["group:eu"]', '["group:eu", "user:mallory"]'),
    "another filter": ("rows.yaml", "region = 'EU'", "region <> 'US'"),
    "one more exempt member": ("rows.yaml", 'except: ["user:boss"]', 'except: ["user:boss", "user:mallory"]'),
    "a mask for few": ("rows.yaml", "[allUsers]", '["group:eu"]'),
    "a weaker mask": ("rows.yaml", "kind: hash", "kind: partial"),
}  # fmt: skip


def run(*arguments: str | Path) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, list(map(str, arguments)), obj=COMPOSITION)


def findings(folder: Path) -> str:
    """Return what the tests with their coverage, and lint, say about the policies of a folder; empty for nothing."""
    config = folder / "pdp.yaml"
    tested = run("test", folder / "tests.yaml", "-c", config, "--coverage-threshold", "100")
    linted = run("lint", "-c", config, "--strict")
    return "".join(result.output for result in (tested, linted) if result.exit_code)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PLANTED, tmp_path / "policies"))


def test_the_policies_without_a_mistake_are_covered(folder: Path) -> None:
    assert findings(folder) == ""


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(folder: Path, name: str) -> None:
    file, old, new = MISTAKES[name]
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    assert findings(folder) != ""


def test_a_removed_test_is_found(folder: Path) -> None:
    """Each test of the folder is needed for full coverage."""
    head, *tests = (folder / "tests.yaml").read_text().split("  - note: ")
    assert len(tests) > 5
    for left_out in range(len(tests)):
        kept = [test for at, test in enumerate(tests) if at != left_out]
        (folder / "tests.yaml").write_text("  - note: ".join([head, *kept]))
        assert "UNCOVERED" in findings(folder), tests[left_out]
