"""Callers of the rewriter as IAM members, and their match with grantees. Must not know policies.

Members match as in every other place: `engines/row_access/members.py`. A caller comes from verified evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from msgspec.structs import replace

from pdp.engines.row_access.explain import RESTRICTIVE, explain_mask, explain_match
from pdp.engines.row_access.members import Grantee, Members
from pdp.engines.row_access.trino import CallerValues
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal
from pdp.model.references import is_qualified
from pdp.rewrite.binding import ROW
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.sql import quote_text

_ANONYMOUS_NAME: Final = "anonymous"
_PROVIDER: Final = "iam"
_MEMBERS: Final = Members("{subject}", _PROVIDER)
"""Members of callers whose whole name is an IAM member."""
_NO_FACTS: Final = Facts.empty()
_NO_CLAIMS: Final[Mapping[str, str]] = {}
_KINDS: Final = ("user:", "serviceAccount:", "group:", "domain:")


class CallerIdentity:
    """Caller by IAM member, with groups; those of a `bare` caller are unknown.

    `roles` are None if unknown: then a role counts where it hides, and nowhere else. `claims` are texts by name.

    A member such as `user:<idp>~alice@example.com` is a user of another identity provider, and of no domain for
    certain. So is an `unproven` one: nobody knows the provider.
    """

    def __init__(
        self, member: str, groups: Iterable[str] = (), *, authenticated: bool = True, bare: bool = False,
        unproven: bool = False, roles: tuple[str, ...] | None = None, claims: Mapping[str, str] = _NO_CLAIMS,
    ) -> None:  # fmt: skip
        self.member = member
        self._in_no_domain = unproven or is_qualified(member.partition(":")[2])
        self._bare = bare
        self.groups = tuple(groups)
        self.authenticated = authenticated
        self._roles, self._claims = roles, claims
        self.key: tuple[Any, ...] = (
            member, self.groups, authenticated, bare, unproven, roles, tuple(sorted(claims.items())),
        )  # fmt: skip
        """Key of what is known of the caller."""

    @cached_property
    def _principal(self) -> Principal:
        roles = self._roles or ()
        if not self.authenticated:
            return Principal("anonymous", "", groups=self.groups, member_of=roles)
        unknown = ("member_of",) if self._roles is None and not self._bare else ()
        name = f"{_PROVIDER}~{self.member}"
        return Principal("user", name, groups=self.groups, member_of=roles, bare=self._bare, unknown=unknown)

    @cached_property
    def session_user(self) -> str:
        """Return the name that SESSION_USER() gives: the member without its kind."""
        if not self.authenticated:
            return _ANONYMOUS_NAME
        kind = next((kind for kind in _KINDS if self.member.startswith(kind)), "")
        return self.member[len(kind) :]

    @cached_property
    def values(self) -> CallerValues:
        """Return the values of the caller in filters and masks."""
        name, groups = self.session_user, None if self._bare else self.groups
        return CallerValues(name, name, groups, self._roles, self._claims)

    def is_named(self, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether grantees certainly name the caller."""
        return _MEMBERS.matches(self._principal, self._proven(grantees), _NO_FACTS)

    def may_be_named(self, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether grantees possibly name the caller: for lists whose members see less."""
        return _MEMBERS.may_match(self._principal, grantees, _NO_FACTS)

    def is_in_doubt(self, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether unknown evidence could make the caller a grantee."""
        return _MEMBERS.is_in_doubt(self._principal, grantees)

    def explain_policy(self, grantees: tuple[Grantee, ...], *, restrictive: bool = False) -> tuple[bool, str]:
        """Return whether a policy counts for the caller, and the reason: a restrictive policy counts in doubt."""
        if not restrictive:
            return explain_match(self._principal, self._proven(grantees), _MEMBERS, _NO_FACTS)
        counts, why = explain_match(self._principal, grantees, _MEMBERS, _NO_FACTS, generous=True)
        return counts, f"{RESTRICTIVE}{why}"

    def explain_mask(self, grantees: tuple[Grantee, ...], exempt: tuple[Grantee, ...]) -> tuple[bool, str]:
        """Return whether a mask hides its column from the caller, and the reason."""
        return explain_mask(self._principal, grantees, self._proven(exempt), _MEMBERS, _NO_FACTS)

    def _proven(self, grantees: tuple[Grantee, ...]) -> tuple[Grantee, ...]:
        """Return the grantees that can name the caller for certain."""
        return tuple(one for one in grantees if one.kind != "domain") if self._in_no_domain else grantees


class PrincipalCaller(CallerIdentity):
    """Caller by principal of the service, under the service's own spelling of members.

    `member_of` has all roles, `roles` the roles for permits of CEL. A role has no name of its own: a filter with
    SESSION_USER() is refused for a role.
    """

    def __init__(self, principal: Principal, members: Members) -> None:
        super().__init__(members.member(principal), principal.groups, authenticated=principal.type != "anonymous")
        self._subject, self._members = principal, members
        self.key = (principal,)

    @cached_property
    def values(self) -> CallerValues:
        """Return the values of the principal in filters and masks."""
        return self._members.caller(replace(self._subject, member_of=()), _NO_FACTS)

    def is_named(self, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether grantees certainly name the caller."""
        return self._members.matches(self._subject, grantees, _NO_FACTS)

    def may_be_named(self, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether grantees possibly name the caller: for lists whose members see less."""
        return self._members.may_match(self._subject, grantees, _NO_FACTS)

    def is_in_doubt(self, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether unknown evidence could make the caller a grantee."""
        return self._members.is_in_doubt(self._subject, grantees)


def owner_identity(member: str, members: Members | None = None) -> CallerIdentity:
    """Return the owner of a view as a reader with unknown groups and roles: the user behind the member, if known."""
    if members is None:
        return CallerIdentity(member, bare=True)
    user = members.principal_of(member)
    return PrincipalCaller(user, members) if user else CallerIdentity(member, bare=True, unproven=True)


_LIST_FORMS: Final[Mapping[str, str]] = {
    "trino": "CAST(ARRAY[{}] AS array(varchar))", "duckdb": "CAST([{}] AS VARCHAR[])",
    "spark": "CAST(array({}) AS array<string>)", "bigquery": "ARRAY<STRING>[{}]",
}  # fmt: skip
"""Dialect -> a list of texts, typed, because it may be empty."""


def text_literal(value: str, dialect: str) -> str | None:
    """Return a text of a caller as a literal; None for an unknown text, or one without a certain literal."""
    try:
        return quote_text(value, dialect) if value and ROW not in value else None
    except RewriteRefused:
        return None


def list_literal(values: Iterable[str] | None, dialect: str) -> str | None:
    """Return a list of a caller as a literal; None for an unknown list, or one without a certain literal."""
    if values is None:
        return None
    texts = [text_literal(value, dialect) for value in values]
    return None if None in texts else _LIST_FORMS[dialect].format(", ".join(filter(None, texts)))
