"""References of a text: every place where a statement reads or writes a relation. Knows no caller and no policy.

The walk goes from the root to the leaves with the visible names. A relation at an unknown place is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sqlglot import exp

from pdp.rewrite.catalog import Catalog, Relation, fold_ascii, full_name
from pdp.rewrite.errors import (
    AMBIGUOUS_NAME,
    PARSE_ERROR,
    UNKNOWN_RELATION,
    UNSUPPORTED_FUNCTION,
    UNSUPPORTED_SOURCE,
    UNSUPPORTED_STATEMENT,
    WILDCARD_TABLE,
    RewriteRefused,
)  # fmt: skip
from pdp.rewrite.functions import SiteFunctions, is_allowed, is_table_function, why_not
from pdp.rewrite.names import (
    HIDDEN_COLUMNS,
    RESERVED,
    check_dots,
    check_new_name,
    metadata_base,
    name_parts,
)
from pdp.rewrite.policy_statements import check_information, is_information, is_policy_view
from pdp.rewrite.process.messages import RelationUse
from pdp.rewrite.sql import MARK, ParsedText, is_new_table, place_of

READ, WRITE, CREATE, COPY = "read", "write", "create", "copy"
_VISIBLE, _UNCERTAIN = "visible", "uncertain"
"""Kinds of names of common table expressions: certainly meant, or meant by some engines."""
Scope: TypeAlias = Mapping[str, str]
"""Names of common table expressions, ASCII letters in lower case -> kind."""
_Step: TypeAlias = tuple[Any, Scope]
_STATEMENTS: Final = (
    exp.Select, exp.SetOperation, exp.Subquery, exp.Values, exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create,
    exp.TruncateTable, exp.Pivot,
)  # fmt: skip
_ROLES: Final[Mapping[tuple[type, str | None], str]] = {
    (exp.From, "this"): READ,
    (exp.Join, "this"): READ,
    (exp.Subquery, "this"): READ,
    (exp.Merge, "using"): READ,
    (exp.Delete, "using"): READ,
    (exp.Pivot, "this"): READ,
    (exp.Insert, "this"): WRITE,
    (exp.Update, "this"): WRITE,
    (exp.Delete, "this"): WRITE,
    (exp.Merge, "this"): WRITE,
    (exp.TruncateTable, "expressions"): WRITE,
    (exp.Create, "this"): CREATE,
    (exp.Clone, "this"): COPY,
}
"""Parent of a table and place below the parent -> the table's part in the statement. All other places are refused."""
_SUBQUERIES: Final = (exp.Query, exp.Table, exp.Values, exp.Pivot)
_PARTS_OF_TABLE: Final = ("this", "joins", "pivots", "sample", "version", "when", "laterals")
_TABLE_ARGS: Final = frozenset({*_PARTS_OF_TABLE, "db", "catalog", "alias"})
_LEAVES: Final = (exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.DataType, exp.Hint, exp.Var)
"""Parts that hold no reference. A star does: `* REPLACE (...)`."""
_INERT, _PLAIN, _TABLE, _COLUMN, _CHECKED = range(5)
_KINDS: dict[type, int] = {}
_NAME_BEFORE: Final = re.compile(rf"(?<![\w{MARK}.-])(?:[\w{MARK}-]+\s*\.\s*)+\Z")
"""Parts of a name in the text, each with its dot. Quoted parts are marks."""
_LONGEST_NAME: Final = 3_000
_REFUSED: Final = (
    exp.Command, exp.Summarize, exp.Describe, exp.Pragma, exp.Show, exp.Copy, exp.Export, exp.Set, exp.Use, exp.Attach,
    exp.Detach, exp.Into, exp.LoadData, exp.Alter, exp.Drop, exp.Directory, exp.MultitableInserts, exp.LikeProperty,
    exp.LocationProperty, exp.ExternalProperty, exp.QueryTransform,
)  # fmt: skip


@dataclass(slots=True, eq=False)
class TableMention:
    """Place of a relation in a text. `node` is the table in the tree, `relations` more than one for a wildcard.

    `is_policies`: the view of row access policies in INFORMATION_SCHEMA, which has no relation.
    """

    node: exp.Table
    role: str
    parts: tuple[str, ...]
    relations: tuple[Relation, ...]
    start: int
    end: int
    is_metadata: bool = False
    is_policies: bool = False
    wildcard: tuple[str, ...] = ()
    """Full name before the `*` of a wildcard of BigQuery, which reads all tables with such a name, known or not."""

    @property
    def full_name(self) -> tuple[str, ...]:
        """Return the full name of the relation, or of the wildcard."""
        if self.wildcard:
            return (*self.wildcard[:-1], f"{self.wildcard[-1]}*")
        return self.relations[0].name

    @property
    def alias(self) -> str:
        """Return the alias that the statement gives; empty without one."""
        return self.node.alias

    @property
    def returns_rows(self) -> bool:
        """Tell whether the statement shows the rows that it changes: RETURNING."""
        target = self.node.parent.parent if isinstance(self.node.parent, exp.Schema) else self.node.parent
        return self.role in (WRITE, CREATE) and target is not None and bool(target.args.get("returning"))

    @property
    def exposed_name(self) -> str:
        """Return the name by which the rest of the statement knows the relation."""
        return self.node.alias or self.parts[-1]


@dataclass(slots=True)
class TableMentions:
    """All references of a statement, and names of hidden columns."""

    found: list[TableMention] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    columns: list[exp.Column] = field(default_factory=list)
    """Columns with a name of at least three parts."""
    pairs: list[tuple[str, str, exp.Column]] = field(default_factory=list)
    """Columns with a name of two parts, and the parts in lower case: a column, or a table with its schema."""
    exposed: list[tuple[exp.Table, str]] = field(default_factory=list)
    """Sources of all queries, common table expressions as well, with the last part of the name."""

    def namesakes(self, reference: TableMention) -> list[exp.Table]:
        """Return the other sources of the same query with the name of a reference."""
        if len(self.exposed) == 1:
            return []
        name, scope = reference.exposed_name.lower(), scope_of(reference.node)
        return [
            node
            for node, last in self.exposed
            if node is not reference.node and (node.alias or last).lower() == name and scope_of(node) is scope
        ]


class MentionWalk:
    """Walk of one statement. `default` is the catalog and schema of short names."""

    def __init__(
        self, catalog: Catalog, dialect: str, default: Sequence[str], site: SiteFunctions | None = None
    ) -> None:
        self._catalog, self._dialect, self._default = catalog, dialect, default
        self._functions, self._references, self._marked = site or catalog.functions, TableMentions(), ""

    def walk(self, parsed: ParsedText, part: exp.Expr | None = None) -> TableMentions:
        """Return the references of a statement, or of a part; raise RewriteRefused for what is refused."""
        self._marked = parsed.lexical.marked
        if part is None:
            _check_statement(parsed.tree, self._dialect)
        steps: list[_Step] = [(part or parsed.tree, {})]
        kinds = _KINDS.get
        while steps:
            node, scope = steps.pop()
            kind = _kind_of(node)
            if kind == _TABLE:
                self._table(node, scope)
                steps += _parts_of_table(node, scope)
                continue
            if kind == _COLUMN:
                self._column(node)
            elif kind == _CHECKED:
                self._check(node)
            args = node.args
            with_ = args.get("with_")
            if with_.__class__ is exp.With:  # a property of a table may have a flag of that name
                scope = dict(scope)
                steps += _common_tables(with_, scope)
            for value in args.values():
                if value.__class__ is list:
                    steps += [(part, scope) for part in value if _kind_of(part)]
                elif kinds(value.__class__, _PLAIN) and value is not with_ and _kind_of(value):
                    steps.append((value, scope))
        return self._references

    def _check(self, node: exp.Expr) -> None:
        if isinstance(node, _REFUSED):
            raise RewriteRefused(UNSUPPORTED_STATEMENT, f"{_word_of(node)} is not supported")
        if isinstance(node, exp.Func):
            if not is_allowed(node, self._dialect, self._functions) and not isinstance(node.parent, exp.Table):
                raise RewriteRefused(UNSUPPORTED_FUNCTION, why_not(node))
        elif isinstance(node, exp.Subquery):
            if not isinstance(node.this, _SUBQUERIES):
                raise RewriteRefused(UNSUPPORTED_STATEMENT, "parentheses that hold no query are not supported here")
        elif isinstance(node, exp.Alias):
            _check_name(node.args.get("alias"))

    def _column(self, node: exp.Column) -> None:
        name = node.args["this"]
        if name.__class__ is not exp.Identifier:
            return
        folded = name.args["this"].lower()
        if folded in RESERVED:
            _check_name(name)
        if folded in HIDDEN_COLUMNS or folded.startswith("$"):
            self._references.hidden.append(folded)
        table = node.args.get("table")
        if table is None:
            return
        if node.args.get("db"):
            self._references.columns.append(node)
            qualifiers = [part.name.lower() for part in node.parts[:-1]]
            self._references.hidden += [name for name in qualifiers if name in HIDDEN_COLUMNS]
        else:
            qualifier = table.name.lower()
            self._references.pairs.append((qualifier, folded, node))
            if qualifier in HIDDEN_COLUMNS:
                self._references.hidden.append(qualifier)

    def _table(self, node: exp.Table, scope: Scope) -> None:
        role = _role_of(node)
        if (alias := node.args.get("alias")) is not None:
            _check_name(alias.this)
        if any(value and name not in _TABLE_ARGS for name, value in node.args.items()):
            raise RewriteRefused(UNSUPPORTED_SOURCE, f"`{node.name}` is read in a way that is not supported")
        parts = name_parts(node)
        if parts is None:
            if role != READ or node.args.get("db") or not is_table_function(node.this, self._dialect):
                raise RewriteRefused(UNSUPPORTED_SOURCE, f"the source `{_source_name(node)}` is not supported")
            return
        _check_name(node.this)
        is_alone = not node.args.get("db") and (self._dialect != "bigquery" or len(parts) == 1)
        if role == READ:
            self._references.exposed.append((node, node.name if is_alone else parts[-1]))
        if role == READ and is_alone and (kind := scope.get(fold_ascii(node.name))):
            if kind == _UNCERTAIN:
                message = f"`{parts[0]}` is a table for some engines and a common table expression for others"
                raise RewriteRefused(AMBIGUOUS_NAME, message)
            return
        check_dots(node, self._dialect)
        self._reference(node, role, parts)

    def _reference(self, node: exp.Table, role: str, parts: tuple[str, ...]) -> None:
        if role == READ and is_information(parts) and self._catalog.get(parts, self._dialect, self._default) is None:
            if is_policy_view(parts):
                self._references.found.append(TableMention(node, role, parts, (), *self._span(node), is_policies=True))
                return
            check_information(parts, self._dialect, self._catalog)
            return
        relations, is_metadata = self._resolve(parts, role)
        mention = TableMention(node, role, parts, relations, *self._span(node), is_metadata)
        if _is_wildcard(parts, self._dialect) and relations[0].name[-1] != parts[-1]:
            mention.wildcard = full_name((*parts[:-1], parts[-1][:-1]), self._default)
        self._references.found.append(mention)

    def _span(self, node: exp.Table) -> tuple[int, int]:
        """Return the place of the name of a table in the text.

        The parser gives all parts of a name with dots in quotes the place of the last one: the name begins before.
        """
        places = {place_of(part) for part in node.parts}
        start, end = min(places)[0], max(end for _, end in places)
        if self._dialect == "bigquery" and len(places) == 1 < len(node.parts):
            before = _NAME_BEFORE.search(self._marked, max(start - _LONGEST_NAME, 0), start)
            start = before.start() if before else start
        return start, end

    def _resolve(self, parts: tuple[str, ...], role: str) -> tuple[tuple[Relation, ...], bool]:
        """Return the relations of a name, and whether the name is a table of metadata beside the relation."""
        catalog, dialect, default = self._catalog, self._dialect, self._default
        found = catalog.get(parts, dialect, default)
        if found is not None:
            return (found,), False
        if role == CREATE:
            check_new_name(parts, dialect)
            return (), False
        if _is_wildcard(parts, dialect):
            members = catalog.with_prefix((*parts[:-1], parts[-1][:-1]), default)
            if any(member.is_listed for member in members):
                raise RewriteRefused(WILDCARD_TABLE, f"`{'.'.join(parts)}` can have more tables than are known")
            if members:
                return tuple(members), False
        base = metadata_base(parts, dialect) if role == READ else None
        found = catalog.get(base, dialect, default) if base else None
        if found is not None and found.view is None:
            return (found,), True
        known = [one for one in self._references.found if one.relations]
        uses = [RelationUse(one.full_name, one.role, one.relations[0].view is not None) for one in known]
        uses.append(RelationUse(full_name(parts, default), role))
        raise RewriteRefused(UNKNOWN_RELATION, f"`{'.'.join(parts)}` is no known table or view", tuple(uses))


def _is_wildcard(parts: Sequence[str], dialect: str) -> bool:
    return dialect == "bigquery" and parts[-1].endswith("*")


def _check_statement(tree: exp.Expr, dialect: str) -> None:
    """Raise RewriteRefused for an unknown kind of statement."""
    if not isinstance(tree, _STATEMENTS):
        raise RewriteRefused(UNSUPPORTED_STATEMENT, "the text is no statement of a supported kind")
    if isinstance(tree, exp.Create):
        is_full = tree.expression or tree.args.get("clone") or is_new_table(tree, dialect)
        if tree.args.get("kind") not in ("TABLE", "VIEW") or not is_full:
            raise RewriteRefused(UNSUPPORTED_STATEMENT, f"CREATE {tree.args.get('kind')} of this form is not supported")
    elif isinstance(tree, exp.Delete) and tree.args.get("tables"):
        raise RewriteRefused(UNSUPPORTED_STATEMENT, "DELETE from several tables is not supported")
    elif isinstance(tree, exp.TruncateTable) and tree.args.get("is_database"):
        raise RewriteRefused(UNSUPPORTED_STATEMENT, "TRUNCATE DATABASE is not supported")


def _word_of(node: exp.Expr) -> str:
    """Return the word of SQL that begins a refused part."""
    name = type(node).__name__.removesuffix("Property")
    return {"QueryTransform": "TRANSFORM", "MultitableInserts": "INSERT into several tables"}.get(name, name.upper())


def _role_of(node: exp.Table) -> str:
    """Return the part of a table in its statement; raise RewriteRefused for an unknown place."""
    at: exp.Expr = node
    if isinstance(at.parent, exp.Schema) and at.arg_key == "this":
        at = at.parent
    role = _ROLES.get((type(at.parent), at.arg_key))
    if role is None:
        raise RewriteRefused(UNSUPPORTED_SOURCE, f"`{node.name}` stands where no table is supported")
    return role


def _check_name(name: exp.Expr | None) -> None:
    """Raise RewriteRefused for a keyword that the parser has read as a name: the engine reads another statement."""
    if name is None or isinstance(name, (exp.Star, exp.Dot)):
        return
    if not isinstance(name, exp.Identifier):
        raise RewriteRefused(UNSUPPORTED_SOURCE, f"`{name.name}` is no name that is supported here")
    if not name.quoted and name.name.lower() in RESERVED:
        raise RewriteRefused(PARSE_ERROR, f"`{name.name}` is a word of SQL, not a name")


def _kind_of(node: Any) -> int:
    """Return the treatment of a part of the tree, by class; values that are no parts are inert."""
    cls = node.__class__
    kind = _KINDS.get(cls)
    if kind is None:
        kind = _PLAIN
        if not issubclass(cls, exp.Expr) or issubclass(cls, _LEAVES):
            kind = _INERT
        elif issubclass(cls, exp.Table):
            kind = _TABLE
        elif issubclass(cls, exp.Column):
            kind = _COLUMN
        elif issubclass(cls, (*_REFUSED, exp.Func, exp.Subquery, exp.Alias)):
            kind = _CHECKED
        _KINDS[cls] = kind
    return kind


def _parts_of_table(node: exp.Table, scope: Scope) -> Iterator[_Step]:
    """Yield the parts of a table beside the name."""
    for key in _PARTS_OF_TABLE:
        value = node.args.get(key)
        if value:
            for part in value if isinstance(value, list) else [value]:
                if _kind_of(part) != _INERT and not isinstance(part, exp.Dot):
                    yield part, scope


def _common_tables(with_: exp.With, visible: dict[str, str]) -> Iterator[_Step]:
    """Yield the bodies of common table expressions with their scopes, and add the names to `visible`.

    Without RECURSIVE a body sees the names of earlier bodies. With RECURSIVE a name is certain after the body, and in
    the second part of a set operation in the body; in all other places engines differ.
    """
    if with_.args.get("udfs"):
        raise RewriteRefused(UNSUPPORTED_STATEMENT, "WITH FUNCTION is not supported")
    tables, recursive = with_.expressions, bool(with_.args.get("recursive"))
    names = [fold_ascii(table.alias) for table in tables]
    for at, table in enumerate(tables):
        _check_name(table.args["alias"].this)
        before = dict(visible)
        body = table.this
        if recursive:
            before |= dict.fromkeys(names[at:], _UNCERTAIN)
            if isinstance(body, exp.SetOperation) and not body.args.get("with_"):
                after = {**before, names[at]: _VISIBLE}
                yield body.this, before
                yield from ((child, after) for child in body.iter_expressions() if child is not body.this)
                visible[names[at]] = _VISIBLE
                continue
        yield body, before
        visible[names[at]] = _VISIBLE


def scope_of(node: exp.Expr) -> exp.Expr | None:
    """Return the query or statement around a source."""
    return node.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Merge, exp.Insert, exp.Create)


def _source_name(node: exp.Table) -> str:
    return node.this.name or (node.this.sql_name() if isinstance(node.this, exp.Func) else "in this place")
