"""Tables that filters read: who changes such a table changes what filters show.

A filter that one catalog cannot resolve may be in use with another, which another caller brings. So an unresolved
filter guards every table of a name that stands in the filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from pdp.rewrite.catalog import Catalog
from pdp.rewrite.containers import RelationKey
from pdp.rewrite.errors import WRITE_NEEDS_FULL_ACCESS, RewriteRefused
from pdp.rewrite.filters import FilterCompiler
from pdp.rewrite.policies import FilterPolicy, PolicySet
from pdp.rewrite.references import CREATE, WRITE, Reference, References
from pdp.rewrite.restrictions import Identities, Restrictions

_PLAIN: Final = re.compile(r"\w+")
_WORDS_OF_QUERIES: Final = ("from", "table")
"""A subquery needs one of these words."""


class LookupGuard:
    """Guard of the tables that filters read, for one catalog and one set of policies."""

    def __init__(self, compiler: FilterCompiler, catalog: Catalog, policies: PolicySet) -> None:
        self._compiler, self._catalog, self._policies = compiler, catalog, policies

    def check(self, references: References, visible: Restrictions, identities: Identities) -> None:
        """Raise RewriteRefused for a change of a table that filters read, without all rows of the filtered tables."""
        for reference in references.found:
            if reference.role in (WRITE, CREATE):
                self._check(reference, visible, identities)

    def _check(self, reference: Reference, visible: Restrictions, identities: Identities) -> None:
        written = {relation.key for relation in reference.relations}
        for policy in self._mentioning(reference.parts[-1]):
            relations = self._catalog.of_key(policy.table)
            reads = self._reads(policy)
            if reads is None:
                is_hidden = not self._sees_all(policy.table, identities)
            else:
                is_read = not written.isdisjoint(reads)
                is_hidden = is_read and any(visible.is_restricted(relation, identities) for relation in relations)
            if is_hidden:
                message = f"filters read `{reference.parts[-1]}`: a change needs all rows of the filtered tables"
                raise RewriteRefused(WRITE_NEEDS_FULL_ACCESS, message)

    def _mentioning(self, name: str) -> Iterator[FilterPolicy]:
        """Yield the policies whose filters have a subquery and a name. All others need no parser here."""
        folded = name.lower() if _PLAIN.fullmatch(name) else ""
        for key in self._policies.tables():
            for policy in self._policies.of(key):
                text = policy.text.lower()
                if folded in text and any(word in text for word in _WORDS_OF_QUERIES):
                    yield policy

    def _reads(self, policy: FilterPolicy) -> Sequence[RelationKey] | None:
        """Return the tables that a filter reads; None for a filter that this catalog cannot resolve."""
        reads: list[RelationKey] = []
        relations = self._catalog.of_key(policy.table)
        for relation in relations:
            try:
                reads += self._compiler.compile(policy, relation, policy.dialect, lambda key: False).reads
            except RewriteRefused:
                return None
        return reads if relations else None

    def _sees_all(self, key: RelationKey, identities: Identities) -> bool:
        """Tell whether readers see all rows and columns of a table, by the policies alone."""
        masks = [mask for some in self._policies.masks(key).values() for mask in some]
        return all(
            any(policy.is_open for policy in self._policies.matching(key, identity))
            and not any(mask.holds(identity) for mask in masks)
            for identity in identities
        )
