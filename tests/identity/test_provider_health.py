"""Providers without keys: what readiness says of the cause, and when it is red."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from support.servers.idp import ISSUER, Authority, Provider, jwk, provider, server_tls, token
from support.service.serving import serving, settings_of

from pdp.app.service import Service, needs_tokens
from pdp.config.load import make_settings
from pdp.errors import Unavailable
from pdp.identity.tokens import Tokens
from pdp.telemetry import Telemetry

SECRET = "s3cr3t"
BEARER = {"users": {"bearer": {"idp": "oidc", "audiences": ["pdp"]}}}
TIMES = {"refresh_seconds": 0.05, "retry_seconds": 0.05, "fetch_timeout_seconds": 0.2}


def oidc(jwks: str, **more: Any) -> dict[str, Any]:
    return {"issuer": ISSUER, "jwks": jwks, "audiences": ["pdp"], **TIMES, **more}


async def trouble_of(config: dict[str, Any], folder: Path) -> str:
    tokens = Tokens(make_settings({"identity": {"providers": {"oidc": config}}}, folder), Telemetry())
    await tokens.start()
    await tokens.stop()
    with pytest.raises(Unavailable):
        await tokens.verify(token())
    assert tokens.count_keys() == {"oidc": 0}
    return tokens.troubles()["identity oidc"]


def _status(status: int) -> Any:
    def set_up(idp: Provider) -> None:
        idp.status = status

    return set_up


def _redirect(to: str) -> Any:
    def set_up(idp: Provider) -> None:
        idp.status, idp.headers = 302, {"Location": to}

    return set_up


def _body(text: bytes) -> Any:
    def set_up(idp: Provider) -> None:
        idp.body = text

    return set_up


def _slow(idp: Provider) -> None:
    idp.delay = 1


@pytest.mark.parametrize(
    ("set_up", "cause"),
    [
        (_status(404), "the answer is 404"),
        (_status(500), "the answer is 500"),
        (_redirect(f"https://login.acme.com/x?{SECRET}"), "a redirect to the host `login.acme.com`"),
        (_redirect(f"https://user:{SECRET}@login.acme.com:8443/"), "a redirect to the host `login.acme.com`"),
        (_redirect("/elsewhere"), "a redirect to the host `127.0.0.1`"),
        (_redirect(f"http://[{SECRET}"), "the answer is 302, a redirect:"),
        (_redirect(f"http://a`b{SECRET}"), "the answer is 302, a redirect:"),
        (_body(b"<html>" + SECRET.encode()), "it is no JWK set"),
        (_body(b'{"keys": 1}'), "it is no JWK set"),
        (_slow, "no answer within 0.2 seconds"),
    ],
)
async def test_the_cause_is_named_and_no_secret(set_up: Any, cause: str, tmp_path: Path) -> None:
    async with provider() as idp:
        set_up(idp)
        said = await trouble_of(oidc(f"{idp.url}?key={SECRET}"), tmp_path)
    assert cause in said
    assert SECRET not in said


async def test_causes_of_tls_and_of_the_network(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    async with provider(server_tls(ours), "localhost") as idp:
        said = await trouble_of(oidc(idp.url), tmp_path)
        assert "its certificate is not trusted" in said
        assert "`identity.providers.oidc.ca_file`" in said
        assert "ca_file" in await trouble_of(oidc(idp.url, ca_file=str(other.path)), tmp_path)
        wrong_name = idp.url.replace("localhost", "[::ffff:127.0.0.1]")
        said = await trouble_of(oidc(wrong_name, ca_file=str(ours.path)), tmp_path)
        assert "its certificate is not trusted" in said
        assert "ca_file" not in said  # no authority helps
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert "no connection: Connection refused" in await trouble_of(oidc(f"https://127.0.0.1:{port}/{SECRET}"), tmp_path)


OTHER_WAYS: list[tuple[dict[str, Any], bool]] = [
    ({"identity": {"callers": BEARER}}, True),
    ({"identity": {"callers": {}}}, False),
    ({"identity": {"callers": {**BEARER, "here": {"loopback": True}}}}, False),
    ({"identity": {"callers": {**BEARER, "sock": {"unix_socket": True}}}}, True),
    ({"identity": {"callers": {**BEARER, "sock": {"unix_socket": True}}}, "server": {"unix": "s"}}, False),
    ({"identity": {"callers": BEARER}, "server": {"unix": "s"}}, True),
]


@pytest.mark.parametrize(("config", "needed"), OTHER_WAYS)
def test_tokens_are_needed_where_no_other_sign_counts(config: dict[str, Any], needed: bool, tmp_path: Path) -> None:
    config["identity"]["providers"] = {"oidc": oidc("https://idp.example/keys")}
    assert needs_tokens(make_settings(config, tmp_path)) == needed


def test_a_certificate_is_another_sign(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("pdp")
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(authority.path)}
    callers = {**BEARER, "trino": {"mtls": {"subjects": ["CN=t"]}}}
    identity = {"providers": {"oidc": oidc("https://idp.example/keys")}, "callers": callers}
    assert not needs_tokens(make_settings({"identity": identity, "server": {"tls": tls}}, tmp_path))


async def _until(service: Service, want: bool) -> None:
    for _ in range(200):
        if bool(service.unready()) == want:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(service.unready())


async def test_readiness_is_red_only_if_no_provider_has_keys(tmp_path: Path) -> None:
    async with provider() as one, provider() as two:
        one.status = two.status = 503
        second = {**oidc(two.url), "issuer": "https://two.example"}
        config = {"identity": {"providers": {"oidc": oidc(one.url), "two": second}, "callers": BEARER}}
        async with serving(settings_of(config, tmp_path)) as service:
            assert service.unready() == ["nobody can be recognised: no identity provider has keys"]
            assert 'pdp_identity_keys{provider="oidc"} 0.0' in service.metrics().decode()
            two.status, two.keys = 200, [jwk(), jwk("two")]
            await _until(service, want=False)
            assert set(service.details()) >= {"identity oidc"}
            assert 'pdp_identity_keys{provider="two"} 2.0' in service.metrics().decode()
            one.status = 200
            await _until(service, want=False)
