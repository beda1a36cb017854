"""Audit files of a service that has stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def audit_files(folder: Path) -> list[Path]:
    """Return the record files below a service's folder, the oldest first."""
    return sorted((folder / "audit").glob("*.jsonl"))


def audit_records(folder: Path) -> list[dict[str, Any]]:
    """Return all records below a service's folder."""
    return [json.loads(line) for file in audit_files(folder) for line in file.read_text().splitlines()]
