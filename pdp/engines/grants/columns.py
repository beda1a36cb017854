"""Decision of many objects: one answer for each container, and the few objects with grants of their own again.

Costs a look-up for each container, and for each object little more than its place in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Final

from pdp.engines.engine import ABSTAIN, PERMIT, Verdicts
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.principal_grants import GranteeNodes
from pdp.engines.grants.questions import RelationQuestion
from pdp.engines.grants.uneven_containers import UnevenContainers
from pdp.model.checks import Reason, Resource
from pdp.model.columns import Path, PathColumn

_PLACES_IN_A_BYTE: Final = 256


def decide_column(access: EffectiveAccess, question: RelationQuestion, column: PathColumn) -> Verdicts:
    """Decide objects of one type in containers of one warehouse."""
    paths = [(column.warehouse, *above) for above in column.parents]
    containers, by_place = access.containers(paths, question)
    by = list(map(by_place.__getitem__, column.parent_at))
    effects = _effects(by_place, column.parent_at)
    uneven = UnevenContainers(access, question, paths, containers)
    for row, reason in _own_reasons(uneven, column):
        by[row] = reason
        effects[row] = ABSTAIN if reason is None else PERMIT
    return Verdicts(bytes(effects), by)


def decide_tables(access: EffectiveAccess, question: RelationQuestion, tables: Sequence[Resource]) -> Verdicts:
    """Decide tabular objects of one type in one warehouse.

    A single pass: a second pass over new objects costs more than its steps.
    """
    warehouse, type = tables[0].warehouse, question.type
    uneven = UnevenContainers(access, question, [], [])
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


def _effects(by_place: Sequence[Reason | None], at: Sequence[int]) -> bytearray:
    """Return the effect of each row from the reason at its place."""
    effects = [ABSTAIN if reason is None else PERMIT for reason in by_place]
    if len(effects) > _PLACES_IN_A_BYTE:
        return bytearray(map(effects.__getitem__, at))
    return bytearray(at).translate(bytes(effects).ljust(_PLACES_IN_A_BYTE, b"\0"))


def _own_reasons(uneven: UnevenContainers, column: PathColumn) -> Iterator[tuple[int, Reason | None]]:
    """Yield the rows that may have another reason than their container, and the reasons."""
    at, names = column.parent_at, column.names
    own_names = uneven.names(len(at))
    if own_names is not None and not own_names:
        return
    places, rows = uneven.places(), range(len(at))
    # Names first: mostly they exclude more rows than containers do.
    for row in rows if own_names is None else compress(rows, map(own_names.__contains__, names)):
        if places[at[row]]:
            yield row, uneven.reason(at[row], names[row])
