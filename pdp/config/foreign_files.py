"""Files of other systems, told apart to say what to write instead."""

from __future__ import annotations

import re
from typing import Final

_CEDAR: Final = (
    "Cedar policies are no rules: name the file in `policies.cedar.policies`, and `cedar` in the engines of an "
    "authority (docs/cedar.md)"
)
_BY_SUFFIX: Final = {
    ".cedar": _CEDAR,
    ".cedarschema": "a Cedar schema is no rule file: name it in `policies.cedar.schema`",
    ".rego": "Rego is not read: write rules in CEL, or grants; Trino's OPA plugin asks pdp (`pdp trino-config`)",
    ".ts": "permissions in code are not read: write grants of `select` and `modify` in a world file, or rules in CEL",
    ".js": "permissions in code are not read: write grants of `select` and `modify` in a world file, or rules in CEL",
    ".sql": "SQL is not read: write row policies in YAML, `policies: [{id, table, grantees, filter}]`",
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
    match = _ROW_POLICY.fullmatch(text) if suffix == ".sql" else None
    if match is None or "<" in match["id"]:
        return _BY_SUFFIX.get(suffix, "")
    grantees = re.sub(r"[\"']", "", match["grantees"] or "allAuthenticatedUsers")
    id, table = (match[part].strip("`").replace("`", "") for part in ("id", "table"))
    condition = " ".join(match["filter"].split())
    return (
        f"SQL is not read: write in YAML `policies: [{{id: {id}, table: {table}, grantees: [{_quoted(grantees)}], "
        f'dialect: bigquery, filter: "{condition}"}}]`'
    )


def is_cedar_entity(entry: object) -> bool:
    """Tell whether a JSON value is an entity of Cedar."""
    return isinstance(entry, dict) and "uid" in entry


def _quoted(grantees: str) -> str:
    return ", ".join(f'"{grantee.strip()}"' for grantee in grantees.split(",") if grantee.strip())
