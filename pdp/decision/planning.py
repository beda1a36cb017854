"""Planning of a whole batch in steps, within bounds on what plans and traces may cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from msgspec.structs import replace

from pdp.decision.plan_memo import PlanMemo
from pdp.decision.tree import FixedDecision, Leaf, Node, leaves_of
from pdp.decision.turns import Pace, Steps
from pdp.errors import TooManyChecks
from pdp.model.columns import PathColumn
from pdp.model.question import Batch, Check, Resource

MAX_LEAVES: Final = 50_000
"""Concrete checks in the plans of one batch. One operation on a schema has one for each object below."""
MAX_TRACED_PARTS: Final = 20_000
"""Parts of names in all concrete checks that one request explains."""
_PART: Final = 1000
_COLUMN_PART: Final = 10_000
"""Resources of a check that are planned and folded at once: with a look at each, and in a column of few containers."""
Plans: TypeAlias = tuple[list[Node], list[Leaf | FixedDecision]]
"""Trees of checks, and all leaves of them."""


def in_parts(batch: Batch) -> Steps[Batch]:
    """Return the batch with each long check as several checks, so that no plan and no fold takes long.

    Parts are of equal size: no rule takes a short rest for a short question.
    """
    if all(len(check.resources) <= _PART for check in batch.checks):
        return batch
    parts: list[Check] = []
    pace = Pace()
    for check in batch.checks:
        for part in _parts(check):
            parts.append(part)
            if pace.is_over():
                yield
                pace.begin()
    return replace(batch, checks=tuple(parts))


def plan_checks(checks: Sequence[Check], plans: PlanMemo) -> Steps[Plans]:
    """Return the plans of checks; raise TooManyChecks for plans with too many leaves."""
    trees: list[Node] = []
    found: list[Leaf | FixedDecision] = []
    pace = Pace()
    for check in checks:
        tree = plans.plan(check)
        trees.append(tree)
        found += leaves_of(tree)
        if len(found) > MAX_LEAVES:
            raise TooManyChecks(
                f"the checks of one request lead to more than {MAX_LEAVES} concrete checks: ask in several requests"
            )
        if pace.is_over():
            yield
            pace.begin()
    return trees, found


def bound_traces(leaves: Sequence[Leaf | FixedDecision]) -> None:
    """Raise TooManyChecks if traces of all leaves would take too long."""
    count = 0
    for leaf in leaves:
        count += sum([_parts_of_name(resource) for resource in leaf.resources])
        if count > MAX_TRACED_PARTS:
            raise TooManyChecks(
                f"`explain` is about more than {MAX_TRACED_PARTS} parts of names: explain fewer checks in one request"
            )


def _parts(check: Check) -> Iterator[Check]:
    resources, at = check.resources, check.at
    count = -(-len(resources) // _most(resources))
    if count <= 1:
        yield check
        return
    ends = [len(resources) * number // count for number in range(count + 1)]
    for start, end in pairwise(ends):
        yield replace(check, resources=resources[start:end], at=at[start:end])


def _most(resources: Sequence[Resource]) -> int:
    """Return how many resources are planned at once. Plans look at each container, and at each namespace."""
    if type(resources) is not PathColumn or resources.type == "namespace" or len(resources.parents) > _PART:
        return _PART
    return _COLUMN_PART


def _parts_of_name(resource: Resource) -> int:
    return len(resource.path) + 1
