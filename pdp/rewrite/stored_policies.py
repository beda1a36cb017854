"""Policies and masks of files joined with the row rules of facts, as the rewriter looks them up."""

from __future__ import annotations

from immutables import Map

from pdp.engines.row_access.policies import StoredMask, stored_masks, stored_policies
from pdp.facts.row_policies import FoldedName, RowRule, RuleKey
from pdp.facts.snapshot import Facts
from pdp.rewrite.containers import RelationKey
from pdp.rewrite.masks import MaskPolicy
from pdp.rewrite.policies import FilterPolicy, PolicySet, StoredTable


class StoredPolicySets:
    """Policy sets of one revision after the other. Revisions with the same rules share one set and all its memory.

    A new set costs a look at each table with rules, and the parsing of the grantees of tables with changed rules.
    """

    def __init__(self, filed: PolicySet) -> None:
        self._filed = filed
        self._rules: Map[FoldedName, Map[RuleKey, RowRule]] = Map()
        self._tables: dict[FoldedName, StoredTable] = {}
        self._set = filed

    def at(self, facts: Facts) -> PolicySet:
        """Return the policies and masks of files and of facts."""
        rules = facts.index.rules
        if rules is not self._rules:
            self._tables = {
                name: self._tables[name] if self._rules.get(name) is some else _stored(name, some)
                for name, some in rules.items()
            }
            self._rules = rules
            self._set = self._filed.joined(self._tables.values()) if rules else self._filed
        return self._set


def _stored(key: RelationKey, rules: Map[RuleKey, RowRule]) -> StoredTable:
    """Return the policies and masks of one table."""
    some = [rules[rule] for rule in sorted(rules)]
    policies = (FilterPolicy(one.id, key, *one[1:]) for one in stored_policies(some))
    return StoredTable(key, tuple(policies), tuple(_mask(key, mask) for mask in stored_masks(some)))


def _mask(key: RelationKey, mask: StoredMask) -> MaskPolicy:
    rule = mask.rule
    if mask.kind == "null":
        return MaskPolicy(rule.id, key, mask.column, mask.kind, mask.grantees, mask.exempt)
    return MaskPolicy(rule.id, key, mask.column, mask.kind, mask.grantees, mask.exempt, rule.text, rule.dialect)
