"""Public keys of one identity provider: fetched, cached, refreshed, and dropped when too old. They check signatures.

A well-formed key set is an answer, even without a key that we can use: tokens of absent keys are refused from then on.
All else is no answer: an error, a cut or endless body, no JSON. The known keys then count until they are too old.

This is the only network I/O of identity. A request waits for a fetch only if its token names an unknown key, and only
for a bounded time. Such fetches are rate-limited, so senders of tokens cannot flood a provider with requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import jwt
import msgspec
import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from pdp.config.identity import ProviderSettings
from pdp.config.regular_files import open_regular
from pdp.errors import ConfigError, InvalidArgument, Unauthenticated, Unavailable
from pdp.identity.key_fetches import MAX_BYTES, KeyFetcher
from pdp.model.strict import refuse_duplicates
from pdp.telemetry import Telemetry

MAX_KEYS: Final = 1000
MAX_WAITING: Final = 64
"""Most requests that wait for one fetch at the same time."""
WAIT_SECONDS: Final = 2.0
MIN_RSA_BITS: Final = 2048
MAX_TRIED: Final = 8
"""Most keys without `kid` for a token without `kid`: a forged token takes the time of each."""

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ALGORITHMS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""Type and curve of a key -> the signature algorithms of the key. Secret keys (`oct`) have none."""
_NAMES: Final = frozenset(name for names in _ALGORITHMS.values() for name in names)
log = structlog.get_logger()


class Key(msgspec.Struct, frozen=True):
    """Public key with the signature algorithms that the key may verify."""

    kid: str | None
    algorithms: frozenset[str]
    public: Any


class _Jwk(msgspec.Struct):
    kty: str = ""
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    crv: str = ""
    key_ops: list[str] | None = None


class _Jwks(msgspec.Struct):
    keys: list[msgspec.Raw]


def read_keys(text: bytes) -> tuple[Key, ...]:
    """Return the keys of a JWK set that can verify signatures, maybe none; raise ValueError for anything else."""
    try:
        members = msgspec.json.decode(text, type=_Jwks).keys
        refuse_duplicates(text)  # another reader may take the first of two `keys`
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidArgument):
        raise ValueError("it is no JWK set") from None
    if len(members) > MAX_KEYS:
        raise ValueError(f"it holds {len(members)} keys, more than {MAX_KEYS}")
    return tuple(key for raw in members if (key := _read_key(bytes(raw))) is not None)


def _read_key(text: bytes) -> Key | None:
    """Return one key; None for a key of another type, which a set may hold, and for a weak key."""
    try:
        jwk = msgspec.json.decode(text, type=_Jwk)
        algorithms = _ALGORITHMS.get((jwk.kty, "" if jwk.kty == "RSA" else jwk.crv), ())
        if jwk.alg is not None:
            algorithms = tuple(algorithm for algorithm in algorithms if algorithm == jwk.alg)
        if not algorithms or (jwk.use or "sig") != "sig" or "verify" not in (jwk.key_ops or ["verify"]):
            return None
        public = jwt.PyJWK(msgspec.json.decode(text), algorithms[0]).key
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, jwt.PyJWTError, ValueError):
        return None
    if not hasattr(public, "verify"):  # a private key has no business in a set of public ones
        return None
    if isinstance(public, RSAPublicKey) and public.key_size < MIN_RSA_BITS:
        return None
    return Key(jwk.kid, frozenset(algorithms), public)


class ProviderKeys:
    """Keys of one provider. `file` replaces the provider's URL as their source."""

    def __init__(self, idp: str, provider: ProviderSettings, file: Path | None, telemetry: Telemetry) -> None:
        self.idp = idp
        self._provider = provider
        self._file = file
        self._fetcher = KeyFetcher(idp, provider)
        self._telemetry = telemetry
        self._keys: tuple[Key, ...] = ()
        self._fetched = self._next_look = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0
        self._cause = ""
        """Cause why the last fetch brought no answer; empty after an answer."""
        self._background: asyncio.Task[None] | None = None

    @property
    def current(self) -> tuple[Key, ...]:
        """Return the valid keys; the same object while the keys are unchanged, no keys when too old."""
        return () if self._is_stale() else self._keys

    @property
    def trouble(self) -> str:
        """Return why tokens are refused, or are accepted by keys that cannot be confirmed now; empty if all is well."""
        if self._is_stale():
            return f"its keys cannot be had: {self._cause or 'no answer yet'}; its tokens get 503"
        if self._cause:
            age, end = time.monotonic() - self._fetched, self._provider.max_stale_seconds
            known = f"those of {age:.0f} seconds ago count until they are {end:g} seconds old"
            return f"its keys cannot be had: {self._cause}; {known}"
        return "" if self._keys else "its key set has no key that verifies signatures: its tokens are refused"

    def _is_stale(self) -> bool:
        return time.monotonic() - self._fetched > self._provider.max_stale_seconds

    async def start(self) -> None:
        """Fetch the keys, and refresh them in the background; raise ConfigError if a key file cannot be read."""
        if self._file:
            self._take(await asyncio.to_thread(read_key_file, self.idp, self._file))
        else:
            await self._refresh()
        self._background = asyncio.create_task(self._keep_fresh())

    async def stop(self) -> None:
        """Stop the background refresh."""
        for task in (self._background, self._fetching):
            if task:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def verify(self, text: str, kid: str | None, algorithm: str) -> None:
        """Check signature, issuer and times of a token; raise Unauthenticated or Unavailable as `find` does."""
        check_signature(text, await self.find(kid, algorithm), algorithm, self._provider)

    async def find(self, kid: str | None, algorithm: str) -> tuple[Key, ...]:
        """Return the keys with a chance to verify a token.

        Raise Unauthenticated if no key fits, Unavailable while there are no keys at all.
        """
        keys = _select(self.current, kid, algorithm)
        if not keys:
            await self._fetch_unknown()
            keys = _select(self.current, kid, algorithm)
        if keys:
            return keys
        if self._is_stale():
            raise Unavailable(f"the keys of identity provider `{self.idp}` cannot be had")
        why = ", which has no `kid`" if kid is None else ""
        if kid is not None and any(key.kid is None and algorithm in key.algorithms for key in self._keys):
            why = ": keys without a `kid` verify no token with one, so give `jwks` a file of the keys with their `kid`"
        raise Unauthenticated(f"no key of its provider fits the token{why}")

    async def _fetch_unknown(self) -> None:
        """Wait for a fetch for a bounded time; start a fetch unless the last was too recent."""
        if self._fetching is None:
            now = time.monotonic()
            if now < self._next_look:
                return
            self._next_look = now + self._provider.retry_seconds
            self._start_fetch()
        if self._waiting >= MAX_WAITING or self._fetching is None:
            return
        self._waiting += 1
        try:
            await asyncio.wait((self._fetching,), timeout=WAIT_SECONDS)
        finally:
            self._waiting -= 1

    def _start_fetch(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._refresh())
            self._fetching.add_done_callback(self._fetch_ended)
        return self._fetching

    def _fetch_ended(self, task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _keep_fresh(self) -> None:
        while True:
            pause = self._provider.refresh_seconds
            await asyncio.sleep(min(pause, self._provider.retry_seconds) if self._cause else pause)
            await asyncio.wait((self._start_fetch(),))

    async def _refresh(self) -> None:
        try:
            self._take(await (asyncio.to_thread(_read_file, self._file) if self._file else self._fetcher.fetch()))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self._telemetry.key_fetches.labels(self.idp, "failed").inc()
            cause = self._fetcher.describe(error)
            if not self._cause:
                log.warning("keys of an identity provider cannot be had", provider=self.idp, cause=cause)
            self._cause = cause

    def _take(self, text: bytes) -> None:
        """Take an answer in place of all known keys, or raise ValueError and keep them."""
        keys = read_keys(text)
        is_first = self._fetched == float("-inf")
        if not keys and (self._keys or is_first):
            cause = "its key set has no key that verifies signatures"
            log.warning("tokens of an identity provider are refused", provider=self.idp, cause=cause)
        if self._cause or (keys and not self._keys and not is_first):
            log.info("keys of an identity provider are back", provider=self.idp, keys=len(keys))
        if [(key.kid, key.algorithms, key.public) for key in keys] != [
            (key.kid, key.algorithms, key.public) for key in self._keys
        ]:
            self._keys = keys
            self._warn_of_nameless()
        self._fetched = time.monotonic()
        self._cause = ""
        self._telemetry.key_fetches.labels(self.idp, "ok" if keys else "no_keys").inc()

    def _warn_of_nameless(self) -> None:
        """Warn of keys without `kid`, and of refused tokens."""
        nameless = [key for key in self._keys if key.kid is None]
        if len(self._keys) < 2 or not nameless:
            return
        cause = "tokens with a kid are refused by keys without"
        crowded = any(sum(name in key.algorithms for key in nameless) > MAX_TRIED for name in _NAMES)
        if crowded:
            cause += f", and tokens without, because more than {MAX_TRIED} keys without fit"
        log.warning("keys of an identity provider have no kid", provider=self.idp, keys=len(nameless), cause=cause)


def _select(keys: tuple[Key, ...], kid: str | None, algorithm: str) -> tuple[Key, ...]:
    """Return the keys with a chance to verify a token: the key with the id.

    Without an id, return the only key for the algorithm; of several, the keys without ids, up to MAX_TRIED.
    """
    fitting = [key for key in keys if algorithm in key.algorithms]
    if kid is not None:
        return next(((key,) for key in fitting if key.kid == kid), ())
    if len(fitting) > 1:
        fitting = [key for key in fitting if key.kid is None]
    return tuple(fitting) if len(fitting) <= MAX_TRIED else ()


def read_key_file(idp: str, file: Path) -> bytes:
    """Return the text of a provider's key file; raise ConfigError if it cannot be read or holds no key set."""
    try:
        text = _read_file(file)
        if not read_keys(text):
            raise ValueError("it holds no key that verifies signatures")
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise ConfigError(f"`identity.providers.{idp}.jwks`: cannot use `{file}`: {cause}") from None
    return text


def _read_file(file: Path) -> bytes:
    with open_regular(file) as opened:
        text = opened.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return text


_REQUIRED: Final = {"require": ["exp", "iss"], "verify_aud": False, "verify_sub": False, "verify_jti": False}
_USELESS: Final = "the token cannot be used"
_REFUSALS: Final[tuple[tuple[type[jwt.PyJWTError], str], ...]] = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not yet valid"),
    (jwt.InvalidIssuedAtError, "the token is not yet valid"),
    (jwt.MissingRequiredClaimError, "the token lacks a claim that it must have"),
)
"""Library error -> our message. The messages quote no part of the token, but the name of a claim of the standard."""
_CLAIM: Final = re.compile(r"\((exp|nbf|iat|iss)\)|\"(exp|iss)\"")
"""Name of a claim in a message of the library."""


def check_signature(text: str, keys: tuple[Key, ...], algorithm: str, provider: ProviderSettings) -> None:
    """Check signature, issuer and times of a token by the signing key among `keys`; raise Unauthenticated."""
    for key in keys:
        try:
            jwt.decode(
                text,
                key.public,
                algorithms=[algorithm],
                issuer=provider.issuer,
                leeway=provider.leeway_seconds,
                options=_REQUIRED,  # type: ignore[arg-type]
            )
        except jwt.InvalidSignatureError:  # comes before errors of claims, so another key may have signed
            continue
        except (jwt.PyJWTError, OverflowError, ValueError, TypeError) as error:
            message = next((message for kind, message in _REFUSALS if isinstance(error, kind)), _USELESS)
            claim = "exp" if isinstance(error, jwt.ExpiredSignatureError) else _claim(error)
            raise Unauthenticated(f"{message}, by its claim `{claim}`" if claim else message) from None
        return
    raise Unauthenticated("the token's signature does not verify")


def _claim(error: Exception) -> str:
    found = _CLAIM.search(str(error)) if isinstance(error, jwt.PyJWTError) else None
    return (found[1] or found[2]) if found else ""
