"""Decision of Cedar on one request, with pdp's deviation, and its explanation.

The explanation has the policies that hold or raise, and for a denial the smallest policy that permits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from pdp.engines.cedar.actions import Uid, as_text
from pdp.engines.cedar.entities import MOST_ROLES
from pdp.engines.cedar.entity_files import MOST_ENTRIES
from pdp.engines.cedar.policies import CedarPolicy, policy_number
from pdp.engines.cedar.unknown_values import MISSING_NAME, UNKNOWN_EVIDENCE
from pdp.engines.engine import ABSTAIN, EFFECT_NAMES, FORBID, PERMIT
from pdp.model.answer import Reason, Trace

_RAISING: Final = re.compile(r"error while evaluating policy `(policy\d+)`: (.*)", re.DOTALL)
_CAUSES: Final = (
    (re.compile(r"type error: expected .*, got .*", re.DOTALL), r"\g<0>"),
    (re.compile(r"integer overflow\b.*", re.DOTALL), "integer overflow"),
    (
        re.compile(r"error while evaluating (`[a-z]{1,20}` extension function)\b.*", re.DOTALL),
        r"the \1 refuses its argument",
    ),
    (re.compile(r"record does not have the attribute (`[A-Za-z_]\w{0,100}`).*", re.DOTALL), r"a record lacks \1"),
    (re.compile(r"`.*` does not have the attribute (`[A-Za-z_]\w{0,100}`).*", re.DOTALL), r"an entity lacks \1"),
    (re.compile(r"`.*` does not have the tag `.*", re.DOTALL), "an entity lacks the tag"),
    (re.compile(r"entity `.*` does not exist.*", re.DOTALL), "an entity does not exist"),
)
"""Message of Cedar -> what an explanation shows. Values are left out: they may come from secrets of a request."""


class Judgement(msgspec.Struct, frozen=True):
    """Decision of Cedar on one request.

    `holding` are the policies that decide for Cedar. `raised` maps the ids of policies with an error to the errors.
    `by` is the one reason: the smallest id of the forbids that hold, else of those that raised, else of the permits.
    """

    holding: tuple[CedarPolicy, ...]
    raised: Mapping[str, str]
    effect: int
    by: CedarPolicy | None


def judgement_of(
    result: Any, policies: Sequence[CedarPolicy], relaxed: Mapping[int, str] = MappingProxyType({})
) -> Judgement:
    """Return the decision behind an answer of cedarpy; raise ValueError for an answer without a meaning.

    `relaxed` has the numbers of forbids without their conditions on unknown values, with the error of each. A relaxed
    forbid has raised if true.
    """
    diagnostics = result.diagnostics
    numbers = [policy_number(id) for id in diagnostics.reasons]
    holding = tuple(policies[number] for number in numbers if number not in relaxed)
    raising = [policies[number] for number in numbers if number in relaxed]
    messages = {policies[number].id: relaxed[number] for number in numbers if number in relaxed}
    for error in diagnostics.errors:
        match = _RAISING.fullmatch(error)
        if match is None:
            raise ValueError("an error of Cedar names no policy")
        raising.append(policies[policy_number(match[1])])
        messages[raising[-1].id] = _cause(match[2])
    forbids = _of(holding, "forbid") or _of(raising, "forbid")
    permits = _of(holding, "permit") if result.allowed else []
    effect = FORBID if forbids else PERMIT if permits else ABSTAIN
    return Judgement(holding, messages, effect, min(forbids or permits, key=lambda policy: policy.id, default=None))


def _cause(message: str) -> str:
    """Return the cause of an error without the values that Cedar quotes."""
    found = ((pattern.fullmatch(message), cause) for pattern, cause in _CAUSES)
    return next((match.expand(cause) for match, cause in found if match), "the condition raised")


def _of(policies: Sequence[CedarPolicy], effect: Literal["permit", "forbid"]) -> list[CedarPolicy]:
    return [policy for policy in policies if policy.effect == effect]


INVALID_ARGUMENTS: Final[Reason] = "cedar:invalid_arguments"
"""Reason of a denial because the arguments of the check are no context."""
LONG_ACCESS_LISTS: Final[Reason] = "cedar:access_lists_too_long"
"""Reason of a denial because the access lists in properties of the check have too many entries."""
TORN_RING: Final[Reason] = "cedar:torn_ring"
"""Reason of a denial because Cedar cannot hold what is above two roles of one ring."""
TOO_MANY_ROLES: Final[Reason] = "cedar:too_many_roles"
"""Reason of a denial because a user or role of the check is in too many roles that policies can tell apart."""
_REFUSALS: Final = {
    TOO_MANY_ROLES: f"a user or role is in more than {MOST_ROLES} roles that policies can tell apart",
    INVALID_ARGUMENTS: "the arguments of the check are no context of the action",
    TORN_RING: "two roles that policies ask for what is above are members of each other, and Cedar takes no "
    "cycle: take one out of the other",
    LONG_ACCESS_LISTS: f"the access lists in the properties have more than {MOST_ENTRIES} entries",
}
_LONGEST_TEXT: Final = 400


def explain_judgement(judgement: Judgement | Reason, principal: Uid, action: Uid, resource: Uid) -> Trace:
    """Return the decision with its policies; a reason in place of a judgement refuses the check."""
    what = f"cedar: {as_text(action)} on {as_text(resource)} for {as_text(principal)}"
    if isinstance(judgement, str):
        return Trace(what, "failed", _REFUSALS[judgement])
    return Trace(what, EFFECT_NAMES[judgement.effect], _why(judgement, principal, action, resource), _parts(judgement))


def _why(judgement: Judgement, principal: Uid, action: Uid, resource: Uid) -> str:
    """Return the reason, and the change that turns a denial."""
    by = judgement.by
    if by is None:
        smallest = f"permit(principal == {as_text(principal)}, action == {as_text(action)}, resource == "
        return f"no policy permits; this one would: {smallest}{as_text(resource)});"
    if judgement.effect == PERMIT:
        return f"policy `{by.id}` permits"
    forbids = sorted({policy.id for policy in judgement.holding if policy.effect == "forbid"} or {by.id})
    names = ", ".join(f"`{id}`" for id in forbids)
    if judgement.raised.get(by.id) == MISSING_NAME:
        return f"policy {names} reads a name or a place that the check lacks, and such a forbid denies"
    if judgement.raised.get(by.id) == UNKNOWN_EVIDENCE:
        return f"policy {names} reads evidence that nobody knows, and such a forbid denies"
    if by.id in judgement.raised:
        return f"policy {names} raised, and a forbid that raises denies: guard the condition with `has`"
    return f"only without {names} can anything permit"


def _parts(judgement: Judgement) -> tuple[Trace, ...]:
    return tuple(sorted([*_holding(judgement), *_raised(judgement)], key=lambda part: part.what))


def _holding(judgement: Judgement) -> Iterator[Trace]:
    for policy in judgement.holding:
        yield Trace(f"policy {policy.id}", policy.effect, shortened(policy))


def _raised(judgement: Judgement) -> Iterator[Trace]:
    for id, message in judgement.raised.items():
        yield Trace(f"policy {id}", "error", message)


def shortened(policy: CedarPolicy) -> str:
    """Return the text of a policy in one line, cut if long."""
    text = " ".join(policy.text.split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
