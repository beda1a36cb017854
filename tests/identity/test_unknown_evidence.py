"""Evidence that a token does not say: every form of a claim against every kind of policy.

A forbid that reads what nobody knows denies, a permit is silent, rows are hidden and masks are NULL.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from support.clients.http_client import HttpClient, http_client
from support.oracles.audit_files import audit_records
from support.servers.idp import ISSUER, jwk, rsa_key, token
from support.service.caches import with_cache
from support.service.command_line import COMPOSITION
from support.service.serving import serving, settings_of

from pdp.app.assembly import build_bundle, read_rules
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport
from pdp.cli.config.problems import find_problems
from pdp.config.identity import ClaimSettings
from pdp.config.load import make_settings
from pdp.errors import ConfigError, Unauthenticated
from pdp.identity.claims import ClaimReader, find_claim
from pdp.identity.tokens import Tokens
from pdp.offline.replay.replay import replay
from pdp.telemetry import Telemetry

TABLE: Final = "table:lake/hr/salaries"
OVERAGE: Final = {
    "_claim_names": {"groups": "src1"},
    "_claim_sources": {"src1": {"endpoint": "https://graph.example/x"}},
}
PERMIT: Final = "true || op=='VIEW_REFERENCE'"
CEDAR: Final = (
    "permit(principal, action, resource);\n"
    '@id("no") forbid(principal in Lakekeeper::Role::"contractor", action, resource);'
)


def config_of(folder: Path, claims: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return a configuration with one provider, and write the policies that `more` has: forbid, rules, cedar, rows."""
    (folder / "jwks.json").write_text(json.dumps({"keys": [jwk()]}))
    (folder / "rules.yaml").write_text(json.dumps({"rules": {"all": more.pop("permit", PERMIT)}}))
    forbid = {"no": more.pop("forbid")} if "forbid" in more else {}
    (folder / "forbid.yaml").write_text(json.dumps({"rules": forbid}))
    policies: dict[str, Any] = {"rules": ["rules.yaml"], "forbid": ["forbid.yaml"] if forbid else []}
    engines = ["cel"]
    if "cedar" in more:
        (folder / "p.cedar").write_text(more.pop("cedar"))
        policies["cedar"] = {"policies": ["p.cedar"]}
        engines = ["cedar"]
    if "rows" in more:
        (folder / "rows.yaml").write_text(json.dumps(more.pop("rows")))
        policies["row_access"] = ["rows.yaml"]
    provider = {"issuer": ISSUER, "jwks": "jwks.json", "audiences": ["pdp"], "claims": dict(claims)}
    provider |= more.pop("provider", {})
    return {
        "identity": {"providers": {"oidc": provider}},
        "authorities": {"default": {"engines": engines}},
        "warehouses": {"lake": {"default_ref": "main"}},
        "policies": policies,
        **more,
    }


@asynccontextmanager
async def asking(folder: Path, claims: Mapping[str, Any], **more: Any) -> AsyncIterator[HttpClient]:
    async with (
        serving(settings_of(config_of(folder, claims, **more), folder)) as service,
        http_client(service) as client,
    ):
        yield client


async def ask(client: HttpClient, said: Mapping[str, Any], *, action: str = "read_data", resource: str = TABLE) -> Any:
    """Return the status and the decision on a check of the token's own principal."""
    headers = {"Authorization": f"Bearer {token(**said)}"}
    status, answer = await client.post("/v1/check", {"checks": [{"action": action, "resource": resource}]}, headers)
    return (status, answer["decisions"][0]) if status == 200 else (status, answer)


def last_check(folder: Path) -> Any:
    """Return the check of the last decision in the audit of a service that has ended."""
    return [record for record in audit_records(folder) if record["event"] == "decision"][-1]["checks"][0]


# --- what was reported --------------------------------------------------------------------------------------------

REPORTED: Final[dict[str, tuple[dict[str, Any], dict[str, Any], str]]] = {
    "microsoft docs#39289": ({"groups": "groups"}, OVERAGE, "groups"),
    "entra, implicit flow": ({"groups": "groups"}, {"hasgroups": True}, "groups"),
    "entra, as a text": ({}, {"hasgroups": "true"}, "groups"),
    "cognito": ({"groups": "groups"}, {"groups": '["contractor"]'}, "groups"),
    "scope": ({"groups": "scope"}, {"scope": "openid contractor"}, "groups"),
    "commas": ({"groups": "groups"}, {"groups": "a,contractor"}, "groups"),
    "braces": ({"groups": "groups"}, {"groups": "{contractor}"}, "groups"),
    "object": ({"groups": "groups"}, {"groups": {"contractor": {}}}, "groups"),
    "numbers": ({"groups": "groups"}, {"groups": [1]}, "groups"),
    "lists of lists": ({"groups": "groups"}, {"groups": [["contractor"]]}, "groups"),
    "number": ({"groups": "groups"}, {"groups": 7}, "groups"),
    "truth": ({"groups": "groups"}, {"groups": True}, "groups"),
    "OIDC Core 5.6.2": ({"roles": "roles"}, {"_claim_names": {"roles": "s"}}, "roles"),
    "distributed, not configured": ({}, {"_claim_names": {"roles": "s"}}, "roles"),
    "quarkus role-claim-path": ({"roles": "realm_access/roles"}, {"realm_access": {"roles": ["contractor"]}}, "roles"),
    "keycloak clients with a dot": (
        {"roles": "resource_access.lake.api.roles"}, {"resource_access": {"lake.api": {"roles": ["contractor"]}}}, "roles",
    ),
    "auth0 namespaced claims": (
        {"roles": "https://corp.example/claims.roles"}, {"https://corp.example/claims": {"roles": ["contractor"]}}, "roles",
    ),
    "elsewhere, deep": ({"roles": "realm_access.roles"}, {"_claim_names": {"realm_access": "s"}}, "roles"),
    "elsewhere, unreadable": ({"roles": "roles"}, {"_claim_names": ["roles"]}, "roles"),
    "here and elsewhere": ({"groups": "groups"}, {"groups": ["a"], **OVERAGE}, "groups"),
    "misspelt": ({"roles": "rols"}, {"roles": ["contractor"]}, "roles"),
    "null": ({"roles": "roles"}, {"roles": None}, "roles"),
}  # fmt: skip
"""Where it stands in public -> `claims`, what the token says, and the variable that a forbid reads."""


@pytest.mark.parametrize("name", REPORTED)
async def test_a_forbid_holds_for_a_token_that_does_not_say(tmp_path: Path, name: str) -> None:
    claims, said, variable = REPORTED[name]
    async with asking(tmp_path, claims, forbid=f"'contractor' in {variable}") as client:
        status, decision = await ask(client, said)
    assert status == 401 or (not decision["allowed"] and status == 200), decision


@pytest.mark.parametrize("name", [name for name, (_, _, variable) in REPORTED.items() if variable == "roles"])
async def test_a_forbid_of_cedar_holds_for_a_token_that_does_not_say(tmp_path: Path, name: str) -> None:
    claims, said, _ = REPORTED[name]
    provider = {"role_map": {"contractor": "contractor"}}
    async with asking(tmp_path, claims, cedar=CEDAR, provider=provider) as client:
        status, decision = await ask(client, said)
        assert status == 401 or (not decision["allowed"] and status == 200), decision
        if "null" not in name:  # a token that says who is in what is judged as before
            path = claims.get("roles", "roles")
            assert (await ask(client, {path: ["analyst"]}))[1]["allowed"]
            assert not (await ask(client, {path: ["contractor"]}))[1]["allowed"]


@pytest.mark.parametrize("variable", ["roles", "groups"])
@pytest.mark.parametrize(
    "value", [7, 1.5, True, False, {"a": 1}, {}, [1], [None], [["a"]], [{}], ["a", 1], "a b", "a,b", "[a]", '["a"]', "(a)"]
)  # fmt: skip
async def test_a_claim_of_another_form_is_401_with_its_name(tmp_path: Path, variable: str, value: Any) -> None:
    async with asking(tmp_path, {variable: "deep.claim"}) as client:
        status, answer = await ask(client, {"deep": {"claim": value}})
        assert status == 401
        assert "`deep.claim`" in str(answer)
        forged = token(rsa_key("other"), deep={"claim": value})
        headers = {"Authorization": f"Bearer {forged}"}
        status, answer = await client.post("/v1/check", {"checks": [{"action": "x", "resource": TABLE}]}, headers)
    assert status == 401
    assert "deep.claim" not in str(answer)


# --- every kind of policy -----------------------------------------------------------------------------------------

UNKNOWN: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "groups": ({"groups": "groups"}, OVERAGE),
    "roles": ({"roles": "roles"}, {"_claim_names": {"roles": "s"}}),
    "attributes": ({"attributes": {"level": "level"}}, {"_claim_names": {"level": "s"}}),
    "required groups": ({"groups": "groups", "required": ["groups"]}, {}),
    "required roles": ({"required": ["roles"]}, {}),
    "required attribute": ({"attributes": {"level": "level"}, "required": ["level"]}, {}),
}
"""Evidence -> `claims`, and a token that leaves it unknown."""
KNOWN: Final = {"groups": ["staff"], "roles": ["staff"], "level": "low"}
READING: Final = {
    "groups": ("'x' in groups", "!('x' in groups)", "size(groups) > 5", "groups == ['x']", "groups.exists(g, g == 'x')"),
    "roles": ("'x' in roles", "!('x' in roles)", "size(roles) > 5", "roles == ['x']", "roles.all(g, g == 'x')"),
    "attributes": (
        "'level' in attributes", "!('level' in attributes)", "has(attributes.level)", "attributes.level == 'x'",
        "attributes['level'] != 'low'", "size(attributes) > 5",
    ),
}  # fmt: skip
"""Conditions that read evidence."""


def variable_of(name: str) -> str:
    found = name.removeprefix("required ").removesuffix("s")
    return {"attribute": "attributes"}.get(found, f"{found}s")


@pytest.mark.parametrize("name", UNKNOWN)
async def test_forbids_deny_and_permits_are_silent(tmp_path: Path, name: str) -> None:
    claims, said = UNKNOWN[name]
    for number, condition in enumerate(READING[variable_of(name)]):
        for kind in ("forbid", "permit"):
            folder = tmp_path / f"{number}-{kind}"
            folder.mkdir()
            async with asking(folder, claims, **{kind: condition}) as client:
                _, decision = await ask(client, said)
                assert not decision["allowed"], (condition, kind)
                if kind == "forbid":
                    assert decision["by"] == ["denied"]
            assert last_check(folder)["errors"] == (["no"] if kind == "forbid" else ["all"])


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize(
    ("forbid", "denies"),
    [
        ("path.startsWith('eng') && {}", False),
        ("{} && path.startsWith('eng')", False),
        ("path.startsWith('hr') && {}", True),
        ("op == 'DELETE_ENTITY' && {}", False),
        ("role == 'bob' && {}", False),
        ("role == 'alice' && {}", True),
        ("false && {}", False),
        ("{} || false", True),
        ("{} ? true : false", True),
    ],
)
async def test_only_what_reads_the_evidence_denies(tmp_path: Path, name: str, forbid: str, denies: bool) -> None:
    claims, said = UNKNOWN[name]
    condition = {"groups": "'x' in groups", "roles": "'x' in roles", "attributes": "attributes.level == 'x'"}
    async with asking(tmp_path, claims, forbid=forbid.format(condition[variable_of(name)])) as client:
        assert (await ask(client, said))[1]["allowed"] is not denies
        assert (await ask(client, KNOWN))[1]["allowed"]


@pytest.mark.parametrize("optional", [False, True])
async def test_a_path_that_no_token_had_is_unknown_to_a_forbid_until_one_has(tmp_path: Path, optional: bool) -> None:
    claims = {"groups": "groups", **({"optional": ["groups"]} if optional else {})}
    async with asking(tmp_path, claims, forbid="'contractor' in groups") as client:
        assert (await ask(client, {}))[1]["allowed"] is optional
        assert (await ask(client, {"groups": ["contractor"]}))[1]["allowed"] is False
        assert (await ask(client, {}))[1]["allowed"]
        assert (await ask(client, {"sub": "bob"}))[1]["allowed"]


async def test_an_absent_claim_is_none_where_no_forbid_reads_it_or_no_path_is_written(tmp_path: Path) -> None:
    for number, (claims, forbid) in enumerate([({"groups": "groups"}, "'x' in roles"), ({}, "'x' in groups")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with asking(folder, claims, forbid=forbid) as client:
            assert (await ask(client, {}))[1]["allowed"]


async def test_a_refused_token_does_not_say_that_a_path_exists(tmp_path: Path) -> None:
    async with asking(tmp_path, {"groups": "groups"}, forbid="'contractor' in groups") as client:
        assert (await ask(client, {"groups": ["a"], "aud": "another"}))[0] == 401
        assert (await ask(client, {"groups": ["a"], "sub": 7}))[0] == 401
        assert not (await ask(client, {}))[1]["allowed"]


@pytest.mark.parametrize("cached", [False, True], ids=["without a cache", "with a cache"])
@pytest.mark.parametrize("kind", ["cel", "cedar"])
async def test_answers_for_known_and_unknown_evidence_are_never_mixed_up(
    tmp_path: Path, kind: str, cached: bool
) -> None:
    """One user comes with tokens that differ in nothing but what is unknown, in every order."""
    claims = {"roles": "roles", "groups": "groups", "optional": ["roles", "groups"]}
    policies = {"cedar": CEDAR} if kind == "cedar" else {"forbid": "'contractor' in roles"}
    provider = {"role_map": {"contractor": "contractor"}}
    known: dict[str, Any] = {"roles": []}
    unknown, other = {"roles": [], "_claim_names": {"roles": "s"}}, OVERAGE
    async with asking(tmp_path, claims, provider=provider, **policies) as client:
        if cached:
            with_cache(client.service.pdp)
        for said in (known, unknown, known, other, unknown, unknown, known, known, other, other, unknown, known):
            for resource in (TABLE, "table:lake/eng/t"):
                _, decision = await ask(client, said, resource=resource)
                assert decision["allowed"] is (said is not unknown)
                headers = {"Authorization": f"Bearer {token(**said)}"}
                checks = [{"action": "read_data", "resources": [resource, TABLE, "table:lake/eng/u"]}]
                _, answer = await client.post("/v1/check", {"checks": checks}, headers)
                assert [one["allowed"] for one in answer["decisions"]] == [said is not unknown] * 3
        pdp = client.service.pdp
    again = await replay(read_audit(tmp_path / "audit", ReadReport()), None, pdp)
    assert again.checks > 40
    assert not again.totals, "records carry what was unknown"
    records = [record for record in audit_records(tmp_path) if record["event"] == "decision"]
    for record in records:
        allowed = {one["allowed"] for one in record["checks"]} if "allowed" in record["checks"][0] else set()
        assert allowed <= {record["inputs"]["principal"].get("unknown") != ["roles"]}
    assert {*map(str, (record["inputs"]["principal"].get("unknown") for record in records))} == {
        "None", "['roles']", "['groups']",
    }  # fmt: skip


CEDAR_FORBIDS: Final = {
    'principal in Lakekeeper::Role::"x", action, resource': True,
    'principal is Lakekeeper::User in Lakekeeper::Role::"x", action, resource': True,
    'principal in Lakekeeper::Role::"x", action, resource == Lakekeeper::Table::"lake/eng/t"': False,
    'principal in Lakekeeper::Role::"x", action == Lakekeeper::Action::"DropTable", resource': False,
    'principal == Lakekeeper::User::"oidc~bob", action, resource': False,
    "principal is Lakekeeper::User, action, resource) when { principal.roles.isEmpty()": True,
    "principal is Lakekeeper::User, action, resource) when { principal.project_roles.isEmpty()": True,
    'principal, action, resource) unless { principal in Lakekeeper::Role::"hr"': True,
    'principal, action, resource) unless { principal in Lakekeeper::Role::"hr" || resource in Lakekeeper::Namespace::"lake/hr"': False,
    'principal is Lakekeeper::User, action, resource) when { principal["rol\\u{65}s"].isEmpty()': True,
    'principal, action, resource) when { resource in Lakekeeper::Namespace::"lake/eng" && principal in Lakekeeper::Role::"x"': False,
    'principal, action, resource) when { !(principal in Lakekeeper::Role::"x" && principal in Lakekeeper::Role::"y")': True,
    'principal, action, resource) when { if principal in Lakekeeper::Role::"x" then true else false': True,
    'principal, action, resource) when { principal.source_id == "bob"': False,
}  # fmt: skip


@pytest.mark.parametrize("scope", CEDAR_FORBIDS)
async def test_forbids_of_cedar_deny_where_they_could_hold(tmp_path: Path, scope: str) -> None:
    text = f'permit(principal, action, resource);\n@id("no") forbid({scope}{" }" if "{" in scope.partition(")")[2] else ")"};'
    provider = {"role_map": {"staff": "hr"}}
    async with asking(tmp_path, {"roles": "roles"}, cedar=text, provider=provider) as client:
        _, decision = await ask(client, UNKNOWN["roles"][1])
        assert decision["allowed"] is not CEDAR_FORBIDS[scope]
    if CEDAR_FORBIDS[scope]:
        assert (last_check(tmp_path)["by"], last_check(tmp_path)["errors"]) == (["cedar:no"], ["no"])


async def test_permits_of_cedar_are_silent(tmp_path: Path) -> None:
    text = 'permit(principal, action, resource) unless { principal in Lakekeeper::Role::"contractor" };'
    async with asking(
        tmp_path, {"roles": "roles"}, cedar=text, provider={"role_map": {"contractor": "contractor"}}
    ) as client:
        assert (await ask(client, {"roles": ["a"]}))[1]["allowed"]
        assert not (await ask(client, UNKNOWN["roles"][1]))[1]["allowed"]


ROWS: Final = {
    "tables": {"lake.hr.salaries": {"columns": {"a": "varchar", "b": "varchar"}}},
    "policies": [
        {"id": "staff", "table": "lake.hr.salaries", "grantees": ["group:staff"], "filter": "a = 'x'", "dialect": "trino"},
        {"id": "rest", "table": "lake.hr.salaries", "grantees": ["role:hr"], "filter": "b = 'y'", "dialect": "trino"},
    ],
    "masks": [
        {"id": "m", "table": "lake.hr.salaries", "column": "a", "grantees": ["group:x"], "kind": "partial"},
        {"id": "n", "table": "lake.hr.salaries", "column": "b", "grantees": ["role:x"], "kind": "constant", "expression": "z"},
    ],
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("dialect", ["trino", "spark"])
async def test_rows_are_hidden_and_masks_are_null(tmp_path: Path, dialect: str) -> None:
    columns = [{"name": "a", "type": "varchar"}, {"name": "b", "type": "varchar"}]
    claims = {"groups": "groups", "roles": "roles"}
    provider = {"role_map": {"hr": "hr", "x": "x"}}

    async with asking(tmp_path, claims, rows=ROWS, provider=provider) as client:

        async def filters(said: Mapping[str, Any]) -> Any:
            body = {"resource": TABLE, "columns": columns, "dialect": dialect}
            headers = {"Authorization": f"Bearer {token(**said)}"}
            status, answer = await client.post("/v1/filters", body, headers)
            assert status == 200, answer
            return answer

        known = await filters({"groups": ["staff"], "roles": []})
        assert "'x'" in str(known["rowFilter"])
        assert not known.get("columnMasks")
        groups = await filters({"roles": ["hr"], **OVERAGE})
        assert "'y'" in str(groups["rowFilter"])
        assert "'x'" not in str(groups["rowFilter"])
        roles = await filters({"groups": ["staff"], "_claim_names": {"roles": "s"}})
        assert "'y'" not in str(roles["rowFilter"])
        for answer, column in ((groups, "a"), (roles, "b")):
            masks = answer["columnMasks"]
            assert [*masks] == [column] if isinstance(masks, dict) else len(masks) == 1
            assert "NULL" in str(masks) or "WHEN FALSE" in str(masks)
            assert "'z'" not in str(masks)


# --- forms of claims ----------------------------------------------------------------------------------------------


def read(claims: Mapping[str, Any], said: Mapping[str, Any], evidence: str = "roles") -> Any:
    return ClaimReader(ClaimSettings.model_validate(claims), said).texts(evidence)


@pytest.mark.parametrize(
    ("claims", "said", "found"),
    [
        ({}, {"roles": "analyst"}, ("analyst",)),
        ({}, {"roles": "CN-analyst_1:x/y@z"}, ("CN-analyst_1:x/y@z",)),
        ({}, {"roles": ["Domain Users", "a,b", "[c]", ""]}, ("Domain Users", "a,b", "[c]", "")),
        ({}, {"roles": []}, ()),
        ({}, {}, ()),
        ({"separator": " "}, {"roles": "openid  contractor "}, ("openid", "contractor")),
        ({"separator": ","}, {"roles": "a, b,,c"}, ("a", "b", "c")),
        ({"separator": ","}, {"roles": ["a,b"]}, ("a,b",)),
        ({"separator": ","}, {"roles": ""}, ()),
        ({"keys_of": ["roles"], "roles": "urn:zitadel:iam:org:project:roles"},
         {"urn:zitadel:iam:org:project:roles": {"analyst": {"1": "x"}, "dba": {}}}, ("analyst", "dba")),
        ({"keys_of": ["roles"]}, {"roles": ["a"]}, ("a",)),
        ({"roles": ["realm_access.roles", "resource_access.lake.api.roles", "roles"]},
         {"realm_access": {"roles": ["a"]}, "resource_access": {"lake.api": {"roles": ["b", "a"]}}}, ("a", "b")),
    ],
)  # fmt: skip
def test_claims_are_read_in_the_configured_form(claims: Any, said: Any, found: tuple[str, ...]) -> None:
    assert read(claims, said) == found


@pytest.mark.parametrize(
    "said",
    [{"groups": {"a": 1}}, {"groups": {}}, {"groups": 1}, {"groups": "a b"}, {"groups": "a\tb"}, {"groups": "a;b"}],
)
def test_keys_count_for_the_named_evidence_alone(said: Any) -> None:
    with pytest.raises(Unauthenticated, match="`groups`"):
        read({"keys_of": ["roles"]}, said, "groups")


SEPARATORS: Final = (",", ";", " ", ", ", "|", "::", "\t")


@pytest.mark.parametrize("separator", SEPARATORS)
def test_no_other_sign_of_several_values_hides_in_a_part(separator: str) -> None:
    """A text in another form than the configured one is unreadable: its parts are no values."""
    for sign, text in itertools.product(",;\t\n\u2028\"'[](){}", ("a{}b", "x{}a{}b", "{}a{}b{}", "a{}{}", "{}b{}b")):
        value = text.format(sign, separator, sign)
        claims = {"separator": separator}
        for evidence in ("roles", "groups"):
            said = {evidence: value}
            if sign in separator:
                parts = [part.strip() for part in value.split(separator)]
                if sign == separator or not any(sign in part for part in parts):
                    assert read(claims, said, evidence) == tuple(part for part in parts if part)
                    continue
            elif sign not in separator.join(value.split(separator)) or all(
                sign not in part.strip() for part in value.split(separator)
            ):
                continue  # a blank at the end of a part is none of its signs
            with pytest.raises(Unauthenticated, match=f"`{evidence}`"):
                read(claims, said, evidence)


@pytest.mark.parametrize(
    ("separator", "value"),
    [
        (",", "[a,b]"), (",", '["a","b"]'), (",", "{a,b}"), (",", "(a,b)"), (",", "a;b"), (",", "x,a;b"), (";", "a,b"),
        (" ", "a,b"), (" ", "[a b]"), ("|", "a,b"), (", ", "a,b"), (",", "a\tb"), (",", "'a','b'"),
    ],
)  # fmt: skip
async def test_a_text_in_another_form_than_the_separator_says_is_401(
    tmp_path: Path, separator: str, value: str
) -> None:
    async with asking(tmp_path, {"groups": "groups", "separator": separator}, forbid="'a' in groups") as client:
        status, answer = await ask(client, {"groups": value})
        assert status == 401
        assert "`groups`" in str(answer)
        assert (await ask(client, {"groups": f"Data Team{separator}b"}))[1]["allowed"] or separator == " "


@pytest.mark.parametrize("evidence", ["roles", "groups", "attributes", "subject", "audience"])
@pytest.mark.parametrize("between", [[{"b": ["x"]}], [], ["b"], "b", "", 7, 0, True, False, [[{"b": 1}]]])
def test_a_path_through_another_value_than_an_object_is_unreadable(evidence: str, between: Any) -> None:
    path = {"level": "a.b"} if evidence == "attributes" else "a.b"
    reader = ClaimReader(ClaimSettings.model_validate({evidence: path}), {"a": between, "sub": "s"})
    reads: dict[str, Any] = {
        "roles": lambda: reader.texts("roles"), "groups": lambda: reader.texts("groups"), "attributes": reader.attributes,
        "subject": reader.subject, "audience": reader.audiences,
    }  # fmt: skip
    with pytest.raises(Unauthenticated, match=r"`a\.b`"):
        reads[evidence]()


@pytest.mark.parametrize("said", [{}, {"a": None}, {"a": {}}, {"a": {"b": None}}, {"a": {"c": []}}])
def test_a_path_that_ends_early_is_absent(said: Any) -> None:
    assert read({"roles": "a.b"}, said) == ()


async def test_a_list_in_a_path_is_401_after_other_tokens_had_the_claim(tmp_path: Path) -> None:
    async with asking(tmp_path, {"roles": "realm.roles"}, forbid="'contractor' in roles") as client:
        assert (await ask(client, {"realm": {"roles": ["staff"]}}))[1]["allowed"]
        status, answer = await ask(client, {"realm": [{"roles": ["contractor"]}]})
    assert status == 401
    assert "`realm.roles`" in str(answer)


VALUES: Final[dict[str, list[Any]]] = {
    "text": ["", "x", "[1]"], "texts": [[], ["x"], ["a b", ""]], "number": [0, 1.5, -3], "bool": [True, False],
    "object": [{}, {"x": 1}],
}  # fmt: skip
OTHERS: Final = [*(value for values in VALUES.values() for value in values), [1], [None], [["x"]], ["x", 1]]


@pytest.mark.parametrize("type", VALUES)
def test_an_attribute_of_another_type_than_configured_is_unreadable(type: str) -> None:
    for name, claims in (
        ("level", {"attributes": {"level": ["deep.level", "level"]}, "types": {"level": type}}),
        ("email", {"attributes": {"email": ["deep.level", "level"]}}),
    ):
        wanted = VALUES["text" if name == "email" else type]
        for value, said in itertools.product(OTHERS, ("deep", "flat")):
            token = {"deep": {"level": value}} if said == "deep" else {"level": value}
            reader = ClaimReader(ClaimSettings.model_validate(claims), token)
            if any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in wanted):
                assert reader.attributes() == {name: value}
            else:
                with pytest.raises(Unauthenticated, match=r"`deep\.level`" if said == "deep" else "`level`"):
                    reader.attributes()
    untyped = ClaimReader(ClaimSettings.model_validate({"attributes": {"level": "level"}}), {"level": VALUES[type][0]})
    assert untyped.attributes() == {"level": VALUES[type][0]}


@pytest.mark.parametrize("email", [["x@y"], 7, {"a": 1}, True, [], 0])
@pytest.mark.parametrize("effect", ["forbid", "permit"])
async def test_an_asserted_email_of_another_type_is_unknown_to_cedar(tmp_path: Path, email: Any, effect: str) -> None:
    rest = "permit(principal, action, resource);\n" if effect == "forbid" else ""
    sign = "" if effect == "forbid" else "!"
    condition = f'{sign}(principal has email && principal.email == "x@y")'
    cedar = f"{rest}{effect}(principal is Lakekeeper::User, action, resource) when {{ {condition} }};"
    async with asking(tmp_path, {}, cedar=cedar, identity={}) as client:
        for value, allowed in ((email, False), ("a@b", True), (None, True)):
            principal = {"id": "user:oidc~ann", "attributes": {"email": value}}
            _, answer = await client.check({"principal": principal, "action": "read_data", "resource": TABLE})
            assert answer["decisions"][0]["allowed"] is allowed, value


@pytest.mark.parametrize(
    ("paths", "said", "subject"),
    [
        (["oid", "sub"], {"oid": "a", "sub": "b"}, "a"),
        (["oid", "sub"], {"sub": "b"}, "b"),
        (["oid", "sub"], {"oid": None, "sub": "b"}, "b"),
        (["oid", "sub"], {"oid": 7, "sub": "b"}, None),
        (["oid", "sub"], {"oid": "", "sub": "b"}, None),
        (["oid", "sub"], {"oid": ["a"], "sub": "b"}, None),
        (["oid", "sub"], {"oid": {"x": "a"}, "sub": "b"}, None),
        (["oid", "sub"], {"oid": "a" * 1025, "sub": "b"}, None),
        ("sub", {}, None),
    ],
)
def test_the_first_present_claim_is_the_subject(paths: Any, said: Any, subject: str | None) -> None:
    reader = ClaimReader(ClaimSettings(subject=paths), said)
    if subject is None:
        with pytest.raises(Unauthenticated, match="the token names no subject"):
            reader.subject()
    else:
        assert reader.subject() == subject


@pytest.mark.parametrize(
    ("path", "said", "found"),
    [
        ("a.b", {"a.b": 1, "a": {"b": 2}}, 1),
        ("a.b", {"a": {"b": 2}}, 2),
        ("a.b.c", {"a.b": {"c": 1}}, 1),
        ("a.b.c", {"a": {"b.c": 1}}, 1),
        ("a.b.c", {"a": {"b": {"c": 2}, "b.c": 1}}, 2),
        ("a.b", {"a": {"c": 1}}, None),
        ("a.b", {"a": "b"}, None),
        ("a..b", {"a": {"": {"b": 1}}}, 1),
        (".".join("a" * 40), {"a": {"a": {}}}, None),
    ],
)
def test_a_path_is_read_with_names_that_have_dots(path: str, said: Any, found: Any) -> None:
    assert find_claim(said, path) == found


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"required": ["group"]}, "`group` is neither"),
        ({"optional": ["level"]}, "`level` is neither"),
        ({"required": ["groups"], "optional": ["groups"]}, "both"),
        ({"attributes": {"a": "b"}, "required": ["a"], "optional": ["attributes.a"]}, "both"),
        ({"roles": []}, "roles"),
        ({"keys_of": ["subject"]}, "keys_of"),
        ({"separator": ""}, "separator"),
        ({"types": {"level": "text"}}, "`level` is none of `attributes`"),
        ({"attributes": {"level": "level"}, "types": {"level": "list"}}, "types"),
    ],
)
def test_claims_that_cannot_be_meant_stop_the_start(tmp_path: Path, claims: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_settings(config_of(tmp_path, claims), tmp_path)


# --- one provider, several issuers --------------------------------------------------------------------------------


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Tokens]:
    """Tokens of a provider with two issuers, each with a key of its own and one key id."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"keys": [jwk("one", rsa_key(name))]}))
    issuers = [{"issuer": ISSUER, "jwks": "one.json"}, {"issuer": "accounts.example", "jwks": "two.json"}]
    provider = {"issuers": issuers, "audiences": ["pdp"], "claims": {"groups": "groups"}}
    tokens = Tokens(make_settings({"identity": {"providers": {"oidc": provider}}}, tmp_path), Telemetry())
    await tokens.start()
    yield tokens
    await tokens.stop()


async def test_two_issuers_name_one_principal(two: Tokens) -> None:
    first = await two.verify(token(rsa_key("one")))
    second = await two.verify(token(rsa_key("two"), iss="accounts.example"))
    assert first.principal == second.principal
    assert first.principal.id == "user:oidc~alice"
    assert first.identity == second.identity
    assert (await two.verify(token(rsa_key("two"), iss="accounts.example"))).principal == first.principal


async def test_a_claim_in_tokens_of_one_issuer_tells_nothing_of_another(two: Tokens) -> None:
    """Both issuers name one person, but each writes its own claims."""
    absent = token(rsa_key("two"), iss="accounts.example")
    for _ in range(2):
        await two.verify(token(rsa_key("one"), groups=["contractor"]))
        assert (await two.verify(absent)).principal.unseen == ("groups",)
    await two.verify(token(rsa_key("two"), iss="accounts.example", groups=["staff"]))
    assert (await two.verify(absent)).principal.unseen == ()


@pytest.mark.parametrize(
    ("key", "issuer"),
    [("one", "accounts.example"), ("two", ISSUER), ("one", "https://accounts.example"), ("two", "accounts.example/")],
)
async def test_a_key_of_one_issuer_verifies_no_token_of_another(two: Tokens, key: str, issuer: str) -> None:
    await two.verify(token(rsa_key("one")))
    with pytest.raises(Unauthenticated):
        await two.verify(token(rsa_key(key), iss=issuer))


@pytest.mark.parametrize(
    "provider",
    [
        {"issuer": "a", "jwks": "k", "issuers": [{"issuer": "b", "jwks": "k"}]},
        {"issuer": "a"},
        {"jwks": "k"},
        {},
        {"issuers": [{"issuer": "a", "jwks": "k"}, {"issuer": "a", "jwks": "l"}]},
        {"issuers": [{"issuer": "a"}]},
        {"issuers": [{"issuer": "a", "jwks": "http://elsewhere.example/k"}]},
    ],
)
def test_issuers_that_cannot_be_meant_stop_the_start(tmp_path: Path, provider: Any) -> None:
    with pytest.raises(ConfigError, match=r"issuer|jwks"):
        make_settings({"identity": {"providers": {"oidc": provider}}}, tmp_path)


def test_two_providers_share_no_issuer(tmp_path: Path) -> None:
    one, other = {"issuer": "a", "jwks": "k"}, {"issuers": [{"issuer": "b", "jwks": "k"}, {"issuer": "a", "jwks": "k"}]}
    with pytest.raises(ConfigError, match="same issuer"):
        make_settings({"identity": {"providers": {"x": one, "y": other}}}, tmp_path)


# --- Trino --------------------------------------------------------------------------------------------------------


def trino_config(folder: Path, **trino: Any) -> dict[str, Any]:
    config = config_of(folder, {}, forbid="'contractor' in roles")
    return {**config, "identity": {}, "trino": {"catalogs": {"k": {"warehouse": "lake"}}, **trino}}


@pytest.mark.parametrize(
    ("trino", "groups", "allowed"),
    [
        ({}, [], True),
        ({"unknown": ["attributes"]}, [], True),
        ({"unknown": ["roles"]}, [], False),
        ({"unknown": ["roles"], "groups": {"staff": "staff"}}, ["staff"], False),
        ({"groups": {"ext": "contractor"}}, ["ext"], False),
        ({"groups": {"ext": "contractor"}}, ["staff"], True),
    ],
)
async def test_trino_leaves_unknown_what_the_configuration_says(
    tmp_path: Path, trino: Any, groups: list[str], allowed: bool
) -> None:
    table = {"catalogName": "k", "schemaName": "hr", "tableName": "salaries", "columns": ["a"]}
    action = {"operation": "SelectFromColumns", "resource": {"table": table}}
    body = {"input": {"context": {"identity": {"user": "alice", "groups": groups}}, "action": action}}
    settings = settings_of(trino_config(tmp_path, **trino), tmp_path)
    async with serving(settings) as service, http_client(service) as client:
        _, answer = await client.post("/v1/data/trino/allow", body)
        batch = {**action, "filterResources": [{"table": table}] * 3} | {"operation": "FilterTables"}
        batch.pop("resource")
        _, listed = await client.post("/v1/data/trino/batch", {"input": {**body["input"], "action": batch}})
        pdp = service.pdp
    assert answer["result"] is allowed
    assert listed["result"] == ([0, 1, 2] if allowed else [])
    again = await replay(read_audit(tmp_path / "audit", ReadReport()), None, pdp)
    assert (again.checks > 1, dict(again.totals)) == (True, {})


@pytest.mark.parametrize(
    ("trino", "forbid", "found"),
    [
        ({}, "'contractor' in roles", "`roles`"),
        ({"groups": {"a": "b"}}, "'contractor' in roles", "`roles`"),
        ({"groups": {"a": "contractor"}}, "'contractor' in roles", ""),
        ({"groups": {"a": "contractor"}}, "size(roles) > 1", ""),
        ({}, "size(roles) > 1", "`roles`"),
        ({"unknown": ["roles"]}, "'contractor' in roles", ""),
        ({}, "attributes.level == 'x'", "`attributes`"),
        ({"unknown": ["attributes"]}, "attributes.level == 'x'", ""),
        ({}, "'contractor' in groups", ""),
        ({}, "role == 'x'", ""),
        ({}, "has(properties.pii) && properties.pii == 'yes'", "`properties`"),
        ({}, "warehouse == 'lake' && 'pii' in properties", "`properties`"),
        ({}, "warehouse == 'other' && has(properties.pii)", ""),
    ],
)
def test_a_forbid_that_reads_what_trino_does_not_send_is_a_finding(
    tmp_path: Path, trino: Any, forbid: str, found: str
) -> None:
    config = trino_config(tmp_path, **trino)
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": {"no": forbid}}))
    settings = settings_of(config, tmp_path)
    warnings = [problem.message for problem in find_problems(COMPOSITION, settings) if problem.severity == "warning"]
    bundle = build_bundle(settings, *read_rules(settings))
    for texts in (warnings, bundle.warnings):
        told = [text for text in texts if "Trino does not send" in text]
        assert len(told) == bool(found), texts
        assert all(found in text and "`no`" in text for text in told)
    config["trino"]["catalogs"] = {}
    assert not [
        text for text in build_bundle(settings_of(config, tmp_path), *read_rules(settings)).warnings if "Trino" in text
    ]


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    ("trino", "condition", "found"),
    [
        ({}, 'principal in Lakekeeper::Role::"contractor"', "`roles`"),
        ({"groups": {"a": "b"}}, 'principal in Lakekeeper::Role::"contractor"', "`roles`"),
        ({"groups": {"a": "contractor"}}, 'principal in Lakekeeper::Role::"contractor"', ""),
        ({"unknown": ["roles"]}, 'principal in Lakekeeper::Role::"contractor"', ""),
        ({"unknown": ["attributes"]}, 'principal in Lakekeeper::Role::"contractor"', "`roles`"),
        ({}, 'principal has email && principal.email == "x"', "`attributes`"),
        ({"groups": {"a": "b"}}, 'principal has email && principal.email == "x"', "`attributes`"),
        ({"unknown": ["attributes"]}, 'principal has email && principal.email == "x"', ""),
        ({}, 'resource in Lakekeeper::Warehouse::"lake"', ""),
        ({}, 'context has table_name && context.table_name == "x"', ""),
        ({}, 'context has table_name && principal has email && principal.email == "x"', "`attributes`"),
        ({}, 'resource is Lakekeeper::Table && resource in Lakekeeper::Namespace::"lake/n"', ""),
        ({}, 'principal == Lakekeeper::User::"oidc~x"', ""),
        ({}, 'resource is Lakekeeper::Table && resource.properties.hasTag("pii")', "`properties`"),
        ({}, 'resource is Lakekeeper::View && resource["properties"].hasTag("pii")', "`properties`"),
    ],
)
def test_a_forbid_of_cedar_that_reads_what_trino_does_not_send_is_a_finding(
    tmp_path: Path, trino: Any, condition: str, found: str, mapped: bool
) -> None:
    head = "principal is Lakekeeper::User, action, resource"
    texts = [f'@id("{id}") {id}({head}) when {{ {condition} }};' for id in ("permit", "forbid")]
    config = config_of(tmp_path, {}, cedar="\n".join(texts), provider={"role_map": {"c": "contractor"}})
    config["identity"] = config["identity"] if mapped else {}
    settings = settings_of({**config, "trino": {"catalogs": {"k": {"warehouse": "lake"}}, **trino}}, tmp_path)
    warnings = [problem.message for problem in find_problems(COMPOSITION, settings) if problem.severity == "warning"]
    for texts in (warnings, list(build_bundle(settings, *read_rules(settings)).warnings)):
        told = [text for text in texts if "Trino does not send" in text]
        assert len(told) == bool(found), texts
        assert all(found in text and "`forbid`" in text for text in told)
        effective = found != "`properties`" and (mapped or found == "`attributes`")
        assert all(("`trino.unknown: [" in text) is effective for text in told)


ON_ROLES: Final = {
    "'contractor' in roles": {"contractor"},
    "'contractor' in roles && 'guest' in roles": {"contractor", "guest"},
    "roles.exists(r, r.startsWith('c'))": {"any"},
    "!('staff' in roles)": {"any"},
    "role == 'x'": set(),
}
"""Forbid -> the roles that `polaris.roles` must feed."""


@pytest.mark.parametrize(("rule", "needed"), ON_ROLES.items())
@pytest.mark.parametrize("roles", [{}, {"ext": "contractor"}, {"ext": "contractor", "g": "guest"}])
@pytest.mark.parametrize("catalogs", [{}, {"c": "lake"}])
def test_a_forbid_on_roles_that_polaris_does_not_feed_is_a_finding(
    tmp_path: Path, rule: str, needed: set[str], roles: dict[str, str], catalogs: dict[str, str]
) -> None:
    named = [f'principal in Lakekeeper::Role::"{role}"' for role in sorted(needed - {"any"})]
    policy = f'@id("no") forbid(principal is Lakekeeper::User, action, resource) when {{ {" && ".join(named)} }};'
    cedar = "permit(principal, action, resource);" + (policy if named else "")
    config = trino_config(tmp_path) | {
        "trino": {},
        "polaris": {"catalogs": catalogs, "roles": roles},
        "authorities": {"default": {"engines": ["cedar"]}},
    }
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": {"no": rule}}))
    (tmp_path / "p.cedar").write_text(cedar)
    config["policies"] = {**config["policies"], "cedar": {"policies": ["p.cedar"]}}
    settings = settings_of(config, tmp_path)
    warnings = [problem.message for problem in find_problems(COMPOSITION, settings) if problem.severity == "warning"]
    is_fed = needed <= {*roles.values(), *(["any"] if roles else [])}
    for texts in (warnings, list(build_bundle(settings, *read_rules(settings)).warnings)):
        told = [text for text in texts if "`polaris.roles`" in text and "reads `roles`" in text]
        assert len(told) == (0 if is_fed or not catalogs else 2 if named else 1), texts


# --- owners of views, and acting roles ----------------------------------------------------------------------------

ENGINE: Final = {"type": "trino", "owner_property": "run-as", "identities": {"oidc": {"audiences": ["trino"]}}}


HOLDING: Final = (
    "!('x' in groups)", "!('x' in roles)", "'level' in attributes", "has(attributes.level)",
)  # fmt: skip
"""Conditions of READING that hold for bob."""


def at_places(conditions: tuple[str, ...]) -> str:
    """Return a rule with each condition at a table of its own, `hr.t0` and so on."""
    return " || ".join(f"(path == 'hr.t{number}' && ({text}))" for number, text in enumerate(conditions))


def load_of(table: str, *owners: str) -> dict[str, Any]:
    """Return a load of a table by bob, through a view for each owner; an empty owner is that of an INVOKER view."""
    names = [f"v{number}" for number in range(len(owners))]
    views = [
        {"resource": f"view:lake/mart/{name}", "properties": {"run-as": owner} if owner else {}}
        for name, owner in zip(names, owners, strict=True)
    ]
    return {
        "principal": {"id": "user:oidc~bob", "groups": ["staff"], "roles": ["staff"], "attributes": {"level": "low"}},
        "action": "loadTable", "target": f"table:lake/hr/{table}", "referencedBy": [["mart", name] for name in names],
        "views": views, "caller": {"idp": "oidc", "subject": "svc", "audiences": ["trino"]},
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["forbid", "permit"])
async def test_what_the_token_of_a_views_owner_would_say_is_unknown(tmp_path: Path, kind: str) -> None:
    conditions = tuple(text for texts in READING.values() for text in texts)
    elsewhere = "path.startsWith('mart.') || " if kind == "permit" else ""
    more = {kind: elsewhere + at_places(conditions), "trusted_engines": {"trino": ENGINE}, "identity": {}}
    async with asking(tmp_path, {}, **more) as client:
        for number, condition in enumerate(conditions):
            for owners in (("ann",), ("", "ann"), ("ann", ""), ("ann", "cid"), ("bob",)):
                status, loaded = await client.post("/v1/load", load_of(f"t{number}", *owners))
                assert (status, loaded["referencedByUsed"], loaded["allowed"]) == (200, True, False), (
                    condition,
                    owners,
                )
            for chain in ([], [""]):
                loaded = (await client.post("/v1/load", load_of(f"t{number}", *chain)))[1]
                assert loaded["allowed"] is ((condition in HOLDING) == (kind == "permit")), (condition, chain)


async def test_a_forbid_that_does_not_come_to_read_lets_owners_through(tmp_path: Path) -> None:
    forbid = "path == 'hr.other' && 'x' in groups || role == 'x' || delegated && path == 'q.t'"
    async with asking(tmp_path, {}, forbid=forbid, trusted_engines={"trino": ENGINE}, identity={}) as client:
        assert (await client.post("/v1/load", load_of("salaries", "ann")))[1]["allowed"]
        assert not (await client.post("/v1/load", load_of("other", "ann")))[1]["allowed"]


@pytest.mark.parametrize("name", ["groups", "attributes", "required groups"])
async def test_an_acting_role_makes_nothing_known(tmp_path: Path, name: str) -> None:
    """A forbid on a place is asked of the role alone, which has no token."""
    claims, said = UNKNOWN[name]
    world = {"grants": [{"principal": "user:oidc~alice", "privilege": "assignee", "object": "role:etl"}]}
    conditions = READING[variable_of(name)]
    headers = {"Authorization": f"Bearer {token(**said)}"}
    for kind in ("forbid", "permit"):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "world.json").write_text(json.dumps(world))
        async with asking(folder, claims, **{kind: at_places(conditions)}, store={"url": "file:world.json"}) as client:
            for number, role in itertools.product(range(len(conditions) + 1), ({}, {"actingRole": "role:etl"})):
                check = {"action": "read_data", "resource": f"table:lake/hr/t{number}", **role}
                _, answer = await client.post("/v1/check", {"checks": [check]}, headers)
                wanted = kind == "forbid" and number == len(conditions)
                assert answer["decisions"][0]["allowed"] is wanted, (kind, number, role)


# --- statements about oneself -------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"roles": ["staff"]}, {"groups": []}, {"attributes": {"a": 1}}, {}])
async def test_nobody_makes_unknown_evidence_known_by_saying_so(tmp_path: Path, given: dict[str, Any]) -> None:
    config = config_of(tmp_path, {}, forbid="'contractor' in groups")
    config["identity"]["callers"] = {
        "a": {"bearer": {"idp": "oidc", "subjects": ["alice"]}, "may_assert": ["principals", "roles", "attributes"]}
    }
    async with serving(settings_of(config, tmp_path)) as service, http_client(service) as client:
        headers = {"Authorization": f"Bearer {token(**OVERAGE)}"}
        check = {"principal": {"id": "user:oidc~alice", **given}, "action": "read_data", "resource": TABLE}
        _, answer = await client.post("/v1/check", {"checks": [check]}, headers)
    assert not answer["decisions"][0]["allowed"]
