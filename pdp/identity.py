"""Who sends a request, and what its word counts for.

Two identities, never mixed up: the caller sends, the principal is asked about. Callers are known by loopback so far;
what a request says of others is evidence, taken only from a caller whose configuration lists that kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from pdp.config import EVIDENCE, Identity, TrustedEngineRule, is_loopback
from pdp.errors import Unauthenticated
from pdp.model import Caller, Check, Rejected, TrustedEngine
from pdp.vocabulary import TRINO_OPERATIONS, TRINO_PREFIX

EMBEDDED_CALLER: Final = Caller("loopback", frozenset(EVIDENCE), may_write=True)
"""The one caller of a service without configured callers."""


class Callers:
    """The configured callers, matched against a peer."""

    def __init__(self, identity: Identity) -> None:
        rules = [Caller(name, frozenset(rule.may_assert), rule.may_write) for name, rule in identity.callers.items()]
        self._loopback = rules[0] if rules else EMBEDDED_CALLER
        self.count = max(1, len(rules))

    def of_peer(self, host: str) -> Caller:
        """The caller behind a peer address; raises Unauthenticated where no rule matches."""
        if not is_loopback(host):
            raise Unauthenticated(f"no caller is configured for the peer `{host}`")
        return self._loopback


def engines_of(
    rules: Mapping[str, TrustedEngineRule], idp: str, subject: str, audiences: Collection[str]
) -> tuple[TrustedEngine, ...]:
    """The configured engines that a token is matched with: any audience or the subject, among those of its provider."""
    return tuple(
        TrustedEngine(name, rule.owner_property, rule.enforces_row_access)
        for name, rule in rules.items()
        if (tokens := rule.identities.get(idp))
        and (subject in tokens.subjects or any(audience in tokens.audiences for audience in audiences))
    )


def evidence_of(check: Check) -> frozenset[str]:
    """The kinds of evidence that a check rests on."""
    principal = check.principal
    kinds = {
        "principals": True,
        "roles": bool(principal.roles),
        "groups": bool(principal.groups),
        "attributes": principal.attributes != "{}",
        "delegated": check.delegated or _is_delegated(check.action),
        "properties": any(resource.properties for resource in check.resources),
    }
    return frozenset(kind for kind, given in kinds.items() if given)


def _is_delegated(action: str) -> bool:
    """Whether an operation says by itself that it is on behalf of a view's owner."""
    operation = TRINO_OPERATIONS.get(action.removeprefix(TRINO_PREFIX)) if action.startswith(TRINO_PREFIX) else None
    return operation is not None and operation.delegated


def refusal(caller: Caller, evidence: AbstractSet[str]) -> Rejected | None:
    """Why a caller's evidence is not taken, if it is not."""
    missing = sorted(evidence - caller.may_assert)
    if not missing:
        return None
    return Rejected("assertion_not_allowed", f"caller `{caller.name}` may not assert {', '.join(missing)}")
