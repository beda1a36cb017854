"""Coverage of the policies of cases: which rules, grants, row policies, Cedar policies and permissions tests reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pdp.audit.records.record import DecisionRecord
from pdp.decision.service import Pdp
from pdp.offline.cases.cases import Case
from pdp.offline.cases.reasons import EngineAnswer, observe
from pdp.offline.coverage.coverage import Coverage, CoverageReport
from pdp.offline.coverage.grants import GrantCoverage
from pdp.offline.coverage.rows import RowCoverage
from pdp.offline.coverage.rules import CedarCoverage, RuleCoverage, ScopeCoverage


class CaseCoverage:
    """Coverage of the policies of all cases so far. `deployed` names the configuration whose policies decide."""

    def __init__(self, deployed: str = "") -> None:
        self._deployed = deployed
        self._coverage = Coverage()
        self._rules = RuleCoverage(self._coverage)
        self._grants = GrantCoverage(self._coverage)
        self._rows = RowCoverage(self._coverage)
        self._cedar = CedarCoverage(self._coverage)
        self._scopes = ScopeCoverage(self._coverage)

    def watch(self, case: Case, pdp: Pdp) -> WatchedCase:
        """Add the policies of a case, and return the case with a service that remembers its decisions."""
        self._rules.add(pdp.bundle, self._origin(case, "rules"))
        self._grants.add(pdp.source.facts, self._origin(case, "world"))
        self._rows.add(pdp.bundle, self._origin(case, "policies"))
        self._cedar.add(pdp.bundle, self._cedar_origin(case))
        self._scopes.add(pdp.bundle, self._origin(case, "permissions"))
        answers: list[EngineAnswer] = []
        return WatchedCase(self, case, observe(pdp, answers), answers)

    def show(self, case: Case, pdp: Pdp, answers: Sequence[EngineAnswer], records: Sequence[DecisionRecord]) -> None:
        """Note what the decisions of a case show."""
        facts, world = pdp.source.facts, self._origin(case, "world")
        self._rules.show(answers, self._origin(case, "rules"))
        self._grants.show(answers, world)
        self._cedar.show(answers, self._cedar_origin(case))
        self._scopes.show(answers, self._origin(case, "permissions"))
        for record in records:
            for decided in record.checks:
                self._grants.show_acting_role(decided.check, facts, world)
        wants_filter = "wantFilter" in case.data
        self._rows.show(records, pdp.bundle, facts, self._origin(case, "policies"), wants_filter=wants_filter)

    def report(self) -> CoverageReport:
        """Return the coverage by all cases so far."""
        return self._coverage.report()

    def _origin(self, case: Case, key: str) -> str:
        """Return the place of the policies that a key of a case names: files, the test's own file, or the service's."""
        return self._place(case, case.data.get(key))

    def _cedar_origin(self, case: Case) -> str:
        """Return the place of Cedar policies: files that a case names, the test's own file, or the service's."""
        given = case.data.get("cedar")
        named = given.get("policies") if isinstance(given, Mapping) else given
        files = [named] if isinstance(named, str) else named
        is_files = isinstance(files, list) and all(str(file).endswith(".cedar") for file in files)
        return self._place(case, files if is_files else {} if given else None)

    def _place(self, case: Case, value: Any) -> str:
        if isinstance(value, str) and value:
            return str(case.folder / value)
        if isinstance(value, list) and value and all(isinstance(file, str) for file in value):
            return ", ".join(str(case.folder / file) for file in value)
        return self._deployed if self._deployed and value is None else str(case.file or "<inline>")


class WatchedCase:
    """Case that is being decided by a service that remembers its decisions."""

    def __init__(self, coverage: CaseCoverage, case: Case, pdp: Pdp, answers: Sequence[EngineAnswer]) -> None:
        self.pdp = pdp
        self._coverage = coverage
        self._case = case
        self._answers = answers

    def finish(self, records: Sequence[DecisionRecord]) -> None:
        """Note what the decisions so far show."""
        self._coverage.show(self._case, self.pdp, tuple(self._answers), records)
