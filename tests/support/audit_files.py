"""Audit files of a service that has stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def audit_files(folder: Path) -> list[Path]:
    """Return the record files below a service's folder, the oldest first."""
    return sorted((folder / "audit").glob("*.jsonl"))


def all_records(folder: Path) -> list[dict[str, Any]]:
    """Return all records below a service's folder, events included."""
    return [json.loads(line) for file in audit_files(folder) for line in file.read_text().splitlines()]


def audit_records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of decisions and row views below a service's folder."""
    return [record for record in all_records(folder) if record["event"] in ("decision", "filter")]
