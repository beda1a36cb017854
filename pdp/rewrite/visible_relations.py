"""Visible parts of relations, through views as well, for the users of a statement.

One object lives for one rewriting. Views are looked through at every level, with bounds on depth and number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from sqlglot import exp

from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policy_set import Mask, Policy, PolicySet
from pdp.rewrite.binding import ROW, Form
from pdp.rewrite.catalog import Catalog, Relation, RelationKey, View, full_name, key_name
from pdp.rewrite.errors import (
    METADATA_TABLE,
    UNSUPPORTED_SOURCE,
    VIEW_CYCLE,
    VIEW_DEPTH,
    RewriteRefused,
)
from pdp.rewrite.fast_ways import CatalogMemories
from pdp.rewrite.filters import NO_ROWS, FilterCompiler, FilterText, known_columns
from pdp.rewrite.functions import SiteFunctions
from pdp.rewrite.identity import CallerIdentity, owner_identity
from pdp.rewrite.mentions import MentionWalk, TableMention, TableMentions
from pdp.rewrite.printed_masks import MaskCompiler
from pdp.rewrite.readings import check_readings
from pdp.rewrite.session_functions import UserPlace, user_places
from pdp.rewrite.sql import ParsedText

MAX_VIEW_DEPTH: Final = 8
ThroughViews: TypeAlias = Literal["owner", "caller", "both"]


@dataclass(frozen=True, slots=True)
class Through:
    """Readers within views with an owner, by container. `default` is for all other containers.

    `members` find the user behind an owner; without, an owner is a member and no user.
    """

    default: ThroughViews = "owner"
    warehouses: Mapping[str, ThroughViews] = field(default_factory=dict)
    members: Members | None = None

    def of(self, view: Relation) -> ThroughViews:
        """Return the readers within a view, by the warehouse of the view."""
        return self.warehouses.get(view.name[0], self.default) if self.warehouses else self.default

    def owner(self, member: str) -> CallerIdentity:
        """Return the reader behind an IAM member, whose groups and roles are unknown."""
        return owner_identity(member, self.members)


OWNER: Final = Through()
Identities: TypeAlias = tuple[CallerIdentity, ...]
"""Those whom a part of a statement runs for. A row is visible if each of them sees the row."""


@dataclass(frozen=True, slots=True)
class VisiblePart:
    """Visible part of a relation as SQL: a condition of the rows, empty for every row, and the columns.

    `row` is the name of the source, if the condition or the columns are qualified.
    """

    rows: str
    columns: str = "*"
    row: str = ""

    def named(self, row: str) -> VisiblePart:
        """Return the same part with another name of the source, if the source has a name."""
        if not self.row:
            return self
        return VisiblePart(self.rows.replace(self.row, row), self.columns.replace(self.row, row), row)

    def query(self, source: str) -> str:
        """Return the query for the visible part of a source, which gives itself the name of the row."""
        where = f" WHERE {self.rows}" if self.rows else ""
        return f"SELECT {self.columns} FROM {source}{where}"  # noqa: S608  parts that are parsed or quoted


@dataclass(frozen=True, slots=True, eq=False)
class AnalyzedText:
    """Text with tree and references: the same for every caller. `users` are the places of the user's name."""

    parsed: ParsedText
    references: TableMentions
    users: tuple[UserPlace, ...] = ()


class Analyzer:
    """Analyses of texts, and compiled masks. Those of views are remembered, because a view's text rarely changes."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.masks, self.memories = MaskCompiler(catalog), CatalogMemories()
        self._views: dict[tuple[View, RelationKey, str], AnalyzedText] = {}

    def analyze(
        self, text: str, dialect: str, default: tuple[str, ...], functions: SiteFunctions | None = None
    ) -> AnalyzedText:
        """Return the analysis of a statement, which may call functions; raise RewriteRefused."""
        parsed = ParsedText(text, dialect, statement=True)
        check_readings(parsed, dialect)
        mentions = MentionWalk(self.catalog, dialect, default, functions).walk(parsed)
        return AnalyzedText(parsed, mentions, user_places(parsed, dialect, mentions))

    def view(self, relation: Relation, view: View, dialect: str) -> AnalyzedText:
        """Return the analysis of the text of a view; raise RewriteRefused for a text that is no query."""
        key = (view, relation.key, dialect)
        found = self._views.get(key)
        if found is None:
            name = ".".join(relation.name)
            if view.problem:
                raise RewriteRefused(UNSUPPORTED_SOURCE, f"`{name}` cannot be used: {view.problem}")
            if view.dialect and view.dialect != dialect:
                raise RewriteRefused(UNSUPPORTED_SOURCE, f"the text of `{name}` is in another dialect")
            parsed = ParsedText(view.sql, dialect, statement=True)
            check_readings(parsed, dialect)
            mentions = MentionWalk(self.catalog, dialect, relation.text_schema).walk(parsed)
            found = AnalyzedText(parsed, mentions, user_places(parsed, dialect, mentions, is_view=True))
            if not isinstance(found.parsed.tree, exp.Query):
                raise RewriteRefused(UNSUPPORTED_SOURCE, f"the text of `{name}` is no query")
            if any(reference.is_policies for reference in found.references.found):
                raise RewriteRefused(METADATA_TABLE, f"the text of `{name}` reads row access policies")
            self._views[key] = found
        return found


class VisibleRelations:
    """Restrictions within one rewriting. The groups of an owner of a view are unknown."""

    def __init__(
        self, analyzer: Analyzer, policies: PolicySet, compiler: FilterCompiler, dialect: str, through: Through
    ) -> None:
        self._analyzer, self._policies, self._compiler = analyzer, policies, compiler
        self._dialect, self._through = dialect, through
        self._filters = analyzer.memories.of(policies).filters
        self._parts: dict[tuple[RelationKey, Identities, Form], VisiblePart | None] = {}
        self._views: dict[tuple[RelationKey, Identities], bool] = {}
        self._owners: dict[str, CallerIdentity] = {}
        self._readers: dict[Identities, None] = {}

    @property
    def dialect(self) -> str:
        """Return the dialect of the statement."""
        return self._dialect

    def visible(
        self, relation: Relation, identities: Identities, form: Form = "qualified"
    ) -> VisiblePart | None:  # fmt: skip
        """Return the visible part of a relation by its own policies and masks; None for everything."""
        if not self._policies.hides(relation.key):
            return None
        known = (relation.key, identities, form)
        if known not in self._parts:
            rows = self._rows(relation, identities, form)
            if form == "plain" and ROW in rows:
                return self.visible(relation, identities)  # one filter names the row, so all columns do
            columns = self._columns(relation, identities, form)
            row = ROW if ROW in rows or ROW in columns else ""
            self._parts[known] = VisiblePart(rows, columns, row) if rows or columns != "*" else None
        return self._parts[known]

    def _rows(self, relation: Relation, identities: Identities, form: Form) -> str:
        """Return the filter of a relation's own policies; empty for every row."""
        if not self._policies.protects(relation.key):
            return ""
        parts = [part for identity in identities if (part := self._rows_of(relation, identity, form)) is not None]
        parts = list(dict.fromkeys(parts))
        return parts[0] if len(parts) == 1 else " AND ".join(f"({part})" for part in parts)

    def _columns(self, relation: Relation, identities: Identities, form: Form) -> str:
        """Return the columns of a relation with their masks: a column is masked if any reader has a mask."""
        held = self._held(relation, identities)
        if not held:
            return "*"
        return self._analyzer.masks.columns(relation, held, self._types(relation), self._dialect, form)

    def masked(self, relation: Relation, identities: Identities) -> list[tuple[str, str]]:
        """Return the masked columns of a relation, each with the expression in place of the column."""
        held = self._held(relation, identities)
        if not held:
            return []
        return self._analyzer.masks.expressions(relation, held, self._types(relation), self._dialect)

    def _held(self, relation: Relation, identities: Identities) -> dict[str, tuple[Mask, CallerIdentity]]:
        held: dict[str, tuple[Mask, CallerIdentity]] = {}
        for column, masks in self._policies.of(relation.key).masks.items():
            found = [(mask.for_reader(reader), reader) for reader in identities for mask in masks if mask.holds(reader)]
            if found:
                held[column] = min(found, key=lambda pair: self._rank(pair[0]))
        return held

    def _rank(self, mask: Mask) -> tuple[int, bool, str]:
        """Return the place among the masks of a column: of equal kinds, one in this dialect comes first."""
        kind, id = mask.rank
        return kind, mask.kind == "expression" and mask.dialect != self._dialect, id

    def _types(self, relation: Relation) -> dict[str, str]:
        """Return the types of the columns of a relation by name, as the catalog spells the names."""
        types = known_columns(relation, self._dialect)
        return {name: types.get(name.lower(), "") for name in relation.spelled or types}

    def _rows_of(self, relation: Relation, identity: CallerIdentity, form: Form) -> str | None:
        """Return the filter for one reader, as the policies remember it; None for every row."""
        key = (relation.name, self._dialect, form, identity.key)
        memo = self._filters
        if key not in memo:
            memo.keep(key, self._find_rows(relation, identity, form))
        return memo[key]

    def _find_rows(self, relation: Relation, identity: CallerIdentity, form: Form) -> str | None:
        texts = self._usable(self._policies.of(relation.key).matching(identity), relation)
        caller, dialect, hides = identity.values, self._dialect, self._policies.hides
        if not texts:
            return NO_ROWS
        shown = [] if any(text.everything for text in texts) else [text.bind(caller, dialect, form) for text in texts]
        limits = [
            self._compiler.compile(policy, relation, dialect, hides)
            for policy in self._policies.of(relation.key).limiting(identity)
        ]
        needed = [text.bind(caller, dialect, form) for text in limits if not text.everything]
        parts = [*([_joined(shown, "OR")] if shown else []), *needed]
        return _joined(parts, "AND") if parts else None

    def _usable(self, matching: Sequence[Policy], relation: Relation) -> list[FilterText]:
        """Return the filters of policies. One of another dialect without a meaning here adds no row beside others.

        Raise RewriteRefused for an unusable filter in this dialect, and if no filter is usable.
        """
        hides: Callable[[RelationKey], bool] = self._policies.hides
        texts, refusal = list[FilterText](), None
        for policy in matching:
            try:
                texts.append(self._compiler.compile(policy, relation, self._dialect, hides))
            except RewriteRefused as error:
                if policy.dialect == self._dialect:
                    raise
                refusal = refusal or error
        if refusal is not None and not texts:
            raise refusal
        return texts

    def hides_name(self, parts: Sequence[str]) -> bool:
        """Tell whether a name, known or not, could be that of a relation with hidden rows or columns."""
        catalog, policies = self._analyzer.catalog, self._policies
        key = catalog.key(full_name(parts, catalog.default))
        known = catalog.of_key(key)
        return (
            key in policies.tables
            or policies.is_near(key)
            or (bool(known) and (policies.hides(key) or any(map(self.touches_policies, known))))
        )

    def is_protected(self, reference: TableMention) -> bool:
        """Tell whether a relation, or a relation behind a view, has policies or masks at all."""
        return bool(reference.wildcard) or any(self.touches_policies(relation) for relation in reference.relations)

    def touches_policies(self, relation: Relation, above: tuple[RelationKey, ...] = ()) -> bool:
        """Tell whether a relation, or a relation behind a view, has policies, masks or the user's name.

        Raise RewriteRefused for a view that cannot be looked through.
        """
        if self._policies.hides(relation.key):
            return True
        if relation.view is None:
            return False
        body = self.body(relation, relation.view, above)
        return bool(body.users) or any(
            bool(reference.wildcard) or self.touches_policies(inner, (*above, relation.key))
            for reference in body.references.found
            for inner in reference.relations
        )

    def is_restricted(self, relation: Relation, identities: Identities, above: tuple[RelationKey, ...] = ()) -> bool:
        """Tell whether any row or column of a relation, or of a relation behind a view, can be hidden."""
        if self.visible(relation, identities) is not None:
            return True
        return relation.view is not None and self.is_expanded(relation, relation.view, identities, above)

    def is_restricted_reference(self, reference: TableMention, identities: Identities) -> bool:
        """Tell whether any relation of a reference is restricted, or can be behind the wildcard of the name."""
        if self._hides_behind(reference, identities):
            return True
        return any(self.is_restricted(relation, identities) for relation in reference.relations)

    def _hides_behind(self, reference: TableMention, readers: Identities) -> bool:
        """Tell whether a table that nobody has described may hide rows behind the wildcard of a reference."""
        known = {relation.key for relation in reference.relations}
        return bool(reference.wildcard) and self._policies.may_hide_behind(reference.wildcard, known, readers)

    def is_expanded(
        self, relation: Relation, view: View, identities: Identities, above: tuple[RelationKey, ...] = ()
    ) -> bool:
        """Tell whether the text of a view reads hidden rows or the user's name. The whole text is looked through."""
        body = self.body(relation, view, above)
        known = (relation.key, identities)
        if above or known not in self._views:
            inner = self.inside(relation, view, identities)
            within = (*above, relation.key)
            # Lists: errors anywhere in the text count, also behind a restricted relation.
            hidden = [self._hides_behind(reference, inner) for reference in body.references.found]
            inside = [found for reference in body.references.found for found in reference.relations]
            self._views[known] = True in [
                bool(body.users),
                *hidden,
                *(self.is_restricted(one, inner, within) for one in inside),
            ]
        return self._views[known]

    def body(self, relation: Relation, view: View, above: tuple[RelationKey, ...]) -> AnalyzedText:
        """Return the analyzed text of a view; raise RewriteRefused beyond the depth, and for a cycle."""
        if relation.key in above:
            raise RewriteRefused(VIEW_CYCLE, f"the view `{'.'.join(relation.name)}` reads itself")
        found = self._analyzer.view(relation, view, self._dialect)
        if len(above) >= MAX_VIEW_DEPTH:
            self._refuse_depth(found, (*above, relation.key))
        return found

    def _refuse_depth(self, found: AnalyzedText, above: tuple[RelationKey, ...]) -> None:
        """Raise RewriteRefused for a cycle if the next view closes one, else for the depth."""
        names = {relation.key for reference in found.references.found for relation in reference.relations}
        if not names.isdisjoint(above):
            raise RewriteRefused(VIEW_CYCLE, f"the view `{key_name(above[-1])}` reads itself")
        raise RewriteRefused(VIEW_DEPTH, f"views are nested deeper than {MAX_VIEW_DEPTH}")

    def inside(self, relation: Relation, view: View, identities: Identities) -> Identities:
        """Return the readers within a view. A view without an owner runs for the reader of the view."""
        through = self._through.of(relation)
        if through == "caller" or not view.owner:
            return identities
        owner = self._owners.setdefault(view.owner, self._through.owner(view.owner))
        readers = (owner,) if through == "owner" else tuple(dict.fromkeys((*identities, owner)))
        self._readers[readers] = None
        return readers

    def readers(self, identities: Identities) -> tuple[Identities, ...]:
        """Return the readers of all parts of the statement, the caller first."""
        return tuple({identities: None, **self._readers})


def _joined(filters: Sequence[str], word: str) -> str:
    """Return different filters as one condition."""
    texts = tuple(dict.fromkeys(filters))
    return texts[0] if len(texts) == 1 else f" {word} ".join(f"({text})" for text in texts)
