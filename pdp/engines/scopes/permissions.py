"""Permission files in LakeQL's shape, compiled for all users, and LakeQL's two decision tables.

Turns a question of the engine to a user and a target. Otherwise knows no check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from pdp.engines.data_files import parse_data, path_in, place_of, read_text
from pdp.engines.engine import ABSTAIN, FAILED, PERMIT, EngineQuestion
from pdp.errors import Place, PolicyError
from pdp.model.question import Principal, Resource
from pdp.model.strict import sentence
from pdp.model.vocabulary import CREATE_ACTION, TABULAR_TYPES

INLINE: Final = "<inline>"
"""Name of entries without a file."""


class RuleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rule: tables of one schema of one catalog. LakeQL fails where a rule of the asked schema has no `tables`."""

    catalog: str
    schema: str
    tables: tuple[str, ...] | None = None


class SlotsBody(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"query": "Query", "mutation": "Mutation"}
):
    """Rules of an entry: `Query` for reads, `Mutation` for writes. LakeQL fails where an absent list is asked for."""

    query: tuple[RuleBody, ...] | None = None
    mutation: tuple[RuleBody, ...] | None = None


class EntryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Entry of one user. `useSystemUser` says how LakeQL connects to Trino, and decides nothing."""

    name: str
    permissions: SlotsBody = SlotsBody()
    use_system_user: bool | None = None


class NamedEntry(msgspec.Struct, frozen=True):
    """Entry with the file, the text of the file and the position in the list, for places of findings."""

    entry: EntryBody
    file: str = INLINE
    text: str = ""
    number: int = 0

    def place(self, *where: str | int) -> Place:
        """Return the place of a value of the entry, or of the nearest one around the value."""
        return place_of(self.file, self.text, (self.number, *where))


def read_entries(paths: Sequence[Path]) -> Iterator[NamedEntry]:
    """Yield the entries of files in order; raise PolicyError for the first invalid file."""
    for path in paths:
        text = read_text(path)
        yield from parse_entries(parse_data(text, path), str(path), text)


def parse_entries(data: Any, file: str = INLINE, text: str = "") -> Sequence[NamedEntry]:
    """Return the entries of parsed data; raise PolicyError unless the data is a list of entries."""
    try:
        entries = msgspec.convert([] if data is None else data, tuple[EntryBody, ...])
    except msgspec.ValidationError as error:
        raise PolicyError(sentence(str(error)), place_of(file, text, path_in(str(error)))) from None
    return [NamedEntry(entry, file, text, number) for number, entry in enumerate(entries)]


Scope: TypeAlias = Literal["readPermission", "writePermission"]
ANY_TABLE: Final = "*"
"""Name that stands for all tables as the first of `tables`, and nowhere else."""
NO_ENTRY: Final = "(no entry)"
"""Reason of LakeQL's permit to read for a user without an entry."""


class SchemaTables(NamedTuple):
    """Tables of one schema that a slot permits. `others` is the effect on all other tables.

    FAILED: a rule without `tables` comes before any rule that permits the table.
    """

    names: frozenset[str]
    others: int

    def effect(self, table: str | None) -> int:
        """Return the effect on a table; None for a scope that names no table."""
        return PERMIT if table in self.names else self.others


NO_TABLES: Final = SchemaTables(frozenset(), ABSTAIN)
Slot: TypeAlias = Mapping[tuple[str, str | None], SchemaTables]
"""Permitted tables by catalog and schema."""


_EMPTY: Final[Slot] = MappingProxyType({})


class Access(NamedTuple):
    """Access of one user under one scope.

    `fixed` is the effect on every table. None: `slot` decides. `entry` is the name in reasons.
    """

    entry: str
    fixed: int | None
    slot: Slot = _EMPTY


_DENIED: Final = Access("", ABSTAIN)


class Permissions:
    """Permissions of entries. Of several entries with one name, only the first counts.

    `strict` turns both default permits of reads into denials.
    """

    def __init__(self, entries: Iterable[EntryBody], *, strict: bool) -> None:
        self.strict = strict
        self._reads: dict[str, Access] = {}
        self._writes: dict[str, Access] = {}
        for entry in entries:
            if entry.name not in self._reads:
                slots = entry.permissions
                self._reads[entry.name] = _access(entry.name, slots.query, self._default(PERMIT))
                self._writes[entry.name] = _access(entry.name, slots.mutation, ABSTAIN)
        self._unknown = Access(NO_ENTRY, self._default(PERMIT))

    def access(self, scope: Scope, user: str | None, *, known: bool = True) -> Access:
        """Return the access of a user, exactly as LakeQL's resolvers decide.

        `known` is False without any user. `user` is None for a user without a name; an empty name is a name.
        """
        if not known:
            return _DENIED
        if scope == "readPermission":
            return self._reads.get(user, self._unknown) if user is not None else self._unknown
        return self._writes.get(user, _DENIED) if user is not None else _DENIED

    def _default(self, effect: int) -> int:
        return ABSTAIN if self.strict else effect


def _access(name: str, rules: Iterable[RuleBody] | None, without_rules: int) -> Access:
    if rules is None:
        return Access(name, FAILED)
    slot: dict[tuple[str, str | None], SchemaTables] = {}
    for rule in rules:
        key = rule.catalog, rule.schema
        slot[key] = _with_rule(slot.get(key, NO_TABLES), rule)
    return Access(name, None, slot) if slot else Access(name, without_rules)


def _with_rule(before: SchemaTables, rule: RuleBody) -> SchemaTables:
    """Return the tables after one more rule: the first rule with an answer counts, so none follows a fixed one."""
    if before.others != ABSTAIN:
        return before
    if rule.tables is None:
        return SchemaTables(before.names, FAILED)
    if rule.tables[:1] == (ANY_TABLE,):
        return SchemaTables(before.names, PERMIT)
    return SchemaTables(before.names | frozenset(rule.tables), ABSTAIN)


READ: Final[Scope] = "readPermission"
WRITE: Final[Scope] = "writePermission"
_INCOMPLETE: Final = ("namespace", "warehouse", "server")
"""Types that stand for a scope without a table name, such as those of LakeQL's server with a null in it."""
_READS: Final = ("get_metadata", "include_in_list", "read_data", "select")
_CHANGES: Final = (
    "write_data commit drop undrop rename move set_protection manage_tags promote update_settings reset "
    "expire_snapshots restore_snapshots update_retention manage_refs"
)
QUESTIONS: Final[Mapping[tuple[str, str], Scope]] = {
    **{(action, type): READ for action in _READS for type in TABULAR_TYPES},
    **{(action, type): WRITE for action in _CHANGES.split() for type in TABULAR_TYPES},
    **{(CREATE_ACTION[type], "namespace"): WRITE for type in TABULAR_TYPES},
    **{("read_data", type): READ for type in _INCOMPLETE},
    **{("write_data", type): WRITE for type in _INCOMPLETE},
}
"""Action and concrete type -> the scope that decides. All other actions do not apply."""


class ScopeUser(NamedTuple):
    """User of a scope. `known` is False without any user; `name` is None for a user without a name."""

    name: str | None
    known: bool


class Target(NamedTuple):
    """Object of a scope; None for a part that the scope does not name."""

    catalog: str
    schema: str | None
    table: str | None


def user_of(principal: Principal, provider: str) -> ScopeUser:
    """Return the user of a principal. Permission files know the subjects of one provider.

    A user of another provider has no name here: nobody gets the entry of another user.
    """
    if principal.type != "user":
        return ScopeUser(None, known=False)
    idp, _, subject = principal.name.partition("~")
    return ScopeUser(subject if idp == provider else None, known=True)


def target_of(group: EngineQuestion, resource: Resource) -> Target:
    """Return the catalog, the schema and the table of a resource. A new table has the name of the arguments."""
    path = resource.path
    if group.type in TABULAR_TYPES:
        return Target(group.warehouse, path[0] if len(path) == 2 else ".".join(path[:-1]), path[-1])
    if group.type == "namespace":
        return Target(group.warehouse, ".".join(path), resource.arguments.name)
    return Target(group.warehouse, None, None)
