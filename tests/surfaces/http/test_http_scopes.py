"""POST /v1/scopes over HTTP: answers, records, evidence, and bodies that are refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import audit_records
from support.servers.browser import node
from support.service.commands import run_pdp
from support.service.serving import settings_of

from pdp.app.assembly import read_rules
from pdp.app.facts import build_pdp
from pdp.decision.bodies import ResourceBody, make_resource
from pdp.decision.scopes import ScopeAnswer, ScopeService, decode_scopes
from pdp.decision.service import Pdp
from pdp.errors import InvalidArgument
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.question import Resource
from pdp.model.references import parse_principal

PERMISSIONS = [
    {
        "name": "svc",
        "permissions": {"Query": [{"catalog": "hive", "schema": "raw", "tables": ["events"]}], "Mutation": []},
    },
]
EVENTS = {"catalog": "hive", "schema": "raw", "tableName": "events"}
USERS = {**EVENTS, "tableName": "users"}
LAKE = {**USERS, "catalog": "lake"}


def config(**more: Any) -> dict[str, Any]:
    return {
        "authorities": {"default": {"engines": ["grants"]}, "lakeql": {"engines": ["scopes"], "warehouses": ["hive"]}},
        "policies": {"rules": [], "scopes": {"permissions": ["permissions.json"]}},
        "store": {"url": "file:world.json"},
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "permissions.json").write_text(json.dumps(PERMISSIONS))
    (tmp_path / "world.json").write_text("{}")
    return tmp_path


async def ask(client: HttpClient, body: Any) -> tuple[int, Any]:
    return await client.post("/v1/scopes", json.dumps(body).encode())


async def test_fields_are_answered_and_recorded(folder: Path) -> None:
    svc = {"userName": "svc"}
    async with client_of(settings_of(config(), folder)) as client:
        answers = [
            await ask(client, {"currentUser": svc, "scopes": {"readPermission": EVENTS}}),
            await ask(client, {"currentUser": svc, "scopes": {"readPermission": USERS, "writePermission": EVENTS}}),
            await ask(client, {"currentUser": {"userName": "human"}, "scopes": {"readPermission": USERS}}),
            await ask(client, {"currentUser": {"userName": "human"}, "scopes": {"readPermission": LAKE}}),
        ]
    assert answers == [(200, {"allowed": allowed}) for allowed in (True, False, True, False)]
    records = audit_records(folder)
    assert [[(row["action"], row["allowed"], row["by"]) for row in record["checks"]] for record in records] == [
        [("read_data", True, ["scopes:svc"])],
        [("read_data", False, ["default_deny"]), ("write_data", False, ["default_deny"])],
        [("read_data", True, ["scopes:(no entry)"])],
        [("read_data", False, ["default_deny"])],
    ]


SVC = {"userName": "svc"}
BY_USER = ("lakeql_authorized", True, ["scopes:(authorized)"])
BY_NOBODY = ("lakeql_authorized", False, ["default_deny"])
EMPTY = ("lakeql_empty", False, ["default_deny"])
READ = ("read_data", False, ["default_deny"])


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "allowed", "rows"),
    [
        ({}, True, [("lakeql_public", True, ["scopes:(public)"])]),
        ({"currentUser": SVC, "scopes": None}, True, [("lakeql_public", True, ["scopes:(public)"])]),
        ({"currentUser": SVC, "scopes": {}}, False, [EMPTY]),
        ({"currentUser": SVC, "scopes": {"authorized": False, "$all": {}, "$any": None}}, False, [EMPTY]),
        ({"scopes": {"authorized": True}}, False, [BY_NOBODY]),
        ({"currentUser": {}, "scopes": {"authorized": True, "$all": {"authorized": True}}}, True, [BY_USER]),
        ({"currentUser": SVC, "scopes": {"readPermission": USERS, "authorized": True}}, True, [BY_USER, READ]),
        (
            {"currentUser": SVC, "scopes": {"$all": {"authorized": True, "readPermission": USERS}}},
            False,
            [BY_USER, READ],
        ),
    ],
)
async def test_every_answer_has_a_check_in_the_audit(
    folder: Path, body: Any, allowed: bool, rows: list[tuple[str, bool, list[str]]]
) -> None:
    """Also an answer without a table. The same checks, decided again from the audit, have the same answers."""
    async with client_of(settings_of(config(), folder)) as client:
        assert await ask(client, body) == (200, {"allowed": allowed})
    (record,) = audit_records(folder)
    assert [(row["action"], row["allowed"], row["by"]) for row in record["checks"]] == rows
    user = body.get("currentUser")
    asker = "anonymous" if user is None else "user:oidc~svc" if user else "user"
    assert record["inputs"]["principal"]["id"] == asker
    replayed = json.loads(
        run_pdp("dry-run", "--audit", str(folder / "audit"), "--format", "json").stdout.splitlines()[-1]
    )
    assert (replayed["checks"], replayed["different"]) == (len(rows), 0)


NAMES = [
    "",
    "a",
    "a b",
    "ä",
    "a.b",
    "a..b",
    ".",
    "a/b",
    "a@b",
    "a\x00",
    "a\nb",
    "\x7f",
    "a\u2028",
    "x" * 4097,
    "%41",
    "#",
    "`",
    "~",
]


@pytest.mark.parametrize("kind", ["hive", "nessie"])
def test_names_are_those_that_checks_take(folder: Path, kind: str) -> None:
    """A name that a check refuses in its parts is refused as the name of a scope, in every place."""
    settings = settings_of(config(warehouses={"lake": {"kind": kind}}), folder)
    pdp = build_pdp(settings, Facts.empty(), read_rules(settings))
    for catalog, schema, table in [(name, *rest) for name in NAMES for rest in (("s", "t"),)] + [
        ("lake", *rest) for name in NAMES for rest in ((name, "t"), ("s", name), (name, ""))
    ]:
        scopes = {"readPermission": {"catalog": catalog, "schema": schema, "tableName": table}}
        assert refused(lambda: scoped(pdp, SVC, scopes)) == (  # noqa: B023  called here
            (bool(catalog and schema) and refused(lambda: checked(catalog, schema, table)))  # noqa: B023
            or (kind == "nessie" and catalog == "lake" and bool(schema and {*table} & {*"@#`"}))
        ), (catalog, schema, table)
    for name in NAMES[1:]:
        user = {"userName": name}
        by_name = refused(lambda: parse_principal(f"user:oidc~{name}"))  # noqa: B023
        assert refused(lambda: scoped(pdp, user, {"authorized": True})) == by_name, name  # noqa: B023


def refused(call: Callable[[], Any]) -> bool:
    try:
        call()
    except InvalidArgument:
        return True
    return False


def scoped(pdp: Pdp, user: Any, scopes: Any) -> ScopeAnswer:
    body = json.dumps({"currentUser": user, "scopes": scopes}).encode()
    return asyncio.run(ScopeService(pdp, "oidc", 100).answer(decode_scopes(body), EMBEDDED_CALLER, "http"))


def checked(catalog: str, schema: str, table: str) -> Resource:
    """Return the resource of a check that names its parts one by one."""
    path = [*schema.split("."), *([table] if table else [])]
    type = "table" if table else "namespace"
    return make_resource(ResourceBody(type=type, warehouse=catalog, path=tuple(path)))


@pytest.mark.parametrize(
    "body",
    [
        {"currentUser": "svc", "scopes": {"authorized": True}},
        {"currentUser": ["svc"], "scopes": {"authorized": True}},
        {"scopes": ["authorized"]},
        {"scopes": {"authorized": "yes"}},
        {"scopes": {"authorised": True}},
        {"scopes": {"readPermission": True}},
        {"scopes": {"readPermission": {**EVENTS, "table": "events"}}},
        {"scopes": {"$all": [{"authorized": True}]}},
        {"user": {}, "scopes": {}},
    ],
)
async def test_other_bodies_are_refused(folder: Path, body: Any) -> None:
    async with client_of(settings_of(config(), folder)) as client:
        status, answer = await ask(client, body)
    assert (status, answer["error"]["code"]) == (400, "invalid_argument")


async def test_deep_and_repeated_scopes_are_bounded(folder: Path) -> None:
    deep: Any = {"authorized": True}
    for _ in range(17):
        deep = {"$all": deep}
    async with client_of(settings_of(config(limits={"max_checks": 2}), folder)) as client:
        assert (await ask(client, {"currentUser": {}, "scopes": deep}))[0] == 400
        tables = {"$all": {"readPermission": EVENTS, "writePermission": EVENTS}, "readPermission": USERS}
        assert (await ask(client, {"currentUser": {}, "scopes": tables}))[1]["error"]["code"] == "too_many_checks"
        doubled = b'{"currentUser":{"userName":"x","userName":"svc"},"scopes":{"authorized":true}}'
        assert (await client.post("/v1/scopes", doubled))[0] == 400


@pytest.mark.parametrize("user", [{"userName": "svc"}, {"userName": ""}, {}, None])
async def test_a_caller_without_the_right_names_no_user(folder: Path, user: Any) -> None:
    """Nobody becomes another user by `currentUser`, not even for the scope `authorized`."""
    callers = {"callers": {"weak": {"loopback": True, "may_assert": ["roles"]}}}
    async with client_of(settings_of(config(identity=callers), folder)) as client:
        for scopes in ({"authorized": True}, {"readPermission": EVENTS}, {}, None):
            status, answer = await ask(client, {"currentUser": user, "scopes": scopes})
            assert (status, answer["error"]["code"]) == (403, "assertion_not_allowed")


async def test_claims_of_a_user_are_evidence_of_their_own(folder: Path) -> None:
    callers = {"callers": {"lakeql": {"loopback": True, "may_assert": ["principals"]}}}
    async with client_of(settings_of(config(identity=callers), folder)) as client:
        scopes = {"readPermission": EVENTS}
        assert await ask(client, {"currentUser": {"userName": "svc"}, "scopes": scopes}) == (200, {"allowed": True})
        assert (await ask(client, {"currentUser": {"userName": "svc", "role": "admin"}, "scopes": scopes}))[0] == 403


@pytest.mark.process
async def test_the_resolver_of_the_page_asks_the_service(folder: Path) -> None:
    """Run the printed resolver: permits and denials of the service, and a denial without a service."""
    page = (Path(__file__).parents[3] / "docs" / "scopes.md").read_text(encoding="utf-8")
    resolver = page.split("```js\n")[1].split("```")[0]
    resolver = resolver[resolver.index("const ask") : resolver.index("export const")]
    async with client_of(settings_of(config(), folder)) as client:
        address = client.service.addresses["http"]
        fields = [({"userName": "svc"}, EVENTS), ({"userName": "svc"}, USERS), (None, EVENTS)]
        script = (
            'import { request } from "node:http"\n'
            + resolver.replace("127.0.0.1:8181", address)
            + "".join(
                f"console.log(await ask('readPermission', {json.dumps({'context': {'currentUser': user}, **place})}))\n"
                for user, place in fields
            )
        )
        (folder / "ask.mjs").write_text(script)
        process = await asyncio.create_subprocess_exec(node(), "ask.mjs", cwd=folder, stdout=subprocess.PIPE)
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert out.decode().split() == ["true", "false", "false"]
    again = await asyncio.create_subprocess_exec(node(), "ask.mjs", cwd=folder, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(again.communicate(), 60)
    assert out.decode().split() == ["false", "false", "false"]  # nobody answers


@pytest.mark.parametrize("kind", ["groups", "roles"])
async def test_groups_and_roles_of_the_user_are_evidence_for_forbids(kind: str, folder: Path) -> None:
    """What the caller may not assert, or what is no list of texts, is unknown, and a forbid on it denies."""
    (folder / "forbid.yaml").write_text(json.dumps({"rules": {"no": f"'banned' in {kind}"}}))
    policies = {"rules": [], "forbid": ["forbid.yaml"], "scopes": {"permissions": ["permissions.json"]}}
    some = {"lakeql": {"loopback": True, "may_assert": ["principals", "attributes"]}}
    for name, more in (("all", {}), ("some", {"identity": {"callers": some}})):
        async with client_of(settings_of(config(policies=policies, **more), folder)) as client:
            for value, allowed in (
                (["banned"], False), (["other", "banned"], False), (["other"], name == "all"), ([], name == "all"),
                ("banned", False), ({"banned": True}, False), ([1], False), (None, name == "all"), (..., name == "all"),
            ):  # fmt: skip
                user = {"userName": "svc"} | ({} if value is ... else {kind: value})
                for scopes in ({"readPermission": EVENTS}, {"authorized": True}, {}):
                    answer = await ask(client, {"currentUser": user, "scopes": scopes})
                    assert answer == (200, {"allowed": allowed and bool(scopes)}), (name, value, scopes)


async def test_a_forbid_binds_a_name_in_any_case(folder: Path) -> None:
    """LakeQL reads by Trino, which lowers names."""
    (folder / "forbid.yaml").write_text(json.dumps({"rules": {"lock": "path.startsWith('raw.')"}}))
    policies = {"rules": [], "forbid": ["forbid.yaml"], "scopes": {"permissions": ["permissions.json"]}}
    async with client_of(settings_of(config(policies=policies), folder)) as client:
        for schema, allowed in (("raw", False), ("RAW", False), ("Raw", False), ("cooked", True)):
            scope = {"readPermission": EVENTS | {"schema": schema}}
            answer = await ask(client, {"currentUser": {"userName": "human"}, "scopes": scope})
            assert answer == (200, {"allowed": allowed}), schema
