"""Policies against edits of objects: forbids and row access that deny what grants permit.

An actor must not do by management what a check denies: a rename would leave the row policy of a table behind. Grants
themselves are judged by `engines.grants.administration`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pdp.audit.record import LISTING
from pdp.decision.service import Pdp
from pdp.engines.grants.edits import ObjectEdits
from pdp.engines.grants.rights import CREATE, DELETE, RENAME
from pdp.errors import Forbidden
from pdp.facts.objects import ObjectKey, resource_of
from pdp.management.recording import linked
from pdp.management.requests import Requester
from pdp.model.checks import DEFAULT_DENY, NAMED_TYPES, Arguments, Batch, Check, Reason, Resource
from pdp.model.references import format_resource

_SILENT: Final = frozenset({DEFAULT_DENY, "unknown_action"})
"""Reasons of a denial because nothing permits: the grants alone judge then."""


async def refuse_forbidden(pdp: Pdp, requester: Requester, edits: ObjectEdits) -> None:
    """Raise Forbidden for the first edit that a policy denies to the actor. An operator is not judged."""
    if requester.principal is None:
        return
    checks = [
        Check(requester.principal, action, (resource,), (at,), acting_role=requester.acting_role)
        for at, (action, resource) in enumerate(_questions(pdp, edits))
    ]
    if not checks:
        return
    result = await pdp.decide_unrecorded(Batch(LISTING, linked(requester), len(checks), checks))
    answer = result.record.answer
    for at, check in enumerate(checks):
        if not answer.allowed[at] and not _is_silent(answer.by[at]):
            target = format_resource(check.resources[0])
            raise Forbidden(f"`{requester.principal.id}` may not {check.action} {target}: {answer.by[at]}")


def _questions(pdp: Pdp, edits: ObjectEdits) -> Iterator[tuple[str, Resource]]:
    """Yield the action and the resource of each edit of an object in a warehouse.

    A delete asks about every known object below as well, since they end with the container.
    """
    for key in edits.delete:
        if key[0] not in NAMED_TYPES and key[1]:
            below = {below for below, _ in pdp.source.facts.subtree(key)}
            yield from ((DELETE[one[0]], resource_of(one)) for one in sorted({key, *below}))
    for source, target in edits.move:
        if source[0] in RENAME and len(source[1]) > 1:
            yield RENAME[source[0]], _with(resource_of(source), Arguments(destination=resource_of(target)))
    for patch in edits.put:
        key = patch.key
        if key[0] in CREATE and len(key[1]) > 1 and not pdp.source.facts.is_registered(key):
            yield CREATE[key[0]], _with(resource_of(_container(key)), Arguments(name=key[1][-1]))


def _container(key: ObjectKey) -> ObjectKey:
    parts = key[1][:-1]
    return ("namespace" if len(parts) > 1 else "warehouse", parts)


def _with(resource: Resource, arguments: Arguments) -> Resource:
    return Resource(resource.type, resource.warehouse, resource.path, arguments=arguments)


def _is_silent(reason: Reason | None) -> bool:
    return reason is None or str(reason).rpartition(": ")[2] in _SILENT
