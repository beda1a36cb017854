"""Tests of dry runs over files of checks and over the audit of a real service."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.clients.http_client import client_of
from support.generators import worlds
from support.generators.generated_pdps import decide, decide_and_record, make_pdp
from support.oracles.audit_files import audit_records, audit_text
from support.paths import ROOT
from support.service.command_line import COMPOSITION
from support.service.commands import run_pdp
from support.service.serving import settings_of

from pdp.audit import reader as audit_reader
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import MAX_NAMED, ReadReport, RecordedOutcome, RecordFilter, ReplayCheck
from pdp.audit.records.rows import rows
from pdp.audit.records.writing import RecordEncoder
from pdp.cli.dry_run.command import dry_run
from pdp.cli.dry_run.report import DryRunReport, as_json
from pdp.cli.dry_run.sides import files_by_kind, side_settings
from pdp.decision.codec import decode_checks
from pdp.decision.service import Pdp
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.offline.replay import differences
from pdp.offline.replay import replay as replay_module
from pdp.offline.replay.differences import Differences, SmallestKeys
from pdp.offline.replay.replay import replay

STORIES = ROOT / "rules" / "stories.properties"
RECORDED = ROOT / "tests" / "recorded" / "trino"
OPEN_FOO = ("path=='Foo' && role in ['Alice', 'Dave']", "path=='Foo' && role in ['Alice', 'Bob', 'Dave']")
PEOPLE = ["Alice", "Bob", "Carol", "Dave"]
CHECKS = [
    {"principal": f"user:oidc~{name}", "action": action, "resource": f"table:lake/{table}"}
    for name in PEOPLE
    for table in ["Foo@prod", "BobsBar@prod", "CarolsSecret@prod", "DavesHiddenX@prod", "Foo@dave-experiment"]
    for action in ["read_data", "write_data", "get_metadata"]
]


def invoke(*arguments: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(dry_run, [str(argument) for argument in arguments], input=stdin, obj=COMPOSITION)


def run(*arguments: str | Path, stdin: str = "") -> tuple[int, Any]:
    """Return the exit code and the JSON report."""
    done = invoke(*arguments, "--format", "json", stdin=stdin)
    assert done.exit_code in (0, 3), done.output
    return done.exit_code, json.loads(done.stdout)


def bad(*arguments: str | Path, stdin: str = "") -> str:
    """Run with bad input; return the line on stderr."""
    done = invoke(*arguments, stdin=stdin)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("pdp: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def lines(folder: Path, checks: Iterable[Any] = CHECKS) -> Path:
    file = folder / "checks.jsonl"
    file.write_text("".join(json.dumps(check) + "\n" for check in checks))
    return file


def rules(folder: Path, name: str, texts: Mapping[str, str]) -> Path:
    file = folder / name
    file.write_text(yaml.safe_dump({"rules": dict(texts)}))
    return file


def edited(folder: Path, *edits: tuple[str, str]) -> Path:
    """Write the example rules with texts replaced; return the file."""
    text = STORIES.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    file = folder / "edited.properties"
    file.write_text(text)
    return file


# --- edits ------------------------------------------------------------------------------------------------------


def test_opening_foo_to_bob_is_one_gain(tmp_path: Path) -> None:
    new = edited(tmp_path, OPEN_FOO)
    code, report = run("--baseline", STORIES, "--candidate", new, "--checks", lines(tmp_path))
    assert code == 3
    assert (report["checks"], report["different"], report["gained"]) == (len(CHECKS), 2, 2)
    assert {group["action"] for group in report["groups"]} == {"read_data", "get_metadata"}
    group = next(group for group in report["groups"] if group["action"] == "read_data")
    assert (group["change"], group["principal"], group["container"]) == ("gained", "user:oidc~Bob", "warehouse:lake")
    assert group["objects"] == [
        {
            "resource": "table:lake/Foo@prod",
            "delegated": False,
            "checks": 1,
            "before": {"allowed": False, "by": ["default_deny"], "errors": []},
            "after": {"allowed": True, "by": ["cel:reading_foo_on_prod"], "errors": []},
        }
    ]


def test_closing_foo_is_a_loss_and_equal_checks_are_counted(tmp_path: Path) -> None:
    old = edited(tmp_path, OPEN_FOO)
    bob = {"principal": "user:oidc~Bob", "action": "read_data", "resource": "table:lake/Foo@prod"}
    checks = lines(tmp_path, [bob, *CHECKS[:3], bob, {**bob, "context": {"queryId": "q"}}])
    code, report = run("--baseline", old, "--candidate", STORIES, "--checks", checks)
    assert (code, report["lost"], report["gained"], report["checks"]) == (3, 3, 0, 6)
    assert report["groups"][0]["objects"][0]["checks"] == 3


def test_another_reason_is_a_difference(tmp_path: Path) -> None:
    new = edited(tmp_path, ("rules.reading_foo_on_prod", "rules.foo"))
    code, report = run("--baseline", STORIES, "--candidate", new, "--checks", lines(tmp_path))
    assert (code, report["gained"], report["lost"]) == (3, 0, 0)
    assert report["reason"] == report["different"] == 4
    first = report["groups"][0]["objects"][0]
    assert (first["before"]["by"], first["after"]["by"]) == (["cel:reading_foo_on_prod"], ["cel:foo"])


def test_rules_that_start_or_stop_raising(tmp_path: Path) -> None:
    calm = rules(tmp_path, "calm.yaml", {"v": "op=='VIEW_REFERENCE'", "x": "false"})
    raising = rules(tmp_path, "raising.yaml", {"v": "op=='VIEW_REFERENCE'", "x": "roles[7]=='x'"})
    checks = lines(tmp_path, [{"principal": "user:oidc~a", "action": "read_data", "resource": "table:w/t@main"}])
    code, report = run("--baseline", calm, "--candidate", raising, "--checks", checks)
    assert (code, report["errors"], report["errorsAppeared"], report["errorsVanished"]) == (3, 1, {"x": 1}, {})
    code, report = run("--baseline", raising, "--candidate", calm, "--checks", checks)
    assert (code, report["errors"], report["errorsAppeared"], report["errorsVanished"]) == (3, 1, {}, {"x": 1})


def test_a_forbid_on_one_side_takes_access(tmp_path: Path) -> None:
    forbid = rules(tmp_path, "forbid.yaml", {"nobody": "role=='Alice'"})
    both = ("--baseline", STORIES, "--candidate", STORIES, "--checks", lines(tmp_path))
    code, report = run(*both, "--forbid-candidate", forbid)
    assert code == 3
    assert {group["principal"] for group in report["groups"] if group["change"] == "lost"} == {"user:oidc~Alice"}
    assert report["gained"] == 0 < report["lost"]
    back = run(*both, "--forbid-baseline", forbid)[1]
    assert (back["gained"], back["lost"]) == (report["lost"], 0)
    assert run(*both, "--forbid-baseline", forbid, "--forbid-candidate", forbid)[0] == 0


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_grant_more_is_a_gain(tmp_path: Path, suffix: str) -> None:
    old, new = tmp_path / f"old.{suffix}", tmp_path / f"new.{suffix}"
    grant = {"principal": "user:oidc~Carol", "privilege": "select", "object": "namespace:lake/sales"}
    old.write_text(json.dumps({"objects": ["project:demo"], "grants": []}))
    new.write_text(json.dumps({"objects": ["project:demo"], "grants": [grant]}))
    check = {"action": "read_data", "resource": "table:lake/sales/orders@prod"}
    checks = lines(tmp_path, [{"principal": f"user:oidc~{name}", **check} for name in PEOPLE])
    code, report = run("--baseline", STORIES, old, "--candidate", STORIES, new, "--checks", checks)
    assert (code, report["gained"], report["lost"]) == (3, 1, 0)
    group = report["groups"][0]
    assert (group["principal"], group["container"]) == ("user:oidc~Carol", "namespace:lake/sales@prod")
    reason = "grants:select on namespace:lake/sales via user:oidc~Carol"
    assert group["objects"][0]["after"]["by"] == [reason]


def test_the_implicit_rule_is_named_when_an_edit_toggles_it(tmp_path: Path) -> None:
    off = rules(tmp_path, "off.yaml", {"a": "op=='VIEW_REFERENCE' && role=='Alice'", "b": "op=='READ_ENTRIES'"})
    on = rules(tmp_path, "on.yaml", {"b": "op=='READ_ENTRIES'"})
    check = {"principal": "user:oidc~Bob", "action": "VIEW_REFERENCE", "resource": "reference:lake@prod"}
    checks = lines(tmp_path, [check])
    _, report = run("--baseline", off, "--candidate", on, "--checks", checks)
    assert report["implicitRule"] == {"baseline": False, "candidate": True, "toggled": True}
    text = invoke("--baseline", off, "--candidate", on, "--checks", checks).stdout
    assert "turns on Nessie's implicit rule" in text
    text = invoke("--baseline", on, "--candidate", off, "--checks", checks).stdout
    assert "turns off Nessie's implicit rule" in text
    assert "implicit rule" not in invoke("--baseline", on, "--candidate", on, "--checks", checks).stdout


def test_shared_settings_and_settings_of_one_side(tmp_path: Path) -> None:
    config = tmp_path / "pdp.yaml"
    config.write_text(
        yaml.safe_dump({"warehouses": {"lake": {"default_ref": "prod"}}, "policies": {"rules": [str(STORIES)]}})
    )
    other = tmp_path / "other.yaml"
    other.write_text(
        yaml.safe_dump({"warehouses": {"lake": {"default_ref": "x"}}, "policies": {"rules": [str(STORIES)]}})
    )
    checks = lines(
        tmp_path, [{"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo"}] * 2
    )
    assert run("-c", config, "--candidate", config, "--checks", checks)[0] == 0
    assert run("-c", config, "--candidate", STORIES, "--checks", checks)[0] == 0
    assert run("-c", config, "--baseline", other, "--candidate", STORIES, "--checks", checks)[1]["gained"] == 2
    assert run("-c", config, "--candidate", other, "--checks", checks)[1]["lost"] == 2
    assert (
        run("-c", config, "--set", "warehouses.lake.default_ref=x", "--candidate", STORIES, "--checks", checks)[0] == 0
    )


# --- output -----------------------------------------------------------------------------------------------------


def test_the_text_says_who_and_why(tmp_path: Path) -> None:
    new = edited(tmp_path, OPEN_FOO)
    done = invoke("--baseline", STORIES, "--candidate", new, "--checks", lines(tmp_path))
    assert done.exit_code == 3
    assert done.stdout.splitlines()[0] == f"2 of {len(CHECKS)} checks different: 2 gained"
    assert "gains access: 2 checks" in done.stdout
    assert "  user:oidc~Bob\n" in done.stdout
    assert "table:lake/Foo@prod  default_deny -> cel:reading_foo_on_prod" in done.stdout
    same = invoke("--baseline", STORIES, "--candidate", STORIES, "--checks", lines(tmp_path))
    assert (same.exit_code, same.stdout) == (0, f"no difference in {len(CHECKS)} checks\n")


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.properties", "", "rules"),
        ("a.yaml", "", "rules"),
        ("a.yaml", "rules: {}", "rules"),
        ("a.yaml", "grants: []", "world"),
        ("a.json", '{"objects": []}', "world"),
        ("a.json", "[", "world"),  # its reader names the place
        ("a.yaml", "policies: []", "rows"),
        ("a.yaml", "policies: {}", "settings"),
        ("a.yaml", "masks: []", "rows"),
        ("a.json", '{"tables": {}}', "rows"),
        ("a.json", '{"policies": [{"id": "p"}]}', "rows"),
        ("a.yaml", "authorities: {}", "settings"),
    ],
)
def test_suffix_and_first_key_tell_the_kind_of_a_file(tmp_path: Path, name: str, text: str, kind: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert {key for key, files in files_by_kind([str(file)]).items() if files} == {kind}


def test_row_policies_of_a_side_replace_those_of_its_settings(tmp_path: Path) -> None:
    (tmp_path / "pdp.yaml").write_text("policies: {row_access: [old.yaml]}")
    (tmp_path / "new.yaml").write_text("policies: []")
    settings = side_settings(None, (), [str(tmp_path / "pdp.yaml"), str(tmp_path / "new.yaml")], ())
    assert settings.policies.row_access == (str(tmp_path / "new.yaml"),)


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    on = rules(tmp_path, "on.yaml", {"a\u202eb": "true"})
    off = rules(tmp_path, "off.yaml", {"a": "false"})
    checks = lines(
        tmp_path,
        [{"principal": "user:oidc~x\u202ey", "action": "READ_ENTITY_VALUE", "resource": "table:w/a\u2066b[red]@m"}],
    )
    text = invoke("--baseline", off, "--candidate", on, "--checks", checks).stdout
    assert "user:oidc~x\\u202ey" in text
    assert "table:w/a\\u2066b[red]@m" in text
    assert "cel:a\\u202eb" in text
    assert all(sign.isprintable() or sign == "\n" for sign in text)


@pytest.mark.process
def test_stdin_and_the_exit_codes_of_a_process(tmp_path: Path) -> None:
    text = "".join(json.dumps(check) + "\n" for check in CHECKS)
    new = str(edited(tmp_path, OPEN_FOO))
    same = run_pdp("dry-run", "--baseline", str(STORIES), "--candidate", str(STORIES), "--checks", "-", stdin=text)
    assert (same.returncode, same.stderr) == (0, "")
    other = run_pdp("dry-run", "--baseline", str(STORIES), "--candidate", new, "--checks", "-", stdin=text)
    assert (other.returncode, other.stderr) == (3, "")


def test_a_list_of_resources_counts_for_each_and_is_named_by_its_line(tmp_path: Path) -> None:
    listed = {"principal": "user:oidc~Bob", "action": "read_data", "resources": ["table:lake/Foo@prod"] * 2}
    _, report = run("--baseline", STORIES, "--candidate", STORIES, "--checks", lines(tmp_path, [*CHECKS, listed]))
    assert report["checks"] == len(CHECKS) + 2
    wrong = json.dumps({**listed, "resources": ["server", "?"]})
    both = ("--baseline", STORIES, "--candidate", STORIES, "--checks", "-")
    assert "<stdin>:2: " in bad(*both, stdin=f"{json.dumps(listed)}\n{wrong}\n{{}}\n")


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    checks, both = lines(tmp_path), ("--baseline", STORIES, "--candidate", STORIES)
    assert "either --checks or --audit" in bad(*both)
    assert "either --checks or --audit" in bad(*both, "--checks", checks, "--audit", tmp_path)
    assert "needs a --baseline" in bad("--candidate", STORIES, "--checks", checks)
    assert "give a --candidate" in bad("--baseline", STORIES, "--checks", checks)
    assert "choose records of --audit" in bad(*both, "--checks", checks, "--since", "2026-01-01")
    assert "cannot read" in bad(*both, "--checks", tmp_path / "none")
    assert "no audit in" in bad(*both, "--audit", tmp_path)
    assert "choose records of --audit" in bad(*both, "--checks", checks, "--listings")
    assert "is no time" in bad(*both, "--audit", tmp_path, "--since", "yesterday")
    assert "<stdin>:2: " in bad(*both, "--checks", "-", stdin=json.dumps(CHECKS[0]) + '\n{"principal":\n')
    (tmp_path / "x.rego").write_text("")
    assert "ends in none of" in bad("--baseline", tmp_path / "x.rego", "--candidate", STORIES, "--checks", checks)
    (tmp_path / "x.yaml").write_text("permissions: []")
    assert "begins with the key `permissions`" in bad(*both[:2], "--candidate", tmp_path / "x.yaml", "--checks", checks)
    (tmp_path / "y.yaml").write_text("rules: {a: 'op =='}")
    assert "y.yaml:1:" in bad(*both[:2], "--candidate", tmp_path / "y.yaml", "--checks", checks)
    (tmp_path / "z.yaml").write_text("\t")
    assert "is not YAML" in bad(*both[:2], "--candidate", tmp_path / "z.yaml", "--checks", checks)
    world = ROOT / "rules" / "world.yaml"
    assert "second world file" in bad(*both, world, world, "--checks", checks)
    assert "cannot read" in bad(*both[:2], "--candidate", tmp_path / "none.yaml", "--checks", checks)


# --- an audit folder --------------------------------------------------------------------------------------------

WORLD: dict[str, Any] = {
    "objects": [
        "project:p",
        {"object": "warehouse:lake", "parent": "project:p"},
        {"object": "role:etl", "parent": "project:p"},
    ],
    "grants": [
        {"principal": "user:oidc~alice", "privilege": "select", "object": "namespace:lake/s"},
        {"principal": "user:oidc~bob", "privilege": "assignee", "object": "role:etl"},
        {"principal": "role:etl", "privilege": "modify", "object": "namespace:lake/s"},
        {"principal": "role:etl", "privilege": "create", "object": "namespace:lake/target"},
    ],
}
CONFIG: dict[str, Any] = {
    "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
    "store": {"url": "file:world.json"},
    "policies": {"rules": ["rules.yaml"]},
    "trino": {
        "catalogs": {name: {"warehouse": "lake"} for name in ("iceberg", "memory")},
        "groups": {"stewards": "etl"},
        "admin_users": ["root"],
        "impersonation": {"alice": ["bob"]},
    },
}
RULES = {
    "reads": "op in ['VIEW_REFERENCE', 'READ_ENTITY_VALUE', 'READ_CONTENT_KEY'] && role=='carol'",
    "delegated": "op in ['VIEW_REFERENCE', 'READ_ENTITY_VALUE'] && delegated",
    "delta": "op=='READ_ENTITY_VALUE' && contentType=='DELTA_LAKE_TABLE'",
    "api": "op=='READ_ENTITY_VALUE' && api.apiName=='Iceberg' && 'x' in actions",
    "raising": "roles[3]=='x' && op=='DELETE_ENTITY'",
    "renames": "'CATALOG_RENAME_ENTITY_TO' in actions && op=='CREATE_ENTITY' && path=='target.t' && role=='bob'",
}
PRINCIPALS: list[Any] = [
    "user:oidc~alice",
    "user:oidc~bob",
    {"id": "user:oidc~carol", "roles": ["a", "b"], "groups": ["g"], "attributes": {"z": 1, "a": {"k": "\u2028"}}},
    "role:etl",
    "anonymous",
]
RESOURCES: list[tuple[str, Any]] = [
    ("read_data", "table:lake/s/t"),
    ("read_data", "table_or_view:lake/s/t@dev"),
    ("select", "view:lake/s/v"),
    ("drop", "table:lake/s/t"),
    ("create_table", "namespace:lake/target"),
    ("get_config", "warehouse:lake"),
    ("VIEW_REFERENCE", "reference:lake@main"),
    ("READ_ENTITY_VALUE", "content:lake/s/t"),
    ("READ_REPOSITORY_CONFIG", "repository_config:lake/GARBAGE_COLLECTOR"),
    ("read_data", {"type": "table", "warehouse": "lake", "path": ["s", "a/b@c%"], "contentType": "DELTA_LAKE_TABLE"}),
    (
        "read_data",
        {"type": "table_or_view", "warehouse": "lake", "path": ["s", "x"], "contentType": "DELTA_LAKE_TABLE"},
    ),
    ("fly", "table:lake/s/t"),
    ("get_metadata", {"type": "project", "name": "p%/@", "id": "7"}),
    ("list_users", "server"),
]


def native_checks() -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = []
    for principal in PRINCIPALS:
        for action, resource in RESOURCES:
            check = {"principal": principal, "action": action, "resource": resource}
            checks += [check, {**check, "delegated": True}]
            checks.append({**check, "actingRole": "role:etl"})
            context = {"api": {"name": "Iceberg", "version": 1}, "actions": ["x"], "queryId": "q1"}
            checks.append({**check, "context": context})
        for table in ("table:lake/s/t", "table_or_view:lake/s/t", "view:lake/s/t"):
            for target in ("table:lake/target/t", "table:lake/closed/t@dev", "table_or_view:lake/target/t"):
                rename = {"principal": principal, "action": "rename", "resource": table}
                rename["context"] = {"arguments": {"destination": target, "name": "n"}}
                checks += [rename, {**rename, "delegated": True}, {**rename, "actingRole": "role:etl"}]
                checks.append({**rename, "action": "trino:RenameTable"})
        checks += (
            {"principal": principal, "action": "read_data", "resource": f"table:lake/{space}/t{number}"}
            for space in ("s", "closed")
            for number in range(40)
        )
    return [*checks, {"principal": "nobody", "action": "read_data", "resource": "server"}]


def trino_bodies() -> list[tuple[str, Any]]:
    """Return recorded bodies of a real Trino, some of them for other users, and a large batch."""
    found = []
    for text in (RECORDED / "requests.jsonl").read_text().splitlines():
        line = json.loads(text)
        found.append((line["endpoint"], line["request"]))
    for text in (RECORDED / "sequences.jsonl").read_text().splitlines()[::7]:
        found += ((request["endpoint"], request["request"]) for request in json.loads(text)["requests"])
    others = json.loads(json.dumps(found[::3]))
    for number, (_, body) in enumerate(others):
        body["input"]["context"]["identity"] = {"user": ["root", "carol", "bob"][number % 3], "groups": ["stewards"]}

    def listing(operation: str, named: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        action = {"operation": operation, "filterResources": named}
        return "batch", {"input": {"context": {"identity": {"user": "alice", "groups": []}}, "action": action}}

    def tables(schemas: int) -> list[dict[str, Any]]:
        names = [(f"s{n % schemas or ''}", f"t{n}") for n in range(500)]
        return [{"table": {"catalogName": "iceberg", "schemaName": s, "tableName": t}} for s, t in names]

    listings = [listing("FilterTables", tables(1)), listing("FilterTables", tables(3))]
    return [*found, *others, *listings, listing("FilterCatalogs", [{"catalog": {"name": "iceberg"}}] * 40)]


async def _serve(folder: Path) -> None:
    settings = settings_of(CONFIG, folder)
    async with client_of(settings) as client:
        status, answer = await client.check(*native_checks())
        assert status == 200, answer
        for check in native_checks()[::11]:
            assert (await client.check(check))[0] == 200
        for endpoint, body in trino_bodies():
            assert (await client.trino(endpoint, json.dumps(body)))[0] == 200


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with policies, pdp.yaml and the audit of a real service. Tests must not write there."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "world.json").write_text(json.dumps(WORLD))
    rules(folder, "rules.yaml", RULES)
    (folder / "pdp.yaml").write_text(yaml.safe_dump(CONFIG))
    asyncio.run(_serve(folder))
    return folder


@pytest.mark.parametrize("baseline", [(), ("--baseline", "pdp.yaml")])
def test_the_same_policies_repeat_the_decisions_of_an_audit(served: Path, baseline: Sequence[str]) -> None:
    given_baseline = [served / name if name.endswith(".yaml") else name for name in baseline]
    code, report = run(*given_baseline, "--candidate", served / "pdp.yaml", "--audit", served / "audit")
    assert report["groups"] == []
    assert code == 0
    counts = report["input"]
    assert counts["checks"] == report["checks"] > 2000
    assert (counts["skipped"], counts["torn"], counts["filtered"]) == ([], [], 0)
    assert counts["rejected"] == sum(
        "error" in row for record in records(served) for row in record["checks"] if "resources" not in row
    )
    assert report["implicitRule"] == {"baseline": False, "candidate": False, "toggled": False}


def records(folder: Path) -> list[Any]:
    return audit_records(folder)


def test_every_decision_of_an_audit_is_read_or_counted(served: Path) -> None:
    reading = ReadReport()
    read = list(read_audit(served / "audit", reading))
    wanted = {
        (record["id"], at)
        for record in records(served)
        if record["event"] == "decision"
        for at in (row["at"] for row in rows(record))
    }
    assert reading.row_filters == sum(record["event"] == "filter" for record in records(served)) > 0
    assert reading.events == 3
    assert len(read) + reading.rejected == len(wanted)
    assert {(one.decision, one.at) for one in read} <= wanted
    assert {type(entry.get("resources")) for record in records(served) for entry in record["checks"]} == {
        list,
        dict,
        type(None),
    }
    assert len({one.check.question.principal.attributes for one in read}) == 2


def test_an_edit_is_compared_with_the_recorded_decisions(served: Path, tmp_path: Path) -> None:
    world = tmp_path / "world.json"
    fewer = {**WORLD, "grants": [grant for grant in WORLD["grants"] if grant["principal"] != "user:oidc~alice"]}
    world.write_text(json.dumps(fewer))
    code, report = run("-c", served / "pdp.yaml", "--candidate", world, "--audit", served / "audit")
    assert (code, report["gained"]) == (3, 0)
    lost = [group for group in report["groups"] if group["change"] == "lost"]
    assert {group["principal"] for group in lost} == {"user:oidc~alice"}
    assert "trino:FilterTables" in {group["action"] for group in lost}
    example = lost[0]["objects"][0]
    assert example["decisionId"] in {record["id"] for record in records(served)}
    large = next(group for group in lost if group["checks"] >= 500)
    assert len(large["objects"]) == differences.MAX_OBJECTS
    assert large["checks"] == sum(object["checks"] for object in large["objects"]) + large["otherObjects"]
    again = run(
        "-c", served / "pdp.yaml", "--baseline", served / "world.json", "--candidate", world,
        "--audit", served / "audit",
    )[1]  # fmt: skip
    assert again["groups"] == report["groups"]


def test_a_rename_is_decided_on_both_of_its_ends(served: Path, tmp_path: Path) -> None:
    edited_rules = {**RULES, "renames": RULES["renames"].replace("target", "closed")}
    new = rules(tmp_path, "new.yaml", edited_rules)
    world = tmp_path / "world.json"
    grants = [grant for grant in WORLD["grants"] if grant["privilege"] != "create"]
    world.write_text(json.dumps({**WORLD, "grants": grants}))
    audit = served / "audit"
    _, report = run("-c", served / "pdp.yaml", "--candidate", new, world, "--audit", audit)
    groups = [group for group in report["groups"] if group["action"] in ("rename", "trino:RenameTable")]
    assert groups
    assert all(object["destination"] for group in groups for object in group["objects"])
    assert any(group["change"] == "lost" and group["actingRole"] == "role:etl" for group in groups)


def test_the_implicit_rule_of_an_audit_is_read_from_its_bundles(served: Path, tmp_path: Path) -> None:
    new = rules(tmp_path, "new.yaml", {"a": "false"})
    arguments = ("-c", served / "pdp.yaml", "--candidate", new, "--audit")
    _, report = run(*arguments, served / "audit")
    assert report["implicitRule"] == {"baseline": False, "candidate": True, "toggled": True}
    (tmp_path / "decisions-x.jsonl").write_text(audit_text(served))
    _, report = run(*arguments, tmp_path)
    assert report["implicitRule"] == {"baseline": None, "candidate": True, "toggled": False}


def test_records_are_chosen_by_time_and_principal(served: Path) -> None:
    same = ("--candidate", served / "pdp.yaml", "--audit", served / "audit")
    whole = run(*same)[1]
    alice = run(*same, "--principal", "user:oidc~alice")[1]
    assert 0 < alice["checks"] < whole["checks"]
    assert alice["checks"] + alice["input"]["filtered"] == whole["checks"]
    middle = records(served)[100]["time"]
    before, after = run(*same, "--until", middle)[1], run(*same, "--since", middle)[1]
    assert before["checks"] > 0 < after["checks"]
    assert before["checks"] + after["checks"] == whole["checks"]
    assert run(*same, "--since", "2999-01-01")[1]["checks"] == 0


async def _list(folder: Path) -> None:
    check = {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/a/t"}
    listing = {"principal": "user:oidc~alice", "action": "read_data", "type": "table", "container": "namespace:lake/s"}
    access = {"resource": "table:lake/s/t", "action": "read_data"}
    world = {"objects": ["table:lake/s/t", "table:lake/s/u"], "grants": WORLD["grants"]}
    (folder / "world.json").write_text(json.dumps(world))
    async with client_of(settings_of(CONFIG, folder)) as client:
        for path, body in (("check", {"checks": [check]}), ("list", listing), ("access", access)):
            status, answer = await client.post(f"/v1/{path}", body)
            assert status == 200, answer


def test_listings_are_repeated_only_on_request(tmp_path: Path) -> None:
    rules(tmp_path, "rules.yaml", RULES)
    (tmp_path / "pdp.yaml").write_text(yaml.safe_dump(CONFIG))
    asyncio.run(_list(tmp_path))
    listings = sum(record["surface"] == "list" for record in records(tmp_path))
    assert listings == 2
    same = ("--candidate", tmp_path / "pdp.yaml", "--audit", tmp_path / "audit")
    code, report = run(*same)
    assert (code, report["checks"], report["input"]["listings"]) == (0, 1, 2)
    assert "read 1 check of 3 records in 1 file, 2 listings skipped\n" in invoke(*same).stdout
    code, report = run(*same, "--listings")
    assert (code, report["input"]["listings"]) == (0, 0)
    assert report["checks"] > 2
    assert "listing" not in invoke(*same, "--listings").stdout
    rules(tmp_path, "forbid.yaml", {"u": "path=='s.u'"})
    code, report = run(*same, "--forbid-candidate", tmp_path / "forbid.yaml", "--listings")
    assert (report["lost"], report["gained"]) == (1, 0)


def _damaged(folder: Path, tail: bytes = b"", middle: bytes = b"") -> Path:
    """Copy the audit, with a text between records and a text at the end."""
    text = audit_text(folder).encode()
    first, _, rest = text.partition(b"\n")
    copy = Path(tempfile.mkdtemp(dir=folder.parent))
    (copy / "decisions-1.jsonl").write_bytes(first + b"\n" + middle + rest + tail)
    return copy


def test_a_torn_last_line_is_reported_and_skipped(served: Path) -> None:
    torn = _damaged(served, tail=b'{"event":"decision","schema":1,"id":"01')
    whole = run("--candidate", served / "pdp.yaml", "--audit", served / "audit")[1]
    code, report = run("--candidate", served / "pdp.yaml", "--audit", torn)
    assert (code, report["checks"]) == (0, whole["checks"])
    lines = (torn / "decisions-1.jsonl").read_bytes().count(b"\n")
    assert report["input"]["torn"] == [f"decisions-1.jsonl:{lines + 1}"]
    text = invoke("--candidate", served / "pdp.yaml", "--audit", torn).stdout
    assert "torn last line, skipped: decisions-1.jsonl:" in text


def test_lines_without_a_record_of_this_schema_are_counted_by_cause(served: Path) -> None:
    strange = [
        {"event": "start", "schema": 1},
        {"event": "bundle", "checks": 7},
        {"event": "bundle"},
        {"event": "decision", "schema": 2, "checks": "x"},
        {"event": "decision", "schema": 1, "checks": "x"},
        {"event": "de\u001b[31m"},
        {"event": 5},
        [1],
    ]
    middle = b"\n".join(json.dumps(line).encode() for line in strange) + b'\n{"event":\n\xff\n\n'
    folder = _damaged(served, middle=middle)
    code, report = run("--candidate", served / "pdp.yaml", "--audit", folder)
    assert code == 0
    assert report["checks"] == run("--candidate", served / "pdp.yaml", "--audit", served / "audit")[1]["checks"]
    counts = {entry["why"]: (entry["count"], entry["first"].split(": ")[0]) for entry in report["input"]["skipped"]}
    assert counts == {
        "event `start`": (1, "decisions-1.jsonl:2"),
        "event `bundle`": (2, "decisions-1.jsonl:3"),
        "schema 2, this version reads 1": (1, "decisions-1.jsonl:5"),
        "no record of schema 1": (1, "decisions-1.jsonl:6"),
        "event `de\x1b[31m`": (1, "decisions-1.jsonl:7"),
        "event ``": (2, "decisions-1.jsonl:8"),
        "not JSON": (2, "decisions-1.jsonl:10"),
    }
    text = invoke("--candidate", served / "pdp.yaml", "--audit", folder).stdout
    assert "\x1b" not in text
    assert "event `de\\u001b[31m`" in text


def test_causes_beyond_the_bound_are_counted_together(tmp_path: Path) -> None:
    many = "".join(json.dumps({"event": f"e{number}"}) + "\n" for number in range(100))
    (tmp_path / "decisions-1.jsonl").write_text(many)
    reading = ReadReport()
    assert list(read_audit(tmp_path, reading)) == []
    assert reading.skipped.total() == 100
    assert len(reading.skipped) == MAX_NAMED + 1
    assert reading.skipped["other"] == 100 - MAX_NAMED
    assert "nothing could be compared: event `e0`" in bad("--candidate", STORIES, "--audit", tmp_path)


def test_an_endless_line_is_skipped(tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_reader, "MAX_LINE_BYTES", 1000)
    short = next(line for line in records(served) if len(json.dumps(line)) < 900)
    (tmp_path / "decisions-1.jsonl").write_text("x" * 5500 + "\n" + json.dumps(short) + "\n")
    reading = ReadReport()
    assert list(read_audit(tmp_path, reading))
    assert reading.skipped == {"line too long": 1}


@pytest.mark.parametrize(
    ("why", "edit"),
    [
        ("entry that cannot be read", {"checks": [{"at": 0, "action": "x", "resource": "server", "inputs": 9, "by": ["y"]}]}),
        ("entry that cannot be read", {"checks": [{"at": 0, "action": "x", "resource": "server"}]}),
        ("entry that cannot be read", {"checks": [{"at": [0], "resources": ["server"], "allowed": "", "by": [0], "errors": {}}]}),
        ("entry that cannot be read", {"checks": [{"at": [0], "resources": ["server"], "allowed": "1", "by": [1], "errors": {}, "reasons": ["a"]}]}),
        ("entry that cannot be read", {"checks": [{"at": 0, "resources": ["server"], "allowed": True, "by": [0]}]}),
        ("check that cannot be asked now", {"checks": [{"at": 0, "action": "x", "resource": "gone:x", "by": ["y"]}]}),
        ("check that cannot be asked now", {"checks": [{"at": 0, "action": "x", "resource": {"reference": "server", "arguments": {"name": 1}}, "by": ["y"]}]}),
        ("no record of schema 1", {"checks": [{"at": 0, "action": "x", "resource": {"reference": "server", "new": 1}, "by": ["y"]}]}),
        ("no record of schema 1", {"inputs": {"principal": {"id": "anonymous"}, "new": 1}}),
        ("entry that cannot be read", {"inputs": {"principal": {"id": "x"}}}),
    ],
)  # fmt: skip
def test_a_damaged_record_is_counted(tmp_path: Path, why: str, edit: dict[str, Any]) -> None:
    row = {"at": 0, "action": "x", "resource": "server", "by": ["y"]}
    record = {"event": "decision", "schema": 1, "inputs": {"principal": {"id": "anonymous"}}, "checks": [row], **edit}
    (tmp_path / "decisions-1.jsonl").write_text(json.dumps(record) + "\n")
    reading = ReadReport()
    assert list(read_audit(tmp_path, reading)) == []
    assert reading.skipped == {why: 1}


# --- properties -------------------------------------------------------------------------------------------------


def recorded_of(checks: Sequence[Any]) -> list[ReplayCheck]:
    """Return each check as a recorded check of one resource, in order."""
    found: dict[int, ReplayCheck] = {}
    batch = admit(decode_checks([msgspec.json.encode(check) for check in checks]).request("test"), EMBEDDED_CALLER)
    assert not batch.rejected
    for check in batch.checks:
        for at, resource in zip(check.at, check.resources, strict=True):
            key = msgspec.json.encode(resource, order="sorted").decode()
            found[at] = ReplayCheck(
                msgspec.structs.replace(check, resources=(resource,), at=(0,)), key, None, f"d{at}", at
            )
    return [found[at] for at in sorted(found)]


def compared(checks: Iterable[ReplayCheck], baseline: Pdp | None, candidate: Pdp) -> Differences:
    return asyncio.run(replay(checks, baseline, candidate))


def report_of(found: Differences) -> dict[str, Any]:
    return as_json(DryRunReport(found, ReadReport(), None, False, ()))


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks)
def test_nothing_differs_from_itself(config: Any, rules: Any, grants: Any, checks: Any) -> None:
    found = compared(recorded_of(checks), make_pdp(config, rules, grants), make_pdp(config, rules, grants))
    assert not found
    assert found.checks == len(checks)


@given(worlds.configs, worlds.rules, worlds.rules, worlds.grants, worlds.grants, worlds.rules, worlds.checks)
def test_gains_and_losses_are_the_difference_of_two_services(
    config: Any, rules: Any, other: Any, grants: Any, more: Any, forbid: Any, checks: Any
) -> None:
    old, new = make_pdp(config, rules, grants), make_pdp(config, other, more, forbid)
    found = compared(recorded_of(checks), old, new)
    before, after = decide(old, checks), decide(new, checks)
    pairs = list(zip(checks, before.allowed, after.allowed, strict=True))
    assert _named(found, "gained") == {_name(check) for check, then, now in pairs if now > then}
    assert _named(found, "lost") == {_name(check) for check, then, now in pairs if now < then}
    assert found.totals["gained"] == sum(now > then for _, then, now in pairs)
    assert found.totals["lost"] == sum(now < then for _, then, now in pairs)
    reasons = sum(
        then == now and (old_by or "default_deny") != (new_by or "default_deny")
        for (_, then, now), old_by, new_by in zip(pairs, before.by, after.by, strict=True)
    )
    assert found.totals["reason"] == reasons


def _name(check: Any) -> tuple[Any, ...]:
    acting = check.get("actingRole")
    return (check["principal"]["id"], acting, check["action"], check["resource"], check["delegated"])


def _named(found: Differences, kind: str) -> set[tuple[Any, ...]]:
    return {
        (group["principal"], group["actingRole"], group["action"], object["resource"], object["delegated"])
        for group in report_of(found)["groups"]
        if group["change"] == kind
        for object in group["objects"]
    }


@given(worlds.configs, worlds.rules, worlds.rules, worlds.grants, st.lists(worlds.checks, max_size=4), st.randoms())
def test_the_order_of_checks_does_not_matter_within_small_bounds(
    config: Any, rules: Any, other: Any, grants: Any, batches: Any, random: Any
) -> None:
    old, new = make_pdp(config, rules, grants), make_pdp(config, other)
    recorded = recorded_of([check for checks in batches for check in checks])
    shuffled = list(recorded)
    random.shuffle(shuffled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "WINDOW", 3)
        patch.setattr(differences, "MAX_GROUPS", 2)
        patch.setattr(differences, "MAX_OBJECTS", 1)
        bounded = compared(recorded, old, new)
        assert report_of(compared(shuffled, old, new)) == report_of(bounded)
    whole = compared(recorded, old, new)
    assert bounded.totals == whole.totals
    assert whole.groups.other == 0
    kept = report_of(bounded)["groups"]
    assert [_total(group) for group in kept] == [_total(group) for group in report_of(whole)["groups"][:2]]
    assert sum(group["checks"] for group in kept) + bounded.groups.other == whole.totals.total()


def _total(group: Any) -> Any:
    return {key: value for key, value in group.items() if key not in ("objects", "otherObjects")}


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks, st.sampled_from([1, 1000]))
def test_every_generated_record_decides_again(config: Any, rules: Any, grants: Any, checks: Any, columns: int) -> None:
    pdp = make_pdp(config, rules, grants)
    answer, kept = decide_and_record(pdp, checks)
    with tempfile.TemporaryDirectory() as folder:
        text = RecordEncoder("i", columns).encode(kept, 0) + b"\n"
        Path(folder, "decisions-i.jsonl").write_bytes(text)
        reading = ReadReport()
        read = list(read_audit(Path(folder), reading))
    assert not compared(read, None, pdp)
    assert (len(read), reading.skipped.total()) == (len(checks), 0)
    allowed = {one.at: one.outcome.allowed for one in read if one.outcome}
    assert [allowed[at] for at in range(len(checks))] == [bool(each) for each in answer.allowed]


class Count:
    def __init__(self) -> None:
        self.checks = 0


@given(st.lists(st.integers(0, 30)), st.integers(1, 5))
def test_the_smallest_keys_are_kept_with_exact_totals(keys: list[int], limit: int) -> None:
    smallest: SmallestKeys[int, Count] = SmallestKeys(limit, Count)
    for key in keys:
        smallest.at(key).checks += 1
    kept = {key: value.checks for key, value in smallest.items()}
    wanted = sorted(set(keys))[:limit]
    assert kept == {key: keys.count(key) for key in wanted}
    assert smallest.other == sum(key not in wanted for key in keys)


def test_equal_checks_with_different_recorded_outcomes_are_separate() -> None:
    pdp = make_pdp({}, {})
    (one,) = recorded_of([worlds.check("user:oidc~a", "read_data", "table:w/n/t@main", None, False)])
    then = [
        RecordedOutcome(True, "cel:x"),
        RecordedOutcome(False, "default_deny"),
        RecordedOutcome(False, "cel:y"),
        RecordedOutcome(False, "default_deny", ("r",)),
    ]
    found = compared([msgspec.structs.replace(one, outcome=outcome) for outcome in then], None, pdp)
    assert dict(found.totals) == {"lost": 1, "reason": 1, "errors": 1}
    assert dict(found.vanished) == {"r": 1}


def test_an_empty_filter_selects_everything() -> None:
    assert RecordFilter() == RecordFilter("", "", "")


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"delegated": True}, "delegated"),
        ({"context": {"api": {"name": "Iceberg", "version": 2}}}, "api.apiVersion==2"),
        ({"context": {"actions": ["x"]}}, "'x' in actions"),
        ({"principal": {"id": "user:oidc~a", "roles": ["x"]}}, "'x' in roles"),
        ({"resource": {"reference": "content:w/n/t@main", "contentType": "UDF"}}, "contentType=='UDF'"),
        ({"resource": "content:w/n/t@dev"}, "ref=='dev'"),
        ({"principal": "user:oidc~b"}, "role=='b'"),
        ({"action": "READ_CONTENT_KEY"}, "op=='READ_CONTENT_KEY'"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_checks_that_differ_in_any_input_are_decided_separately(more: dict[str, Any], rule: str, turned: bool) -> None:
    plain = {"principal": "user:oidc~a", "action": "READ_ENTITY_VALUE", "resource": "content:w/n/t@main"}
    checks = recorded_of([plain, {**plain, **more}])
    found = compared(checks[::-1] if turned else checks, make_pdp({}, {}), make_pdp({}, {"a": rule}))
    assert dict(found.totals) == {"gained": 1}


@pytest.mark.parametrize("text", ["", "\n", "\n\n"])
def test_a_file_without_checks_compares_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "none.jsonl").write_text(text)
    message = bad("--baseline", STORIES, "--candidate", STORIES, "--checks", tmp_path / "none.jsonl")
    assert "none.jsonl` has no checks" in message
