"""Rows of a small lake, written by hand: checks of principals on objects, events, facts and policies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pdp.lake.lake import Lake
from pdp.lake.tables import BUNDLES, DECISIONS, EVENTS, FACTS, REQUESTS, TABLES, LakeTable

END = datetime(2026, 5, 30, 18, 0, tzinfo=UTC)
DENIED = "default_deny"


def ago(days: float) -> datetime:
    """A time before the end of the records."""
    return END - timedelta(days=days)


def granted(privilege: str, object: str, to: str) -> str:
    """The reason of a decision by a grant."""
    return f"grants:{privilege} on {object} via {to}"


class LakeRows:
    """Rows of the tables of a lake."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {t.name: [] for t in (DECISIONS, REQUESTS, EVENTS, FACTS, BUNDLES)}
        self.revision = "epoch.1.bundle1"

    def request(self, *checks: dict[str, Any], days: float = 1, **fields: Any) -> None:
        """Add one record with its concrete checks."""
        number = len(self.rows["requests"])
        shared = {
            "id": f"r{number:06}",
            "time": ago(days),
            "day": ago(days).date(),
            "surface": "http",
            "caller": "catalog",
        }
        shared |= {"event": "decision", "sampled": 1.0, "revision": self.revision, "stale": False}
        shared |= {
            name: value for name, value in fields.items() if name in {column.name for column in REQUESTS.columns}
        }
        allowed = sum(bool(check["allowed"]) for check in checks)
        self.rows["requests"].append(
            {"latency_us": 100, "left_out": 0, **shared, "checks": len(checks), "allowed": allowed}
        )
        for at, check in enumerate(checks):
            base = {
                "at": 0,
                "asked": True,
                "delegated": False,
                "cached": False,
                "errors": [],
                "answer": check["allowed"],
            }
            self.rows["decisions"].append({**base, **shared, "decision_id": f"{shared['id']}#{at}", **check})

    def event(self, event: str, kind: str, days: float = 1, **fields: Any) -> None:
        """Add a refusal, a management event or a service event."""
        details = json.dumps({"message": "no good", **fields.pop("details", {})})
        number = len(self.rows["events"])
        row = {"event": event, "id": f"e{number}", "kind": kind, "time": ago(days), "day": ago(days).date()}
        self.rows["events"].append({**row, "details": details, **fields})

    def grant(
        self, principal: str, privilege: str, object: str, days: float = 100, *, added: bool = True, by: str = ""
    ) -> None:
        """Add or remove a grant."""
        number = len(self.rows["facts"])
        self.rows["facts"].append({
            "epoch": "epoch", "sequence": 1 + number, "number": 0, "time": ago(days), "day": ago(days).date(), "actor": by,
            "kind": "grant_added" if added else "grant_removed", "snapshot": number == 0, "object": object,
            "principal": principal, "privilege": privilege, "change": "{}",
        })  # fmt: skip

    def policies(self, digest: str, **bundle: Any) -> None:
        """Add an archived bundle."""
        text = json.dumps({"rules": {}, "forbid": {}, "rowAccess": [], **bundle})
        self.rows["bundles"].append({"digest": digest, "text": text, "source": "x"})

    def write(self, lake: Lake) -> None:
        """Append the rows to the tables of a lake, which are made if they are missing."""
        lake.create(TABLES.values())
        for name, rows in self.rows.items():
            frame_of(lake.spark, TABLES[name], rows).writeTo(lake.name(name)).append()

    def create_views(self, spark: Any) -> None:
        """Make a temporary view of each table."""
        for table in (DECISIONS, REQUESTS, EVENTS, FACTS, BUNDLES):
            frame_of(spark, table, self.rows[table.name]).createOrReplaceTempView(table.name)


def check(
    principal: str, action: str, resource: str, reason: str = DENIED, *, allowed: bool | None = None, **fields: Any
) -> dict[str, Any]:
    """A concrete check; a reason other than the default denial permits."""
    permitted = reason != DENIED if allowed is None else allowed
    warehouse = "lake" if ":lake/" in resource or resource == "warehouse:lake" else None
    row = {"principal": principal, "as": principal, "action": action, "resource": resource, "warehouse": warehouse}
    return {**row, "allowed": permitted, "by": reason, **fields}


def frame_of(spark: Any, table: LakeTable, rows: Sequence[dict[str, Any]]) -> Any:
    """A frame with the columns of a table."""
    return spark.createDataFrame([tuple(row.get(name) for name in table.names) for row in rows], table.schema)
