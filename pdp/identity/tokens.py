"""Bearer tokens: a JWT of a configured provider to whom it names. Trusts nothing in a token before its signature.

A token's provider is found by its issuer, its key among that provider's keys alone: nothing in a token says where a
key comes from. What was verified is remembered by digest until it expires or the provider's keys change.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from jwt.utils import base64url_decode

from pdp.config.identity import ProviderSettings
from pdp.config.settings import Settings
from pdp.errors import InvalidArgument, InvalidReference, Unauthenticated
from pdp.identity.jwks import Key, ProviderKeys
from pdp.model.checks import Principal, TokenIdentity
from pdp.model.references import parse_principal
from pdp.strict import decode
from pdp.telemetry import Telemetry

MAX_TOKEN: Final = 16_384
"""Characters of a token."""
KEPT: Final = 10_000
"""Verified tokens that are remembered."""
MAX_SUBJECT: Final = 1024
_END_OF_TIME: Final = 1e15
"""Seconds since the epoch beyond which a number is no time; the comparison holds for any number there is."""

_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_REQUIRED: Final = {"require": ["exp", "iss"], "verify_aud": False, "verify_sub": False, "verify_jti": False}
_REFUSALS: Final[tuple[tuple[type[jwt.PyJWTError], str], ...]] = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not yet valid"),
    (jwt.InvalidIssuedAtError, "the token is not yet valid"),
    (jwt.MissingRequiredClaimError, "the token lacks a claim that it must have"),
    (jwt.InvalidSignatureError, "the token's signature does not verify"),
    (jwt.PyJWTError, "the token cannot be used"),
)
"""What a library says to what we say: nothing of the token's own."""


class Token(msgspec.Struct, frozen=True):
    """A verified token: whom it names, for whom it was issued, until when (seconds since the epoch)."""

    identity: TokenIdentity
    principal: Principal
    expires: float


class Tokens:
    """The verifier of a service: its providers, their keys, and what it verified lately."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self._providers = settings.identity.providers
        self._idp_of = {provider.issuer: idp for idp, provider in self._providers.items()}
        self._keys = {
            idp: ProviderKeys(idp, provider, _file(settings, provider), telemetry)
            for idp, provider in self._providers.items()
        }
        self._kept: dict[bytes, tuple[Token, tuple[Key, ...]]] = {}

    async def start(self) -> None:
        """Fetch the keys of all providers, and keep them fresh."""
        await asyncio.gather(*(keys.start() for keys in self._keys.values()))

    async def stop(self) -> None:
        """End what runs in the background."""
        for keys in self._keys.values():
            await keys.stop()

    async def verify(self, text: str) -> Token:
        """Whom a token names; raises Unauthenticated, or Unavailable while its provider's keys cannot be had."""
        if len(text) > MAX_TOKEN:
            raise Unauthenticated(f"the token is longer than {MAX_TOKEN} characters")
        digest = sha256(text.encode("utf-8", "surrogateescape")).digest()
        kept = self._kept.get(digest)
        if kept and time.time() < kept[0].expires and kept[1] is self._keys[kept[0].identity.idp].current:
            return kept[0]
        idp, token = await self._verify(text)
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        current = self._keys[idp].current
        if current:  # keys that have gone stale since then vouch for nothing
            self._kept[digest] = token, current
        return token

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
        key = await self._keys[idp].find(kid, algorithm)
        _check(text, key, algorithm, provider)
        return idp, _read(idp, provider, claims)


def _file(settings: Settings, provider: ProviderSettings) -> Path | None:
    return None if "://" in provider.jwks else settings.path(provider.jwks)


def _part(part: str) -> Mapping[str, Any]:
    """The header or the claims, without a key that stands twice: readers differ on which of two counts."""
    try:
        return decode(base64url_decode(part), _OBJECT)
    except (InvalidArgument, ValueError):
        raise Unauthenticated("the token's header or claims are no proper JSON object") from None


def _algorithm(header: Mapping[str, Any], provider: ProviderSettings) -> str:
    algorithm = header.get("alg")
    if algorithm not in provider.algorithms:
        raise Unauthenticated("the token is signed in a way that its provider is not configured for")
    return str(algorithm)


def _check(text: str, key: Any, algorithm: str, provider: ProviderSettings) -> None:
    """Signature, issuer and times."""
    try:
        jwt.decode(
            text,
            key,
            algorithms=[algorithm],
            issuer=provider.issuer,
            leeway=provider.leeway_seconds,
            options=_REQUIRED,  # type: ignore[arg-type]
        )
    except (jwt.PyJWTError, OverflowError, ValueError, TypeError) as error:
        message = next((message for kind, message in _REFUSALS if isinstance(error, kind)), "the token cannot be used")
        raise Unauthenticated(message) from None


def _read(idp: str, provider: ProviderSettings, claims: Mapping[str, Any]) -> Token:
    """What verified claims say."""
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
    attributes = {name: value for name, path in names.attributes.items() if (value := _claim(claims, path)) is not None}
    principal = Principal(
        bare.type,
        bare.name,
        _texts(claims, names.roles),
        _texts(claims, names.groups),
        msgspec.json.encode(attributes, order="sorted").decode(),
    )
    return Token(TokenIdentity(idp, subject, audiences), principal, expires + provider.leeway_seconds)


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by a path of names with dots between them; None where there is none."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _texts(claims: Mapping[str, Any], path: str) -> tuple[str, ...]:
    """A claim that lists texts; a token that holds something else there is refused, because a forbid may look at it."""
    found = _claim(claims, path)
    listed: Sequence[Any] = [] if found is None else [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise Unauthenticated("a claim of the token is no list of texts")
    return tuple(listed)
