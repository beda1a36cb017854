"""Functions of the engine's session in statements and texts of views: user, role and schema.

An engine answers CURRENT_USER with the user of the session. A service runs the statements of all callers by one
account, so a view with values for that account alone would show the values to every caller. The name becomes the
literal of the reader, and a function without a literal is refused.

DuckDB and Spark take a bare name such as `user`, in quotes or without, for the function where no source of the query
has such a column. This module looks for the column in the sources of the query, as the engines do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sqlglot import exp

from pdp.rewrite.binding import ROW
from pdp.rewrite.catalog import Relation
from pdp.rewrite.errors import PARSE_ERROR, UNSUPPORTED_FUNCTION, RewriteRefused, unusable_filter
from pdp.rewrite.mentions import TableMentions
from pdp.rewrite.names import INFORMATION_SCHEMA, name_parts
from pdp.rewrite.sql import Edit, ParsedText, place_of, quote_name, quote_text

USERS: Final = (exp.CurrentUser, exp.SessionUser)
"""Functions whose value is the name of the reader."""
_SCHEMAS: Final = (exp.CurrentCatalog, exp.CurrentSchema, exp.CurrentSchemas, exp.CurrentDatabase)
"""Functions of the schema of the session. A statement may ask, a view must not decide by the answer."""
_REFUSED: Final = (
    exp.CurrentRole, exp.CurrentRoleType, exp.CurrentSecondaryRoles, exp.CurrentAvailableRoles, exp.CurrentAccount,
    exp.CurrentAccountName, exp.CurrentClient, exp.CurrentIpAddress, exp.CurrentOrganizationName,
    exp.CurrentOrganizationUser, exp.CurrentRegion, exp.CurrentSession, exp.CurrentStatement, exp.CurrentTransaction,
    exp.CurrentUserId, exp.CurrentWarehouse,
)  # fmt: skip
_ROLE_VIEWS: Final = frozenset({"applicable_roles", "enabled_roles", "roles"})
"""Views of INFORMATION_SCHEMA with the roles of the session."""
_SPOKEN: Final = re.compile(
    r"\b(?:user|session_user|current_(?!date|time|row\b)\w+|(?:applicable_|enabled_)?roles)\b|@@", re.IGNORECASE
)
"""Words without which a text has no such function."""
_BARE: Final = re.compile(r"(?<![\w.$@])(?:current_user|session_user)\b(?:\s*\(\s*\))?", re.IGNORECASE)
_CALL: Final = re.compile(r"\s*\(\s*\)")
_BESIDE: Final = re.compile(r"\s*[.(]")
_DOTTED: Final = re.compile(r"(?:^|[.])\s*\Z")
_FARTHEST: Final = 256
"""Blanks and comments before a name in which a prefix is looked for. Before more of them, a name is refused."""
_USER_NAMES: Final = frozenset({"user", "current_user", "session_user"})
_SCHEMA_NAMES: Final = frozenset({"current_catalog", "current_schema"})
_ROLE_NAME: Final = "current_role"
_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "duckdb": _USER_NAMES | _SCHEMA_NAMES | {_ROLE_NAME},
    "spark": _USER_NAMES,
}
"""Dialect -> names of columns that are functions where no source has the column."""
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {"trino": _SCHEMA_NAMES | {"current_path"}}
"""Dialect -> words for the place of the session that are functions wherever they stand without quotes."""
_ORDERS: Final = (exp.Ordered, exp.Order, exp.Group, exp.Distinct)
"""Lists of keys in which an engine refuses a literal, or takes it for a place in the output."""
_QUERIES: Final = (exp.Select, exp.Update, exp.Delete, exp.Merge, exp.Pivot)
_DEEPEST: Final = 12
"""Depth of queries in queries, up to which names of columns are looked for."""


class UserPlace(NamedTuple):
    """Place of the user's name in a text. `name` is the column that the place gives to the query; empty for none.

    `is_key`: rows are ordered or grouped by the name, where a bare literal has no meaning.
    """

    start: int
    end: int
    name: str = ""
    is_key: bool = False


def user_edits(places: Iterable[UserPlace], names: Iterable[str], dialect: str) -> list[Edit]:
    """Return the edits for the reader's name in a text. `names` has the names of all readers of the text.

    Raise RewriteRefused for readers of several names, and for a reader without a name.
    """
    places = tuple(places)
    if not places:
        return []
    found = set(names)
    if len(found) != 1:
        message = "a view asks for the user, and runs for the caller and for another owner"
        raise RewriteRefused(UNSUPPORTED_FUNCTION, message)
    literal = user_literal(found.pop(), dialect)
    key = (
        f"CAST({literal} AS {'STRING' if dialect == 'bigquery' else 'VARCHAR'})" if dialect in _TYPED_KEYS else literal
    )
    return [
        Edit(
            place.start,
            place.end,
            f"{literal} AS {quote_name(place.name, dialect)}" if place.name else key if place.is_key else literal,
        )
        for place in places
    ]


_TYPED_KEYS: Final = frozenset({"bigquery", "duckdb"})
"""Dialects that refuse a literal as a key, and take a typed one."""


def user_literal(user: str, dialect: str) -> str:
    """Return the name of a reader as a literal; raise RewriteRefused for a name without a literal."""
    if not user:
        raise unusable_filter("a filter, mask or statement names the caller, and the caller is a role without a name")
    if ROW in user:
        raise unusable_filter(f"the name of the caller holds `{ROW}`, a name of the rewriter")
    return quote_text(user, dialect)


def user_places(
    parsed: ParsedText, dialect: str, mentions: TableMentions, *, is_view: bool = False
) -> tuple[UserPlace, ...]:
    """Return the places of a text where the engine would put the user of its session; raise RewriteRefused.

    Functions of the session without a literal are refused, and in the text of a view functions of the schema.
    """
    if not _SPOKEN.search(parsed.text):
        return ()
    return tuple(_SessionReading(parsed, dialect, mentions, is_view=is_view).places())


class _SessionReading:
    """Reading of one text."""

    def __init__(self, parsed: ParsedText, dialect: str, mentions: TableMentions, *, is_view: bool) -> None:
        self._parsed, self._dialect, self._is_view = parsed, dialect, is_view
        self._names = _NAMES.get(dialect, frozenset())
        self._sources = _Sources(mentions, dialect)

    def places(self) -> Iterator[UserPlace]:
        bare: list[exp.Expr] = []
        starts: set[int] = set()
        for node in self._parsed.tree.walk():
            if isinstance(node, exp.Identifier):
                starts |= {node.meta["start"]} if "start" in node.meta else set()
            elif isinstance(node, USERS):
                if "start" in node.meta:
                    yield self._call(node)
                else:
                    bare.append(node)
            elif isinstance(node, exp.Column):
                yield from self._column(node)
            else:
                self._check(node)
        yield from self._bare(bare, starts)

    def _check(self, node: exp.Expr) -> None:
        """Raise RewriteRefused for a function of the session without a literal."""
        if isinstance(node, _REFUSED) or (self._is_view and isinstance(node, _SCHEMAS)):
            raise _refused(node.sql_name().lower() if isinstance(node, exp.Func) else "")
        if isinstance(node, exp.Parameter) and isinstance(node.this, exp.Parameter):
            name = node.this.name.lower()
            if self._is_view or "session" in name or "user" in name:
                raise _refused(f"@@{name}")
        elif self._is_view and isinstance(node, exp.Table) and _is_of_roles(node):
            raise _refused(node.name.lower())

    def _call(self, node: exp.Expr) -> UserPlace:
        """Return the place of a call, with its parentheses."""
        start, end = node.meta["start"], node.meta["end"] + 1
        call = _CALL.match(self._parsed.lexical.bare, end)
        if call is None or any(node.args.values()):
            raise _uncertain(self._parsed.text[start:end])
        return self._place(node, start, call.end(), _named(node, self._parsed.text[start:end]))

    def _column(self, column: exp.Column) -> Iterator[UserPlace]:
        name = column.name.lower()
        if not isinstance(column.this, exp.Identifier) or len(column.parts) > 1:
            return
        if name in _KEYWORDS.get(self._dialect, ()) and not column.this.quoted:
            if self._is_view:
                raise _refused(name)
            return
        is_word = name == _ROLE_NAME and not column.this.quoted
        if not is_word and name not in self._names:
            return
        found = self._sources.have(column, name)
        if found:
            return
        if found is None:
            raise _uncertain(column.name)
        if name == _ROLE_NAME or (self._is_view and name in _SCHEMA_NAMES):
            raise _refused(name)
        if name in _USER_NAMES:
            yield self._place(column, *place_of(column.this), _named(column, name))

    def _bare(self, nodes: Sequence[exp.Expr], starts: set[int]) -> Iterator[UserPlace]:
        """Yield the places of functions without parentheses: the parser notes none."""
        if not nodes:
            return
        called = {node.meta.get("start") for node in self._parsed.tree.find_all(*USERS)}
        found = [
            match
            for match in _BARE.finditer(self._parsed.lexical.bare)
            if match.start() not in starts and match.start() not in called
        ]
        if len(found) != len(nodes):
            raise _uncertain("current_user")
        are_named = all(_named(node, "x") for node in nodes)
        # The order of the tree is not the order of the text: if one of them is a key, each is written as one.
        key = next(filter(_is_key, nodes), nodes[0])
        for match in found:
            name = match[0].partition("(")[0].strip().lower()
            yield self._place(key, *match.span(), name if are_named else "")

    def _place(self, node: exp.Expr, start: int, end: int, name: str) -> UserPlace:
        text = self._parsed.text
        beside = text[max(start - 1, 0) : start] + text[end : end + 1]
        if _BESIDE.match(text, end) or any(sign in "'\"`\\" or sign.isalnum() for sign in beside):
            raise _uncertain(text[start:end])
        if _DOTTED.search(self._parsed.lexical.bare[max(start - _FARTHEST, 0) : start]):
            raise RewriteRefused(UNSUPPORTED_FUNCTION, f"`{text[start:end]}` has a prefix here: write the name alone")
        return UserPlace(start, end, name, _is_key(node))


def _is_of_roles(table: exp.Table) -> bool:
    """Tell whether a view of INFORMATION_SCHEMA has the roles of the session."""
    parts = name_parts(table) or ("",)
    return [part.lower() for part in parts[-2:-1]] == [INFORMATION_SCHEMA] and parts[-1].lower() in _ROLE_VIEWS


def _is_key(node: exp.Expr) -> bool:
    """Tell whether rows are ordered or grouped by the very value of a node."""
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Tuple)):
        parent = parent.parent
    return isinstance(parent, _ORDERS)


def _named(node: exp.Expr, name: str) -> str:
    """Return the name of the column that a part of a query gives without an alias; empty for another part."""
    return name.strip('`"').lower() if isinstance(node.parent, exp.Select) and node.arg_key == "expressions" else ""


def _refused(name: str) -> RewriteRefused:
    return RewriteRefused(UNSUPPORTED_FUNCTION, f"`{name}` tells of the engine's session, not of the caller")


def _uncertain(name: str) -> RewriteRefused:
    message = f"`{name}` could be a column or the user of the session: write a column with its table, or CURRENT_USER"
    return RewriteRefused(PARSE_ERROR, message)


class _Sources:
    """Columns of the sources of a query, as far as they are known."""

    def __init__(self, mentions: TableMentions, dialect: str) -> None:
        self._relations = {id(mention.node): mention.relations for mention in mentions.found}
        self._dialect = dialect

    def have(self, column: exp.Column, name: str) -> bool | None:
        """Tell whether a source of the query around a name has the column; None in doubt.

        The engines look for the function before columns of the queries around.
        """
        query = _query_around(column)
        if query is None or _is_target(column):
            return query is not None
        found = _any(self._has(source, name, 0) for source in _sources_of(query))
        if found is not False or not isinstance(query, exp.Select):
            return found
        given = {part.alias.lower() for part in query.expressions if isinstance(part, exp.Alias)}
        return self._has_alias(column, query) if name in given else False

    def _has_alias(self, column: exp.Column, query: exp.Select) -> bool | None:
        """Tell whether a name without a source means an output of the query."""
        node: exp.Expr = column
        while node.parent is not query and node.parent is not None:
            node = node.parent
        if node.arg_key == "order":
            return True
        if self._dialect == "duckdb":
            return True if node.arg_key in ("where", "group", "qualify") else None
        return None if node.arg_key in ("having", "group", "qualify", "sort", "cluster", "distribute") else False

    def _has(self, source: exp.Expr, name: str, depth: int) -> bool | None:
        if depth > _DEEPEST:
            return None
        alias = source.args.get("alias")
        columns = {part.name.lower() for part in alias.args.get("columns") or ()} if alias is not None else set()
        if name in columns or (self._dialect == "duckdb" and source.alias_or_name.lower() == name):
            return True  # DuckDB takes the name of a source for its row
        joined = _any(self._has(join.this, name, depth + 1) for join in source.args.get("joins") or ())
        if isinstance(source, exp.Table) and not source.args.get("pivots"):
            own = self._table_has(source, name, depth)
        elif isinstance(source, exp.Subquery) and not source.args.get("pivots"):
            inner = source.this
            own = self._has(inner, name, depth + 1) if isinstance(inner, exp.Table) else self._gives(inner, name, depth)
        else:
            own = False if columns or isinstance(source, exp.Values) else None
        return _any((joined, None if columns and own else own))

    def _table_has(self, table: exp.Table, name: str, depth: int) -> bool | None:
        if not isinstance(table.this, exp.Identifier):
            return None
        relations = self._relations.get(id(table))
        if relations is not None:
            return _any(_relation_has(relation, name) for relation in relations)
        common = _common_table(table)
        if common is None:
            return None
        columns = [part.name.lower() for part in common.args["alias"].args.get("columns") or ()]
        return name in columns if columns else self._gives(common.this, name, depth + 1)

    def _gives(self, query: exp.Expr, name: str, depth: int) -> bool | None:
        """Tell whether a query has an output of a name; None in doubt."""
        if depth > _DEEPEST:
            return None
        if isinstance(query, exp.SetOperation):
            return self._gives(query.this, name, depth + 1)
        if isinstance(query, exp.Subquery):
            return self._gives(query.this, name, depth + 1)
        if isinstance(query, exp.Values):
            return False
        if not isinstance(query, exp.Select):
            return None
        if _gives(query, name):
            return True
        stars = [part for part in query.expressions if part.is_star]
        if not stars:
            return False
        found = _any(self._has(source, name, depth + 1) for source in _sources_of(query))
        is_plain = all(isinstance(star, exp.Star) and not any(star.args.values()) for star in stars)
        return found if is_plain or found is False else None


def _query_around(column: exp.Column) -> exp.Expr | None:
    """Return the query, change or PIVOT with the sources of a column. Branches of MERGE see the sources of MERGE."""
    query = column.find_ancestor(*_QUERIES)
    while isinstance(query, exp.Update) and not query.this:
        query = query.find_ancestor(*_QUERIES)
    return query


def _is_target(column: exp.Column) -> bool:
    """Tell whether a name is a column for certain: the target of a change, or an exception of a star."""
    parent = column.parent
    around = parent.parent if parent is not None else None
    if isinstance(parent, exp.EQ) and column.arg_key == "this":
        return isinstance(around, exp.Update) and parent.arg_key == "expressions"
    return isinstance(parent, exp.Star) or (isinstance(around, exp.Insert) and parent is around.this)


def _gives(query: exp.Select, name: str) -> bool:
    """Tell whether an output of a query is called so."""
    return any(
        part.alias_or_name.lower() == name or (isinstance(part, USERS) and name in _USER_NAMES)
        for part in query.expressions
    )


def _any(found: Iterable[bool | None]) -> bool | None:
    """Return True if any is, None if any is in doubt, else False."""
    some = set(found)
    return True if True in some else None if None in some else False


def _relation_has(relation: Relation, name: str) -> bool | None:
    if relation.view is not None and relation.view.columns:
        return name in {column.lower() for column in relation.view.columns}
    return name in relation.columns if relation.columns else None


def _sources_of(query: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the sources whose columns the expressions of a query or change see."""
    if isinstance(query, exp.Pivot):
        source = query.this or query.parent
        return (yield source) if source is not None else None
    if isinstance(query, (exp.Update, exp.Delete, exp.Merge)):
        yield query.this
    using = query.args.get("using")
    yield from using if isinstance(using, list) else [using] if isinstance(using, exp.Expr) else []
    start = query.args.get("from_")
    yield from (start.this,) if start is not None else ()
    for key in ("joins", "laterals"):
        for part in query.args.get(key) or ():
            yield part.this if isinstance(part, exp.Join) else part


def _common_table(table: exp.Table) -> exp.CTE | None:
    """Return the common table expression that a table names, from the inside out; None for another table."""
    node: exp.Expr | None = table
    name = table.name.lower()
    while node is not None:
        with_ = node.args.get("with_")
        for common in reversed(with_.expressions if with_ is not None else ()):
            if common.alias.lower() == name and not table.args.get("db"):
                return common if isinstance(common, exp.CTE) else None
        node = node.parent
    return None
