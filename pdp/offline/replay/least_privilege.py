"""Least privilege: grants and rules that recorded accesses need. Proposes; a replay proves.

A record names the one grant or rule that determined a permit. So a proposal keeps those, narrowed to the privileges and
objects of their use, and the memberships that lead to them. All else goes, until a replay shows a loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from pdp.engines.grants.effective_access import grant_reason
from pdp.engines.grants.engine import conveyed, grant_for
from pdp.errors import InvalidReference
from pdp.facts.objects import BIT, MEMBERSHIP, Change, Grant, GrantAdded, ObjectKey, key_of
from pdp.facts.snapshot import Facts
from pdp.model.question import NAMED_TYPES, Principal, Resource
from pdp.model.references import parse_principal, parse_resource

_MOST_OBJECTS: Final = 100
"""Objects below a grant up to which one grant for each object replaces the grant."""
_MOST_WEIGHED: Final = 2_000
"""Objects for which conveyed rights are counted."""


class GrantUse(NamedTuple):
    """Permits with the same determining reason: the subject, its action and object."""

    by: str
    subject: str
    action: str
    resource: str


class GrantProposal(msgspec.Struct, frozen=True):
    """Fewer grants. `narrowed` are grants that weaker grants replace."""

    facts: Facts
    dropped: int
    narrowed: int
    kept: int


class GrantNeeds:
    """Grants that recorded permits need. `protected` principals changed grants or objects, and keep all of theirs."""

    def __init__(self, facts: Facts, uses: Iterable[GrantUse], protected: Collection[str] = ()) -> None:
        self._facts = facts
        self._grants = sorted(facts.grants())
        self._bare = _with_grants(facts, ()).with_projects(facts.projects)
        self._members: dict[str, list[Grant]] = defaultdict(list)
        for grant in self._grants:
            if _is_membership(grant):
                self._members[grant.principal].append(grant)
        by_reason = {grant_reason(grant.object, grant.privilege, grant.principal): grant for grant in self._grants}
        self._uses: dict[Grant, set[tuple[str, str]]] = defaultdict(set)
        self._kept: set[Grant] = set()
        for use in uses:
            used = by_reason.get(use.by)
            if used is not None:
                self._uses[used].add((use.action, use.resource))
                self._kept.update(self._paths(use.subject, used.principal))
        for principal in protected:
            self.restore(principal)

    def restore(self, principal: str) -> bool:
        """Keep all grants that a principal has, itself and by its roles; tell whether that is more than before."""
        before = len(self._kept)
        holders = {principal, *self._roles_of(principal)}
        self._kept.update(grant for grant in self._grants if grant.principal in holders)
        return len(self._kept) > before

    def restore_all(self) -> None:
        """Keep all grants."""
        self._kept.update(self._grants)

    def proposal(self) -> GrantProposal:
        """Return the grants that are needed, narrowed where that is possible."""
        needed: set[Grant] = set(self._kept)
        narrowed = 0
        for grant, uses in self._uses.items():
            if grant not in self._kept:
                smaller = self._narrowed(grant, uses)
                narrowed += smaller != {grant}
                needed |= smaller
        used = len(self._kept | set(self._uses))
        facts = _with_grants(self._facts, sorted(needed))
        return GrantProposal(facts, len(self._grants) - used, narrowed, used - narrowed)

    def rights(self, facts: Facts, seen: Iterable[str]) -> int:
        """Return the number of pairs of privilege and seen object that the grants of some facts convey."""
        keys = [key for text in seen if (key := _key(text)) is not None][:_MOST_WEIGHED]
        above = {key: {key, *self._facts.ancestors(key)} for key in keys}
        return sum(
            conveyed(self._bare, grant, (key for key in keys if grant.object in above[key]))
            for grant in facts.grants()
            if not _is_membership(grant)
        )

    def _narrowed(self, grant: Grant, uses: Collection[tuple[str, str]]) -> set[Grant]:
        """Return the weakest grants for some uses of a grant; the grant itself if these are many or unknown."""
        found: set[Grant] = set()
        grantee = _principal(grant.principal)
        for action, text in uses:
            resource = _resource(text)
            smaller = grant_for(self._bare, grantee, action, resource) if grantee and resource else None
            if smaller is None or grant.id:
                return {grant}
            found.add(smaller)
        if len(found) > _MOST_OBJECTS:
            return {grant}
        # one grant of the old kind is no worse than itself on the same object
        return (
            {grant}
            if any(each.object == grant.object and each.privilege == grant.privilege for each in found)
            else found
        )

    def _roles_of(self, principal: str) -> set[str]:
        """Return all roles that a principal has by memberships."""
        roles: set[str] = set()
        left = [principal]
        while left:
            for grant in self._members.get(left.pop(), ()):
                role = f"role:{grant.object[1][-1]}"
                if role not in roles:
                    roles.add(role)
                    left.append(role)
        return roles

    def _paths(self, subject: str, role: str) -> set[Grant]:
        """Return the memberships on the ways from a subject to a role."""
        holders = {subject, *self._roles_of(subject)}
        return {
            grant
            for holder in holders
            for grant in self._members.get(holder, ())
            if role in {(found := f"role:{grant.object[1][-1]}"), *self._roles_of(found)}
        }


def unused_rules(rules: Mapping[str, str], reasons: Iterable[str]) -> set[str]:
    """Return the rules that no reason names."""
    return set(rules) - {reason.removeprefix("cel:") for reason in reasons if reason.startswith("cel:")}


def split_rules(rules: Mapping[str, str]) -> dict[str, str]:
    """Return rules in which each alternative of a rule is a rule of its own: `id` becomes `id-1`, `id-2`, ..."""
    split: dict[str, str] = {}
    for id, text in rules.items():
        parts = alternatives(text)
        names = [f"{id}-{number}" for number in range(1, len(parts) + 1)]
        if len(parts) == 1 or any(name in rules for name in names):
            split[id] = text
        else:
            split.update(zip(names, parts, strict=True))
    return split


def alternatives(text: str) -> Sequence[str]:
    """Return the parts of a CEL expression between `||` outside of brackets and texts; the expression if in doubt."""
    parts, start, depth, at = [], 0, 0, 0
    while at < len(text):
        sign = text[at]
        if sign in "'\"":
            end = _end_of_text(text, at)
            if end < 0:
                return [text]
            at = end
            continue
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and (sign == "?" or text.startswith("//", at)):
            return [text]
        if depth == 0 and text.startswith("||", at):
            parts.append(text[start:at].strip())
            at += 2
            start = at
            continue
        at += 1
    return [*parts, text[start:].strip()] if parts and depth == 0 else [text]


def _end_of_text(text: str, at: int) -> int:
    """Return the position behind a text of one line; -1 for any other, whose rules are different."""
    quote = text[at]
    if text.startswith(quote * 3, at) or (at and text[at - 1] in "rRbB"):
        return -1
    end = at + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" else 1
    return end + 1 if end < len(text) else -1


def _with_grants(facts: Facts, grants: Iterable[Grant]) -> Facts:
    """Return the facts with other grants."""
    changes: Iterable[Change] = (change for change in facts.as_changes() if not isinstance(change, GrantAdded))
    return Facts.from_changes(facts.epoch, facts.sequence, chain(changes, map(GrantAdded, grants)))


def _is_membership(grant: Grant) -> bool:
    return grant.object[0] == "role" and bool(BIT[grant.privilege] & MEMBERSHIP)


def _principal(id: str) -> Principal | None:
    try:
        named = parse_principal(id)
    except InvalidReference:
        return None
    return Principal(named.type, named.name)


def _resource(text: str) -> Resource | None:
    try:
        return parse_resource(text)
    except InvalidReference:
        return None


def _key(text: str) -> ObjectKey | None:
    resource = _resource(text)
    return None if resource is None or resource.type in NAMED_TYPES | {"table_or_view", "content"} else key_of(resource)
