"""Audit files of a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def audit_files(folder: Path) -> list[Path]:
    """Return the record files below a service's folder, the oldest first."""
    return sorted((folder / "audit").glob("*.jsonl"))


def all_records(folder: Path, *, running: bool = False) -> list[dict[str, Any]]:
    """Return all records below a service's folder, events included. A running service may be writing the last line."""
    texts = [file.read_text() for file in audit_files(folder)]
    if running:
        texts = [text[: text.rfind("\n") + 1] for text in texts]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def audit_records(folder: Path, *, running: bool = False) -> list[dict[str, Any]]:
    """Return the records of decisions and row views below a service's folder."""
    return [record for record in all_records(folder, running=running) if record["event"] in ("decision", "filter")]
