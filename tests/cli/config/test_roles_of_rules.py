"""`pdp config check` and `pdp lint` say which roles rules see, and warn of permits on roles of the store alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.service.commands import run_pdp
from support.service.named_configuration import command

pytestmark = pytest.mark.process

CONFIG = """\
warehouses: {lake: {project: p}}
authorities: {default: {engines: [cel, grants]}}
policies: {rules: [r.yaml], forbid: [f.yaml]}
store: {url: "file:world.yaml"}
trino: {groups: {feeders: fed}}
identity:
  cel_roles: %s
  providers: {oidc: {issuer: i, jwks: "https://idp.example/keys", role_map: {kc: mapped}}}
"""
WORLD = """\
objects: ["project:p", {object: "role:hr", parent: "project:p"}, {object: "role:fed", parent: "project:p"}]
grants:
  - {principal: "user:oidc~ann", privilege: assignee, object: "role:hr"}
  - {principal: "user:oidc~ann", privilege: assignee, object: "role:stored"}
"""
RULES = """\
rules:
  a: "'hr' in roles && op == 'READ_ENTITY_VALUE'"
  b: "'fed' in roles || 'mapped' in roles || 'nobody' in roles || path == 'hr'"
  c: "roles.exists(r, r == 'hr')"
  d: "op == 'VIEW_REFERENCE' && role != 'hr'"
"""
FORBID = """\
rules:
  for: "'hr' in roles && path == 'n'"
  against: "!('hr' in roles) && path == 'n'"
  either: "size(roles) == 1"
  none: "path == 'hr'"
"""


def folder_with(folder: Path, cel_roles: str) -> None:
    for name, text in {"pdp.yaml": CONFIG % cel_roles, "world.yaml": WORLD, "r.yaml": RULES, "f.yaml": FORBID}.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize(("cel_roles", "warned"), [("token", ["a", "c"]), ("all", [])])
def test_the_check_and_lint_say_which_roles_rules_see(tmp_path: Path, cel_roles: str, warned: list[str]) -> None:
    folder_with(tmp_path, cel_roles)
    checked = run_pdp("config", "check", "--format", "json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    problems = json.loads(checked.stdout)
    stored = [
        one["message"] for one in problems if one["severity"] == "warning" and "role of the store" in one["message"]
    ]
    assert [message.split("`")[1] for message in stored] == warned
    seen = {one["message"].split("`")[1]: one["message"] for one in problems if one["severity"] == "info"}
    assert seen.keys() == {"a", "b", "c", "for", "against", "either"}
    assert "counts roles by any evidence" in seen["for"]
    assert "counts against a role only roles of tokens" in seen["against"]
    assert "binds if it does with roles by any evidence, or with" in seen["either"]
    linted = run_pdp("lint", "--verbose", "--format", "json", cwd=tmp_path)
    findings = json.loads(linted.stdout)
    assert {one["rule"] for one in findings if one["code"] == "seen-roles"} == seen.keys()
    assert sum("role of the store" in one["message"] for one in findings) == len(warned)


def test_an_explanation_shows_the_roles_that_a_forbid_counts(tmp_path: Path) -> None:
    folder_with(tmp_path, "token")
    asked = ("--principal", "user:oidc~ann", "--role", "kc", "--action", "read_data", "--resource", "table:lake/n@main")
    ended = run_pdp("explain", *asked, cwd=tmp_path)
    assert "roles by any evidence is ['kc', 'mapped', 'hr', 'stored']" in ended.stdout, (ended.stdout, ended.stderr)
    assert "roles is ['kc', 'mapped']" in ended.stdout


ROLE = 'principal in Lakekeeper::Role::"vip"'
SPARING = {
    f"unless {{ {ROLE} }}": True,
    f"when {{ !({ROLE}) }}": True,
    f'unless {{ !(resource in Lakekeeper::Warehouse::"lake") || {ROLE} }}': True,
    f"when {{ if {ROLE} then false else true }}": True,
    f"when {{ ({ROLE}) == false }}": True,
    'unless { principal in [Lakekeeper::Role::"other", Lakekeeper::Role::"vip"] }': True,
    f"when {{ !(!({ROLE})) }}": False,
    f"unless {{ !({ROLE}) }}": False,
    f"when {{ {ROLE} }}": False,
    f'when {{ {ROLE} && !(resource in Lakekeeper::Warehouse::"lake") }}': False,
}
"""Conditions of a forbid, and whether members of the role are spared."""


@pytest.mark.parametrize("condition", SPARING)
def test_a_stored_role_that_lifts_a_forbid_of_cedar_is_named(tmp_path: Path, condition: str) -> None:
    provider = {"issuer": "https://i.example", "jwks": "https://i.example/jwks", "audiences": ["a"]}
    for mapped in (False, True):
        given = {**provider, "claims": {"roles": "roles"}, "role_map": {"corp-vip": "vip"} if mapped else {}}
        config = {
            "warehouses": {"lake": {}},
            "authorities": {"default": {"engines": ["cedar"]}},
            "policies": {"rules": [], "cedar": {"policies": ["p.cedar"]}},
            "identity": {"providers": {"oidc": given}},
        }
        (tmp_path / "pdp.yaml").write_text(json.dumps(config))
        forbid = f'@id("lock") forbid(principal, action, resource) {condition};'
        (tmp_path / "p.cedar").write_text(f"permit(principal, action, resource);\n{forbid}")
        _, output = command("config", "check", "-c", tmp_path / "pdp.yaml")
        is_named = "forbid `lock` of Cedar spares members of the role `vip`" in output
        assert is_named is (SPARING[condition] and not mapped), output
