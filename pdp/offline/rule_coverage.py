"""Coverage of CEL rules and forbids by the checks of tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pdp.decision.bundle import Bundle
from pdp.engines.cel.engine import IMPLICIT_RULE, CelEngine, CelForbid
from pdp.engines.cel.rule_conditions import RuleConditions, conditions_of
from pdp.errors import Place
from pdp.offline.case_reasons import rule_engines
from pdp.offline.coverage import Coverage, PolicyItem
from pdp.offline.observed_engines import EngineAnswer

_KIND: Final[dict[type, str]] = {CelEngine: "rule", CelForbid: "forbid"}


class RuleCoverage:
    """Rules with their conditions, and the points that checks show. A rule is evaluated until all points are shown."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    def add(self, bundle: Bundle, origin: str) -> None:
        """Add all rules of a bundle. `origin` is the place of rules that stand in no file of their own."""
        for engine in rule_engines(bundle):
            for item, conditions in _items(engine, origin):
                self._coverage.add(item, conditions.points)

    def show(self, answers: Iterable[EngineAnswer], origin: str) -> None:
        """Note the points that the answers of engines show."""
        seen = set()
        for answer in answers:
            engine = answer.engine
            if not isinstance(engine, CelEngine | CelForbid) or engine.group_checks(answer.group).lacks_ref:
                continue
            evaluator = engine.reference_evaluator(answer.group)
            open_items = [found for found in _items(engine, origin) if self._coverage.is_open(found[0])]
            for resource in answer.resources if open_items else ():
                for values in evaluator.values(resource):
                    key = (id(engine), repr(values))
                    if key not in seen:
                        seen.add(key)
                        self._show(open_items, values)

    def _show(self, items: Iterable[tuple[PolicyItem, RuleConditions]], values: dict[str, Any]) -> None:
        for item, conditions in items:
            self._coverage.show(item, conditions.shown_by(values))


def _items(engine: CelEngine | CelForbid, origin: str) -> list[tuple[PolicyItem, RuleConditions]]:
    kind = _KIND[type(engine)]
    found = []
    for rule in engine.rules:
        if rule.id == IMPLICIT_RULE:
            continue
        place = origin if rule.place.file == Place().file else f"{rule.place.file}:{rule.place.line}"
        item = PolicyItem(kind, rule.id, place, rule.program.text)
        found.append((item, conditions_of(rule.program)))
    return found
