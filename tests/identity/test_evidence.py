"""Evidence: callers that assert more than they may, and peers without a configured caller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.clients.grpc_messages import check_message
from support.clients.http_client import client_of, http_client
from support.clients.stubs import wire_grpc
from support.service.commands import run_pdp
from support.service.serving import example_settings, serving

from pdp.app.service import Service
from pdp.config.identity import EVIDENCE
from pdp.config.load import load_settings
from pdp.config.settings import Settings
from pdp.errors import ConfigError, Unauthenticated
from pdp.identity.callers import EMBEDDED_CALLER, Callers, Peer, local_caller
from pdp.identity.tokens import Tokens
from pdp.surfaces.grpc.handlers import STATUS as GRPC_STATUS
from pdp.surfaces.http.answers import STATUS as HTTP_STATUS
from pdp.surfaces.peers import grpc_host as host_of_peer
from pdp.surfaces.wire import decision_pb2 as wire
from pdp.telemetry import Telemetry

RULES = "nessie.server.authorization.rules.everything=true\n"
REFERENCE = "table:lake/sales/orders@prod"
PLAIN = {"principal": "user:oidc~Alice", "action": "read_data", "resource": REFERENCE}
ASSERTING: dict[str, dict[str, Any]] = {
    "roles": {**PLAIN, "principal": {"id": "user:oidc~Alice", "roles": ["admin"]}},
    "groups": {**PLAIN, "principal": {"id": "user:oidc~Alice", "groups": ["admins"]}},
    "attributes": {**PLAIN, "principal": {"id": "user:oidc~Alice", "attributes": {"clearance": "top"}}},
    "delegated": {**PLAIN, "delegated": True},
    "properties": {**PLAIN, "resource": {"reference": REFERENCE, "properties": {"owner": "Alice"}}},
}
"""Checks that rest on one kind of evidence beside the principal."""


def settings_for(folder: Path, may_assert: list[str], *overrides: str) -> Any:
    """The example with a rule that allows everything, so that only the caller's word stands in the way."""
    (folder / "open.properties").write_text(RULES)
    callers = json.dumps({"bridge": {"loopback": True, "may_assert": may_assert}})
    rules = json.dumps([str(folder / "open.properties")])
    return example_settings(folder, f"identity.callers={callers}", f"policies.rules={rules}", *overrides)


def without(*kinds: str) -> list[str]:
    return [kind for kind in EVIDENCE if kind not in kinds]


async def ask_http(service: Service, *checks: Any) -> list[dict[str, Any]]:
    async with http_client(service) as client:
        status, answer = await client.check(*checks)
    assert status == 200
    decisions: list[dict[str, Any]] = answer["decisions"]
    return decisions


async def ask_grpc(service: Service, *checks: Any) -> list[dict[str, Any]]:
    async with grpc.aio.insecure_channel(service.addresses["grpc"]) as channel:
        stub: Any = wire_grpc.DecisionServiceStub(channel)
        response = await stub.Check(wire.CheckRequest(checks=map(check_message, checks)), timeout=20)
    return [
        {"allowed": decision.allowed, "by": list(decision.by)}
        | (
            {"error": {"code": decision.error.code, "message": decision.error.message}}
            if decision.HasField("error")
            else {}
        )
        for decision in response.decisions
    ]


@pytest.mark.parametrize("ask", [ask_http, ask_grpc], ids=["http", "grpc"])
@pytest.mark.parametrize("kind", ASSERTING)
async def test_evidence_that_a_caller_may_not_give_fails_that_check_alone(tmp_path: Path, ask: Any, kind: str) -> None:
    async with serving(settings_for(tmp_path, without(kind))) as service:
        decisions = await ask(service, PLAIN, ASSERTING[kind], PLAIN)
        others = await ask(service, *(check for name, check in ASSERTING.items() if name != kind))
    assert [decision["allowed"] for decision in decisions] == [True, False, True]
    assert decisions[1]["error"]["code"] == "assertion_not_allowed"
    assert kind in decisions[1]["error"]["message"]
    assert "error" not in decisions[0]
    assert "error" not in decisions[2]
    assert all(decision["allowed"] for decision in others)


@pytest.mark.parametrize("ask", [ask_http, ask_grpc], ids=["http", "grpc"])
async def test_who_may_assert_no_principal_may_ask_about_none(tmp_path: Path, ask: Any) -> None:
    asked = [{**PLAIN, "principal": principal} for principal in ("user:oidc~Alice", "role:analyst", "anonymous")]
    async with serving(settings_for(tmp_path, without("principals"))) as service:
        decisions = await ask(service, *asked)
    assert [decision["allowed"] for decision in decisions] == [False] * 3
    assert {decision["error"]["code"] for decision in decisions} == {"assertion_not_allowed"}


@pytest.mark.parametrize("ask", [ask_http, ask_grpc], ids=["http", "grpc"])
async def test_a_caller_that_may_assert_all_is_believed(tmp_path: Path, ask: Any) -> None:
    async with serving(settings_for(tmp_path, without())) as service:
        decisions = await ask(service, PLAIN, *ASSERTING.values())
    assert [decision["allowed"] for decision in decisions] == [True] * (1 + len(ASSERTING))


async def test_empty_evidence_is_no_evidence(tmp_path: Path) -> None:
    bare = {"id": "user:oidc~Alice", "roles": [], "groups": [], "attributes": {}}
    asked = {**PLAIN, "principal": bare, "resource": {"reference": REFERENCE, "properties": {}}, "delegated": False}
    async with serving(settings_for(tmp_path, ["principals"])) as service:
        decisions = await ask_http(service, asked)
    assert decisions[0]["allowed"]


async def test_a_caller_that_may_assert_nothing_learns_nothing(tmp_path: Path) -> None:
    async with serving(settings_for(tmp_path, [])) as service:
        decisions = await ask_http(service, PLAIN, *ASSERTING.values())
    for decision in decisions:
        assert not decision["allowed"]
        assert decision["by"] == ["invalid_check"]
        assert "everything" not in json.dumps(decision)


@pytest.mark.parametrize("ask", [ask_http, ask_grpc], ids=["http", "grpc"])
async def test_an_operation_that_is_delegated_by_nature_is_evidence_too(tmp_path: Path, ask: Any) -> None:
    rules = json.dumps([str(tmp_path / "delegated.properties")])
    (tmp_path / "delegated.properties").write_text("nessie.server.authorization.rules.views=delegated\n")
    settings = settings_for(tmp_path, without("delegated"), f"policies.rules={rules}")
    asked = {**PLAIN, "action": "trino:CreateViewWithSelectFromColumns"}
    async with serving(settings) as service:
        decisions = await ask(service, {**PLAIN, "delegated": True}, asked)
    assert [decision["allowed"] for decision in decisions] == [False, False]


TABLE = {"table": {"catalogName": "lakehouse", "schemaName": "sales", "tableName": "orders", "columns": ["a", "b"]}}
SINGLE = {"operation": "SelectFromColumns", "resource": TABLE}
MANY = {"operation": "FilterTables", "filterResources": [TABLE, TABLE]}
COLUMNS = {"operation": "FilterColumns", "filterResources": [TABLE]}


async def ask_trino(service: Service, **identity: Any) -> list[Any]:
    """The answers to one question alone, about two tables, about two columns."""
    answers = []
    async with http_client(service) as client:
        for endpoint, action in (("allow", SINGLE), ("batch", MANY), ("batch", COLUMNS)):
            body = {"input": {"context": {"identity": {"user": "Alice", **identity}}, "action": action}}
            status, answer = await client.trino(endpoint, body)
            assert status == 200
            answers.append(answer["result"])
    return answers


@pytest.mark.parametrize(
    ("kind", "identity"),
    [("principals", {}), ("groups", {"groups": ["staff"]}), ("roles", {"groups": ["analysts"]})],
)
async def test_trino_gets_nothing_where_it_may_not_say_who_asks(tmp_path: Path, kind: str, identity: Any) -> None:
    mapped = 'trino.groups={"analysts": "analyst"}'
    async with serving(settings_for(tmp_path, without(kind), mapped)) as service:
        assert await ask_trino(service, **identity) == [False, [], []]
    async with serving(settings_for(tmp_path, without(), mapped)) as service:
        assert await ask_trino(service, **identity) == [True, [0, 1], [0, 1]]


async def test_trino_without_groups_needs_no_right_to_assert_them(tmp_path: Path) -> None:
    async with serving(settings_for(tmp_path, ["principals"])) as service:
        assert await ask_trino(service) == [True, [0, 1], [0, 1]]
        assert await ask_trino(service, groups=[]) == [True, [0, 1], [0, 1]]


async def test_a_view_of_trino_is_delegated_only_on_the_word_of_who_may_say_so(tmp_path: Path) -> None:
    rules = json.dumps([str(tmp_path / "delegated.properties")])
    (tmp_path / "delegated.properties").write_text("nessie.server.authorization.rules.views=delegated\n")
    action = {"operation": "CreateViewWithSelectFromColumns", "resource": TABLE}
    body = {"input": {"context": {"identity": {"user": "Alice"}}, "action": action}}
    answers = []
    for may_assert in (without(), without("delegated")):
        async with client_of(settings_for(tmp_path, may_assert, f"policies.rules={rules}")) as client:
            answers.append((await client.trino("allow", body))[1]["result"])
    assert answers == [True, False]


async def test_trino_users_that_are_no_names_get_nothing(tmp_path: Path) -> None:
    async with serving(settings_for(tmp_path, without())) as service:
        for user in ("", "\x00", "a\nb", "\u2028"):
            assert await ask_trino(service, user=user) == [False, [], []]


# --- where it listens, and to whom --------------------------------------------------------------------------------

ELSEWHERE = [
    "0.0.0.0:8181",
    "[::]:8181",
    "0:8181",
    "*:8181",
    ":8181",
    "8181",
    "192.0.2.1:8181",
    "169.254.1.1:8181",
    "[fe80::1]:8181",
    "[::ffff:192.0.2.1]:8181",
    "example.com:8181",
    "localhost.example.com:8181",
    "127.0.0.1.example.com:8181",
    "127.0.0.1,0.0.0.0:8181",
    "ipv4:0.0.0.0:8181",
    "dns:///0.0.0.0:8181",
    "unix:/tmp/socket",
    "unix-abstract:socket",
    "127.0.0.1",
    "127.0.0.1:x",
    "127.0.0.1:-1",
    "127.0.0.1:65536",
    "127.0.0.1:",
    "",
]


@pytest.mark.parametrize("listener", ["http", "grpc"])
@pytest.mark.parametrize("address", ELSEWHERE)
def test_decisions_are_served_on_loopback_alone(listener: str, address: str) -> None:
    with pytest.raises(ConfigError, match=rf"^`server\.{listener}`: "):
        load_settings(None, [f"server.{listener}={json.dumps(address)}"], {})
    with pytest.raises(ConfigError, match=rf"^`server\.{listener}`: "):
        load_settings(None, [], {f"PDP__SERVER__{listener.upper()}": json.dumps(address)})


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"])
def test_every_loopback_address_will_do(address: str) -> None:
    settings = load_settings(None, [f"server.http={json.dumps(address)}", f"server.grpc={json.dumps(address)}"], {})
    assert (settings.server.http, settings.server.grpc) == (address, address)


@pytest.mark.process
@pytest.mark.parametrize("listener", ["http", "grpc"])
def test_a_service_for_strangers_does_not_start(tmp_path: Path, listener: str) -> None:
    ended = run_pdp("serve", "--example", "--set", f"server.{listener}=0.0.0.0:0", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"`server.{listener}`" in ended.stderr
    assert "loopback" in ended.stderr


def test_diagnostics_may_leave_loopback() -> None:
    assert load_settings(None, ["server.diagnostics=0.0.0.0:8282"], {}).server.diagnostics == "0.0.0.0:8282"


CONFIGURED = Settings.model_validate(
    {"identity": {"callers": {"bridge": {"loopback": True, "may_assert": ["principals"]}}}}
)


def callers_of(settings: Settings) -> Callers:
    return Callers(settings, Tokens(settings, Telemetry()))


@pytest.mark.parametrize("settings", [Settings(), CONFIGURED], ids=["embedded", "configured"])
@pytest.mark.parametrize(
    "host",
    [
        "", "0.0.0.0", "::", "10.0.0.1", "192.0.2.1", "128.0.0.1", "fe80::1", "::ffff:192.0.2.1", "unix:", "unknown", "loopback",
        "127.0.0.1.example.com", "localhost.example.com", "127.0.0.1, 192.0.2.1", "0x7f.0.0.1", "2130706433", "127.0.0.1:80",
    ],
)  # fmt: skip
async def test_a_peer_that_is_not_on_this_machine_is_nobody(settings: Settings, host: str) -> None:
    with pytest.raises(Unauthenticated):
        await callers_of(settings).identify(Peer(host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.255.255.254", "::1"])
async def test_a_peer_on_this_machine_is_the_configured_caller(host: str) -> None:
    assert (await callers_of(Settings()).identify(Peer(host))).name == EMBEDDED_CALLER.name
    caller = await callers_of(CONFIGURED).identify(Peer(host))
    assert (caller.name, caller.may_assert, caller.may_write) == ("bridge", frozenset({"principals"}), False)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:4711", "127.0.0.1"),
        ("ipv4:192.0.2.1:4711", "192.0.2.1"),
        ("ipv6:%5B::1%5D:4711", "::1"),
        ("ipv6:[::1]:4711", "::1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4711", "fe80::1%25eth0"),
        ("unix:", "unix:"),
        ("unix:/127.0.0.1:1", "unix:/127.0.0.1:1"),
        ("127.0.0.1:4711", "127.0.0.1:4711"),
        ("", ""),
    ],
)
def test_the_peer_of_a_call_is_an_internet_address_or_nobody(peer: str, host: str) -> None:
    assert host_of_peer(peer) == host


@pytest.mark.parametrize(
    ("data", "may_write"),
    [
        ({}, True),
        ({"store": {"url": "sqlite:///pdp.db"}}, True),
        ({"store": {"url": "file:world.yaml"}}, False),
        ({"store": {"url": "postgresql://db/pdp"}}, False),
        ({"store": {"url": "sqlite:///pdp.db"}, "identity": {"callers": {"a": {"loopback": True}}}}, False),
        ({"identity": {"callers": {"a": {"loopback": True, "may_write": True}}}}, True),
    ],
)
def test_the_embedded_caller_writes_to_its_own_file_alone(data: Any, may_write: bool) -> None:
    caller = local_caller(Settings.model_validate(data))
    assert caller
    assert caller.may_write is may_write


@pytest.mark.parametrize(
    ("listener", "url"), [("http", "sqlite:///x"), ("grpc", "sqlite:///x"), ("", "postgresql://x")]
)
def test_the_embedded_caller_writes_nowhere_else(listener: str, url: str) -> None:
    """Settings that no file can hold: what they would open must be closed all the same."""
    settings = Settings()
    server = settings.server.model_copy(update={listener: "0.0.0.0:1"} if listener else {})
    store = settings.store.model_copy(update={"url": url})
    caller = local_caller(settings.model_copy(update={"server": server, "store": store}))
    assert caller
    assert not caller.may_write


def test_nobody_is_401_and_unauthenticated() -> None:
    assert dict(HTTP_STATUS)[Unauthenticated] == 401
    assert dict(GRPC_STATUS)[Unauthenticated] == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    "callers",
    [
        {"a": {}},
        {"a": {"may_assert": ["principals"]}},
        {"a": {"loopback": False}},
        {"a": {"loopback": True, "may_assert": ["everything"]}},
        {"a": {"loopback": True, "may_assert": "principals"}},
        {"a": {"loopback": True, "may_asert": []}},
        {"a": {"bearer": {"idp": "oidc"}}},
    ],
    ids=str,
)
def test_callers_that_cannot_be_known_stop_the_start(callers: Any) -> None:
    with pytest.raises(ConfigError, match=r"identity\.callers\.a"):
        load_settings(None, [f"identity.callers={json.dumps(callers)}"], {})


def test_two_callers_that_cannot_be_told_apart_stop_the_start() -> None:
    both = {"weak": {"loopback": True}, "strong": {"loopback": True, "may_assert": ["principals"]}}
    with pytest.raises(ConfigError, match=r"identity\.callers"):
        load_settings(None, [f"identity.callers={json.dumps(both)}"], {})
