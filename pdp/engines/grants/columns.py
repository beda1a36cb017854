"""Decision of many objects: one answer for each container, and the few objects with grants of their own again.

Costs a look-up for each container, and for each object little more than its place in the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Final

from pdp.engines.engine import ABSTAIN, PERMIT, Verdicts
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.questions import RelationQuestion
from pdp.engines.grants.uneven_containers import UnevenContainers
from pdp.model.checks import Reason, Resource
from pdp.model.columns import Path, PathColumn

_PLACES_IN_A_BYTE: Final = 256


def decide_inside(access: EffectiveAccess, question: RelationQuestion, resources: Sequence[Resource]) -> Verdicts:
    """Decide objects of one type inside one warehouse."""
    if type(resources) is PathColumn:
        warehouse, parents, at = resources.warehouse, resources.parents, resources.parent_at
    else:
        warehouse, (parents, at) = resources[0].warehouse, _places(resources)
    paths = [(warehouse, *above) for above in parents]
    containers, by_place = access.containers(paths, question)
    by = list(map(by_place.__getitem__, at))
    effects = _effects(by_place, at)
    uneven = UnevenContainers(access, question, paths, containers)
    for row, reason in _own_reasons(uneven, resources, at):
        by[row] = reason
        effects[row] = ABSTAIN if reason is None else PERMIT
    return Verdicts(bytes(effects), by)


def _places(resources: Sequence[Resource]) -> tuple[Sequence[Path], Sequence[int]]:
    """Return the distinct containers of resources, and the place of each resource's container among them."""
    places: defaultdict[Path, int] = defaultdict()
    places.default_factory = places.__len__  # a new path gets the next place
    at = list(map(places.__getitem__, [resource.path[:-1] for resource in resources]))
    return list(places), at


def _effects(by_place: Sequence[Reason | None], at: Sequence[int]) -> bytearray:
    """Return the effect of each row from the reason at its place."""
    effects = [ABSTAIN if reason is None else PERMIT for reason in by_place]
    if len(effects) > _PLACES_IN_A_BYTE:
        return bytearray(map(effects.__getitem__, at))
    return bytearray(at).translate(bytes(effects).ljust(_PLACES_IN_A_BYTE, b"\0"))


def _own_reasons(
    uneven: UnevenContainers, resources: Sequence[Resource], at: Sequence[int]
) -> Iterator[tuple[int, Reason | None]]:
    """Yield the rows that may have another reason than their container, and the reasons."""
    names = uneven.names(len(at))
    if names is not None and not names:
        return
    rows, is_uneven = range(len(at)), uneven.places
    if type(resources) is PathColumn:
        # Names first: mostly they exclude more rows than containers do.
        for row in rows if names is None else compress(rows, map(names.__contains__, resources.names)):
            if is_uneven[at[row]]:
                yield row, uneven.reason(at[row], resources.names[row])
        return
    for row in compress(rows, map(is_uneven.__getitem__, at)):
        resource = resources[row]
        name = resource.path[-1]
        if names is None or name in names:
            yield row, uneven.reason(at[row], name, resource.id)
