"""Policies and masks of files joined with the row rules of facts, as the rewriter looks them up."""

from __future__ import annotations

from typing import Final

from immutables import Map

from pdp.engines.rowaccess.document import KINDS
from pdp.engines.rowaccess.members import ALL_USERS, Grantee, parse_grantee
from pdp.engines.rowaccess.translation import translate_constant
from pdp.facts.row_rules import FoldedName, RowRule, RuleKey, fold_column
from pdp.facts.snapshot import Facts
from pdp.rewrite.containers import RelationKey
from pdp.rewrite.masks import MaskPolicy
from pdp.rewrite.policies import FilterPolicy, PolicySet, StoredTable

_CLOSED: Final = "FALSE"
_DIALECT: Final = "trino"
_EVERYBODY: Final = (Grantee(ALL_USERS),)


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
    """Return the policies and masks of one table. The tombstone of a mask closes the table, too."""
    some = [rules[key] for key in sorted(rules)]
    policies = (_policy(key, rule) for rule in some if rule.tombstone or not rule.column)
    return StoredTable(key, tuple(policies), tuple(_mask(key, rule) for rule in some if rule.column))


def _policy(key: RelationKey, rule: RowRule) -> FilterPolicy:
    try:
        grantees = () if rule.tombstone else tuple(map(parse_grantee, rule.grantees))
    except ValueError:
        grantees = ()
    text, dialect = (rule.text, rule.dialect) if grantees else (_CLOSED, _DIALECT)
    return FilterPolicy(rule.id, key, grantees, text, dialect)


def _mask(key: RelationKey, rule: RowRule) -> MaskPolicy:
    """Return the mask of a rule; NULL for everybody if the rule is unusable or the table was dropped."""
    column = fold_column(rule.column)
    try:
        grantees, exempt = (tuple(map(parse_grantee, texts)) for texts in (rule.grantees, rule.exempt))
    except ValueError:
        grantees, exempt = (), ()
    if rule.tombstone or not grantees or rule.kind not in KINDS:
        return MaskPolicy(rule.id, key, column, "null", _EVERYBODY)
    text = translate_constant(rule.text) if rule.kind == "constant" else rule.text
    return MaskPolicy(rule.id, key, column, rule.kind, grantees, exempt, text, rule.dialect)
