"""Names with a meaning of their own: words of SQL, hidden columns, metadata tables, paths of BigQuery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sqlglot import Token, TokenType, exp
from sqlglot.parsers.bigquery import BigQueryParser

from pdp.rewrite.catalog import Catalog, fold_ascii
from pdp.rewrite.errors import METADATA_TABLE, UNKNOWN_RELATION, UNSUPPORTED_SOURCE, WILDCARD_TABLE, RewriteRefused

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
READABLE_INFORMATION: Final = frozenset(
    """tables columns schemata views character_sets key_column_usage table_constraints referential_constraints
    constraint_column_usage routines parameters column_field_paths table_options applicable_roles enabled_roles
    roles""".split()  # noqa: SIM905
)
"""Views of INFORMATION_SCHEMA with names and types, without values, sizes and queries of users.

`views` and `routines` also have the texts of views and functions, for those to whom the engine shows them.
"""


def name_parts(node: exp.Table) -> tuple[str, ...] | None:
    """Return the name of a table as written, a text for each part; None for a source without a name."""
    parts = node.parts
    if not all(part.__class__ is exp.Identifier for part in parts):
        return None
    names = [part.args["this"] for part in parts]
    return tuple(".".join(names).split("."))


_OWN_CATALOGS: Final[dict[str, tuple[str, ...]]] = {"duckdb": ("system",), "trino": (), "spark": (), "bigquery": ()}
"""Dialect -> catalogs of the engine itself, in lower case. DuckDB attaches no database as `system`."""
_INFORMATION_PARTS: Final = 3
"""Parts of the longest name of a view of INFORMATION_SCHEMA outside of BigQuery."""


def is_information(parts: Sequence[str]) -> bool:
    """Tell whether a name is of a view of INFORMATION_SCHEMA."""
    return len(parts) > 1 and parts[-2].lower() == INFORMATION_SCHEMA


def check_information(parts: Sequence[str], dialect: str, catalog: Catalog) -> None:
    """Raise RewriteRefused unless a name is of a readable view of a known catalog.

    A catalog that no file describes can hold a table of that name. BigQuery keeps the name for the views.
    """
    name = ".".join(parts)
    if parts[-1].lower() not in READABLE_INFORMATION:
        raise RewriteRefused(METADATA_TABLE, f"`{name}` is not among the readable views of metadata")
    is_known = len(parts) < _INFORMATION_PARTS or parts[0].lower() in (*catalog.containers, *_OWN_CATALOGS[dialect])
    if dialect != "bigquery" and (len(parts) > _INFORMATION_PARTS or not is_known):
        raise RewriteRefused(UNKNOWN_RELATION, f"`{name}` is in no known catalog")


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
