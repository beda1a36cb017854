"""IAM members: the principals whom a policy's grantee names. Must not know policies.

Follows BigQuery's members (https://cloud.google.com/iam/docs/principal-identifiers) as bqemulator's ADR 0018 matches
them: the kind and the local part of an address count letter by letter, the host in any case. `role:` is an addition:
every principal who may assume the role. Identities in headers are read as in the same record.

Two ways of matching. `matches` is strict, for lists whose members see more: only ASCII letters fold, and a claim of
another identity provider is no claim of ours. `may_match` is generous, for lists whose members see less: every possible
meaning counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from pdp.config.policies import TEMPLATE_FIELD
from pdp.engines.row_access.trino import MARK, CallerValues, bind_caller
from pdp.facts.snapshot import Facts
from pdp.model.question import HeaderIdentity, Principal, unshown_user
from pdp.model.references import is_qualified, qualify

if TYPE_CHECKING:  # a rewriting process reads no settings
    from pdp.config.settings import Settings

ALL_USERS: Final = "allUsers"
ALL_AUTHENTICATED: Final = "allAuthenticatedUsers"
ANONYMOUS: Final = "anonymous"
"""Name for SESSION_USER() without a caller."""
_KINDS: Final = frozenset({"user", "serviceAccount", "group", "domain", "role"})
_PERSONS: Final = frozenset({"user", "serviceAccount"})
_ADDRESSED: Final = _PERSONS | {"domain"}
"""Kinds of grantees with an address."""


_ROLES: Final = frozenset({"roles", "member_of"})
"""Unknown evidence that leaves roles unknown."""
_KIND_OF: Final = {"groups": "group", "member_of": "role"}
"""Unknown evidence -> the kind of grantees in doubt."""


class Grantee(msgspec.Struct, frozen=True):
    """Entry of a list of grantees: a kind and a name. The name is empty for everybody of a kind."""

    kind: str
    name: str = ""

    @property
    def text(self) -> str:
        """Return the entry as a policy writes it."""
        return f"{self.kind}:{self.name}" if self.name else self.kind


def parse_grantee(text: str) -> Grantee:
    """Return the grantee of a text; raise ValueError if the text names no grantee."""
    text = text.strip()
    if text in (ALL_USERS, ALL_AUTHENTICATED):
        return Grantee(text)
    kind, colon, name = text.partition(":")
    name = name.strip()
    if not colon or kind not in _KINDS or not name:
        wanted = ", ".join(f"{kind}:" for kind in sorted(_KINDS))
        raise ValueError(f"`{text}` is no grantee: {wanted} and a name, {ALL_USERS} or {ALL_AUTHENTICATED}")
    return Grantee(kind, name if kind == "role" else _fold_host(name) if kind == "domain" else _fold_address(name))


_NEXT_MEMBER: Final = re.compile(rf"[,;\s]\s*(?:{'|'.join(sorted(_KINDS))}):")
_HOST: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")


def refuse_wrong_form(grantee: Grantee) -> None:
    """Raise ValueError for a name that nobody has: with another kind before it, of several members, of no host."""
    kind, colon, name = grantee.name.partition(":")
    if colon and kind in _KINDS:
        wanted = " or ".join(f"`{one}:{name}`" for one in dict.fromkeys((kind, grantee.kind)))
        raise ValueError(f"`{grantee.text}` has two kinds: write {wanted}")
    if _NEXT_MEMBER.search(grantee.name):
        raise ValueError(f"`{grantee.text}` has several members: write each on its own")
    if grantee.kind == "domain" and not _HOST.fullmatch(grantee.name):
        raise ValueError(f"`{grantee.text}` is no domain: write {_hosts_in(grantee.name)}")


def _hosts_in(text: str) -> str:
    """Return the domains that a text without a domain means."""
    parts = [part for part in re.split(r"[\s,;]+", text) if part]
    if len(parts) == 1 or not all(_HOST.fullmatch(part) and "." in part for part in parts):
        # a blank in the place of a dot
        host = re.sub(r"^\w+://", "", text).rpartition("@")[2]
        parts = _HOST.findall(re.sub(r"\s*[.\s]\s*", ".", host))[:1]
    return ", ".join(f"`domain:{part}`" for part in parts or ["example.com"])


class Members:
    """Mapping from principals to members. Two users never become the same member.

    `template` builds the member of a user of `provider`. A user of another provider gets `<idp>~<subject>` as subject,
    unless the template has a field for the provider. So does a subject of our provider that only looks like
    `<idp>~<subject>`. Groups are qualified alike. An address from another provider belongs to no domain, because
    nobody here knows whether that provider checks addresses.

    With a `claim`, this attribute of a user takes the place of the subject, and a user without the attribute is no
    member. A `user:` with an address like a pattern of `service_accounts` is a `serviceAccount:`.
    `trino` is the provider of users of Trino, or else `provider`. `stored_roles`: permits see roles of the store.
    """

    def __init__(
        self, template: str, provider: str, claim: str = "", service_accounts: Sequence[str] = (), trino: str = "",
        *, stored_roles: bool = False,
    ) -> None:  # fmt: skip
        self._template = template
        self._provider = provider
        self._trino = trino or provider
        self._stored_roles = stored_roles
        self._claim = claim
        self._service_accounts = tuple(
            _fold_address(one) if "@" in one else _fold_host(one) for one in service_accounts
        )
        host = template.partition("@")[2]
        self._template_has_host = bool(host) and "{subject}" not in host

    def member(self, principal: Principal) -> str:
        """Return the member of a user, such as `user:alice@example.com`; an empty text for other principals."""
        if principal.type != "user":
            return ""
        idp, _, subject = principal.name.partition("~")
        if self._claim:
            subject = _attribute(principal, self._claim)
            if not subject:
                return ""
        if "{idp}" not in self._template:
            subject = qualify(idp, subject, self._provider)
        # in one pass: a subject may contain the text of a field
        member = TEMPLATE_FIELD.sub(lambda field: subject if field[1] == "subject" else idp, self._template)
        return self._with_kind(member) if self._service_accounts else member

    def principal_of(self, member: str) -> Principal | None:
        """Return the user behind a member, without a known token; None if the member does not tell the user."""
        if self._claim:
            return None
        kind, _, address = member.partition(":")
        for text in (member, f"user:{address}") if kind == "serviceAccount" else (member,):
            found = self._pattern.fullmatch(text)
            if found is None:
                continue
            subject = found["subject"]
            names = (f"{found.groupdict().get('idp') or self._provider}~{subject}", subject)
            users = (unshown_user(name) for name in names if is_qualified(name))
            user = next((user for user in users if self.member(user) == member), None)
            if user is not None:
                return user
        return None

    def stated_user(self, grantee: Grantee) -> tuple[str, str] | None:
        """Return the provider, if the template has one, and the subject of a person; None if no user is this member."""
        kind, is_service = grantee.kind, self._is_service(grantee.name)
        if kind == "user" and is_service:
            return None
        forms = [f"{kind}:{grantee.name}", *([f"user:{grantee.name}"] if is_service else [])]
        found = next((match for form in forms if (match := self._any_case.fullmatch(form))), None)
        return (found.groupdict().get("idp") or "", found["subject"]) if found else None

    @cached_property
    def _any_case(self) -> re.Pattern[str]:
        return re.compile(self._pattern.pattern, re.DOTALL | re.IGNORECASE)

    def _is_service(self, address: str) -> bool:
        folded = _fold_address(address)
        return any(fnmatchcase(folded, pattern) for pattern in self._service_accounts)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Pattern of the members of users. A field that stands twice has the same text twice."""
        pattern = re.escape(self._template)
        for field, text in (("subject", ".+"), ("idp", "[a-z0-9-]+")):
            mark = re.escape(f"{{{field}}}")
            pattern = pattern.replace(mark, f"(?P<{field}>{text})", 1).replace(mark, f"(?P={field})")
        return re.compile(pattern, re.DOTALL)

    def _with_kind(self, member: str) -> str:
        """Return a member with the kind that the address has."""
        kind, _, address = member.partition(":")
        is_service = kind == "user" and self._is_service(address)
        return f"serviceAccount:{address}" if is_service else member

    def session_user(self, principal: Principal) -> str:
        """Return the name for SESSION_USER(): a member without its kind; empty for other principals."""
        if principal.type == "anonymous":
            return ANONYMOUS
        return self.member(principal).partition(":")[2]

    def caller(self, principal: Principal, facts: Facts) -> CallerValues:
        """Return the values of a principal in filters and masks. A user of Trino has the name of the session there.

        A role has no name, and nobody knows its groups and claims.
        """
        name = self.session_user(principal)
        roles = self._roles(principal, facts)
        if principal.type == "anonymous":
            return CallerValues(name, name, principal.groups, roles, _claims(principal))
        if principal.type != "user":
            return CallerValues("", "", None, roles)
        idp, _, subject = principal.name.partition("~")
        groups = tuple(qualify(idp, group, self._trino) for group in principal.groups)
        known = groups if not principal.bare and "groups" not in principal.unknown else None
        return CallerValues(name, self._trino_user(idp, subject), known, roles, _claims(principal))

    def _trino_user(self, idp: str, subject: str) -> str:
        """Return the name of a user in a session of Trino. Two users never have the same name.

        No other provider has the prefix of Trino's, so Trino's user `oidc~alice` keeps the name.
        """
        own = idp == self._trino and subject.startswith(f"{idp}~")
        return subject if own else qualify(idp, subject, self._trino)

    def _roles(self, principal: Principal, facts: Facts) -> tuple[str, ...] | None:
        """Return the roles for permits of CEL; None for unknown roles."""
        if principal.bare or not _ROLES.isdisjoint(principal.unknown):
            return None
        own = (principal.name,) if principal.type == "role" else (*principal.roles, *principal.member_of)
        return tuple(dict.fromkeys((*own, *(facts.ordered_roles_of(principal) if self._stored_roles else ()))))

    def bind(self, text: str, principal: Principal, facts: Facts) -> str | None:
        """Return Trino's SQL with the values of a principal as literals; None if a value has no certain literal."""
        return bind_caller(text, self.caller(principal, facts)) if MARK in text else text

    def matches(self, principal: Principal, grantees: tuple[Grantee, ...], facts: Facts) -> bool:
        """Tell whether grantees certainly name a principal: for lists whose members see more."""
        if not grantees:
            return False
        kind, _, name = self.member(principal).partition(":")
        return any(self._is(principal, grantee, (kind, _fold_address(name)), facts) for grantee in grantees)

    def may_match(self, principal: Principal, grantees: tuple[Grantee, ...], facts: Facts) -> bool:
        """Tell whether grantees possibly name a principal: for lists whose members see less.

        Groups and domains count from every provider. A bare principal, whose groups and roles are unknown, may be in
        any group and have any role, and so may a principal with unknown evidence.
        """
        if self.matches(principal, grantees, facts) or self.is_in_doubt(principal, grantees):
            return True
        # Nobody knows the address of a user without the claim: any address is possible.
        is_nameless = bool(self._claim) and principal.type == "user" and not self.member(principal)
        if is_nameless and any(grantee.kind in _ADDRESSED for grantee in grantees):
            return True
        groups = {_fold_address(group.removeprefix("group:")) for group in principal.groups}
        has_host = principal.type == "user" and "@" in principal.name
        host = _fold_host(principal.name.rpartition("@")[2]) if has_host else ""
        return any(
            grantee.kind in ("group", "role")
            if principal.bare and grantee.kind != "domain"
            else (grantee.kind == "group" and grantee.name in groups)
            or (grantee.kind == "domain" and grantee.name == host)
            for grantee in grantees
        )

    def is_in_doubt(self, principal: Principal, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether unknown evidence could make the principal a grantee."""
        unknown = principal.unknown
        if not unknown:
            return False
        kinds = {_KIND_OF[name] for name in unknown if name in _KIND_OF}
        if self.is_unnamed(principal):
            kinds |= _ADDRESSED
        return any(grantee.kind in kinds for grantee in grantees)

    def is_unnamed(self, principal: Principal) -> bool:
        """Tell whether the name of a user is unknown: the attribute in place of the name is."""
        names = {"attributes", f"attributes.{self._claim}"}
        return bool(self._claim) and principal.type == "user" and not names.isdisjoint(principal.unknown)

    def _is(self, principal: Principal, grantee: Grantee, member: tuple[str, str], facts: Facts) -> bool:
        if grantee.kind == ALL_USERS:
            return True
        if grantee.kind == ALL_AUTHENTICATED:
            return principal.type != "anonymous"
        if grantee.kind == "role":
            return facts.can_assume(principal, grantee.name)
        idp = principal.name.partition("~")[0] if principal.type == "user" else self._provider
        if grantee.kind == "group":
            groups = (qualify(idp, group.removeprefix("group:"), self._provider) for group in principal.groups)
            return grantee.name in map(_fold_address, groups)
        if grantee.kind == "domain":
            # Our provider checks its addresses. A host from the template is the configuration's word.
            is_trusted = idp == self._provider or self._template_has_host
            return is_trusted and member[0] in _PERSONS and member[1].partition("@")[2] == grantee.name
        return member == (grantee.kind, grantee.name)


def configured_members(settings: Settings) -> Members:
    """Return the mapping of a configuration."""
    member = settings.row_access.member
    provider, trino = settings.identity.cel_provider, settings.trino.user_prefix.removesuffix("~")
    stored = settings.identity.cel_roles == "all"
    return Members(member.template, provider, member.claim or "", member.service_accounts, trino, stored_roles=stored)


def _attribute(principal: Principal, name: str) -> str:
    """Return an attribute of a principal; an empty text for a missing value and for other values than texts."""
    value = msgspec.json.decode(principal.attributes).get(name)
    return value if isinstance(value, str) else ""


def _claims(principal: Principal) -> dict[str, str]:
    """Return the known texts among the attributes of a principal."""
    if principal.attributes == "{}" or "attributes" in principal.unknown:
        return {}
    values: dict[str, object] = msgspec.json.decode(principal.attributes)
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, str) and f"attributes.{name}" not in principal.unknown
    }


def _fold_address(text: str) -> str:
    """Return an address with its host in lower case."""
    local, at, host = text.partition("@")
    return f"{local}{at}{_fold_host(host)}"


def _fold_host(text: str) -> str:
    """Return a host in lower case. Folds ASCII alone: folding more characters makes two hosts equal."""
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


CALLER_HEADER: Final = "x-bqemu-caller"
PROJECT_HEADER: Final = "x-goog-user-project"
GROUPS_HEADER: Final = "x-bqemu-groups"
HEADERS: Final = (CALLER_HEADER, PROJECT_HEADER, GROUPS_HEADER)
"""Headers, and keys of gRPC metadata, that state an identity."""
ANONYMOUS_MEMBER: Final = "user:anonymous@bqemulator.local"
_UNUSABLE: Final = re.compile(r"[\s,]")


class StatedMember(NamedTuple):
    """IAM member that headers state, with groups."""

    member: str
    groups: tuple[str, ...] = ()
    authenticated: bool = True


def stated_member(headers: Mapping[str, str]) -> StatedMember:
    """Return the member whom headers state. A value with a blank or comma inside is not usable: the next header counts.

    Names of headers count in any case.
    """
    folded = {name.lower(): value.strip() for name, value in headers.items()}
    groups = [group.strip().removeprefix("group:") for group in folded.get(GROUPS_HEADER, "").split(",")]
    named = tuple(group for group in groups if group)
    caller, project = folded.get(CALLER_HEADER, ""), folded.get(PROJECT_HEADER, "")
    if caller and not _UNUSABLE.search(caller):
        return StatedMember(caller, named)
    if project and not _UNUSABLE.search(project):
        return StatedMember(f"user:caller@{project}.iam.gserviceaccount.com", named)
    return StatedMember(ANONYMOUS_MEMBER, named, authenticated=False)


def development_identity(headers: Iterable[tuple[str, str]], members: Members) -> HeaderIdentity:
    """Return the principal whom headers state in a development profile; anonymous without headers."""
    given = list(headers)
    if len({name for name, _ in given}) < len(given):
        return HeaderIdentity(problem="a header with an identity is given twice")
    found = stated_member(dict(given))
    if not found.authenticated:
        return HeaderIdentity(Principal("anonymous", "", groups=found.groups))
    user = members.principal_of(found.member)
    if user is None:
        return HeaderIdentity(problem=f"the member `{found.member}` is no user of `row_access.member`")
    return HeaderIdentity(replace(user, bare=False, groups=found.groups, unknown=()))


def refused_identity(headers: Iterable[tuple[str, str]]) -> HeaderIdentity | None:
    """Return the refusal of an identity outside of development; None for the header of Google's clients alone."""
    if all(name == PROJECT_HEADER for name, _ in headers):
        return None
    return HeaderIdentity(
        problem=f"`{CALLER_HEADER}` and `{GROUPS_HEADER}` count in development alone, where every engine is `allow_all`"
    )
