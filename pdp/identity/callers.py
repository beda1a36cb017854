"""Callers: the senders of requests, recognised by their connections, and the trusted engines among them.

A caller sends a request; a principal is the subject of a check. The two are never mixed. A connection shows its caller
by a bearer token, else a client certificate, else the user of a unix socket, else a loopback address. If the strongest
present sign matches no configured caller, the weaker signs do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from pdp.config import identity as identity_config
from pdp.config.identity import EVIDENCE, BearerSettings, CallerSettings
from pdp.config.section import is_loopback, split_address
from pdp.config.settings import Settings
from pdp.engines.row_access.members import HEADERS, Members, development_identity, refused_identity
from pdp.errors import PdpError, Unauthenticated
from pdp.identity.tokens import Token, Tokens, VerifiedToken, unverified_token
from pdp.model.question import Caller, TokenIdentity, TrustedEngine

_DEVELOPMENT_ENGINE: Final = "allow_all"
IDENTITY_HEADERS: Final = HEADERS
"""Names, in lower case, of the headers and metadata that state an identity for development."""
EMBEDDED_CALLER: Final = Caller("loopback", frozenset(EVIDENCE), may_write=True)
"""Only caller of a service without configured callers. This caller may write while the grants are a local file."""


class Peer(msgspec.Struct, frozen=True):
    """Evidence of the sender in a connection. `suspicion` is the error if the peer may not count as a local program."""

    host: str = ""
    uid: int | None = None
    """User id of the peer of a unix socket."""
    certificate: frozenset[str] | None = None
    """Names of a verified client certificate; None without a certificate."""
    authorization: tuple[str, ...] = ()
    """Authorization headers as sent."""
    suspicion: PdpError | None = None
    identity_headers: tuple[tuple[str, str], ...] = ()
    """Headers that state an identity for development, with names in lower case."""


class KnownCaller(NamedTuple):
    """A caller named without waiting, and the verified token that names the caller; None for other evidence."""

    caller: Caller
    token: VerifiedToken | None = None


class Callers:
    """Configured callers, matched against a peer."""

    def __init__(self, settings: Settings, tokens: Tokens) -> None:
        self._settings = settings
        self._tokens = tokens
        self._rules = settings.identity.callers
        self._local = local_caller(settings)
        self._members = development_members(settings)
        self._ignores_tokens = any(rule.ignore_tokens for rule in self._rules.values())
        self.count = max(1, len(self._rules)) + bool(settings.identity.providers)

    async def identify(self, peer: Peer) -> Caller:
        """Return the caller of a peer.

        Raise Unauthenticated if no caller matches, or Forbidden if a browser may have sent the request.
        """
        if not peer.authorization or self._is_ignored(peer):
            return self._by_connection(peer)
        text = _bearer_token(peer.authorization)
        try:
            return self._with_stated(self._by_token(await self._tokens.verify(text)), peer)
        except Unauthenticated as error:
            error.unverified = unverified_token(text)
            raise

    def known(self, peer: Peer) -> KnownCaller | None:
        """Return the caller of a peer; None if the peer's token must be verified first. Raise as `identify` does."""
        if not peer.authorization or self._is_ignored(peer):
            return KnownCaller(self._by_connection(peer))
        text = _bearer_token(peer.authorization)
        verified = self._tokens.verified(text)
        if verified is None:
            return None
        try:
            return KnownCaller(self._with_stated(self._by_token(verified.token), peer), verified)
        except Unauthenticated as error:
            error.unverified = unverified_token(text)
            raise

    def _is_ignored(self, peer: Peer) -> bool:
        """Tell whether the token of a peer counts as absent: that of a local peer without another sign."""
        return self._ignores_tokens and peer.certificate is None and peer.uid is None and is_loopback(peer.host)

    def is_still_known(self, known: KnownCaller) -> bool:
        """Tell whether the token of a known caller is still valid. Other evidence holds as long as its connection."""
        return known.token is None or self._tokens.is_valid(known.token)

    def _with_stated(self, caller: Caller, peer: Peer) -> Caller:
        """Return a caller with the identity that headers state: a principal in development, otherwise a refusal."""
        if self._members is not None:
            return msgspec.structs.replace(caller, stated=development_identity(peer.identity_headers, self._members))
        refused = refused_identity(peer.identity_headers) if peer.identity_headers else None
        return msgspec.structs.replace(caller, stated=refused) if refused else caller

    def _by_connection(self, peer: Peer) -> Caller:
        """Return the caller of a peer without a token."""
        return self._with_stated(self._without_token(peer), peer)

    def _without_token(self, peer: Peer) -> Caller:
        if peer.certificate is not None:
            return self._by_certificate(peer.certificate)
        if peer.uid is not None:
            return self._by_socket(peer.uid, peer.suspicion)
        if self._local is None or not is_loopback(peer.host):
            raise Unauthenticated("no caller is configured for the peer: a bearer token is missing")
        if peer.suspicion:
            raise _copy(peer.suspicion)
        return self._local

    def _by_token(self, token: Token) -> Caller:
        """Return the caller of the first rule that matches the token.

        Without a match, the caller may assert nothing and asks for the principal of the token.
        """
        identity, settings = token.identity, self._settings
        engines = trusted_engines_of(identity, settings.trusted_engines)
        match = next(((name, rule) for name, rule in self._rules.items() if _matches(rule.bearer, identity)), None)
        if match is None and not engines and not settings.identity.providers[identity.idp].audiences:
            raise Unauthenticated("the token is for no audience of this service")
        name, rule = match or (token.principal.id, None)
        return Caller(
            name,
            frozenset(rule.may_assert) if rule else frozenset(),
            rule.may_write if rule else False,
            token.principal,
            settings.identity.inspect == "read_assignments",
            identity,
            engines,
            empty=frozenset(rule.empty) if rule else frozenset(),
        )

    def _by_certificate(self, names: frozenset[str]) -> Caller:
        for name, rule in self._rules.items():
            if rule.mtls and not names.isdisjoint(rule.mtls.subjects):
                return _configured(name, rule)
        raise Unauthenticated("the client certificate names no configured caller")

    def _by_socket(self, uid: int, suspicion: PdpError | None) -> Caller:
        for name, rule in self._rules.items():
            if rule.unix_socket:
                if suspicion:
                    raise _copy(suspicion)
                return _configured(f"{name}:uid={uid}", rule)
        raise Unauthenticated("no caller is configured for the unix socket: a bearer token is missing")


def local_caller(settings: Settings) -> Caller | None:
    """Return the caller of a local connection without further evidence; None if the configuration has none.

    Without configured callers, the local caller may write only if the service listens on loopback and stores its facts
    in SQLite: then nobody else depends on the file.
    """
    callers = settings.identity.callers
    for name, rule in callers.items():
        if rule.loopback:
            return _configured(name, rule)
    if callers:
        return None
    bound = (split_address(address)[0] for address in (settings.server.http, settings.server.grpc))
    alone = settings.sqlite_file() is not None and all(map(is_loopback, bound))
    return EMBEDDED_CALLER if alone else msgspec.structs.replace(EMBEDDED_CALLER, may_write=False)


def trusted_engines_of(
    identity: TokenIdentity, configured: Mapping[str, identity_config.TrustedEngineSettings]
) -> tuple[TrustedEngine, ...]:
    """Return the engines with the token's subject or an audience of the token in their settings for the provider."""
    return tuple(
        TrustedEngine(
            name,
            engine.type,
            engine.owner_property,
            identity.idp,
            engine.enforces_row_access,
            engine.delegated_storage == "as_owner",
            engine.applies_read_restrictions,
        )
        for name, engine in configured.items()
        if (known := engine.identities.get(identity.idp))
        and (identity.subject in known.subjects or not set(identity.audiences).isdisjoint(known.audiences))
    )


def development_members(settings: Settings) -> Members | None:
    """Return the members of users in a development profile, where every engine is `allow_all`; None in all others."""
    engines = {engine for authority in settings.authorities.values() for engine in authority.engines}
    if engines != {_DEVELOPMENT_ENGINE} or settings.identity.providers:
        return None
    member = settings.row_access.member
    return Members(member.template, settings.identity.cel_provider, member.claim or "", member.service_accounts)


def _copy(error: PdpError) -> PdpError:
    """Return a new error of the same kind and text.

    A raised error refers to the frames of the request, and the peer in these frames refers to the suspicion: if the
    suspicion itself were raised, this cycle would keep the body of the request.
    """
    return type(error)(*error.args)


def _configured(name: str, rule: CallerSettings) -> Caller:
    return Caller(name, frozenset(rule.may_assert), rule.may_write, empty=frozenset(rule.empty))


def _matches(bearer: BearerSettings | None, identity: TokenIdentity) -> bool:
    """Tell whether a token is from the rule's provider and is in each list that the rule gives."""
    if bearer is None or bearer.idp != identity.idp:
        return False
    if bearer.subjects and identity.subject not in bearer.subjects:
        return False
    return not bearer.audiences or not set(bearer.audiences).isdisjoint(identity.audiences)


def _bearer_token(authorization: tuple[str, ...]) -> str:
    """Return the bearer token of a request; raise Unauthenticated unless there is exactly one."""
    if len(authorization) != 1:
        raise Unauthenticated("there is more than one Authorization")
    scheme, _, token = authorization[0].strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("the Authorization is no bearer token")
    return token.strip()
