"""Filters of policies as SQL of an engine's dialect: a single condition on the columns of a table.

A filter in the engine's own dialect stays to the letter, without comments. A filter of another dialect is used if it
is made of parts that mean the same in all dialects. SESSION_USER() and CURRENT_USER become literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace
from sqlglot import exp

from pdp.engines.row_access.caller_calls import is_caller_call, mark_calls, mark_of
from pdp.engines.row_access.conditions import check_form
from pdp.engines.row_access.dialects import (
    DIALECT,
    OF_SUBQUERIES,
    has_uncertain_escape,
    instead_of,
    is_portable,
    translate_filter,
    unfit_part,
    unportable_name,
)
from pdp.engines.row_access.policy_set import Policy
from pdp.engines.row_access.portable import FUNCTIONS, PARTS, adapt
from pdp.engines.row_access.portable_patterns import check_operators
from pdp.engines.row_access.portable_values import folds_caller
from pdp.engines.row_access.trino import CALLER, LISTS, CallerValues, UntranslatableSql, call_caller
from pdp.facts.objects import fold_column
from pdp.rewrite.binding import (
    ROW,
    BoundColumn,
    FilterSource,
    Form,
    alias_edit,
    bind_columns,
    caller_edits,
    rename,
)
from pdp.rewrite.catalog import Catalog, Relation, RelationKey, key_name
from pdp.rewrite.errors import FILTER_INVALID, RewriteRefused, unusable_filter
from pdp.rewrite.functions import is_allowed
from pdp.rewrite.identity import list_literal, text_literal
from pdp.rewrite.process.messages import DIALECTS
from pdp.rewrite.readings import check_readings
from pdp.rewrite.session_functions import user_literal
from pdp.rewrite.sql import (
    Edit,
    ParsedText,
    apply_edits,
    check_printed,
    place_of,
    quote_name,
    quote_names,
    quote_text,
    without_spans,
)

NO_ROWS: Final = "FALSE"
_NOTHING: Final = (NO_ROWS,)
_MARKS: Final = re.compile("\0([^\0]+)\0")
_SENTINEL: Final = "pdp session user"
_PRINTED: Final = re.compile(f"'{_SENTINEL} ([^']+)'")
_ABROAD: Final = (*OF_SUBQUERIES, *FUNCTIONS, *PARTS)
_UNFIT: Final = (
    exp.Command, exp.With, exp.Lateral, exp.Unnest, exp.TableSample, exp.Pivot, exp.Into, exp.SetOperation,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FilterText:
    """SQL of a filter, cut where a value of the caller stands: pieces with marks between. `everything`: it is TRUE.

    `qualified` is the same with qualified columns, see `binding`. `reads` has the tables of its subqueries.
    `folds_caller`: engines agree on callers with plain letters alone.
    """

    pieces: tuple[str, ...]
    qualified: tuple[str, ...]
    everything: bool = False
    reads: tuple[RelationKey, ...] = ()
    folds_caller: bool = False

    def bind(self, caller: CallerValues, dialect: str, form: Form, unknown: str = NO_ROWS) -> str:
        """Return the SQL for a caller, or `unknown` if a value of the caller is unknown or has no certain literal.

        Raise RewriteRefused for a caller whose name has no literal.
        """
        pieces = self.qualified if form == "qualified" or (form == "plain" and self.reads) else self.pieces
        if len(pieces) == 1:
            return pieces[0]
        found = [self._literal(mark, caller, dialect) for mark in pieces[1::2]]
        literals = [literal for literal in found if literal is not None]
        if len(literals) < len(found):
            return unknown
        return "".join(part for pair in zip(pieces[::2], [*literals, ""], strict=True) for part in pair)

    def _literal(self, mark: str, caller: CallerValues, dialect: str) -> str | None:
        if mark in LISTS:
            return list_literal(caller.texts(mark), dialect)
        value = caller.text(mark)
        is_uncertain = self.folds_caller and not value.isascii()
        if mark != CALLER[2:-2]:
            return None if is_uncertain else text_literal(value, dialect)
        if is_uncertain:
            raise unusable_filter("the name of the caller has a letter whose case engines fold differently")
        return user_literal(value, dialect)


class FilterCompiler:
    """Compiled filters of policies. `is_protected` tells whether a relation has policies itself."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[tuple[Policy, tuple[str, ...], str], FilterText] = {}

    def compile(
        self, policy: Policy, relation: Relation, dialect: str, is_protected: Callable[[RelationKey], bool]
    ) -> FilterText:
        """Return the SQL of a policy's filter; raise RewriteRefused for an unusable filter."""
        found = self._known.get((policy, relation.name, dialect))
        if found is None:
            try:
                found = _Filter(_of_engine(policy, relation, dialect), relation, self._catalog).text(dialect)
            except RewriteRefused as error:
                raise _invalid(policy, str(error)) from None
            self._known[policy, relation.name, dialect] = found
        for key in found.reads:
            if is_protected(key):
                raise _invalid(policy, f"it reads `{key_name(key)}`, which has policies of its own")
        return found

    def relations_read(self, policy: Policy, relation: Relation) -> list[Relation]:
        """Return the relations that a filter reads; none for an unusable filter, which shows nothing."""
        try:
            keys = self.compile(policy, relation, policy.dialect, lambda key: False).reads
        except RewriteRefused:
            return []
        return [found for key in keys for found in self._catalog.of_key(key)]


def _of_engine(policy: Policy, relation: Relation, target: str) -> Policy:
    """Return a policy in a dialect of an engine: one of another dialect by way of Trino's; raise RewriteRefused."""
    if policy.dialect in DIALECTS:
        return policy
    try:
        if target not in DIALECTS:
            raise UntranslatableSql(f"no engine reads `{target}`")
        types = {fold_column(name): type for name, type in known_columns(relation, target).items()}
        sql = translate_filter(policy.text, policy.dialect, types)
    except ValueError as error:
        raise unusable_filter(f"the dialect `{policy.dialect}` has no certain meaning in `{target}`: {error}") from None
    return replace(policy, text="TRUE" if sql is None else call_caller(sql), dialect=DIALECT)


def check_filter(policy: Policy, relation: Relation, catalog: Catalog) -> None:
    """Raise RewriteRefused for a filter other than a single condition on columns of the table."""
    FilterCompiler(catalog).compile(policy, relation, policy.dialect, lambda key: False)


def mask_expression(
    text: str, dialect: str, relation: Relation, catalog: Catalog, target: str
) -> FilterText:  # fmt: skip
    """Return a mask's expression on the columns of a relation in another dialect; raise RewriteRefused.

    A mask has no subquery, because a caller could learn values of the other table from masked rows.
    """
    if dialect not in DIALECTS:
        raise unusable_filter(f"the dialect `{dialect}` has no certain meaning in `{target}`")
    return _Filter(Policy("", (), text, dialect), relation, catalog).expression(target)


def _invalid(policy: Policy, cause: str) -> RewriteRefused:
    return RewriteRefused(FILTER_INVALID, f"the filter of policy `{policy.id}` is not used: {cause}")


class _Filter:
    """Parsed filter of a policy on a relation."""

    def __init__(self, policy: Policy, relation: Relation, catalog: Catalog) -> None:
        self._policy, self._relation, self._catalog = policy, relation, catalog
        self._folds_caller = False
        self._parsed = ParsedText(policy.text, policy.dialect)
        if ";" in self._parsed.lexical.bare:
            raise unusable_filter("it is not one expression")
        self._tree = self._parsed.tree
        check_readings(self._parsed, policy.dialect)

    def text(self, dialect: str) -> FilterText:
        """Return the filter in a dialect; raise RewriteRefused."""
        root = self._tree.unnest()
        if isinstance(root, exp.Boolean):
            return FilterText(("TRUE",), ("TRUE",), everything=True) if root.this else FilterText(_NOTHING, _NOTHING)
        _check_form(self._tree, self._policy.dialect)
        tables = self.relations()
        try:
            check_form(self._tree, self._policy.dialect, self._own_columns())
        except ValueError as error:
            raise unusable_filter(str(error)) from None
        reads = tuple(found.key for _, found in tables)
        texts = self._texts(dialect, tables)
        return FilterText(*texts, reads=reads, folds_caller=self._folds_caller)

    def expression(self, dialect: str) -> FilterText:
        """Return the text as a value in a dialect, without subqueries; raise RewriteRefused."""
        _check_form(self._tree, self._policy.dialect)
        if self._tree.find(exp.Query, exp.Table):
            raise unusable_filter("it holds a subquery")
        texts = self._texts(dialect, ())
        return FilterText(*texts, folds_caller=self._folds_caller)

    def relations(self) -> list[tuple[exp.Table, Relation]]:
        """Return the tables of the filter's subqueries; raise RewriteRefused for an unknown table or a view."""
        return [(table, self._resolve(table)) for table in self._tree.find_all(exp.Table)]

    def _resolve(self, table: exp.Table) -> Relation:
        names = [part.name for part in table.parts if isinstance(part, exp.Identifier)]
        parts = ".".join(names).split(".")
        found = self._catalog.get(parts, self._policy.dialect, self._relation.schema)
        if len(names) != len(table.parts) or found is None or found.view or not found.columns:
            raise unusable_filter(f"`{table.name}` is no known table with known columns")
        if set(filter(table.args.get, table.args)) - {"this", "db", "catalog", "alias"}:
            raise unusable_filter(f"`{table.name}` is read in a way that filters do not support")
        return found

    def _texts(
        self, dialect: str, tables: Sequence[tuple[exp.Table, Relation]]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the text with the author's columns, and the text with qualified columns; raise RewriteRefused."""
        own, name = self._own_columns(), self._relation.name[-1].lower()
        if self._policy.dialect != dialect:
            self._mark_calls(dialect)
        if not own:
            raise unusable_filter("the columns of its table are unknown")
        if ROW in self._policy.text.lower() or any(ROW in column for column in own):
            raise unusable_filter(f"`{ROW}` is a name of the rewriter")
        sources = [
            FilterSource((table.alias or found.name[-1]).lower(), found.columns, f"{ROW}_{at}", table)
            for at, (table, found) in enumerate(tables)
        ]
        columns = bind_columns(self._tree, FilterSource(name, own, ROW), sources)
        if self._policy.dialect != dialect:
            self._check_portable(dialect)
            columns = self._adapted(dialect, FilterSource(name, own, ROW), sources, columns)
            self._folds_caller = folds_caller(self._tree)
        make = self._spliced if self._policy.dialect == dialect else partial(self._generated, dialect)
        texts = make(tables, (), ()), make(tables, sources, columns)
        for pieces in texts:
            check_printed(pieces[::2], dialect)
        return texts

    def _mark_calls(self, dialect: str) -> None:
        try:
            self._tree = mark_calls(self._tree, self._policy.dialect)
        except UntranslatableSql as error:
            raise unusable_filter(f"{error}: it has no certain meaning in `{dialect}`") from None

    def _check_portable(self, dialect: str) -> None:
        """Raise RewriteRefused for a part without a certain meaning in another dialect."""
        try:
            check_operators(self._policy.text, self._policy.dialect)
        except UntranslatableSql as error:
            raise unusable_filter(f"{error}: it has no certain meaning in `{dialect}`") from None
        unfit = next((node for node in self._tree.walk() if not is_portable(node, _ABROAD)), None)
        if unfit is not None:
            raise unusable_filter(
                f"`{unportable_name(unfit)}` in `{self._policy.dialect}` has no certain meaning in `{dialect}`: "
                f"write {instead_of(unfit)}"
            )
        if _SENTINEL in self._policy.text:
            raise unusable_filter("it has the text of the rewriter")
        _check_words(self._tree, self._policy, dialect)

    def _adapted(
        self, dialect: str, own: FilterSource, sources: Sequence[FilterSource], columns: Sequence[BoundColumn]
    ) -> list[BoundColumn]:
        """Write the comparisons of the tree for another dialect; return its columns with their sources."""
        by_alias = {source.alias: source.columns for source in (own, *sources)}
        types = {
            id(found.column): by_alias[found.alias].get(found.column.parts[found.length].name.lower(), "")
            for found in columns
            if len(found.column.parts) == found.length + 1
        }
        try:
            self._tree = adapt(self._tree, self._policy.dialect, dialect, lambda column: types.get(id(column), ""))
        except UntranslatableSql as error:
            raise unusable_filter(f"{error}: it has no certain meaning in `{dialect}`") from None
        return bind_columns(self._tree, own, sources)

    def _own_columns(self) -> Mapping[str, str]:
        return known_columns(self._relation, self._policy.dialect)

    def _spliced(
        self,
        tables: Sequence[tuple[exp.Table, Relation]],
        sources: Sequence[FilterSource],
        columns: Sequence[BoundColumn],
    ) -> tuple[str, ...]:
        """Return the filter in its own dialect, to the letter but for names and comments."""
        parsed, dialect = self._parsed, self._policy.dialect
        edits = without_spans(parsed.text, parsed.lexical.comments)
        for table, found in tables:
            places = [place_of(part) for part in table.parts]
            name = quote_names(found.name, dialect)
            edits.append(Edit(min(places)[0], max(end for _, end in places), name))
        edits += (alias_edit(source) for source in sources)
        edits += (column.edit() for column in columns)
        callers = caller_edits(parsed, dialect)
        return tuple(_MARKS.split(apply_edits(parsed.text, [*edits, *callers]).strip()))

    def _generated(
        self,
        dialect: str,
        tables: Sequence[tuple[exp.Table, Relation]],
        sources: Sequence[FilterSource],
        columns: Sequence[BoundColumn],
    ) -> tuple[str, ...]:
        """Return the filter in another dialect; raise RewriteRefused if a part has another meaning there.

        Changes the tree, so the text with the author's columns comes first.
        """
        for column in columns:
            column.qualify()
        for source in sources:
            rename(source)
        names: Mapping[int, Relation] = {id(table): found for table, found in tables}
        self._tree = self._tree.transform(lambda node: _bound(node, names), copy=False)
        text = self._tree.sql(dialect=dialect, comments=False)
        return tuple(_PRINTED.split(text))


def known_columns(relation: Relation, dialect: str) -> Mapping[str, str]:
    """Return the types of columns by name in lower case; empty if the columns are unknown.

    Columns of a view come from the list or the text of the view, without types.
    """
    view = relation.view
    if view is None or relation.columns:
        return relation.columns
    names: Sequence[str] = view.columns
    if not names:
        tree = ParsedText(view.sql, view.dialect or dialect).tree
        names = tree.named_selects if isinstance(tree, exp.Query) else []
    return {} if "*" in names else {name.lower(): "" for name in names if name}


def _bound(node: exp.Expr, names: Mapping[int, Relation]) -> exp.Expr:
    """Return a node with full names of tables and with a mark in place of the caller."""
    if mark := mark_of(node):
        return exp.Literal.string(f"{_SENTINEL} {mark}")
    found = names.get(id(node))
    if found is None:
        return node
    *containers, name = [exp.to_identifier(part, quoted=True) for part in found.name]
    if len(containers) != 2:
        raise unusable_filter(f"`{'.'.join(found.name)}` has no certain form in another dialect")
    node.set("this", name)
    node.set("db", containers[1])
    node.set("catalog", containers[0])
    return node


def _check_words(tree: exp.Expr, policy: Policy, dialect: str) -> None:
    """Raise RewriteRefused for a text or a name that another dialect cannot hold for certain."""
    if has_uncertain_escape(policy.text, policy.dialect):
        raise unusable_filter(f"a backslash in a text of `{policy.dialect}` has no certain meaning in `{dialect}`")
    for node in tree.find_all(exp.Literal, exp.Identifier):
        if isinstance(node, exp.Identifier):
            quote_name(node.name, dialect)
        elif node.is_string and not mark_of(node):
            quote_text(node.name, dialect)


def _check_form(tree: exp.Expr, dialect: str) -> None:
    """Raise RewriteRefused for a tree other than an expression, and for unfit parts."""
    if not isinstance(tree, exp.Condition) or isinstance(tree, exp.Query):
        raise unusable_filter("it is not one expression")
    for node in tree.walk():
        if unfit := unfit_part(node):
            raise unusable_filter(f"it holds {unfit}")
        if isinstance(node, _UNFIT) and node.arg_key != "unnest":  # `IN UNNEST([..])` is a list
            raise unusable_filter("it holds a query of a form that filters do not support")
        if isinstance(node, exp.Func) and not is_caller_call(node, dialect) and not is_allowed(node, dialect):
            raise unusable_filter(f"the function `{node.name}` is not known to read its arguments alone")
    outside = tree.walk(prune=lambda node: isinstance(node, exp.Query))
    if any(isinstance(node, (exp.AggFunc, exp.Window, exp.Star)) for node in outside):
        raise unusable_filter("it holds an aggregate, a window or a star")
