"""BigQuery's statements on row access policies, read to values. Changes nothing: that takes a store of policies.

The parser of SQL does not know these statements. A form that this module does not read is an error, never a statement
without effect. See https://cloud.google.com/bigquery/docs/reference/standard-sql/data-definition-language.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import msgspec

from pdp.engines.row_access.policies import EVERYONE
from pdp.rewrite.errors import FILTER_INVALID, PARSE_ERROR, RewriteRefused
from pdp.rewrite.lexical import LexicalText
from pdp.rewrite.splice import apply_edits, without_spans
from pdp.rewrite.syntax import parse_part

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
_PART: Final = re.compile(r"`([^`]*)`|([\w-]+)")


class CreatePolicy(msgspec.Struct, frozen=True):
    """CREATE ROW ACCESS POLICY. `replace` and `unless_exists` say what happens to a policy of the name."""

    name: str
    table: tuple[str, ...]
    grantees: tuple[str, ...]
    filter: str
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
    lexical = LexicalText(text, "bigquery")
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
    condition = match["filter"].strip()
    try:
        parse_part(condition, "bigquery")
    except RewriteRefused as error:
        raise RewriteRefused(FILTER_INVALID, f"the filter is not a single expression: {error}") from None
    named = tuple(text[1:-1] for text in re.findall(_TEXT, match["grantees"] or "")) or EVERYONE
    return CreatePolicy(
        _policy(match["name"]), _parts(match["table"]), named, condition, bool(match["replace"]), bool(match["unless"])
    )


def _policy(written: str) -> str:
    """Return the name of a policy; raise RewriteRefused for a name of several parts."""
    parts = _parts(written)
    if len(parts) != 1:
        raise RewriteRefused(PARSE_ERROR, f"`{written}` is no name of a policy")
    return parts[0]


def _parts(written: str) -> tuple[str, ...]:
    """Return the parts of a name, with backticks around the whole or around parts."""
    return tuple(part for quoted, bare in _PART.findall(written) for part in (quoted or bare).split("."))
