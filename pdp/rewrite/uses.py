"""Uses of relations by a statement: what is read or changed, for whom, and by which policies. For rights and records.

Goes through the texts of views as the rewriter does: behind a view with an owner the owner reads.

A change of a table can change the rows of a filter that reads the table. A filter without a resolution in one catalog
may be in use with another caller's. So an unresolved filter guards every table with a name from the filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias

from msgspec.structs import replace
from sqlglot import exp

from pdp.engines.row_access.policy_set import Policy, PolicySet
from pdp.model.references import DETACHED
from pdp.rewrite.catalog import Catalog, Relation, RelationKey, full_name
from pdp.rewrite.errors import UNSUPPORTED_SOURCE, WRITE_NEEDS_FULL_ACCESS, RewriteRefused
from pdp.rewrite.filters import FilterCompiler
from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.mentions import CREATE, READ, WRITE, TableMention, TableMentions
from pdp.rewrite.process.messages import RelationUse
from pdp.rewrite.visible_relations import AnalyzedText, Identities, VisibleRelations

REPLACE: Final = "replace"
"""Role of a known relation that the statement creates anew."""
Spellings: TypeAlias = tuple[tuple[str, ...], ...]
"""Full names."""


class UseFinder:
    """Search for the uses of one statement."""

    def __init__(self, restrictions: VisibleRelations, policies: PolicySet, compiler: FilterCompiler) -> None:
        self._restrictions, self._policies, self._compiler = restrictions, policies, compiler

    def uses(self, analyzed: AnalyzedText, identities: Identities, default: tuple[str, ...]) -> tuple[RelationUse, ...]:
        """Return the uses of a statement, each once; raise RewriteRefused for an unusable text of a view.

        The refusal has the uses up to that view.
        """
        found: dict[RelationUse, dict[tuple[str, ...], None]] = {}
        try:
            for use, spellings in self._uses(analyzed, identities, "", ()):
                found.setdefault(use, {}).update(dict.fromkeys(spellings))
        except RewriteRefused as error:
            error.uses = self._listed(found, analyzed, default)
            raise
        return self._listed(found, analyzed, default)

    def _listed(
        self, found: dict[RelationUse, dict[tuple[str, ...], None]], analyzed: AnalyzedText, default: tuple[str, ...]
    ) -> tuple[RelationUse, ...]:
        """Return the uses of known relations with their spellings, and those of new relations."""
        is_view = analyzed.parsed.tree.args.get("kind") == "VIEW"
        known = [
            replace(use, spellings=tuple(some), makes_view=is_view and use.role == REPLACE)
            for use, some in found.items()
        ]
        new = [
            RelationUse(full_name(reference.parts, default), reference.role, is_view, makes_view=is_view)
            for reference in analyzed.references.found
            if not reference.relations and not reference.is_policies
        ]
        return (*known, *new)

    def _uses(
        self, analyzed: AnalyzedText, identities: Identities, owner: str, above: tuple[RelationKey, ...]
    ) -> Iterator[tuple[RelationUse, Spellings]]:
        """Yield each use with other spellings of the name."""
        for reference in analyzed.references.found:
            for relation in reference.relations:
                spellings = _spellings(relation.name, reference.parts) if relation.is_listed else ()
                use = self._use(relation, reference.role, identities, owner)
                yield replace(use, ref=_named_ref(reference.node)), spellings
                is_read = reference.returns_rows or _reads_rows(reference)
                if reference.role == READ or is_read:
                    yield from ((use, ()) for use in self.of_filters(relation, identities))
                if is_read:
                    yield self._use(relation, READ, identities, owner), ()
                view = relation.view
                if view is not None and reference.role == READ:
                    body = self._restrictions.body(relation, view, above)
                    inside = self._restrictions.inside(relation, view, identities)
                    yield from self._uses(body, inside, view.owner or owner, (*above, relation.key))

    def of_filters(self, relation: Relation, identities: Identities) -> Iterator[RelationUse]:
        """Yield the uses by stored filters of a relation: authors need the right to what their filters read."""
        for reader in identities:
            for policy in self._counting(relation, reader):
                if policy.author:
                    for read in self._compiler.relations_read(policy, relation):
                        is_view, author = read.view is not None, policy.author
                        yield RelationUse(read.name, READ, is_view, author=author, person=policy.person)

    def _counting(self, relation: Relation, reader: CallerIdentity) -> list[Policy]:
        """Return the policies of a relation that count for a reader, those that show rows first."""
        known = self._policies.of(relation.key)
        return [*known.matching(reader), *known.limiting(reader)]

    def _use(self, relation: Relation, role: str, identities: Identities, owner: str) -> RelationUse:
        key = relation.key
        matching = [policy.id for reader in identities for policy in self._counting(relation, reader)]
        every = [mask for masks in self._policies.of(key).masks.values() for mask in masks]
        held = [mask.id for reader in identities for mask in every if mask.holds(reader)]
        return RelationUse(
            relation.name, REPLACE if role == CREATE else role, relation.view is not None, owner,
            tuple(dict.fromkeys(matching)), tuple(dict.fromkeys(held)),
        )  # fmt: skip


def _named_ref(table: exp.Expression) -> str:
    """Return the branch or tag of a table's old version, DETACHED for a snapshot; empty for the default ref.

    A time is one of the default ref. Raise RewriteRefused for an expression: nobody knows which version it names.
    """
    version: Any = table.args.get("version") or table.args.get("when")
    if version is None or "VERSION" not in (version.text("this"), version.text("kind")):
        return ""
    value = version.expression
    if not isinstance(value, exp.Literal):
        raise RewriteRefused(UNSUPPORTED_SOURCE, f"a version of `{table.name}` must be a number or a text")
    return value.name if value.is_string and not value.name.isdecimal() else DETACHED


def _reads_rows(reference: TableMention) -> bool:
    """Tell whether a change reads the rows that it changes: ON, or a column in a condition or in a new value."""
    if reference.role != WRITE:
        return False
    at = reference.node.parent
    change = at.parent if isinstance(at, exp.Schema) else at
    if not isinstance(change, (exp.Update, exp.Delete, exp.Insert)):
        return isinstance(change, exp.Merge)
    values = [one.expression for one in change.expressions] if isinstance(change, exp.Update) else []
    parts = [change.args.get("where"), change.args.get("conflict"), *values]
    return any(isinstance(part, exp.Expr) and part.find(exp.Column) for part in parts)


def _spellings(name: tuple[str, ...], written: Sequence[str]) -> Spellings:
    """Return the other names that an engine may look up: as written, and in lower case."""
    text, own = ".".join(written), ".".join(name)
    end = own[-len(text) :]
    spelled = own[: -len(text)] + text if text.lower() == end.lower() else own
    paths = [_divided(spelled, name)[1:], tuple(part.lower() for part in name[1:])]
    return tuple((name[0], *path) for path in dict.fromkeys(paths) if path != name[1:])


def _divided(text: str, name: Sequence[str]) -> tuple[str, ...]:
    """Return a text as the parts of a name of the same lengths."""
    ends = list(accumulate(len(part) + 1 for part in name))
    return tuple(text[end - len(part) - 1 : end - 1] for part, end in zip(name, ends, strict=True))


_PLAIN: Final = re.compile(r"\w+")
_WORDS_OF_QUERIES: Final = ("from", "table")
"""A subquery needs one of these words."""


class LookupTables:
    """Guard of the tables that filters read, for one catalog and one set of policies."""

    def __init__(self, compiler: FilterCompiler, catalog: Catalog, policies: PolicySet) -> None:
        self._compiler, self._catalog, self._policies = compiler, catalog, policies

    def check(self, references: TableMentions, visible: VisibleRelations, identities: Identities) -> None:
        """Raise RewriteRefused for a change of a table that filters read, without all rows of the filtered tables."""
        for reference in references.found:
            if reference.role in (WRITE, CREATE):
                self._check(reference, visible, identities)

    def _check(self, reference: TableMention, visible: VisibleRelations, identities: Identities) -> None:
        written = {relation.key for relation in reference.relations}
        for table, policy in self._mentioning(reference.parts[-1]):
            relations = self._catalog.of_key(table)
            reads = self._reads(relations, policy)
            if reads is None:
                is_hidden = not self._policies.shows_all(table, identities)
            else:
                is_read = not written.isdisjoint(reads)
                is_hidden = is_read and any(visible.is_restricted(relation, identities) for relation in relations)
            if is_hidden:
                message = f"filters read `{reference.parts[-1]}`: a change needs all rows of the filtered tables"
                raise RewriteRefused(WRITE_NEEDS_FULL_ACCESS, message)

    def _mentioning(self, name: str) -> Iterator[tuple[RelationKey, Policy]]:
        """Yield the policies whose filters have a subquery and a name. All others need no parser here."""
        folded = name.lower() if _PLAIN.fullmatch(name) else ""
        for key, table in self._policies.tables.items():
            for policy in table.policies:
                text = policy.text.lower()
                if folded in text and any(word in text for word in _WORDS_OF_QUERIES):
                    yield key, policy

    def _reads(self, relations: Sequence[Relation], policy: Policy) -> Sequence[RelationKey] | None:
        """Return the tables that a filter reads; None for a filter that this catalog cannot resolve."""
        reads: list[RelationKey] = []
        for relation in relations:
            try:
                reads += self._compiler.compile(policy, relation, policy.dialect, lambda key: False).reads
            except RewriteRefused:
                return None
        return reads if relations else None
