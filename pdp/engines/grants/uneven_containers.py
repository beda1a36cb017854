"""Containers in which some objects have another answer than the rest, for one question about many of their objects."""

from __future__ import annotations

from typing import NamedTuple

from pdp.engines.grants.container_access import ContainerAccess
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.principal_grants import GranteeNodes
from pdp.engines.grants.questions import RelationQuestion
from pdp.engines.grants.reasons import grant_reason_around
from pdp.engines.grants.rules import PRECEDENCE, evaluate
from pdp.facts.objects import ContainerPath
from pdp.model.question import Reason
from pdp.model.references import encode_part


class ReasonTemplate(NamedTuple):
    """Reason of all objects with the same privileges of one grantee. An object's name goes before `end`, if any."""

    start: Reason | None
    end: str = ""


class UnevenContainers:
    """Containers of one question, by their places.

    Keeps a template of the reason for each set of privileges in a container. So a principal with a grant on each of a
    thousand tables costs little more than a look-up for each. Grants of several grantees on one object, and grants
    with an id, are left to `EffectiveAccess`.
    """

    __slots__ = ("_access", "_containers", "_paths", "_question", "_templates")

    def __init__(self, access: EffectiveAccess, question: RelationQuestion) -> None:
        self._access = access
        self._question = question
        self._paths: list[ContainerPath] = []
        self._containers: list[ContainerAccess] = []
        self._templates: dict[tuple[int, str, int], ReasonTemplate] = {}

    def add(self, path: ContainerPath) -> tuple[tuple[GranteeNodes, ...], Reason | None, int]:
        """Add a container; return its nodes, the reason that permits its objects without a node, and its place."""
        container = self._access.container(path)
        self._paths.append(path)
        self._containers.append(container)
        reason = self._access.default_reason(container, path, self._question)
        return container.nodes, reason, len(self._paths) - 1

    def reason(self, place: int, name: str, id: str = "") -> Reason | None:
        """Return the reason that permits the object of a name in a container; None for no permit."""
        type = self._question.type
        key = (type, name)
        container = self._containers[place]
        found = [(grantee, node) for grantee, nodes in container.nodes if (node := nodes.get(key)) is not None]
        if type == "namespace" or len(found) > 1 or (found and found[0][1].stored.ids):
            return self._access.reason_inside(self._question, (*self._paths[place], name), id)
        if not found:
            return self._access.default_reason(container, self._paths[place], self._question)
        grantee, node = found[0]
        mask = node.stored.mask
        template = self._templates.get((place, grantee, mask))
        if template is None:
            template = self._templates[place, grantee, mask] = self._template(place, grantee, mask)
        start, end = template
        return f"{start}{encode_part(name)}{end}" if end else start

    def _template(self, place: int, grantee: str, mask: int) -> ReasonTemplate:
        type, path, access = self._question.type, self._paths[place], self._access
        relations = evaluate(type, access.grants.base_mask | mask, self._containers[place].relations, False)
        witness = relations.witness(self._question.relation)
        if witness is None:
            return ReasonTemplate(None)
        if witness.distance:
            return ReasonTemplate(access.reason((type, (*path, "")), "", witness))
        return ReasonTemplate(*grant_reason_around(type, path, PRECEDENCE[witness.rank], grantee))
