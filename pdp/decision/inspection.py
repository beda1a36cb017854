"""Inspection: questions about other principals, and reasons in answers. Both need `read_assignments`.

A caller without the right to assert principals sees the grants of an object only if the caller's principal holds
`read_assignments` on the object. There the caller may ask about other principals and sees reasons. On other objects the
caller learns, for its own principal only, whether access is allowed and by which engine. Pure.

Single grants in reasons and traces are shown as `GET /v1/grants` lists them: the grants on an object need
`read_assignments` on that object, and those of the caller need nothing. The right to see the reasons of a check covers
the object of the check alone, while grants stand on all objects above.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from pdp.decision.plan import parent_of
from pdp.decision.turns import Resumable, TurnClock, each_in_turns
from pdp.engines.engine import PERMIT, Verdicts
from pdp.errors import InvalidReference
from pdp.facts.objects import ObjectKey, key_of
from pdp.model.answer import DEFAULT_DENY, Answer, Reason, Rejection, Trace
from pdp.model.arrays import positions_by
from pdp.model.question import Batch, Caller, Check, Load, Principal, Question, Resource, ViewCommit
from pdp.model.references import parse_resource
from pdp.model.vocabulary import CONTENT_TYPE, VIEW_CHANGES

_READ_GRANTS: Final = "read_assignments"
_TYPE_OF_CONTENT: Final[Mapping[str, str]] = {content: type for type, content in CONTENT_TYPE.items()}
_LIST_USERS: Final = (Resource("server"), "list_users")
_WAREHOUSE_PARTS: Final = frozenset({"reference", "repository_config"})
"""Resource types without grants of their own: those of the warehouse count."""
_CREATING_ACTIONS: Final = frozenset(name for name, step in VIEW_CHANGES.values() if step.on == "parent")
_NOT_INSPECTED: Final = Rejection(
    "assertion_not_allowed", "a check of another principal requires `read_assignments` on the object"
)


def sees_all(caller: Caller) -> bool:
    """Tell whether a caller may see all reasons: it may assert any principal, or has no principal to guard by."""
    return "principals" in caller.may_assert or caller.own is None


def guards(batch: Batch, meant: Callable[[Check], Check]) -> Resumable[tuple[Check, ...]]:
    """Return the guards of a batch: checks of the caller's own right to read the grants of each resource.

    A position is visible if it has guards and all of them are permitted. `meant` returns a check about the objects that
    the names of a check mean.
    """
    own = batch.caller.own
    if own is None:
        return ()
    found = yield from each_in_turns(lambda check: tuple(_guards(meant(check), own)), batch.checks)
    return tuple(chain.from_iterable(found))


def visible_positions(size: int, checks: Sequence[Check], outcomes: Sequence[Verdicts]) -> Resumable[bytes]:
    """Return 1 for each position of a batch that has guards, all of them permitted; `outcomes` are of these guards."""
    visible, refused, pace = bytearray(size), list[int](), TurnClock()
    for check, outcome in zip(checks, outcomes, strict=True):
        for at, effect in zip(check.at, outcome.effects, strict=True):
            visible[at] = 1
            if effect != PERMIT:
                refused.append(at)
        if pace.is_over():
            yield
            pace.begin()
    for at in refused:
        visible[at] = 0
    return bytes(visible)


def reject_invisible(batch: Batch, visible: bytes) -> Batch:
    """Return the batch with the inspected checks rejected at positions that are not visible."""
    if not any(check.question.inspected for check in batch.checks):
        return batch
    refused = {
        at: _NOT_INSPECTED for check in batch.checks if check.question.inspected for at in check.at if not visible[at]
    }
    kept = [_without(check, refused) if check.question.inspected else check for check in batch.checks]
    checks = tuple(check for check in kept if check.at)
    shown = {at for check in batch.checks for at in check.at} - refused.keys()
    left_out = tuple(part for check in batch.checks if (part := _without(check, shown)).at)
    return msgspec.structs.replace(
        batch, checks=checks, rejected={**batch.rejected, **refused}, refused=batch.refused + left_out
    )


def reduce_answer(answer: Answer, visible: bytes) -> Answer:
    """Return the answer without the reasons and errors of positions that are not visible: these have no traces."""
    by: list[Reason | None] = [
        reason if visible[at] or at in answer.rejected else plain_reason(reason, bool(answer.allowed[at]))
        for at, reason in enumerate(answer.by)
    ]
    errors = {at: raised for at, raised in answer.errors.items() if visible[at]}
    return msgspec.structs.replace(answer, by=by, errors=errors)


def plain_reason(reason: Reason | None, allowed: bool) -> Reason:
    """Return the public part of a reason: the engine of a permit, nothing of a denial."""
    return (reason or DEFAULT_DENY).partition(":")[0] if allowed else "denied"


def _without(check: Check, refused: Container[int]) -> Check:
    rows = [row for row, at in enumerate(check.at) if at not in refused]
    return msgspec.structs.replace(
        check, resources=[check.resources[row] for row in rows], at=[check.at[row] for row in rows]
    )


def _guards(check: Check, own: Principal) -> Iterator[Check]:
    """Yield the guards of a check: for its resources, all further objects of the request, and the acting role."""
    yield from _guards_of(own, check.resources, check.at)
    for objects in _further_objects(check):
        yield from _guards_of(own, objects, check.at)
    destinations = [
        (resource.arguments.destination, at)
        for resource, at in zip(check.resources, check.at, strict=True)
        if resource.arguments.destination
    ]
    yield from _guards_of(own, [target for target, _ in destinations], [at for _, at in destinations])
    if check.question.acting_role is not None:
        role = Resource("role", name=check.question.acting_role)
        yield Check(Question(own, _READ_GRANTS), [role] * len(check.at), check.at)


def _further_objects(check: Check) -> Iterator[Sequence[Resource]]:
    """Yield, for a load, the views of its chain; for the creation of a view, its container."""
    security = check.question.view_security
    if isinstance(security, Load):
        yield from ([view.resource(target) for target in check.resources] for view in security.views)
    elif isinstance(security, ViewCommit) and check.question.action in _CREATING_ACTIONS:
        yield [parent_of(view) for view in check.resources]


def _guards_of(own: Principal, resources: Sequence[Resource], at: Sequence[int]) -> Iterator[Check]:
    """Yield the guards of resources, joined by type, action, warehouse and ref."""
    guarded = [_guard_of(resource) for resource in resources]
    rows_by = positions_by(guarded, lambda guard: (guard[0].type, guard[1], guard[0].warehouse, guard[0].ref))
    for (_, action, _, _), rows in rows_by.items():
        yield Check(Question(own, action), [guarded[row][0] for row in rows], [at[row] for row in rows])


def _guard_of(resource: Resource) -> tuple[Resource, str]:
    """Return the object and the action of a resource's guard.

    Engines know no such action for some resource types, such as the types of query engines. The guards of these types
    are denied.
    """
    type = resource.type
    if type == "user":
        return _LIST_USERS
    if type in _WAREHOUSE_PARTS:
        return Resource("warehouse", resource.warehouse), _READ_GRANTS
    if type == "content":
        type = _TYPE_OF_CONTENT.get(resource.content_type, "table")
    return Resource(type, resource.warehouse, resource.path, resource.ref, resource.name, id=resource.id), _READ_GRANTS


_GRANT: Final = re.compile(
    r"grants:[a-z_]+ on (?P<object>.+) via (?P<grantee>.+?)(?P<end> \((any|all) of authority .*\))?"
)
_MENTION: Final = re.compile(r"\bgrants:[a-z_]+ on ")
_TEXT: Final = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_ROLES: Final = re.compile(
    rf"(?P<name>\broles(?: by any evidence)? is )(?:(?P<list>\[(?:(?:{_TEXT.pattern})(?:, )?)*\])|.*)", re.DOTALL
)
"""Value of `roles` in the trace of a rule: a list, or a list that is cut, of which nothing is shown."""
_GRANTS_TRACE: Final = "grants: "
_HIDDEN: Final = Trace("an object above", "not shown", "its grants need `read_assignments` on it")


class GrantVisibility:
    """Visibility of grants for the caller with the principal `own`. `may_list` tells it for the grants on an object."""

    def __init__(self, own: str, may_list: Callable[[ObjectKey], bool]) -> None:
        self._own = own
        self._may_list = may_list
        self._pace = TurnClock()

    def answer(self, answer: Answer) -> Answer:
        """Return an answer without the grants in reasons that the caller may not list. See `traces` for the traces."""
        by = [None if reason is None else self.reason(reason) for reason in answer.by]
        return msgspec.structs.replace(answer, by=by)

    def traces(self, traces: Mapping[int, Trace]) -> Resumable[Mapping[int, Trace]]:
        """Return traces by position without the grants that the caller may not list."""
        found: dict[int, Trace] = {}
        for at, trace in traces.items():
            found[at] = yield from self.trace(trace)
        return found

    def reason(self, reason: Reason) -> Reason:
        """Return a reason, or the engine alone if the reason names a grant that the caller may not list."""
        if not _MENTION.search(reason):
            return reason
        found = _GRANT.fullmatch(reason)
        # a name may contain ` via `: then the reason has more than one meaning
        if found and reason.count(" via ") == 1:
            if found["grantee"] == self._own or self._is_listable(found["object"]):
                return reason
            return f"grants{found['end'] or ''}"
        return "grants"

    def trace(self, trace: Trace, *, own: bool = False) -> Resumable[Trace]:
        """Return a trace without the grants and memberships that the caller may not list.

        `own`: the trace is about the caller, who sees the roles.
        """
        shown: list[Trace] = []
        if not trace.what.startswith(_GRANTS_TRACE):
            own = own or trace.what.endswith(f" as {self._own}")
            for part in trace.parts:
                shown.append((yield from self.trace(part, own=own)))  # noqa: PERF401  a comprehension cannot yield
            why = trace.why if own else _ROLES.sub(self._listable_roles, trace.why)
            return msgspec.structs.replace(trace, why=self.reason(why), parts=tuple(shown))
        for part in trace.parts:
            if self._pace.is_over():
                yield
                self._pace.begin()
            if self._is_listable(part.what):
                shown.append(part)
        if len(shown) == len(trace.parts):
            return trace
        why = self.reason(trace.why) if _MENTION.search(trace.why) else ""
        return msgspec.structs.replace(trace, why=why, parts=(*shown, _HIDDEN))

    def _listable_roles(self, found: re.Match[str]) -> str:
        """Return the value of `roles` with the roles whose members the caller may list."""
        if found["list"] is None:
            return f"{found['name']}not shown"
        texts = _TEXT.findall(found["list"])
        roles = [text[1:-1] if text[0] == "'" else json.loads(text) for text in texts]
        shown = [text for text, role in zip(texts, roles, strict=True) if self._may_list(("role", (role,)))]
        return f"{found['name']}[{', '.join(shown + ['...'] * (len(shown) < len(roles)))}]"

    def _is_listable(self, reference: str) -> bool:
        try:
            return self._may_list(key_of(parse_resource(reference)))
        except InvalidReference:
            return False
