"""Row policies of files and of the store as rows of INFORMATION_SCHEMA.ROW_ACCESS_POLICIES."""

from __future__ import annotations

from collections.abc import Iterator

from pdp.decision.bundle import Bundle
from pdp.engines.row_access.policies import EVERYONE, table_path
from pdp.facts.row_policies import TablePath
from pdp.facts.snapshot import Facts
from pdp.rewrite.process.messages import PolicyRow


def policy_rows(bundle: Bundle, facts: Facts) -> Iterator[tuple[TablePath, PolicyRow]]:
    """Yield all policies, each with the path of its table. Policies of files have no times."""
    for document in bundle.row_sources.documents:
        for policy in document.get("policies", ()):
            path = table_path(policy["table"], document.get("default", ()))
            filter = policy["filter"]
            text = filter if isinstance(filter, str) else str(filter).upper()
            yield path, _row(path, policy["id"], policy.get("grantees", EVERYONE), text)
    for rule in facts.row_rules():
        if not rule.column and not rule.tombstone:
            yield rule.table, _row(rule.table, rule.id, rule.grantees, rule.text, (rule.created, rule.updated))


def _row(
    path: TablePath, id: str, grantees: tuple[str, ...], filter: str, times: tuple[float, float] = (0.0, 0.0)
) -> PolicyRow:
    catalog, *schema, table = path
    return PolicyRow(catalog, ".".join(schema), table, id, ",".join(grantees), filter, *times)
