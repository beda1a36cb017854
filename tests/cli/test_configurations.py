"""The configuration that a command takes: named, found or refused, and said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.clients.http_client import fetch
from support.service.commands import run_pdp
from support.service.serving import serve_process

pytestmark = pytest.mark.process

CHECK = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}
ASK = ["--principal", "user:oidc~Alice", "--action", "read_data", "--resource", "table:lake/Foo@prod"]
COMMANDS: dict[str, list[str]] = {
    "serve": [],
    "check": [],
    "explain": ASK,
    "config check": [],
    "grants list": [],
    "grants add": ["user:oidc~Bob", "select", "table:lake/Foo"],
    "grants remove": ["user:oidc~Bob", "select", "table:lake/Foo"],
    "grants move": ["table:lake/a", "table:lake/b"],
    "grants export": [],
    "grants import": ["world.json"],
    "trino-config": [],
}
"""Commands that take a configuration, with arguments that suffice otherwise."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_a_configuration_stops_and_says_what_to_do(tmp_path: Path, command: str) -> None:
    (tmp_path / "world.json").write_text("{}")
    ended = run_pdp(*command.split(), *COMMANDS[command], cwd=tmp_path)
    said = ended.stdout + ended.stderr
    assert ended.returncode == (1 if command == "config check" else 2), said
    assert "there is no configuration: write `pdp.yaml` here, give a file with -c" in said
    assert "--example" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["world.json"]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "serve"])
def test_a_command_says_which_configuration_it_took(tmp_path: Path, command: str) -> None:
    text = "policies: {rules: []}\nserver: {http: '127.0.0.1:1'}\n"
    for name in ("pdp.yaml", "other.yaml"):
        (tmp_path / name).write_text(text)
    (tmp_path / "world.json").write_text("{}")
    for option, file in (([], "pdp.yaml"), (["-c", "other.yaml"], "other.yaml"), (["--example"], "rules/pdp.yaml")):
        ended = run_pdp(*command.split(), *option, *COMMANDS[command], cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert ended.notes.count("pdp: configuration: `") == 1
        assert f"{file}`\n" in ended.notes
    ended = run_pdp(*command.split(), "--example", "-c", "other.yaml", *COMMANDS[command], cwd=tmp_path)
    assert (ended.returncode, "either -c or --example" in ended.stderr) == (2, True)


def test_policy_options_replace_those_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "all.properties").write_text("nessie.server.authorization.rules.all=true\n")
    asked = json.dumps(CHECK)
    ended = run_pdp("check", "--rules", "all.properties", stdin=asked, cwd=tmp_path)
    assert (json.loads(ended.stdout)["by"], ended.returncode) == (["cel:all"], 0)
    assert ended.notes == "pdp: configuration: none, so every setting has its default\n"
    (tmp_path / "pdp.yaml").write_text("policies: {rules: []}\nauthorities: {default: {engines: [grants]}}\n")
    ended = run_pdp("check", "--rules", "all.properties", stdin=asked, cwd=tmp_path)
    assert json.loads(ended.stdout)["allowed"] is False
    assert f"`{tmp_path / 'pdp.yaml'}`" in ended.notes


def test_a_seed_that_stands_in_for_a_database_is_said(tmp_path: Path) -> None:
    ended = run_pdp("check", "--example", stdin=json.dumps(CHECK), cwd=tmp_path)
    assert f"there is no database at `{tmp_path / 'pdp.db'}` yet, this is the seed" in ended.notes


RULES = "nessie.server.authorization.rules.all=true\n"


def test_recorded_decisions_are_compared_under_the_facts_of_their_service_alone(tmp_path: Path) -> None:
    """`10 lost` that nobody lost: the audit was decided with a database, the dry run judged by the seed."""
    grant = {"principal": "user:oidc~bob", "privilege": "select", "object": "table:lake/s/t"}
    (tmp_path / "grant.json").write_text(json.dumps({"grants": [grant]}))
    (tmp_path / "empty.yaml").write_text("grants: []")
    (tmp_path / "all.properties").write_text(RULES)
    (tmp_path / "pdp.yaml").write_text(
        "policies: {rules: []}\nauthorities: {default: {engines: [grants]}}\nstore: {seed: empty.yaml}\n"
    )
    assert run_pdp("grants", "import", "grant.json", cwd=tmp_path).returncode == 0
    with serve_process(tmp_path) as process:
        check = {"principal": "user:oidc~bob", "action": "read_data", "resource": "table:lake/s/t"}
        answer = fetch(process.url("/v1/check"), json.dumps({"checks": [check]}).encode()).json()
        assert answer["decisions"][0]["allowed"] is True
        process.terminate()
    compared = ["dry-run", "--audit", "audit", "--candidate", "all.properties"]
    ended = run_pdp(*compared, cwd=tmp_path)
    assert (ended.returncode, ended.notes) == (0, f"pdp: configuration: `{tmp_path / 'pdp.yaml'}`\n")
    (tmp_path / "pdp.db").rename(tmp_path / "elsewhere.db")
    ended = run_pdp(*compared, cwd=tmp_path)
    assert (ended.returncode, "there is no database at" in ended.stderr) == (2, True)
    ended = run_pdp(*compared, "--set", "store.url=sqlite:///elsewhere.db", cwd=tmp_path)
    assert ended.returncode == 0
    (tmp_path / "pdp.yaml").rename(tmp_path / "deployed.yaml")
    ended = run_pdp(*compared, cwd=tmp_path)
    assert (ended.returncode, "needs the configuration" in ended.stderr) == (2, True)


def test_the_start_is_one_line_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "r.properties").write_text("nessie.server.authorization.rules.a=true\n")
    (tmp_path / "f.properties").write_text("nessie.server.authorization.rules.f=role=='x'\n")
    (tmp_path / "rows.yaml").write_text("policies: [{id: p, table: lake.s.t, grantees: [allUsers], filter: x = 1}]")
    grants = [{"principal": "user:a~b", "privilege": name, "object": "table:lake/s/t"} for name in ("select", "modify")]
    (tmp_path / "world.json").write_text(json.dumps({"grants": grants}))
    (tmp_path / "pdp.yaml").write_text(
        "policies: {rules: [r.properties], forbid: [f.properties], row_access: [rows.yaml]}\n"
        "store: {url: 'file:world.json'}\n"
    )
    for arguments in ([], ["--workers", "2"]):
        with serve_process(tmp_path, *arguments) as process:
            lines = [json.loads(line) for line in process.stderr().splitlines() if '"serving"' in line]
            printed = (tmp_path / "stdout").read_text()
        assert len(lines) == 1
        said = lines[0]
        counts = {name: said[name] for name in ("rules", "forbids", "row_policies", "grants")}
        assert counts == {"rules": 1, "forbids": 1, "row_policies": 1, "grants": 2}
        assert said["configuration"] == str(tmp_path / "pdp.yaml")
        assert said["version"]
        assert {name: said[name] for name in ("http", "grpc", "diagnostics")} == process.addresses
        assert "Alice" not in printed


def test_the_example_says_that_it_is_one(tmp_path: Path) -> None:
    with serve_process(tmp_path, "--example") as process:
        assert '"configuration": "example"' in process.stderr()
        assert "These are the example policies" in (tmp_path / "stdout").read_text()
