"""Coverage of Cedar policies by the checks of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pdp.decision.bundle import Bundle
from pdp.engines.cedar.engine import CedarEngine
from pdp.engines.cedar.explain import Judgement
from pdp.engines.cedar.policies import CedarPolicy
from pdp.engines.cel.rule_conditions import NEVER_FALSE, NEVER_TRUE
from pdp.engines.engine import FORBID
from pdp.offline.coverage import Coverage, PolicyItem
from pdp.offline.observed_engines import EngineAnswer

_POINTS: Final = (NEVER_TRUE, NEVER_FALSE)


class CedarCoverage:
    """Cedar policies of all bundles so far, and the points that checks show."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    def add(self, bundle: Bundle, origin: str) -> None:
        """Add all Cedar policies of a bundle; `origin` is the place of the files."""
        for authority in (bundle.default, *bundle.authorities.values()):
            for engine in authority.engines:
                if isinstance(engine, CedarEngine):
                    for policy in engine.model.policies.policies:
                        self._coverage.add(_item(policy, origin), _POINTS)

    def show(self, answers: Iterable[EngineAnswer], origin: str) -> None:
        """Note the points that the answers of Cedar engines show."""
        for answer in answers:
            engine = answer.engine
            if not isinstance(engine, CedarEngine):
                continue
            policies = engine.model.policies.policies
            for judgement in engine.judgements(answer.group, answer.resources, answer.facts).values():
                for policy, holds in _known(judgement, policies) if isinstance(judgement, Judgement) else ():
                    self._coverage.show(_item(policy, origin), [NEVER_TRUE if holds else NEVER_FALSE])


def _known(judgement: Judgement, policies: Iterable[CedarPolicy]) -> Iterator[tuple[CedarPolicy, bool]]:
    """Yield the policies whose outcome a decision tells. Cedar names no permits beside a forbid that holds."""
    holding = {policy.id for policy in judgement.holding}
    for policy in policies:
        is_hidden = policy.effect == "permit" and judgement.effect == FORBID
        if policy.id not in judgement.raised and not is_hidden:
            yield policy, policy.id in holding


def _item(policy: CedarPolicy, origin: str) -> PolicyItem:
    return PolicyItem(f"cedar {policy.effect}", policy.id, origin, policy.text)
