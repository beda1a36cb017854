"""Decoded requests, taken apart for comparison."""

from __future__ import annotations

from typing import Any

from pdp.model.question import BatchRequest


def expand(request: BatchRequest) -> dict[int, Any]:
    """Return the question or the rejection at each position."""
    by_position: dict[int, Any] = dict(request.rejected)
    for check in request.checks:
        shared = (
            check.question.principal,
            check.question.action,
            check.question.delegated,
            check.question.acting_role,
            check.question.context,
            check.query_id,
        )
        for at, resource in zip(check.at, check.resources, strict=True):
            assert at not in by_position, "a position has one answer"
            assert (resource.type, resource.warehouse, resource.ref) == _shared(check)
            by_position[at] = (*shared, resource)
    assert sorted(by_position) == list(range(request.size))
    assert list(request.rejected) == sorted(request.rejected)
    return by_position


def _shared(check: Any) -> tuple[str, str, str | None]:
    first = check.resources[0]
    return first.type, first.warehouse, first.ref


def unresolved(request: BatchRequest) -> list[int]:
    """Return the positions whose missing principal is the earlier error."""
    return sorted(at for check in request.unresolved for at in check.at)
