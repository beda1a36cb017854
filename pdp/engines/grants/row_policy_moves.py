"""Row policies that follow their tables: changes that come with moves, drops and returns of objects.

Pure. A rule covers every spelling of a table's name, so a move in one spelling may concern a rule in another. In doubt
a rule stays *and* goes along: two closed names are better than an open name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from pdp.errors import InvalidArgument
from pdp.facts.objects import (
    Change,
    ObjectKey,
    RowPolicy,
    RowPolicyPut,
    RowPolicyRemoved,
    TablePath,
    fold_name,
    key_text,
)
from pdp.facts.snapshot import Facts
from pdp.model.vocabulary import TABULAR_TYPES

TableId: TypeAlias = tuple[str, str]
"""Warehouse and stable id of a table."""
_CONTAINERS: Final = frozenset({"warehouse", "namespace"})


def rules_of_moved(facts: Facts, source: ObjectKey, target: ObjectKey, *, ends: bool) -> list[Change]:
    """Return the changes of rules for a move of an object with all objects below.

    Tombstones stay on their names, and so do rules that were written ahead, unless the actor `ends` such rules. A
    container takes copies of its tombstones along. Raise InvalidArgument if the new name has rules: rules add up, and
    would show rows of the moved table.
    """
    moved = [rule for rule in _rules_at(facts, source) if source[0] in _CONTAINERS or not rule.tombstone]
    own = {rule.key for rule in moved}  # a new name in another case alone has them already
    there = next((rule for rule in _rules_at(facts, target) if not rule.tombstone and rule.key not in own), None)
    if moved and there is not None:
        raise InvalidArgument(
            f"{key_text(target)} cannot take the row rules of {key_text(source)}: {_text(there)} has some already, "
            "drop those first"
        )
    closed = {rule.key for rule in _rules_at(facts, target)}
    changes: list[Change] = []
    has_namesake = _has_namesake(facts, source)
    for rule in moved:
        is_below = _is_below(rule.table, source[1])
        stays = has_namesake or rule.tombstone or (rule.ahead and not ends)
        if is_below and not stays:
            changes.append(RowPolicyRemoved(rule.key))
        table = (*target[1], *rule.table[len(source[1]) :]) if is_below else _respelled(rule, source, target)
        copy = msgspec.structs.replace(rule, table=table)
        if not (rule.tombstone and copy.key in closed):
            changes.append(RowPolicyPut(copy))
    return changes


def tombstones_under(facts: Facts, changes: Sequence[Change]) -> Iterator[RowPolicy]:
    """Yield the tombstones that changes of a move replace."""
    put = {change.rule.key: change.rule for change in changes if isinstance(change, RowPolicyPut)}
    for name in {rule.covers for rule in put.values()}:
        yield from (rule for rule in facts.rules_of(name) if rule.tombstone and rule.key in put)


def rules_of_dropped(facts: Facts, dropped: ObjectKey) -> list[Change]:
    """Return the changes of rules for a drop of an object with all objects below: each rule becomes a tombstone.

    A tombstone names nobody, so that a new table of the name shows no rows.
    """
    if _has_namesake(facts, dropped):
        return []
    rules = [rule for rule in _rules_at(facts, dropped) if _is_below(rule.table, dropped[1]) and not rule.tombstone]
    return [
        RowPolicyPut(msgspec.structs.replace(rule, tombstone=True, object_id=_id_of(facts, rule.table)))
        for rule in rules
    ]


def rules_by_id(facts: Facts) -> dict[TableId, list[RowPolicy]]:
    """Return the rules of tables with a stable id: of registered tables, and the tombstones of dropped ones."""
    found: dict[TableId, list[RowPolicy]] = {}
    for rule in facts.row_rules():
        id = rule.object_id if rule.tombstone else _id_of(facts, rule.table)
        if id:
            found.setdefault((rule.table[0], id), []).append(rule)
    return found


def rules_of_returned(facts: Facts, key: ObjectKey, rules: Sequence[RowPolicy]) -> list[Change]:
    """Return the changes of rules for a table that appears under a name, with the rules of its stable id.

    Tombstones of the name are rules again. Rules of another name come along, and stay there. The name's other rules
    become tombstones then: rules add up, and would show rows of the table.
    """
    changes: list[Change] = []
    if any(rule.table != key[1] for rule in rules):
        changes += [
            RowPolicyPut(msgspec.structs.replace(other, tombstone=True))
            for other in facts.rules_of(fold_name(key[1][0], key[1][1:]))
            if not other.tombstone and other not in rules
        ]
    returned = (msgspec.structs.replace(rule, table=key[1], tombstone=False, object_id="") for rule in rules)
    return [*changes, *(RowPolicyPut(rule) for rule in returned if rule not in rules)]


def _rules_at(facts: Facts, key: ObjectKey) -> Iterator[RowPolicy]:
    """Yield the rules of a table by any spelling of the name, or of all tables below a container."""
    if key[0] in TABULAR_TYPES:
        yield from facts.rules_of(fold_name(key[1][0], key[1][1:]))
    elif key[0] in _CONTAINERS:
        warehouse, path = fold_name(key[1][0], key[1][1:])
        inside = f"{path}." if path else ""
        for name in sorted(facts.index.rules):
            if name[0] == warehouse and name[1].startswith(inside):
                yield from facts.rules_of(name)


def _is_below(table: TablePath, path: Sequence[str]) -> bool:
    return table[: len(path)] == tuple(path)


def _respelled(rule: RowPolicy, source: ObjectKey, target: ObjectKey) -> TablePath:
    """Return the new path of a table in another spelling of its name: the folded rest behind the moved object's."""
    old = fold_name(source[1][0], source[1][1:])[1]
    rest = rule.covers[1][len(old) + 1 :] if old else rule.covers[1]
    return (*target[1], rest) if rest else target[1]


def _has_namesake(facts: Facts, key: ObjectKey) -> bool:
    """Tell whether an object of another type has the name: the rules are then that object's as well."""
    types = TABULAR_TYPES if key[0] in TABULAR_TYPES else ()
    return any(facts.node((type, key[1])).is_known for type in types if type != key[0])


def _id_of(facts: Facts, table: TablePath) -> str:
    return next((id for type in TABULAR_TYPES if (id := facts.object((type, table)).id)), "")


def _text(rule: RowPolicy) -> str:
    return key_text(("table", rule.table))
