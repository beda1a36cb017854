"""Names that match nobody: a form or case that no check has stops the start, lint and `config check`, with a place.

Each case is a file as an author would write it. The same name in a permit is a warning, and so is an unknown name,
unless `policies.strict_names` is set.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.service.command_line import COMPOSITION
from support.service.named_configuration import CONFIG, command, starts, strict, with_rules, write

from pdp.app.assembly import build_bundle, read_rules
from pdp.config.load import load_settings
from pdp.config.names import KnownNames, NameCheck
from pdp.engines.cel.names import remark_on_names
from pdp.engines.cel.program import check_rule as check_text
from pdp.engines.cel.program import compile_program
from pdp.engines.cel.questions import has_sound_names
from pdp.engines.row_access.engine import RowPolicies
from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import parse_document
from pdp.errors import InvalidArgument, PdpError
from pdp.facts.objects import RowPolicy
from pdp.facts.snapshot import Facts
from pdp.management.row_policy_edits import check_rule
from pdp.store.world import WorldError, read_grant, read_known_grant

WRONG_FORBIDS = {
    "role == 'oidc~x'": "write `x`",
    "'user:oidc~x' == role": "write `x`",
    "role in ['a', 'user:okta~x']": "write `okta~x`",
    "role != 'OIDC~x'": "write `x`",
    "role == 'Okta~x'": "write `okta~x`",
    "role.startsWith('oidc~')": "have no prefix",
    "role.matches('^user:')": "have no prefix",
    "role.matches('^oidc~(a|b)$')": "have no prefix",
    "role.matches('^user:[a-z]+~x')": "have no prefix",
    "path.matches('^lake[.]hr[.].+_x')": "write `hr.",
    "role == 'role:x'": "`'x' in roles`",
    "role == 'Bob'": "write `bob`",
    "'role:x' in roles": "write `x`",
    "'user:oidc~x' in roles": "is a user and no role",
    "'Contractor' in roles": "write `contractor`",
    "'ext' in roles": "write `EXT`",
    "'External' in roles": "write `external`",
    "roles.exists(r, r == 'role:x')": "write `x`",
    "roles.exists(r, r.startsWith('role:x'))": "write `x`",
    "['a', 'role:x'].exists(r, r in roles)": "write `x`",
    "op == 'READ_ENTITY_VALUE' && !(role in ['role:x'])": "`'x' in roles`",
    "warehouse == 'Lake'": "the warehouse `lake`",
    "warehouse.startsWith('LA')": "the warehouse `lake`",
    "warehouse == 'warehouse:lake'": "write `lake`",
    "warehouse == 'lake/hr'": "write `lake`",
    "warehouse in ['lake.hr']": "write `lake`",
    "warehouse.lowerAscii() == 'LAKE'": "write `lake`",
    "path.startsWith('lake.hr.')": "write `hr.`",
    "path == 'Lake.hr.salaries'": "write `hr.salaries`",
    "path == 'lake/hr/salaries'": "write `hr.salaries`",
    "path.startsWith('hr/')": "write `hr.`",
    "path.endsWith('/salaries')": "dots between its parts",
    "path.contains('hr/sal')": "write `hr.sal`",
    "path == 'table:lake/hr/salaries'": "write `hr.salaries`",
    "path.matches('^lake/hr/')": "write `hr.`",
    "path == 'hr.salaries@main'": "write `hr.salaries`",
    "['hr/', 'fin/'].exists(p, path.startsWith(p))": "write `hr.`",
    "path.lowerAscii().startsWith('HR.')": "write `hr.`",
    "arguments.user == 'oidc~root'": "write `root`",
    "arguments['user'] == 'user:oidc~root'": "write `root`",
    "arguments.catalog == 'LK'": "`lk`",
}


@pytest.mark.parametrize(("rule", "wanted"), WRONG_FORBIDS.items())
def test_a_forbid_in_a_form_that_no_check_has_stops_the_start(tmp_path: Path, rule: str, wanted: str) -> None:
    error = starts(with_rules(tmp_path, {"f": rule}))
    assert wanted in error
    assert error.startswith(f"{tmp_path / 'forbid.yaml'}:1:")
    assert starts(with_rules(tmp_path, {"f": rule}, forbid=False)) == ""
    assert wanted in starts(with_rules(tmp_path, {"f": rule}, forbid=False, strict_names=True))


EQUAL = {
    found["name"]: (found["text"], wanted)
    for rule, wanted in WRONG_FORBIDS.items()
    if (found := re.fullmatch(r"(?P<name>[\w.]+) == '(?P<text>[^']+)'", rule))
}
"""Variable, or key of one -> a text that no check has there, and what the error says."""


@pytest.mark.parametrize("name", EQUAL)
def test_a_wrong_form_is_found_in_maps_and_lists_too(tmp_path: Path, name: str) -> None:
    text, wanted = EQUAL[name]
    rules = {
        "key": f"{name} in {{'a': 1, '{text}': 2}}",
        "made": f"{{'{text}': 1}}.exists(k, k == {name})",
        "chosen": f"{name} in (role == 'x' ? {{'{text}': 1}} : {{'a': 1}})",
        "list": f"dyn({name}) == ['{text}']",
        "map": f"dyn({name}) == {{'{text}': 1}}",
        "nested": f"dyn({name}) in [['{text}']]",
    }
    for id, rule in rules.items():
        error = starts(with_rules(tmp_path, {"f": rule}))
        expected = wanted if id in ("key", "made", "chosen") else "no text that is made of"
        assert expected in error or "no question" in error, rule
        assert starts(with_rules(tmp_path, {"f": rule}, forbid=False)) == "", rule
    for rule in (f"{name} in {{'a': 1}} || role == 'x'", "attributes.teams == ['a']", "roles == ['a']"):
        assert starts(with_rules(tmp_path, {"f": f"op == 'VIEW_REFERENCE' && {rule}"})) == "" or name in (
            "op",
            "action",
        ), rule


def test_lint_and_config_check_name_all_of_them(tmp_path: Path) -> None:
    """Each has an error with what to write. In rules that permit the same is a warning."""
    rules = {f"f{number}": rule for number, rule in enumerate(WRONG_FORBIDS)}
    for forbid, severity in ((True, "error"), (False, "warning")):
        config = with_rules(tmp_path, rules, forbid=forbid)
        for arguments in (("config", "check"), ("lint",)):
            code, output = command(*arguments, "-c", config)
            assert code == forbid, output
            for id, wanted in zip(rules, WRONG_FORBIDS.values(), strict=True):
                said = [line for line in output.splitlines() if f"rule `{id}`" in line and f": {severity}: " in line]
                assert any(wanted in line for line in said), (id, output)


UNKNOWN = {
    "warehouse == 'hive'": "no warehouse `hive`",
    "role == 'ldap~x'": "no provider `ldap`",
    "role == 'anonymous'": "write `''`",
    "role == ' ann'": "has blanks around",
    "'contractor ' in roles": "has blanks around",
    "path in ['hr.pay', 'hr.pay ']": "has blanks around",
    "path == 'lake.orders'": "begins with the warehouse `lake`",
    "path.startsWith('lake.')": "begins with the warehouse `lake`",
}


def test_an_unknown_name_is_a_warning_unless_names_are_strict(tmp_path: Path) -> None:
    rules = {f"f{number}": rule for number, rule in enumerate(UNKNOWN)}
    config = with_rules(tmp_path, rules)
    settings = load_settings(config, (), {})
    bundle = COMPOSITION.build_pdp(settings, Facts.empty(), COMPOSITION.read_rules(settings)).bundle
    checked, linted = command("config", "check", "-c", config), command("lint", "-c", config)
    assert (checked[0], linted[0]) == (0, 0)
    for wanted in UNKNOWN.values():
        assert any(wanted in warning for warning in bundle.warnings)
        assert wanted in checked[1]
        assert wanted in linted[1]
    config = with_rules(tmp_path, rules, strict_names=True)
    assert command("config", "check", "-c", config)[0] == 1
    assert command("lint", "-c", config)[0] == 1
    for id, rule in rules.items():
        assert UNKNOWN[rule] in starts(with_rules(tmp_path, {id: rule}, strict_names=True))


SOUND = (
    "role == 'x'",
    "role == 'okta~x'",
    "role == 'oidc~okta~x'",
    "role in ['bob', '']",
    "role.endsWith('@corp.example')",
    "role == 'system:serviceaccount:ns:name'",
    "role == 'repo:org/name:ref:refs/heads/main'",
    "'contractor' in roles || 'EXT' in roles || 'external' in roles || 'anything' in roles",
    "'https://corp.example/role:admin' in roles",
    "roles.exists(r, r.endsWith('_admin')) && groups.exists(g, g == '/eng/role:x')",
    "warehouse == 'lake' || warehouse.startsWith('la') || warehouse == ''",
    "warehouse == 'lake' && path.startsWith('lake.hr.')",
    "path == 'lake' || path.startsWith('hr.lake.') || path.contains('/')",
    "path == 'ns.a/b' || path == 'ns.a@b' || path == 'Hr.Salaries'",
    "ref == 'feature/x' && contentType == 'ICEBERG_TABLE'",
    "op == 'trino:ImpersonateUser' && arguments.user in ['root', 'okta~root']",
    "has(attributes.path) && attributes.path == 'lake/hr' && !('role:x' in groups)",
    "path.matches('^(hr|fin)[.].*_secret') && path.matches('a\\\\.b')",
    "path.matches('^a[.][^.]+$') && path.matches('(?i)^HR[.]')",
    "role.matches('^oidc~a|bob') || role.matches('^user:?x') || role.matches('user:x')",
    "path.lowerAscii().matches('^(hr|fin)[.].*') && size(path) > 3",
)


def test_a_name_that_a_check_may_have_is_no_fault(tmp_path: Path) -> None:
    config = with_rules(tmp_path, {f"f{number}": rule for number, rule in enumerate(SOUND)}, strict_names=True)
    assert starts(config) == ""
    output = command("lint", "-c", config)[1]
    assert not any(code in output for code in ("wrong-name", "unknown-name", "path-spelling")), output


CAPITALS = (
    "path.matches('[QZ]W7')",
    "path.matches('\\\\x51W7')",
    "path.matches('^(HR|FIN)[.].*s')",
    "path.charAt(0) == 'Q'",
    "bytes(path) == b'HR.x'",
    "path + 'x' == 'HRx'",
    "path > 'HR' && path < 'HS'",
    "['HR.', 'FIN.'].exists(p, path.startsWith(p))",
    "path.matches('[[:upper:]]+')",
    "path.matches('^[^a-z]+$')",
    "path.split('.')[0] == 'HR'",
)
"""Tests of capitals that Trino never sends, and that name no spelling to ask about."""


def test_a_forbid_on_capitals_by_another_test_than_a_plain_one_is_a_finding(tmp_path: Path) -> None:
    rules = {f"f{number}": rule for number, rule in enumerate(CAPITALS)}
    plain = {"p0": "path.matches('\\x51W7')", "p1": "path.startsWith('HR.') || path.matches('^HR[.]')"}
    config = with_rules(tmp_path, rules | plain)
    assert starts(config) == ""
    output = command("lint", "-c", config)[1]
    found = [line for line in output.splitlines() if "[path-spelling]" in line]
    assert [line for line in found if any(f"`{id}`" in line for id in plain)] == []
    assert [id for id in rules if not any(f"rule `{id}`" in line for line in found)] == []
    assert [id for id in rules if not starts(with_rules(tmp_path, {id: rules[id]}, strict_names=True))] == []
    without = yaml.safe_load(config.read_text())
    del without["trino"]
    config.write_text(yaml.safe_dump(without))
    assert "path-spelling" not in command("lint", "-c", config)[1]


WRONG_ROWS = {
    "role:role:x": "write `role:x`",
    "role:user:oidc~x": "write `user:oidc~x`",
    "role:Contractor": "write `contractor`",
    "user:user:x": "write `user:x`",
    "user:oidc~x": "write `x`",
    "user:OKTA~x": "write `okta~x`",
    "user:Bob": "write `bob`",
    "group:group:x": "write `group:x`",
    "group:oidc~eu": "write `group:eu`",
    "serviceAccount:user:x": "two kinds",
    "domain:ann@corp.example": "write `domain:corp.example`",
}


@pytest.mark.parametrize(("grantee", "wanted"), WRONG_ROWS.items())
@pytest.mark.parametrize("field", ["policy", "mask", "except"])
def test_a_grantee_in_a_form_that_nobody_has(tmp_path: Path, grantee: str, wanted: str, field: str) -> None:
    rule = {"id": "r", "table": "lake.hr.pay", "grantees": [grantee], "filter": "x = 1"}
    mask = {"id": "r", "table": "lake.hr.pay", "column": "x", "grantees": ["allUsers"], "kind": "null"}
    mask |= {"except" if field == "except" else "grantees": [grantee]}
    rows = {"policies": [rule]} if field == "policy" else {"masks": [mask]}
    config = write(tmp_path, CONFIG, rows_yaml=json.dumps(rows))
    assert wanted in starts(config)
    code, output = command("config", "check", "-c", config)
    assert (code, f"{tmp_path / 'rows.yaml'}:1:" in output, wanted in output) == (1, True, True)
    assert command("lint", "-c", config)[0] == 1


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ("lake/hr.pay", "`.` stands between"),
        ("lake.hr/pay", "`.` stands between"),
        ("lake.hr.pay@main", "leave out the ref"),
        ("table:lake/hr.pay", "write `table:lake/hr/pay`"),
        ("view:lake/hr.eu.pay", "write `view:lake/hr/eu/pay`"),
    ],
)
def test_a_table_in_a_form_of_several(tmp_path: Path, table: str, wanted: str) -> None:
    rule = {"id": "r", "table": table, "grantees": ["allUsers"], "filter": "x = 1"}
    config = write(tmp_path, CONFIG, rows_yaml=json.dumps({"policies": [rule]}))
    assert wanted in starts(config)
    assert command("config", "check", "-c", config)[0] == 1


def test_grantees_that_somebody_may_be(tmp_path: Path) -> None:
    names = [
        "allUsers",
        "allAuthenticatedUsers",
        "role:contractor",
        "role:new",
        "user:bob",
        "user:okta~x",
        "user:a@b.c",
    ]
    names += ["group:g", "group:/eng/x", "domain:corp.example"]
    rules = [{"id": "r", "table": "lake.hr.pay", "grantees": names, "filter": "x = 1"}]
    rules += [{"id": "s", "table": "table:lake/hr/a%2Fb%40c", "grantees": ["allUsers"], "filter": "x = 1"}]
    config = write(tmp_path, strict(), rows_yaml=json.dumps({"policies": rules}))
    assert starts(config) == ""
    assert command("lint", "-c", config) == (0, command("lint", "-c", config)[1])


@pytest.mark.parametrize(
    ("template", "grantee", "is_error"),
    [
        ("user:{subject}@corp.example", "user:ann@corp.example", False),
        ("user:{subject}@corp.example", "user:ann@CORP.example", False),
        ("user:{subject}@corp.example", "user:ann", True),
        ("user:{subject}@corp.example", "user:ann@other.example", False),
        ("user:{idp}~{subject}", "user:oidc~ann", False),
        ("user:{idp}~{subject}", "user:OIDC~ann", True),
        ("user:{idp}~{subject}", "user:ann", True),
    ],
)
def test_a_grantee_follows_the_template(tmp_path: Path, template: str, grantee: str, is_error: bool) -> None:
    rule = {"id": "r", "table": "lake.hr.pay", "grantees": [grantee], "filter": "x = 1"}
    config = {**CONFIG, "row_access": {"member": {"template": template}}}
    assert bool(starts(write(tmp_path, config, rows_yaml=json.dumps({"policies": [rule]})))) is is_error


@pytest.mark.parametrize(
    ("entry", "rule", "wanted"),
    [
        ("user:oidc~ann", {}, "write `ann`"),
        ("oidc~ann", {}, "write `ann`"),
        ("okta~ann", {}, "write `ann`"),
        ("role:x", {}, "write `x`"),
        ("Bob", {}, "write `bob`"),
        ("bob", {"catalog": "Lake"}, "the warehouse `lake`"),
        ("bob", {"catalog": "lake/hr"}, "write `lake`"),
        ("bob", {"schema": "lake/hr"}, "write `hr`"),
        ("bob", {"schema": "hr/eu"}, "write `hr.eu`"),
    ],
)
def test_an_entry_of_scopes_that_nobody_has(tmp_path: Path, entry: str, rule: dict[str, str], wanted: str) -> None:
    body = {"catalog": "lake", "schema": "hr", "tables": ["*"], **rule}
    scopes = json.dumps([{"name": entry, "permissions": {"Query": [body], "Mutation": []}}])
    config = write(tmp_path, CONFIG, scopes_yaml=scopes)
    assert wanted in starts(config)
    code, output = command("lint", "-c", config)
    assert (code, "[scopes-wrong-name]" in output) == (1, True)
    assert command("config", "check", "-c", config)[0] == 1


def test_an_unknown_catalog_of_scopes_is_a_warning(tmp_path: Path) -> None:
    body = {"catalog": "hive", "schema": "hr", "tables": ["*"]}
    scopes = json.dumps([{"name": "ann", "permissions": {"Query": [body], "Mutation": []}}])
    config = write(tmp_path, CONFIG, scopes_yaml=scopes)
    assert starts(config) == ""
    assert "[scopes-unknown-name]" in command("lint", "-c", config)[1]
    assert "warning" in command("config", "check", "-c", config)[1]
    assert "no warehouse `hive`" in starts(write(tmp_path, strict(), scopes_yaml=scopes))


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("catalogs", {"LK": {"warehouse": "lake"}}, "`trino.catalogs.LK`: Trino sends names of catalogs in lower case"),
        ("admin_users", ["user:oidc~root"], "`trino.admin_users.0`: Trino sends the bare name of a user"),
        ("admin_users", ["ann", "oidc~root"], "`trino.admin_users.1`"),
        ("admin_users", ["user:root"], "`trino.admin_users.0`"),
        ("execute_query", {"allow": ["oidc~root"]}, "`trino.execute_query.allow.0`"),
        ("impersonation", {"oidc~hue": ["bob"]}, "`trino.impersonation.oidc~hue`"),
        ("impersonation", {"hue": ["bob", "user:oidc~ann"]}, "`trino.impersonation.hue.1`"),
        ("groups", {"staff": "role:contractor"}, "`trino.groups.staff`: the id of a role has no prefix"),
    ],
)
def test_a_name_that_trino_never_sends(tmp_path: Path, key: str, value: Any, wanted: str) -> None:
    config = write(tmp_path, {**CONFIG, "trino": {**CONFIG["trino"], "unmanaged_catalogs": "allow", key: value}})
    error = starts(config)
    assert error.startswith(wanted)
    assert f"({config}:" in error
    assert command("config", "check", "-c", config)[0] == 1


@pytest.mark.parametrize("written", ["role:role:x", "role:user:oidc~ann"])
@pytest.mark.parametrize("field", ["principal", "object"])
def test_a_grant_with_two_kinds_is_refused_and_an_old_one_can_be_removed(written: str, field: str) -> None:
    entry = {"principal": "user:oidc~ann", "privilege": "assignee", "object": "role:x", field: written}
    with pytest.raises(WorldError, match="has two kinds: write `"):
        read_grant(entry, ())
    assert read_known_grant(entry, ())


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("user:oidc~ann ", "user:oidc~ann"),
        ("user: oidc~ann", None),
        ("user:oidc~ ann", "user:oidc~ann"),
        ("user:oidc~a\u200bnn", "user:oidc~ann"),
        ("role: x", "role:x"),
        ("role:x\u00a0", "role:x"),
        ("role:the team\ufeff", "role:the team"),
    ],
)
def test_a_grant_to_a_name_with_blanks_is_refused_and_an_old_one_can_be_removed(
    written: str, wanted: str | None
) -> None:
    entry = {"principal": written, "privilege": "select", "object": "table:lake/s/t"}
    with pytest.raises(WorldError, match=f"write `{wanted}`" if wanted else "is not `<idp>~<subject>`"):
        read_grant(entry, ())
    if wanted:
        assert read_known_grant(entry, ()).principal == written
        read_grant({**entry, "principal": wanted}, ())
    for sound in ("role:the team", "user:oidc~CN=Ann Lee, OU=a: b", "role:Team: EU", "user:oidc~günther"):
        read_grant({**entry, "principal": sound}, ())


@pytest.mark.parametrize("grantee", ["role:role:x", "user:user:x", "domain:a@b.example"])
def test_a_stored_policy_with_such_a_grantee_is_refused(grantee: str) -> None:
    rule = RowPolicy(("lake", "hr", "pay"), "p", (grantee,), "x = 1")
    access = RowPolicies({}, (), ()).build_engine(Members("user:{subject}", "oidc"), ())
    with pytest.raises(InvalidArgument, match=r"two kinds|is no domain"):
        check_rule(rule, access)


@pytest.mark.parametrize("key", ["role_map", "users", "bearer", "engine"])
def test_a_subject_or_role_with_a_prefix(tmp_path: Path, key: str) -> None:
    oidc = dict(CONFIG["identity"]["providers"]["oidc"])
    identity: dict[str, Any] = {"providers": {**CONFIG["identity"]["providers"], "oidc": oidc}}
    config = {**CONFIG, "identity": identity}
    if key == "role_map":
        oidc["role_map"] = {"EXT": "role:external"}
    elif key == "users":
        oidc["users"] = ["oidc~bob"]
    elif key == "bearer":
        bearer = {"idp": "oidc", "subjects": ["user:oidc~gateway"]}
        identity["callers"] = {"gateway": {"bearer": bearer, "may_assert": ["principals"]}}
    else:
        trino = {"type": "trino", "owner_property": "o", "identities": {"oidc": {"subjects": ["oidc~trino"]}}}
        config["trusted_engines"] = {"trino": trino}
    assert "leave out `" in starts(write(tmp_path, config))


NAMES = st.sampled_from(["x", "ann", "hr", "a-b", "Ann", "a.b"])


@given(
    NAMES, st.sampled_from(["user:", "oidc~", "user:oidc~", "role:"]), st.sampled_from(["==", "in", "starts", "any"])
)
@settings(max_examples=60, deadline=None)
def test_generated_prefixes_of_users(
    tmp_path_factory: pytest.TempPathFactory, name: str, prefix: str, form: str
) -> None:
    """A forbid on a bare name loads, and the same with a prefix is refused, whatever the test."""
    rules = {"==": "role == '{}'", "in": "role in ['zz', '{}']", "starts": "role.startsWith('{}')"}
    rule = rules.get(form, "['zz', '{}'].exists(n, n == role)")
    folder = tmp_path_factory.mktemp("names")
    assert starts(with_rules(folder, {"f": rule.format(prefix + name)})) != ""
    assert starts(with_rules(folder, {"f": rule.format(name)})) == ""


KNOWN = KnownNames(
    frozenset({"lake"}),
    roles=frozenset({"contractor"}),
    token_roles=frozenset({"EXT"}),
    providers=frozenset({"oidc", "okta"}),
    provider="oidc",
    users=frozenset({"bob"}),
    catalogs=frozenset({"lk"}),
)
TEXTS = st.sampled_from([
    "", "lake", "Lake", "lake.", "lake.hr.pay", "hr", "HR.Pay", "hr/pay", "table:lake/hr", "bob", "Bob", "user:bob", "oidc~bob",
    "okta~x", "OKTA~x", "contractor", "Contractor", "role:contractor", "EXT", "ext", " hr", "lk", "READ",
])  # fmt: skip
TESTED = st.sampled_from([
    "role", "warehouse", "path", "op", "ref", "contentType", "arguments.user", "arguments['catalog']", "path.lowerAscii()",
    "role.upperAscii()",
])  # fmt: skip
FORMS = st.sampled_from([
    "{v} == '{a}'", "'{a}' == {v}", "{v} != '{a}'", "{v} in ['{a}', '{b}']", "{v} in []", "{v}.startsWith('{a}')",
    "{v}.endsWith('{a}')", "{v}.contains('{a}')", "{v}.matches('^{a}')", "{v}.matches('{a}$')", "{v}.matches('^({a}|{b})$')",
    "{v}.matches('^{a}.*$')", "{v}.matches('[a-z]+{a}')", "'{a}' in roles", "!('{a}' in roles)", "roles.exists(r, r == '{a}')",
    "['{a}', '{b}'].exists(n, n == {v})", "{v} == ('{a}' == '{b}' ? '{a}' : '{b}')", "warehouse == 'lake'", "true", "false",
])  # fmt: skip
PLAIN = st.builds(
    lambda form, v, a: form.format(v=v, a=a),
    st.sampled_from(["{v} == '{a}'", "{v}.startsWith('{a}')", "{v}.contains('{a}')", "'{a}' in roles"]),
    st.sampled_from(["role", "warehouse", "path"]),
    TEXTS,
)
TESTS = PLAIN | PLAIN | st.builds(lambda form, v, a, b: form.format(v=v, a=a, b=b), FORMS, TESTED, TEXTS, TEXTS)
RULES = TESTS | st.recursive(
    TESTS, lambda part: st.builds("({} {} {})".format, part, st.sampled_from(["&&", "||"]), part), max_leaves=3
)


@given(RULES, st.booleans(), st.booleans())
@example("path == 'lake.hr.pay'", True, True)
@example("' hr' in roles", True, True)
@settings(max_examples=400, deadline=None)
def test_conditions_call_no_name_sound_that_has_a_remark(rule: str, forbid: bool, trino: bool) -> None:
    known = replace(KNOWN, catalogs=KNOWN.catalogs if trino else frozenset())
    strings = frozenset({"strings"})
    if has_sound_names(compile_program(rule, strings).requirements, known):
        assert list(remark_on_names(check_text(rule, strings), NameCheck(known, forbid))) == []


@pytest.mark.parametrize(
    "rule", ["path == 'hr.pay'", "warehouse == 'lake' && path.startsWith('lake.')", "'EXT' in roles"]
)
def test_conditions_know_plain_rules_as_sound(rule: str) -> None:
    assert has_sound_names(compile_program(rule).requirements, KNOWN)


def test_names_of_recorded_documents_are_not_judged_beside_a_file(tmp_path: Path) -> None:
    def rows(id: str, grantee: str) -> dict[str, Any]:
        return {"policies": [{"id": id, "table": f"lake.hr.{id}", "grantees": [grantee], "filter": "x = 1"}]}

    old = parse_document(rows("old", "role:Contractor"))
    for text in ("", json.dumps(rows("new", "role:contractor"))):
        loaded = load_settings(write(tmp_path, CONFIG, rows_yaml=text))
        assert build_bundle(loaded, *read_rules(loaded), [old]).row_access.tables
    loaded = load_settings(write(tmp_path, CONFIG, rows_yaml=json.dumps(rows("new", "role:Contractor"))))
    with pytest.raises(PdpError, match="write `contractor`"):
        build_bundle(loaded, *read_rules(loaded), [old])
