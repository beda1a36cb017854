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
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pdp.config.identity import ClaimSettings, ProviderSettings
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
_SEVERAL: Final = re.compile(r"""[\s,;"'\[\](){}]""")
"""Signs of several values in a text."""
_OTHERS: Final = re.compile(r"""[,;"'\[\](){}]|(?! )\s""")
"""Signs of several values in a part of a text that a separator divides. A name may hold a blank."""
_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "text": lambda value: isinstance(value, str),
    "texts": lambda value: isinstance(value, list) and all(isinstance(text, str) for text in value),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, Mapping),
}
"""Type of an attribute -> the test of a value."""
_MOST_READINGS: Final = 64
"""Most readings of a path with dots."""
_CLAIM_NAMES: Final = "_claim_names"
"""Claim with the names of claims in other places (OpenID Connect Core 5.6.2); Entra's beyond 200 groups."""
_HAS_GROUPS: Final = "hasgroups"
"""Claim of Entra in place of `groups`, where an address has no room for more."""
_END_OF_TIME: Final = 1e15
"""First second since the epoch that is not a valid expiry. The comparison also works for infinite numbers."""

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
        self._seen = dict.fromkeys(self._providers, frozenset[str]())
        """Provider -> the paths with a claim in a token of the provider since the start."""
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

    async def verify(self, text: str) -> Token:
        """Verify a token; raise Unauthenticated, or Unavailable while the keys of the provider are unknown."""
        if len(text) > MAX_TOKEN:
            raise Unauthenticated(f"the token is longer than {MAX_TOKEN} characters")
        if cached := self.verified(text):
            return cached.token
        token = await self._verify(text)
        current = self._keys[token.issuer].current
        if current:  # the keys may have become stale during the verification
            seen = self._seen[token.identity.idp]
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
        return not token.principal.unseen or seen is self._seen[token.identity.idp]

    async def _verify(self, text: str) -> Token:
        if not _COMPACT.fullmatch(text):
            raise Unauthenticated("the token is no signed JWT")
        header, claims = (_part(part) for part in text.split(".")[:2])
        issuer = claims.get("iss")
        idp = self._idp_of.get(issuer) if isinstance(issuer, str) else None
        if idp is None:
            raise Unauthenticated("the token's issuer is no configured provider")
        provider = self._providers[idp]
        _check_type(header)
        algorithm, kid = _algorithm(header, provider), header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise Unauthenticated("the token's `kid` is no text")
        await self._keys[str(issuer)].verify(text, kid, algorithm)
        _check_use(claims, provider)
        reader = ClaimReader(provider.claims, claims)
        seen = self._seen[idp] | reader.present()
        token = _read(idp, provider, reader, seen)
        if seen != self._seen[idp]:
            self._seen[idp] = seen
        return token


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


def _issuer_keys(settings: Settings, telemetry: Telemetry) -> dict[str, ProviderKeys]:
    """Return the keys of each issuer. Issuers of a provider share no key."""
    from pdp.identity.jwks import ProviderKeys  # noqa: PLC0415  cryptography takes 9 MB; only providers need it

    keys = {}
    for idp, provider in settings.identity.providers.items():
        for each in provider.each_issuer:
            alone = provider.model_copy(update={"issuer": each.issuer, "jwks": each.jwks, "issuers": ()})
            file = None if "://" in each.jwks else settings.path(each.jwks)
            keys[each.issuer] = ProviderKeys(idp, alone, file, telemetry)
    return keys


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
        raise Unauthenticated("the token is for another audience")
    subject = reader.subject()
    try:
        bare = parse_principal(f"user:{idp}~{subject}")
    except InvalidReference:
        raise Unauthenticated("the token's subject cannot be a principal's name") from None
    expires = reader.claims["exp"]
    if not isinstance(expires, int | float) or not expires < _END_OF_TIME:
        raise Unauthenticated("the token's `exp` is no time")
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


# --- claims -----------------------------------------------------------------------------------------------------------


class ClaimReader:
    """Reader of the claims of a token by the paths of the provider."""

    def __init__(self, settings: ClaimSettings, claims: Mapping[str, Any]) -> None:
        self.claims = claims
        self._settings = settings
        self._elsewhere = _names_elsewhere(claims)

    def audiences(self) -> tuple[str, ...]:
        """Return the audiences, each to the letter; raise Unauthenticated for another form."""
        found: list[str] = []
        for path in self._settings.audience:
            value = self._find(path)
            found += [] if value is None else [value] if isinstance(value, str) else _listed(path, value)
        return tuple(found)

    def subject(self) -> str:
        """Return the subject of the first present claim; raise Unauthenticated for another form."""
        for path in self._settings.subject:
            value = self._find(path)
            if value is None:
                continue
            if not isinstance(value, str) or not 0 < len(value) <= MAX_SUBJECT:
                raise Unauthenticated(f"the token names no subject: its claim `{path}` is no text of a usual length")
            return value
        raise Unauthenticated("the token names no subject")

    def texts(self, evidence: str) -> tuple[str, ...]:
        """Return the roles or groups of all paths; raise Unauthenticated for another form."""
        found: list[str] = []
        for path in self._settings.paths[evidence]:
            value = self._find(path)
            if isinstance(value, str):
                found += self._parts(path, value)
            elif isinstance(value, Mapping) and evidence in self._settings.keys_of:
                found += value
            elif value is not None:
                found += _listed(path, value)
        return tuple(found) if len(self._settings.paths[evidence]) == 1 else tuple(dict.fromkeys(found))

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of present claims; raise Unauthenticated for another type than configured."""
        found = {}
        for name, paths in self._settings.attributes.items():
            values = ((path, self._find(path)) for path in paths)
            path, value = next((each for each in values if each[1] is not None), ("", None))
            if value is not None:
                type = self._settings.type_of(name)
                if type and not _TYPES[type](value):
                    raise Unauthenticated(f"the token's claim `{path}` is no {type}: see `claims.types`")
                found[name] = value
        return found

    def present(self) -> frozenset[str]:
        """Return the paths of evidence with present claims."""
        paths = (path for paths in self._settings.paths.values() for path in paths)
        return frozenset(path for path in paths if self._find(path) is not None)

    def unknown(self) -> frozenset[str]:
        """Return the evidence in other places, and absent evidence among the required."""
        required = self._settings.evidence(self._settings.required)
        return frozenset(
            evidence
            for evidence, paths in self._settings.paths.items()
            if any(self._is_elsewhere(path) for path in paths)
            or (evidence in required and all(self._find(path) is None for path in paths))
        )

    def unseen(self, seen: frozenset[str]) -> frozenset[str]:
        """Return the evidence with a written path outside of `seen`, the paths with a claim in a token so far."""
        paths, found = self._settings.paths, {f"attributes.{name}" for name in self.attributes()}
        doubted = self._settings.doubted - found
        return frozenset(evidence for evidence in doubted if not seen.issuperset(paths[evidence]))

    def _find(self, path: str) -> Any:
        """Return a claim; None if absent. Raise Unauthenticated if the path leads through a list or another value."""
        value = find_claim(self.claims, path)
        if value is None and any(rest and found is not None for found, rest in _readings(self.claims, path)):
            raise Unauthenticated(f"the token's claim `{path}` stands in a value that is no object")
        return value

    def _parts(self, path: str, value: str) -> list[str]:
        separator = self._settings.separator
        if separator is not None:
            parts = [part for text in value.split(separator) if (part := text.strip())]
            if any(map(_OTHERS.search, parts)):
                raise Unauthenticated(
                    f"the token's claim `{path}` is one text with other signs of several values than "
                    "`claims.separator`: such names stand in a list"
                )
            return parts
        if _SEVERAL.search(value):
            raise Unauthenticated(
                f"the token's claim `{path}` is one text that may hold several values: `claims.separator` says what "
                "stands between them"
            )
        return [value]

    def _is_elsewhere(self, path: str) -> bool:
        return any(path == name or path.startswith(f"{name}.") for name in self._elsewhere)


def find_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by name or by a path of names joined by dots; None if absent or null.

    The whole path is a name first, then each dot divides two names, then names may have dots, as ids of clients.
    """
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is not None:
        return value
    return next((found for found, rest in _readings(claims, path) if not rest and found is not None), None)


def _readings(claims: Mapping[str, Any], path: str) -> Iterator[tuple[Any, str]]:
    """Yield the values at a path for all divisions into names, and those without names before the rest of the path."""
    pending: list[tuple[Any, str]] = [(claims, path)]
    for _ in range(_MOST_READINGS):
        if not pending:
            return
        value, rest = pending.pop()
        if rest and isinstance(value, Mapping):
            ends = [at for at, sign in enumerate(rest) if sign == "."] + [len(rest)]
            pending += [(value[rest[:end]], rest[end + 1 :]) for end in ends if rest[:end] in value]
        else:
            yield value, rest


def _listed(path: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise Unauthenticated(f"the token's claim `{path}` is no list of texts")
    return value


def _names_elsewhere(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of claims of a token in other places; raise Unauthenticated for another form."""
    names = claims.get(_CLAIM_NAMES)
    if names is not None and not isinstance(names, Mapping):
        raise Unauthenticated(f"the token's claim `{_CLAIM_NAMES}` is no object")
    has_groups = claims.get(_HAS_GROUPS) not in (None, False)
    return (*(names or ()), *(("groups",) if has_groups else ()))
