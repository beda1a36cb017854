"""World file from tuples of Lakekeeper's model: objects, grants, ownership, managed access and roles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from pdp.engines.grants.model import STORED
from pdp.offline.migration.fga_objects import SERVERS, TYPES, UNLISTED, UP, FgaObjects, FgaTuple, is_edge, type_of
from pdp.offline.migration.report import Migration, accepting
from pdp.store.world import WorldError, read_grant, read_object

_BOOKKEEPING: Final = frozenset({"model_version", "auth_model_id"})
_VERSIONS: Final = "tuples of the model's version"
SPELLINGS: Final = "spellings"
WIDENINGS: Final = frozenset({SERVERS, UNLISTED, SPELLINGS})
"""Names of widenings of the tuples. A relation with a wider rule is another name."""
_MEMBERS: Final = "#assignee"
_USER: Final = re.compile(r"[a-z0-9-]+~.+", re.DOTALL)
_EVERYBODY: Final = "every user or role: nothing is granted to everybody here, grant to a role or write a rule in CEL"


_OTHER_PROVIDER: Final = re.compile(r"(?![a-z0-9-]+~.).*~.*|.*[\x00-\x1f\x7f-\x9f\u2028\u2029].*", re.DOTALL)


def _is_unknown(user: str) -> bool:
    """Tell whether a user has a provider with signs of no provider here, or control characters."""
    return bool(_OTHER_PROVIDER.fullmatch(unquote(user.removeprefix("user:"))))


class FgaWorld:
    """Entries of a world file, read from tuples, with a report on every tuple.

    No entry allows more than the tuples do, but for the WIDENINGS in `migration.accepted`.
    """

    def __init__(self, migration: Migration, tuples: Sequence[FgaTuple], names: Mapping[str, Any], idp: str) -> None:
        self._migration = migration
        self._idp = idp
        self._spellings = self._spellings_of(tuples)
        self._done: Counter[str] = Counter()
        self._managed: dict[str, set[str]] = {}
        self._foreign_ids = 0
        self._without_place: list[FgaTuple] = []
        self.objects = FgaObjects(tuples, names, migration.accepted)
        self.grants: list[dict[str, str]] = []
        for one in tuples:
            self._read(one)
        self.entries = self._entries()
        self._report()

    def data(self) -> dict[str, Any]:
        """Return the world as JSON values."""
        return {"objects": self.entries, "grants": self.grants}

    def warehouses(self) -> dict[str, Any]:
        """Return the section `warehouses` of the settings."""
        return {
            entry["object"].removeprefix("warehouse:"): {"project": entry["parent"].removeprefix("project:")}
            for entry in self.entries
            if entry["object"].startswith("warehouse:") and "parent" in entry
        }

    def principal(self, user: str) -> str | None:
        """Return the principal of a user or of the members of a role; None for any other.

        Of several spellings of one user, only Lakekeeper's own has a principal: OpenFGA tells them apart.
        """
        if _is_user(user):
            if _is_unknown(user):
                return None
            principal = self._user(user)
            known = self._spellings.get(principal, frozenset())
            return principal if known <= {user} or user == self._kept(known) else None
        if user.startswith("role:") and user.endswith(_MEMBERS):
            return self.objects.reference(user.removesuffix(_MEMBERS))
        return None

    def _user(self, user: str) -> str:
        id = unquote(user.removeprefix("user:"))
        return f"user:{id}" if _USER.fullmatch(id) else f"user:{self._idp}~{id}"

    def _spellings_of(self, tuples: Sequence[FgaTuple]) -> Mapping[str, frozenset[str]]:
        """Return the spellings of each user of some tuples; none if all may become one."""
        found: dict[str, set[str]] = {}
        if SPELLINGS not in self._migration.accepted:
            for user in {one.user for one in tuples if _is_user(one.user) and not _is_unknown(one.user)}:
                found.setdefault(self._user(user), set()).add(user)
        return {principal: frozenset(users) for principal, users in found.items()}

    def _kept(self, users: frozenset[str]) -> str | None:
        """Return Lakekeeper's spelling, with `<idp>~` and escapes; None for no such spelling, or several."""
        own = [user for user in users if user == f"user:{quote(self._user(user).removeprefix('user:'), safe='~')}"]
        return own[0] if len(own) == 1 else None

    def _read(self, one: FgaTuple) -> None:
        kind = TYPES.get(type_of(one.object))
        if is_bookkeeping(one):
            self._done[_VERSIONS] += 1
        elif one.relation == "managed_access" and kind in ("warehouse", "namespace"):
            # Managed access takes rights away, so a condition that may not hold counts as true.
            self._managed.setdefault(one.object, set()).add(f"{one.user} with `{one.condition}`".split(" with ``")[0])
        elif one.condition:
            self._left(one, f"the condition `{one.condition}` has no counterpart")
        elif is_edge(one):
            self._done["edges of the tree"] += 1
        elif kind is None:
            self._left(one, f"no type `{type_of(one.object)}` is known")
        elif one.relation in STORED[kind]:
            self._read_grant(one)
        else:
            self._left(one, f"`{one.relation}` is no privilege that is granted on a {kind}")

    def _read_grant(self, one: FgaTuple) -> None:
        reference, principal = self.objects.reference(one.object), self.principal(one.user)
        if reference is None:
            self._left(one, f"the object has no place: {self.problem(one.object)}")
            self._without_place.append(one)
            return
        if principal is None:
            self._left(one, self._reason_against(one.user))
            return
        grant = {"principal": principal, "privilege": one.relation, "object": reference}
        try:
            read_grant(grant, ())
        except WorldError as error:
            self._left(one, str(error))
            return
        self._foreign_ids += principal.startswith("user:") and not _USER.fullmatch(unquote(one.user[len("user:") :]))
        self._done[f"grants of `{one.relation}` on a {reference.partition(':')[0]}"] += 1
        self.grants.append(grant)

    def problem(self, object: str) -> str:
        """Return the reason why an object has no reference, with the widening to place the object."""
        message = self.objects.problem(object)
        if type_of(object) == "server":
            return f"{message}; {accepting(SERVERS)}"
        return f"{message}; {accepting(UNLISTED)}" if object in self.objects.unlisted else message

    def _reason_against(self, user: str) -> str:
        """Return the reason why a user has no principal."""
        if user.endswith(":*"):
            return _EVERYBODY
        if _is_user(user) and _is_unknown(user):
            return "its provider has other signs than `[a-z0-9-]`, its subject is empty, or it has control characters"
        if _is_user(user):
            others = ", ".join(f"`{one}`" for one in sorted(self._spellings[self._user(user)] - {user}))
            return f"it would be one user with {others}: {accepting(SPELLINGS)}"
        if user.startswith("role:") and user.endswith(_MEMBERS):
            role = user.removesuffix(_MEMBERS)
            return f"the role has no place: {self.problem(role)}"
        return f"`{user}` is neither a user nor a role"

    def _entries(self) -> list[dict[str, Any]]:
        entries = []
        for object in self.objects.placed:
            reference = self.objects.reference(object)
            if reference is None:
                self._migration.add("left", "", f"`{object}`", f"has no place: {self.problem(object)}")
                continue
            entry: dict[str, Any] = {"object": reference}
            parent = self.objects.parent(object)
            above = self.objects.reference(parent) if parent else None
            if above and above != "server" and reference.partition(":")[0] in ("warehouse", "role", "tag"):
                entry["parent"] = above
            if object in self._managed:
                entry["managedAccess"] = True
            id = self.objects.stable_id(object)
            if id:
                entry["id"] = id
            try:
                read_object(entry, ())
            except WorldError as error:
                self._migration.add("left", "", f"`{object}`", str(error))
            else:
                entries.append(entry)
        return entries

    def _report(self) -> None:
        self._report_unplaced()
        for what, count in sorted(self._done.items()):
            if what == _VERSIONS:
                self._migration.add("ignored", "", f"{what}: {count}", "no authorization")
            else:
                self._migration.add("done", "", f"{what}: {count}")
        for object, users in self._managed.items():
            if self.objects.reference(object) is None:
                self._migration.add("left", "", f"managed access of `{object}`", self.problem(object))
            elif users != {"user:*", "role:*"}:
                message = f"is set for {', '.join(sorted(users))} only: managed access binds users and roles here"
                self._migration.add("note", "", f"managed access of `{object}`", message)
            else:
                self._migration.add("done", "", f"managed access of `{object}`")
        for object in self.objects.placed:
            if self.objects.reference(object) is not None and not self.objects.is_listed(object):
                message = "its parent does not list it: here, who sees the object sees that the parent exists"
                self._migration.add("note", "", f"`{object}`", message)
        unnamed = list(self.objects.unnamed())
        if unnamed:
            message = f"`{unnamed[0]}` and {len(unnamed) - 1} more keep ids as names: give their names by `--names`"
            self._migration.add("left", "", "names of objects", message)
        if self._foreign_ids:
            message = f"{self._foreign_ids} grants to users without `<idp>~`: taken as users of `{self._idp}`"
            self._migration.add("note", "", "ids of users", message)

    def _report_unplaced(self) -> None:
        told = {one.object for one in self._without_place}
        for object in self.objects.unplaced():
            if object not in told and type_of(object) != "server":
                message = f"no tuple `{UP[type_of(object)]}` gives its parent, so it is in no world"
                self._migration.add("left", "", f"`{object}`", message)

    def _left(self, one: FgaTuple, message: str) -> None:
        self._migration.add("left", one.place, f"`{one.user}` `{one.relation}` `{one.object}`", message)


def is_bookkeeping(one: FgaTuple) -> bool:
    """Tell whether a tuple is about the version of the model alone."""
    return not {type_of(one.object), type_of(one.user)}.isdisjoint(_BOOKKEEPING)


def _is_user(user: str) -> bool:
    return user.startswith("user:") and not user.endswith(":*") and "#" not in user
