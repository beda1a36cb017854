"""Policies and masks of the store, joined with policies and masks of files. An unusable rule shows nothing.

Rules of the store are texts. A rule is parsed when a decision first needs the table, and again after a change of the
table's rules. The parser of SQL is loaded then, so that a service without stored rules never loads it.
"""

from __future__ import annotations

from typing import Final

from immutables import Map

from pdp.engines.rowaccess.stored_rules import StoredMask, StoredPolicy, stored_masks, stored_policies
from pdp.engines.rowaccess.table_policies import Mask, Policy, TablePolicies, sort_masks
from pdp.engines.rowaccess.trino_sql import FALSE
from pdp.facts.row_policies import FoldedName, NearNames, RowRule, RuleKey
from pdp.model.memo import Memo

_MEMO_ENTRIES: Final = 20_000
_KINDS_WITH_VALUE: Final = frozenset({"constant", "expression"})


class StoredPolicies:
    """Compiled rules by table. An entry is valid as long as the rules are the very same map."""

    def __init__(self) -> None:
        self._known: Memo[FoldedName, tuple[Map[RuleKey, RowRule], TablePolicies]] = Memo(_MEMO_ENTRIES)
        self._rules: Map[FoldedName, Map[RuleKey, RowRule]] = Map()
        self._near = NearNames(())

    def near(self, rules: Map[FoldedName, Map[RuleKey, RowRule]]) -> NearNames:
        """Return the near names of tables with rules. Costs a look at each table after a change of rules."""
        if rules is not self._rules:
            self._near, self._rules = NearNames(rules), rules
        return self._near

    def joined(self, table: FoldedName, filed: TablePolicies, rules: Map[RuleKey, RowRule]) -> TablePolicies:
        """Return the policies and masks of files and of the store for one table."""
        known = self._known.get(table)
        if known is not None and known[0] is rules:
            return known[1]
        return self._known.keep(table, (rules, _join(filed, rules)))[1]


def _join(filed: TablePolicies, rules: Map[RuleKey, RowRule]) -> TablePolicies:
    stored = [rules[key] for key in sorted(rules)]
    identity = next((policy.identity for policy in filed.policies if policy.identity), "")
    policies = [*filed.policies, *(_policy(policy, identity) for policy in stored_policies(stored))]
    masks = {column: {f"{number}": mask for number, mask in enumerate(some)} for column, some in filed.masks.items()}
    for mask in stored_masks(stored):
        masks.setdefault(mask.column, {})[f"{mask.rule.table}:{mask.rule.id}"] = _mask(mask)
    by_id = sorted(policies, key=lambda policy: policy.id)
    return TablePolicies(tuple(by_id), {column: sort_masks(some.values()) for column, some in masks.items()})


def _policy(policy: StoredPolicy, identity: str) -> Policy:
    """Return a policy in Trino's SQL.

    Trino evaluates the joined filters of a table as one user. Beside a file that names this user, a filter of the store
    shows no row: the filter was written for the caller.
    """
    if not policy.grantees:
        return Policy(policy.id, (), FALSE, identity)
    try:
        predicate = _filter(policy)
    except ValueError:
        return Policy(policy.id, (), FALSE, identity)
    return Policy(policy.id, policy.grantees, FALSE if predicate is not None and identity else predicate, identity)


def _filter(policy: StoredPolicy) -> str | None:
    from pdp.engines.rowaccess.translation import UntranslatableSql, translate_filter  # noqa: PLC0415  30 MB

    try:
        return translate_filter(policy.text, policy.dialect)
    except UntranslatableSql:
        return FALSE


def _mask(mask: StoredMask) -> Mask:
    """Return a mask in Trino's SQL; NULL if the value has no certain meaning there."""
    rule = mask.rule
    if mask.kind not in _KINDS_WITH_VALUE:
        return Mask(rule.id, mask.kind, mask.grantees, mask.exempt)
    from pdp.engines.rowaccess.translation import translate_constant, translate_expression  # noqa: PLC0415  30 MB

    try:
        value = (
            translate_constant(rule.text) if mask.kind == "constant" else translate_expression(rule.text, rule.dialect)
        )
    except ValueError:
        return Mask(rule.id, "null", mask.grantees, mask.exempt)
    return Mask(rule.id, mask.kind, mask.grantees, mask.exempt, value)
