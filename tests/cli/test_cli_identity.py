"""`pdp identity test`: what tokens become, and what to change for each refusal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.servers.idp import ISSUER, b64, jwk, rsa_key, token
from support.service.command_line import COMPOSITION

from pdp.cli.main import cli

NOW = int(time.time())


def run(folder: Path, text: str, *, stdin: bool = False, **provider: Any) -> Result:
    (folder / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    settings = {"issuer": ISSUER, "jwks": "keys.json", "audiences": ["pdp"], **provider}
    (folder / "pdp.yaml").write_text(json.dumps({"identity": {"providers": {"oidc": settings}}}))
    (folder / "token").write_text(text + "\n")
    place = "-" if stdin else str(folder / "token")
    arguments = ["identity", "test", "-c", str(folder / "pdp.yaml"), place]
    return CliRunner().invoke(cli, arguments, obj=COMPOSITION, input=text if stdin else None)


@pytest.mark.parametrize("stdin", [True, False])
def test_a_token_becomes_a_principal(stdin: bool, tmp_path: Path) -> None:
    text = token(roles=["analyst"], groups=["a\nb"], level=5)
    claims = {"attributes": {"level": "level", "mail": "mail"}, "required": ["mail"]}
    for given in (text, f"Bearer {text}"):
        result = run(tmp_path, given, stdin=stdin, claims=claims)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines() == [
            'principal: "user:oidc~alice"', 'roles: ["analyst"]', 'groups: ["a\\nb"]', 'attributes: {"level": 5}',
            "unknown: attributes.mail",
        ]  # fmt: skip
        assert text.split(".")[2] not in result.output


REFUSED: dict[str, tuple[Callable[[], str], dict[str, Any], str]] = {
    "issuer": (lambda: token(iss="https://other.example"), {}, "issuer of the token into `issuer`"),
    "audience": (lambda: token(aud="other"), {}, "into `audiences`"),
    "no audiences": (token, {"audiences": []}, "write `audiences`"),
    "old": (lambda: token(exp=NOW - 900), {}, "get a new token"),
    "early": (lambda: token(nbf=NOW + 9000), {}, "compare the clocks"),
    "signature": (lambda: token(rsa_key("two")), {}, "keys of this issuer: the token is of another one"),
    "key": (lambda: token(headers={"kid": "two"}), {}, "has the key id"),
    "algorithm": (token, {"algorithms": ["ES256"]}, "into `algorithms`"),
    "subject": (lambda: token(sub=None), {}, "`claims.subject`"),
    "kind": (lambda: token(token_use="id"), {}, "send the access token"),
    "proof": (lambda: token(cnf={"jkt": "x"}), {}, "`sender_constrained: allow`"),
    "type": (lambda: token(headers={"typ": "logout+jwt"}), {}, "send an access token"),
    "events": (lambda: token(events={}), {}, "send an access token"),
    "text": (lambda: token(roles="a,b"), {}, "`claims.separator`"),
    "number": (lambda: token(roles=5), {}, "`claims.keys_of`"),
    "path": (lambda: token(realm=["x"]), {"claims": {"roles": "realm.roles"}}, "end at the value"),
    "mail": (lambda: token(mail=5), {"claims": {"attributes": {"email": "mail"}}}, "`claims.types`"),
    "opaque": (lambda: "ya29.a0AfH6SMB", {}, "send a JWT"),
    "empty": (str, {}, ""),
    "page": (lambda: f"{b64('<html>')}.{b64('x')}.{b64('y')}", {}, ""),
}
"""Way of a refusal -> the token, made when it is used because it ends soon, the provider, and what to change."""


@pytest.mark.parametrize("name", REFUSED)
def test_each_refusal_says_what_to_change(name: str, tmp_path: Path) -> None:
    make, provider, change = REFUSED[name]
    text = make()
    result = run(tmp_path, text, **provider)
    assert result.exit_code == 1, result.output
    assert result.stdout.startswith("refused: ")
    assert (f"to change: {change}" if change == "get a new token" else change) in result.stdout
    assert "to change: " in result.stdout or not change
    assert f"configured issuers: `{ISSUER}`" in result.stdout
    if text:
        assert text not in result.output
        assert text.rpartition(".")[2] not in result.output


def test_a_provider_without_keys_is_named_with_its_cause(tmp_path: Path) -> None:
    result = run(tmp_path, token(), jwks="http://127.0.0.1:1/keys")
    assert result.exit_code == 1
    assert "identity oidc: its keys cannot be had: no connection: Connection refused" in result.stdout
