"""INFORMATION_SCHEMA.ROW_ACCESS_POLICIES: the policies that a caller may see, as a subquery of literals.

The columns are BigQuery's. A caller sees the policies of tables whose grants the caller may read: the service finds
them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from pdp.rewrite.errors import METADATA_TABLE, PoliciesNeeded, RewriteRefused
from pdp.rewrite.messages import PolicyRow
from pdp.rewrite.syntax import quote_text

POLICY_VIEW: Final = "row_access_policies"
_TEXTS: Final = (
    "table_catalog", "table_schema", "table_name", "policy_name", "grantees", "filter_predicate",
)  # fmt: skip
_TIMES: Final = ("creation_time", "last_modified_time")
_MOST: Final = 2_000
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\\$(?=\\{)")
_TEXT_TYPE: Final = {"bigquery": "STRING", "spark": "STRING"}
_TIME_TYPE: Final = {"bigquery": "TIMESTAMP", "spark": "TIMESTAMP"}


def is_policy_view(parts: Sequence[str]) -> bool:
    """Tell whether the name of a view of INFORMATION_SCHEMA is that of the policies."""
    return parts[-1].lower() == POLICY_VIEW


def policy_source(rows: Sequence[PolicyRow] | None, parts: Sequence[str], default: Sequence[str], dialect: str) -> str:
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
    empty = PolicyRow("", "", "", "", "", "")
    selects = [_select(row, dialect) for row in shown or [empty]]
    rest = "" if shown else " WHERE FALSE"
    return f"(SELECT * FROM ({' UNION ALL '.join(selects)}) AS policies{rest})"  # noqa: S608  literals


def _container(row: PolicyRow) -> tuple[str, ...]:
    return row.catalog.lower(), row.schema.lower()


def _select(row: PolicyRow, dialect: str) -> str:
    texts = (row.catalog, row.schema, row.table, row.policy, row.grantees, row.filter)
    kind, time = _TEXT_TYPE.get(dialect, "VARCHAR"), _TIME_TYPE.get(dialect, "TIMESTAMP WITH TIME ZONE")
    shown = [
        f"CAST({quote_text(_UNSAFE.sub(' ', text), dialect)} AS {kind}) AS {name}"
        for name, text in zip(_TEXTS, texts, strict=True)
    ]
    moments = zip(_TIMES, (row.created, row.modified), strict=True)
    shown += [f"CAST({_moment(seconds)} AS {time}) AS {name}" for name, seconds in moments]
    return f"SELECT {', '.join(shown)}"


def _moment(seconds: float) -> str:
    """Return a time in UTC as a text literal; NULL for an unknown time."""
    return f"'{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}+00:00'" if seconds else "NULL"
