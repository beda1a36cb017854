"""Every key set by every way in which a fetch can end: which tokens are accepted then, and what readiness says.

The model below is the rule: a well-formed key set is the answer, with or without a usable key, and all else is none.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.servers.idp import ISSUER, b64, claims, ec_key, jwk, provider, public_pem, rsa_key, token
from support.service.serving import serving, settings_of

from pdp.config.load import make_settings
from pdp.errors import Unauthenticated, Unavailable
from pdp.identity.tokens import Tokens
from pdp.telemetry import Telemetry

MAX_STALE = 900.0
TIMEOUT = 0.15

Entry = tuple[str | None, str]
"""Usable key of a set: its id, and the name of the key."""


class KeySet(NamedTuple):
    """A set as the provider writes it, and its usable keys for RS256 as a reader of the standard lists them, in order.

    `others`: the set has keys for other algorithms.
    """

    members: Sequence[Any]
    usable: Sequence[Entry] = ()
    others: bool = False

    def answer(self) -> Sequence[bytes]:
        """Return the answer of a server with the set."""
        return [whole(json.dumps({"keys": self.members}).encode())]


def named(kid: str | None, key: str, **more: Any) -> dict[str, Any]:
    return jwk(kid, rsa_key(key), **more)


ONE, TWO, NEW = named("one", "one"), named("two", "two"), named("one", "two")
PRIVATE = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key())) | {"kid": "one"}
BROKEN_KEYS: Sequence[Any] = [
    5,
    None,
    "key",
    [],
    {},
    {"kid": "one"},
    ONE | {"n": "!"},
    ONE | {"e": 3},
    ONE | {"kty": "EC"},
    ONE | {"kid": 5},
    {"kty": ["RSA"], "kid": "one"},
    {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "one"},
    PRIVATE | {"key_ops": ["verify"]},
    jwk("one", rsa_key("weak", 1024)),
]
SETS: Mapping[str, KeySet] = {
    "one": KeySet([ONE], [("one", "one")]),
    "both": KeySet([ONE, TWO], [("one", "one"), ("two", "two")]),
    "other": KeySet([TWO], [("two", "two")]),
    "replaced": KeySet([NEW], [("one", "two")]),
    "empty": KeySet([]),
    "encrypts": KeySet([ONE | {"use": "enc"}]),
    "operation": KeySet([ONE | {"key_ops": ["encrypt"]}]),
    "algorithm": KeySet([ONE | {"alg": "RS512"}], others=True),
    "hmac": KeySet([ONE | {"alg": "HS256"}]),
    "secret": KeySet([{"kty": "oct", "kid": "one", "alg": "HS256", "k": b64(public_pem(rsa_key()))}]),
    "curve": KeySet([jwk("one", ec_key())], others=True),
    "broken": KeySet(BROKEN_KEYS),
    "broken_and_good": KeySet([*BROKEN_KEYS, TWO], [("two", "two")]),
    "duplicates": KeySet([ONE, NEW], [("one", "one"), ("one", "two")]),
    "nameless": KeySet([named(None, "two")], [(None, "two")]),
    "nameless_pair": KeySet([named(None, "two"), named(None, "one")], [(None, "two"), (None, "one")]),
    "many": KeySet([TWO] * 1000, [("two", "two")] * 1000),
}
TOKENS: Mapping[tuple[str | None, str], str] = {
    (kid, key): jwt.encode(claims(exp=int(time.time()) + 86_400), rsa_key(key), "RS256", {"kid": kid} if kid else {})
    for kid in ("one", "two", "three", None)
    for key in ("one", "two")
}


def accepted(usable: Sequence[Entry], kid: str | None, key: str) -> bool:
    """Tell whether the token of a key id, signed by a key, is good.

    The first key with the id counts. Without an id the only key does, or of several all that have no id.
    """
    if kid is None:
        without = [name for known, name in usable if known is None]
        return key in ([name for _, name in usable] if len(usable) == 1 else without)
    fitting = [name for known, name in usable if kid == known]
    return bool(fitting) and fitting[0] == key


def head(status: int, length: int, *more: str) -> bytes:
    lines = (f"HTTP/1.1 {status} Any", f"Content-Length: {length}", "Content-Type: application/json", *more)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def whole(text: bytes) -> bytes:
    return head(200, len(text)) + text


def statuses(text: bytes) -> Iterator[tuple[str, bytes]]:
    for status in (201, 203, 206, 301, 302, 307, 400, 401, 403, 404, 410, 429, 500, 503):
        yield str(status), head(status, len(text), "Location: /elsewhere") + text
    for status in (204, 304):
        yield str(status), head(status, 0)


def failures(members: Sequence[Any]) -> dict[str, Sequence[bytes]]:
    """Return the answers that are no answer, as the pieces that the server writes; it closes after the last."""
    text = json.dumps({"keys": members}).encode()
    shapes: list[Any] = [[], None, 5, "x", {}, {"keys": None}, {"keys": {}}, {"keys": "x"}, {"Keys": members}, members]
    found = {
        **{f"shape {shape!r:.20}": whole(json.dumps(shape).encode()) for shape in shapes},
        **{f"status {name}": answer for name, answer in statuses(text)},
        "page": whole(b"<html>" + text),
        "nothing": whole(b""),
        "half": whole(text[: len(text) // 2]),
        "trailer": whole(text + b"]"),
        "two sets": whole(b'{"keys":[],' + text[1:]),
        "two sets, empty last": whole(text[:-1] + b',"keys":[]}'),
        "no text": whole(text[:-1] + b',"x":"\xff"}'),
        "deep": whole(b'{"keys":' + b"[" * 50_000),
        "cut": head(200, len(text) + 1) + text,
        "cut chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(text), text),
        "compressed": head(200, len(text), "Content-Encoding: gzip") + text,
        "large": whole(text + b" " * (1 << 20)),
        "too many": whole(json.dumps({"keys": [TWO] * 1001}).encode()),
        "closed": b"",
        "no HTTP": b"220 ready\r\n\r\n",
    }
    return {name: [answer] for name, answer in found.items()}


ENDLESS: Mapping[str, tuple[bytes, bytes]] = {
    "silent": (b"", b""),
    "slow": (head(200, 1000), b" "),
    "endless": (b"HTTP/1.1 200 OK\r\n\r\n", b" " * (1 << 16)),
    "endless head": (b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 1000 + b"\r\n"),
}
"""Answers without an end: how they begin, and what follows again and again."""


class KeyServer:
    """Server that writes an answer byte by byte as it is told."""

    def __init__(self) -> None:
        self.pieces: Sequence[bytes] = [whole(b'{"keys":[]}')]
        self.endless: bytes | None = None

    def tell(self, pieces: Sequence[bytes], endless: bytes | None = None) -> None:
        self.pieces, self.endless = pieces, endless

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in self.pieces:
                writer.write(piece)
            while self.endless is not None:
                writer.write(self.endless)
                await writer.drain()
                await asyncio.sleep(0.001 if len(self.endless) > 1 else 0.02)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class Verifier:
    """Tokens of one provider, whose fetches and whose clock a test drives."""

    def __init__(self, tokens: Tokens, server: KeyServer) -> None:
        self.tokens, self.server = tokens, server
        (self.keys,) = tokens._keys.values()
        self.keys._next_look = float("inf")  # no token asks the provider: the test does

    async def fetch(self) -> None:
        await self.keys._start_fetch()

    def let_pass(self, seconds: float) -> None:
        self.keys._fetched -= seconds

    async def verdict(self, text: str) -> int:
        try:
            await self.tokens.verify(text)
        except Unauthenticated:
            return 401
        except Unavailable:
            return 503
        return 200

    def says(self) -> str:
        return self.tokens.troubles().get("identity oidc", "")

    async def check(self, known: KeySet | None, *, answered: bool) -> None:
        """Compare all tokens, and the words of readiness, with the keys that count; None for unknown keys."""
        usable = None if known is None else known.usable
        for (kid, key), text in TOKENS.items():
            want = 503 if usable is None else 200 if accepted(usable, kid, key) else 401
            assert await self.verdict(text) == want, (kid, key)
        said = self.says()
        if usable is None:
            assert "cannot be had" in said
            assert said.endswith("its tokens get 503")
        elif not answered:
            assert "cannot be had" in said
            assert f"count until they are {MAX_STALE:g} seconds old" in said
        elif known and not usable and not known.others:
            assert said == "its key set has no key that verifies signatures: its tokens are refused"
        else:
            assert not said


@asynccontextmanager
async def verifying(first: KeySet = SETS["both"]) -> AsyncIterator[Verifier]:
    served = KeyServer()
    served.tell(first.answer())
    server = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    times = {"refresh_seconds": 3600, "max_stale_seconds": MAX_STALE, "fetch_timeout_seconds": TIMEOUT}
    settings = {"issuer": ISSUER, "jwks": url, "audiences": ["pdp"], **times}
    tokens = Tokens(make_settings({"identity": {"providers": {"oidc": settings}}}, Path()), Telemetry())
    await tokens.start()
    try:
        yield Verifier(tokens, served)
    finally:
        await tokens.stop()
        server.close()


@pytest.mark.parametrize("name", SETS)
async def test_a_key_set_is_the_answer_whatever_keys_it_has(name: str) -> None:
    both, found = SETS["both"], SETS[name]
    async with verifying() as verifier:
        await verifier.check(both, answered=True)
        verifier.server.tell(found.answer())
        await verifier.fetch()
        await verifier.check(found, answered=True)
        verifier.server.tell(both.answer())
        await verifier.fetch()
        await verifier.check(both, answered=True)


@pytest.mark.parametrize("name", ["one", "empty", "encrypts", "broken"])
async def test_what_is_no_answer_changes_no_key_and_readiness_tells(name: str) -> None:
    found = SETS[name]
    async with verifying(found) as verifier:
        for cause, pieces in failures(SETS["both"].members).items():
            verifier.server.tell(pieces)
            await verifier.fetch()
            assert "cannot be had" in verifier.says(), cause
            await verifier.check(found, answered=False)


@pytest.mark.parametrize("ending", ENDLESS)
async def test_an_answer_without_an_end_is_none(ending: str) -> None:
    async with verifying(SETS["one"]) as verifier:
        first, rest = ENDLESS[ending]
        verifier.server.tell([first], rest)
        await verifier.fetch()
        await verifier.check(SETS["one"], answered=False)


FAILURES = failures(SETS["both"].members)
STEPS = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(sorted(SETS))),
    st.tuples(st.just("failure"), st.sampled_from(sorted(FAILURES))),
    st.tuples(st.just("pass"), st.sampled_from(["400", "500", "1000"])),
)


@given(st.sampled_from(sorted(SETS)), st.lists(STEPS, max_size=8))
def test_sequences_of_answers_and_failures_follow_the_model(first: str, steps: Sequence[tuple[str, str]]) -> None:
    async def play() -> None:
        last = SETS[first]
        age, answered = 0.0, True
        async with verifying(SETS[first]) as verifier:
            for kind, what in steps:
                if kind == "pass":
                    age += float(what)
                    verifier.let_pass(float(what))
                elif kind == "failure":
                    answered = False
                    verifier.server.tell(FAILURES[what])
                    await verifier.fetch()
                else:
                    last, age, answered = SETS[what], 0.0, True
                    verifier.server.tell(last.answer())
                    await verifier.fetch()
                known = last if age < MAX_STALE else None
                if known is None and answered:
                    assert await verifier.verdict(next(iter(TOKENS.values()))) == 503
                else:
                    await verifier.check(known, answered=answered)

    asyncio.run(play())


async def test_a_key_file_that_loses_its_keys_revokes_them(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [ONE]}))
    settings = {"issuer": ISSUER, "jwks": "keys.json", "audiences": ["pdp"], "refresh_seconds": 3600}
    tokens = Tokens(make_settings({"identity": {"providers": {"oidc": settings}}}, tmp_path), Telemetry())
    await tokens.start()
    verifier, good = Verifier(tokens, KeyServer()), TOKENS["one", "one"]
    for text, want in (('{"keys":[', 200), ("", 200), ('{"keys":[]}', 401), (json.dumps({"keys": [ONE]}), 200)):
        file.write_text(text)
        await verifier.fetch()
        assert await verifier.verdict(good) == want, text
    file.unlink()
    await verifier.fetch()
    assert await verifier.verdict(good) == 200
    assert "FileNotFoundError" in verifier.says()
    await tokens.stop()


async def test_a_service_refuses_removed_keys_on_connections_that_know_them(tmp_path: Path) -> None:
    async with provider() as idp:
        times = {"refresh_seconds": 0.05, "retry_seconds": 0.05}
        oidc = {"issuer": ISSUER, "jwks": idp.url, "audiences": ["pdp"], **times}
        callers = {"users": {"bearer": {"idp": "oidc", "audiences": ["pdp"]}}}
        settings = settings_of({"identity": {"providers": {"oidc": oidc}, "callers": callers}}, tmp_path)
        check = {"checks": [{"action": "read_data", "resource": "table:lake/s/t"}]}
        headers = {"Authorization": f"Bearer {token()}"}
        async with serving(settings) as service, aiohttp.ClientSession(headers=headers) as client:

            async def eventually(want: int) -> None:
                deadline, status = time.monotonic() + 5, 0
                while status != want:
                    assert time.monotonic() < deadline, status
                    await asyncio.sleep(0.02)
                    status = (await client.post(f"http://{service.addresses['http']}/v1/check", json=check)).status

            async def ready() -> dict[str, Any]:
                answer = await client.get(f"http://{service.addresses['diagnostics']}/health/ready")
                body = await answer.json()
                return {"status": answer.status, **body.get("details", {})}

            await eventually(200)
            idp.keys = []
            await eventually(401)
            found = await ready()
            assert "no key that verifies signatures" in found["identity oidc"]
            assert found["status"] == 503  # tokens alone name callers here, and none can be verified
            idp.keys = [jwk()]
            await eventually(200)
            found = await ready()
            assert found == {"status": 200, **found}
            assert "identity oidc" not in found
