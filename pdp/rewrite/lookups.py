"""Tables that filters read: who changes such a table changes what filters show.

A filter that one catalog cannot resolve may be in use with another, which another caller brings. So an unresolved
filter guards every table of a name that stands in the filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdp.rewrite.catalog import Catalog, Relation
from pdp.rewrite.containers import RelationKey
from pdp.rewrite.errors import WRITE_NEEDS_FULL_ACCESS, RewriteRefused
from pdp.rewrite.filters import FilterCompiler
from pdp.rewrite.policies import FilterPolicy, FilterReads, PolicySet
from pdp.rewrite.references import CREATE, WRITE, References
from pdp.rewrite.restrictions import Identities, Restrictions


class LookupGuard:
    """Guard of the tables that filters read, for one catalog and one set of policies."""

    def __init__(self, compiler: FilterCompiler, catalog: Catalog, policies: PolicySet) -> None:
        self._compiler, self._catalog, self._policies = compiler, catalog, policies

    def check(self, references: References, visible: Restrictions, identities: Identities) -> None:
        """Raise RewriteRefused for a change of a table that filters read, without all rows of the filtered tables."""
        written = [found for found in references.found if found.role in (WRITE, CREATE)]
        if not written:
            return
        memory = self._policies.memory(self._catalog)
        reads = memory.lookups = memory.lookups or self._reads()
        for reference in written:
            tables = [table for found in reference.relations for table in reads.tables.get(found.key, ())]
            known = [relation for table in tables for relation in self._catalog.of_key(table)]
            is_hidden = any(visible.is_restricted(relation, identities) for relation in known)
            if is_hidden or not self._sees_unresolved(reference.parts, reads.unresolved, identities):
                message = f"filters read `{reference.parts[-1]}`: a change needs all rows of the filtered tables"
                raise RewriteRefused(WRITE_NEEDS_FULL_ACCESS, message)

    def _sees_unresolved(
        self, name: Sequence[str], unresolved: Sequence[FilterPolicy], identities: Identities
    ) -> bool:  # fmt: skip
        """Tell whether readers see all of the tables whose unresolved filters contain a name."""
        folded = name[-1].lower()
        keys = {policy.table for policy in unresolved if folded in policy.text.lower()}
        return all(self._sees_all(key, identities) for key in keys)

    def _sees_all(self, key: RelationKey, identities: Identities) -> bool:
        """Tell whether readers see all rows and columns of a table, by the policies alone."""
        masks = [mask for some in self._policies.masks(key).values() for mask in some]
        return all(
            any(policy.is_open for policy in self._policies.matching(key, identity))
            and not any(mask.holds(identity) for mask in masks)
            for identity in identities
        )

    def _reads(self) -> FilterReads:
        """Return the tables that filters read."""
        found: dict[RelationKey, set[RelationKey]] = {}
        unresolved = []
        for key in self._policies.tables():
            for policy in self._policies.of(key):
                # A subquery needs one of these words. Most filters have none, and need no parser here.
                if not any(word in policy.text.lower() for word in ("from", "table")):
                    continue
                relations = self._catalog.of_key(key)
                reads = [*self._read_by(policy, relations)]
                if None in reads or not relations:
                    unresolved.append(policy)
                for read in filter(None, reads):
                    found.setdefault(read, set()).add(key)
        return FilterReads({read: frozenset(keys) for read, keys in found.items()}, tuple(unresolved))

    def _read_by(self, policy: FilterPolicy, relations: Sequence[Relation]) -> Iterator[RelationKey | None]:
        """Yield the tables that a filter reads; None for a filter that this catalog cannot resolve."""
        for relation in relations:
            try:
                yield from self._compiler.compile(policy, relation, policy.dialect, lambda key: False).reads
            except RewriteRefused:
                yield None
