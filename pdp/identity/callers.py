"""Who sends a request, and what its word counts for.

Two identities, never mixed up: the caller sends, the principal is asked about. A caller is known by what it shows: a
token before a certificate, before a socket, before being on this machine; what is shown and does not count is never
replaced by something weaker. What a request says of others is evidence, taken only from a caller whose configuration
lists that kind.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pdp.config.identity import EVIDENCE, Bearer, CallerRule
from pdp.config.section import is_loopback, split_address
from pdp.config.settings import Settings
from pdp.errors import AssertionNotAllowed, InvalidArgument, PdpError, Unauthenticated
from pdp.identity.tokens import Token, Tokens
from pdp.identity.trust import trusted_engines_of
from pdp.model.checks import Caller, Check, Principal, Rejected, TokenIdentity
from pdp.model.vocabulary import TRINO_OPERATIONS, TRINO_PREFIX

EMBEDDED_CALLER: Final = Caller("loopback", frozenset(EVIDENCE), may_write=True)
"""The one caller of a service without configured callers, as long as it keeps its grants to itself."""


class Peer(msgspec.Struct, frozen=True):
    """What a request shows of who sent it. `suspicion` is why it may not pass for a program of this machine."""

    host: str = ""
    uid: int | None = None
    """The user behind a unix socket."""
    certificate: frozenset[str] | None = None
    """The names of a verified client certificate; None where there is none."""
    authorization: tuple[str, ...] = ()
    """The Authorization headers as they were sent."""
    suspicion: PdpError | None = None


class Callers:
    """The configured callers, matched against a peer."""

    def __init__(self, settings: Settings, tokens: Tokens) -> None:
        self._settings = settings
        self._tokens = tokens
        self._rules = settings.identity.callers
        self._local = local_caller(settings)
        self.count = max(1, len(self._rules)) + bool(settings.identity.providers)

    async def of(self, peer: Peer) -> Caller:
        """The caller that a peer shows to be; raises Unauthenticated, or Forbidden for what a browser may have sent."""
        if peer.authorization:
            return self._of_token(await self._tokens.verify(_bearer(peer.authorization)))
        if peer.certificate is not None:
            return self._of_certificate(peer.certificate)
        if peer.uid is not None:
            return self._of_socket(peer.uid, peer.suspicion)
        if self._local is None or not is_loopback(peer.host):
            raise Unauthenticated("no caller is configured for the peer: a bearer token is missing")
        if peer.suspicion:
            raise peer.suspicion
        return self._local

    def _of_token(self, token: Token) -> Caller:
        """The first rule that the token matches; a token of none asserts nothing and asks for its own principal."""
        identity, settings = token.identity, self._settings
        engines = trusted_engines_of(identity, settings.trusted_engines)
        found = next(((name, rule) for name, rule in self._rules.items() if _marks(rule.bearer, identity)), None)
        if found is None and not engines and not settings.identity.providers[identity.idp].audiences:
            raise Unauthenticated("the token is for no audience of this service")
        name, rule = found or (token.principal.id, None)
        return Caller(
            name,
            frozenset(rule.may_assert) if rule else frozenset(),
            rule.may_write if rule else False,
            token.principal,
            settings.identity.inspect == "read_assignments",
            identity,
            engines,
        )

    def _of_certificate(self, names: frozenset[str]) -> Caller:
        for name, rule in self._rules.items():
            if rule.mtls and not names.isdisjoint(rule.mtls.subjects):
                return _ruled(name, rule)
        raise Unauthenticated("the client certificate names no configured caller")

    def _of_socket(self, uid: int, suspicion: PdpError | None) -> Caller:
        for name, rule in self._rules.items():
            if rule.unix_socket:
                if suspicion:
                    raise suspicion
                return _ruled(f"{name}:uid={uid}", rule)
        raise Unauthenticated("no caller is configured for the unix socket: a bearer token is missing")


def local_caller(settings: Settings) -> Caller | None:
    """The caller that being on this machine makes; None where that makes none.

    The embedded default may write while all that it could change is a file beside it: bound to loopback, on SQLite.
    """
    callers = settings.identity.callers
    for name, rule in callers.items():
        if rule.loopback:
            return _ruled(name, rule)
    if callers:
        return None
    bound = (split_address(address)[0] for address in (settings.server.http, settings.server.grpc))
    alone = settings.sqlite_file() is not None and all(map(is_loopback, bound))
    return EMBEDDED_CALLER if alone else msgspec.structs.replace(EMBEDDED_CALLER, may_write=False)


def _ruled(name: str, rule: CallerRule) -> Caller:
    return Caller(name, frozenset(rule.may_assert), rule.may_write)


def _marks(bearer: Bearer | None, identity: TokenIdentity) -> bool:
    """Whether a token is what a rule demands: its provider's, and in each list that the rule gives."""
    if bearer is None or bearer.idp != identity.idp:
        return False
    if bearer.subjects and identity.subject not in bearer.subjects:
        return False
    return not bearer.audiences or not set(bearer.audiences).isdisjoint(identity.audiences)


def _bearer(authorization: tuple[str, ...]) -> str:
    """The one bearer token of a request."""
    if len(authorization) != 1:
        raise Unauthenticated("there is more than one Authorization")
    scheme, _, token = authorization[0].strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("the Authorization is no bearer token")
    return token.strip()


def own_principal(caller: Caller) -> Principal:
    """About whom a check is that names nobody; raises InvalidArgument for a caller that is no principal itself."""
    if caller.own is None:
        raise InvalidArgument("`principal` is missing, and the caller has none of its own")
    return caller.own


def evidence_of(check: Check) -> frozenset[str]:
    """The kinds of evidence that a check rests on, from a caller without a principal of its own."""
    return _of_principal(check.principal) | _of_circumstances(check)


_OTHERS: Final = frozenset({"principals"})


def weigh(caller: Caller, check: Check, also: frozenset[str] = frozenset()) -> Check | Rejected:
    """The check as its caller's word allows to ask it, or why it is not asked.

    A check about the caller's own principal says nothing of it that would have to be believed: its roles, groups and
    attributes are the token's. About somebody else a caller with a principal may ask as an inspector. `also` are kinds
    that the request rests on beside the check.
    """
    principal, claimed = _meant(caller, check.principal)
    if principal is not check.principal:
        check = msgspec.structs.replace(check, principal=principal)
    missing = (claimed | _of_circumstances(check) | also) - caller.may_assert
    if not missing:
        return check
    if is_inspection(caller, missing):
        return msgspec.structs.replace(check, inspected=True)
    return Rejected("assertion_not_allowed", _refusal(caller, missing))


def speaking_for(caller: Caller, principal: Principal, *, inspects: bool = False) -> Principal:
    """On whose behalf a caller acts; AssertionNotAllowed where its word on that does not count.

    With `inspects` a caller may name somebody else where every answer is guarded by its own right to ask that.
    """
    meant, claimed = _meant(caller, principal)
    missing = claimed - caller.may_assert
    if missing and not (inspects and is_inspection(caller, missing)):
        raise AssertionNotAllowed(_refusal(caller, missing))
    return meant


def is_inspection(caller: Caller, missing: frozenset[str]) -> bool:
    """Whether a caller that may not assert what is missing may ask nevertheless, where it may read grants."""
    return missing == _OTHERS and caller.own is not None and caller.may_inspect


def _meant(caller: Caller, principal: Principal) -> tuple[Principal, frozenset[str]]:
    """Whom a caller means, and what has to be believed for that."""
    own = caller.own
    if own is not None and principal.id == own.id:
        if principal in (own, Principal(own.type, own.name)):
            return own, frozenset()
        return principal, _of_principal(principal) - _OTHERS
    return principal, _of_principal(principal)


def _refusal(caller: Caller, missing: frozenset[str]) -> str:
    return f"caller `{caller.name}` may not assert {', '.join(sorted(missing))}"


def _of_principal(principal: Principal) -> frozenset[str]:
    kinds = {
        "principals": True,
        "roles": bool(principal.roles or principal.member_of),
        "groups": bool(principal.groups),
        "attributes": principal.attributes != "{}",
    }
    return frozenset(kind for kind, given in kinds.items() if given)


def _of_circumstances(check: Check) -> frozenset[str]:
    kinds = {
        "delegated": check.delegated or _is_delegated(check.action),
        "properties": any(resource.properties for resource in check.resources),
    }
    return frozenset(kind for kind, given in kinds.items() if given)


def _is_delegated(action: str) -> bool:
    """Whether an operation says by itself that it is on behalf of a view's owner."""
    operation = TRINO_OPERATIONS.get(action.removeprefix(TRINO_PREFIX)) if action.startswith(TRINO_PREFIX) else None
    return operation is not None and operation.delegated
