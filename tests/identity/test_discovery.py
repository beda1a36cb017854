"""Keys by the issuer's own document: which documents count, and where they may place the keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.servers.idp import Provider, jwk, provider, token
from yarl import URL

from pdp.config.load import make_settings
from pdp.errors import ConfigError, Unavailable
from pdp.identity.tokens import Tokens
from pdp.telemetry import Telemetry

WELL_KNOWN = "/.well-known/openid-configuration"
SECRET = "s3cr3t"


async def outcome(folder: Path, issuer: str, **more: Any) -> str:
    """Return what is wrong with a provider that is found by its issuer; empty if its token is verified."""
    config = {"oidc": {"issuer": issuer, "audiences": ["pdp"], "fetch_timeout_seconds": 0.3, **more}}
    tokens = Tokens(make_settings({"identity": {"providers": config}}, folder), Telemetry())
    await tokens.start()
    try:
        assert (await tokens.verify(token(iss=issuer))).principal.id == "user:oidc~alice"
    except Unavailable:
        return tokens.troubles()["identity oidc"]
    finally:
        await tokens.stop()
    return ""


def publish(idp: Provider, path: str = "", **more: Any) -> str:
    """Publish a good document below a path, but for what `more` says; return the issuer."""
    issuer = idp.base + path
    document = {"issuer": issuer, "jwks_uri": idp.url, **more}
    idp.documents[path.rstrip("/") + WELL_KNOWN] = {key: value for key, value in document.items() if value is not None}
    return issuer


@pytest.mark.parametrize("path", ["", "/", "/realms/lake", "/realms/lake/"])
async def test_an_issuer_leads_to_its_keys(path: str, tmp_path: Path) -> None:
    async with provider() as idp:
        issuer = publish(idp, path)
        assert await outcome(tmp_path, issuer) == ""
        assert idp.paths == [path.rstrip("/") + WELL_KNOWN, "/keys"]


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"issuer": "https://other.example"}, "of another issuer"),
        ({"issuer": None}, "no `issuer` and `jwks_uri`"),
        ({"jwks_uri": None}, "no `issuer` and `jwks_uri`"),
        ({"jwks_uri": 5}, "no `issuer` and `jwks_uri`"),
        ({"jwks_uri": f"https://evil.example/{SECRET}"}, "another host `evil.example`"),
        ({"jwks_uri": f"http://evil.example/{SECRET}"}, "another host"),
        ({"jwks_uri": "http://127.0.0.1:1/keys"}, "another host `127.0.0.1`"),
        ({"jwks_uri": "file:///etc/passwd"}, "another host"),
        ({"jwks_uri": "keys.json"}, "another host"),
        ({"jwks_uri": f"https://u:{SECRET}@evil.example/"}, "another host"),
        ({"jwks_uri": "https://[/x"}, "another host"),
        ({"jwks_uri": ""}, "another host"),
    ],
)
async def test_a_document_that_does_not_count(more: dict[str, Any], cause: str, tmp_path: Path) -> None:
    async with provider() as idp:
        said = await outcome(tmp_path, publish(idp, **more))
        assert cause in said
        assert SECRET not in said
        assert "/keys" not in idp.paths
        assert idp.asked == 0


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text + "/", lambda text: text.replace("127.0.0.1", "localhost")]
)
async def test_an_issuer_is_compared_to_the_letter(change: Any, tmp_path: Path) -> None:
    async with provider() as idp:
        issuer = publish(idp)
        publish(idp, issuer=change(issuer))
        assert "of another issuer" in await outcome(tmp_path, issuer)


async def test_other_hosts_are_configured(tmp_path: Path) -> None:
    async with provider() as idp, provider() as keys:
        issuer = publish(idp, jwks_uri=keys.url.replace("127.0.0.1", "localhost"))
        assert "another host `localhost`" in await outcome(tmp_path, issuer)
        assert keys.asked == 0
        assert await outcome(tmp_path, issuer, jwks_hosts=["localhost"]) != ""
        assert await outcome(tmp_path, issuer, jwks_hosts=[f"localhost:{URL(keys.url).port}"]) == ""


async def test_answers_that_are_no_document(tmp_path: Path) -> None:
    async with provider() as idp:
        issuer = publish(idp)
        answers = {
            "the answer is 404": None,
            "a redirect to the host `127.0.0.1`": lambda: web.Response(status=302, headers={"Location": "/elsewhere"}),
            "no `issuer` and `jwks_uri`": lambda: web.Response(text="<html>"),
            "larger than": lambda: web.Response(body=b" " * ((1 << 20) + 1)),
        }
        for cause, answer in answers.items():
            idp.documents[WELL_KNOWN] = answer
            assert cause in await outcome(tmp_path, issuer)
        twice = f'{{"issuer":"{issuer}","jwks_uri":"{idp.url}","issuer":"{issuer}"}}'
        idp.documents[WELL_KNOWN] = lambda: web.Response(text=twice)
        assert "no `issuer` and `jwks_uri`" in await outcome(tmp_path, issuer)


async def test_a_token_of_a_file_is_sent_and_read_again(tmp_path: Path) -> None:
    async with provider() as idp:
        issuer, file = publish(idp), tmp_path / "token"
        more = {"jwks_token_file": "token", "refresh_seconds": 3600, "retry_seconds": 0.01}
        for text in ("", "two words", "a\nb", "é"):
            file.write_text(text)
            assert "`identity.providers.oidc.jwks_token_file`" in await outcome(tmp_path, issuer, **more)
        assert idp.paths == []
        file.write_text("first\n")
        config = {"oidc": {"issuer": issuer, "audiences": ["pdp"], **more}}
        tokens = Tokens(make_settings({"identity": {"providers": config}}, tmp_path), Telemetry())
        await tokens.start()
        file.write_text("second\n")
        idp.keys = [jwk("new")]
        await tokens.verify(token(iss=issuer, headers={"kid": "new"}))
        await tokens.stop()
        assert idp.authorizations == ["Bearer first"] * 2 + ["Bearer second"] * 2


@pytest.mark.parametrize(
    "issuer",
    [
        "accounts.google.com",
        "http://idp.example",
        "https://",
        "https://u:p@idp.example",
        "https://idp.example?x",
        "https://i#",
    ],
)
def test_an_issuer_that_leads_nowhere_needs_keys(issuer: str, tmp_path: Path) -> None:
    for config in ({"issuer": issuer}, {"issuers": [{"issuer": issuer}]}):
        with pytest.raises(ConfigError, match="`jwks` is missing"):
            make_settings({"identity": {"providers": {"oidc": config}}}, tmp_path)
        (tmp_path / "k").write_text(json.dumps({"keys": [jwk()]}))
    make_settings({"identity": {"providers": {"oidc": {"issuer": issuer, "jwks": "k"}}}}, tmp_path)
