"""Files of other systems, with advice for each, and readers of values for their programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
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


LINE_OF_VARIABLE: Final = re.compile(
    r"\s*(?:export\s+|-e\s+|ENV\s+)?(?P<name>[^\s=#][^\s=]*)\s*=[ \t]*(?P<value>.*)", re.DOTALL
)
"""Line `NAME=value` of a file of variables, or of a script."""
PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES: Final[Mapping[str, str]] = {
    **{f"\\{sign}": text for sign, text in zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)},
    "\\\\": "\\", '\\"': '"', r"\$": "$$",
}  # fmt: skip
"""Escape between double quotes, as docker compose reads it."""


def quoted_words(text: str) -> list[str]:
    """Return the options as Java splits them: quotes hold blanks, and go away."""
    words = re.findall(r"""(?:"[^"]*"|'[^']*'|[^\s"']|["'])+""", text)
    return [re.sub(r""""([^"]*)"|'([^']*)'""", lambda match: match[1] or match[2] or "", word) for word in words]


def _of_docker(line: str) -> str | None:
    """Return a value by the rules of `docker run --env-file` and kustomize: all behind `=`; None for a bad line."""
    name, separator, value = line.lstrip().partition("=")
    return value if separator and name and not re.search(r"\s", name) else None


def _of_compose(line: str) -> str | None:
    """Return a value by the rules of docker compose: without quotes, or up to a comment; None with a variable."""
    match = LINE_OF_VARIABLE.fullmatch(line)
    if match is None or not re.fullmatch(r"[\w.\[\]-]+", match["name"]):
        return None
    value = match["value"]
    quoted = re.fullmatch(r"""(['"])((?:\\.|(?!\1).)*)\1\s*(?:#.*)?""", value, re.DOTALL)
    if quoted is None:
        return None if value[:1] in ("'", '"') else _expanded(value.partition(" #")[0].rstrip())
    if quoted[1] == "'":
        return quoted[2].replace("\\'", "'")
    text = re.sub(r'\\(?:[abcfnrtv$"\\]|0\d{0,3})', lambda found: _ESCAPES.get(found[0], found[0]), quoted[2])
    return None if r"\0" in text else _expanded(text)


def _expanded(text: str) -> str | None:
    """Return a text with a dollar for two; None with a variable inside."""
    return None if "$" in text.replace("$$", "") else text.replace("$$", "$")


def _of_systemd(line: str) -> str | None:
    """Return a value by the rules of systemd: quotes end anywhere, a comment inside a line is text, names are words."""
    name, separator, rest = line.strip(" \t").partition("=")
    if not separator or not PLAIN_NAME.fullmatch(name.rstrip()):
        return None
    return unquoted_by_systemd(rest)


def unquoted_by_systemd(rest: str) -> str | None:
    value, blanks, quote, is_value, signs = "", "", "", False, iter(rest)
    for sign in signs:
        if quote == "'" or (quote and sign not in ('"', "\\")):
            quote, value = ("", value) if sign == quote else (quote, value + sign)
        elif quote and sign == '"':
            quote = ""
        elif sign == "\\":
            escaped = next(signs, "")
            value, blanks = value + blanks + ("\\" if quote and escaped not in '"\\`$' else "") + escaped, ""
            is_value = is_value or not quote
        elif not is_value and sign in ("'", '"'):
            quote = sign
        elif sign in " \t":
            blanks += sign if is_value else ""
        else:
            value, blanks, is_value = value + blanks + sign, "", True
    return None if quote else value


READERS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "docker": _of_docker, "compose": _of_compose, "systemd": _of_systemd,
}  # fmt: skip
"""Program -> reader of a line of its env files."""
