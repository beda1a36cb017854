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
from pdp.engines.grants.uneven_container import UnevenContainer
from pdp.model.checks import Reason, Resource
from pdp.model.columns import Path, PathColumn

_PLACES_IN_A_BYTE: Final = 256


def decide_inside(access: EffectiveAccess, question: RelationQuestion, resources: Sequence[Resource]) -> Verdicts:
    """Decide objects of one type inside one warehouse."""
    if type(resources) is PathColumn:
        warehouse, parents, at = resources.warehouse, resources.parents, resources.parent_at
    else:
        warehouse, (parents, at) = resources[0].warehouse, _places(resources)
    by_place: list[Reason | None] = []
    uneven: list[UnevenContainer | None] = []
    # Of the objects in a container, namespaces alone have a circumstance of their own.
    may_be_managed = question.type == "namespace" and access.grants.has_managed
    for above in parents:
        path = (warehouse, *above)
        container = access.container(path)
        by_place.append(access.default_reason(container, path, question))
        is_even = not (container.nodes or may_be_managed)
        uneven.append(None if is_even else UnevenContainer(access, question, path, container))
    by = list(map(by_place.__getitem__, at))
    effects = _effects(by_place, at)
    for row, reason in _own_reasons(question, resources, at, uneven):
        by[row] = reason
        effects[row] = ABSTAIN if reason is None else PERMIT
    return Verdicts(bytes(effects), by)


def is_in_one_warehouse(resources: Sequence[Resource]) -> bool:
    """Tell whether all resources are in the same warehouse. The resources of one check are."""
    return type(resources) is PathColumn or len({resource.warehouse for resource in resources}) == 1


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
    question: RelationQuestion,
    resources: Sequence[Resource],
    at: Sequence[int],
    uneven: Sequence[UnevenContainer | None],
) -> Iterator[tuple[int, Reason | None]]:
    """Yield the rows that may have another reason than their container, and the reasons."""
    names = _names_with_nodes(question.type, uneven, len(at))
    if names is not None and not names:
        return
    rows = range(len(at))
    if type(resources) is PathColumn:
        # Names first: mostly they exclude more rows than containers do.
        for row in rows if names is None else compress(rows, map(names.__contains__, resources.names)):
            container = uneven[at[row]]
            if container is not None:
                yield row, container.reason(resources.names[row])
        return
    for row in compress(rows, map(uneven.__getitem__, at)):
        container, resource = uneven[at[row]], resources[row]
        name = resource.path[-1]
        if container is not None and (names is None or name in names):
            yield row, container.reason(name, resource.id)


def _names_with_nodes(type: str, containers: Sequence[UnevenContainer | None], rows: int) -> set[str] | None:
    """Return the names of a type that have a node in any of the containers. Other names have none.

    Return None if a look-up for each row costs less than reading the nodes, or if managed access matters too.
    """
    maps = [nodes for container in containers if container is not None for _, nodes in container.nodes]
    if sum(map(len, maps)) > rows or (type == "namespace" and any(containers)):
        return None
    return {name for nodes in maps for node_type, name in nodes if node_type == type}
