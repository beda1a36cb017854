"""Evidence: statements in requests, with a restriction to certain callers.

A request may name a principal and describe the principal by roles, groups and attributes. A request may also claim the
rights of a view owner, or bring properties of objects. Each kind of evidence counts only if the caller's configuration
lists the kind. `admit` checks every decoded request once, before planning. Decoders must not import this module.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Final

import msgspec

from pdp.errors import AssertionNotAllowed, InvalidArgument
from pdp.model.answer import Rejection
from pdp.model.arrays import PathArray, positions_by
from pdp.model.question import UNNAMED, Batch, BatchRequest, Caller, Check, Principal, grouping_key
from pdp.model.trino_operations import TRINO_OPERATIONS, TRINO_PREFIX

_NONE: Final[frozenset[str]] = frozenset()
_PRINCIPALS: Final = frozenset({"principals"})
_PROPERTIES: Final = frozenset({"properties"})
_EVIDENCE: Final = _PRINCIPALS | _PROPERTIES | {"roles", "groups", "attributes", "delegated"}
"""Every kind of evidence of a check."""
DESCRIPTION: Final = frozenset({"roles", "groups", "attributes"})
"""Kinds of evidence that describe a principal."""
_properties_of: Final = attrgetter("properties")


def admit(request: BatchRequest, caller: Caller) -> Batch:
    """Return the batch of a request: all checks with sufficient rights of the caller, and rejections of the others.

    A check without a principal gets the caller's own principal. If the caller may not assert the evidence of a check,
    the check is marked as `inspected` (if the caller may inspect) or rejected. A rejection covers only the positions of
    the check. Evidence that the caller may not assert is unknown of other principals. The cost grows with the number of
    checks, not of resources, for callers with the right to properties.
    """
    if caller.own is None and caller.may_assert >= _EVIDENCE and not _lacks_principal(request):
        return _batch(request, caller, tuple(request.checks), request.rejected)
    admitted: list[Check] = []
    refused: list[Check] = []
    rejected = dict(request.rejected)
    divided = resolved = False
    unstated = unstated_evidence(caller, request.surface)
    for check in request.checks:
        parts = _divide_by_properties(check, caller)
        divided |= len(parts) > 1
        for part, evidence in parts:
            outcome = admit_check(part, caller, evidence, unstated)
            if isinstance(outcome, Rejection):
                refused.append(part)
                rejected.update(dict.fromkeys(part.at, outcome))
            else:
                resolved |= outcome.question.principal is not part.question.principal
                admitted.append(outcome)
    for check in request.unresolved:  # rejected already, but missing evidence is the error to report
        outcome = admit_check(check, caller, _NONE, unstated)
        if isinstance(outcome, Rejection):
            refused.append(check)
            rejected.update(dict.fromkeys(check.at, outcome))
    if resolved and len(admitted) > 1:
        admitted = _join_equal(admitted)
    if divided:
        # The remaining part of a divided check may begin later. Checks are in the order of their first positions.
        admitted.sort(key=lambda check: check.at[0])
    if not refused:
        return _batch(request, caller, tuple(admitted), request.rejected)
    batch = _batch(request, caller, tuple(admitted), dict(sorted(rejected.items())))
    return msgspec.structs.replace(batch, refused=tuple(refused))


def _batch(
    request: BatchRequest, caller: Caller, checks: tuple[Check, ...], rejected: Mapping[int, Rejection]
) -> Batch:
    return Batch(request.surface, caller, request.size, checks, rejected, request.consistency, request.explain)


def _lacks_principal(request: BatchRequest) -> bool:
    """Tell whether a check names no principal."""
    if len(request.checks) == 1 and not request.unresolved:
        return request.checks[0].question.principal is UNNAMED
    return any(check.question.principal is UNNAMED for check in (*request.checks, *request.unresolved))


def unstated_evidence(caller: Caller, surface: str = "") -> frozenset[str]:
    """Return the unknown kinds of evidence of the principals that a caller asserts, or asks about.

    Trino sends groups alone: `trino.unknown` tells of the rest, and `trino.groups` makes roles of groups.
    """
    unstated = DESCRIPTION - caller.may_assert - caller.empty
    if surface == "trino":
        return unstated - {"attributes"} if "groups" in unstated else _NONE
    return unstated


def naming_alone(caller: Caller, stated: Iterable[str] = ()) -> Caller:
    """Return the caller of an API for names of principals alone: their other evidence is unknown.

    `stated` has the kinds of `DESCRIPTION` that the request states beside a name.
    """
    return msgspec.structs.replace(caller, may_assert=caller.may_assert - DESCRIPTION.difference(stated))


def without_inspection(caller: Caller) -> Caller:
    """Return the caller of an API that asks for others: inspection is for people who ask natively.

    Only a caller that may name principals speaks for others there.
    """
    return msgspec.structs.replace(caller, may_inspect=False) if caller.may_inspect else caller


def admit_check(
    check: Check, caller: Caller, evidence: frozenset[str] = _NONE, unstated: frozenset[str] | None = None
) -> Check | Rejection:
    """Return the admitted check, or the rejection.

    `evidence` has the further kinds of evidence of the request, beside the check's principal, action and flags. A check
    of resources with properties needs `properties`. A token proves the principal of its caller. `unstated` is unknown
    of other principals, by default `unstated_evidence`.
    """
    try:
        unstated = unstated_evidence(caller) if unstated is None else unstated
        principal, stated = _resolve(caller, check.question.principal, unstated)
    except InvalidArgument as error:
        return Rejection(error.code, str(error))
    if principal is not check.question.principal:
        check = check.asking(principal=principal)
    if check.question.delegated or _is_delegated_operation(check.question.action):
        stated |= {"delegated"}
    missing = (stated | evidence) - caller.may_assert
    if not missing:
        return check
    if _is_inspection(caller, missing):
        return check.asking(inspected=True)
    return Rejection(AssertionNotAllowed.code, _refusal(caller, missing))


def own_principal(caller: Caller) -> Principal:
    """Return the caller's own principal; raise InvalidArgument if the caller has none."""
    if caller.own is None:
        raise InvalidArgument("`principal` is missing, and the caller has none of its own")
    return caller.own


def refused_batch(surface: str, caller: Caller, checks: Sequence[Check], rejection: Rejection) -> Batch:
    """Return the batch of checks that the caller may not ask. Nothing decides, and the audit has what was asked."""
    rejected = {at: rejection for check in checks for at in check.at}
    return Batch(surface, caller, len(rejected), (), rejected, refused=tuple(checks))


def judged_principal(caller: Caller, principal: Principal, *, inspects: bool = False) -> tuple[Principal, str]:
    """Return the principal that a caller acts for, and why the caller may not assert it; empty if it may.

    With `inspects`, a caller with the right to inspect can name another principal. Each answer then needs a guard.
    A surface that refuses a request as a whole records the principal.
    """
    resolved, stated = _resolve(caller, principal, unstated_evidence(caller))
    missing = stated - caller.may_assert
    allowed = not missing or (inspects and _is_inspection(caller, missing))
    return resolved, "" if allowed else _refusal(caller, missing)


def _resolve(caller: Caller, principal: Principal, unstated: frozenset[str]) -> tuple[Principal, frozenset[str]]:
    """Return the principal of a check, and the kinds of evidence in the naming of this principal.

    The token proves the caller's own principal, so the name of the own principal is not evidence. Own roles, groups or
    attributes are evidence if they differ from the token's.
    """
    own = caller.own
    if principal is UNNAMED:
        return own_principal(caller), _NONE
    if own is not None and principal.id == own.id:
        if principal in (own, Principal(own.type, own.name)):
            return own, _NONE
        return _doubted(principal, unstated), _description(principal) | _description(own, unknown=True)
    return _doubted(principal, unstated), _description(principal) | _PRINCIPALS


def _doubted(principal: Principal, unstated: frozenset[str]) -> Principal:
    """Return a user with more unknown evidence. Roles, and the anonymous principal, have no evidence of a token."""
    if not unstated or principal.type != "user":
        return principal
    return msgspec.structs.replace(principal, unknown=tuple(sorted(unstated.union(principal.unknown))))


def _description(principal: Principal, *, unknown: bool = False) -> frozenset[str]:
    """Return the kinds of evidence in a principal's description; with `unknown`, the unknown kinds."""
    if unknown:
        return frozenset(name.partition(".")[0] for name in (*principal.unknown, *principal.unseen)) & _EVIDENCE
    kinds = {
        "roles": bool(principal.roles or principal.member_of),
        "groups": bool(principal.groups),
        "attributes": principal.attributes != "{}",
    }
    return frozenset(kind for kind, given in kinds.items() if given)


def _is_delegated_operation(action: str) -> bool:
    """Tell whether an operation by itself runs on behalf of a view's owner."""
    operation = TRINO_OPERATIONS.get(action.removeprefix(TRINO_PREFIX)) if action.startswith(TRINO_PREFIX) else None
    return operation is not None and operation.delegated


def _is_inspection(caller: Caller, missing: frozenset[str]) -> bool:
    """Tell whether the caller may ask about another principal, on objects whose grants the caller may read."""
    return missing == _PRINCIPALS and caller.own is not None and caller.may_inspect


def _refusal(caller: Caller, missing: frozenset[str]) -> str:
    return f"caller `{caller.name}` may not assert {', '.join(sorted(missing))}"


def _divide_by_properties(check: Check, caller: Caller) -> Sequence[tuple[Check, frozenset[str]]]:
    """Divide a check into resources without and with properties, each part with its evidence.

    Resources without properties must not be rejected because of their neighbours.
    """
    resources = check.resources
    if "properties" in caller.may_assert or type(resources) is PathArray:  # a column of paths has no properties
        return ((check, _NONE),)
    if not any(map(_properties_of, resources)):
        return ((check, _NONE),)
    rows_by = positions_by(resources, lambda resource: bool(resource.properties))
    return [
        (_rows_of(check, rows) if len(rows_by) > 1 else check, _PROPERTIES if described else _NONE)
        for described, rows in rows_by.items()
    ]


def _rows_of(check: Check, rows: Iterable[int]) -> Check:
    pairs = [(check.resources[row], check.at[row]) for row in rows]
    return msgspec.structs.replace(check, resources=[pair[0] for pair in pairs], at=[pair[1] for pair in pairs])


def _join_equal(checks: Sequence[Check]) -> list[Check]:
    """Join checks with equal questions after the caller's own principal was filled in.

    The decoder could not join a check without a principal and a check with the same principal. Columns of
    paths stay as they are.
    """
    groups: dict[Hashable, list[Check]] = {}
    for number, check in enumerate(checks):
        alone = type(check.resources) is PathArray
        groups.setdefault(number if alone else grouping_key(check, check.resources[0]), []).append(check)
    return [_union(group) for group in groups.values()]


def _union(checks: Sequence[Check]) -> Check:
    if len(checks) == 1:
        return checks[0]
    rows = sorted(
        (row for check in checks for row in zip(check.at, check.resources, strict=True)),
        key=itemgetter(0),
    )
    return msgspec.structs.replace(checks[0], resources=[row[1] for row in rows], at=[row[0] for row in rows])
