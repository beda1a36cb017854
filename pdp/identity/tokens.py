"""Bearer tokens: verification of JWTs of configured providers. Nothing in a token is trusted before the signature.

The issuer selects the provider, and only keys of this provider verify the token: a token cannot name a source of keys.
Verified tokens are cached by digest until they expire or the keys of the provider change.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pdp.config.identity import ProviderSettings
from pdp.config.settings import Settings
from pdp.errors import InvalidArgument, InvalidReference, Unauthenticated
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Principal, TokenIdentity, attributes_text
from pdp.model.references import parse_principal
from pdp.model.strict import decode, exact_numbers
from pdp.telemetry import Telemetry

if TYPE_CHECKING:
    from pdp.identity.jwks import Key, ProviderKeys

MAX_TOKEN: Final = 16_384
"""Most characters of a token."""
MAX_CACHED: Final = 10_000
"""Most verified tokens in the cache."""
MAX_SUBJECT: Final = 1024
_END_OF_TIME: Final = 1e15
"""First second since the epoch that is not a valid expiry. The comparison also works for infinite numbers."""

_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


class Token(msgspec.Struct, frozen=True):
    """Verified token: identity, principal, and expiry in seconds since the epoch, leeway included."""

    identity: TokenIdentity
    principal: Principal
    expires: float


class VerifiedToken(NamedTuple):
    """A token, and the keys of its provider when the token was verified."""

    token: Token
    keys: tuple[Key, ...]


class Tokens:
    """Verifier of tokens: the providers, their keys, and a cache of verified tokens."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self._providers = settings.identity.providers
        self._idp_of = {provider.issuer: idp for idp, provider in self._providers.items()}
        self._keys = _provider_keys(settings, telemetry) if self._providers else {}
        self._verified: BoundedCache[bytes, VerifiedToken] = BoundedCache(MAX_CACHED)

    async def start(self) -> None:
        """Fetch the keys of all providers, and refresh them from then on."""
        await asyncio.gather(*(keys.start() for keys in self._keys.values()))

    async def stop(self) -> None:
        """Stop the background refresh of keys."""
        for keys in self._keys.values():
            await keys.stop()

    def troubles(self) -> dict[str, str]:
        """Return what is wrong with the keys of each provider with trouble."""
        return {f"identity {idp}": trouble for idp, keys in self._keys.items() if (trouble := keys.trouble)}

    async def verify(self, text: str) -> Token:
        """Verify a token; raise Unauthenticated, or Unavailable while the keys of the provider are unknown."""
        if len(text) > MAX_TOKEN:
            raise Unauthenticated(f"the token is longer than {MAX_TOKEN} characters")
        if cached := self.verified(text):
            return cached.token
        idp, token = await self._verify(text)
        current = self._keys[idp].current
        if current:  # the keys may have become stale during the verification
            self._verified.keep(_digest(text), VerifiedToken(token, current))
        return token

    def verified(self, text: str) -> VerifiedToken | None:
        """Return a token that was verified before and is still valid; None for any other token."""
        cached = self._verified.get(_digest(text))
        return cached if cached and self.is_valid(cached) else None

    def is_valid(self, verified: VerifiedToken) -> bool:
        """Tell whether a verified token has not expired, and its provider's keys are still the same."""
        token, keys = verified
        return time.time() < token.expires and keys is self._keys[token.identity.idp].current

    async def _verify(self, text: str) -> tuple[str, Token]:
        if not _COMPACT.fullmatch(text):
            raise Unauthenticated("the token is no signed JWT")
        header, claims = (_part(part) for part in text.split(".")[:2])
        issuer = claims.get("iss")
        idp = self._idp_of.get(issuer) if isinstance(issuer, str) else None
        if idp is None:
            raise Unauthenticated("the token's issuer is no configured provider")
        provider = self._providers[idp]
        algorithm, kid = _algorithm(header, provider), header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise Unauthenticated("the token's `kid` is no text")
        await self._keys[idp].verify(text, kid, algorithm)
        return idp, _read(idp, provider, claims)


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


def _provider_keys(settings: Settings, telemetry: Telemetry) -> dict[str, ProviderKeys]:
    from pdp.identity.jwks import ProviderKeys  # noqa: PLC0415  cryptography takes 9 MB; only providers need it

    return {
        idp: ProviderKeys(idp, provider, _file(settings, provider), telemetry)
        for idp, provider in settings.identity.providers.items()
    }


def _file(settings: Settings, provider: ProviderSettings) -> Path | None:
    return None if "://" in provider.jwks else settings.path(provider.jwks)


def _part(part: str) -> Mapping[str, Any]:
    """Decode the header or the claims; raise Unauthenticated, also for duplicate keys."""
    try:
        return decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), _OBJECT)
    except (InvalidArgument, ValueError):
        raise Unauthenticated("the token's header or claims are no proper JSON object") from None


def _algorithm(header: Mapping[str, Any], provider: ProviderSettings) -> str:
    algorithm = header.get("alg")
    if algorithm not in provider.algorithms:
        raise Unauthenticated("the token is signed in a way that its provider is not configured for")
    return str(algorithm)


def _read(idp: str, provider: ProviderSettings, claims: Mapping[str, Any]) -> Token:
    """Return the token of verified claims; raise Unauthenticated."""
    names = provider.claims
    subject, expires = _claim(claims, names.subject), claims["exp"]
    audiences = _texts(claims, names.audience)
    if provider.audiences and not set(audiences) & set(provider.audiences):
        raise Unauthenticated("the token is for another audience")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
        raise Unauthenticated("the token names no subject")
    try:
        bare = parse_principal(f"user:{idp}~{subject}")
    except InvalidReference:
        raise Unauthenticated("the token's subject cannot be a principal's name") from None
    if not isinstance(expires, int | float) or not expires < _END_OF_TIME:
        raise Unauthenticated("the token's `exp` is no time")
    named = {name: value for name, path in names.attributes.items() if (value := _claim(claims, path)) is not None}
    try:
        attributes = attributes_text(exact_numbers(named))
    except (InvalidArgument, RecursionError):
        raise Unauthenticated("the token's attributes have a number out of range, or too many levels") from None
    principal = Principal(
        bare.type,
        bare.name,
        _texts(claims, names.roles),
        _texts(claims, names.groups),
        attributes,
    )
    return Token(TokenIdentity(idp, subject, audiences), principal, expires + provider.leeway_seconds)


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name or by a path of names joined by dots; None if absent."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _texts(claims: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """Return the texts of a claim; raise Unauthenticated for any other type.

    Ignoring an odd claim would be unsafe: a forbidding rule may depend on the claim.
    """
    value = _claim(claims, path)
    listed: Sequence[Any] = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise Unauthenticated("a claim of the token is no list of texts")
    return tuple(listed)
