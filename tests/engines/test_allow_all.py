"""The engine that permits everything: where it starts, where it refuses to, and its stamp on every reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import client_of
from support.service.serving import settings_of

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.assembly import build_bundle, read_rules
from pdp.app.service import Service
from pdp.errors import ConfigError

ENGINES = {"authorities": {"default": {"engines": ["allow_all"]}}}
TLS = {"cert": "cert.pem", "key": "key.pem", "client_ca": "ca.pem"}
PROVIDER = {"oidc": {"issuer": "https://idp", "jwks": "https://idp/keys"}}


async def test_everything_is_permitted_and_stamped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDP_DEVELOPMENT", "1")
    checks = [
        {"principal": principal, "action": action, "resource": resource}
        for principal in ("user:oidc~a", "anonymous", "role:x")
        for action, resource in (("read_data", "table:lake/s/t"), ("no_action", "server"), ("drop", "view:x/y/z"))
    ]
    async with client_of(settings_of(ENGINES, tmp_path)) as client:
        for asked in (checks, checks[:1], checks[:1]):
            decisions = (await client.check(*asked))[1]["decisions"]
            assert {(each["allowed"], *each["by"]) for each in decisions} == {(True, "allow_all:development")}
        bundle = client.service.pdp.bundle
    assert any("PERMITS EVERYTHING" in warning for warning in bundle.warnings)
    monkeypatch.delenv("PDP_DEVELOPMENT")
    assert rebuild_pdp(bundle.text).bundle.digest == bundle.digest  # a record can be decided again anywhere


@pytest.mark.parametrize(
    ("variable", "config", "message"),
    [
        (None, {}, "set PDP_DEVELOPMENT=1"),
        ("0", {}, "set PDP_DEVELOPMENT=1"),
        ("true", {}, "set PDP_DEVELOPMENT=1"),
        ("1", {"identity": {"providers": PROVIDER}}, "leave out `identity.providers`"),
        ("1", {"store": {"url": "postgresql://127.0.0.1/x"}}, "must not be PostgreSQL"),
        (
            "1",
            {
                "trusted_engines": {
                    "t": {"type": "trino", "owner_property": "o", "identities": {"oidc": {"subjects": ["t"]}}}
                }
            },
            "leave",
        ),
        ("any-address", {"identity": {"providers": PROVIDER}}, "leave out `identity.providers`"),
    ],
)
def test_a_service_that_others_use_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, config: dict[str, Any], message: str
) -> None:
    if variable is None:
        monkeypatch.delenv("PDP_DEVELOPMENT", raising=False)
    else:
        monkeypatch.setenv("PDP_DEVELOPMENT", variable)
    with pytest.raises(ConfigError, match=message):
        Service(settings_of(ENGINES | config, tmp_path))


@pytest.mark.parametrize("key", ["http", "grpc"])
def test_other_addresses_than_loopback_are_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    callers = {"callers": {"token": {"mtls": {"subjects": ["CN=x"]}}}}
    settings = settings_of(ENGINES | {"server": {key: "0.0.0.0:0", "tls": TLS}, "identity": callers}, tmp_path)
    monkeypatch.setenv("PDP_DEVELOPMENT", "1")
    with pytest.raises(ConfigError, match=rf"`server\.{key}` is `0\.0\.0\.0:0`: listen on loopback"):
        build_bundle(settings, *read_rules(settings))
    monkeypatch.setenv("PDP_DEVELOPMENT", "any-address")
    build_bundle(settings, *read_rules(settings))


def test_one_of_several_authorities_needs_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PDP_DEVELOPMENT", raising=False)
    authorities = {"default": {"engines": ["grants"]}, "dev": {"engines": ["allow_all"], "warehouses": ["x"]}}
    with pytest.raises(ConfigError, match="PDP_DEVELOPMENT"):
        Service(settings_of({"authorities": authorities}, tmp_path))
