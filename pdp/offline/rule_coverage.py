"""Coverage of CEL rules and forbids by the checks of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.decision.bundle import Bundle
from pdp.engines.cel.engine import IMPLICIT_RULE, CelEngine, CelForbid
from pdp.engines.cel.rule_conditions import RuleConditions, conditions_of
from pdp.errors import Place
from pdp.offline.case_reasons import rule_engines
from pdp.offline.coverage import Coverage, PolicyItem
from pdp.offline.observed_engines import EngineAnswer

_KIND: Final[dict[type, str]] = {CelEngine: "rule", CelForbid: "forbid"}


class _RuleItem(NamedTuple):
    """A rule with its item and its conditions."""

    item: PolicyItem
    conditions: RuleConditions


_RuleSetKey: TypeAlias = tuple[str, str, str, frozenset[str]]
"""Kind of engine, its digest, the place of inline rules, and the files of the others."""


class RuleCoverage:
    """Rules with their conditions, and the points that checks show. A rule is evaluated until all points are shown."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._open: dict[_RuleSetKey, list[_RuleItem]] = {}
        """Rules with points that no check has shown yet."""

    def add(self, bundle: Bundle, origin: str) -> None:
        """Add all rules of a bundle. `origin` is the place of rules that stand in no file of their own."""
        for engine in rule_engines(bundle):
            self._items(engine, origin)

    def show(self, answers: Iterable[EngineAnswer], origin: str) -> None:
        """Note the points that the answers of engines show."""
        seen = set()
        for answer in answers:
            engine = answer.engine
            if not isinstance(engine, CelEngine | CelForbid) or engine.group_checks(answer.group).lacks_ref:
                continue
            items = self._items(engine, origin)
            evaluator = engine.reference_evaluator(answer.group) if items else None
            for resource in answer.resources if evaluator else ():
                for values in evaluator.values(resource) if evaluator else ():
                    key = (id(engine), repr(values))
                    if key not in seen:
                        seen.add(key)
                        self._show(items, values)

    def _show(self, items: list[_RuleItem], values: dict[str, Any]) -> None:
        """Note the points that one evaluation shows, and drop the rules with all points shown."""
        shown = [self._coverage.show(item, conditions.shown_by(values)) for item, conditions in items]
        if any(shown):
            items[:] = [found for found in items if self._coverage.is_open(found.item)]

    def _items(self, engine: CelEngine | CelForbid, origin: str) -> list[_RuleItem]:
        """Return the open rules of an engine; add its rules to the coverage when they are new."""
        key = (_KIND[type(engine)], engine.digest, origin, frozenset(rule.place.file for rule in engine.rules))
        items = self._open.get(key)
        if items is None:
            items = self._open[key] = [*_rule_items(engine, origin)]
            for item, conditions in items:
                self._coverage.add(item, conditions.points)
        return items


def _rule_items(engine: CelEngine | CelForbid, origin: str) -> Iterator[_RuleItem]:
    kind = _KIND[type(engine)]
    for rule in engine.rules:
        if rule.id != IMPLICIT_RULE:
            place = origin if rule.place.file == Place().file else f"{rule.place.file}:{rule.place.line}"
            item = PolicyItem(kind, rule.id, place, rule.program.text)
            yield _RuleItem(item, conditions_of(rule.program))
