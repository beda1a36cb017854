"""BigQuery's statements on row access policies, and its view of them, read to values; and other views of metadata.

Changes nothing: that takes a store of policies. The parser of SQL does not know these statements. A form that this
module does not read is an error, never a statement without effect. See
https://cloud.google.com/bigquery/docs/reference/standard-sql/data-definition-language.

The columns of INFORMATION_SCHEMA.ROW_ACCESS_POLICIES are BigQuery's. A caller sees the policies of tables whose grants
the caller may read: the service finds them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from pdp.engines.row_access.conditions import check_condition
from pdp.engines.row_access.policies import EVERYONE, PolicyBody, entry_name
from pdp.facts.objects import RowPolicy
from pdp.rewrite.catalog import Catalog
from pdp.rewrite.errors import (
    FILTER_INVALID,
    METADATA_TABLE,
    PARSE_ERROR,
    UNKNOWN_RELATION,
    PoliciesNeeded,
    RewriteRefused,
)
from pdp.rewrite.names import INFORMATION_SCHEMA
from pdp.rewrite.sql import LexicalText, apply_edits, quote_text, without_spans

_NAME: Final = r"(?:`[^`\\]+`|[A-Za-z_][\w-]*)(?:\s*\.\s*(?:`[^`\\]+`|[A-Za-z_][\w-]*))*"
_TEXT: Final = r"(?:'[^'\\]*'|\"[^\"\\]*\")"
_STATEMENT: Final = re.compile(r"\s*(?:create|drop)\b[\s\w]*?\brow\s+access\s+polic(?:y|ies)\b", re.IGNORECASE)
_CREATE: Final = re.compile(
    rf"\s*CREATE\s+(?P<replace>OR\s+REPLACE\s+)?ROW\s+ACCESS\s+POLICY\s+(?P<unless>IF\s+NOT\s+EXISTS\s+)?"
    rf"(?P<name>{_NAME})\s+ON\s+(?P<table>{_NAME})\s*"
    rf"(?:GRANT\s+TO\s*\(\s*(?P<grantees>{_TEXT}(?:\s*,\s*{_TEXT})*)\s*\)\s*)?"
    rf"FILTER\s+USING\s*\((?P<filter>.*)\)[\s;]*",
    re.IGNORECASE | re.DOTALL,
)
_DROP: Final = re.compile(
    rf"\s*DROP\s+ROW\s+ACCESS\s+POLICY\s+(?P<exists>IF\s+EXISTS\s+)?(?P<name>{_NAME})\s+ON\s+(?P<table>{_NAME})[\s;]*",
    re.IGNORECASE,
)
_DROP_ALL: Final = re.compile(
    rf"\s*DROP\s+ALL\s+ROW\s+ACCESS\s+POLICIES\s+ON\s+(?P<table>{_NAME})[\s;]*", re.IGNORECASE
)
DIALECT: Final = "bigquery"
"""Dialect of the statements, and so of their filters."""
_PART: Final = re.compile(r"`([^`]*)`|([\w-]+)")


class CreatePolicy(msgspec.Struct, frozen=True):
    """CREATE ROW ACCESS POLICY. `replace` and `unless_exists` say what happens to a policy of the name."""

    body: PolicyBody
    replace: bool = False
    unless_exists: bool = False


class DropPolicy(msgspec.Struct, frozen=True):
    """DROP ROW ACCESS POLICY. `if_exists`: a missing policy is no error."""

    name: str
    table: tuple[str, ...]
    if_exists: bool = False


class DropAllPolicies(msgspec.Struct, frozen=True):
    """DROP ALL ROW ACCESS POLICIES of a table."""

    table: tuple[str, ...]


PolicyStatement: TypeAlias = CreatePolicy | DropPolicy | DropAllPolicies


def is_policy_statement(text: str, dialect: str) -> bool:
    """Tell whether a text of a dialect is a statement on policies; raise RewriteRefused for an unreadable text."""
    if "polic" not in text.lower():
        return False
    return _STATEMENT.match(text) is not None or _STATEMENT.match(LexicalText(text, dialect).bare) is not None


def read_policy_statement(text: str) -> PolicyStatement | None:
    """Return the statement on policies of a text; None for another statement.

    Raise RewriteRefused for a statement on policies in an unknown form, and for a filter other than an expression.
    """
    if "polic" not in text.lower():
        return None
    lexical = LexicalText(text, DIALECT)
    if not _STATEMENT.match(lexical.bare):
        return None
    plain = apply_edits(text, without_spans(text, lexical.comments))
    if created := _CREATE.fullmatch(plain):
        return _created(created)
    if dropped := _DROP.fullmatch(plain):
        return DropPolicy(_policy(dropped["name"]), _parts(dropped["table"]), bool(dropped["exists"]))
    if emptied := _DROP_ALL.fullmatch(plain):
        return DropAllPolicies(_parts(emptied["table"]))
    raise RewriteRefused(PARSE_ERROR, "the statement on row access policies has an unknown form")


def _created(match: re.Match[str]) -> CreatePolicy:
    if match["replace"] and match["unless"]:
        raise RewriteRefused(PARSE_ERROR, "OR REPLACE and IF NOT EXISTS exclude each other")
    named = tuple(text[1:-1] for text in re.findall(_TEXT, match["grantees"] or "")) or EVERYONE
    table = ".".join(_parts(match["table"]))
    body = PolicyBody(_policy(match["name"]), table, match["filter"].strip(), named, DIALECT)
    try:
        check_condition(str(body.filter), DIALECT, None)
    except ValueError as error:
        raise RewriteRefused(FILTER_INVALID, f"{entry_name(body)}: {error}") from None
    return CreatePolicy(body, bool(match["replace"]), bool(match["unless"]))


def _policy(written: str) -> str:
    """Return the name of a policy; raise RewriteRefused for a name of several parts."""
    parts = _parts(written)
    if len(parts) != 1:
        raise RewriteRefused(PARSE_ERROR, f"`{written}` is no name of a policy")
    return parts[0]


def _parts(written: str) -> tuple[str, ...]:
    """Return the parts of a name, with backticks around the whole or around parts."""
    return tuple(part for quoted, bare in _PART.findall(written) for part in (quoted or bare).split("."))


POLICY_VIEW: Final = "row_access_policies"
_TEXTS: Final = (
    "table_catalog", "table_schema", "table_name", "policy_name", "grantees", "filter_predicate",
)  # fmt: skip
_TIMES: Final = ("creation_time", "last_modified_time")
_MOST: Final = 2_000
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_VARIABLE: Final = re.compile(r"(?<=\$)(?=\{)")
"""Place inside of the start of a variable, which Spark replaces in a text."""
_TEXT_TYPE: Final = {"bigquery": "STRING", "spark": "STRING"}
_TIME_TYPE: Final = {"bigquery": "TIMESTAMP", "spark": "TIMESTAMP"}


def is_policy_view(parts: Sequence[str]) -> bool:
    """Tell whether the name of a view of INFORMATION_SCHEMA is that of the policies."""
    return parts[-1].lower() == POLICY_VIEW


def policy_source(rows: Sequence[RowPolicy] | None, parts: Sequence[str], default: Sequence[str], dialect: str) -> str:
    """Return the subquery in place of a name of the view; raise RewriteRefused where nobody knows the policies.

    BigQuery's names have the schema before INFORMATION_SCHEMA, those of the other dialects the catalog.
    """
    if rows is None:
        raise PoliciesNeeded(METADATA_TABLE, f"`{'.'.join(parts)}` is not among the readable views of metadata")
    inside = tuple(part.lower() for part in parts[:-2]) or tuple(part.lower() for part in default[:2])
    if dialect == "bigquery" and len(inside) == 1:
        inside = (*(part.lower() for part in default[:1]), *inside)
    shown = [row for row in rows if _container(row)[: len(inside)] == inside]
    if len(shown) > _MOST:
        raise RewriteRefused(METADATA_TABLE, f"more than {_MOST} policies: name a schema")
    empty = RowPolicy(("", ""), "", ())
    selects = [_select(row, dialect) for row in shown or [empty]]
    rest = "" if shown else " WHERE FALSE"
    return f"(SELECT * FROM ({' UNION ALL '.join(selects)}) AS policies{rest})"  # noqa: S608  literals


def _container(row: RowPolicy) -> tuple[str, ...]:
    return row.table[0].lower(), ".".join(row.table[1:-1]).lower()


def _select(row: RowPolicy, dialect: str) -> str:
    catalog, *schema, table = row.table
    texts = (catalog, ".".join(schema), table, row.id, ",".join(row.grantees), row.text)
    kind, time = _TEXT_TYPE.get(dialect, "VARCHAR"), _TIME_TYPE.get(dialect, "TIMESTAMP WITH TIME ZONE")
    shown = [
        f"CAST({_text_sql(_UNSAFE.sub(' ', text), dialect)} AS {kind}) AS {name}"
        for name, text in zip(_TEXTS, texts, strict=True)
    ]
    moments = zip(_TIMES, (row.created, row.updated), strict=True)
    shown += [f"CAST({_moment(seconds)} AS {time}) AS {name}" for name, seconds in moments]
    return f"SELECT {', '.join(shown)}"


def _text_sql(text: str, dialect: str) -> str:
    """Return a text as SQL in which no variable stands."""
    parts = [quote_text(part, dialect) for part in _VARIABLE.split(text)]
    return parts[0] if len(parts) == 1 else f"CONCAT({', '.join(parts)})"


def _moment(seconds: float) -> str:
    """Return a time in UTC as a text literal; NULL for an unknown time."""
    return f"'{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}+00:00'" if seconds else "NULL"


READABLE_INFORMATION: Final = frozenset(
    """tables columns schemata views character_sets key_column_usage table_constraints referential_constraints
    constraint_column_usage routines parameters column_field_paths table_options applicable_roles enabled_roles
    roles""".split()  # noqa: SIM905
)
"""Views of INFORMATION_SCHEMA with names and types, without values, sizes and queries of users.

`views` and `routines` also have the texts of views and functions, for those to whom the engine shows them.
"""
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
