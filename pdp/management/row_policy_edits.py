"""Edits of stored row policies and masks: an edit on a snapshot becomes changes, or is refused.

Pure. `engines.row_access.entries` judges them, the grants model judges actors: a writer must have the right to manage
the grants of the table, under every known spelling of the name, because a policy covers all spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import msgspec

from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import MANAGE, Actor
from pdp.engines.row_access.engine import RowAccessEngine, is_filed
from pdp.engines.row_access.entries import DescribedTables, binding_faults, fault_message, faults_of, tables_read
from pdp.engines.row_access.policies import MaskBody, PolicyBody, entry_name, policy_path, rule_of, table_path
from pdp.errors import AlreadyExists, Conflict, InvalidArgument, InvalidFilter, InvalidReference, NotFound
from pdp.facts.objects import (
    Change,
    FoldedName,
    ObjectKey,
    RowPolicy,
    RowPolicyPut,
    RowPolicyRemoved,
    TablePath,
    container_key,
    fold_column,
    fold_name,
    join_key,
    key_text,
    widen_name,
)
from pdp.facts.snapshot import Facts
from pdp.model.vocabulary import TABULAR_TYPES

MOST_GRANTEES: Final = 1_000


def check_rule(rule: RowPolicy, access: RowAccessEngine, sees: Callable[[TablePath], bool] = lambda _: True) -> None:
    """Raise InvalidArgument for an unsound rule, InvalidFilter for an unsound filter or expression.

    `access` knows the columns of tables that files describe, and the names of the configuration. Columns of a table
    that the writer does not see (`sees`) count as unknown: an error about a name would tell of columns.
    """
    if len(rule.grantees) + len(rule.exempt) > MOST_GRANTEES:
        raise InvalidArgument(f"{entry_name(rule)}: it has more than {MOST_GRANTEES} grantees: use a group or a role")
    for fault in faults_of(rule, access.names, _described(rule, access, sees)):
        if fault.weight != "unknown":
            kind = InvalidFilter if fault.weight in ("sql", "column") or fault.field == ("filter",) else InvalidArgument
            raise kind(fault_message(rule, fault))


def _described(rule: RowPolicy, access: RowAccessEngine, sees: Callable[[TablePath], bool]) -> DescribedTables:
    """Return the tables that files describe, without tables that a filter reads and the writer may not see."""
    try:
        hidden = {fold_name(path[0], path[1:]) for path in tables_read(rule) if not sees(path)} - {rule.covers}
    except ValueError:  # no SQL, which is an error whatever the tables are
        hidden = set()
    columns = access.described.columns
    shown = {name: types for name, types in columns.items() if name not in hidden}
    return access.described if len(shown) == len(columns) else DescribedTables(shown)


def table_of(text: str, default: Sequence[str] = ()) -> TablePath:
    """Return the path of a table from `<warehouse>.<namespace>.<table>` or a reference; raise InvalidArgument."""
    try:
        return table_path(text, default)
    except (ValueError, InvalidReference) as error:
        raise InvalidArgument(str(error)) from None


def new_rule(body: PolicyBody | MaskBody, default: Sequence[str] = ()) -> RowPolicy:
    """Return the value of a new policy or mask as a file does; raise InvalidArgument."""
    try:
        return rule_of(body, policy_path(body.table, default))
    except (ValueError, InvalidReference) as error:
        raise InvalidArgument(f"{entry_name(body)}: {error}") from None


READ: Final = "read_assignments"
"""Action on a table that reading its rules requires."""
Mode: TypeAlias = Literal["insert", "update", "replace", "unless_exists"]


class RowPolicyWrite(msgspec.Struct, frozen=True):
    """Rule to write.

    `insert` demands a new id, `update` a known one, `replace` takes both, `unless_exists` leaves a known rule alone.
    With an `etag`, the known rule must still have this tag.
    """

    rule: RowPolicy
    mode: Mode = "insert"
    etag: str = ""


class RowPolicyDrop(msgspec.Struct, frozen=True):
    """Rule to drop. `column` names the column of a mask. `if_exists`: a missing rule is no error."""

    table: TablePath
    id: str
    column: str = ""
    if_exists: bool = False
    etag: str = ""


class RowPoliciesClear(msgspec.Struct, frozen=True):
    """All row policies of a table to drop, tombstones included. Masks stay, tombstones of masks end."""

    table: TablePath


RuleEdit: TypeAlias = RowPolicyWrite | RowPolicyDrop | RowPoliciesClear


def etag_of(rule: RowPolicy) -> str:
    """Return the tag of a version of a rule: any change gives another one."""
    return sha256(msgspec.json.encode(rule)).hexdigest()[:16]


class RowPolicyAdministration:
    """Judgement of edits of rules. `access` has the policies of files, with ids in use and known columns."""

    def __init__(self, rules: Administration, access: RowAccessEngine) -> None:
        self._rules = rules
        self._access = access

    def edit(self, facts: Facts, actor: Actor, edits: Sequence[RuleEdit], now: float) -> tuple[Change, ...]:
        """Return the changes for all edits, in order, each judged on the rules after the edits before.

        `now` is in seconds since 1970. Raise Forbidden, NotFound, AlreadyExists, Conflict, InvalidArgument. The caller
        has called `check` before.
        """
        self.require_rights(facts, actor, edits)
        changes: list[Change] = []
        for edit in edits:
            new = list(self._changes(facts, actor, edit, now))
            facts = facts.apply(facts.sequence, new)
            changes += new
        return tuple(changes)

    def check(self, facts: Facts, actor: Actor, edits: Sequence[RuleEdit]) -> None:
        """Raise InvalidArgument for the first unsound rule of some edits. Parses SQL, and so needs no lock."""
        for edit in edits:
            if isinstance(edit, RowPolicyWrite):
                check_rule(edit.rule, self._access, partial(self._sees, facts, actor))

    def remarks(self, facts: Facts, actor: Actor, edits: Sequence[RuleEdit]) -> tuple[str, ...]:
        """Return the unknown names of written rules: grantees, and tables beside known tables. Parses SQL.

        Of a name that the actor may not see, nothing is said, whether or not a table has the name.
        """
        found = []
        for rule in (edit.rule for edit in edits if isinstance(edit, RowPolicyWrite)):
            messages = [one.message for one in binding_faults(rule, self._access.names) if one.weight == "unknown"]
            if self._sees(facts, actor, rule.table) and not self._is_known(facts, actor, rule.table):
                messages.append(_unknown_table(rule.table))
            described = self._access.described
            for path in tables_read(rule):
                if not self._sees(facts, actor, path):
                    continue
                name = fold_name(path[0], path[1:])
                is_missing = path[:-1] == rule.table[:-1] and not self._is_known(facts, actor, path)
                if name not in described.columns and (described.has_beside(name) or is_missing):
                    messages.append(f"the filter reads `{path[-1]}`: {_unknown_table(path)}")
            found += [f"{entry_name(rule)}: {message}" for message in messages]
        return tuple(found)

    def _sees(self, facts: Facts, actor: Actor, table: TablePath) -> bool:
        """Tell whether the actor may see a table of exactly this name, known or not."""
        known = [(type, table) for type in TABULAR_TYPES if facts.node((type, table)).is_known]
        return all(self._rules.may(facts, actor, "get_metadata", key) for key in known or [("table", table)])

    def _is_known(self, facts: Facts, actor: Actor, table: TablePath) -> bool:
        """Tell whether facts know a table that the actor may see, or no table at all in its namespace."""
        if not any(type in TABULAR_TYPES for type, _ in facts.index.objects.get(table[:-1], ())):
            return True
        known = (key for key in known_tables(facts, table) if facts.node(key).is_known)
        return any(self._rules.may(facts, actor, "get_metadata", key) for key in known)

    def require_rights(self, facts: Facts, actor: Actor, edits: Sequence[RuleEdit]) -> None:
        """Raise Forbidden for the first table whose rules the actor may not write."""
        for table in dict.fromkeys(_table_of(edit) for edit in edits):
            self.require(facts, actor, MANAGE, table)
        opened = (edit.rule.table for edit in edits if isinstance(edit, RowPolicyWrite) and not edit.rule.column)
        for table in dict.fromkeys(opened):
            for container in self._spelled_otherwise(table):
                self._rules.require(facts, actor, MANAGE, container)

    def managed_objects(self, facts: Facts, actor: Actor, edits: Sequence[RuleEdit]) -> Sequence[ObjectKey]:
        """Return the objects under the rights of edits: tables under every known spelling, and containers.

        Raise Forbidden as `require_rights` does.
        """
        noting = self._rules.noting()
        RowPolicyAdministration(noting, self._access).require_rights(facts, actor, edits)
        ended = (rule for edit in edits for rule in _named_rules(facts, edit) if _is_of_name(rule))
        required = (key for _, key, _ in noting.required or ())
        return list(dict.fromkeys([*required, *(container_key(rule.table[:-1]) for rule in ended)]))

    def require(self, facts: Facts, actor: Actor, action: str, table: TablePath) -> None:
        """Raise Forbidden if the actor may not do an action on a table under every known spelling of the name."""
        for key in known_tables(facts, table):
            self._rules.require(facts, actor, action, key)

    def may(self, facts: Facts, actor: Actor, action: str, table: TablePath) -> bool:
        """Tell whether the actor may do an action on a table under every known spelling of the name."""
        return all(self._rules.may(facts, actor, action, key) for key in known_tables(facts, table))

    def _spelled_otherwise(self, table: TablePath) -> Iterator[ObjectKey]:
        """Yield the protected containers of a table that is not spelled as engines would look the table up there.

        A policy shows rows of every spelling. The owner of `lake/HR/pay` could otherwise open `lake/hr/pay`, of which
        the store need not know anything.
        """
        warehouse, name = widen_name(fold_name(table[0], table[1:]))
        for above in self._access.protected:
            inside = widen_name(fold_name(above[0], (*above[1:], "")))[1]
            is_plain = table[: len(above)] == above and all(
                part == part.lower() and "." not in part for part in table[len(above) :]
            )
            if above[0] == warehouse and name.startswith(inside) and not is_plain:
                yield "namespace" if len(above) > 1 else "warehouse", above

    def _changes(self, facts: Facts, actor: Actor, edit: RuleEdit, now: float) -> Iterator[Change]:
        if isinstance(edit, RowPoliciesClear):
            self._refuse_filed(edit.table)
            for rule in _rules_of(facts, edit.table):
                if not rule.column or rule.tombstone:
                    self._require_container(facts, actor, rule)
                    yield RowPolicyRemoved(rule.key)
        elif isinstance(edit, RowPolicyDrop):
            yield from self._drop(facts, actor, edit)
        else:
            yield from self._write(facts, actor, edit, now)

    def _drop(self, facts: Facts, actor: Actor, edit: RowPolicyDrop) -> Iterator[Change]:
        found = find_rule(facts, edit.table, edit.id, edit.column)
        if found is None:
            if is_filed(self._access.tables, RowPolicy(edit.table, edit.id, (), column=edit.column)):
                raise InvalidArgument(f"`{edit.id}` of {_name(edit.table)} stands in a file: edit the file")
            if edit.if_exists:
                return
            raise _missing(edit.table, edit.id)
        _check_etag(found, edit.etag)
        self._require_container(facts, actor, found)
        yield RowPolicyRemoved(found.key)

    def _write(self, facts: Facts, actor: Actor, edit: RowPolicyWrite, now: float) -> Iterator[Change]:
        rule = edit.rule
        self._rules.require_known_warehouse(facts, ("table", rule.table))
        found = find_rule(facts, rule.table, rule.id, rule.column)
        if found is None and edit.etag and edit.mode != "update":
            raise Conflict(f"there is no `{rule.id}` for {_name(rule.table)}: a new one has no `etag`")
        if found is None or found.tombstone:
            if is_filed(self._access.tables, rule):
                if edit.mode == "unless_exists":
                    return
                raise AlreadyExists(f"`{rule.id}` of {_name(rule.table)} stands in a file: edit the file")
            if edit.mode == "update":
                raise _missing(rule.table, rule.id)
        elif edit.mode == "unless_exists":
            return
        elif edit.mode == "insert":
            raise AlreadyExists(f"`{rule.id}` stands there already for {_name(rule.table)}")
        if found is not None:
            _check_etag(found, edit.etag)
            self._require_container(facts, actor, found)
            if found.key != rule.key:
                yield RowPolicyRemoved(found.key)
        known = found if found is not None and not found.tombstone else None
        created = now if known is None else known.created
        ahead = known.ahead if known is not None else not _is_named(facts, rule.table)
        written = {"author": actor.name, "person": actor.person, "created": created, "updated": now, "ahead": ahead}
        yield RowPolicyPut(msgspec.structs.replace(rule, **written))

    def _require_container(self, facts: Facts, actor: Actor, found: RowPolicy) -> None:
        """Raise Forbidden for a rule that belongs to the name, unless the actor may manage the container.

        The owner of a new table of the name could otherwise end the rules of the dropped one, and return that.
        """
        if _is_of_name(found):
            self._rules.require(facts, actor, MANAGE, container_key(found.table[:-1]))

    def _refuse_filed(self, table: TablePath) -> None:
        """Raise InvalidArgument for a table with policies of files, which a statement on all policies cannot drop."""
        filed = self._access.tables.get(fold_name(table[0], table[1:]))
        if filed is not None and filed.policies:
            raise InvalidArgument(f"`{filed.policies[0].id}` of {_name(table)} stands in a file: edit the file")


def find_rule(facts: Facts, table: TablePath, id: str, column: str = "") -> RowPolicy | None:
    """Return the rule of an id, tombstones included, in any spelling of the table's name."""
    folded = fold_column(column)
    same = [rule for rule in _rules_of(facts, table) if rule.id == id and rule.key[1] == folded]
    return min(same, key=lambda rule: (rule.tombstone, rule.table != table, rule.table), default=None)


def _unknown_table(table: TablePath) -> str:
    return f"no table `{table[-1]}` is known in its namespace, where others are: is the name right?"


def known_tables(facts: Facts, table: TablePath) -> list[ObjectKey]:
    """Return the keys of all tables and views that rules of a table cover, as far as facts know, the named table first.

    A known namespace in another spelling may have a table of the name without the knowledge of the facts: this table
    counts, too, and so does the table of each rule of the name.
    """
    name = fold_name(table[0], table[1:])
    here: list[ObjectKey] = [(type, table) for type in TABULAR_TYPES if facts.node((type, table)).is_known]
    others = {*_spelled(facts, name, table[:1]), *(("table", rule.table) for rule in facts.rules_of(name))}
    return [*(here or [("table", table)]), *sorted(key for key in others if key[1] != table)]


def _spelled(facts: Facts, name: FoldedName, container: TablePath) -> Iterator[ObjectKey]:
    """Yield the tables and views of a folded name below a container: known, or possible in a known namespace."""
    for other in facts.index.objects.get(container, ()):
        path = fold_name(container[0], (*container[1:], other[1]))[1]
        if other[0] == "namespace" and name[1].startswith(f"{path}."):
            namespace = (*container, other[1])
            yield "table", (*namespace, name[1][len(path) + 1 :])
            yield from _spelled(facts, name, namespace)
        elif path == name[1] and other[0] in TABULAR_TYPES:
            yield join_key(container, other)


def _named_rules(facts: Facts, edit: RuleEdit) -> Sequence[RowPolicy]:
    """Return the known rules that an edit names."""
    if isinstance(edit, RowPoliciesClear):
        return _rules_of(facts, edit.table)
    rule = edit.rule if isinstance(edit, RowPolicyWrite) else edit
    found = find_rule(facts, rule.table, rule.id, rule.column)
    return () if found is None else (found,)


def _is_of_name(rule: RowPolicy) -> bool:
    """Tell whether a rule belongs to a name: the name of a dropped table, or of an unknown one."""
    return rule.tombstone or rule.ahead


def _is_named(facts: Facts, table: TablePath) -> bool:
    """Tell whether facts know a table or view of exactly this name."""
    return any(facts.node((type, table)).is_known for type in TABULAR_TYPES)


def _rules_of(facts: Facts, table: TablePath) -> tuple[RowPolicy, ...]:
    return facts.rules_of(fold_name(table[0], table[1:]))


def _table_of(edit: RuleEdit) -> TablePath:
    return edit.rule.table if isinstance(edit, RowPolicyWrite) else edit.table


def _check_etag(found: RowPolicy, etag: str) -> None:
    if etag and etag != etag_of(found):
        raise Conflict(f"`{found.id}` of {_name(found.table)} has changed: read it again")


def _missing(table: TablePath, id: str) -> NotFound:
    return NotFound(f"there is no `{id}` for {_name(table)}")


def _name(table: TablePath) -> str:
    return f"`{key_text(('table', table))}`"
