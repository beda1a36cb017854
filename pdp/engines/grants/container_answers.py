"""Answers to one question in the containers of one warehouse, remembered for one principal.

Requests about many containers touch much memory. So everything that most containers need is in one dictionary.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from pdp.engines.grants.container_access import ContainerAccess
from pdp.model.columns import Path
from pdp.model.question import Reason

_MOST_NAMES: Final = 1000
"""Most nodes of a container whose names are remembered."""
OwnNames: TypeAlias = frozenset[str] | None
"""Names of the type that have a node in a container. None: any name may have one."""

NO_NAMES: Final[OwnNames] = frozenset()


class ContainerAnswers:
    """Answers by the path of the container below the warehouse.

    `reasons` has the reason that permits the objects of the type, except those with a node; None for no permit.
    `uneven` has the names of the objects with a node; containers without such an object are not in it.
    """

    __slots__ = ("reasons", "uneven")

    def __init__(self) -> None:
        self.reasons: dict[Path, Reason | None] = {}
        self.uneven: dict[Path, OwnNames] = {}

    def put(self, path: Path, reason: Reason | None, own_names: OwnNames) -> None:
        """Put the answer for a container."""
        if own_names is None or own_names:
            self.uneven[path] = own_names
        self.reasons[path] = reason


def own_names(container: ContainerAccess, type: str) -> OwnNames:
    """Return the names of the objects of a type that have a node in a container."""
    if sum([len(nodes) for _, nodes in container.nodes]) > _MOST_NAMES:
        return None
    return frozenset([name for _, nodes in container.nodes for node_type, name in nodes if node_type == type])
