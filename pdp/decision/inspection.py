"""Asking about others, and what answers show: both take the right to read an object's grants. Pure.

A caller that may not speak for principals sees into an object's grants only where its own principal holds
`read_assignments` on it. There it may ask about somebody else and is told why; elsewhere it learns of its own access
whether it is allowed, and by which engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pdp.decision.plan import parent_of
from pdp.model.checks import (
    DEFAULT_DENY,
    Answer,
    Batch,
    Caller,
    Check,
    Load,
    Principal,
    Reason,
    Rejected,
    Resource,
    ViewCommit,
)
from pdp.model.vocabulary import CONTENT_TYPE, VIEW_CHANGES

_READ: Final = "read_assignments"
_OF_CONTENT: Final[Mapping[str, str]] = {content: type for type, content in CONTENT_TYPE.items()}
_SERVER: Final = (Resource("server"), "list_users")
_OF_WAREHOUSE: Final = frozenset({"reference", "repository_config"})
_CREATES: Final = frozenset(name for name, step in VIEW_CHANGES.values() if step.on == "parent")
_NOT_INSPECTED: Final = Rejected(
    "assertion_not_allowed", "to ask about somebody else takes `read_assignments` on the object"
)


def sees_all(caller: Caller) -> bool:
    """Whether a caller may see all there is: it speaks for any principal anyway."""
    return "principals" in caller.may_assert or caller.own is None


def guards(batch: Batch) -> tuple[Check, ...]:
    """The checks of the caller's own right to see into what a batch asks about.

    Of one position all must be permitted; a position that has none cannot be seen into.
    """
    own = batch.caller.own
    return () if own is None else tuple(guard for check in batch.checks for guard in _guards(check, own))


def permitted(batch: Batch, visible: bytes) -> Batch:
    """The batch without the checks about others that its caller may not make; each is an error at its position."""
    if not any(check.inspected for check in batch.checks):
        return batch
    refused = {at: _NOT_INSPECTED for check in batch.checks if check.inspected for at in check.at if not visible[at]}
    kept = [_without(check, refused) if check.inspected else check for check in batch.checks]
    checks = tuple(check for check in kept if check.at)
    return msgspec.structs.replace(batch, checks=checks, rejected={**batch.rejected, **refused})


def reduced(answer: Answer, visible: bytes) -> Answer:
    """The answer as a caller gets it who may see the reasons of some positions alone."""
    by: list[Reason | None] = [
        reason if visible[at] or at in answer.rejected else plain_reason(reason, bool(answer.allowed[at]))
        for at, reason in enumerate(answer.by)
    ]
    errors = {at: raised for at, raised in answer.errors.items() if visible[at]}
    traces = {at: trace for at, trace in answer.traces.items() if visible[at]}
    return msgspec.structs.replace(answer, by=by, errors=errors, traces=traces)


def plain_reason(reason: Reason | None, allowed: bool) -> Reason:
    """What anybody may know of a reason: of a permit the engine that made it, of a denial nothing."""
    return (reason or DEFAULT_DENY).partition(":")[0] if allowed else "denied"


def _without(check: Check, refused: Mapping[int, Rejected]) -> Check:
    rows = [row for row, at in enumerate(check.at) if at not in refused]
    return msgspec.structs.replace(
        check, resources=[check.resources[row] for row in rows], at=[check.at[row] for row in rows]
    )


def _guards(check: Check, own: Principal) -> Iterator[Check]:
    """Who may read an object's grants, those of all that a request is about beside it, and of the role assumed."""
    yield from _of_objects(own, check.resources, check.at)
    for others in _beside(check):
        yield from _of_objects(own, others, check.at)
    targets = [
        (resource.arguments.destination, at)
        for resource, at in zip(check.resources, check.at, strict=True)
        if resource.arguments.destination
    ]
    yield from _of_objects(own, [target for target, _ in targets], [at for _, at in targets])
    if check.acting_role is not None:
        role = Resource("role", name=check.acting_role)
        yield Check(own, _READ, [role] * len(check.at), check.at)


def _beside(check: Check) -> Iterator[Sequence[Resource]]:
    """What a load or a change of a view is about beside its object: the views of its chain, the place of a new view."""
    about = check.view_security
    if isinstance(about, Load):
        yield from ([view.resource(target) for target in check.resources] for view in about.views)
    elif isinstance(about, ViewCommit) and check.action in _CREATES:
        yield [parent_of(view) for view in check.resources]


def _of_objects(own: Principal, resources: Sequence[Resource], at: Sequence[int]) -> Iterator[Check]:
    found: dict[tuple[str, str, str, str | None], tuple[list[Resource], list[int]]] = {}
    for resource, position in zip(resources, at, strict=True):
        asked, action = _question(resource)
        key = (asked.type, action, asked.warehouse, asked.ref)
        some, positions = found.setdefault(key, ([], []))
        some.append(asked)
        positions.append(position)
    for (_, action, _, _), (some, positions) in found.items():
        yield Check(own, action, some, positions)


def _question(resource: Resource) -> tuple[Resource, str]:
    """The object whose grants a check about a resource is decided by, and the right to read them.

    Where no engine knows such a right, as for what only query engines name, the check itself comes to a denial.
    """
    type = resource.type
    if type == "user":
        return _SERVER
    if type in _OF_WAREHOUSE:
        return Resource("warehouse", resource.warehouse), _READ
    if type == "content":
        type = _OF_CONTENT.get(resource.content_type, "table")
    return Resource(type, resource.warehouse, resource.path, resource.ref, resource.name, id=resource.id), _READ
