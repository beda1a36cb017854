"""Bearer tokens: verification of JWTs of configured providers. Nothing in a token is trusted before the signature.

The issuer selects the provider, and only keys of this provider verify the token: a token cannot name a source of keys.
Verified tokens are cached by digest until they expire or the keys of the provider change.

Evidence of a token is known, unknown or unreadable. Silence of a token is never a "no": a claim elsewhere, such as
groups beyond the limit of Entra, is unknown. A claim of another form than configured refuses the token.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pdp.config.identity import ProviderSettings
from pdp.config.settings import Settings
from pdp.errors import InvalidArgument, InvalidReference, Unauthenticated, UnverifiedToken
from pdp.identity.claims import ClaimReader, shown_paths
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
_END_OF_TIME: Final = 1e15
"""First second since the epoch that is not a valid expiry. The comparison also works for infinite numbers."""

_LONGEST_NAME: Final = 128
"""Most characters of an unverified name in a record."""
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


class Token(msgspec.Struct, frozen=True):
    """Verified token: identity, principal, and expiry in seconds since the epoch, leeway included."""

    identity: TokenIdentity
    principal: Principal
    expires: float
    issuer: str = ""


class VerifiedToken(NamedTuple):
    """A token, the keys of the issuer at the verification, and the paths seen by then."""

    token: Token
    keys: tuple[Key, ...]
    seen: frozenset[str]


class Tokens:
    """Verifier of tokens: the providers, their keys, and a cache of verified tokens."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self._providers = settings.identity.providers
        self._idp_of = {each.issuer: idp for idp, known in self._providers.items() for each in known.each_issuer}
        self._keys = _issuer_keys(settings, telemetry) if self._providers else {}
        self._seen = dict.fromkeys(self._idp_of, frozenset[str]())
        """Issuer -> the paths with a claim in a token of the issuer since the start."""
        self._verified: BoundedCache[bytes, VerifiedToken] = BoundedCache(MAX_CACHED)

    async def start(self) -> None:
        """Fetch the keys of all providers, and refresh them from then on."""
        await asyncio.gather(*(keys.start() for keys in self._keys.values()))

    async def stop(self) -> None:
        """Stop the background refresh of keys."""
        for keys in self._keys.values():
            await keys.stop()

    def troubles(self) -> dict[str, str]:
        """Return what is wrong with the keys of each provider, or issuer of several, with trouble."""
        found = {}
        for issuer, keys in self._keys.items():
            idp = self._idp_of[issuer]
            name = f"identity {idp} {issuer}" if len(self._providers[idp].each_issuer) > 1 else f"identity {idp}"
            if trouble := keys.trouble:
                found[name] = trouble
        return found

    def count_keys(self) -> dict[str, int]:
        """Return the number of keys of each provider that count now, those of all its issuers together."""
        counts = dict.fromkeys(self._providers, 0)
        for issuer, keys in self._keys.items():
            counts[self._idp_of[issuer]] += len(keys.current)
        return counts

    async def verify(self, text: str) -> Token:
        """Verify a token; raise Unauthenticated, or Unavailable while the keys of the provider are unknown."""
        if len(text) > MAX_TOKEN:
            raise Unauthenticated(f"the token is longer than {MAX_TOKEN} characters")
        if cached := self.verified(text):
            return cached.token
        token = await self._verify(text)
        current = self._keys[token.issuer].current
        if current:  # the keys may have become stale during the verification
            seen = self._seen[token.issuer]
            self._verified.keep(_digest(text), VerifiedToken(token, current, seen))
        return token

    def verified(self, text: str) -> VerifiedToken | None:
        """Return a token that was verified before and is still valid; None for any other token."""
        cached = self._verified.get(_digest(text))
        return cached if cached and self.is_valid(cached) else None

    def is_valid(self, verified: VerifiedToken) -> bool:
        """Tell whether a verified token has not expired, and the issuer's keys are still the same.

        A token with unseen evidence is read again after another token had the claim.
        """
        token, keys, seen = verified
        if not time.time() < token.expires or keys is not self._keys[token.issuer].current:
            return False
        return not token.principal.unseen or seen is self._seen[token.issuer]

    async def _verify(self, text: str) -> Token:
        if not _COMPACT.fullmatch(text):
            raise Unauthenticated("the token is no signed JWT")
        header, claims = (_part(part) for part in text.split(".")[:2])
        issuer = claims.get("iss")
        idp = self._idp_of.get(issuer) if isinstance(issuer, str) else None
        if idp is None:
            raise Unauthenticated("the token's issuer is no configured provider")
        issuer, provider = str(issuer), self._providers[idp]
        _check_type(header)
        algorithm, kid = _algorithm(header, provider), header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise Unauthenticated("the token's `kid` is no text")
        await self._keys[issuer].verify(text, kid, algorithm)
        _check_use(claims, provider)
        reader = ClaimReader(provider.claims, claims)
        seen = self._seen[issuer] | reader.present()
        token = _read(idp, provider, reader, seen)
        if seen != self._seen[issuer]:
            self._seen[issuer] = seen
        return token


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


def _issuer_keys(settings: Settings, telemetry: Telemetry) -> dict[str, ProviderKeys]:
    """Return the keys of each issuer. Issuers of a provider share no key."""
    from pdp.identity.jwks import ProviderKeys  # noqa: PLC0415  cryptography takes 9 MB; only providers need it

    keys = {}
    for idp, provider in settings.identity.providers.items():
        token = provider.jwks_token_file
        own = {"jwks_token_file": str(settings.path(token)) if token else None, "issuers": ()}
        way = settings.way_out(provider.ca_file, f"identity.providers.{idp}.ca_file")
        for each in provider.each_issuer:
            alone = provider.model_copy(update={**own, "issuer": each.issuer, "jwks": each.jwks}).by(way)
            file = settings.path(each.jwks) if each.is_file else None
            keys[each.issuer] = ProviderKeys(idp, alone, file, telemetry)
    return keys


def _part(part: str) -> Mapping[str, Any]:
    """Decode the header or the claims; raise Unauthenticated, also for duplicate keys."""
    try:
        return decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), _OBJECT)
    except (InvalidArgument, ValueError):
        raise Unauthenticated("the token's header or claims are no proper JSON object") from None


def unverified_token(text: str) -> UnverifiedToken | None:
    """Return what a token says of its issuer and key, escaped and cut, for records; None for no token."""
    if len(text) > MAX_TOKEN or not _COMPACT.fullmatch(text):
        return None
    try:
        header, claims = (_part(part) for part in text.split(".")[:2])
    except Unauthenticated:
        return None
    return UnverifiedToken(_escaped(claims.get("iss")), _escaped(header.get("kid")))


def _escaped(name: Any) -> str:
    text = name[:_LONGEST_NAME] if isinstance(name, str) else ""
    return text.encode("ascii", "backslashreplace").decode().translate(_CONTROLS)[:_LONGEST_NAME]


def _algorithm(header: Mapping[str, Any], provider: ProviderSettings) -> str:
    algorithm = header.get("alg")
    if algorithm not in provider.algorithms:
        raise Unauthenticated("the token is signed in a way that its provider is not configured for")
    return str(algorithm)


def _check_type(header: Mapping[str, Any]) -> None:
    """Raise Unauthenticated for a type of other tokens, such as `logout+jwt` (RFC 8725 3.11, RFC 9068 4)."""
    type = header.get("typ", "JWT")
    if not isinstance(type, str) or type.lower().removeprefix("application/") not in _ACCESS_TYPES:
        raise Unauthenticated("the token's `typ` is not that of an access token: `at+jwt`, `JWT`, or none")


def _check_use(claims: Mapping[str, Any], provider: ProviderSettings) -> None:
    """Raise Unauthenticated for claims of another kind of token, of a proof by the sender, or of events (RFC 8417)."""
    for name in (name for name, value in claims.items() if value is not None and _plain(name) in _KIND_CLAIMS):
        kinds = claims[name] if isinstance(claims[name], list) else [claims[name]]
        if not all(isinstance(kind, str) and not _OTHER_KIND.fullmatch(_plain(kind)) for kind in kinds):
            raise Unauthenticated(f"by its claim `{name}` the token is no access token: send the access token")
    if "cnf" in claims and provider.sender_constrained == "deny":
        raise Unauthenticated(
            "the token is for a sender with a proof, by its claim `cnf`, and the service checks no proofs: see "
            "`sender_constrained`"
        )
    if "events" in claims:
        raise Unauthenticated("the token is about events, such as a logout, and no access token")


def _plain(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


_ACCESS_TYPES: Final = frozenset({"jwt", "at+jwt", "jose"})
"""Types of access tokens, and types of any token. SPIFFE's tokens may have `JOSE`."""
_KIND_CLAIMS: Final = frozenset({"typ", "tokenuse", "tokenusage", "tokentype", "tokenname", "purpose"})
"""Claims with the kind of a token, by provider: Keycloak, Cognito, OpenIddict, Casdoor, ForgeRock, Curity."""
_OTHER_KIND: Final = re.compile("(?:serialized)?(?:id|identity|refresh|offline|logout|userinfo|code)(?:token)?(?:jwt)?")


def _read(idp: str, provider: ProviderSettings, reader: ClaimReader, seen: frozenset[str]) -> Token:
    """Return the token of verified claims; raise Unauthenticated. `seen` has the paths of claims in tokens so far."""
    audiences = reader.audiences()
    if provider.audiences and not set(audiences) & set(provider.audiences):
        raise Unauthenticated(
            f"the token is for another audience, by its claim {shown_paths(provider.claims.audience)}"
        )
    subject = reader.subject()
    try:
        bare = parse_principal(f"user:{idp}~{subject}")
    except InvalidReference:
        raise Unauthenticated(
            f"the token's claim {shown_paths(provider.claims.subject)} cannot be a principal's name"
        ) from None
    expires = reader.claims["exp"]
    if not isinstance(expires, int | float) or not expires < _END_OF_TIME:
        raise Unauthenticated("the token's claim `exp` is no time")
    roles, groups = reader.texts("roles"), reader.texts("groups")
    try:
        attributes = attributes_text(exact_numbers(reader.attributes()))
    except (InvalidArgument, RecursionError):
        raise Unauthenticated("the token's attributes have a number out of range, or too many levels") from None
    unknown = reader.unknown()
    unseen = tuple(sorted(reader.unseen(seen) - unknown))
    principal = Principal(
        bare.type, bare.name, roles, groups, attributes, unknown=tuple(sorted(unknown)), unseen=unseen
    )
    identity = TokenIdentity(idp, subject, audiences)
    return Token(identity, principal, expires + provider.leeway_seconds, str(reader.claims["iss"]))
