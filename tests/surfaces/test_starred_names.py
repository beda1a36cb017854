"""Names with a `*`, put where policies name something: every door refuses with what to write, or the `*` is literal.

Objects that exist may have any name, so registrations and questions take a `*` to the letter. A policy about such an
object is written with `%2A`. tests/config/test_generated_mistakes.py has the keys of the configuration.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.clients.http_client import HttpClient, client_of
from support.clients.rpc_clients import ConnectClient, GrpcClient, RpcClient, RpcError
from support.service.command_line import grants, policy
from support.service.serving import settings_of

from pdp.config.load import make_settings
from pdp.config.names import KnownNames, NameCheck
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.schema import CedarSources, SourceText
from pdp.engines.cel.conditions import NAME_KINDS
from pdp.engines.cel.lint.linter import LintOptions, lint_files
from pdp.engines.cel.names import ARGUMENT_KEYS
from pdp.engines.cel.rules import load_rules
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.validation import compile_policies
from pdp.engines.scopes.explain import load_entries
from pdp.errors import PdpError, PolicyError
from pdp.rewrite.process.local import service_of_files
from pdp.store.world import parse_world, read_world, read_world_file
from pdp.store.world_text import world_lines
from pdp.surfaces.wire import decision_pb2 as wire

REFUSED = "is no wildcard"
STARRED_TABLES = (
    "lake.sales.*",
    "lake.*.orders",
    "*.sales.orders",
    "table:lake/sales/*",
    "view:lake/a*/b",
    "lake.s.a*b",
)
STARRED_GRANTEES = ("user:*", "user:a*@x.example", "group:*", "domain:*.example", "serviceAccount:*", "role:*")
RULE: dict[str, Any] = {"id": "p", "table": "lake.sales.orders", "grantees": ["allUsers"], "filter": "x = 1"}
MASK: dict[str, Any] = {
    "id": "m",
    "table": "lake.sales.orders",
    "column": "mail",
    "grantees": ["allUsers"],
    "kind": "null",
}
GRANT = {"principal": "user:oidc~ann", "privilege": "select", "object": "namespace:lake/sales"}
BAD_RULES = [
    *({**RULE, "table": table} for table in STARRED_TABLES),
    *({**RULE, "grantees": ["allUsers", member]} for member in STARRED_GRANTEES),
]
BAD_MASKS = [
    *({**MASK, "table": table} for table in STARRED_TABLES),
    *({**MASK, "grantees": [member]} for member in STARRED_GRANTEES),
    *({**MASK, "except": [member]} for member in STARRED_GRANTEES),
    *({**MASK, "column": column} for column in ("*", "mail*")),
]
BAD_GRANTS = [
    *({**GRANT, "object": f"{name}:lake/sales/*"} for name in ("namespace", "table", "view", "generic_table")),
    *({**GRANT, "object": text} for text in ("warehouse:*", "namespace:lake/*/a", "project:*")),
    *({**GRANT, "principal": text} for text in ("user:oidc~*", "user:oidc~a*", "role:*")),
    {**GRANT, "privilege": "assignee", "object": "role:*"},
]


def problem_of(call: Any, *arguments: Any) -> str:
    try:
        call(*arguments)
    except PdpError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("document", "field"),
    [
        *(({"policies": [rule]}, "table" if rule["table"] != RULE["table"] else "grantees") for rule in BAD_RULES),
        *(({"masks": [mask]}, next(key for key in mask if mask[key] != MASK.get(key))) for mask in BAD_MASKS),
        ({"policies": [{**RULE, "identity": "svc-*"}]}, "identity"),
        ({"masks": [{**MASK, "identity": "*"}]}, "identity"),
        ({"default": ["lake", "*"], "policies": [{**RULE, "table": "orders"}]}, "table"),
        ({"tables": {"lake.sales.*": {"columns": {"a": "INT"}}}}, "lake.sales.*"),
        ({"tables": {"lake.sales.*": {}}}, "lake.sales.*"),
    ],
)
def test_a_file_of_row_policies(document: Any, field: str) -> None:
    text = json.dumps(document, indent=1)
    with pytest.raises(PolicyError, match=REFUSED) as caught:
        compile_policies([parse_document(json.loads(text), "rows.json", text)])
    line = next(at for at, words in enumerate(text.splitlines(), 1) if f'"{field}"' in words)
    assert line <= caught.value.place.line <= line + 2  # the value, or an element of its list


def test_a_star_of_a_name_is_written_as_an_escape_or_declared() -> None:
    document = {
        "tables": {"table:lake/sales/a%2Ab": {"columns": {"a*": "VARCHAR"}}},
        "policies": [{**RULE, "table": "table:lake/sales/a%2Ab", "filter": "TRUE"}],
        "masks": [{**MASK, "table": "table:lake/sales/a%2Ab", "column": "a*"}],
    }
    (name,) = compile_policies([parse_document(document)]).tables
    assert name == ("lake", "sales.a*b")


def test_policies_of_the_rewriter(tmp_path: Path) -> None:
    """In files and in requests. BigQuery's wildcard tables are names of statements, and so of policies."""
    file = tmp_path / "rows.json"
    for key, body in (*(("policies", rule) for rule in BAD_RULES), *(("masks", mask) for mask in BAD_MASKS[:-2])):
        file.write_text(json.dumps({key: [body]}))
        assert REFUSED in problem_of(service_of_files, [file])
    wildcard = {**RULE, "table": "lake.sales.events_*", "dialect": "bigquery"}
    file.write_text(json.dumps({"tables": {"lake.sales.orders": {"columns": {"x": "INT"}}}, "policies": [wildcard]}))
    service = service_of_files([file])
    request = {"sql": "SELECT x FROM lake.sales.orders", "dialect": "trino", "principal": "user:a"}
    for rule, is_good in ((RULE, True), *((bad, False) for bad in BAD_RULES)):
        answer = service.answer(json.dumps({**request, "policies": [rule]}).encode())
        assert (REFUSED not in json.dumps(answer)) is is_good, answer


@pytest.mark.parametrize("grant", BAD_GRANTS, ids=json.dumps)
def test_a_grant_of_a_world(tmp_path: Path, grant: Any) -> None:
    """World files of the store, of imports and of policy tests, and worlds that stand in a policy test."""
    assert REFUSED in problem_of(parse_world, {"grants": [grant]})
    file = tmp_path / "world.yaml"
    file.write_text(f"grants:\n- {json.dumps(GRANT)}\n- {json.dumps(grant)}\n")
    with pytest.raises(PolicyError, match=REFUSED) as caught:
        read_world_file(file)
    assert caught.value.place.line == 3


def test_an_object_of_a_world_may_have_a_star_but_no_flag_for_a_pattern() -> None:
    names = ["namespace:lake/*", "table:lake/sales/a*b", "role:a*", "tag:*", "project:*"]
    world = read_world({"objects": names, "grants": [{**GRANT, "object": "table:lake/sales/a%2Ab"}]})
    assert world.grants[0].object == ("table", ("lake", "sales", "a*b"))
    assert REFUSED in problem_of(read_world, {"objects": [{"object": "namespace:lake/*", "managedAccess": True}]})
    managed = read_world({"objects": [{"object": "namespace:lake/%2A", "managedAccess": True}]})
    for each in (world, managed):  # an export can be imported
        text = "".join(world_lines(each.facts()))
        assert "".join(world_lines(read_world(json.loads(text)).facts())) == text


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("svc-*", {"catalog": "hive", "schema": "raw", "tables": ["t"]}),
        ("svc", {"catalog": "*", "schema": "raw", "tables": ["t"]}),
        ("svc", {"catalog": "hive", "schema": "raw.*", "tables": ["t"]}),
        ("svc", {"catalog": "hive", "schema": "raw", "tables": ["t", "*"]}),
        ("svc", {"catalog": "hive", "schema": "raw", "tables": ["t*"]}),
    ],
)
@pytest.mark.parametrize("slot", ["Query", "Mutation"])
def test_a_file_of_scopes(tmp_path: Path, name: str, rule: Any, slot: str) -> None:
    """`*` is all tables as the first of `tables`, as in LakeQL."""
    file = tmp_path / "permissions.json"
    for tables, is_good in ((["*"], True), (rule["tables"], False)):
        good = {"catalog": "hive", "schema": "raw", "tables": tables}
        entry = {"name": "svc", "permissions": {slot: [good]}}
        if not is_good:
            entry = {"name": name, "permissions": {slot: [rule]}}
        file.write_text(json.dumps([entry], indent=1))
        assert ("is no pattern" in problem_of(load_entries, [file])) is not is_good


IDS = [
    ("Table", "lake/sales/*"), ("Table", "orders"), ("View", "v"), ("GenericTable", "g"), ("Namespace", "lake/*"),
    ("Namespace", "ns1"), ("Warehouse", "*"), ("Warehouse", "lake/x"), ("Project", "*"), ("Project", "a/b"),
    ("Role", "*"), ("Role", "a*"), ("User", "oidc~*"), ("User", "alice"), ("Tag", "*"), ("Server", "main"),
    ("Table", "lake//t"), ("Table", "lake/s/a%2ab"), ("Namespace", "pond/s"),
]  # fmt: skip


@pytest.mark.parametrize(("type", "id"), IDS)
def test_an_id_of_cedar_that_no_check_has(type: str, id: str) -> None:
    """In each place of a policy and of an entity file. The message has the place and the form to write."""
    names = NameCheck(KnownNames(frozenset({"lake"})))
    uid = f'Lakekeeper::{type}::"{id}"'
    side = "principal" if type in ("Role", "User") else "resource"
    wheres = [f"when {{ {side} == {uid} }}", f"unless {{ {side} in [{uid}] }}", f"when {{ {uid} has name }}"]
    for condition in wheres:
        text = f"// one line above\npermit(principal, action, resource)\n  {condition};"
        with pytest.raises(PolicyError) as caught:
            load_model(CedarSources((SourceText(text, "p.cedar"),), names=names))
        assert caught.value.place.line == 3, caught.value
        assert "which is nothing" in str(caught.value)
    good = SourceText("permit(principal, action, resource);")
    ref = {"type": f"Lakekeeper::{type}", "id": id}
    user = {"type": "Lakekeeper::User", "id": "oidc~ann"}
    for entity in ({"uid": ref}, {"uid": user, "parents": [ref]}, {"uid": user, "attrs": {"x": {"__entity": ref}}}):
        source = SourceText(json.dumps([entity]), "entities.json")
        assert "is nothing" in problem_of(load_model, CedarSources((good,), (source,), names=names))


def test_ids_of_cedar_that_checks_have() -> None:
    """`like` has the patterns of Cedar; a text in a condition is no id."""
    uids = ['Table::"lake/t"', 'Table::"lake/s/t"', 'Namespace::"lake"', 'Namespace::"lake/s"', 'Role::"a/b"']
    uids += ['User::"oidc~a"', 'User::"anonymous"', 'Server::"server"', 'Project::"p"', 'Warehouse::"lake"']
    conditions = [f"resource == Lakekeeper::{uid} || principal == Lakekeeper::{uid}" for uid in uids]
    conditions += ['resource has name && resource.name like "a*"', 'resource has name && resource.name == "a*"']
    text = "\n".join(f"permit(principal, action, resource) when {{ {condition} }};" for condition in conditions)
    model = load_model(CedarSources((SourceText(text),), names=NameCheck(KnownNames(frozenset({"lake"})))))
    assert len(model.policies.policies) == len(conditions)


VARIABLES = {*NAME_KINDS} | {f"arguments.{key}" for key in ARGUMENT_KEYS - {"name"}}


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_a_rule_of_cel(tmp_path: Path, variable: str) -> None:
    """A name may have a star, so it is a finding, and an error with `strict_names`; names with a form have none."""
    is_list = variable in ("roles", "groups", "actions")
    forms = ["'a*' in {}", "{}.exists(n, n == 'a*')", "{}[0] == 'a*'"] if is_list else []
    forms = forms or ["{} == 'a*'", "{} in ['x', '*']", "{}.startsWith('a*')", "{} != 'a.*'"]
    file = tmp_path / "forbid.yaml"
    for form in forms:
        file.write_text(json.dumps({"rules": {"f": form.format(variable)}}))
        for check in (NameCheck(forbid=True), NameCheck(forbid=True, strict=True)):
            error = problem_of(partial(load_rules, [file], names=check))
            assert error or not check.strict, form
            if not error:
                (found,) = load_rules([file], names=check).warnings
                assert "is no wildcard" in found.message
    findings = lint_files([file], LintOptions(names=NameCheck(forbid=True)))
    assert [each.code for each in findings if "*" in each.message] != []


def test_a_pattern_of_cel_may_have_a_star(tmp_path: Path) -> None:
    file = tmp_path / "forbid.yaml"
    file.write_text(
        json.dumps({"rules": {"f": "path.matches('^hr[.].*') && role.matches('svc-.*') && ref.matches('a*b')"}})
    )
    assert load_rules([file], names=NameCheck(forbid=True, strict=True)).warnings == ()


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[HttpClient]:
    config = {
        "warehouses": {"lake": {}},
        "store": {"url": f"sqlite:///{tmp_path}/pdp.db"},
        "policies": {"rules": []},
        "authorities": {"default": {"engines": ["grants"]}},
    }
    async with client_of(settings_of(config, tmp_path)) as client:
        yield client


async def test_writes_over_http(http: HttpClient) -> None:
    doors = [
        *(("/v1/row-access-policies", rule) for rule in BAD_RULES),
        *(("/v1/column-masks", mask) for mask in BAD_MASKS),
        *(("/v1/grants", {"add": [GRANT, grant]}) for grant in BAD_GRANTS),
        ("/v1/objects", {"put": [{"object": "namespace:lake/*", "managedAccess": True}]}),
    ]
    for path, body in doors:
        status, answer = await http.post(path, body)
        assert (status, REFUSED in answer["error"]["message"]) == (400, True), (path, body, answer)
    assert (await http.send("GET", "/v1/row-access-policies")).json()["rowAccessPolicies"] == []
    assert (await http.send("GET", "/v1/grants")).json()["grants"] == []


@pytest.mark.process
async def test_statements_over_http(http: HttpClient) -> None:
    for table in ("`lake.sales.*`", "lake.sales.`a*b`", "`lake`.`*`.`orders`"):
        sql = f"CREATE ROW ACCESS POLICY p ON {table} FILTER USING (x = 1)"
        status, answer = await http.post("/v1/rewrite", {"sql": sql, "dialect": "bigquery", "principal": "user:oidc~a"})
        assert (status, REFUSED in json.dumps(answer)) == (400, True), (sql, answer)


async def test_writes_over_grpc_and_connect(http: HttpClient) -> None:
    async with grpc.aio.insecure_channel(http.service.addresses["grpc"]) as channel:
        for service in ("PolicyService", "GrantsService"):
            clients: list[RpcClient] = [GrpcClient(channel, service)]
            clients += [ConnectClient(http, json=True, service=service)]
            for client in clients:
                for method, request in rpc_writes(service):
                    with pytest.raises(RpcError, match=REFUSED):
                        await client.call(method, request)


def rpc_writes(service: str) -> list[tuple[str, Any]]:
    if service == "PolicyService":
        rules = [wire.RowPolicy(**body) for body in (*BAD_RULES, *BAD_MASKS)]
        return [("WriteRowPolicy", wire.WriteRowPolicyRequest(policy=rule)) for rule in rules]
    return [("WriteGrants", wire.WriteGrantsRequest(add=[wire.Grant(**grant)])) for grant in BAD_GRANTS]


async def test_an_object_with_a_star_in_its_name_is_asked_and_granted(http: HttpClient) -> None:
    """Questions and registrations take any name. What is written with `%2A` holds for exactly this object."""
    name = "table:lake/sales/a*b"
    assert (await http.post("/v1/objects", {"put": [name, "namespace:lake/*"]}))[0] == 200
    grant = {**GRANT, "object": "table:lake/sales/a%2Ab"}
    assert (await http.post("/v1/grants", {"add": [grant]}))[0] == 200
    check = {"principal": GRANT["principal"], "action": "read_data"}
    asked = [{**check, "resource": text} for text in (name, "table:lake/sales/a%2Ab", "table:lake/sales/axb")]
    _, answer = await http.check(*asked)
    assert [each["allowed"] for each in answer["decisions"]] == [True, True, False]
    rule = {**RULE, "table": "table:lake/sales/a%2Ab"}
    status, made = await http.post("/v1/row-access-policies", rule)
    assert (status, made["table"]) == (200, name)
    assert (await http.send("GET", f"/v1/row-access-policies/p?table={name}")).status == 200
    assert (await http.send("DELETE", f"/v1/row-access-policies/p?table={name}")).status == 200
    listed = (await http.send("GET", "/v1/grants")).json()["grants"]
    assert [each["object"] for each in listed] == [name]
    removed = {name: listed[0][name] for name in GRANT}
    assert (await http.post("/v1/grants", {"remove": [removed]}))[0] == 200  # as it is listed


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"warehouses": {"lake": {}}, "store": {"url": "sqlite:///pdp.db"}, "policies": {"rules": []}}
    (tmp_path / "pdp.yaml").write_text(json.dumps(settings))
    make_settings(settings, tmp_path)
    (tmp_path / "world.yaml").write_text(json.dumps({"grants": [BAD_GRANTS[0]]}))
    done = [
        policy("create", "p", "lake.sales.*", "--filter", "TRUE"),
        policy("create", "p", "lake.sales.orders", "--filter", "TRUE", "--grantee", "user:*"),
        policy("create", "m", "lake.sales.orders", "--mask", "*"),
        policy("execute", input="CREATE ROW ACCESS POLICY p ON `lake.sales.*` FILTER USING (TRUE)"),
        policy("execute", input="CREATE ROW ACCESS POLICY p ON lake.s.t GRANT TO ('user:*') FILTER USING (TRUE)"),
        grants("add", "user:oidc~ann", "select", "table:lake/sales/*"),
        grants("add", "user:oidc~*", "select", "table:lake/sales/orders"),
        grants("import", "world.yaml"),
    ]
    assert [(each.exit_code, REFUSED in each.output) for each in done] == [(2, True)] * len(done)
    assert grants("remove", "user:oidc~*", "select", "table:lake/sales/*").exit_code == 0
    assert grants("add", "user:oidc~ann", "select", "table:lake/sales/%2A").exit_code == 0
    assert grants("export", "out.json").exit_code == 0
    assert '"object": "table:lake/sales/%2A"' in (tmp_path / "out.json").read_text()
