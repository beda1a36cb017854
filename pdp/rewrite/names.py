"""Names with a meaning of their own: words of SQL, hidden columns, metadata tables, array paths, steps of pipes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from sqlglot import Token, TokenType, exp
from sqlglot.parsers.bigquery import BigQueryParser

from pdp.rewrite.catalog import fold_ascii
from pdp.rewrite.errors import (
    METADATA_TABLE,
    UNKNOWN_RELATION,
    UNSUPPORTED_SOURCE,
    UNSUPPORTED_STATEMENT,
    WILDCARD_TABLE,
    RewriteRefused,
)

RESERVED: Final = frozenset(
    """select from where table with union except intersect join insert update delete merge create lateral values into
    having group order on using tablesample pivot unpivot""".split()  # noqa: SIM905
)
"""Words that no engine takes as a name without quotes. Where the parser does, it has misread the statement."""
HIDDEN_COLUMNS: Final = frozenset(
    """rowid _rowid_ _metadata _file _pos _partition _spec_id _deleted _row_id _last_updated_sequence_number
    _partitiontime _partitiondate _file_name _table_suffix _change_type _commit_version _commit_timestamp
    input_file_name file_row_number file_index""".split()  # noqa: SIM905
)
"""Columns that say where a row is stored. Names that begin with `$` are hidden as well."""
METADATA_SUFFIXES: Final = frozenset(
    """files data_files delete_files all_files all_data_files all_delete_files entries all_entries manifests
    all_manifests partitions snapshots history metadata_log_entries refs position_deletes properties
    changes""".split()  # noqa: SIM905
)
INFORMATION_SCHEMA: Final = "information_schema"


def name_parts(node: exp.Table) -> tuple[str, ...] | None:
    """Return the name of a table as written, a text for each part; None for a source without a name."""
    parts = node.parts
    if not all(part.__class__ is exp.Identifier for part in parts):
        return None
    names = [part.args["this"] for part in parts]
    return tuple(".".join(names).split("."))


def metadata_base(parts: tuple[str, ...], dialect: str) -> tuple[str, ...] | None:
    """Return the name of the table that a name of metadata belongs to; None for another name."""
    base, dollar, suffix = parts[-1].partition("$")
    if dollar and base:
        is_suffix = dialect == "trino" and suffix.lower() in METADATA_SUFFIXES
        is_partition = dialect == "bigquery" and suffix.isdigit()
        return (*parts[:-1], base) if is_suffix or is_partition else None
    if dialect == "spark" and len(parts) > 1 and parts[-1].lower() in METADATA_SUFFIXES:
        return parts[:-1]
    return None


def check_dots(node: exp.Table, dialect: str) -> None:
    """Raise RewriteRefused for a dot in a quoted name: only in BigQuery the dot divides the name."""
    if dialect != "bigquery" and any("." in part.name for part in node.parts):
        raise RewriteRefused(UNKNOWN_RELATION, f"`{node.name}` has a dot inside of a quoted name")


def check_new_name(parts: Sequence[str], dialect: str) -> None:
    """Raise RewriteRefused for a new relation with a name of metadata: later reads would pass as metadata."""
    if dialect == "bigquery" and parts[-1].endswith("*"):
        raise RewriteRefused(WILDCARD_TABLE, f"`{'.'.join(parts)}` names many tables, and no new one")
    folded = [part.lower() for part in parts]
    if folded[-1] in METADATA_SUFFIXES or INFORMATION_SCHEMA in folded or any("$" in part for part in folded):
        raise RewriteRefused(METADATA_TABLE, f"`{'.'.join(parts)}` is a name of metadata")


PATH: Final = "is_path"
"""Key in the notes of an UNNEST that the text writes as a path."""
_PATH_PARTS: Final = frozenset({"this", "db", "catalog", "alias", "offset"})
"""Parts of a table that a path has, too."""
_SEES_SOURCES: Final[dict[type, frozenset[str]]] = {
    exp.Select: frozenset({"expressions", "where", "group", "having", "qualify", "order"}),
    exp.Update: frozenset({"expressions", "where"}), exp.Delete: frozenset({"where"}), exp.Merge: frozenset({"on"}),
}  # fmt: skip
"""Parts of a statement from which an expression sees the sources of the statement."""
_BORDERS: Final = (exp.With, exp.CTE, exp.Pivot, exp.Table, exp.Lateral, exp.From, exp.Join, exp.DDL)
"""Parts of a tree from the inside of which GoogleSQL sees no source around."""


class ArrayPathParser(BigQueryParser):
    """Parser of BigQuery with array paths, such as `o.tags` after `orders AS o`, and WITH OFFSET behind a path.

    GoogleSQL takes a name of several parts for a path if the first part is a visible source: to the left in the same
    FROM, or of a query around an expression. Inside a table of FROM, a common table expression and the ORDER BY of a
    set operation, no source is visible, and PIVOT takes the name of a source away. Every other name stays a table: an
    unknown table is refused, and a known table gets the filter.
    """

    SUPPORTS_IMPLICIT_UNNEST = False  # the library does not know subqueries, and drops clauses behind a path

    def reset(self) -> None:
        """Forget the last text."""
        super().reset()
        self._named: list[exp.Table] = []

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        """Return the trees of a text; raise RewriteRefused for a path in doubt."""
        trees = super().parse(raw_tokens, sql)
        for path in [table for table in self._named if _is_path(table)]:
            _unnest(path)
        return trees

    def _parse_table(self, *args: bool, **options: bool) -> exp.Expr | None:  # type: ignore[override]
        table = super()._parse_table(*args, **options)  # type: ignore[arg-type]
        if isinstance(table, exp.Table) and table.args.get("db"):
            self._named.append(table)
            if self._match_pair(TokenType.WITH, TokenType.OFFSET):
                self._match(TokenType.ALIAS)
                alias = self._parse_id_var(any_token=False, tokens=self.UNNEST_OFFSET_ALIAS_TOKENS)
                table.set("offset", alias or exp.to_identifier("offset"))
        return table


def _unnest(path: exp.Table) -> None:
    """Put an UNNEST into the tree in place of a path; raise RewriteRefused for a path with clauses of a table."""
    is_divided = path.meta.get("quoted_table") or any("." in part.name for part in path.parts)
    if is_divided or any(value and key not in _PATH_PARTS for key, value in path.args.items()):
        raise _in_doubt(path)
    alias = path.args.get("alias")
    path.set("alias", None)
    unnest = exp.Unnest(expressions=[path.to_column()], offset=path.args.get("offset"))
    if alias is not None:
        unnest.set("alias", exp.TableAlias(columns=[alias.this]))
    unnest.meta[PATH] = True
    path.replace(unnest)


def _in_doubt(path: exp.Table) -> RewriteRefused:
    name = ".".join(part.name for part in path.parts)
    return RewriteRefused(UNSUPPORTED_SOURCE, f"`{name}` could be a table or an array: use UNNEST()")


def _is_path(table: exp.Table) -> bool:
    """Tell whether a table is a path; raise RewriteRefused in doubt."""
    first = fold_ascii(table.parts[0].name)
    for source in _seen_from(table):
        if _name_of(source) == PIPED and first in map(_name_of, source.find_all(exp.Table, exp.Subquery, exp.Unnest)):
            raise _in_doubt(table)
        if _name_of(source) == first:
            if source.meta.get("quoted_table") and not source.alias:
                raise _in_doubt(table)  # GoogleSQL gives a whole name in quotes no other name
            return True
    return False


def _seen_from(table: exp.Table) -> Iterator[exp.Expr]:
    """Yield the sources that a source sees, from the inside out."""
    node: exp.Expr | None = table
    while node is not None and node.parent is not None:
        is_source = node is table or isinstance(node, exp.Unnest)
        seen, node = _step(node, node.parent, is_source=is_source)
        yield from seen


def _step(node: exp.Expr, parent: exp.Expr, *, is_source: bool) -> tuple[Iterable[exp.Expr], exp.Expr | None]:
    """Return the sources that a part sees in the part around, and the next part to look from; None for the end."""
    query = parent.parent
    if (
        isinstance(parent, (exp.From, exp.Join))
        and isinstance(query, exp.Select)
        and (is_source or node.arg_key == "on")
    ):
        return _sources(query, parent, is_after=node.arg_key == "on"), query
    if isinstance(parent, exp.SetOperation):
        return (), parent if node.arg_key in ("this", "expression") else None
    parts = _SEES_SOURCES.get(type(parent))
    if parts is None:
        return (), None if isinstance(parent, _BORDERS) else parent
    if node.arg_key not in parts:
        return (), None
    if isinstance(parent, exp.Select):
        return _sources(parent), parent
    return (parent.this,) if isinstance(parent.this, exp.Table) else (), parent


def _sources(query: exp.Select, item: exp.Expr | None = None, *, is_after: bool = False) -> Iterator[exp.Expr]:
    """Yield the named sources of a query: all, or those before a join, or with the join."""
    start = query.args.get("from_")
    for one in (*([start] if start else ()), *(query.args.get("joins") or ())):
        if one is item and not is_after:
            return
        if not one.args.get("pivots"):
            yield from _named(one.this)
        if one is item:
            return


def _named(source: exp.Expr) -> Iterator[exp.Expr]:
    """Yield a source, and the sources joined with the first one in parentheses."""
    if source.args.get("pivots"):
        return
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Table) and not source.alias:
        yield from _named(source.this)
    else:
        yield source
    for join in source.args.get("joins") or ():
        if not join.args.get("pivots"):
            yield from _named(join.this)


def _name_of(source: exp.Expr) -> str:
    """Return the folded name of a source; empty without one."""
    alias = source.args.get("alias")
    if alias is not None:
        names: Sequence[exp.Expr] = [alias.this] if alias.this is not None else alias.args.get("columns") or ()
        return fold_ascii(names[0].name) if len(names) == 1 else ""
    return fold_ascii(source.parts[-1].name) if isinstance(source, exp.Table) and source.name else ""


PIPED: Final = "_rap_pipe"
"""Name of the rows before a step of pipes, in the tree alone."""
PIPES: Final = frozenset({"bigquery", "spark"})
"""Dialects with pipes."""
_MOST_STEPS: Final = 40
_STEPS: Final[dict[str, str]] = {
    **dict.fromkeys(("where", "order by", "limit", "offset", "pivot", "unpivot"), "clause"),
    **dict.fromkeys(("join", "left", "right", "full", "inner", "cross"), "clause"),
    **dict.fromkeys(("union", "intersect", "except", "minus"), "query"),
    **dict.fromkeys(("extend", "set", "drop", "rename"), "more columns"), "select": "columns",
    "aggregate": "groups", "distinct": "all columns", "as": "name",
}  # fmt: skip
"""First word of a step -> what the step is in a query on the rows before. Every other step is refused."""
_USERS: Final = frozenset({"user", "current_user", "session_user"})
"""Columns without which the name is the user of the session."""
_GROUPING: Final = ("group by", "group and order by")
_ORDER: Final = frozenset({"asc", "desc", "nulls", "first", "last"})
_HEADS: Final = frozenset({"from", "select", "table", "("})
Words: TypeAlias = list[Token]


class _Pipes:
    """Reading of the pipes of one text: each step becomes a query on the query before, in the order of the text.

    A step keeps all tokens but names and orders of keys. So the tree has each table, function and column at its place.
    """

    def __init__(self) -> None:
        self.steps = 0

    def read(self, tokens: Sequence[Token]) -> Words:
        """Return the tokens without pipes; raise RewriteRefused for an unknown step."""
        frames: list[list[Words]] = [[[]]]
        for token in tokens:
            kind = token.token_type
            if kind == TokenType.PIPE_GT:
                frames[-1].append([])
            elif kind == TokenType.R_PAREN and len(frames) > 1:
                inner = self._query(*frames.pop())
                frames[-1][-1] += (*inner, token)
            else:
                frames[-1][-1].append(token)
                if kind == TokenType.L_PAREN:
                    frames.append([[]])
        return self._query(*frames[0]) if len(frames) == 1 else list(tokens)

    def _query(self, head: Words, *steps: Words) -> Words:
        if not steps:
            return head
        self.steps += len(steps)
        before, query = self._head(head)
        for step in steps:
            query = self._step(query, [token for token in step if token.token_type != TokenType.SEMICOLON])
        return [*before, *query]

    def _head(self, head: Words) -> tuple[Words, Words]:
        """Return the query before the first pipe, with the tokens in front of the query first."""
        at = 0
        if head and head[0].token_type == TokenType.WITH:
            at = next((at for at, token in _outer(head) if token.text.lower() in ("from", "select", "table")), 0)
        first = head[at].text.lower() if at < len(head) else ""
        outer = [token.text.lower() for _, token in _outer(head[at:])]
        if first not in _HEADS or (first != "select" and "select" in outer) or self.steps > _MOST_STEPS:
            raise _refused_step("the query before the first one")
        if first == "select":
            return head[:at], head[at:]
        rest = head[at:] if first == "(" else head[at + 1 :]
        return head[:at], [*_words(head[at], "select * from"), *rest]

    def _step(self, query: Words, step: Words) -> Words:
        word = step[0].text.lower() if step else ""
        kind = _STEPS.get(word)
        if kind is None or (word == "drop" and not _USERS.isdisjoint(token.text.lower() for token in step)):
            raise _refused_step(word.upper()[:40])
        first, rest = step[0], step[1:]
        before = [*_words(first, "("), *query, *_words(first, f") as {PIPED}")]
        everything = _words(first, "select * from")
        if kind == "clause":
            return [*everything, *before, *step]
        if kind == "query":
            return [*everything, *before, *_joined_queries(step)]
        if kind == "name":
            return [*everything, *_words(first, "("), *query, *_words(first, ")"), *step]
        if kind == "all columns":
            return [*_words(first, "select distinct * from"), *before, *rest]
        columns, behind = _cut(rest, ("window",)) if kind != "groups" else _cut(rest, _GROUPING)
        if kind == "groups":
            keys = behind[1 if behind and behind[0].token_type == TokenType.GROUP_BY else 3 :]
            behind = [*_words(first, "group_by"), *_items(keys, named=False)] if keys else []
            columns = [*_names_of_keys(keys), *(_items(columns, named=True) or _words(first, "1"))]
        while columns and columns[-1].token_type == TokenType.COMMA:
            columns = columns[:-1]
        start = _words(first, "select *,") if kind == "more columns" else _words(first, "select")
        return [*start, *columns, *_words(first, "from"), *before, *behind]


_SIGNS: Final = {
    "select": TokenType.SELECT, "distinct": TokenType.DISTINCT, "*": TokenType.STAR, ",": TokenType.COMMA,
    "from": TokenType.FROM, "(": TokenType.L_PAREN, ")": TokenType.R_PAREN, "as": TokenType.ALIAS,
    "group_by": TokenType.GROUP_BY, "1": TokenType.NUMBER,
}  # fmt: skip


def _words(at: Token, text: str) -> Words:
    """Return tokens of the tree alone, at the place of a token."""
    parts = text.replace("*,", "* ,").split()
    return [Token(_SIGNS.get(part, TokenType.VAR), part, at.line, at.col, at.start, at.end) for part in parts]


def _outer(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens outside of brackets, with places."""
    depth = 0
    for at, token in enumerate(tokens):
        depth -= token.token_type in _CLOSING
        if not depth:
            yield at, token
        depth += token.token_type in _OPENING


_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def _cut(tokens: Words, words: Sequence[str]) -> tuple[Words, Words]:
    """Return the tokens before the first of the words outside of brackets, and the tokens from there on."""
    texts = [(at, token.text.lower()) for at, token in _outer(tokens)]
    for place, (at, text) in enumerate(texts):
        following = " ".join(other for _, other in texts[place : place + 3])
        if text in words or following in words:
            return tokens[:at], tokens[at:]
    return tokens, []


def _items(tokens: Words, *, named: bool) -> Words:
    """Return a list without the order of its items, and without their names if these are not `named`."""
    found: Words = []
    start = 0
    ends = [at for at, token in _outer(tokens) if token.token_type == TokenType.COMMA]
    for end in (*ends, len(tokens)):
        item = tokens[start:end]
        while len(item) > 1 and item[-1].text.lower() in _ORDER:
            item = item[:-1]
        if not named and len(item) > 2 and item[-2].token_type == TokenType.ALIAS:
            item = item[:-2]
        found += (*item, *tokens[end : end + 1])
        start = end + 1
    return found


def _names_of_keys(keys: Words) -> Words:
    """Return columns with the names of keys: a query has keys before other columns."""
    found: Words = []
    places = [at for at, token in _outer(keys) if token.token_type == TokenType.COMMA]
    for start, end in pairwise((-1, *places, len(keys))):
        item = keys[start + 1 : end]
        while len(item) > 1 and item[-1].text.lower() in _ORDER:
            item = item[:-1]
        if len(item) == 1 or (item and item[-2].token_type in (TokenType.ALIAS, TokenType.DOT)):
            found += (*_words(item[-1], "1 as"), item[-1], *_words(item[-1], ","))
    return found


def _joined_queries(step: Words) -> Words:
    """Return a set operation with its word before each of its queries."""
    word = [token for token in step[:2] if token.token_type != TokenType.L_PAREN]
    found: Words = []
    outer = {at for at, token in _outer(step) if token.token_type == TokenType.COMMA}
    for at, token in enumerate(step):
        found += word if at in outer else [token]
    return found


def without_pipes(tokens: list[Token], dialect: str) -> list[Token]:
    """Return tokens in which each step of pipes is a query on the query before; raise RewriteRefused."""
    if dialect not in PIPES or not any(token.token_type == TokenType.PIPE_GT for token in tokens):
        return tokens
    return _Pipes().read(tokens)


def _refused_step(step: str) -> RewriteRefused:
    return RewriteRefused(UNSUPPORTED_STATEMENT, f"pipe syntax (`|>`) of this form is not supported: {step}")
