"""Access of one principal to the content of one container, and the shared budget of such caches."""

from __future__ import annotations

from pdp.engines.grants.principal_grants import GranteeNodes
from pdp.engines.grants.questions import RelationQuestion
from pdp.engines.grants.rules import EffectiveRelations, evaluate
from pdp.model.question import Reason


class ContainerAccess:
    """Access of a principal inside a warehouse or namespace: one answer for almost all objects, and few exceptions.

    `relations` are the relations on the container itself. `nodes` pairs each grantee that has grants inside with the
    nodes of these objects: with a grant of their own or with a visible object below. All other objects of a type have
    equal relations, because nothing but the container decides about them. `reasons` is a cache of the reasons that
    permit these other objects.
    """

    __slots__ = ("_plain_namespace", "nodes", "reasons", "relations")

    def __init__(self, relations: EffectiveRelations, nodes: tuple[GranteeNodes, ...] = ()) -> None:
        self.relations = relations
        self.nodes = nodes
        self.reasons: dict[RelationQuestion, Reason | None] = {}
        self._plain_namespace: ContainerAccess | None = None

    def plain_namespace(self, base_mask: int) -> ContainerAccess:
        """Return the access inside a namespace of the container, without a grant on or inside the namespace.

        All such namespaces share the access and its cache of reasons: every relation comes from further up, so no
        reason names the namespace.
        """
        plain = self._plain_namespace
        if plain is None:
            relations = evaluate("namespace", base_mask, self.relations, False)
            plain = self._plain_namespace = ContainerAccess(relations)
        return plain


class CacheBudget:
    """Number of further entries for all caches that share the budget."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left
