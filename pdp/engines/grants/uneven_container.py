"""Container in which some objects have another answer than the rest, for one question about many of its objects."""

from __future__ import annotations

from typing import NamedTuple

from pdp.engines.grants.container_access import ContainerAccess
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.principal_grants import GranteeNodes
from pdp.engines.grants.questions import RelationQuestion
from pdp.engines.grants.reasons import grant_reason_around
from pdp.engines.grants.rules import PRECEDENCE, evaluate
from pdp.facts.objects import ContainerPath
from pdp.model.checks import Reason
from pdp.model.references import encode_part


class ReasonTemplate(NamedTuple):
    """Reason of all objects with the same privileges of one grantee. An object's name goes before `end`, if any."""

    start: Reason | None
    end: str = ""


class UnevenContainer:
    """Container with nodes of the principal. Keeps a template of the reason for each set of privileges.

    So a principal with a grant on each of a thousand tables costs little more than a look-up for each. Nodes of
    several grantees, and grants with an id, are left to `EffectiveAccess`.
    """

    __slots__ = ("_access", "_container", "_path", "_question", "_templates", "nodes")

    def __init__(
        self, access: EffectiveAccess, question: RelationQuestion, path: ContainerPath, container: ContainerAccess
    ) -> None:
        self.nodes: tuple[GranteeNodes, ...] = container.nodes
        self._access = access
        self._question = question
        self._path = path
        self._container = container
        self._templates: dict[tuple[str, int], ReasonTemplate] = {}

    def reason(self, name: str, id: str = "") -> Reason | None:
        """Return the reason that permits the object of a name; None for no permit."""
        type = self._question.type
        key = (type, name)
        found = [(grantee, node) for grantee, nodes in self.nodes if (node := nodes.get(key)) is not None]
        if type == "namespace" or len(found) > 1 or (found and found[0][1].stored.ids):
            return self._access.reason_inside(self._question, (*self._path, name), id)
        if not found:
            return self._access.default_reason(self._container, self._path, self._question)
        grantee, node = found[0]
        mask = node.stored.mask
        template = self._templates.get((grantee, mask))
        if template is None:
            template = self._templates[grantee, mask] = self._template(grantee, mask)
        start, end = template
        return f"{start}{encode_part(name)}{end}" if end else start

    def _template(self, grantee: str, mask: int) -> ReasonTemplate:
        type, access = self._question.type, self._access
        witness = evaluate(type, access.grants.base_mask | mask, self._container.relations, False).witness(
            self._question.relation
        )
        if witness is None:
            return ReasonTemplate(None)
        if witness.distance:
            return ReasonTemplate(access.reason((type, (*self._path, "")), "", witness))
        return ReasonTemplate(*grant_reason_around(type, self._path, PRECEDENCE[witness.rank], grantee))
