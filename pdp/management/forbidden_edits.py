"""Policies against actors of management: forbids and row access deny against the grants.

Management denies each action denied by a check: a rename would leave the row policy of a file behind. The grants are
judged by `engines.grants.administration`, and policies are asked about each required right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, TypeAlias

from msgspec.structs import replace

from pdp.audit.records.record import LISTING
from pdp.decision.active_policies import ActivePolicies
from pdp.decision.service import Pdp
from pdp.engines.engine import FAILED, FORBID
from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import DELETE, RENAME, Actor, GrantEdits, ObjectEdits, right_to_add
from pdp.engines.grants.model import INCLUDED_GRANTS
from pdp.errors import Forbidden, InvalidArgument
from pdp.facts.objects import ObjectKey, resource_of
from pdp.facts.snapshot import Facts
from pdp.management.requests import Requester, linked
from pdp.model.answer import DEFAULT_DENY, Reason
from pdp.model.question import Arguments, Batch, Caller, Check, Principal, Question, Resource
from pdp.model.references import format_resource

MOST_QUESTIONS: Final = 20_000
"""Objects that one request may delete and move, those below included, if an actor asks."""
_SILENT: Final = frozenset({DEFAULT_DENY, "unknown_action"})
"""Reasons of a denial because nothing permits: the grants alone judge then."""

EditQuestion: TypeAlias = tuple[str, Resource]
"""An action, and the resource with the arguments of the edit."""


def edit_questions(
    rights: Administration, facts: Facts, actor: Actor, edits: ObjectEdits, bundle: ActivePolicies
) -> Sequence[EditQuestion]:
    """Return the questions for policies about edits: one for each required right, and for each known object.

    Raise Forbidden and InvalidArgument as `rights` does for the edits, and InvalidArgument for more than MOST_QUESTIONS
    about deleted and moved objects.
    """
    noting = rights.noting()
    noting.edit_objects(facts, actor, edits)
    questions = tuple(islice(_questions(facts, edits, bundle), MOST_QUESTIONS + 1))
    if len(questions) > MOST_QUESTIONS:
        raise InvalidArgument(
            f"more than {MOST_QUESTIONS} objects would be deleted or moved: begin with containers below, "
            "or write as the operator, without `actor`"
        )
    return (*required_questions(noting), *questions)


def required_questions(noting: Administration) -> Sequence[EditQuestion]:
    """Return the questions about the rights that edits required."""
    return [(action, _with(resource_of(key), arguments)) for action, key, arguments in noting.required or ()]


async def refuse_forbidden(pdp: Pdp, requester: Requester, questions: Sequence[EditQuestion]) -> None:
    """Raise Forbidden for the first question that a policy, or the failure of an engine, denies to the actor."""
    for (action, resource), reason in zip(questions, await denials(pdp, requester, questions), strict=True):
        if reason is not None and requester.principal is not None:
            message = f"`{requester.principal.id}` may not {action} {format_resource(resource)}: {reason}"
            raise Forbidden(message)


async def unforbidden(pdp: Pdp, requester: Requester, action: str, keys: Iterable[ObjectKey]) -> frozenset[ObjectKey]:
    """Return the objects on which no policy, and no failure of an engine, denies an action to the actor."""
    asked = list(dict.fromkeys(keys))
    resources = [resource_of(key) for key in asked]
    doubtful = [at for at, each in enumerate(resources) if pdp.bundle.may_forbid(each.warehouse, action, each.type)]
    reasons = await denials(pdp, requester, [(action, resources[at]) for at in doubtful])
    denied = {asked[at] for at, reason in zip(doubtful, reasons, strict=True) if reason is not None}
    return frozenset(asked) - denied


async def denials(pdp: Pdp, requester: Requester, questions: Sequence[EditQuestion]) -> Sequence[Reason | None]:
    """Return the reason of each question that a policy, or the failure of an engine, denies to the actor, else None.

    An operator is denied nothing. Beside catalogs of Trino a forbid binds in any case, as the plan asks: Trino folds
    names, and what is done to `lake/HR` could change who reads `hr` there.
    """
    if requester.principal is None:
        return [None] * len(questions)
    asked = Question(requester.principal, "", acting_role=requester.acting_role, rules_follow=True)
    checks = [Check(replace(asked, action=action), (resource,), (0,)) for action, resource in questions]
    return await denials_of(pdp, linked(requester), checks)


async def denials_of(pdp: Pdp, caller: Caller, checks: Sequence[Check]) -> Sequence[Reason | None]:
    """Return the reason of each check of one resource that a policy, or the failure of an engine, denies, else None."""
    if not checks:
        return ()
    placed = [replace(check, at=(at,)) for at, check in enumerate(checks)]
    result = await pdp.decide_unrecorded(Batch(LISTING, caller, len(placed), placed))
    found: list[Reason | None] = []
    for at, decided in enumerate(result.record.checks):
        is_forbidden = any(leaf.verdicts.effects[0] in (FORBID, FAILED) for leaf in decided.concrete)
        is_denied = is_forbidden or not _is_silent(result.record.answer.by[at])
        denied = not result.record.answer.allowed[at] and is_denied
        found.append(result.answer.by[at] or DEFAULT_DENY if denied else None)
    return found


def _questions(facts: Facts, edits: ObjectEdits, bundle: ActivePolicies) -> Iterator[EditQuestion]:
    for key in edits.delete:
        if key[1]:
            for one in chain(_with_objects_below(facts, key), _named_below(key, bundle)):
                yield DELETE[one[0]], resource_of(one)
    # a later move of the request takes along what an earlier one puts below its source: by each path above
    moved: defaultdict[tuple[str, ...], list[ObjectKey]] = defaultdict(list)
    for source, target in edits.move:
        is_warehouse = source[0] == "warehouse"
        # a warehouse may hold more objects than are asked about, so it is spared where nothing can deny
        if source[0] not in RENAME or (is_warehouse and not bundle.may_deny_granted(facts)):
            continue
        # what is in a warehouse keeps its ref: nobody knows a ref of the new name
        ref = bundle.default_ref(source[1][0]) if is_warehouse else None
        known = chain(_with_objects_below(facts, source), _named_below(source, bundle, target))
        for one in chain(known, tuple(moved.get(source[1], ()))):
            new = one[0], (*target[1], *one[1][len(source[1]) :])
            for depth in range(1, len(new[1])):
                moved[new[1][:depth]].append(new)
            arguments = Arguments(destination=replace(resource_of(new), ref=ref))
            yield RENAME[one[0]], _with(resource_of(one), arguments)


def grant_questions(rights: Administration, facts: Facts, actor: Actor, edits: GrantEdits) -> Sequence[EditQuestion]:
    """Return the questions for policies about edits of grants: one for each right, and what added privileges include.

    A member of a role is a member of the roles above: a new membership is asked about in each of them.

    Raise Forbidden and InvalidArgument as `rights` does for the edits.
    """
    noting = rights.noting()
    noting.edit_grants(facts, actor, edits)
    noting.required = list(
        {(action, key): (action, key, named) for action, key, named in noting.required or ()}.values()
    )
    included = {
        (action, grant.object): None
        for grant in edits.add
        for action in INCLUDED_GRANTS.get((grant.object[0], right_to_add(grant)), ())
    }
    joined = {
        ("grant_assignee", ("role", (above,))): None
        for grant in edits.add
        if grant.object[0] == "role"
        for above in facts.ordered_roles_of(Principal("role", grant.object[1][0]))
        if above != grant.object[1][0]
    }
    asked = [*included, *joined]
    return [*required_questions(noting), *((action, resource_of(key)) for action, key in asked)]


def _with_objects_below(facts: Facts, key: ObjectKey) -> Iterator[ObjectKey]:
    yield key
    for below, _ in facts.subtree(key):
        if below != key:
            yield below


def _named_below(key: ObjectKey, bundle: ActivePolicies, target: ObjectKey | None = None) -> Iterator[ObjectKey]:
    """Yield the objects below a namespace that forbids name there, or below the new name, known or not."""
    if key[0] != "namespace":
        return
    yield from bundle.content_below(None, key[1], MOST_QUESTIONS + 1, dropped=target is None)
    if target:
        for type, path in bundle.content_below(None, target[1], MOST_QUESTIONS + 1):
            yield type, (*key[1], *path[len(target[1]) :])


def _with(resource: Resource, arguments: Arguments) -> Resource:
    return replace(resource, arguments=arguments)


def _is_silent(reason: Reason | None) -> bool:
    return reason is None or str(reason).rpartition(": ")[2] in _SILENT
