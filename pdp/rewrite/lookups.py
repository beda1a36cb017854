"""Tables that filters read: who changes such a table changes what filters show."""

from __future__ import annotations

from collections.abc import Mapping

from pdp.rewrite.catalog import Catalog, Relation
from pdp.rewrite.containers import RelationKey
from pdp.rewrite.errors import WRITE_NEEDS_FULL_ACCESS, RewriteRefused
from pdp.rewrite.filters import FilterCompiler
from pdp.rewrite.policies import FilterPolicy, PolicySet
from pdp.rewrite.references import CREATE, WRITE, References
from pdp.rewrite.restrictions import Identities, Restrictions


def check_lookups(
    references: References, compiler: FilterCompiler, catalog: Catalog, policies: PolicySet, visible: Restrictions,
    identities: Identities,
) -> None:  # fmt: skip
    """Raise RewriteRefused for a change of a table that filters read, without all rows of the filtered tables."""
    written = [
        relation
        for reference in references.found
        if reference.role in (WRITE, CREATE)
        for relation in reference.relations
    ]
    if not written:
        return
    if policies.lookups is None:
        policies.lookups = _lookups(compiler, catalog, policies)
    for relation in written:
        for filtered in policies.lookups.get(relation.key, ()):
            if any(visible.is_restricted(found, identities) for found in catalog.of_key(filtered)):
                message = f"filters read `{relation.name[-1]}`: a change needs all rows of the filtered tables"
                raise RewriteRefused(WRITE_NEEDS_FULL_ACCESS, message)


def _lookups(
    compiler: FilterCompiler, catalog: Catalog, policies: PolicySet
) -> Mapping[RelationKey, frozenset[RelationKey]]:
    """Return the tables that filters read, each with the tables of the filters."""
    found: dict[RelationKey, set[RelationKey]] = {}
    for key in policies.tables():
        for policy in policies.of(key):
            # A subquery needs one of these words. Most filters have none, and need no parser here.
            if not any(word in policy.text.lower() for word in ("from", "table")):
                continue
            for relation in catalog.of_key(key):
                for read in _reads(compiler, policy, relation):
                    found.setdefault(read, set()).add(key)
    return {read: frozenset(keys) for read, keys in found.items()}


def _reads(compiler: FilterCompiler, policy: FilterPolicy, relation: Relation) -> tuple[RelationKey, ...]:
    """Return the tables that a filter reads; none of an unusable filter, which shows no rows."""
    try:
        return compiler.compile(policy, relation, policy.dialect, lambda key: False).reads
    except RewriteRefused:
        return ()
