"""Ids of records: UUIDv7, so that they sort by time."""

from __future__ import annotations

from uuid_utils import uuid7


def new_id() -> str:
    """Return a new id."""
    return str(uuid7())
