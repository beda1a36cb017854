"""Texts of rewritten statements: each mention of a relation with hidden rows becomes a subquery of the visible rows.

The rest of a text stays to the letter, but for names that the subquery needs. Clauses between the name of a table and
the next source go into the subquery or stay behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sqlglot import exp

from pdp.rewrite.binding import HIDDEN, looks_around, unforeseen_name
from pdp.rewrite.catalog import Relation, RelationKey, View
from pdp.rewrite.errors import (
    AMBIGUOUS_NAME,
    COPY_NEEDS_FULL_ACCESS,
    HIDDEN_COLUMN,
    METADATA_TABLE,
    PARSE_ERROR,
    UNSUPPORTED_SOURCE,
    WILDCARD_TABLE,
    WRITE_NEEDS_FULL_ACCESS,
    RewriteRefused,
)
from pdp.rewrite.filters import NO_ROWS
from pdp.rewrite.guards import BARRIERS, MASK_BARRIERS, is_total
from pdp.rewrite.mentions import COPY, READ, TableMention
from pdp.rewrite.policy_statements import policy_source
from pdp.rewrite.printed_masks import NAMED_BY_TEXT, alias_edits, qualifier_edits
from pdp.rewrite.session_functions import user_edits
from pdp.rewrite.sql import Edit, apply_edits, place_of, quote_name, quote_names, without_spans
from pdp.rewrite.visible_relations import AnalyzedText, Identities, VisiblePart, VisibleRelations

MAX_REPLACEMENTS: Final = 500
MAX_RESULT: Final = 1_000_000
_TABLE_WORD: Final = re.compile(r"\btable\s+\Z", re.IGNORECASE)
_FRESH: Final = "_rap_"
"""Start of generated names."""


@dataclass(frozen=True, slots=True)
class TextLevel:
    """Place of a text among expanded views: for whom the text runs, and the views around it.

    `is_nested`: an engine looks for names outside of the text. `needs_barrier`: an expression of the text, or of one
    around it, can fail on a row.
    """

    identities: Identities
    above: tuple[RelationKey, ...] = ()
    is_nested: bool = False
    needs_barrier: bool = False


class Rendering:
    """Texts of one rewriting. The number of replacements and the size of the result are bounded."""

    def __init__(
        self, restrictions: VisibleRelations, dialect: str, *, qualifies: bool = False,
        barriers: Collection[str] = tuple(BARRIERS),
    ) -> None:  # fmt: skip
        """Prepare the rewriting. `barriers` are the dialects with barriers."""
        self._restrictions, self._dialect, self._qualifies = restrictions, dialect, qualifies
        self._barriers = barriers
        self._replacements, self._unforeseen = 0, ""
        self.replaced: list[str] = []
        """Last parts of the replaced names of the outermost text, in lower case."""
        self.sources: list[tuple[str, str]] = []
        """Sources of the outermost text in brackets, each beside itself with the stand-in for the unforeseen name."""
        self.listing: Callable[..., str] = partial(policy_source, None, default=(), dialect=dialect)

    def render(self, analyzed: AnalyzedText, level: TextLevel) -> str:
        """Return the text with all references replaced; the same text if none needs to be."""
        text = analyzed.parsed.text
        edits: list[Edit] = []
        wrapped: dict[int, str] = {}
        level = self._with_barrier(analyzed, level)
        for reference in analyzed.references.found:
            if reference.is_policies:
                listed: str = self.listing(parts=reference.parts)
                self.sources.append((listed, listed))
                self.replaced.append(reference.parts[-1].lower())
                edits += self._wrap(reference, listed, analyzed, wrapped)
                continue
            self._check_use(reference, level.identities)
            if reference.role == READ and not reference.is_metadata:
                source = self._source(reference, text, level)
                if source is not None:
                    edits += self._wrap(reference, source, analyzed, wrapped)
                elif level.above or (self._qualifies and len(reference.relations) == 1):
                    name = quote_names(reference.full_name, self._dialect)
                    edits.append(Edit(reference.start, reference.end, name))
        names = (identity.session_user for identity in level.identities)
        edits += user_edits(analyzed.users, names, self._dialect)
        if wrapped:
            _check_hidden(analyzed)
            edits += qualifier_edits(analyzed.references, wrapped)
        if level.above:
            edits += without_spans(text, analyzed.parsed.lexical.comments)
        return apply_edits(text, edits) if edits else text

    def _with_barrier(self, analyzed: AnalyzedText, level: TextLevel) -> TextLevel:
        if level.needs_barrier or self._dialect not in self._barriers or self._is_total(analyzed):
            return level
        return replace(level, needs_barrier=True)

    def _is_total(self, analyzed: AnalyzedText) -> bool:
        found = analyzed.references.found
        return is_total(analyzed.parsed.tree, [relation for one in found for relation in one.relations], self._dialect)

    def _query(self, part: VisiblePart, source: str, level: TextLevel) -> str:
        """Return the query of the visible rows of a source as a source, behind a barrier if the text needs one."""
        query = part.query(source)
        hides_some = part.rows not in ("", NO_ROWS) or (part.columns != "*" and self._dialect in MASK_BARRIERS)
        return BARRIERS[self._dialect].format(query) if level.needs_barrier and hides_some else f"({query})"

    def _check_use(self, reference: TableMention, identities: Identities) -> None:
        """Raise RewriteRefused for a use of a relation with hidden rows that no filter can cover."""
        is_one = len(reference.relations) == 1 and not reference.wildcard
        if reference.role == READ and not reference.is_metadata and is_one:
            return
        if not self._restrictions.is_restricted_reference(reference, identities):
            return
        name = ".".join(reference.parts)
        if reference.is_metadata:
            raise RewriteRefused(METADATA_TABLE, f"`{name}` shows values of hidden rows")
        if reference.role == READ:
            raise RewriteRefused(WILDCARD_TABLE, f"a table of `{name}` has hidden rows")
        if reference.role == COPY:
            raise RewriteRefused(COPY_NEEDS_FULL_ACCESS, f"a copy of `{name}` needs a policy with TRUE")
        raise RewriteRefused(WRITE_NEEDS_FULL_ACCESS, f"a change of `{name}` needs a policy with TRUE")

    def _source(self, reference: TableMention, text: str, level: TextLevel) -> str | None:
        """Return the text in place of a reference; None if the reference stays."""
        relation, *others = reference.relations
        if others or reference.wildcard:
            return None
        part = self._restrictions.visible(relation, level.identities)
        view = relation.view
        expanded = view is not None and self._restrictions.is_expanded(relation, view, level.identities, level.above)
        if part is None and not expanded:
            return None
        self._replacements += 1
        if self._replacements > MAX_REPLACEMENTS:
            raise RewriteRefused(PARSE_ERROR, f"more than {MAX_REPLACEMENTS} references are to be replaced")
        level = replace(level, is_nested=level.is_nested or looks_around(reference.node, self._dialect))
        part = self._part(relation, level)
        if view is not None and expanded:
            source = self._expand(reference, relation, view, level)
            if part:
                row = part.row or quote_name(relation.name[-1], self._dialect)
                source = self._query(part, f"{source} AS {row}", level)
        elif part is not None:
            source = self._filtered(reference, text, part, level)
        if not level.above:
            named = source.replace(self._unforeseen, HIDDEN) if self._unforeseen else source
            self.sources.append((source, named))
            self.replaced.append(reference.parts[-1].lower())
        return source

    def _part(self, relation: Relation, level: TextLevel) -> VisiblePart | None:
        """Return the visible part of a relation in the form that the place needs."""
        if not level.is_nested:
            return self._restrictions.visible(relation, level.identities, "plain")
        part = self._restrictions.visible(relation, level.identities)
        if part is None or not part.row:
            return part
        self._unforeseen = self._unforeseen or unforeseen_name()
        return part.named(self._unforeseen)

    def _filtered(self, reference: TableMention, text: str, part: VisiblePart, level: TextLevel) -> str:
        """Return the text in place of a relation with hidden rows of its own."""
        name = text[reference.start : reference.end]
        if level.above or self._qualifies:
            name = quote_names(reference.relations[0].name, self._dialect)
        clauses = TableClauses(reference.node, text, reference.end)
        if not clauses.sample or self._dialect not in VISIBLE_SAMPLES:
            return self._query(part, clauses.source(name, part.row, self._dialect), level)
        sample, clauses.sample = visible_sample(clauses.sample, self._dialect), ""
        query = self._query(part, clauses.source(name, part.row, self._dialect), level)
        return f"(SELECT * FROM {query}{sample})"  # noqa: S608  a query of parts that are parsed or quoted

    def _expand(self, reference: TableMention, relation: Relation, view: View, level: TextLevel) -> str:
        """Return the text of a view as a subquery, with the filters of whom the view runs for."""
        name = ".".join(relation.name)
        if reference.node.args.get("version") or reference.node.args.get("when"):
            raise RewriteRefused(UNSUPPORTED_SOURCE, f"`{name}` is a view: a view has no old versions")
        body = self._restrictions.body(relation, view, level.above)
        inner = self._restrictions.inside(relation, view, level.identities)
        within = TextLevel(inner, (*level.above, relation.key), level.is_nested, level.needs_barrier)
        text = self.render(body, within).strip(" \t\r\n;")
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

    def _wrap(
        self, reference: TableMention, source: str, analyzed: AnalyzedText, wrapped: dict[int, str]
    ) -> list[Edit]:
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

    def _alias(self, reference: TableMention, analyzed: AnalyzedText) -> str:
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


_CALL: Final = r"\w+\s*\((?:[^()']|'[^']*'|\((?:[^()']|'[^']*'|\([^()']*\))*\))*\)"
_VALUE: Final = rf"(?:{_CALL}|(?:\w+\s*)?'[^'\\]*'|\d+)"
_TRAVEL: Final = re.compile(
    rf"\s+(?:FOR\s+(?:SYSTEM_TIME|SYSTEM_VERSION|VERSION|TIMESTAMP)|VERSION|TIMESTAMP|SYSTEM_VERSION|SYSTEM_TIME)"
    rf"\s+AS\s+OF\s+{_VALUE}|\s+AT\s*\(\s*(?:VERSION|TIMESTAMP)\s*=>\s*{_VALUE}\s*\)",
    re.IGNORECASE,
)
_SAMPLE: Final = re.compile(
    r"\s+TABLESAMPLE\s+(?:\d+(?:\.\d+)?\s*(?:PERCENT|ROWS|%)(?:\s*\(\s*\w+\s*(?:,\s*\d+\s*)?\))?|(?:\w+\s*)?\([^()']*\))"
    r"(?:\s+REPEATABLE\s*\(\s*\d+\s*\))?",
    re.IGNORECASE,
)
_NAMED: Final = {
    "trino": "{name}{travel}{alias}{sample}",
    "spark": "{name}{travel}{sample}{alias}",
    "bigquery": "{name}{alias}{travel}{sample}",
    "duckdb": "{name}{alias}{travel}{sample}",
}
"""Place of an alias among the clauses, by dialect."""
VISIBLE_SAMPLES: Final = frozenset({"duckdb", "spark"})
"""Dialects whose samples take visible rows: the size and the places of a sample would tell where rows hide."""
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|percent\b)", re.IGNORECASE)
_SEED: Final = re.compile(r"(?:repeatable\s*\(|\w\s*,)\s*(\d+)\s*\)\s*\Z", re.IGNORECASE)
_COLUMNS: Final = re.compile(r"\s*\([^()]*\)")
_GOES_ON: Final = re.compile(r"\s*(?:[-+*/|.:\[(]|AT\s+TIME|AS\s+OF)", re.IGNORECASE)
"""Text after a clause that shows that the clause has not ended."""


def visible_sample(sample: str, dialect: str) -> str:
    """Return the clause that samples visible rows; raise RewriteRefused for a seed with which hidden rows decide.

    A share of the blocks of DuckDB, and the choice of a reservoir, depend on hidden rows between visible rows.
    """
    seed, share = _SEED.search(sample), _SHARE.search(sample)
    if dialect != "duckdb":
        return sample
    if share and "reservoir" not in sample.lower():
        return f" TABLESAMPLE bernoulli({share[1]}%)" + (f" REPEATABLE ({seed[1]})" if seed else "")
    if seed:
        message = "a sample with a seed depends on hidden rows: write TABLESAMPLE bernoulli(10%) REPEATABLE (1)"
        raise RewriteRefused(UNSUPPORTED_SOURCE, message)
    return sample


class TableClauses:
    """Time travel and sample of a table, with places in the text."""

    def __init__(self, node: exp.Table, text: str, end: int) -> None:
        """Find the clauses after a name that ends at `end`; raise RewriteRefused for an unknown form."""
        self.spans: list[tuple[int, int]] = []
        self.travel = self.sample = ""
        wants_travel = bool(node.args.get("version") or node.args.get("when"))
        wants_sample = bool(node.args.get("sample"))
        if not wants_travel and not wants_sample:
            return
        alias_end = _alias_end(node, text)
        at = end
        while wants_travel or wants_sample:
            travel, sample = _TRAVEL.match(text, at), _SAMPLE.match(text, at)
            if wants_travel and travel:
                self.travel, wants_travel, at = travel[0], False, self._take(travel)
            elif wants_sample and sample:
                self.sample, wants_sample, at = sample[0], False, self._take(sample)
            elif at < alias_end:
                at = alias_end
            else:
                raise RewriteRefused(UNSUPPORTED_SOURCE, f"a clause after `{node.name}` is not supported")
            if at > alias_end and at != end and _GOES_ON.match(text, at):
                raise RewriteRefused(UNSUPPORTED_SOURCE, f"a clause after `{node.name}` is not supported")

    def source(self, name: str, row: str, dialect: str) -> str:
        """Return a name with the clauses, and with an alias unless `row` is empty."""
        alias = f" AS {row}" if row else ""
        return _NAMED[dialect].format(name=name, alias=alias, travel=self.travel, sample=self.sample)

    def _take(self, match: re.Match[str]) -> int:
        self.spans.append(match.span())
        return match.end()


def _alias_end(node: exp.Table, text: str) -> int:
    """Return the end of the alias of a table and of its list of columns; 0 without an alias."""
    alias = node.args.get("alias")
    if alias is None or alias.this is None:
        return 0
    _, end = place_of(alias.this)
    columns = _COLUMNS.match(text, end) if alias.columns else None
    return columns.end() if columns else end
