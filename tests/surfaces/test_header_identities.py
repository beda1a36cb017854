"""Identities in headers and metadata: the seed's way in a development profile, refused in every other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.clients.http_client import HttpClient, http_client
from support.clients.stubs import wire_grpc
from support.rewriting import FOLDER
from support.service.serving import serving, settings_of

from pdp.engines.row_access.members import Members, development_identity, stated_member
from pdp.model.question import Principal
from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = pytest.mark.process  # those that rewrite
ROWS = {
    "default": ["lake", "s"],
    "tables": {"t": {"columns": {"n": "INTEGER", "who": "VARCHAR"}}},
    "policies": [
        {"id": "alice", "table": "t", "grantees": ["user:alice@example.com"], "filter": "n = 1"},
        {"id": "eu", "table": "t", "grantees": ["group:eu@example.com"], "filter": "n = 2"},
        {"id": "domain", "table": "t", "grantees": ["domain:acme.iam.gserviceaccount.com"], "filter": "n = 3"},
        {"id": "own", "table": "t", "grantees": ["allUsers"], "filter": "who = SESSION_USER()", "dialect": "duckdb"},
    ],
}
SQL = "SELECT n FROM t"
CASES: list[tuple[dict[str, str], str]] = [
    ({}, "who = 'anonymous'"),
    ({"X-Bqemu-Caller": "user:alice@example.com"}, "(n = 1) OR (who = 'alice@example.com')"),
    ({"X-Bqemu-Caller": " user:alice@EXAMPLE.com "}, "(n = 1) OR (who = 'alice@EXAMPLE.com')"),
    ({"X-Bqemu-Caller": "user:bob@example.com", "X-Bqemu-Groups": "x, group:eu@example.com"},
     "(n = 2) OR (who = 'bob@example.com')"),
    ({"X-Goog-User-Project": "acme"}, "(n = 3) OR (who = 'caller@acme.iam.gserviceaccount.com')"),
    ({"X-Bqemu-Caller": "two words", "X-Goog-User-Project": "acme"},
     "(n = 3) OR (who = 'caller@acme.iam.gserviceaccount.com')"),
    ({"X-Bqemu-Caller": "user:partner~alice@example.com"}, "who = 'partner~alice@example.com'"),
]  # fmt: skip


def config(folder: Path, *, development: bool) -> dict[str, Any]:
    (folder / "rows.json").write_text(json.dumps(ROWS))
    (folder / "all.properties").write_text("nessie.server.authorization.rules.all=true\n")
    engine = "allow_all" if development else "cel"
    return {
        "authorities": {"default": {"engines": [engine]}},
        "warehouses": {"lake": {"default_ref": "main"}},
        "store": {"url": f"sqlite:///{folder}/pdp.db"},
        "policies": {"rules": [] if development else ["all.properties"], "row_access": ["rows.json"]},
        "limits": {"rewrite_seconds": 60, "request_timeout_seconds": 60},
    }


@asynccontextmanager
async def served(folder: Path, monkeypatch: pytest.MonkeyPatch, *, development: bool) -> AsyncIterator[HttpClient]:
    if development:
        monkeypatch.setenv("PDP_DEVELOPMENT", "1")
    settings = settings_of(config(folder, development=development), folder)
    async with serving(settings) as service, http_client(service) as client:
        yield client


async def over_http(client: HttpClient, headers: dict[str, str], **more: Any) -> str:
    status, answer = await client.post("/v1/rewrite", {"sql": SQL, "dialect": "duckdb", **more}, headers)
    return answer["sql"] if status == 200 else f"{status} {answer['error']['code']}"


async def over_connect(client: HttpClient, headers: dict[str, str]) -> str:
    path = "/pdp.v1.DecisionService/Rewrite"
    status, answer = await client.post(path, {"sql": SQL, "dialect": "duckdb"}, headers)
    return answer["sql"] if status == 200 else f"{status} {answer['message'].partition(':')[0]}"


async def over_grpc(client: HttpClient, headers: dict[str, str]) -> str:
    async with grpc.aio.insecure_channel(client.service.addresses["grpc"]) as channel:
        stub = wire_grpc.DecisionServiceStub(channel)
        metadata = tuple((name.lower(), value) for name, value in headers.items())
        try:
            answer = await stub.Rewrite(wire.RewriteRequest(sql=SQL, dialect="duckdb"), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {(error.details() or '').partition(':')[0]}"
        return str(answer.sql)


WAYS = (over_http, over_connect, over_grpc)


async def test_in_development_headers_name_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path, monkeypatch, development=True) as client:
        for headers, wanted in CASES:
            for way in WAYS:
                assert f"WHERE {wanted})" in await way(client, headers), (way.__name__, headers)
            body = {"resource": "table:lake/s/t", "dialect": "duckdb"}
            status, answer = await client.post("/v1/filters", body, headers)
            assert (status, answer["rowFilter"]["expression"]) == (200, wanted), headers


async def test_the_body_comes_first_and_unknown_members_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, monkeypatch, development=True) as client:
        headers = {"X-Bqemu-Caller": "user:alice@example.com"}
        assert "'bob@x'" in await over_http(client, headers, principal="user:oidc~bob@x")
        for member in ("serviceAccount:sa@x.example", "group:eu@example.com", "domain:example.com", "allUsers", "bob"):
            assert await over_http(client, {"X-Bqemu-Caller": member}) == "403 assertion_not_allowed", member


def test_a_header_that_stands_twice_states_nobody() -> None:
    twice = [("x-bqemu-caller", "user:alice@example.com"), ("x-bqemu-caller", "user:bob@example.com")]
    assert "twice" in development_identity(twice, Members("user:{subject}", "oidc")).problem


def test_headers_state_all_that_there_is_of_a_user() -> None:
    headers = [("x-bqemu-caller", "user:alice@example.com"), ("x-bqemu-groups", "eu@example.com")]
    found = development_identity(headers, Members("user:{subject}", "oidc")).principal
    assert found == Principal("user", "oidc~alice@example.com", groups=("eu@example.com",))


async def test_in_every_other_profile_headers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of development alone makes no profile: every engine has to be `allow_all`."""
    monkeypatch.setenv("PDP_DEVELOPMENT", "1")
    async with served(tmp_path, monkeypatch, development=False) as client:
        for headers, _ in CASES:
            names = {name.lower() for name in headers}
            refused = {"403 assertion_not_allowed", "PERMISSION_DENIED assertion_not_allowed"}
            missing = {"400 invalid_argument", "INVALID_ARGUMENT invalid_argument"}
            wanted = refused if names - {"x-goog-user-project"} else missing
            for way in WAYS:
                assert await way(client, headers) in wanted, (way.__name__, headers)
        stated = {"X-Bqemu-Caller": "user:alice@example.com"}
        given = await over_http(client, stated, principal="user:oidc~alice@example.com")
        assert given == "403 assertion_not_allowed", "a sender who takes the header for an identity is told"
        assert "alice" in await over_http(client, {}, principal="user:oidc~alice@example.com")


async def test_a_caller_who_may_not_assert_principals_states_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDP_DEVELOPMENT", "1")
    callers = {"identity": {"callers": {"local": {"loopback": True, "may_assert": ["principals"]}}}}
    settings = settings_of(config(tmp_path, development=True) | callers, tmp_path)
    async with serving(settings) as service, http_client(service) as client:
        alice = {"X-Bqemu-Caller": "user:alice@example.com"}
        assert "n = 1" in await over_http(client, alice)
        assert await over_http(client, alice | {"X-Bqemu-Groups": "eu@example.com"}) == "403 assertion_not_allowed"


def test_the_recorded_identities_are_members_of_the_default_template() -> None:
    """A stated user is the principal whose member is the stated one."""
    members, seen = Members("user:{subject}", "oidc"), 0
    for line in (FOLDER / "grantee_cases.jsonl").read_text("utf-8").splitlines():
        found = stated_member(json.loads(line)["headers"])
        if found.authenticated and found.member.startswith("user:") and found.member != "user:":
            user = members.principal_of(found.member)
            assert user is not None
            assert members.member(user) == found.member
            seen += 1
    assert seen > 100
