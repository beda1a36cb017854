"""Uses of relations by a statement: what is read or changed, for whom, and by which policies. For rights and records.

Goes through the texts of views as the rewriter does: behind a view with an owner the owner reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pdp.rewrite.catalog import Relation, full_name
from pdp.rewrite.containers import RelationKey
from pdp.rewrite.messages import Use
from pdp.rewrite.policies import PolicySet
from pdp.rewrite.references import CREATE, READ
from pdp.rewrite.restrictions import AnalyzedText, Identities, Restrictions

REPLACE: Final = "replace"
"""Role of a known relation that the statement creates anew."""


class UseFinder:
    """Search for the uses of one statement."""

    def __init__(self, restrictions: Restrictions, policies: PolicySet) -> None:
        self._restrictions, self._policies = restrictions, policies

    def uses(self, analyzed: AnalyzedText, identities: Identities, default: tuple[str, ...]) -> tuple[Use, ...]:
        """Return the uses of a statement, each once; raise RewriteRefused for views that are nested too deeply."""
        found = dict.fromkeys(self._uses(analyzed, identities, "", ()))
        is_view = analyzed.parsed.tree.args.get("kind") == "VIEW"
        new = [
            Use(full_name(reference.parts, default), reference.role, is_view)
            for reference in analyzed.references.found
            if not reference.relations and not reference.is_policies
        ]
        return (*found, *new)

    def _uses(
        self, analyzed: AnalyzedText, identities: Identities, owner: str, above: tuple[RelationKey, ...]
    ) -> Iterator[Use]:
        for reference in analyzed.references.found:
            for relation in reference.relations:
                yield self._use(relation, reference.role, identities, owner)
                if reference.returns_rows:
                    yield self._use(relation, READ, identities, owner)
                view = relation.view
                if view is not None and reference.role == READ:
                    body = self._restrictions.body(relation, view, above)
                    inside = self._restrictions.inside(relation, view, identities)
                    yield from self._uses(body, inside, view.owner or owner, (*above, relation.key))

    def _use(self, relation: Relation, role: str, identities: Identities, owner: str) -> Use:
        key = relation.key
        matching = [policy.id for reader in identities for policy in self._policies.matching(key, reader)]
        every = [mask for masks in self._policies.masks(key).values() for mask in masks]
        held = [mask.id for reader in identities for mask in every if mask.holds(reader)]
        return Use(
            relation.name, REPLACE if role == CREATE else role, relation.view is not None, owner,
            tuple(dict.fromkeys(matching)), tuple(dict.fromkeys(held)),
        )  # fmt: skip
