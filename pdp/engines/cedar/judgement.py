"""Decision of Cedar on one request, with the deviation of pdp: a forbid that raises denies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from pdp.engines.cedar.policies import CedarPolicy, policy_number
from pdp.engines.engine import ABSTAIN, FORBID, PERMIT

_RAISING: Final = re.compile(r"error while evaluating policy `(policy\d+)`: (.*)", re.DOTALL)


class Judgement(msgspec.Struct, frozen=True):
    """Decision of Cedar on one request.

    `holding` are the policies that decide for Cedar. `raised` maps the ids of policies with an error to the errors.
    `by` is the one reason: the smallest id of the forbids that hold, else of those that raised, else of the permits.
    """

    holding: tuple[CedarPolicy, ...]
    raised: Mapping[str, str]
    effect: int
    by: CedarPolicy | None


def judgement_of(result: Any, policies: Sequence[CedarPolicy]) -> Judgement:
    """Return the decision behind an answer of cedarpy; raise ValueError for an answer without a meaning."""
    diagnostics = result.diagnostics
    holding = tuple(policies[policy_number(id)] for id in diagnostics.reasons)
    raising: list[CedarPolicy] = []
    messages: dict[str, str] = {}
    for error in diagnostics.errors:
        match = _RAISING.fullmatch(error)
        if match is None:
            raise ValueError(f"no policy in the error of Cedar: {error}")
        raising.append(policies[policy_number(match[1])])
        messages[raising[-1].id] = match[2]
    forbids = _of(holding, "forbid") or _of(raising, "forbid")
    permits = _of(holding, "permit") if result.allowed else []
    effect = FORBID if forbids else PERMIT if permits else ABSTAIN
    return Judgement(holding, messages, effect, min(forbids or permits, key=lambda policy: policy.id, default=None))


def _of(policies: Sequence[CedarPolicy], effect: Literal["permit", "forbid"]) -> list[CedarPolicy]:
    return [policy for policy in policies if policy.effect == effect]
