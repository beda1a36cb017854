"""Refused tokens: what records say of their issuer and key, and what the answer says of the claim that failed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from support.servers.idp import ISSUER, b64, claims, jwk, raw_token, rsa_key, token
from support.service.serving import serving, settings_of

from pdp.errors import Unauthenticated
from pdp.identity.tokens import unverified_token
from pdp.surfaces.wire import decision_pb2 as wire

HEADER = json.dumps({"alg": "RS256", "kid": "one"})
CANARY = "zelda"


def _claims(**more: Any) -> str:
    return json.dumps(claims(**more))


def records(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted((folder / "audit").rglob("*.jsonl")):
        yield from (json.loads(line) for line in file.read_text().splitlines())


def settings(folder: Path) -> Any:
    (folder / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    provider = {"issuer": ISSUER, "jwks": "keys.json", "audiences": ["pdp"], "leeway_seconds": 0}
    return settings_of({"identity": {"providers": {"oidc": provider}}, "audit": {"sinks": [{"file": "audit"}]}}, folder)


def failed_tokens() -> dict[str, str]:
    """Return tokens by a claim that does not hold, while the signature does. Made when used: tokens expire."""
    now = int(time.time())
    return {
        "exp": token(exp=now - 10), "nbf": token(nbf=now + 900), "iat": token(iat=now + 900),
        "aud": token(aud=CANARY), "sub": token(sub=None), "token_use": token(token_use="id"), "cnf": token(cnf={"jkt": CANARY}),
        "roles": token(roles=5), "exp ": token(exp=None), "exp  ": raw_token(HEADER, _claims(exp=CANARY)),
        "nbf ": raw_token(HEADER, _claims(nbf=CANARY)), "iat ": raw_token(HEADER, _claims(iat=CANARY)),
        "sub ": token(sub=""),
    }  # fmt: skip


async def test_the_claim_is_named_after_the_signature_holds_alone(tmp_path: Path) -> None:
    check = {"checks": [{"action": "read_data", "resource": "table:lake/s/t"}]}
    async with serving(settings(tmp_path)) as service, aiohttp.ClientSession() as client:

        async def message(text: str) -> str:
            url = f"http://{service.addresses['http']}/v1/check"
            async with client.post(url, json=check, headers={"Authorization": f"Bearer {text}"}) as answer:
                assert answer.status == 401
                return str((await answer.json())["error"]["message"])

        for claim, text in failed_tokens().items():
            said = await message(text)
            assert f"`{claim.strip()}`" in said, (claim, said)
            assert CANARY not in said
            parts = text.split(".")
            forged = f"{parts[0]}.{parts[1]}.{b64(b'x' * 256)}"
            assert await message(forged) == "the token's signature does not verify"


SPELLINGS: list[tuple[str, str]] = [
    ("https://other.example", "https://other.example"),
    ("a\nb\x00\x7f", r"a\x0ab\x00\x7f"),
    ("\u202ecod", r"\u202ecod"),
    ("x" * 500, "x" * 128),
    ("é" * 500, (r"\xe9" * 128)[:128]),
    ("😀", r"\U0001f600"),
    ("", ""),
]


@pytest.mark.parametrize(("name", "shown"), SPELLINGS)
def test_names_of_a_token_are_escaped_and_cut(name: str, shown: str) -> None:
    found = unverified_token(token(iss=name, headers={"kid": name}))
    assert found == (shown, shown)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "a.b.c",
        "e30.W10.x",
        f"{b64('{}')}.{b64('5')}.x",
        f"{b64('{')}.{b64('{}')}.x",
        "x" * 20_000,
        "a.b.c.d",
    ],
)
def test_what_is_no_token_has_no_names(text: str) -> None:
    assert unverified_token(text) is None


@pytest.mark.parametrize("value", [5, None, ["x"], {"a": 1}, True])
def test_names_of_another_type_are_empty(value: Any) -> None:
    text = f"{b64(json.dumps({'alg': 'RS256', 'kid': value}))}.{b64(json.dumps({'iss': value}))}.x"
    assert unverified_token(text) == ("", "")


async def test_records_of_all_surfaces_name_the_issuer_and_the_key(tmp_path: Path) -> None:
    """Also where the token is verified, and for no audience of the service."""
    foreign = token(rsa_key("two"), iss="https://oth\u202eer.example", headers={"kid": "k\n2"})
    async with serving(settings(tmp_path)) as service, aiohttp.ClientSession() as client:
        base, header = f"http://{service.addresses['http']}", {"Authorization": f"Bearer {foreign}"}
        for path in ("/v1/check", "/v1/access", "/pdp.v1.DecisionService/Check"):
            async with client.post(f"{base}{path}", json={}, headers=header) as answer:
                assert answer.status == 401, path
                text = await answer.text()
                assert "other" not in text.replace("another", "")
        async with client.post(f"{base}/v1/check", json={}, headers={"Authorization": "Basic x"}) as answer:
            assert answer.status == 401
        async with grpc.aio.insecure_channel(service.addresses["grpc"]) as channel:
            call: Callable[..., Any] = channel.unary_unary(
                "/pdp.v1.DecisionService/Check",
                lambda message: message.SerializeToString(),
                wire.CheckResponse.FromString,
            )
            with pytest.raises(grpc.aio.AioRpcError):
                await call(wire.CheckRequest(), metadata=(("authorization", f"Bearer {foreign}"),))
    found = [record for record in records(tmp_path) if record.get("event") == "refusal"]
    named = [record for record in found if "unverifiedIssuer" in record]
    assert {record["surface"] for record in named} == {"http", "grpc", "connect"}
    assert {(record["unverifiedIssuer"], record["unverifiedKid"]) for record in named} == {
        (r"https://oth\u202eer.example", r"k\x0a2")
    }
    assert len(found) == len(named) + 1
    assert all(foreign.split(".")[2] not in json.dumps(record) for record in found)


def test_an_error_of_a_token_has_no_names_by_itself() -> None:
    assert Unauthenticated("x").unverified is None
