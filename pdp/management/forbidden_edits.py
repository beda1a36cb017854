"""Policies against edits of objects and grants: forbids and row access that deny what grants permit.

An actor must not do by management what a check denies: a rename would leave the row policy of a file behind. What
grants permit is judged by `engines.grants.administration`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from msgspec.structs import replace

from pdp.audit.records.record import LISTING
from pdp.decision.service import Pdp
from pdp.engines.engine import FAILED, FORBID
from pdp.engines.grants.edits import (
    CREATE,
    DELETE,
    RENAME,
    GrantEdits,
    ObjectEdits,
    ObjectPatch,
    right_to_add,
    right_to_remove,
)
from pdp.errors import Forbidden, InvalidArgument
from pdp.facts.objects import ObjectKey, ObjectPut, resource_of
from pdp.facts.snapshot import Facts
from pdp.management.requests import Requester, linked
from pdp.model.answer import DEFAULT_DENY, Reason
from pdp.model.question import Arguments, Batch, Check, Question, Resource
from pdp.model.references import format_resource

MOST_QUESTIONS: Final = 20_000
"""Objects that one request may delete and move, those below included, if an actor asks."""
_SILENT: Final = frozenset({DEFAULT_DENY, "unknown_action"})
"""Reasons of a denial because nothing permits: the grants alone judge then."""

EditQuestion: TypeAlias = tuple[str, Resource]
"""An action, and the resource with the arguments of the edit."""


def edit_questions(facts: Facts, edits: ObjectEdits) -> Sequence[EditQuestion]:
    """Return the questions that policies answer about edits: one for each object, and for each known object below.

    Raise InvalidArgument for more than MOST_QUESTIONS.
    """
    questions = tuple(islice(_questions(facts, edits), MOST_QUESTIONS + 1))
    if len(questions) > MOST_QUESTIONS:
        raise InvalidArgument(
            f"more than {MOST_QUESTIONS} objects would be deleted or moved: begin with containers below, "
            "or write as the operator, without `actor`"
        )
    return questions


async def refuse_forbidden(pdp: Pdp, requester: Requester, questions: Sequence[EditQuestion]) -> None:
    """Raise Forbidden for the first question that a policy, or the failure of an engine, denies to the actor."""
    if requester.principal is None or not questions:
        return
    principal, role = requester.principal, requester.acting_role
    checks = [
        Check(Question(principal, action, acting_role=role, rules_follow=True), (resource,), (at,))
        for at, (action, resource) in enumerate(questions)
    ]
    result = await pdp.decide_unrecorded(Batch(LISTING, linked(requester), len(checks), checks))
    for at, (check, decided) in enumerate(zip(checks, result.record.checks, strict=True)):
        if result.record.answer.allowed[at]:
            continue
        refused = any(leaf.verdicts.effects[0] in (FORBID, FAILED) for leaf in decided.concrete)
        if refused or not _is_silent(result.record.answer.by[at]):
            target = format_resource(check.resources[0])
            raise Forbidden(f"`{principal.id}` may not {check.question.action} {target}: {result.answer.by[at]}")


def _questions(facts: Facts, edits: ObjectEdits) -> Iterator[EditQuestion]:
    for key in edits.delete:
        if key[1]:
            for one in _with_objects_below(facts, key):
                yield DELETE[one[0]], resource_of(one)
    for source, target in edits.move:
        if source[0] in RENAME and len(source[1]) > 1:
            for one in _with_objects_below(facts, source):
                destination: ObjectKey = (one[0], (*target[1], *one[1][len(source[1]) :]))
                yield RENAME[one[0]], _with(resource_of(one), Arguments(destination=resource_of(destination)))
    for patch in edits.put:
        key = patch.key
        parent = _parent_of_new(facts, patch)
        if parent is not None:
            yield CREATE[key[0]], _with(resource_of(parent), Arguments(name=key[1][-1]))


def grant_questions(edits: GrantEdits) -> Sequence[EditQuestion]:
    """Return the questions that policies answer about edits of grants: one for each right that the edits need."""
    removed = [(right_to_remove(grant), grant.object) for grant in edits.remove]
    added = [(right_to_add(grant), grant.object) for grant in edits.add]
    return [(right, resource_of(key)) for right, key in dict.fromkeys([*removed, *added])]


def _parent_of_new(facts: Facts, patch: ObjectPatch) -> ObjectKey | None:
    """Return the parent in which a patch creates an object; None for a known object, or without a parent."""
    key = patch.key
    if key[0] not in CREATE or facts.is_registered(key):
        return None
    if len(key[1]) > 1:
        return _container(key)
    return facts.apply(facts.sequence, [ObjectPut(patch.apply_to(facts.object(key)))]).parent(key)


def _with_objects_below(facts: Facts, key: ObjectKey) -> Iterator[ObjectKey]:
    yield key
    for below, _ in facts.subtree(key):
        if below != key:
            yield below


def _container(key: ObjectKey) -> ObjectKey:
    parts = key[1][:-1]
    return ("namespace" if len(parts) > 1 else "warehouse", parts)


def _with(resource: Resource, arguments: Arguments) -> Resource:
    return replace(resource, arguments=arguments)


def _is_silent(reason: Reason | None) -> bool:
    return reason is None or str(reason).rpartition(": ")[2] in _SILENT
