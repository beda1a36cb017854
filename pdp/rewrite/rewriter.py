"""Rewriter of statements: every reference to a relation with hidden rows is replaced by its visible rows.

The text of the caller stays to the letter, but for the references. A text without such references is returned as it
is. The result is read a second time by other code (`second_reading.py`), which refuses what is not covered.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlglot import exp

from pdp.rewrite.catalog import Catalog, Relation, View
from pdp.rewrite.clauses import COUNTED_SAMPLES, TableClauses
from pdp.rewrite.columns import qualifier_edits
from pdp.rewrite.containers import RelationKey
from pdp.rewrite.ddl import read_policy_statement
from pdp.rewrite.errors import (
    AMBIGUOUS_NAME,
    COPY_NEEDS_FULL_ACCESS,
    HIDDEN_COLUMN,
    MATERIALIZE,
    METADATA_TABLE,
    NO_STORE,
    PARSE_ERROR,
    UNKNOWN_RELATION,
    UNSUPPORTED_SOURCE,
    UNSUPPORTED_STATEMENT,
    WILDCARD_TABLE,
    WRITE_NEEDS_FULL_ACCESS,
    RewriteRefused,
)
from pdp.rewrite.filters import FilterCompiler
from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.lexical import DIALECTS
from pdp.rewrite.lookups import LookupGuard
from pdp.rewrite.messages import PolicyRow, Use
from pdp.rewrite.policies import PolicySet
from pdp.rewrite.policy_listing import policy_source
from pdp.rewrite.projections import NAMED_BY_TEXT, alias_edits
from pdp.rewrite.references import COPY, CREATE, READ, Reference
from pdp.rewrite.restrictions import OWNER, AnalyzedText, Analyzer, Identities, Restrictions, Through
from pdp.rewrite.second_reading import SecondReading
from pdp.rewrite.short_way import ShortWay
from pdp.rewrite.splice import Edit, apply_edits, without_spans
from pdp.rewrite.syntax import quote_name, quote_names
from pdp.rewrite.uses import UseFinder

_LOG: Final = logging.getLogger(__name__)
MAX_REPLACEMENTS: Final = 500
MAX_RESULT: Final = 1_000_000
_TABLE_WORD: Final = re.compile(r"\btable\s+\Z", re.IGNORECASE)
_FULL: Final = 3
"""Parts of a full name."""
_FRESH: Final = "_rap_"
"""Start of generated names."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Statement to execute. `changed` is False if the text is the text of the caller. `uses` are found on demand."""

    sql: str
    changed: bool
    uses: tuple[Use, ...] = ()


class Rewriter:
    """Rewriter for one catalog. `through` names the readers within views with an owner.

    `qualifies`: write full names into the result, for a session of the engine that may have another default.
    """

    def __init__(self, catalog: Catalog, through: Through = OWNER, *, qualifies: bool = False) -> None:
        self._catalog, self._through, self._qualifies = catalog, through, qualifies
        self._analyzer = Analyzer(catalog)
        self._compiler = FilterCompiler(catalog)

    def rewrite(self, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet) -> Rewritten:
        """Return the statement that shows the caller's rows alone; raise RewriteRefused."""
        return self._guarded(self._answer, text, dialect, caller, policies)

    def examine(
        self, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet,
        listed: Sequence[PolicyRow] | None = None,
    ) -> Rewritten:  # fmt: skip
        """Return the same with the uses of relations, which takes the parser for every text; raise RewriteRefused.

        `listed` are the policies that the caller may see in INFORMATION_SCHEMA; None if nobody knows them.
        """
        return self._guarded(partial(self._examine, listed), text, dialect, caller, policies)

    def visible(
        self, parts: Sequence[str], dialect: str, caller: CallerIdentity, policies: PolicySet
    ) -> tuple[str, list[tuple[str, str]]]:
        """Return the filter of a relation, empty for every row, and the masked columns; raise RewriteRefused."""
        restrictions = self._restrictions(dialect, policies)
        relation = self._catalog.named(parts, dialect)
        if relation is None:
            raise RewriteRefused(UNKNOWN_RELATION, f"`{'.'.join(parts)}` is no known table or view")
        part = restrictions.visible(relation, (caller,))
        return part.rows if part else "", restrictions.masked(relation, (caller,))

    def _restrictions(self, dialect: str, policies: PolicySet) -> Restrictions:
        if dialect not in DIALECTS:
            raise RewriteRefused(UNSUPPORTED_STATEMENT, f"the dialect `{dialect}` is not supported")
        return Restrictions(self._analyzer, policies, self._compiler, dialect, self._through)

    def _guarded(
        self, work: Callable[..., Rewritten], text: str, dialect: str, caller: CallerIdentity, policies: PolicySet
    ) -> Rewritten:
        if dialect not in DIALECTS:
            raise RewriteRefused(UNSUPPORTED_STATEMENT, f"the dialect `{dialect}` is not supported")
        try:
            return work(text, dialect, caller, policies)
        except RewriteRefused:
            raise
        except RecursionError:
            raise RewriteRefused(PARSE_ERROR, "the text is nested too deeply") from None
        except Exception as error:  # noqa: BLE001  a text that nobody foresaw is refused; other texts go on
            # Without the message of the error, which can hold values of the text.
            last = traceback.extract_tb(error.__traceback__)[-1]
            _LOG.error("a text is refused for an unforeseen %s in %s", type(error).__name__, last.name)
            raise RewriteRefused(PARSE_ERROR, "the text meets an error of the rewriter") from None

    def _answer(self, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet) -> Rewritten:
        short = policies.memory(self._catalog).short_ways.get(dialect) or self._short_way(dialect, policies)
        if short is not None and short.passes(text):
            return Rewritten(text, changed=False)
        _refuse_policy_statement(text)
        return self._rewrite(text, dialect, caller, policies)

    def _examine(
        self, listed: Sequence[PolicyRow] | None, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet
    ) -> Rewritten:
        _refuse_policy_statement(text)
        return self._rewrite(text, dialect, caller, policies, examined=True, listed=listed)

    def _short_way(self, dialect: str, policies: PolicySet) -> ShortWay | None:
        """Return the short way for policies that stay; None for policies of one request."""
        if policies.is_passing:
            return None
        restrictions = self._restrictions(dialect, policies)
        closed = [relation for relation in self._catalog if _is_closed(relation, restrictions)]
        policies.memory(self._catalog).short_ways[dialect] = found = ShortWay(self._catalog, closed, dialect)
        return found

    def _rewrite(
        self, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet, *, examined: bool = False,
        listed: Sequence[PolicyRow] | None = None,
    ) -> Rewritten:  # fmt: skip
        restrictions = self._restrictions(dialect, policies)
        analyzed = self._analyzer.analyze(text, dialect, self._catalog.default)
        identities = (caller,)
        uses: tuple[Use, ...] = ()
        if examined:
            uses = UseFinder(restrictions, policies).uses(analyzed, identities, self._catalog.default)
        if self._qualifies:
            check_full_names(analyzed)
        reading = SecondReading(self._catalog, dialect, restrictions, identities)
        LookupGuard(self._compiler, self._catalog, policies).check(analyzed.references, restrictions, identities)
        if isinstance(analyzed.parsed.tree, exp.Create):
            _refuse_listing(analyzed)
            is_definition = _check_definition(analyzed, restrictions, identities)
            if is_definition:
                return Rewritten(text, changed=False, uses=uses)
        rendering = _Rendering(restrictions, dialect, qualifies=self._qualifies)
        rendering.listing = partial(policy_source, listed, default=self._catalog.default, dialect=dialect)
        sql = rendering.render(analyzed, identities)
        tree = analyzed.parsed.tree
        reading.verify(tree if sql is text else sql, rendering.sources, type(tree))
        return Rewritten(sql, sql is not text, uses)


def _refuse_policy_statement(text: str) -> None:
    if read_policy_statement(text) is not None:
        raise RewriteRefused(NO_STORE, "row access policies are in files here: no store takes the statement")


def _refuse_listing(analyzed: AnalyzedText) -> None:
    """Raise RewriteRefused for a new relation made of policies: other callers would see them."""
    if any(reference.is_policies for reference in analyzed.references.found):
        raise RewriteRefused(METADATA_TABLE, "row access policies are not copied into tables and views")


def check_full_names(analyzed: AnalyzedText) -> None:
    """Raise RewriteRefused for a short name at a place that keeps the text of the caller."""
    for reference in analyzed.references.found:
        stays = reference.role != READ or reference.is_metadata or len(reference.relations) != 1
        is_definition = isinstance(analyzed.parsed.tree, exp.Create) and analyzed.parsed.tree.args.get("kind") == "VIEW"
        if (stays or is_definition) and len(reference.parts) < _FULL and not reference.is_policies:
            message = f"`{'.'.join(reference.parts)}` needs the catalog and schema here"
            raise RewriteRefused(UNSUPPORTED_SOURCE, message)


def _is_closed(relation: Relation, restrictions: Restrictions) -> bool:
    """Tell whether a relation has policies or reads a relation with policies. A view in doubt is closed."""
    try:
        return restrictions.touches_policies(relation)
    except RewriteRefused:
        return True


def _check_definition(analyzed: AnalyzedText, restrictions: Restrictions, identities: Identities) -> bool:
    """Tell whether a CREATE defines a view, with a text to keep; raise RewriteRefused for other definitions.

    A stored text must not hold the caller's filter. The new view is unknown until the catalog has its text.
    """
    tree = analyzed.parsed.tree
    properties = tree.args.get("properties")
    kinds = {type(part) for part in properties.expressions} if properties else set()
    found = analyzed.references.found
    if exp.MaterializedProperty in kinds:
        if any(_is_restricted(reference, restrictions, identities) for reference in found):
            raise RewriteRefused(MATERIALIZE, "a materialized view of hidden rows needs a policy with TRUE")
        return False
    if tree.args.get("kind") != "VIEW":
        return False
    target = next(reference for reference in found if reference.role == CREATE)
    is_lasting = not kinds & {exp.TemporaryProperty, exp.GlobalProperty} and not target.relations
    if not is_lasting and any(restrictions.is_protected(reference) for reference in found):
        message = "a view of a table with policies must be new and must not be temporary"
        raise RewriteRefused(UNSUPPORTED_STATEMENT, message)
    return True


def _is_restricted(reference: Reference, restrictions: Restrictions, identities: Identities) -> bool:
    return any(restrictions.is_restricted(relation, identities) for relation in reference.relations)


class _Rendering:
    """Texts of one rewriting. The number of replacements and the size of the result are bounded."""

    def __init__(self, restrictions: Restrictions, dialect: str, *, qualifies: bool = False) -> None:
        self._restrictions, self._dialect, self._qualifies = restrictions, dialect, qualifies
        self._replacements = 0
        self.sources: list[str] = []
        """Sources of the outermost text, each in brackets."""
        self.listing: Callable[..., str] = partial(policy_source, None, default=(), dialect=dialect)

    def render(self, analyzed: AnalyzedText, identities: Identities, above: tuple[RelationKey, ...] = ()) -> str:
        """Return the text with all references replaced; the same text if none needs to be."""
        text = analyzed.parsed.text
        edits: list[Edit] = []
        wrapped: dict[int, str] = {}
        for reference in analyzed.references.found:
            if reference.is_policies:
                listed: str = self.listing(parts=reference.parts)
                self.sources.append(listed)
                edits += self._wrap(reference, listed, analyzed, wrapped)
                continue
            self._check_use(reference, identities)
            if reference.role == READ and not reference.is_metadata:
                source = self._source(reference, text, identities, above)
                if source is not None:
                    if not above:
                        self.sources.append(source)
                    edits += self._wrap(reference, source, analyzed, wrapped)
                elif above or (self._qualifies and len(reference.relations) == 1):
                    name = quote_names(reference.relations[0].name, self._dialect)
                    edits.append(Edit(reference.start, reference.end, name))
        if wrapped:
            _check_hidden(analyzed)
            edits += qualifier_edits(analyzed.references, wrapped)
        if above:
            edits += without_spans(text, analyzed.parsed.lexical.comments)
        return apply_edits(text, edits) if edits else text

    def _check_use(self, reference: Reference, identities: Identities) -> None:
        """Raise RewriteRefused for a use of a relation with hidden rows that no filter can cover."""
        if reference.role == READ and not reference.is_metadata and len(reference.relations) == 1:
            return
        if not _is_restricted(reference, self._restrictions, identities):
            return
        name = ".".join(reference.parts)
        if reference.is_metadata:
            raise RewriteRefused(METADATA_TABLE, f"`{name}` shows values of hidden rows")
        if reference.role == READ:
            raise RewriteRefused(WILDCARD_TABLE, f"a table of `{name}` has hidden rows")
        if reference.role == COPY:
            raise RewriteRefused(COPY_NEEDS_FULL_ACCESS, f"a copy of `{name}` needs a policy with TRUE")
        raise RewriteRefused(WRITE_NEEDS_FULL_ACCESS, f"a change of `{name}` needs a policy with TRUE")

    def _source(
        self, reference: Reference, text: str, identities: Identities, above: tuple[RelationKey, ...]
    ) -> str | None:
        """Return the text in place of a reference; None if the reference stays."""
        relation, *others = reference.relations
        if others:
            return None
        part = self._restrictions.visible(relation, identities)
        view = relation.view
        expanded = view is not None and self._restrictions.is_expanded(relation, view, identities, above)
        if part is None and not expanded:
            return None
        self._replacements += 1
        if self._replacements > MAX_REPLACEMENTS:
            raise RewriteRefused(PARSE_ERROR, f"more than {MAX_REPLACEMENTS} references are to be replaced")
        if view is not None and expanded:
            source = self._expand(reference, relation, view, identities, above)
            if part is None:
                return source
            source = f"{source} AS {quote_name(relation.name[-1], self._dialect)}"
        else:
            name = text[reference.start : reference.end]
            if above or self._qualifies:
                name = quote_names(relation.name, self._dialect)
            clauses = TableClauses(reference.node, text, reference.end)
            if part and clauses.counts_rows and self._dialect in COUNTED_SAMPLES:
                return f"(SELECT * FROM ({part.query(f'{name}{clauses.travel}')}){clauses.sample})"  # noqa: S608
            source = f"{name}{clauses.travel}{clauses.sample}"
        return f"({part.query(source)})" if part else source

    def _expand(
        self,
        reference: Reference,
        relation: Relation,
        view: View,
        identities: Identities,
        above: tuple[RelationKey, ...],
    ) -> str:
        """Return the text of a view as a subquery, with the filters of whom the view runs for."""
        name = ".".join(relation.name)
        if reference.node.args.get("version") or reference.node.args.get("when"):
            raise RewriteRefused(UNSUPPORTED_SOURCE, f"`{name}` is a view: a view has no old versions")
        body = self._restrictions.body(relation, view, above)
        inner = self._restrictions.inside(relation, view, identities)
        text = self.render(body, inner, (*above, relation.key)).strip(" \t\r\n;")
        if len(text) > MAX_RESULT:
            raise RewriteRefused(PARSE_ERROR, "the text of the views is too long")
        if not view.columns:
            return f"({text})"
        return self._renamed(text, body.parsed.tree, view.columns, relation.name[-1])

    def _renamed(self, text: str, tree: exp.Expr, columns: Sequence[str], name: str) -> str:
        quoted = [quote_name(column, self._dialect) for column in columns]
        if self._dialect != "bigquery":
            return f"(SELECT * FROM ({text}) AS {quote_name(name, self._dialect)} ({', '.join(quoted)}))"  # noqa: S608
        names = tree.named_selects if isinstance(tree, exp.Query) else []
        if len(names) != len(columns) or not all(names) or "*" in names or len(set(names)) != len(names):
            raise RewriteRefused(UNSUPPORTED_SOURCE, f"the columns of `{name}` have no certain names")
        pairs = (f"{quote_name(old, self._dialect)} AS {new}" for old, new in zip(names, quoted, strict=True))
        return f"(SELECT {', '.join(pairs)} FROM ({text}))"  # noqa: S608

    def _wrap(self, reference: Reference, source: str, analyzed: AnalyzedText, wrapped: dict[int, str]) -> list[Edit]:
        """Return the edits that put a source in place of a reference. `wrapped` notes the new name of the source."""
        node, parsed = reference.node, analyzed.parsed
        edits: list[Edit] = []
        start = reference.start
        is_table = bool(reference.relations) and reference.relations[0].view is None
        if reference.is_policies and any(map(node.args.get, ("version", "when", "sample"))):
            raise RewriteRefused(UNSUPPORTED_SOURCE, f"a clause after `{node.name}` is not supported")
        if is_table:
            spans = TableClauses(node, parsed.text, reference.end).spans
            edits += without_spans(parsed.text, spans)
        table = _TABLE_WORD.search(parsed.lexical.bare, 0, start)
        if table:
            start = table.start()
            source = f"SELECT * FROM {source}"  # noqa: S608
        alias = ""
        if not reference.alias and not node.args.get("pivots") and not isinstance(node.parent, exp.Pivot):
            alias = self._alias(reference, analyzed)
            wrapped[id(reference)] = alias
            alias = f" AS {alias}"
        else:
            wrapped[id(reference)] = ""
        edits.append(Edit(start, reference.end, f"{source}{alias}"))
        if self._dialect in NAMED_BY_TEXT:
            edits += alias_edits(node, reference.start, parsed.lexical.bare, _fresh(parsed.text, "column_"))
        return edits

    def _alias(self, reference: Reference, analyzed: AnalyzedText) -> str:
        """Return the name of a wrapped source: its own, or a new one where another source has the same."""
        namesakes = analyzed.references.namesakes(reference)
        if namesakes:
            same = [other for other in analyzed.references.found if other.relations == reference.relations]
            if any(other.node is node for other in same for node in namesakes):
                name = ".".join(reference.parts)
                raise RewriteRefused(AMBIGUOUS_NAME, f"`{name}` stands twice in one query: give it an alias")
            return f"{_fresh(analyzed.parsed.text, '')}{reference.start}"
        last = reference.node.parts[-1]
        if isinstance(last, exp.Identifier) and not last.quoted:
            return last.name
        return quote_name(reference.parts[-1], self._dialect)


def _fresh(text: str, kind: str) -> str:
    """Return the start of a name that a text does not contain."""
    name = f"{_FRESH}{kind}"
    while name in text.lower():
        name = f"_{name}"
    return name


def _check_hidden(analyzed: AnalyzedText) -> None:
    """Raise RewriteRefused if a text names a hidden column that no table of the text declares."""
    if not analyzed.references.hidden:
        return
    known = {
        column
        for reference in analyzed.references.found
        for relation in reference.relations
        for column in relation.columns
    }
    hidden = next((name for name in analyzed.references.hidden if name not in known), None)
    if hidden:
        raise RewriteRefused(HIDDEN_COLUMN, f"`{hidden}` shows where rows are stored, and a table here has hidden rows")
