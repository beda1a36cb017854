"""Files of other systems, told apart to say what to write instead."""

from __future__ import annotations

import json
import re
from typing import Final

_CEDAR: Final = (
    "Cedar policies are no rules: name the file in `policies.cedar.policies`, and `cedar` in the engines of an "
    "authority (docs/cedar.md)"
)
_CODE: Final = (
    "permissions in code are not read: for LakeQL, name its permission files in `policies.scopes.permissions`, and "
    "`scopes` in the engines of an authority; resolvers ask `POST /v1/scopes` (docs/scopes.md). Else write grants of "
    "`select` and `modify` in a world file, or rules in CEL"
)
_SQL: Final = (
    "SQL is not read: write row policies in YAML, `policies: [{id, table, grantees, filter}]`, or give each statement "
    "to `pdp policy execute`"
)
_BY_SUFFIX: Final = {
    ".cedar": _CEDAR,
    ".cedarschema": "a Cedar schema is no rule file: name it in `policies.cedar.schema`",
    ".rego": "Rego is not read: write rules in CEL, or grants; Trino's OPA plugin asks pdp (`pdp trino-config`)",
    ".sql": _SQL,
    **dict.fromkeys((".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs"), _CODE),
}
_ROW_POLICY: Final = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?ROW\s+ACCESS\s+POLICY\s+(?:IF\s+NOT\s+EXISTS\s+)?(?P<id>\S+)\s+ON\s+(?P<table>\S+)"
    r"(?:\s+GRANT\s+TO\s*\((?P<grantees>[^)]*)\))?\s+FILTER\s+USING\s*\((?P<filter>.*)\)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
CEDAR_ENTITIES: Final = (
    "Cedar entities are no world: name the file in `policies.cedar.entities`, or for each parent of a user or role "
    'write a grant `{principal: "user:oidc~...", privilege: assignee, object: "role:..."}`'
)
"""Advice for the entities of Cedar."""


def advice_for(suffix: str, text: str = "") -> str:
    """Return advice for a file of another system, "" for other files. A row policy in SQL is shown in YAML."""
    statements = [_ROW_POLICY.fullmatch(each) for each in _statements(text)] if suffix == ".sql" else []
    shown = [_policy(each) for each in statements if each and "<" not in each["id"]]
    if not shown or len(shown) < len(statements):
        return _BY_SUFFIX.get(suffix, "")
    return f"SQL is not read: write in YAML `policies: [{', '.join(shown)}]`, or give each to `pdp policy execute`"


def _statements(text: str) -> list[str]:
    """Return the statements of a text. A semicolon ends a statement if the next begins there."""
    code = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE)
    return [each for each in re.split(r";\s*(?=CREATE\s|\Z)", code, flags=re.IGNORECASE) if each.strip()]


def _policy(statement: re.Match[str]) -> str:
    """Return a row policy of SQL as a mapping in YAML. Without GRANT TO, BigQuery grants to all authenticated users."""
    grantees = re.sub(r"[\"']", "", statement["grantees"] or "allAuthenticatedUsers")
    id, table = (statement[part].strip("`").replace("`", "") for part in ("id", "table"))
    # A JSON text is a YAML text, whatever quotes and line ends the condition has.
    condition = json.dumps(statement["filter"].strip(), ensure_ascii=False)
    return f"{{id: {id}, table: {table}, grantees: [{_quoted(grantees)}], dialect: bigquery, filter: {condition}}}"


def is_cedar_entity(entry: object) -> bool:
    """Tell whether a JSON value is an entity of Cedar."""
    return isinstance(entry, dict) and "uid" in entry


def _quoted(grantees: str) -> str:
    return ", ".join(f'"{grantee.strip()}"' for grantee in grantees.split(",") if grantee.strip())
