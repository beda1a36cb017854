"""Identities in headers, as bqemulator's ADR 0018 reads them: for development alone, as anybody can write headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from pdp.engines.rowaccess.members import Members
from pdp.model.question import HeaderIdentity, Principal

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
    return HeaderIdentity(replace(user, bare=False, groups=found.groups))


def refused_identity(headers: Iterable[tuple[str, str]]) -> HeaderIdentity | None:
    """Return the refusal of an identity outside of development; None for the header of Google's clients alone."""
    if all(name == PROJECT_HEADER for name, _ in headers):
        return None
    return HeaderIdentity(
        problem=f"`{CALLER_HEADER}` and `{GROUPS_HEADER}` count in development alone, where every engine is `allow_all`"
    )
