"""Names by which policies know principals. No two users of any providers share a name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pdp.errors import InvalidArgument
from pdp.model.checks import Principal

_QUALIFIED: Final = re.compile(r"[a-z0-9-]+~")
"""Start of a name that looks like the name of another provider's user."""
MAX_CLAIMS: Final = 10_000
MAX_CLAIM_TEXT: Final = 1 << 20
"""Roles and groups that a request may state of one principal, and their characters. Each decision reads all of them."""


def bound_claims(*claims: Sequence[str]) -> None:
    """Raise InvalidArgument for a principal with too many roles and groups."""
    if sum(map(len, claims)) > MAX_CLAIMS:
        raise InvalidArgument(f"a principal has more than {MAX_CLAIMS} roles and groups")
    if sum([len(claim) for some in claims for claim in some]) > MAX_CLAIM_TEXT:
        raise InvalidArgument(f"the roles and groups of a principal have more than {MAX_CLAIM_TEXT} characters")


def qualify(idp: str, name: str, provider: str) -> str:
    """Return the name of a user or group of `idp`, as policies written for `provider` know the name.

    The name stays bare for `provider`, unless it begins like `<idp>~`: then another provider's user could have that
    name. Ids of providers hold no `~`, so different names stay different.
    """
    return name if idp == provider and not is_qualified(name) else f"{idp}~{name}"


def is_qualified(name: str) -> bool:
    """Tell whether a name begins like `<idp>~`, as the name of another provider's user does."""
    return _QUALIFIED.match(name) is not None


def policy_name(principal: Principal, provider: str) -> str:
    """Return the name of a user as policies know it; an empty text for roles and for the anonymous principal."""
    if principal.type != "user":
        return ""
    idp, _, subject = principal.name.partition("~")
    return qualify(idp, subject, provider)
