"""Decision of many objects: one answer for each container, and the few objects with grants of their own again.

Costs a look-up for each container, and for each object little more than its place in the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Final

from pdp.engines.engine import ABSTAIN, PERMIT, Verdicts
from pdp.engines.grants.container_answers import NO_NAMES, OwnNames
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.principal_grants import GranteeNodes
from pdp.engines.grants.questions import RelationQuestion
from pdp.engines.grants.uneven_containers import UnevenContainers
from pdp.model.columns import Path, PathColumn
from pdp.model.question import Reason, Resource

_PLACES_IN_A_BYTE: Final = 256


def decide_column(access: EffectiveAccess, question: RelationQuestion, column: PathColumn) -> Verdicts:
    """Decide objects of one type in containers of one warehouse."""
    at, parents = column.parent_at, column.parents
    by_place, own_names = access.answers(question, column.warehouse, parents)
    by = list(map(by_place.__getitem__, at))
    if by_place.count(None) == len(by_place):
        effects = bytearray(len(at))
    else:
        effects = _spread([ABSTAIN if reason is None else PERMIT for reason in by_place], at)
    uneven = UnevenContainers(access, question)
    places: dict[int, int] = {}
    for row in _own_rows(access, question, column, own_names):
        place = at[row]
        if place not in places:
            places[place] = uneven.add((column.warehouse, *parents[place]))[2]
        by[row] = reason = uneven.reason(places[place], column.names[row])
        effects[row] = ABSTAIN if reason is None else PERMIT
    return Verdicts(bytes(effects), by)


def decide_tables(access: EffectiveAccess, question: RelationQuestion, tables: Sequence[Resource]) -> Verdicts:
    """Decide tabular objects of one type in one warehouse.

    A single pass: a second pass over new objects costs more than its steps.
    """
    warehouse, type = tables[0].warehouse, question.type
    uneven = UnevenContainers(access, question)
    answers: dict[Path, tuple[tuple[GranteeNodes, ...], Reason | None, int]] = {}
    by: list[Reason | None] = []
    for table in tables:
        path = table.path
        above = path[:-1]
        answer = answers.get(above)
        if answer is None:
            answer = answers[above] = uneven.add((warehouse, *above))
        nodes, reason, place = answer
        if nodes:
            key = (type, path[-1])
            for _, names in nodes:
                if key in names:
                    reason = uneven.reason(place, path[-1], table.id)
                    break
        by.append(reason)
    return Verdicts(bytes([ABSTAIN if reason is None else PERMIT for reason in by]), by)


def _spread(by_place: Sequence[int], at: Sequence[int]) -> bytearray:
    """Return the value of each row from the value at its place. Values fit into a byte."""
    if len(by_place) > _PLACES_IN_A_BYTE:
        return bytearray(map(by_place.__getitem__, at))
    return bytearray(at).translate(bytes(by_place).ljust(_PLACES_IN_A_BYTE, b"\0"))


def _own_rows(
    access: EffectiveAccess, question: RelationQuestion, column: PathColumn, uneven: Mapping[Path, OwnNames]
) -> Iterable[int]:
    """Return the rows that may have another reason than their container."""
    at, names, rows = column.parent_at, column.names, range(len(column.names))
    # Of the objects in a container, namespaces alone have a circumstance of their own.
    if question.type == "namespace" and access.grants.has_managed:
        return rows
    if not uneven:
        return ()
    own = [uneven.get(above, NO_NAMES) for above in column.parents]
    if None in own:
        places = [names is None or bool(names) for names in own]
        return compress(rows, _spread(places, at))
    some = frozenset[str]().union(*filter(None, own))
    # Names first: mostly they exclude more rows than containers do.
    found = compress(rows, map(some.__contains__, names)) if some else ()
    return [row for row in found if names[row] in own[at[row]]]  # type: ignore[operator]
