"""`pdp lint` and `pdp dry-run` for Cedar files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.service.commands import run_pdp

KEY = "nessie.server.authorization.rules"
pytestmark = pytest.mark.process

GOOD = '@id("a") permit(principal == Lakekeeper::User::"oidc~alice", action, resource);\n'
PERSON = [{"uid": {"type": "Lakekeeper::User", "id": "oidc~bob"}, "parents": [{"type": "Lakekeeper::Role", "id": "r"}]}]


def findings(*arguments: str, cwd: Path, code: int) -> list[tuple[Any, ...]]:
    ended = run_pdp("lint", "--format", "json", *arguments, cwd=cwd)
    assert ended.returncode == code, ended.stderr
    return [(each["code"], Path(each["file"]).name, each["line"], each["column"]) for each in json.loads(ended.stdout)]


def test_lint_finds_every_problem_of_cedar_files(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text(GOOD)
    assert findings(".", cwd=tmp_path, code=0) == []
    (tmp_path / "b.cedar").write_text(
        "permit(principal, action, resource) when { resource.nam == 1 };\n"
        '@id("b") permit(principal, action in Lakekeeper::Action::"Tables", resource);\n'
    )
    (tmp_path / "x.cedarentities.json").write_text('[\n{"uid": {"type": "Lakekeeper::Robot", "id": "x"}}]')
    found = findings(".", cwd=tmp_path, code=1)
    assert found[:2] == [("cedar-policy", "b.cedar", 1, 53), ("cedar-policy", "b.cedar", 2, 58)]
    assert found[2:] == [("cedar-entity", "x.cedarentities.json", 2, 1)]


def test_lint_remarks_on_policies_that_load(tmp_path: Path) -> None:
    other = 'Lakekeeper::Warehouse::"pond"'
    (tmp_path / "a.cedar").write_text(
        f'@id("g") forbid(principal, action, resource) when {{ {other} has protected && {other}.protected }};\n'
        f'@id("u") forbid(principal, action, resource) when {{ {other}.protected }};\n'
        "permit(principal, action, resource);\n"
    )
    expected = [("cedar-other-entity", "a.cedar", 2, 1), ("cedar-place-id", "a.cedar", 3, 1)]
    assert findings("a.cedar", cwd=tmp_path, code=0) == expected


def test_lint_of_a_configuration_has_its_cedar_files(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text("permit(principal, action, resource) when { context.x };")
    (tmp_path / "pdp.yaml").write_text(
        "authorities: {default: {engines: [cedar]}}\npolicies: {rules: [], cedar: {policies: [a.cedar]}}\n"
    )
    assert ("cedar-policy", "a.cedar", 1, 52) in findings(cwd=tmp_path, code=1)
    checked = run_pdp("config", "check", cwd=tmp_path)
    assert checked.returncode != 0
    assert "a.cedar:1:52" in checked.stdout + checked.stderr


def test_a_dry_run_compares_cedar_policies(tmp_path: Path) -> None:
    (tmp_path / "old.cedar").write_text(GOOD)
    (tmp_path / "new.cedar").write_text('@id("r") permit(principal in Lakekeeper::Role::"r", action, resource);')
    (tmp_path / "people.json").write_text(json.dumps(PERSON))
    checks = [
        {"principal": f"user:oidc~{name}", "action": "read_data", "resource": "table:lake/a/t"}
        for name in ("alice", "bob")
    ]
    (tmp_path / "checks.jsonl").write_text("\n".join(map(json.dumps, checks)))
    sides = ("--baseline", "old.cedar", "--candidate", "new.cedar", "people.json", "--checks", "checks.jsonl")
    ended = run_pdp("dry-run", *sides, "--format", "json", cwd=tmp_path)
    assert ended.returncode == 3, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["gained"], report["lost"]) == (1, 1)


SERVED = {
    "rules.properties": "nessie.server.authorization.rules.a=op=='VIEW_REFERENCE'\n",
    "rules.yaml": "rules: {b: \"op=='READ_ENTITY_VALUE'\"}\n",
    "forbid.yaml": "rules: {c: \"role=='mallory'\"}\n",
    "rows.yaml": "policies: [{id: eu, table: lake.s.t, grantees: [allAuthenticatedUsers], filter: \"region = 'EU'\"}]\n",
    "scopes.json": '[{"name": "a", "permissions": {"Query": [], "Mutation": []}}]\n',
    "scopes.yaml": "- {name: b, permissions: {Query: [], Mutation: []}}\n",
    "a.cedar": GOOD,
    "people.json": json.dumps(PERSON),
    "more.cedarentities.json": json.dumps(PERSON).replace("oidc~bob", "oidc~eve"),
    "world.yaml": "objects: [{object: 'project:p'}]\ngrants: []\n",
    "world.json": '{"grants": [{"principal": "user:oidc~a", "privilege": "select", "object": "project:p"}]}\n',
}
CONFIGURATION = """
warehouses: {lake: {}}
authorities: {default: {engines: [cel, grants, cedar, scopes], combine: any}}
store: {seed: world.yaml}
policies:
  rules: [rules.properties, rules.yaml]
  forbid: [forbid.yaml]
  row_access: [rows.yaml]
  scopes: {permissions: [scopes.json, scopes.yaml]}
  cedar: {policies: [a.cedar], entities: [people.json, more.cedarentities.json]}
"""


def test_lint_takes_every_file_that_serves(tmp_path: Path) -> None:
    for name, text in SERVED.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pdp.yaml").write_text(CONFIGURATION)
    assert run_pdp("config", "check", "-c", "pdp.yaml", cwd=tmp_path).returncode == 0
    ended = run_pdp("lint", *SERVED, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert "ignored-key" not in ended.stdout


@pytest.mark.parametrize("name", ["people.json", "world.json", "world.yaml"])
def test_lint_reads_a_file_by_its_content(tmp_path: Path, name: str) -> None:
    broken = {"people.json": '[{"uid": {"type": "Lakekeeper::Robot", "id": "x"}}]', "world.json": '{"grants": [1]}'}
    (tmp_path / name).write_text(broken.get(name, "objects: [1]\n"))
    [(code, *_)] = findings(name, cwd=tmp_path, code=1)
    assert code == ("cedar-entity" if name == "people.json" else "configuration")


ENDINGS: dict[str, tuple[str, str]] = {
    "a.YAML": ("rules:\n  a: 'op=='\n", "write the ending in lower case: `.yaml`"),
    "a.Yml": ("rules:\n  a: 'op=='\n", "write the ending in lower case: `.yml`"),
    "a.PROPERTIES": (f"{KEY}.a=op==\n", "write the ending in lower case: `.properties`"),
    "a.CEDAR": ("permit(principal, action, nothing);", "does not parse"),
    "a.CedarSchema": ("namespace {", "cedar-schema"),
    "rows.YAML": ("policies:\n  - {id: a}\n", "missing required field"),
    "rows.JSON": ('{"policies": [{"id": "a"}]}', "missing required field"),
    "permissions.JSON": ('[{"name": "*", "nope": 1}]', "permissions.JSON"),
    "capital.yaml": ("Rules:\n  a: 'op=='\n", "`Rules.a` is no rule and looks like one"),
    "rules.json": ('{"rules": {"a": "true"}}', "is skipped"),
    "keys.JSON": ('{"authorization": {"rules": {"a": "true"}}}', "is skipped"),
}
"""File of a folder -> its text, and words of the finding."""


@pytest.mark.parametrize("name", ENDINGS)
def test_lint_of_a_folder_reads_or_names_every_file_of_rules(tmp_path: Path, name: str) -> None:
    text, words = ENDINGS[name]
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / name).write_text(text)
    (tmp_path / "p" / "tests.json").write_text('{"rules": "x.yaml", "checks": [], "want": []}')
    ended = run_pdp("lint", "p", "--strict", cwd=tmp_path)
    assert (ended.returncode, words in ended.stdout) == (1, True), ended.stdout + ended.stderr
    assert "tests.json" not in ended.stdout


@pytest.mark.parametrize("beside", ["application-prod.properties", "application.YAML", "application-prod.yml"])
def test_lint_names_what_quarkus_reads_beside_a_rule_file(tmp_path: Path, beside: str) -> None:
    for name in ("application.properties", beside):
        (tmp_path / name).write_text(f"{KEY}.a=role=='x'\n")
    (tmp_path / "pdp.yaml").write_text("policies: {rules: [application.properties]}\n")
    checked = run_pdp("config", "check", cwd=tmp_path)
    for arguments in (["application.properties"], []):
        ended = run_pdp("lint", *arguments, cwd=tmp_path)
        (line,) = [line for line in ended.stdout.splitlines() if "Quarkus would read" in line]
        assert (beside in line, "warning" in line) == (True, True)
    assert line.partition("`policies.rules`")[2] in checked.stdout
    if beside == "application-prod.properties":
        assert "Quarkus would" not in run_pdp("lint", "application.properties", beside, cwd=tmp_path).stdout
