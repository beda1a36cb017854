"""Rewriter of statements: every reference to a relation with hidden rows is replaced by its visible rows.

The text of the caller stays to the letter, but for the references. A text without such references is returned as it
is. The result is read a second time by other code (`second_reading.py`), which refuses what is not covered.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from sqlglot import exp

from pdp.engines.row_access.policy_set import PolicySet
from pdp.facts.objects import RowPolicy
from pdp.rewrite.catalog import Catalog, Relation, full_name
from pdp.rewrite.errors import (
    AMBIGUOUS_NAME,
    MATERIALIZE,
    METADATA_TABLE,
    NO_STORE,
    PARSE_ERROR,
    UNKNOWN_RELATION,
    UNSUPPORTED_FUNCTION,
    UNSUPPORTED_SOURCE,
    UNSUPPORTED_STATEMENT,
    RewriteRefused,
)
from pdp.rewrite.fast_ways import FastPass, FastVerification
from pdp.rewrite.filters import FilterCompiler
from pdp.rewrite.functions import SiteFunctions
from pdp.rewrite.guards import BARRIERS, DuckdbJudge
from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.mentions import CREATE, READ, MentionWalk
from pdp.rewrite.policy_statements import is_policy_statement, policy_source, read_policy_statement
from pdp.rewrite.process.messages import DIALECTS, RelationUse
from pdp.rewrite.readings import check_readings
from pdp.rewrite.rendering import Rendering, TextLevel
from pdp.rewrite.session_functions import user_places
from pdp.rewrite.sql import LexicalText, ParsedText, check_substitution
from pdp.rewrite.uses import LookupTables, UseFinder
from pdp.rewrite.verification import Verification
from pdp.rewrite.visible_relations import (
    OWNER,
    AnalyzedText,
    Analyzer,
    Identities,
    Through,
    VisibleRelations,
)

_LOG: Final = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_FULL: Final = 3
"""Parts of a full name."""


@dataclass(frozen=True, slots=True)
class RewrittenStatement:
    """Statement to execute. `changed` is False if the text is the text of the caller. `uses` are found on demand."""

    sql: str
    changed: bool
    uses: tuple[RelationUse, ...] = ()


class Rewriter:
    """Rewriter for one catalog. `through` names the readers within views with an owner.

    `qualifies`: write full names into the result, for a session of the engine that may have another default. `barriers`
    are the dialects whose sources get a barrier. `judge` reads each result for DuckDB again.
    """

    def __init__(
        self, catalog: Catalog, through: Through = OWNER, *, qualifies: bool = False,
        barriers: Collection[str] = tuple(BARRIERS), judge: DuckdbJudge | None = None,
    ) -> None:  # fmt: skip
        self._catalog, self._through, self._qualifies = catalog, through, qualifies
        self._barriers, self._judge = barriers, judge
        self._analyzer = Analyzer(catalog)
        self._compiler = FilterCompiler(catalog)

    def rewrite(self, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet) -> RewrittenStatement:
        """Return the statement that shows the caller's rows alone; raise RewriteRefused."""
        return self._guarded(self._answer, text, dialect, caller, policies)

    def examine(
        self, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet,
        listed: Sequence[RowPolicy] | None = None,
    ) -> RewrittenStatement:  # fmt: skip
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
        part = restrictions.visible(relation, (caller,), "author")
        rows, masked = part.rows if part else "", restrictions.masked(relation, (caller,))
        for text in (rows, *(sql for _, sql in masked)):
            check_substitution(text, dialect)
        return rows, masked

    def filter(
        self, parts: Sequence[str], dialect: str, caller: CallerIdentity, policies: PolicySet
    ) -> tuple[str, list[tuple[str, str]]]:
        """Return the filter and masks that make a query on a relation show the visible rows; raise RewriteRefused.

        No filter on a view can hide rows of the tables behind the view, so such a view is refused.
        """
        found = self.visible(parts, dialect, caller, policies)
        relation = self._catalog.named(parts, dialect)
        if relation is not None and relation.view is not None:
            restrictions = self._restrictions(dialect, policies)
            if restrictions.is_expanded(relation, relation.view, (caller,)):
                name = ".".join(relation.name)
                message = (
                    f"the view `{name}` reads hidden rows or the user's name, which no filter changes: rewrite SQL"
                )
                raise RewriteRefused(UNSUPPORTED_SOURCE, message)
        return found

    def uses_behind(
        self, parts: Sequence[str], dialect: str, caller: CallerIdentity, policies: PolicySet
    ) -> tuple[RelationUse, ...]:
        """Return the uses of relations by stored filters and by the text of a view; raise RewriteRefused."""
        relation = self._catalog.named(parts, dialect)
        if relation is None:
            return ()
        restrictions = self._restrictions(dialect, policies)
        finder = UseFinder(restrictions, policies, self._compiler)
        filtering = tuple(finder.of_filters(relation, (caller,)))
        if relation.view is None:
            return filtering
        body = restrictions.body(relation, relation.view, ())
        return filtering + finder.uses(body, (caller,), relation.text_schema)

    def _restrictions(self, dialect: str, policies: PolicySet) -> VisibleRelations:
        if dialect not in DIALECTS:
            raise RewriteRefused(UNSUPPORTED_STATEMENT, f"the dialect `{dialect}` is not supported")
        return VisibleRelations(self._analyzer, policies, self._compiler, dialect, self._through)

    def _guarded(
        self,
        work: Callable[..., RewrittenStatement],
        text: str,
        dialect: str,
        caller: CallerIdentity,
        policies: PolicySet,
    ) -> RewrittenStatement:
        if dialect not in DIALECTS:
            raise RewriteRefused(UNSUPPORTED_STATEMENT, f"the dialect `{dialect}` is not supported")
        return _foreseen(partial(work, text, dialect, caller, policies))

    def _answer(self, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet) -> RewrittenStatement:
        short = self._analyzer.memories.of(policies).short_ways.get(dialect) or self._short_way(dialect, policies)
        if short is not None and short.passes(text):
            return RewrittenStatement(text, changed=False)
        _refuse_policy_statement(text, dialect)
        return self._rewrite(text, dialect, caller, policies)

    def _examine(
        self, listed: Sequence[RowPolicy] | None, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet
    ) -> RewrittenStatement:
        _refuse_policy_statement(text, dialect)
        return self._rewrite(text, dialect, caller, policies, examined=True, listed=listed)

    def _short_way(self, dialect: str, policies: PolicySet) -> FastPass | None:
        """Return the fast pass for policies that stay; None for policies of one request."""
        if policies.is_passing:
            return None
        restrictions = self._restrictions(dialect, policies)
        closed = [relation for relation in self._catalog if _is_closed(relation, restrictions)]
        self._analyzer.memories.of(policies).short_ways[dialect] = found = FastPass(self._catalog, closed, dialect)
        return found

    def _word_reading(self, policies: PolicySet, dialect: str) -> FastVerification | None:
        """Return the reading of words, as the policies remember it; None if a relation without a name can be hidden."""
        if policies.is_passing or policies.has_containers:
            return None
        known = self._analyzer.memories.of(policies).word_readings
        if dialect not in known:
            tables = (path for _, path in policies.tables)
            views = (relation.name[-1] for relation in self._catalog if relation.view is not None)
            closed = (name.casefold().rpartition(".")[2] for names in (tables, views) for name in names)
            known[dialect] = FastVerification(closed, dialect)
        return known[dialect]

    def _rewrite(
        self, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet, *, examined: bool = False,
        listed: Sequence[RowPolicy] | None = None,
    ) -> RewrittenStatement:  # fmt: skip
        restrictions = self._restrictions(dialect, policies)
        head, functions = self._functions(text, dialect)
        if head and not text[len(head) :].strip(" \t\r\n;"):
            return RewrittenStatement(text, changed=False)
        analyzed = self._analyzer.analyze(text[len(head) :], dialect, self._catalog.default, functions)
        identities = (caller,)
        uses: tuple[RelationUse, ...] = ()
        if examined:
            finder = UseFinder(restrictions, policies, self._compiler)
            uses = finder.uses(analyzed, identities, self._catalog.default)
        finish = partial(self._finish, analyzed, restrictions, caller, policies, listed)
        found = _foreseen(finish, uses)
        is_same = found is analyzed.parsed.text
        return RewrittenStatement(text if is_same else head + found, not is_same, uses)

    def _functions(self, text: str, dialect: str) -> tuple[str, SiteFunctions]:
        """Return the functions before a statement that are for this text alone, and all that the statement may call.

        Raise RewriteRefused for a function that reads more than its arguments.
        """
        known, at = self._catalog.functions, 0
        for end in function_ends(text) if dialect == "bigquery" else ():
            parsed = ParsedText(text[at:end], dialect)
            check_readings(parsed, dialect)
            mentions = MentionWalk(self._catalog, dialect, (), known).walk(parsed, body_of_function(parsed.tree))
            if mentions.found or user_places(parsed, dialect, mentions):
                raise RewriteRefused(UNSUPPORTED_FUNCTION, "a temporary function reads its arguments alone")
            known, at = known.beside([parsed.tree.this.this.name]), end
        return text[:at], known

    def _finish(
        self, analyzed: AnalyzedText, restrictions: VisibleRelations, caller: CallerIdentity, policies: PolicySet,
        listed: Sequence[RowPolicy] | None,
    ) -> str:  # fmt: skip
        """Return the text with the visible rows alone, the same text if nothing is hidden; raise RewriteRefused."""
        text, dialect, identities = analyzed.parsed.text, restrictions.dialect, (caller,)
        if self._qualifies:
            check_full_names(analyzed)
        reading = Verification(self._catalog, dialect, restrictions, identities)
        reading.words = self._word_reading(policies, dialect)
        LookupTables(self._compiler, self._catalog, policies).check(analyzed.references, restrictions, identities)
        if isinstance(analyzed.parsed.tree, exp.Create):
            _refuse_listing(analyzed)
            _check_target(analyzed, self._catalog, dialect)
            if _check_definition(analyzed, restrictions, identities):
                return text
        rendering = Rendering(restrictions, dialect, qualifies=self._qualifies, barriers=self._barriers)
        rendering.listing = partial(policy_source, listed, default=self._catalog.default, dialect=dialect)
        sql = rendering.render(analyzed, TextLevel(identities))
        check_substitution(sql, dialect)
        tree = analyzed.parsed.tree
        reading.verify(tree if sql is text else sql, rendering.sources, type(tree))
        if self._judge is not None and dialect == "duckdb":
            self._judge.check(analyzed.parsed, sql, rendering.replaced, (source for source, _ in rendering.sources))
        return sql


def _foreseen(work: Callable[[], _Answer], uses: tuple[RelationUse, ...] = ()) -> _Answer:
    """Return the answer of some work; raise RewriteRefused for each error, with the uses that were found before."""
    try:
        return work()
    except RewriteRefused as error:
        error.uses = uses or error.uses
        raise
    except RecursionError:
        raise RewriteRefused(PARSE_ERROR, "the text is nested too deeply", uses) from None
    except Exception as error:  # noqa: BLE001  a text that nobody foresaw is refused; other texts go on
        # Without the message of the error, which can hold values of the text.
        last = traceback.extract_tb(error.__traceback__)[-1]
        _LOG.error("a text is refused for an unforeseen %s in %s", type(error).__name__, last.name)
        raise RewriteRefused(PARSE_ERROR, "the text meets an error of the rewriter", uses) from None


def _refuse_policy_statement(text: str, dialect: str) -> None:
    if is_policy_statement(text, dialect):
        if dialect == "bigquery":
            read_policy_statement(text)
        raise RewriteRefused(NO_STORE, "row access policies are in files here: no store takes the statement")


def _refuse_listing(analyzed: AnalyzedText) -> None:
    """Raise RewriteRefused for a new relation made of policies: other callers would see them."""
    if any(reference.is_policies for reference in analyzed.references.found):
        raise RewriteRefused(METADATA_TABLE, "row access policies are not copied into tables and views")


def _check_target(analyzed: AnalyzedText, catalog: Catalog, dialect: str) -> None:
    """Raise RewriteRefused for a CREATE under a name that the engine may read otherwise than the rewriter.

    DuckDB has temporary relations in `temp.main`: `t` and `main.t` mean these before relations of the default catalog.
    """
    target = next(reference for reference in analyzed.references.found if reference.role == CREATE)
    parts, written = target.parts, ".".join(target.parts)
    if catalog.is_short(parts, dialect):
        raise RewriteRefused(AMBIGUOUS_NAME, f"`{parts[0]}` in `{written}` may be a catalog: write catalog.schema.name")
    others: list[tuple[str, ...]] = []
    if dialect == "duckdb" and analyzed.parsed.tree.find(exp.TemporaryProperty):
        if len(parts) > 1:
            raise RewriteRefused(AMBIGUOUS_NAME, f"`{written}` is temporary: write `{parts[-1]}` alone")
        others.append((*catalog.default[:1], "main", *parts))
    if dialect == "spark" and len(parts) >= _FULL:  # without such a catalog, the name is in the default catalog
        others.append((*catalog.default[:1], *parts))
    relations = [catalog.get(other, dialect, catalog.default) for other in others]
    if any(relation is not None and relation not in target.relations for relation in relations):
        raise RewriteRefused(AMBIGUOUS_NAME, f"`{written}` may be another known table or view")
    if not target.relations and catalog.ends_with(parts) and len(full_name(parts, catalog.default)) < _FULL:
        raise RewriteRefused(AMBIGUOUS_NAME, f"`{written}` may be a known table or view: write catalog.schema.name")


def check_full_names(analyzed: AnalyzedText) -> None:
    """Raise RewriteRefused for a short name at a place that keeps the text of the caller."""
    for reference in analyzed.references.found:
        is_one = len(reference.relations) == 1 and not reference.wildcard
        stays = reference.role != READ or reference.is_metadata or not is_one
        is_definition = isinstance(analyzed.parsed.tree, exp.Create) and analyzed.parsed.tree.args.get("kind") == "VIEW"
        if (stays or is_definition) and len(reference.parts) < _FULL and not reference.is_policies:
            message = f"`{'.'.join(reference.parts)}` needs the catalog and schema here"
            raise RewriteRefused(UNSUPPORTED_SOURCE, message)


def _is_closed(relation: Relation, restrictions: VisibleRelations) -> bool:
    """Tell whether a relation has policies or reads a relation with policies. A view in doubt is closed."""
    try:
        return restrictions.touches_policies(relation)
    except RewriteRefused:
        return True


def _check_definition(analyzed: AnalyzedText, restrictions: VisibleRelations, identities: Identities) -> bool:
    """Tell whether a CREATE defines a view, with a text to keep; raise RewriteRefused for other definitions.

    A stored text must not hold the caller's filter. The new view is unknown until the catalog has its text.
    """
    tree = analyzed.parsed.tree
    properties = tree.args.get("properties")
    kinds = {type(part) for part in properties.expressions} if properties else set()
    found = analyzed.references.found
    if exp.MaterializedProperty in kinds:
        if any(restrictions.is_restricted_reference(reference, identities) for reference in found):
            raise RewriteRefused(MATERIALIZE, "a materialized view of hidden rows needs a policy with TRUE")
        if analyzed.users:
            raise RewriteRefused(MATERIALIZE, "a materialized view keeps the name of one user for all")
        return False
    if tree.args.get("kind") != "VIEW":
        if analyzed.users and not tree.expression:
            raise RewriteRefused(MATERIALIZE, "a new table keeps the name of one user for all")
        return False
    target = next(reference for reference in found if reference.role == CREATE)
    is_lasting = not kinds & {exp.TemporaryProperty, exp.GlobalProperty} and not target.relations
    if not is_lasting and (analyzed.users or any(restrictions.is_protected(reference) for reference in found)):
        message = "a view of a table with policies, or of the user's name, must be new and must not be temporary"
        raise RewriteRefused(UNSUPPORTED_STATEMENT, message)
    return True


_TEMPORARY: Final = re.compile(r"\s*create\s+(?:or\s+replace\s+)?temp(?:orary)?\s+function\b", re.IGNORECASE)
_PROPERTIES: Final = (exp.TemporaryProperty, exp.ReturnsProperty, exp.StabilityProperty, exp.LanguageProperty)
"""Properties of a function that reads nothing: libraries and connections are others."""
_LANGUAGES: Final = frozenset({"js", "javascript"})
"""Languages of functions without access to anything outside."""


def function_ends(text: str) -> Iterator[int]:
    """Yield the ends of the temporary functions at the start of a text of BigQuery, each behind its semicolon."""
    if "function" not in text.lower():
        return
    bare = LexicalText(text, "bigquery", several=True).bare
    at = 0
    while _TEMPORARY.match(bare, at):
        end = bare.find(";", at) + 1
        yield end or len(text)
        at = end or len(text)


def body_of_function(tree: exp.Expr) -> exp.Expr:
    """Return the body of a temporary function; raise RewriteRefused for a function of another form."""
    head, properties = tree.this, tree.args.get("properties")
    found = {type(part): part for part in properties.expressions} if properties else {}
    language = found.get(exp.LanguageProperty)
    is_plain = isinstance(tree, exp.Create) and isinstance(head, exp.UserDefinedFunction) and len(head.this.parts) == 1
    is_script = language is not None and language.name.lower() in _LANGUAGES and not tree.find(exp.Query)
    if not is_plain or exp.TemporaryProperty not in found or not set(found) <= set(_PROPERTIES) or not tree.expression:
        raise RewriteRefused(UNSUPPORTED_FUNCTION, "a temporary function of this form is not supported")
    if (language is not None) is not isinstance(tree.expression, (exp.Literal, exp.RawString)) or (
        language is not None and not is_script
    ):
        raise RewriteRefused(UNSUPPORTED_FUNCTION, "a temporary function is an expression, or a text of JavaScript")
    body: exp.Expr = tree.expression
    return body
