"""Tokens under attack: forged, replayed elsewhere, malformed; and providers that are down, slow or hostile."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
import structlog
from support.servers.idp import (
    ISSUER,
    Provider,
    b64,
    claims,
    ec_key,
    jwk,
    provider,
    public_pem,
    raw_token,
    rsa_key,
    token,
)

from pdp.config.load import make_settings
from pdp.errors import ConfigError, Unauthenticated, Unavailable
from pdp.identity.jwks import MAX_TRIED
from pdp.identity.tokens import MAX_TOKEN, Tokens
from pdp.model.question import Principal, TokenIdentity
from pdp.telemetry import Telemetry

HEADER = json.dumps({"alg": "RS256", "kid": "one", "typ": "JWT"})


@asynccontextmanager
async def verifier(folder: Path, **providers: Any) -> AsyncIterator[Tokens]:
    made = Tokens(make_settings({"identity": {"providers": providers}}, folder), Telemetry())
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def oidc(jwks: str, **more: Any) -> dict[str, Any]:
    return {"issuer": ISSUER, "jwks": jwks, "audiences": ["pdp"], **more}


@pytest.fixture
async def idp() -> AsyncIterator[Provider]:
    async with provider() as made:
        yield made


@pytest.fixture
async def tokens(idp: Provider, tmp_path: Path) -> AsyncIterator[Tokens]:
    async with verifier(tmp_path, oidc=oidc(idp.url)) as made:
        yield made


async def test_a_good_token_names_its_principal(tokens: Tokens) -> None:
    found = await tokens.verify(token(roles=["analyst"], groups=["staff", "eu"], aud=["pdp", "trino"]))
    assert found.principal == Principal("user", "oidc~alice", ("analyst",), ("staff", "eu"))
    assert found.identity == TokenIdentity("oidc", "alice", ("pdp", "trino"))


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
async def test_the_usual_signatures_are_taken(tokens: Tokens, algorithm: str) -> None:
    assert (await tokens.verify(token(algorithm=algorithm))).principal.id == "user:oidc~alice"


async def test_elliptic_curves_are_taken(idp: Provider, tmp_path: Path) -> None:
    idp.keys = [jwk(), jwk("curve", ec_key())]
    async with verifier(tmp_path, oidc=oidc(idp.url)) as tokens:
        assert await tokens.verify(token(ec_key(), "ES256", {"kid": "curve"}))
        with pytest.raises(Unauthenticated):
            await tokens.verify(token(ec_key(), "ES256", {"kid": "one"}))


# --- forged -------------------------------------------------------------------------------------------------------


def unsigned(algorithm: str) -> str:
    return f"{b64(json.dumps({'alg': algorithm, 'kid': 'one'}))}.{b64(json.dumps(claims()))}."


def hmac_with(secret: bytes, algorithm: str = "HS256") -> str:
    """Return a token signed with the provider's public key as a shared secret, which old libraries accept."""
    signing = f"{b64(json.dumps({'alg': algorithm, 'kid': 'one'}))}.{b64(json.dumps(claims()))}"
    return f"{signing}.{b64(hmac.new(secret, signing.encode(), hashlib.sha256).digest())}"


def embedded(**header: Any) -> str:
    """Signed by a stranger whose key the token itself brings along, or says where to find."""
    return token(rsa_key("evil"), headers=header)


def tampered() -> str:
    head, _, signature = token().split(".")
    return f"{head}.{b64(json.dumps(claims(sub='root')))}.{signature}"


FORGED: dict[str, Callable[[], str]] = {
    "none": lambda: unsigned("none"),
    "None": lambda: unsigned("None"),
    "none_with_a_signature": lambda: unsigned("none") + b64("x"),
    "empty_algorithm": lambda: unsigned("") + b64("x"),
    "hmac_with_the_public_pem": lambda: hmac_with(public_pem(rsa_key())),
    "hmac_with_the_jwk": lambda: hmac_with(json.dumps(jwk()).encode()),
    "hmac_with_the_modulus": lambda: hmac_with(base64.urlsafe_b64decode(jwk()["n"] + "==")),
    "stranger": lambda: token(rsa_key("evil")),
    "jwk": lambda: embedded(jwk=jwk("evil", rsa_key("evil")), kid="evil"),
    "jku": lambda: embedded(jku="http://127.0.0.1:1/keys", kid="evil"),
    "x5u": lambda: embedded(x5u="http://127.0.0.1:1/cert", kid="evil"),
    "tampered": tampered,
    "cut_signature": lambda: token()[:-10],
    "other_kind_of_key": lambda: token(ec_key(), "ES256"),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_a_forged_token_is_nobody(tokens: Tokens, idp: Provider, forged: Callable[[], str]) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.verify(forged())
    assert set(idp.paths) == {"/keys"}


KIDS = [
    "../one",
    "..%2fone",
    "/etc/passwd",
    "file:///etc/passwd",
    "http://127.0.0.1:1/keys",
    "one\x00",
    "ONE",
    "",
    "one' or '1",
]


@pytest.mark.parametrize("kid", KIDS)
async def test_a_kid_is_only_ever_compared(tokens: Tokens, idp: Provider, kid: str) -> None:
    with pytest.raises(Unauthenticated, match="no key"):
        await tokens.verify(token(headers={"kid": kid}))
    assert set(idp.paths) == {"/keys"}


@pytest.mark.parametrize("kid", [5, ["one"], {"one": 1}, True])
async def test_a_kid_is_a_text(tokens: Tokens, kid: Any) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.verify(raw_token(json.dumps({"alg": "RS256", "kid": kid}), json.dumps(claims())))


async def test_a_token_without_a_kid_is_verified_where_there_is_no_choice(idp: Provider, tmp_path: Path) -> None:
    bare = raw_token('{"alg":"RS256"}', json.dumps(claims()))
    async with verifier(tmp_path, oidc=oidc(idp.url)) as tokens:
        assert await tokens.verify(bare)
    idp.keys = [jwk(), jwk("two", rsa_key("two"))]
    async with verifier(tmp_path, oidc=oidc(idp.url)) as tokens:
        with pytest.raises(Unauthenticated):
            await tokens.verify(bare)


async def test_of_several_keys_without_a_kid_the_one_that_signed_counts(idp: Provider, tmp_path: Path) -> None:
    """A key with an id is no candidate for a token without, nor a key without an id for a token with one."""
    idp.keys = [jwk(None, rsa_key("two")), jwk(None), jwk(None, ec_key()), jwk("three", rsa_key("three"))]
    async with verifier(tmp_path, oidc=oidc(idp.url)) as tokens:
        for key, algorithm in ((rsa_key(), "RS256"), (rsa_key("two"), "RS512"), (ec_key(), "ES256")):
            bare = jwt.encode(claims(), key, algorithm)
            assert (await tokens.verify(bare)).principal.name == "oidc~alice"
            with pytest.raises(Unauthenticated, match="no key"):
                await tokens.verify(jwt.encode(claims(), key, algorithm, {"kid": "one"}))
        for key in (rsa_key("evil"), rsa_key("three")):
            with pytest.raises(Unauthenticated, match="signature"):
                await tokens.verify(jwt.encode(claims(), key, "RS256"))
        with pytest.raises(Unauthenticated, match="expired"):
            await tokens.verify(jwt.encode(claims(exp=1), rsa_key(), "RS256"))
        assert await tokens.verify(jwt.encode(claims(), rsa_key("three"), "RS256", {"kid": "three"}))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([jwk(None)], True),
        ([jwk(None), jwk(None, rsa_key("two"))], True),
        ([jwk(None), jwk("three", rsa_key("three"))], True),
        ([jwk("three", rsa_key("three"))], False),
        ([jwk("three", rsa_key("three")), jwk(None, ec_key())], False),
    ],
)
async def test_the_refusal_of_an_id_that_no_key_has_tells_the_way(
    idp: Provider, tmp_path: Path, keys: list[dict[str, Any]], why: bool
) -> None:
    idp.keys = keys
    async with verifier(tmp_path, oidc=oidc(idp.url)) as tokens:
        with pytest.raises(Unauthenticated, match=r"^no key of its provider fits the token") as caught:
            await tokens.verify(token())
    assert ("give `jwks` a file of the keys with their `kid`" in str(caught.value)) is why


async def test_a_token_without_a_kid_is_tried_with_few_keys(idp: Provider, tmp_path: Path) -> None:
    idp.keys = [*[jwk(None, rsa_key("two"))] * (MAX_TRIED - 1), jwk(None)]
    bare = jwt.encode(claims(), rsa_key(), "RS256")
    async with verifier(tmp_path, oidc=oidc(idp.url)) as tokens:
        assert await tokens.verify(bare)
    idp.keys.insert(0, jwk(None, rsa_key("two")))
    with structlog.testing.capture_logs() as logs:
        async with verifier(tmp_path, oidc=oidc(idp.url)) as tokens:
            with pytest.raises(Unauthenticated, match="no key of its provider fits the token, which has no `kid`"):
                await tokens.verify(bare)
    (warning,) = [entry for entry in logs if entry["event"] == "keys of an identity provider have no kid"]
    assert warning["keys"] == MAX_TRIED + 1
    assert f"more than {MAX_TRIED} keys" in warning["cause"]


@pytest.mark.parametrize(
    "typ", ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", "application/jwt", "JOSE", None]
)
async def test_types_of_access_tokens_are_taken(tokens: Tokens, typ: str | None) -> None:
    header = {"alg": "RS256", "kid": "one", **({"typ": typ} if typ else {})}
    assert await tokens.verify(raw_token(json.dumps(header), json.dumps(claims())))


@pytest.mark.parametrize(
    "typ",
    ["logout+jwt", "application/logout+jwt", "Logout+JWT", "secevent+jwt", "dpop+jwt", "oauth-authz-req+jwt", "token-introspection+jwt",
     "kb+jwt", "dc+sd-jwt", "vc+jwt", "entity-statement+jwt", "client-authentication+jwt", "jwt+at", "at+jwt ", "", "x", None, 5, ["JWT"]],
)  # fmt: skip
async def test_a_token_of_another_type_is_no_access_token(tokens: Tokens, typ: Any) -> None:
    """RFC 8725 3.11: a token that was made for another use must not be taken for an access token."""
    with pytest.raises(Unauthenticated, match="`typ` is not that of an access token"):
        await tokens.verify(raw_token(json.dumps({"alg": "RS256", "kid": "one", "typ": typ}), json.dumps(claims())))


@pytest.mark.parametrize(
    "events",
    [{"http://schemas.openid.net/event/backchannel-logout": {}}, {"logout": {}}, {}, [], ["login"], "x", "", 0, False, None],
)  # fmt: skip
async def test_a_token_about_events_is_no_access_token(tokens: Tokens, events: Any) -> None:
    """A logout token of OpenID Connect has no type with many providers, and the claim `events` with all (RFC 8417)."""
    header = json.dumps({"alg": "RS256", "kid": "one"})
    with pytest.raises(Unauthenticated, match="about events"):
        await tokens.verify(raw_token(header, json.dumps({**claims(), "events": events})))


KIND_CLAIMS = ["typ", "Typ", "token_use", "tokenUse", "token_usage", "token_type", "tokenType", "tokenName", "purpose"]
OTHER_KINDS = ["ID", "id", "Id", "id_token", "ID Token", "id-token", "id_token+jwt", "Serialized-ID", "identity_token", "Refresh",
               "refresh_token", "Offline", "Logout", "logout+jwt", ["ID"], ["Bearer", "id"], 5, True, {"kind": "access"}, [None]]  # fmt: skip


@pytest.mark.parametrize("name", KIND_CLAIMS)
async def test_a_token_that_says_to_be_of_another_kind_is_no_access_token(tokens: Tokens, name: str) -> None:
    """Keycloak, Cognito, ForgeRock and others tell an ID token from an access token by a claim, and not in the header."""
    for kind in OTHER_KINDS:
        with pytest.raises(Unauthenticated, match=f"^by its claim `{name}` the token is no access token"):
            await tokens.verify(token(**{name: kind}))


@pytest.mark.parametrize("name", KIND_CLAIMS)
async def test_a_token_that_says_to_be_an_access_token_is_one(tokens: Tokens, name: str) -> None:
    kinds = [
        "Bearer",
        "bearer",
        "access",
        "access_token",
        "access-token",
        "at+jwt",
        "JWT",
        "JWTToken",
        "DPoP",
        "",
        [],
        ["Bearer"],
    ]
    for kind in kinds:
        assert await tokens.verify(token(**{name: kind})), kind
    said = json.dumps({**claims(), name: None})
    assert await tokens.verify(raw_token(HEADER, said))


async def test_claims_of_id_tokens_alone_are_no_sign(tokens: Tokens) -> None:
    """Google has no other JWT than ID tokens for users, and access tokens of Dex and Keycloak may have these claims."""
    assert await tokens.verify(token(nonce="n", at_hash="h", azp="pdp", auth_time=1))


@pytest.mark.parametrize("cnf", [{"jkt": "x"}, {"x5t#S256": "x"}, {"jwk": {}}, {}, "x", []])
async def test_a_token_for_a_sender_with_a_proof_is_no_bearer_token(idp: Provider, tmp_path: Path, cnf: Any) -> None:
    async with verifier(tmp_path, oidc=oidc(idp.url)) as tokens:
        with pytest.raises(Unauthenticated, match="`sender_constrained`"):
            await tokens.verify(token(cnf=cnf))
    async with verifier(tmp_path, oidc=oidc(idp.url, sender_constrained="allow")) as tokens:
        assert (await tokens.verify(token(cnf=cnf))).principal.name == "oidc~alice"


# --- good, but not for here, not now ------------------------------------------------------------------------------

MISPLACED: dict[str, dict[str, Any]] = {
    "wrong_issuer": {"iss": "https://idp.example/realms/other"},
    "issuer_with_a_slash": {"iss": ISSUER + "/"},
    "issuer_as_list": {"iss": [ISSUER]},
    "no_issuer": {"iss": None},
    "other_audience": {"aud": "billing"},
    "other_audiences": {"aud": ["billing", "PDP"]},
    "audience_of_numbers": {"aud": ["pdp", 5]},
    "no_audience": {"aud": None},
    "expired": {"exp": int(time.time()) - 3600},
    "not_yet_valid": {"nbf": int(time.time()) + 3600},
    "issued_in_the_future": {"iat": int(time.time()) + 3600},
    "no_expiry": {"exp": None},
    "expiry_is_text": {"exp": "tomorrow"},
    "expiry_is_true": {"exp": True},
    "expiry_is_a_list": {"exp": [9999999999]},
    "no_subject": {"sub": None},
    "empty_subject": {"sub": ""},
    "subject_is_a_number": {"sub": 5},
    "subject_with_a_newline": {"sub": "alice\nuser:oidc~root"},
    "subject_with_an_escape": {"sub": "al\x1b[2Jice"},
    "subject_with_a_line_separator": {"sub": "al\u2028ice"},
    "subject_without_end": {"sub": "a" * 2000},
    "roles_are_a_number": {"roles": 5},
    "roles_are_an_object": {"roles": {"admin": True}},
    "roles_hold_a_number": {"roles": ["analyst", 5]},
    "groups_hold_null": {"groups": [None]},
}


@pytest.mark.parametrize("said", MISPLACED.values(), ids=MISPLACED)
async def test_a_token_for_elsewhere_or_another_time_is_nobody(tokens: Tokens, said: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.verify(raw_token(HEADER, json.dumps(claims(**said))))


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "a.b", "a.b.c.d", "....", "a b.c.d", "\x00", "ä.ö.ü", "\udcff.a.b", token() + "\n", token() + ".",
        token().replace(".", "=.", 1), f"{b64('[]')}.{b64('{}')}.{b64('x')}", f"{b64('nonsense')}.{b64('{}')}.{b64('x')}",
        f"{b64('{' * 5000)}.{b64('{}')}.{b64('x')}",
    ],
)  # fmt: skip
async def test_nonsense_is_nobody(tokens: Tokens, text: str) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.verify(text)


def doubled(said: dict[str, Any], key: str, value: Any) -> str:
    return json.dumps(said)[:-1] + f',"{key}":{json.dumps(value)}}}'


TWICE = {
    "subject": (HEADER, doubled(claims(), "sub", "root")),
    "subject_by_escape": (HEADER, json.dumps(claims())[:-1] + ',"\\u0073ub":"root"}'),
    "audience": (HEADER, doubled(claims(aud="billing"), "aud", "pdp")),
    "issuer": (HEADER, doubled(claims(iss="https://evil.example"), "iss", ISSUER)),
    "deep": (HEADER, json.dumps(claims())[:-1] + ',"realm_access":{"roles":[],"roles":["admin"]}}'),
    "algorithm": ('{"alg":"none","alg":"RS256","kid":"one"}', json.dumps(claims())),
    "kid": ('{"alg":"RS256","kid":"two","kid":"one"}', json.dumps(claims())),
}


@pytest.mark.parametrize(("header", "said"), TWICE.values(), ids=TWICE)
async def test_a_key_that_stands_twice_is_refused(tokens: Tokens, header: str, said: str) -> None:
    with pytest.raises(Unauthenticated, match="proper JSON"):
        await tokens.verify(raw_token(header, said))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "9" * 400])
async def test_times_beyond_measure_are_refused(tokens: Tokens, number: str) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.verify(raw_token(HEADER, json.dumps(claims(exp="X")).replace('"X"', number)))


@pytest.mark.parametrize("header", [{"crit": ["exp"], "exp": 1}, {"crit": []}, {"b64": False, "crit": ["b64"]}])
async def test_an_extension_that_must_be_understood_is_refused(tokens: Tokens, header: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.verify(raw_token(json.dumps({"alg": "RS256", "kid": "one", **header}), json.dumps(claims())))


async def test_a_huge_token_is_refused_unread(tokens: Tokens) -> None:
    with pytest.raises(Unauthenticated, match="longer"):
        await tokens.verify(token(padding="x" * MAX_TOKEN))


# --- two providers ------------------------------------------------------------------------------------------------


async def test_providers_never_speak_for_each_other(tmp_path: Path) -> None:
    other = "https://other.example"
    async with provider() as first, provider() as second:
        second.keys = [jwk("two", rsa_key("two"))]
        config = {
            "a": oidc(first.url, audiences=["for-a"]),
            "b": {"issuer": other, "jwks": second.url, "audiences": ["for-b"]},
        }
        async with verifier(tmp_path, **config) as tokens:
            own = await tokens.verify(
                token(rsa_key("two"), headers={"kid": "two"}, iss=other, aud="for-b", sub="a~alice")
            )
            assert own.principal.id == "user:b~a~alice"
            assert own.principal != (await tokens.verify(token(aud="for-a"))).principal
            for key, kid, issuer, audience in (
                (rsa_key("two"), "two", ISSUER, "for-a"),
                (rsa_key("two"), "one", ISSUER, "for-a"),
                (rsa_key(), "one", other, "for-b"),
                (rsa_key(), "one", ISSUER, "for-b"),
                (rsa_key("two"), "two", other, "for-a"),
            ):
                with pytest.raises(Unauthenticated):
                    await tokens.verify(token(key, headers={"kid": kid}, iss=issuer, aud=audience))


# --- configuration ------------------------------------------------------------------------------------------------


async def test_claims_are_found_by_name_or_path(idp: Provider, tmp_path: Path) -> None:
    names = {
        "subject": "preferred_username",
        "roles": "realm_access.roles",
        "groups": "https://example.com/groups",
        "audience": "resource",
        "attributes": {"clearance": "profile.clearance", "missing": "nowhere.at.all"},
    }
    said = {
        "preferred_username": "al",
        "realm_access": {"roles": ["analyst"]},
        "https://example.com/groups": "staff",
        "resource": ["pdp"],
        "aud": "billing",
        "profile": {"clearance": {"level": 3}},
    }
    async with verifier(tmp_path, oidc=oidc(idp.url, claims=names)) as tokens:
        found = (await tokens.verify(token(**said))).principal
    assert found == Principal(
        "user", "oidc~al", ("analyst",), ("staff",), '{"clearance":{"level":3}}', unseen=("attributes.missing",)
    )


@pytest.mark.parametrize(
    ("level", "read"),
    [
        (3.0, "3"),
        ([{"a": 1e2}, 0.5], '[{"a":100},0.5]'),
        (-0.0, "-0.0"),
        (2**53 + 1, "9007199254740993"),
        (1e300, "1e300"),
    ],
)
async def test_numbers_of_claims_are_read_as_in_bodies(idp: Provider, tmp_path: Path, level: Any, read: str) -> None:
    async with verifier(tmp_path, oidc=oidc(idp.url, claims={"attributes": {"level": "level"}})) as tokens:
        assert (await tokens.verify(token(level=level))).principal.attributes == f'{{"level":{read}}}'


@pytest.mark.parametrize("level", [10**310, json.loads("[" * 900 + "]" * 900)], ids=["large", "deep"])
async def test_claims_that_no_policy_can_read_are_refused(idp: Provider, tmp_path: Path, level: Any) -> None:
    async with verifier(tmp_path, oidc=oidc(idp.url, claims={"attributes": {"level": "level"}})) as tokens:
        with pytest.raises(Unauthenticated):
            await tokens.verify(token(level=level))


async def test_only_configured_signatures_are_taken(idp: Provider, tmp_path: Path) -> None:
    async with verifier(tmp_path, oidc=oidc(idp.url, algorithms=["PS256"])) as tokens:
        assert await tokens.verify(token(algorithm="PS256"))
        with pytest.raises(Unauthenticated):
            await tokens.verify(token())


@pytest.mark.parametrize(("leeway", "taken"), [(0, False), (60, True)])
async def test_clocks_may_differ_by_the_leeway(idp: Provider, tmp_path: Path, leeway: int, taken: bool) -> None:
    late = token(exp=int(time.time()) - 20)
    async with verifier(tmp_path, oidc=oidc(idp.url, leeway_seconds=leeway)) as tokens:
        if taken:
            assert await tokens.verify(late)
        else:
            with pytest.raises(Unauthenticated, match="expired"):
                await tokens.verify(late)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": []}, "algorithms"),
        ({"jwks": "http://idp.example/keys"}, "jwks"),
        ({"jwks": "http://127.0.0.1.evil.example/keys"}, "jwks"),
        ({"jwks": "http://127.0.0.1@evil.example/keys"}, "jwks"),
        ({"jwks": "https://user:pass@idp.example/keys"}, "jwks"),
        ({"jwks": "ftp://idp.example/keys"}, "jwks"),
        ({"jwks": ""}, "jwks"),
        ({"issuer": ""}, "issuer"),
        ({"leeway_seconds": 4000}, "leeway_seconds"),
        ({"claims": {"sub": "x"}}, "claims.sub"),
    ],
)
def test_a_provider_that_cannot_be_meant_stops_the_start(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=rf"identity\.providers\.oidc\.{named}"):
        make_settings({"identity": {"providers": {"oidc": oidc("keys.json") | change}}}, tmp_path)


@pytest.mark.parametrize("idp", ["OIDC", "a~b", "a b", ""])
def test_idp_ids_are_small_letters_digits_and_dashes(tmp_path: Path, idp: str) -> None:
    with pytest.raises(ConfigError, match=r"identity\.providers"):
        make_settings({"identity": {"providers": {idp: oidc("keys.json")}}}, tmp_path)


def test_two_providers_of_one_issuer_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="same issuer"):
        make_settings({"identity": {"providers": {"a": oidc("k"), "b": oidc("k")}}}, tmp_path)


async def test_keys_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    async with verifier(tmp_path, oidc=oidc("keys.json", refresh_seconds=0.05, retry_seconds=0.05)) as tokens:
        assert await tokens.verify(token())
        (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk("two", rsa_key("two"))]}))
        assert await eventually(tokens, token(rsa_key("two"), headers={"kid": "two"}))


@pytest.mark.parametrize(
    "text", [None, "", "{}", '{"keys":[]}', '{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}', "x" * (1 << 21)]
)
async def test_a_file_without_keys_stops_the_start(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "keys.json").write_text(text)
    with pytest.raises(ConfigError, match=r"identity\.providers\.oidc\.jwks"):
        async with verifier(tmp_path, oidc=oidc("keys.json")):
            pass


# --- keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "kid": "one", "alg": "HS256", "k": b64(public_pem(rsa_key()))},
        jwk(use="enc"),
        jwk(alg="RS512"),
        jwk(alg="HS256"),
        jwk(key_ops=["encrypt"]) | {"key_ops": ["encrypt"]},
        jwk("one", rsa_key("weak", 1024)),
        jwk() | {"n": "!"},
        jwk() | {"kty": "EC"},
        json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key())) | {"kid": "one", "key_ops": ["verify"]},
    ],
    ids=[
        "secret",
        "encrypts",
        "other_algorithm",
        "hmac",
        "other_operation",
        "weak",
        "broken",
        "mislabelled",
        "private",
    ],
)
async def test_keys_of_another_kind_verify_nothing(idp: Provider, tmp_path: Path, key: dict[str, Any]) -> None:
    idp.keys = [key, jwk("two", rsa_key("two"))]
    weak = rsa_key("weak", 1024) if key.get("n") == jwk("one", rsa_key("weak", 1024))["n"] else rsa_key()
    async with verifier(tmp_path, oidc=oidc(idp.url)) as tokens:
        assert await tokens.verify(token(rsa_key("two"), headers={"kid": "two"}))
        with pytest.raises(Unauthenticated):
            await tokens.verify(raw_token(HEADER, json.dumps(claims()), weak))
        with pytest.raises(Unauthenticated):
            await tokens.verify(hmac_with(public_pem(rsa_key())))


async def eventually(tokens: Tokens, text: str, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            await tokens.verify(text)
        except (Unauthenticated, Unavailable):
            await asyncio.sleep(0.02)
        else:
            return True
    return False


async def test_a_new_key_is_found_when_it_is_first_named(idp: Provider, tokens: Tokens) -> None:
    assert await tokens.verify(token())
    idp.keys = [jwk(), jwk("two", rsa_key("two"))]
    assert await tokens.verify(token(rsa_key("two"), headers={"kid": "two"}))
    assert idp.asked == 2


async def test_a_flood_of_unknown_kids_asks_the_provider_once(idp: Provider, tokens: Tokens) -> None:
    flood = [tokens.verify(token(headers={"kid": f"evil{at}"})) for at in range(200)]
    found = await asyncio.gather(*flood, return_exceptions=True)
    assert all(isinstance(error, Unauthenticated) for error in found)
    for at in range(20):
        with pytest.raises(Unauthenticated):
            await tokens.verify(token(headers={"kid": f"worse{at}"}))
    assert idp.asked == 2
    assert await tokens.verify(token())


async def test_after_the_retry_time_the_provider_is_asked_again(idp: Provider, tmp_path: Path) -> None:
    async with verifier(tmp_path, oidc=oidc(idp.url, retry_seconds=0.05)) as tokens:
        for _ in range(3):
            with pytest.raises(Unauthenticated):
                await tokens.verify(token(headers={"kid": "evil"}))
            await asyncio.sleep(0.1)
    assert idp.asked == 4


async def test_keys_are_refreshed_and_what_they_verified_is_forgotten(idp: Provider, tmp_path: Path) -> None:
    async with verifier(tmp_path, oidc=oidc(idp.url, refresh_seconds=0.05, retry_seconds=60)) as tokens:
        good = token()
        assert await tokens.verify(good)
        idp.keys = [jwk("two", rsa_key("two"))]
        for _ in range(250):
            if idp.asked >= 4:
                break
            await asyncio.sleep(0.02)
        with pytest.raises(Unauthenticated):
            await tokens.verify(good)


async def test_few_verified_tokens_are_remembered(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens._verified, "entries", 2)
    for subject in ("bob", "carol", "dave"):
        await tokens.verify(token(sub=subject))
    assert len(tokens._verified) == 2


async def test_a_verified_token_is_remembered_until_it_expires(idp: Provider, tmp_path: Path) -> None:
    async with verifier(tmp_path, oidc=oidc(idp.url, leeway_seconds=0)) as tokens:
        short = token(exp=int(time.time()) + 2)
        first = await tokens.verify(short)
        assert await tokens.verify(short) is first
        await asyncio.sleep(2.1)
        with pytest.raises(Unauthenticated, match="expired"):
            await tokens.verify(short)


BROKEN: dict[str, dict[str, Any]] = {
    "error": {"status": 500},
    "redirect": {"status": 302, "headers": {"Location": "/elsewhere"}},
    "no_json": {"body": b"<html>"},
    "no_set": {"body": b'{"keys":null}'},
    "brackets": {"body": b"[" * 100_000},
    "oversized": {"body": json.dumps({"keys": [jwk()]}).encode() + b" " * (1 << 20)},
    "compressed": {"headers": {"Content-Encoding": "gzip"}},
    "many": {"body": json.dumps({"keys": [jwk()] * 1001}).encode()},
    "slow": {"delay": 5.0},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_provider_that_misbehaves_brings_no_keys_and_stops_no_start(
    idp: Provider, tmp_path: Path, broken: dict[str, Any]
) -> None:
    good = Provider()
    for name, value in broken.items():
        setattr(idp, name, value)
    times = {"retry_seconds": 0.05, "fetch_timeout_seconds": 0.2}
    async with verifier(tmp_path, oidc=oidc(idp.url, **times)) as tokens:
        for text in (token(), token(rsa_key("evil"), headers={"kid": "evil"})):
            with pytest.raises(Unavailable, match="oidc"):
                await tokens.verify(text)
        assert "/elsewhere" not in idp.paths
        for name in broken:
            setattr(idp, name, getattr(good, name))
        assert await eventually(tokens, token())


async def test_a_provider_that_is_down_keeps_its_keys_for_a_while(idp: Provider, tmp_path: Path) -> None:
    times = {"refresh_seconds": 0.05, "retry_seconds": 0.05, "max_stale_seconds": 1}
    async with verifier(tmp_path, oidc=oidc(idp.url, **times)) as tokens:
        good = token()
        assert await tokens.verify(good)
        idp.status = 500
        await asyncio.sleep(0.4)
        assert idp.asked > 2
        assert await tokens.verify(good)
        assert await tokens.verify(token(sub="bob"))
        await asyncio.sleep(1)
        with pytest.raises(Unavailable):
            await tokens.verify(good)
        idp.status = 200
        assert await eventually(tokens, good)


async def test_a_slow_provider_holds_up_nobody_for_long(idp: Provider, tmp_path: Path) -> None:
    async with verifier(tmp_path, oidc=oidc(idp.url, fetch_timeout_seconds=30)) as tokens:
        idp.delay = 30
        started = time.monotonic()
        unknown = asyncio.create_task(tokens.verify(token(headers={"kid": "two"})))
        await asyncio.sleep(0.05)
        assert await tokens.verify(token())
        assert time.monotonic() - started < 1
        with pytest.raises(Unauthenticated):
            await unknown
        assert time.monotonic() - started < 10
