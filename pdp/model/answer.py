"""Values of an answer: outcomes with their reasons, rejections, traces, and the visible part of a table.

This module knows no question, no engine and no surface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

Reason: TypeAlias = str
"""Cause of a decision, as `by` shows the cause: `cel:<rule>`, `grants:...`, `default_deny`, ..."""
DEFAULT_DENY = "default_deny"
"""Reason of a denial where no engine permits or forbids."""
STORE_STALE = "store_stale"
"""Reason of a denial because the facts are too old to permit anything."""
OTHER_SPELLING = "rule:other_spelling"
"""Reason of each permit that a forbid on another spelling of a name takes away."""
MISSING_ARGUMENT = "missing_argument"
"""Error of a policy on a path that nobody knows, because the check lacks the name or the destination."""


class Rejection(msgspec.Struct, frozen=True):
    """Rejection of one check. The position is denied; other positions are not affected."""

    code: str
    message: str
    by: Reason = "invalid_check"


class Predicate(msgspec.Struct, frozen=True):
    """SQL expression. `identity` is the engine's user that evaluates the expression, empty for the asking user."""

    expression: str
    identity: str = ""


class TypedColumn(msgspec.Struct, frozen=True):
    """Column with its type in the asking engine's notation."""

    name: str
    type: str


class SchemaColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Column of an Iceberg schema with the field id. `type` is of the specification, and empty for a nested type.

    `current` is false for an older name of a field, and for a dropped field: older versions of the table have both.
    """

    id: int
    name: str
    type: str
    required: bool
    current: bool = True


class ReadRestrictions(msgspec.Struct, frozen=True):
    """Restrictions for the reader of a table: `text` is the `read-restrictions` of Iceberg, in JSON.

    `by` is the reason of the rows, and `masks` has each masked column with a reason. `closed`: no row is visible, and
    the reader needs no file.
    """

    text: str
    by: Reason
    masks: tuple[tuple[str, Reason], ...] = ()
    closed: bool = False


class TableAccess(msgspec.Struct, frozen=True):
    """Visible part of a table. `rows` None means all rows; `masks[i]` None means that column i has no mask.

    `more_rows` is a second filter, which another user evaluates: visible rows pass both.
    """

    rows: Predicate | None
    masks: tuple[Predicate | None, ...]
    more_rows: Predicate | None = None


class Trace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Node of an explanation: the question, the outcome, and the parts that lead to the outcome."""

    what: str
    outcome: str
    why: str = ""
    parts: tuple[Trace, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """Answer at one position. `errors` has the sorted ids of rules that raised, on denials only."""

    allowed: bool
    by: tuple[Reason, ...]
    errors: tuple[str, ...] = ()
    cached: bool = False
    trace: Trace | None = None
    error: Rejection | None = None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Decisions of a batch in columns, with no object per item.

    `allowed[i]` is 0 or 1. `by[i]` is None where no engine permitted or forbade. `cached[i]` is 1 where a verdict
    behind the decision came from a cache; empty if none did.
    """

    id: str
    revision: str
    allowed: bytes
    by: Sequence[Reason | None]
    errors: Mapping[int, tuple[str, ...]]
    rejected: Mapping[int, Rejection]
    traces: Mapping[int, Trace]
    cached: bytes = b""

    def decision(self, at: int) -> Decision:
        """Return the decision at one position as an object."""
        allowed = bool(self.allowed[at])
        errors = () if allowed else self.errors.get(at, ())
        by, cached = (self.by[at] or DEFAULT_DENY,), bool(self.cached and self.cached[at])
        return Decision(allowed, by, errors, cached, self.traces.get(at), self.rejected.get(at))
