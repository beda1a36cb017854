"""Policy tests under the settings of a service: the same decisions as the service's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import client_of
from support.service.commands import run_pdp
from support.service.serving import FREE_PORTS

from pdp.config.load import load_settings

pytestmark = pytest.mark.process

CONFIG = f"""\
server: {json.dumps(FREE_PORTS)}
audit: {{sinks: [{{file: audit}}]}}
policies: {{rules: [rules/*.yaml], forbid: [forbid.yaml], row_access: [rows.yaml]}}
warehouses: {{lake: {{project: p, default_ref: main}}}}
store: {{url: "sqlite:///pdp.db", seed: world.yaml}}
"""
ASKED = [
    {"principal": f"user:oidc~{who}", "action": "read_data", "resource": f"table:lake/s/{table}"}
    for who in ("alice", "bob", "carl")
    for table in ("orders", "secret")
]
WANTED = [
    {"allowed": True, "by": "cel:alice"},
    {"allowed": False, "by": "cel:no"},
    {"allowed": True, "by": "grants:select on namespace:lake/s via user:oidc~bob"},
    {"allowed": False, "by": "cel:no"},
    {"allowed": False, "by": "default_deny"},
    {"allowed": False, "by": "cel:no"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    (tmp_path / "pdp.yaml").write_text(CONFIG)
    (tmp_path / "rules" / "a.yaml").write_text("""rules: {alice: "role == 'alice'"}""")
    (tmp_path / "forbid.yaml").write_text("""rules: {no: "path.endsWith('.secret')"}""")
    (tmp_path / "rows.yaml").write_text(
        "policies: [{id: eu, table: lake.s.orders, grantees: ['user:alice'], filter: \"region = 'EU'\"}]"
    )
    (tmp_path / "world.yaml").write_text(
        "grants: [{principal: 'user:oidc~bob', privilege: select, object: 'namespace:lake/s'}]"
    )
    return tmp_path


def results(folder: Path, *cases: Any, options: tuple[str, ...] = ("-c", "pdp.yaml")) -> list[Any]:
    (folder / "cases.json").write_text(json.dumps(cases))
    ended = run_pdp("test", "cases.json", *options, "--format", "json", cwd=folder)
    assert ended.stderr == ""
    return json.loads(ended.stdout)  # type: ignore[no-any-return]


async def test_the_tests_want_what_the_service_answers(folder: Path) -> None:
    async with client_of(load_settings(folder / "pdp.yaml")) as http:
        _, answer = await http.post("/v1/check", json.dumps({"checks": ASKED}).encode())
    decisions = [{"allowed": one["allowed"], "by": one["by"][0]} for one in answer["decisions"]]
    assert decisions == WANTED
    rows = {"checks": ASKED[:1], "wantFilter": "region = 'EU'"}
    found = results(folder, {"note": "checks", "checks": ASKED, "want": WANTED}, {"note": "rows", **rows})
    assert [one["error"] for one in found] == [None, None]


def test_stored_facts_decide_unless_the_test_brings_a_world(folder: Path) -> None:
    bob = {"checks": ASKED[2:3]}
    assert [
        one["passed"] for one in results(folder, {**bob, "want": [True]}, {**bob, "world": {}, "want": [False]})
    ] == [
        True,
        True,
    ]
    other = {"principal": "user:oidc~carl", "privilege": "select", "object": "namespace:lake/s"}
    (folder / "more.json").write_text(json.dumps({"grants": [other]}))
    imported = run_pdp("grants", "import", "-c", "pdp.yaml", "more.json", cwd=folder)
    assert imported.returncode == 0, imported.stderr
    assert results(folder, {"checks": ASKED[4:5], "want": [True]})[0]["error"] is None


@pytest.mark.parametrize(
    "own",
    [
        {"rules": {"more": "true"}},
        {"rules": "other.yaml"},
        {"forbid": {"more": "true"}},
        {"forbid": "rules/a.yaml"},
        {"policies": {"policies": []}},
        {"engines": ["cel"]},
        {"config": {"warehouses": {}}},
    ],
)
def test_other_policies_than_the_deployed_fail_the_test(folder: Path, own: dict[str, Any]) -> None:
    """Neither a test that the policies would permit nor a test that they would deny may pass."""
    (folder / "other.yaml").write_text("""rules: {more: "true"}""")
    key = next(iter(own))
    for want in (True, False):
        found = results(folder, {"checks": ASKED[:1], "want": [want], **own})
        assert not found[0]["passed"]
        assert f"`{key}`" in found[0]["error"]


def test_the_deployed_files_may_be_named(folder: Path) -> None:
    named = {"rules": "rules/a.yaml", "forbid": ["forbid.yaml"], "policies": "rows.yaml"}
    assert results(folder, {"checks": ASKED, "want": WANTED, **named})[0]["error"] is None


def test_a_broken_configuration_exits_with_2(folder: Path) -> None:
    (folder / "rules" / "b.yaml").write_text("rules: {bad: 'role =='}")
    (folder / "cases.json").write_text(json.dumps([{"checks": ASKED[:1], "want": [True]}]))
    ended = run_pdp("test", "cases.json", "-c", "pdp.yaml", cwd=folder)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "bad" in ended.stderr
    ended = run_pdp("test", "cases.json", "--set", "limits.max_checks=5", cwd=folder)
    assert ended.returncode == 2


def test_the_text_says_which_configuration_decided(folder: Path) -> None:
    (folder / "cases.json").write_text(json.dumps([{"checks": ASKED[:1], "want": [True]}]))
    ended = run_pdp("test", "cases.json", "-c", "pdp.yaml", cwd=folder)
    assert ended.stdout == "1 passed, 0 failed under pdp.yaml\n"
    ended = run_pdp("test", "cases.json", "-c", "pdp.yaml", "--set", "policies.rules=[]", cwd=folder)
    assert ended.returncode == 1


STOPPED = {
    "a forbid without a file": {"forbid": ["nothing*.yaml"]},
    "a forbid without a rule": {"forbid": ["empty.yaml"]},
    "rules without a file": {"rules": ["nothing.yaml"]},
    "row policies without a file": {"row_access": ["nothing.yaml"]},
}


@pytest.mark.parametrize("name", STOPPED)
def test_a_test_fails_where_the_service_would_not_start(folder: Path, name: str) -> None:
    (folder / "empty.yaml").write_text("rules: {}")
    config = {"policies": {"rules": [], **STOPPED[name]}, "warehouses": {"lake": {"default_ref": "main"}}}
    case = {"checks": ASKED[4:5], "want": [False], "config": config}
    found = results(folder, case, {**case, "rules": {"a": "false"}, "forbid": {"b": "false"}}, options=())
    assert [one["passed"] for one in found] == [False, False]
    assert all(f"`policies.{next(iter(STOPPED[name]))}`" in one["error"] for one in found)


def test_a_world_of_an_unknown_warehouse_fails_a_test_as_it_stops_the_service(folder: Path) -> None:
    world = {"grants": [{"principal": "user:oidc~bob", "privilege": "select", "object": "namespace:lkae/s"}]}
    (folder / "other.json").write_text(json.dumps(world))
    for own in (world, "other.json"):
        found = results(folder, {"checks": ASKED[4:5], "want": [False], "world": own})
        assert "no warehouse `lkae` is configured" in found[0]["error"]


PERMIT = """@id("ann") permit (principal == Lakekeeper::User::"oidc~ann", action, resource);"""
CEDAR_CHECK = {"principal": "user:oidc~ann", "action": "read_data", "resource": "table:lake/s/orders"}


@pytest.fixture
def cedar_folder(tmp_path: Path) -> Path:
    cedar = {"policies": ["policies/*.cedar"], "entities": ["people.json"], "schema": {"extend": "more.cedarschema"}}
    config = {
        "authorities": {"default": {"engines": ["cedar"]}},
        "warehouses": {"lake": {"project": "p"}},
        "policies": {"rules": [], "cedar": cedar},
        "store": {"url": "sqlite:///pdp.db"},
    }
    (tmp_path / "policies").mkdir()
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    for name in ("policies/a.cedar", "other.cedar"):
        (tmp_path / name).write_text(PERMIT)
    (tmp_path / "people.json").write_text(json.dumps([{"uid": {"type": "Lakekeeper::User", "id": "oidc~ann"}}]))
    (tmp_path / "more.cedarschema").write_text("namespace Lakekeeper { entity Team; }")
    return tmp_path


@pytest.mark.parametrize(
    ("cedar", "refused"),
    [
        (None, ""),
        ({}, ""),
        ({"policies": "policies/a.cedar"}, ""),
        ({"policies": ["policies/../policies/a.cedar"], "entities": "people.json"}, ""),
        ({"policies": "policies/a.cedar", "entities": ["people.json"], "schema": {"extend": "more.cedarschema"}}, ""),
        ({"policies": "other.cedar"}, "policies"),
        ({"policies": PERMIT}, "policies"),
        ({"policies": ["policies/a.cedar", PERMIT]}, "policies"),
        ({"policies": "policies/a.cedar", "entities": [{"uid": {}}]}, "entities"),
        ({"policies": "policies/a.cedar", "entities": "other.json"}, "entities"),
        ({"policies": "policies/a.cedar", "schema": {"replace": "more.cedarschema"}}, "replace"),
        ({"policies": "policies/a.cedar", "schema": {"extend": "other.cedarschema"}}, "extend"),
    ],
)
def test_a_case_may_name_the_deployed_cedar_files(cedar_folder: Path, cedar: Any, refused: str) -> None:
    case = {"note": "n", "checks": [CEDAR_CHECK], "want": [{"allowed": True, "by": "cedar:ann"}]}
    given = case if cedar is None else {**case, "cedar": cedar}
    (cedar_folder / "test.yaml").write_text(json.dumps({"cases": [given]}))
    ended = run_pdp("test", "-c", "pdp.yaml", "test.yaml", cwd=cedar_folder)
    assert ended.returncode == (1 if refused else 0), ended.stdout
    assert not refused or f"`{refused}` of the test are not deployed" in ended.stdout
