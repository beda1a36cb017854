"""Coverage of the policies of cases: which rules, grants, row policies, Cedar policies and permissions tests reach.

Counts row policies and masks by the questions about rows; the other kinds have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pdp.audit.records.record import DecisionRecord
from pdp.decision.active_policies import ActivePolicies
from pdp.decision.service import Pdp
from pdp.engines.row_access.engine import REASON_PREFIX, RowAccessEngine
from pdp.engines.row_access.members import ALL_USERS, Grantee
from pdp.engines.row_access.policy_set import Mask, Policy
from pdp.facts.objects import FoldedName, fold_column
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal
from pdp.offline.cases.cases import Case
from pdp.offline.cases.reasons import EngineAnswer, observe
from pdp.offline.coverage.coverage import Coverage, CoverageReport, PolicyItem
from pdp.offline.coverage.rules import CedarCoverage, GrantCoverage, RuleCoverage, ScopeCoverage

NOT_REFUSED: Final = "no check asks for a principal whom it does not name"


class RowCoverage:
    """Row policies and masks, and the points that questions about rows show."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    def add(self, bundle: ActivePolicies, origin: str) -> None:
        """Add all row policies and masks of a bundle; `origin` is their place."""
        for name, table in bundle.row_access.tables.items():
            for policy in table.policies:
                self._coverage.add(_policy_item(name, policy, origin), _points(policy.grantees, ()))
            for column, masks in table.masks.items():
                for mask in masks:
                    self._coverage.add(_mask_item(name, column, mask, origin), _points(mask.grantees, mask.exempt))

    def show(
        self,
        records: Iterable[DecisionRecord],
        bundle: ActivePolicies,
        facts: Facts,
        origin: str,
        *,
        wants_filter: bool,
    ) -> None:
        """Note the points that recorded questions about rows show. Filters count where the test wants a filter."""
        for record in records:
            if record.masks is None or not record.batch.checks:
                continue
            check = record.batch.checks[0]
            question = _Question(bundle.row_access, bundle.with_mapped_roles(check.question.principal), facts)
            name, table = bundle.row_access.named_policies(check.resources[0])
            for policy in table.policies if wants_filter else ():
                self._coverage.show(_policy_item(name, policy, origin), question.points_of_policy(policy))
            for asked, reason in record.masks.items():
                column = fold_column(asked)
                for mask in table.masks.get(column, ()):
                    item = _mask_item(name, column, mask, origin)
                    self._coverage.show(item, question.points_of_mask(mask, reason))


class _Question:
    """Principal of a question, and the grantees that name the principal."""

    def __init__(self, access: RowAccessEngine, principal: Principal, facts: Facts) -> None:
        self._access = access
        self._principal = principal
        self._facts = facts

    def points_of_policy(self, policy: Policy) -> list[str]:
        return [_point(grantee) for grantee in policy.grantees if self._names(grantee)] or [NOT_REFUSED]

    def points_of_mask(self, mask: Mask, reason: str | None) -> list[str]:
        named = [_point(grantee) for grantee in mask.grantees if self._may_name(grantee)]
        if not named:
            return [NOT_REFUSED]
        exempt = [_exempt_point(grantee) for grantee in mask.exempt if self._names(grantee)]
        return exempt or (named if reason == REASON_PREFIX + mask.id else [])

    def _names(self, grantee: Grantee) -> bool:
        return self._access.members.matches(self._principal, (grantee,), self._facts)

    def _may_name(self, grantee: Grantee) -> bool:
        return self._access.members.may_match(self._principal, (grantee,), self._facts)


def _points(grantees: Iterable[Grantee], exempt: Iterable[Grantee]) -> Iterator[str]:
    yield from map(_point, grantees)
    yield from map(_exempt_point, exempt)
    if all(grantee.kind != ALL_USERS for grantee in grantees):
        yield NOT_REFUSED


def _point(grantee: Grantee) -> str:
    return f"no check asks for {grantee.text}"


def _exempt_point(grantee: Grantee) -> str:
    return f"no check asks for {grantee.text}, who is exempt"


def _policy_item(name: FoldedName, policy: Policy, origin: str) -> PolicyItem:
    text = f"{policy.text} {policy.grantees}" + (" restrictive" if policy.restrictive else "")
    return PolicyItem("row policy", f"{policy.id} of {_table(name)}", origin, text)


def _mask_item(name: FoldedName, column: str, mask: Mask, origin: str) -> PolicyItem:
    text = f"{mask.kind} {mask.text} {mask.grantees} {mask.exempt}"
    return PolicyItem("mask", f"{mask.id} of {_table(name)} column {column}", origin, text)


def _table(name: FoldedName) -> str:
    return f"{name[0]}.{name[1]}"


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
