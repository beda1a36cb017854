"""Tokens as known providers make them by their public documentation, with keys of the tests, by the lines of the page."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.paths import ROOT
from support.servers.idp import jwk, token

from pdp.config.load import make_settings
from pdp.errors import Unauthenticated
from pdp.identity.tokens import Tokens
from pdp.model.strict import load_yaml
from pdp.telemetry import Telemetry

TENANT = "11111111-2222-3333-4444-555555555555"
APP = "66666666-7777-8888-9999-000000000000"
USER = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
GROUP = "12345678-1234-1234-1234-123456789012"


class Known(NamedTuple):
    """Claims of a token, and what it becomes: the subject, the roles and the groups."""

    claims: Mapping[str, Any]
    subject: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    headers: Mapping[str, Any] = {"typ": "JWT"}


ENTRA = {
    "aio": "E2x", "oid": USER, "rh": "0.AAA", "sub": "pairwise-HFEEq", "tid": TENANT, "uti": "zAX", "groups": [GROUP],
    "roles": ["Analyst"], "name": "Alice", "scp": "access_as_user",
}  # fmt: skip
KUBERNETES = {
    "namespace": "trino", "node": {"name": "n1", "uid": USER}, "pod": {"name": "trino-0", "uid": USER},
    "serviceaccount": {"name": "trino", "uid": USER}, "warnafter": 1700003607,
}  # fmt: skip
TOKENS: Mapping[str, Known] = {
    "entra": Known(
        {**ENTRA, "ver": "2.0", "aud": APP, "azp": APP, "azpacr": "0", "preferred_username": "alice@acme.com",
         "iss": f"https://login.microsoftonline.com/{TENANT}/v2.0"},
        USER, ("Analyst",), (GROUP,),
    ),
    "entra-v1": Known(
        {**ENTRA, "ver": "1.0", "aud": f"api://{APP}", "appid": APP, "appidacr": "0", "acr": "1", "amr": ["pwd"],
         "ipaddr": "192.0.2.1", "unique_name": "alice@acme.com", "upn": "alice@acme.com",
         "iss": f"https://sts.windows.net/{TENANT}/"},
        USER, ("Analyst",), (GROUP,),
    ),
    "keycloak": Known(
        {"iss": "https://keycloak.example/realms/lake", "aud": ["pdp", "account"], "sub": USER, "typ": "Bearer",
         "azp": "trino", "sid": USER, "acr": "1", "allowed-origins": ["/*"], "scope": "profile email",
         "realm_access": {"roles": ["offline_access", "analyst"]},
         "resource_access": {"pdp": {"roles": ["writer"]}, "account": {"roles": ["manage-account"]}},
         "preferred_username": "alice", "email_verified": True, "groups": ["/eng"]},
        USER, ("offline_access", "analyst", "writer"), ("/eng",),
    ),
    "okta": Known(
        {"ver": 1, "jti": "AT.0mP", "iss": "https://acme.okta.com/oauth2/default", "aud": "api://default",
         "cid": "0oa", "uid": "00uid4BxXw6I6TV4m0g3", "scp": ["openid"], "sub": "alice@acme.com", "auth_time": 1,
         "groups": ["Everyone", "Data Engineers"]},
        "00uid4BxXw6I6TV4m0g3", (), ("Everyone", "Data Engineers"), {},
    ),
    "auth0": Known(
        {"iss": "https://acme.eu.auth0.com/", "sub": "auth0|5f7c8ec7c33c6c004bbafe82",
         "aud": ["https://pdp.example", "https://acme.eu.auth0.com/userinfo"], "azp": "my_client",
         "scope": "openid profile", "permissions": ["read:t"], "https://acme.example/roles": ["analyst"]},
        "auth0|5f7c8ec7c33c6c004bbafe82", ("analyst",), (), {"typ": "at+jwt"},
    ),
    "cognito": Known(
        {"sub": USER, "cognito:groups": ["engineers"], "version": 2, "client_id": "1example23456789", "origin_jti": USER,
         "iss": "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_AbCdEfGhI", "event_id": USER, "aud": None,
         "token_use": "access", "scope": "aws.cognito.signin.user.admin", "auth_time": 1, "username": "alice"},
        USER, (), ("engineers",), {},
    ),
    "zitadel": Known(
        {"iss": "https://acme.zitadel.cloud", "sub": "218528353504723202", "client_id": "218528353504723203@lake",
         "aud": ["218528353504723203@lake", "218528353504723201"], "jti": "V2_1",
         "urn:zitadel:iam:org:project:roles": {"analyst": {"218528353504723204": "acme.zitadel.cloud"}}},
        "218528353504723202", ("analyst",),
    ),
    "google": Known(
        {"iss": "https://accounts.google.com", "azp": "1234987819200.apps.googleusercontent.com", "at_hash": "HK6E",
         "aud": "1234987819200.apps.googleusercontent.com", "sub": "10769150350006150715113082367",
         "hd": "acme.com", "email": "alice@acme.com", "email_verified": "true", "nonce": "0394852", "nbf": None},
        "10769150350006150715113082367",
    ),
    "k8s": Known(
        {"iss": "https://kubernetes.default.svc.cluster.local", "aud": ["pdp"], "jti": USER,
         "sub": "system:serviceaccount:trino:trino", "kubernetes.io": KUBERNETES},
        "system:serviceaccount:trino:trino", headers={"typ": None},
    ),
}  # fmt: skip


def block() -> str:
    """Return the lines of the page."""
    text = (ROOT / "docs" / "identity.md").read_text()
    blocks: list[str] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return next(found for found in blocks if "entra-v1" in found)


@pytest.fixture
async def tokens(tmp_path: Path) -> AsyncIterator[Tokens]:
    """A verifier by the lines of the page, but for the places of the keys."""
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    config: dict[str, Any] = load_yaml(block())
    make_settings(config, tmp_path)  # the lines as they are
    for provider in config["identity"]["providers"].values():
        for key in ("ca_file", "jwks_token_file", "jwks"):
            provider.pop(key, None)
        for place in provider.get("issuers", [provider]):
            place["jwks"] = "keys.json"
    made = Tokens(make_settings(config, tmp_path), Telemetry())
    await made.start()
    yield made
    await made.stop()


@pytest.mark.parametrize("name", TOKENS)
async def test_the_lines_of_the_page_make_the_right_principal(name: str, tokens: Tokens) -> None:
    known = TOKENS[name]
    found = (await tokens.verify(token(headers=known.headers, **known.claims))).principal
    assert (found.id, found.roles, found.groups) == (f"user:{name}~{known.subject}", known.roles, known.groups)
    assert not found.unknown


@pytest.mark.parametrize("name", TOKENS)
async def test_tokens_for_another_service_are_refused(name: str, tokens: Tokens) -> None:
    known = TOKENS[name]
    other = {"client_id": "other"} if name == "cognito" else {"aud": "other"}
    with pytest.raises(Unauthenticated, match="for another audience"):
        await tokens.verify(token(headers=known.headers, **{**known.claims, **other}))


async def test_the_other_issuer_of_google_names_the_same_principal(tokens: Tokens) -> None:
    other = {**TOKENS["google"].claims, "iss": "accounts.google.com"}
    assert (await tokens.verify(token(**other))).principal.id == f"user:google~{TOKENS['google'].subject}"


async def test_too_many_groups_of_entra_are_unknown(tokens: Tokens) -> None:
    more = {"groups": None, "_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://x"}}}
    found = (await tokens.verify(token(**{**TOKENS["entra"].claims, **more}))).principal
    assert found.unknown == ("groups",)


def test_each_provider_has_at_most_five_lines() -> None:
    parts = re.split(r"^    [\w-]+:.*\n", block(), flags=re.MULTILINE)[1:]
    assert len(parts) == len(TOKENS)
    assert all(len(part.splitlines()) <= 5 for part in parts)
