"""IAM members: whom a policy's grantee names, and whether a principal is one of them. Knows no policy.

Follows BigQuery's members as bqemulator's ADR 0018 matches them: the local part of an address and the kind count
letter by letter, the host in any case. `role:` is ours: whoever may assume the role.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pdp.config import TEMPLATE_FIELD
from pdp.facts import Facts
from pdp.model import Principal

ALL_USERS: Final = "allUsers"
ALL_AUTHENTICATED: Final = "allAuthenticatedUsers"
_KINDS: Final = frozenset({"user", "serviceAccount", "group", "domain", "role"})
_PERSONS: Final = frozenset({"user", "serviceAccount"})


class Grantee(msgspec.Struct, frozen=True):
    """One entry of a list of grantees: a kind and whom it names; `name` is empty for everybody of a kind."""

    kind: str
    name: str = ""


def parse_grantee(text: str) -> Grantee:
    """A grantee from its text; raises ValueError where it is none."""
    if text in (ALL_USERS, ALL_AUTHENTICATED):
        return Grantee(text)
    kind, colon, name = text.partition(":")
    name = name.strip()
    if not colon or kind not in _KINDS or not name:
        wanted = ", ".join(f"{kind}:" for kind in sorted(_KINDS))
        raise ValueError(f"`{text}` is no grantee: {wanted} and a name, {ALL_USERS} or {ALL_AUTHENTICATED}")
    return Grantee(kind, name if kind == "role" else name.casefold() if kind == "domain" else _address(name))


class Members:
    """Principals as members.

    `template` makes the member of a user of `provider`; users of another provider have `<idp>~<subject>` as their
    subject, unless the template tells providers apart itself, so that two of them never make one member.
    """

    def __init__(self, template: str, provider: str) -> None:
        self._template = template
        self._provider = provider

    def member(self, principal: Principal) -> str:
        """`user:alice@example.com`; empty for whoever is no user."""
        if principal.type != "user":
            return ""
        idp, _, subject = principal.name.partition("~")
        if idp != self._provider and "{idp}" not in self._template:
            subject = principal.name
        # in one pass: a subject may spell a field
        return TEMPLATE_FIELD.sub(lambda field: subject if field[1] == "subject" else idp, self._template)

    def among(self, principal: Principal, grantees: tuple[Grantee, ...], facts: Facts) -> bool:
        """Whether a principal is one of some grantees."""
        if not grantees:
            return False
        kind, _, name = self.member(principal).partition(":")
        address = _address(name)
        return any(self._is(principal, grantee, (kind, address), facts) for grantee in grantees)

    def _is(self, principal: Principal, grantee: Grantee, member: tuple[str, str], facts: Facts) -> bool:
        if grantee.kind == ALL_USERS:
            return True
        if grantee.kind == ALL_AUTHENTICATED:
            return principal.type != "anonymous"
        if grantee.kind == "role":
            return facts.can_assume(principal, grantee.name)
        if grantee.kind == "group":
            return any(_address(group.removeprefix("group:")) == grantee.name for group in principal.groups)
        if grantee.kind == "domain":
            return member[0] in _PERSONS and member[1].partition("@")[2].casefold() == grantee.name
        return member == (grantee.kind, grantee.name)


def _address(text: str) -> str:
    """An address whose host is in the one case that is compared."""
    local, at, host = text.partition("@")
    return f"{local}{at}{host.casefold()}"
