"""Coverage of row policies and masks by the questions about rows in tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pdp.audit.records.record import DecisionRecord
from pdp.decision.active_policies import ActivePolicies
from pdp.engines.row_access.engine import REASON_PREFIX, RowAccessEngine
from pdp.engines.row_access.members import ALL_USERS, Grantee
from pdp.engines.row_access.policies import Mask, Policy
from pdp.facts.row_policies import FoldedName, fold_column
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal
from pdp.offline.coverage.coverage import Coverage, PolicyItem

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
    text = f"{policy.predicate} {policy.grantees}"
    return PolicyItem("row policy", f"{policy.id} of {_table(name)}", origin, text)


def _mask_item(name: FoldedName, column: str, mask: Mask, origin: str) -> PolicyItem:
    text = f"{mask.kind} {mask.value} {mask.grantees} {mask.exempt}"
    return PolicyItem("mask", f"{mask.id} of {_table(name)} column {column}", origin, text)


def _table(name: FoldedName) -> str:
    return f"{name[0]}.{name[1]}"
