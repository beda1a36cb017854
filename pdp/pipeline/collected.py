"""Values that Spark returns to this process. Knows no Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def utc_time(time: datetime) -> datetime:
    """Return a collected time in UTC. PySpark gives times without a zone: those of the local zone of this process."""
    return time.astimezone(UTC)


def utc_value(value: Any) -> Any:
    """Return a collected value, a time in UTC."""
    return utc_time(value) if isinstance(value, datetime) else value
