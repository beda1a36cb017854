"""IAM members: whom a policy's grantee names, and whether a principal is one of them. Knows no policy.

Follows BigQuery's members as bqemulator's ADR 0018 matches them: the local part of an address and the kind count
letter by letter, the host in any case. `role:` is ours: whoever may assume the role. Where whoever is named sees more,
nothing is read generously: only ASCII has cases, and what another provider says of its users is not what ours says.
Where something is hidden from whoever is named, all that could be meant counts.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from pdp.config.settings import TEMPLATE_FIELD
from pdp.facts.snapshot import Facts
from pdp.model.checks import Principal

ALL_USERS: Final = "allUsers"
ALL_AUTHENTICATED: Final = "allAuthenticatedUsers"
_KINDS: Final = frozenset({"user", "serviceAccount", "group", "domain", "role"})
_PERSONS: Final = frozenset({"user", "serviceAccount"})
_QUALIFIED: Final = re.compile(r"[a-z0-9-]+~")
"""How a name begins that could be another provider's."""


class Grantee(msgspec.Struct, frozen=True):
    """One entry of a list of grantees: a kind and whom it names; `name` is empty for everybody of a kind."""

    kind: str
    name: str = ""


def parse_grantee(text: str) -> Grantee:
    """A grantee from its text; raises ValueError where it is none."""
    text = text.strip()
    if text in (ALL_USERS, ALL_AUTHENTICATED):
        return Grantee(text)
    kind, colon, name = text.partition(":")
    name = name.strip()
    if not colon or kind not in _KINDS or not name:
        wanted = ", ".join(f"{kind}:" for kind in sorted(_KINDS))
        raise ValueError(f"`{text}` is no grantee: {wanted} and a name, {ALL_USERS} or {ALL_AUTHENTICATED}")
    return Grantee(kind, name if kind == "role" else _host(name) if kind == "domain" else _address(name))


class Members:
    """Principals as members.

    `template` makes the member of a user of `provider`; users of another provider have `<idp>~<subject>` as their
    subject, unless the template tells providers apart itself, and so have subjects that only look like that: two users
    never make one member. Groups are told apart likewise, and an address that another provider vouches for is of no
    domain.
    """

    def __init__(self, template: str, provider: str) -> None:
        self._template = template
        self._provider = provider
        host = template.partition("@")[2]
        self._gives_hosts = bool(host) and "{subject}" not in host

    def member(self, principal: Principal) -> str:
        """`user:alice@example.com`; empty for whoever is no user."""
        if principal.type != "user":
            return ""
        idp, _, subject = principal.name.partition("~")
        if "{idp}" not in self._template:
            subject = self._told_apart(idp, subject)
        # in one pass: a subject may spell a field
        return TEMPLATE_FIELD.sub(lambda field: subject if field[1] == "subject" else idp, self._template)

    def matches(self, principal: Principal, grantees: tuple[Grantee, ...], facts: Facts) -> bool:
        """Whether a principal is one of some grantees."""
        if not grantees:
            return False
        kind, _, name = self.member(principal).partition(":")
        return any(self._is(principal, grantee, (kind, _address(name)), facts) for grantee in grantees)

    def may_match(self, principal: Principal, grantees: tuple[Grantee, ...], facts: Facts) -> bool:
        """Whether a principal is, or could be, one of those from whom something is hidden.

        Groups and domains count whoever vouches for them; of whom nobody knows what it carries, it may be any group or
        role.
        """
        if self.matches(principal, grantees, facts):
            return True
        groups = {_address(group.removeprefix("group:")) for group in principal.groups}
        host = _host(principal.name.rpartition("@")[2]) if principal.type == "user" and "@" in principal.name else ""
        return any(
            grantee.kind in ("group", "role")
            if principal.bare and grantee.kind != "domain"
            else (grantee.kind == "group" and grantee.name in groups)
            or (grantee.kind == "domain" and grantee.name == host)
            for grantee in grantees
        )

    def _is(self, principal: Principal, grantee: Grantee, member: tuple[str, str], facts: Facts) -> bool:
        if grantee.kind == ALL_USERS:
            return True
        if grantee.kind == ALL_AUTHENTICATED:
            return principal.type != "anonymous"
        if grantee.kind == "role":
            return facts.can_assume(principal, grantee.name)
        idp = principal.name.partition("~")[0] if principal.type == "user" else self._provider
        if grantee.kind == "group":
            groups = (self._told_apart(idp, group.removeprefix("group:")) for group in principal.groups)
            return grantee.name in map(_address, groups)
        if grantee.kind == "domain":
            vouched = idp == self._provider or self._gives_hosts
            return vouched and member[0] in _PERSONS and member[1].partition("@")[2] == grantee.name
        return member == (grantee.kind, grantee.name)

    def _told_apart(self, idp: str, name: str) -> str:
        return name if idp == self._provider and not _QUALIFIED.match(name) else f"{idp}~{name}"


def _address(text: str) -> str:
    """An address whose host is in the one case that is compared."""
    local, at, host = text.partition("@")
    return f"{local}{at}{_host(host)}"


def _host(text: str) -> str:
    """A host in one case; signs beyond ASCII stay: folding them makes one host of two."""
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")
