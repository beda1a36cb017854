"""Decision of many objects: one answer for each container, and the few objects with grants of their own again.

Costs a look-up for each container, and for each object little more than its place in the answer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import compress, count

from pdp.engines.engine import ABSTAIN, PERMIT, Verdicts
from pdp.engines.grants.container_access import ContainerAccess
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.questions import RelationQuestion
from pdp.model.checks import Reason, Resource
from pdp.model.columns import Path, PathColumn


class ContainerReasons(dict[Path, Reason | None]):
    """Path below the warehouse -> reason that permits the objects of a type in the container, except a few.

    `uneven` has the containers with such exceptions.
    """

    def __init__(self, access: EffectiveAccess, question: RelationQuestion, warehouse: str) -> None:
        super().__init__()
        self.uneven: dict[Path, ContainerAccess] = {}
        self._access = access
        self._question = question
        self._warehouse = warehouse

    def __missing__(self, above: Path) -> Reason | None:
        """Look up a container that is new to this call."""
        path = (self._warehouse, *above)
        container = self._access.container(path)
        # Of the objects in a container, namespaces alone have a circumstance of their own.
        if container.nodes or (self._question.type == "namespace" and self._access.grants.has_managed):
            self.uneven[above] = container
        reason = self[above] = self._access.default_reason(container, path, self._question)
        return reason


def decide_inside(access: EffectiveAccess, question: RelationQuestion, resources: Sequence[Resource]) -> Verdicts:
    """Decide objects of one type inside one warehouse."""
    if type(resources) is PathColumn:
        return _decide_column(access, question, resources)
    warehouse = resources[0].warehouse
    above = [resource.path[:-1] for resource in resources]
    reasons = ContainerReasons(access, question, warehouse)
    by = list(map(reasons.__getitem__, above))
    uneven = reasons.uneven
    if uneven:
        names = _names_with_nodes(question.type, uneven.values(), len(by))
        for row in compress(count(), map(uneven.__contains__, above)):
            resource = resources[row]
            if names is None or resource.path[-1] in names:
                by[row] = access.reason_inside(question, (warehouse, *resource.path), resource.id)
    return Verdicts(bytes([ABSTAIN if reason is None else PERMIT for reason in by]), by)


def _decide_column(access: EffectiveAccess, question: RelationQuestion, column: PathColumn) -> Verdicts:
    reasons = ContainerReasons(access, question, column.warehouse)
    at, parents, names = column.parent_at, column.parents, column.names
    by_parent = [reasons[above] for above in parents]
    by = list(map(by_parent.__getitem__, at))
    permits = bytes([ABSTAIN if reason is None else PERMIT for reason in by_parent])
    effects = bytearray(map(permits.__getitem__, at))
    if reasons.uneven:
        uneven = [above in reasons.uneven for above in parents]
        named = _names_with_nodes(question.type, reasons.uneven.values(), len(by))
        rows = compress(count(), map(uneven.__getitem__, at) if named is None else map(named.__contains__, names))
        for row in rows:
            if uneven[at[row]]:
                path = (column.warehouse, *parents[at[row]], names[row])
                by[row] = reason = access.reason_inside(question, path)
                effects[row] = ABSTAIN if reason is None else PERMIT
    return Verdicts(bytes(effects), by)


def _names_with_nodes(type: str, containers: Iterable[ContainerAccess], rows: int) -> Container[str] | None:
    """Return the names of a type that have a node in any of the containers. Other names have none.

    Return None if a look-up for each row costs less than reading the nodes, or if managed access matters too.
    """
    maps = [nodes for container in containers for _, nodes in container.nodes]
    if type == "namespace" or sum(map(len, maps)) > rows:
        return None
    return {name for nodes in maps for node_type, name in nodes if node_type == type}
