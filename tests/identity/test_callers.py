"""Callers: recognition by tokens, certificates, sockets and loopback, and rejection of everything else."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from cryptography import x509
from support.authentication import (
    ORDERS,
    PEOPLE,
    ask,
    bearer,
    client_context,
    diagnostics,
    oidc,
    post,
    refused_by_grpc,
    service_of,
    stub,
    users,
)
from support.clients.http_client import http_client
from support.oracles.audit_files import audit_records, audit_text
from support.servers.idp import Authority, Provider, jwk, provider, rsa_key, token
from support.service.serving import serving, settings_of

from pdp.config.identity import EVIDENCE
from pdp.config.load import load_settings, make_settings
from pdp.errors import ConfigError, Unauthenticated
from pdp.identity.callers import Callers, Peer, trusted_engines_of
from pdp.identity.tokens import Tokens
from pdp.model.question import TokenIdentity, TrustedEngine
from pdp.surfaces.wire import decision_pb2 as wire
from pdp.telemetry import Telemetry

READ = {"action": "read_data", "resource": ORDERS}
AS_ALICE = {"principal": "user:oidc~alice", **READ}
AS_BOB = {"principal": "user:oidc~bob", **READ}
NO_BODY: dict[str, Any] = {"checks": []}


@pytest.fixture
async def idp() -> AsyncIterator[Provider]:
    async with provider() as made:
        yield made


# --- a token's own principal --------------------------------------------------------------------------------------


async def test_a_token_asks_for_its_own_principal(tmp_path: Path) -> None:
    async with users(tmp_path) as service:
        own, named, elsewhere = await ask(service, token(), READ, AS_ALICE, {**READ, "resource": PEOPLE})
        stranger = await ask(service, token(sub="mallory"), READ)
    assert own["allowed"]
    assert named["allowed"]
    assert not elsewhere["allowed"]
    assert not stranger[0]["allowed"]


async def test_who_has_no_principal_must_name_one(tmp_path: Path) -> None:
    async with users(tmp_path) as service:
        decision = (await ask(service, None, READ))[0]
    assert decision["error"]["code"] == "invalid_argument"
    assert "principal" in decision["error"]["message"]


async def test_what_rules_see_of_a_token_is_what_it_carries(idp: Provider, tmp_path: Path) -> None:
    rules = {
        "role": "role == 'alice' && 'analyst' in roles && op == 'READ_ENTITY_VALUE'",
        "key": "op in ['READ_CONTENT_KEY', 'VIEW_REFERENCE']",
    }
    (tmp_path / "rules.yaml").write_text(json.dumps({"rules": rules}))
    asked = {**READ, "resource": f"{PEOPLE}@main"}
    async with service_of(tmp_path, idp, policies={"rules": ["rules.yaml"]}) as service:
        assert [d["allowed"] for d in await ask(service, token(roles=["analyst"]), asked)] == [True]
        assert [d["allowed"] for d in await ask(service, token(), asked)] == [False]
        # a bare name of oneself is oneself with all that the token says: roles cannot be left at home
        assert [d["allowed"] for d in await ask(service, token(roles=["analyst"]), {**AS_ALICE, **asked})] == [True]
        claimed = {**asked, "principal": {"id": "user:oidc~alice", "roles": ["analyst"]}}
        decision = (await ask(service, token(), claimed))[0]
    assert decision["error"]["code"] == "assertion_not_allowed"
    assert "roles" in decision["error"]["message"]


CLAIMED: dict[str, dict[str, Any]] = {
    "principals": AS_BOB,
    "a_role": {**READ, "principal": "role:analyst"},
    "anonymous": {**READ, "principal": "anonymous"},
    "roles": {**READ, "principal": {"id": "user:oidc~alice", "roles": ["admin"]}},
    "groups": {**READ, "principal": {"id": "user:oidc~alice", "groups": ["admins"]}},
    "attributes": {**READ, "principal": {"id": "user:oidc~alice", "attributes": {"clearance": "top"}}},
    "roles_of_another": {**READ, "principal": {"id": "user:oidc~bob", "roles": ["admin"]}},
    "delegated": {**READ, "delegated": True},
    "delegated_operation": {**READ, "action": "trino:CreateViewWithSelectFromColumns"},
    "properties": {**READ, "resource": {"reference": ORDERS, "properties": {"owner": "alice"}}},
}


@pytest.mark.parametrize("claimed", CLAIMED.values(), ids=CLAIMED)
async def test_a_user_asserts_nothing(tmp_path: Path, claimed: Any) -> None:
    async with users(tmp_path) as service:
        decisions = await ask(service, token(), READ, claimed, READ)
    assert [decision["allowed"] for decision in decisions] == [True, False, True]
    assert decisions[1]["error"]["code"] == "assertion_not_allowed"


async def test_an_empty_acting_role_is_not_an_absent_one(tmp_path: Path) -> None:
    async with users(tmp_path) as service:
        for role in ("", "role:"):
            decision = (await ask(service, token(), {**READ, "actingRole": role}))[0]
            assert decision["error"]["code"] == "invalid_argument"
        as_role = {**READ, "actingRole": "role:auditor", "action": "get_metadata", "resource": PEOPLE}
        other = {**as_role, "actingRole": "role:analyst"}
        assert [d["allowed"] for d in await ask(service, token(), as_role, other)] == [True, False]


# --- who is let in ------------------------------------------------------------------------------------------------


async def test_a_token_that_does_not_count_is_401_however_near_its_sender(tmp_path: Path) -> None:
    """On loopback, where without a token everything may be asserted."""
    async with users(tmp_path) as service:
        for headers in (
            bearer(token(rsa_key("evil"))),
            bearer(token(aud="billing")),
            bearer("x" * 17_000),
            bearer(""),
            {"Authorization": "Basic YWxpY2U6c2VjcmV0"},
            {"Authorization": token()},
            {"Authorization": ""},
        ):
            status, answered, reply = await post(service, {"checks": [AS_ALICE]}, headers=headers)
            assert (status, reply["error"]["code"]) == (401, "unauthenticated")
            assert answered["WWW-Authenticate"] == "Bearer"
            metadata = (("authorization", headers["Authorization"]),)
            code, details = await refused_by_grpc(service, metadata=metadata)
            assert (code, details.partition(":")[0]) == ("UNAUTHENTICATED", "unauthenticated")
        assert (await post(service, {"checks": [AS_ALICE]}))[0] == 200


async def test_two_tokens_are_no_token(tmp_path: Path) -> None:
    async with users(tmp_path) as service:
        sent = [("authorization", f"Bearer {token()}"), ("authorization", f"Bearer {token(sub='bob')}")]
        assert (await refused_by_grpc(service, metadata=tuple(sent)))[0] == "UNAUTHENTICATED"
        async with http_client(service) as client:
            assert (await client.send("POST", "/v1/check", NO_BODY, sent)).status == 401


async def test_a_token_where_no_provider_is_configured_is_nobody(tmp_path: Path) -> None:
    async with service_of(tmp_path) as service:
        assert (await post(service, NO_BODY, headers=bearer(token())))[0] == 401
        assert (await post(service, NO_BODY))[0] == 200


AUDIENCE = {"bearer": {"idp": "oidc", "audiences": ["pdp"]}, "may_assert": []}


async def test_where_only_tokens_count_being_near_is_nothing(
    idp: Provider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = {"callers": {"users": AUDIENCE}}
    server = {"http": "0.0.0.0:0", "grpc": "0.0.0.0:0"}
    async with service_of(
        tmp_path, idp, identity={"providers": {"oidc": oidc(idp)}, **identity}, server=server
    ) as service:
        service.addresses["http"] = service.addresses["http"].replace("0.0.0.0", "127.0.0.1")
        service.addresses["grpc"] = service.addresses["grpc"].replace("0.0.0.0", "127.0.0.1")
        assert (await ask(service, token(), READ))[0]["allowed"]
        for path in ("/v1/check", f"/v1/check?access_token={token()}", f"/v1/check?authorization=Bearer%20{token()}"):
            assert (await post(service, {"checks": [AS_ALICE]}, path))[0] == 401
        for path in ("allow", "batch", "rowFilters", "columnMask", "batchColumnMasks"):
            assert (await post(service, TRINO, f"/v1/data/trino/{path}"))[0] == 401
        assert (await refused_by_grpc(service))[0] == "UNAUTHENTICATED"
        metrics = await diagnostics(service, "/metrics")
    assert "unencrypted" in capsys.readouterr().out
    assert 'pdp_requests_total{code="401",surface="http"} 3.0' in metrics
    assert 'pdp_requests_total{code="401",surface="trino"} 5.0' in metrics
    assert 'pdp_requests_total{code="UNAUTHENTICATED",surface="grpc"} 1.0' in metrics


SMUGGLED = dict.fromkeys(("X-User", "X-Forwarded-User", "X-Forwarded-Email", "X-Remote-User", "Remote-User", "X-Auth-Request-User", "X-Assume-Role", "X-Acting-Role", "X-Principal", "X-Trino-User", "X-Pdp-Principal", "Cookie", "From", "X-Ssl-Client-S-Dn", "X-Forwarded-Client-Cert"), "user:oidc~alice")  # fmt: skip


async def test_identity_headers_of_other_services_say_nothing(tmp_path: Path) -> None:
    async with users(tmp_path, identity={"inspect": "deny"}) as service:
        plain = await post(service, {"checks": [READ, AS_ALICE]}, headers=bearer(token(sub="mallory")))
        smuggled = await post(service, {"checks": [READ, AS_ALICE]}, headers=SMUGGLED | bearer(token(sub="mallory")))
        smuggling = {name.lower(): value for name, value in SMUGGLED.items()}
        metadata = [(name, value) for name, value in smuggling.items() if not name.startswith("x-forwarded-")]
        async with grpc.aio.insecure_channel(service.addresses["grpc"]) as channel:
            check = wire.Check(action="read_data", resource=wire.Resource(reference=ORDERS))
            answer = await stub(channel).Check(wire.CheckRequest(checks=[check]), timeout=20, metadata=metadata)
    assert smuggled[2]["decisions"] == plain[2]["decisions"]
    assert [decision["allowed"] for decision in plain[2]["decisions"]] == [False, False]
    assert answer.decisions[0].error.code == "invalid_argument"


async def test_a_proxy_on_this_machine_does_not_pass_for_it_over_grpc(tmp_path: Path) -> None:
    check = wire.Check(
        principal=wire.Principal(id="user:oidc~a"), action="read_data", resource=wire.Resource(reference=ORDERS)
    )
    async with (
        serving(settings_of({}, tmp_path)) as service,
        grpc.aio.insecure_channel(service.addresses["grpc"]) as channel,
    ):
        ask = stub(channel).Check
        assert (await ask(wire.CheckRequest(checks=[check]), timeout=20)).decisions
        for name in ("x-forwarded-for", "x-forwarded-user", "forwarded", "origin", "via", "x-real-ip", "cf-ray"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(wire.CheckRequest(checks=[check]), timeout=20, metadata=[(name, "10.0.0.1")])
            assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


# --- being on this machine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Forwarded": "for=127.0.0.1"}, 403),
        ({"X-Forwarded-For": "127.0.0.1"}, 403),
        ({"X-Forwarded-User": "alice"}, 403),
        ({"x-forwarded-anything": ""}, 403),
        ({"X-Forwarded": "for=127.0.0.1"}, 403),
        ({"Via": "1.1 proxy"}, 403),
        ({"X-Real-IP": "127.0.0.1"}, 403),
        ({"True-Client-IP": "127.0.0.1"}, 403),
        ({"CF-Connecting-IP": "127.0.0.1"}, 403),
        ({"X-Envoy-External-Address": "127.0.0.1"}, 403),
        ({"Proxy-Connection": "keep-alive"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-CH-UA": '"Browser"'}, 403),
        ({"Referer": "http://evil.example/"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Content-Type": "application/jsonp"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "APPLICATION/JSON"}, 200),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/v1/check", "/v1/data/trino/allow"])
async def test_what_a_page_in_a_browser_could_send_is_refused(
    tmp_path: Path, path: str, headers: dict[str, str], status: int
) -> None:
    is_native = path == "/v1/check"
    if status == 415 and not is_native:
        status = 200  # paths of OPA change nothing, and read JSON under any content type
    async with service_of(tmp_path) as service:
        assert (await post(service, NO_BODY if is_native else TRINO, path, headers))[0] == status
        metrics = await diagnostics(service, "/metrics")
    assert f'pdp_requests_total{{code="{status}",surface="{"http" if is_native else "trino"}"}} 1.0' in metrics


async def test_a_token_may_come_through_a_proxy(tmp_path: Path) -> None:
    async with users(tmp_path) as service:
        headers = bearer(token()) | {"X-Forwarded-For": "192.0.2.1", "Host": "pdp.example", "Content-Type": "text/json"}
        status, _, reply = await post(service, {"checks": [READ]}, headers=headers)
    assert (status, reply["decisions"][0]["allowed"]) == (200, True)


# --- callers that may assert --------------------------------------------------------------------------------------


async def test_a_configured_token_may_assert_what_it_may(idp: Provider, tmp_path: Path) -> None:
    callers = {
        "by_subject": {"bearer": {"idp": "oidc", "subjects": ["svc"]}, "may_assert": ["principals"]},
        "by_audience": {"bearer": {"idp": "oidc", "audiences": ["bridge"]}, "may_assert": ["principals", "delegated"]},
        "by_both": {
            "bearer": {"idp": "oidc", "subjects": ["both"], "audiences": ["pdp"]},
            "may_assert": ["principals"],
        },
    }
    async with service_of(tmp_path, idp, identity={"callers": callers}) as service:
        assert [d["allowed"] for d in await ask(service, token(sub="svc"), AS_BOB, {**AS_BOB, "delegated": True})] == [
            True,
            False,
        ]
        both = token(sub="x", aud=["pdp", "bridge"])
        assert [d["allowed"] for d in await ask(service, both, AS_BOB, {**AS_BOB, "delegated": True})] == [True, True]
        assert (await ask(service, token(sub="both"), AS_BOB))[0]["allowed"]
        assert "error" in (await ask(service, token(sub="SVC"), AS_BOB))[0]
        assert (
            "error" in (await ask(service, token(sub="both", aud=["bridge2", "pdp"]), {**AS_BOB, "delegated": True}))[0]
        )
        assert (await post(service, NO_BODY))[0] == 401
    records = audit_records(tmp_path)
    assert {"by_subject", "by_audience", "by_both", "user:oidc~SVC"} == {record["caller"] for record in records}


async def test_both_lists_of_a_rule_must_match(idp: Provider, tmp_path: Path) -> None:
    rule = {"bearer": {"idp": "oidc", "subjects": ["svc"], "audiences": ["bridge"]}, "may_assert": ["principals"]}
    async with service_of(tmp_path, idp, identity={"callers": {"bridge": rule}}) as service:
        assert "error" in (await ask(service, token(sub="svc"), AS_BOB))[0]
        assert "error" in (await ask(service, token(sub="mallory", aud=["pdp", "bridge"]), AS_BOB))[0]
        assert (await ask(service, token(sub="svc", aud=["pdp", "bridge"]), AS_BOB))[0]["allowed"]


async def test_without_audiences_only_tokens_that_somebody_names_count(idp: Provider, tmp_path: Path) -> None:
    providers = {"oidc": oidc(idp, audiences=[])}
    callers = {"bridge": {"bearer": {"idp": "oidc", "subjects": ["svc"]}, "may_assert": ["principals"]}}
    engines = {"trino": {"type": "trino", "owner_property": "o", "identities": {"oidc": {"audiences": ["trino"]}}}}
    identity = {"providers": providers, "callers": callers}
    async with service_of(tmp_path, identity=identity, trusted_engines=engines) as service:
        assert (await ask(service, token(sub="svc", aud="any"), AS_BOB))[0]["allowed"]
        assert (await ask(service, token(aud="trino"), READ))[0]["allowed"]
        for said in ({"aud": "billing"}, {"aud": None}):
            assert (await post(service, NO_BODY, headers=bearer(token(**said))))[0] == 401


async def test_a_subject_of_one_provider_is_not_that_of_another(idp: Provider, tmp_path: Path) -> None:
    async with provider() as second:
        second.keys = [jwk("two", rsa_key("two"))]
        providers = {"oidc": oidc(idp), "partner": oidc(second, issuer="https://partner.example")}
        callers = {"bridge": {"bearer": {"idp": "oidc", "subjects": ["svc"]}, "may_assert": list(EVIDENCE)}}
        async with service_of(tmp_path, identity={"providers": providers, "callers": callers}) as service:
            theirs = token(rsa_key("two"), headers={"kid": "two"}, iss="https://partner.example", sub="svc")
            assert "error" in (await ask(service, theirs, AS_BOB))[0]
            as_alice = token(rsa_key("two"), headers={"kid": "two"}, iss="https://partner.example", sub="alice")
            assert not (await ask(service, as_alice, READ))[0]["allowed"]
            assert "error" in (await ask(service, as_alice, AS_ALICE))[0]


TRINO = {
    "input": {
        "context": {"identity": {"user": "alice", "groups": []}},
        "action": {
            "operation": "SelectFromColumns",
            "resource": {"table": {"catalogName": "k", "schemaName": "sales", "tableName": "orders", "columns": ["a"]}},
        },
    }
}


async def test_trinos_identity_is_its_callers_word(idp: Provider, tmp_path: Path) -> None:
    callers = {
        "trino": {"bearer": {"idp": "oidc", "subjects": ["trino"]}, "may_assert": ["principals", "roles", "groups"]}
    }
    catalogs = {"catalogs": {"k": {"warehouse": "lake"}}}
    async with service_of(tmp_path, idp, identity={"callers": callers}, trino=catalogs) as service:
        asked = [
            (await post(service, TRINO, "/v1/data/trino/allow", bearer(token(sub=subject))))[2]["result"]
            for subject in ("trino", "mallory", "alice")
        ]
        assert (await post(service, TRINO, "/v1/data/trino/allow"))[0] == 401
    assert asked == [True, False, True]


# --- certificates -------------------------------------------------------------------------------------------------

NAMED = [
    "CN=trino,O=acme",
    "trino",
    "DNS:trino.example",
    "URI:spiffe://lake/trino",
]


@pytest.mark.parametrize("subject", NAMED)
async def test_a_certificate_names_its_caller(tmp_path: Path, subject: str) -> None:
    ca = Authority(tmp_path)
    here = ca.issue("pdp")
    names = (x509.DNSName("trino.example"), x509.UniformResourceIdentifier("spiffe://lake/trino"))
    good = ca.issue("trino", *names, organization="acme")
    others = [
        ca.issue("mallory"),
        ca.issue("CN=trino,O=acme"),
        ca.issue("DNS:trino.example"),
        ca.issue("URI:spiffe://lake/trino"),
        ca.issue("spiffe://lake/trino"),
        Authority(tmp_path, "stranger").issue("trino", *names, organization="acme"),
    ]
    config = {
        "server": {
            "http": "0.0.0.0:0",
            "tls": {"cert": str(here[0]), "key_file": str(here[1]), "client_ca": str(ca.path)},
        },
        "identity": {"callers": {"engine": {"mtls": {"subjects": [subject]}, "may_assert": ["principals"]}}},
    }
    async with service_of(tmp_path, **config) as service:
        port = service.addresses["http"].rpartition(":")[2]
        service.addresses["http"] = f"localhost:{port}"
        assert await https(service, ca, good) == 200
        assert await https(service, ca, None) == 401
        for other in others[:-1]:
            assert await https(service, ca, other) == 401
        with pytest.raises((aiohttp.ClientError, OSError)):
            await https(service, ca, others[-1])
        assert await over_grpc(service, ca, good) == "OK"
        assert await over_grpc(service, ca, others[0]) == "UNAUTHENTICATED"
        assert await over_grpc(service, ca, None) == "UNAVAILABLE"
        assert await over_grpc(service, ca, others[-1]) == "UNAVAILABLE"


ODD_NAMES = {
    "ediPartyName": b"\x30\x06\xa5\x04\xa1\x02\x0c\x00",
    "x400Address": b"\x30\x04\xa3\x02\x30\x00",
}
"""Extensions of alternative names that TLS accepts and no library of ours reads."""


@pytest.mark.parametrize("odd", ODD_NAMES.values(), ids=ODD_NAMES)
async def test_a_certificate_with_odd_names_names_nobody(
    tmp_path: Path, odd: bytes, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """The common name would do: but what the authority meant by the other names is unknown."""
    ca = Authority(tmp_path)
    here = ca.issue("pdp")
    server = {
        "http": "0.0.0.0:0",
        "tls": {"cert": str(here[0]), "key_file": str(here[1]), "client_ca": str(ca.path)},
    }
    identity = {"callers": {"engine": {"mtls": {"subjects": ["trino"]}, "may_assert": ["principals"]}}}
    async with service_of(tmp_path, server=server, identity=identity) as service:
        service.addresses["http"] = f"localhost:{service.addresses['http'].rpartition(':')[2]}"
        certificate = ca.issue("trino", odd=odd)
        assert await https(service, ca, certificate) == 401
        assert await over_grpc(service, ca, certificate) == "UNAUTHENTICATED"
    assert "Traceback" not in caplog.text + capsys.readouterr().out


async def https(service: Any, ca: Authority, certificate: tuple[Path, Path] | None) -> int:
    return (await post(service, {"checks": [AS_BOB]}, ssl=client_context(ca.path, certificate)))[0]


async def over_grpc(service: Any, ca: Authority, certificate: tuple[Path, Path] | None) -> str:
    pair = (certificate[1].read_bytes(), certificate[0].read_bytes()) if certificate else (None, None)
    credentials = grpc.ssl_channel_credentials(ca.path.read_bytes(), *pair)
    async with grpc.aio.secure_channel(
        f"localhost:{service.addresses['grpc'].rpartition(':')[2]}", credentials
    ) as channel:
        try:
            await stub(channel).Check(wire.CheckRequest(checks=[wire.Check()]), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code().name
    return "OK"


async def test_behind_tls_a_token_needs_no_certificate(idp: Provider, tmp_path: Path) -> None:
    ca = Authority(tmp_path)
    here = ca.issue("pdp")
    tls = {"cert": str(here[0]), "key": str(here[1])}
    async with service_of(tmp_path, idp, server={"tls": tls}) as service:
        service.addresses["http"] = service.addresses["http"].replace("127.0.0.1", "localhost")
        status, _, reply = await post(service, {"checks": [READ]}, headers=bearer(token()), ssl=client_context(ca.path))
        assert (status, reply["decisions"][0]["allowed"]) == (200, True)
        assert await over_grpc(service, ca, None) == "OK"
        service.scheme = "http"
        with pytest.raises(aiohttp.ClientError):
            await post(service, NO_BODY)


# --- the unix socket ----------------------------------------------------------------------------------------------


async def test_a_unix_socket_names_the_user_behind_it(tmp_path: Path) -> None:
    identity = {"callers": {"sidecar": {"unix_socket": True, "may_assert": ["principals"]}}}
    async with service_of(tmp_path, identity=identity, server={"unix": "pdp.sock"}) as service:
        status, _, reply = await post(service, {"checks": [AS_BOB]}, unix=True)
        assert (status, reply["decisions"][0]["allowed"]) == (200, True)
        assert (await post(service, NO_BODY, unix=True, headers={"X-Forwarded-For": "192.0.2.1"}))[0] == 403
        assert (await post(service, NO_BODY))[0] == 401
        assert stat.S_IMODE((tmp_path / "pdp.sock").stat().st_mode) == 0o600
        with pytest.raises(ConfigError, match=r"server\.unix"):
            async with serving(settings_of({"server": {"unix": "pdp.sock"}}, tmp_path)):
                pass
    assert not (tmp_path / "pdp.sock").exists()
    records = audit_text(tmp_path)
    assert f'"caller":"sidecar:uid={os.getuid()}"' in records


async def test_a_socket_is_nobody_where_none_is_configured(tmp_path: Path) -> None:
    async with service_of(tmp_path, server={"unix": "pdp.sock"}) as service:
        assert (await post(service, NO_BODY, unix=True))[0] == 401


async def test_a_socket_that_was_left_behind_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "pdp.sock"))
    async with service_of(tmp_path, server={"unix": "pdp.sock"}) as service:
        assert (await post(service, NO_BODY, unix=True))[0] == 401
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ConfigError, match=r"server\.unix"):
        async with service_of(tmp_path, server={"unix": "file"}):
            pass
    assert (tmp_path / "file").read_text() == "precious"


# --- configurations that would let strangers in -------------------------------------------------------------------

KNOWN = {"providers": {"oidc": {"issuer": "https://i", "jwks": "keys.json", "audiences": ["pdp"]}}}
ANYWHERE = {"server": {"http": "0.0.0.0:8181"}}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({**ANYWHERE, "identity": KNOWN}, "server.http"),
        ({**ANYWHERE, "identity": {**KNOWN, "callers": {"a": {"loopback": True}, "b": AUDIENCE}}}, "server.http"),
        ({"server": {"grpc": "0.0.0.0:1"}, "identity": {**KNOWN, "callers": {"a": {"loopback": True}}}}, "server.grpc"),
        ({"identity": {"callers": {"a": {"mtls": {"subjects": ["x"]}}}}}, "identity.callers.a.mtls"),
        ({"identity": {"callers": {"a": {"mtls": {"subjects": []}}}}}, "identity.callers.a.mtls.subjects"),
        ({"identity": {"callers": {"a": {"loopback": True, "unix_socket": True}}}}, "identity.callers.a"),
        ({"identity": {"callers": {"a": AUDIENCE}}}, "identity"),
        ({"identity": {**KNOWN, "callers": {"a": {"bearer": {"idp": "oidc"}}}}}, "identity.callers.a.bearer"),
        ({"identity": {"callers": {"a": {"unix_socket": True}, "b": {"unix_socket": True}}}}, "identity.callers"),
        ({"identity": {"inspect": "everybody"}}, "identity.inspect"),
        ({"identity": {"instance_admins": ["root"]}}, "identity.instance_admins.0"),
        ({"identity": {"instance_admins": ["role:admin"]}}, "identity.instance_admins.0"),
        ({"server": {"tls": {"cert": "x"}}}, "server.tls"),
        ({"server": {"tls": {"client_ca": "x"}}}, "server.tls"),
        ({"server": {"unix": ""}}, "server.unix"),
        ({"trusted_engines": {"t": {"type": "trino", "owner_property": "o", "identities": {}}}}, "trusted_engines.t.identities"),
        ({"trusted_engines": {"t": {"type": "trino", "owner_property": "o", "identities": {"oidc": {}}}}}, "trusted_engines.t.identities.oidc"),
        ({"trusted_engines": {"t": {"type": "spark", "owner_property": "o", "identities": {"oidc": {"subjects": ["x"]}}}}}, "trusted_engines.t.type"),
        ({"trusted_engines": {"t": {"type": "trino", "identities": {"oidc": {"subjects": ["x"]}}}}}, "trusted_engines.t.owner_property"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_be_meant_stops_the_start(tmp_path: Path, config: Any, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_settings(config, tmp_path)
    assert f"`{named}`" in str(caught.value)


@pytest.mark.parametrize("broken", ["missing", "garbage", "mismatched"])
async def test_certificates_that_cannot_be_used_stop_the_start(tmp_path: Path, broken: str) -> None:
    ca = Authority(tmp_path)
    cert, key = ca.issue("pdp")
    if broken == "missing":
        key = tmp_path / "nowhere.key"
    elif broken == "garbage":
        key.write_text("planted-canary")
    else:
        key = ca.issue("other")[1]
    with pytest.raises(ConfigError, match=r"server\.tls") as caught:
        async with service_of(tmp_path, server={"tls": {"cert": str(cert), "key": str(key)}}):
            pass
    assert "canary" not in str(caught.value)


# --- trusted engines ----------------------------------------------------------------------------------------------

ENVIRONMENT = {
    "PDP__TRUSTED_ENGINES__TRINO__TYPE": "trino",
    "PDP__TRUSTED_ENGINES__TRINO__OWNER_PROPERTY": "trino.run-as-owner",
    "PDP__TRUSTED_ENGINES__TRINO__IDENTITIES__OIDC__AUDIENCES": "[trino]",
    "PDP__TRUSTED_ENGINES__TRINO__IDENTITIES__MY_IDP__SUBJECTS": '["svc-1"]',
    "PDP__TRUSTED_ENGINES__TRINO__ENFORCES_ROW_ACCESS": "true",
    "PDP__TRUSTED_ENGINES__OTHER__TYPE": "trino",
    "PDP__TRUSTED_ENGINES__OTHER__OWNER_PROPERTY": "owner",
    "PDP__TRUSTED_ENGINES__OTHER__IDENTITIES__OIDC__SUBJECTS": '["svc-2"]',
}
MATCHES: list[tuple[TokenIdentity, list[str]]] = [
    (TokenIdentity("oidc", "any", ("trino",)), ["trino"]),
    (TokenIdentity("oidc", "any", ("pdp", "trino")), ["trino"]),
    (TokenIdentity("oidc", "svc-2", ("trino",)), ["trino", "other"]),
    (TokenIdentity("oidc", "svc-2", ()), ["other"]),
    (TokenIdentity("my-idp", "svc-1", ()), ["trino"]),
    (TokenIdentity("my-idp", "svc-1", ("trino",)), ["trino"]),
    (TokenIdentity("my-idp", "any", ("trino",)), []),
    (TokenIdentity("my-idp", "svc-2", ("trino",)), []),
    (TokenIdentity("oidc", "svc-1", ("pdp",)), []),
    (TokenIdentity("oidc", "trino", ("Trino", "trin")), []),
    (TokenIdentity("partner", "svc-1", ("trino",)), []),
]


@pytest.mark.parametrize(("identity", "names"), MATCHES)
def test_an_engine_is_matched_within_its_provider_alone(identity: TokenIdentity, names: list[str]) -> None:
    configured = load_settings(None, [], ENVIRONMENT).trusted_engines
    found = trusted_engines_of(identity, configured)
    assert sorted(engine.name for engine in found) == sorted(names)
    assert {engine.idp for engine in found} <= {identity.idp}
    if "trino" in names:
        assert TrustedEngine("trino", "trino", "trino.run-as-owner", identity.idp, enforces_row_access=True) in found


# --- secrets ------------------------------------------------------------------------------------------------------


def _text_of(file: Path) -> str:
    """Return the text of a file of the audit, compressed or not."""
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).decode()


async def test_nothing_of_a_token_shows_anywhere(
    idp: Provider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    canary = "planted-canary-4711"
    said = {"secret": canary, "jti": canary}
    good = [token(**said)]
    bad = [
        token(rsa_key("evil"), **said),
        token(aud=canary),
        token(sub="alice\n", **said),
        token(headers={"kid": canary}),
        token(iss=canary),
        canary,
        f"{canary}.{canary}.{canary}",
        token(roles=[5, canary]),
    ]
    shown = []
    async with service_of(tmp_path, idp) as service:
        for text in (*good, *bad):
            status, headers, reply = await post(service, {"checks": [READ]}, headers=bearer(text))
            assert status == (200 if text in good else 401)
            shown += [json.dumps(headers), json.dumps(reply)]
            if text in bad:
                shown += await refused_by_grpc(service, metadata=(("authorization", f"Bearer {text}"),))
        shown.append(await diagnostics(service, "/metrics"))
    records = [_text_of(file) for file in (tmp_path / "audit").rglob("*") if file.is_file()]
    shown += [re.sub(r'"unverified(Issuer|Kid)":"[^"]*"', "", text) for text in records]  # what a refused token says
    shown += capsys.readouterr()
    for text in shown:
        assert canary not in text
        for secret in (*good, *bad):
            assert secret not in text
            assert secret.rpartition(".")[2] not in text


# --- tokens that count as absent ----------------------------------------------------------------------------------

IGNORING = {"callers": {"local": {"loopback": True, "ignore_tokens": True, "may_assert": ["principals"]}}}
SENT = ["Bearer abc", "bearer", "Basic YTpi", "", "Bearer a b", f"Bearer {'a' * 9000}"]


async def test_tokens_count_as_absent_where_the_configuration_says_so(tmp_path: Path) -> None:
    async with service_of(tmp_path, identity=IGNORING) as service:
        for sent in SENT:
            status, _, reply = await post(service, {"checks": [AS_ALICE]}, headers={"Authorization": sent})
            assert (status, [one["allowed"] for one in reply["decisions"]]) == (200, [True])
        allowed = (await ask(service, "abc", AS_ALICE, {**AS_ALICE, "principal": "user:oidc~mallory"}))[:2]
        assert [one["allowed"] for one in allowed] == [True, False]
        for signs in (
            {"Origin": "null"},
            {"Host": "evil.example"},
            {"X-Forwarded-For": "a"},
            {"Sec-Fetch-Site": "none"},
        ):
            assert (await post(service, NO_BODY, headers={"Authorization": "Bearer abc", **signs}))[0] == 403
        assert (await post(service, NO_BODY, headers={**bearer("a"), "Content-Type": "text/plain"}))[0] == 415


async def test_tokens_count_without_the_setting(tmp_path: Path) -> None:
    identity = {"callers": {"local": {"loopback": True, "may_assert": ["principals"]}}}
    async with service_of(tmp_path, identity=identity) as service:
        for sent in SENT:
            assert (await post(service, NO_BODY, headers={"Authorization": sent}))[0] == 401


async def test_ignored_tokens_are_those_of_loopback_alone(tmp_path: Path) -> None:
    identity = {"callers": {**IGNORING["callers"], "socket": {"unix_socket": True}}}
    async with service_of(tmp_path, identity=identity, server={"unix": "s"}) as service:
        assert (await post(service, NO_BODY, unix=True))[0] == 200
        assert (await post(service, NO_BODY, headers=bearer("abc"), unix=True))[0] == 401
    callers = Callers(settings_of({"identity": IGNORING}, tmp_path), Tokens(settings_of({}, tmp_path), Telemetry()))
    token = ("Bearer abc",)
    for peer in (Peer("192.0.2.1", authorization=token), Peer("", 7, authorization=token),
                 Peer("127.0.0.1", certificate=frozenset({"CN=x"}), authorization=token)):  # fmt: skip
        with pytest.raises(Unauthenticated):
            await callers.identify(peer)


@pytest.mark.parametrize(
    ("caller", "more", "said"),
    [
        ({"unix_socket": True, "ignore_tokens": True}, {}, "`ignore_tokens` stands beside `loopback: true` alone"),
        ({"ignore_tokens": True}, {}, "exactly one of"),
        ({"mtls": {"subjects": ["CN=a"]}, "ignore_tokens": True}, {}, "`ignore_tokens` stands beside"),
        ({"loopback": True, "ignore_tokens": False}, {}, "ignore_tokens"),
        (
            {"loopback": True, "ignore_tokens": True},
            {"providers": {"oidc": {"issuer": "https://i", "jwks": "https://i/k", "audiences": ["a"]}}},
            "`callers.c.ignore_tokens` and `providers`",
        ),
    ],
)
def test_tokens_are_ignored_beside_loopback_and_without_providers(
    tmp_path: Path, caller: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make_settings({"identity": {"callers": {"c": caller}, **more}}, tmp_path)
    assert said in str(caught.value)
