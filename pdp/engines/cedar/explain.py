"""Explanation of one decision: the policies that hold or raise, and for a denial the smallest policy that permits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pdp.engines.cedar.judgement import Judgement
from pdp.engines.cedar.policies import CedarPolicy
from pdp.engines.cedar.properties import MOST_ENTRIES
from pdp.engines.cedar.uids import Uid, as_text
from pdp.engines.engine import EFFECT_NAMES, PERMIT
from pdp.model.question import Reason, Trace

INVALID_ARGUMENTS: Final[Reason] = "cedar:invalid_arguments"
"""Reason of a denial because the arguments of the check are no context."""
LONG_ACCESS_LISTS: Final[Reason] = "cedar:access_lists_too_long"
"""Reason of a denial because the access lists in properties of the check have too many entries."""
_REFUSALS: Final = {
    INVALID_ARGUMENTS: "the arguments of the check are no context of the action",
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
