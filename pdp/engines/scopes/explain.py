"""Explanations of the scopes engine: the rules of an entry, and the smallest change that turns a denial."""

from __future__ import annotations

from pdp.engines.engine import EFFECT_NAMES, PERMIT
from pdp.engines.scopes.document import EntryBody, RuleBody
from pdp.engines.scopes.permissions import ANY_TABLE, Scope
from pdp.engines.scopes.questions import READ, ScopeUser, Target
from pdp.model.question import Reason, Trace


def explain_access(
    scope: Scope, user: ScopeUser, target: Target, verdict: tuple[str, Reason | None], entry: EntryBody | None
) -> Trace:
    """Return the trace of a verdict: outcome and reason, with a part for each rule of the user's entry."""
    outcome, reason = verdict
    slot = "Query" if scope == READ else "Mutation"
    what = f"scopes: {scope} on {_text(target)} for {user.name if user.name is not None else 'no named user'}"
    rules = () if entry is None else (entry.permissions.query if scope == READ else entry.permissions.mutation) or ()
    parts = tuple(_trace_rule(number, rule, target) for number, rule in enumerate(rules))
    if outcome == EFFECT_NAMES[PERMIT]:
        default = " by LakeQL's default for reads" if not parts and scope == READ else ""
        return Trace(what, outcome, f"{reason}{default}", parts)
    return Trace(what, outcome, _change(user, target, slot, entry), parts)


def _text(target: Target) -> str:
    return ".".join(part for part in target if part is not None) or "nothing"


def _trace_rule(number: int, rule: RuleBody, target: Target) -> Trace:
    tables = "no `tables`" if rule.tables is None else ", ".join(rule.tables) or "no table"
    what = f"rule {number}: {rule.catalog}.{rule.schema}: {tables}"
    if (rule.catalog, rule.schema) != (target.catalog, target.schema):
        return Trace(what, "does not match", "another schema")
    if rule.tables is None:
        return Trace(what, "failed", "LakeQL fails at a rule without `tables`")
    if rule.tables[:1] == (ANY_TABLE,) or target.table in rule.tables:
        return Trace(what, "matches")
    return Trace(what, "does not match", "another table")


def _change(user: ScopeUser, target: Target, slot: str, entry: EntryBody | None) -> str:
    """Return the smallest change that would permit."""
    if not user.known:
        return "scopes permit users alone, and the principal is none"
    if user.name is None:
        return "the user has no name, so no entry can permit"
    if target.schema is None or target.catalog == "":
        return "the scope names no schema, so no rule can permit"
    rule = f"`{slot}` with catalog {target.catalog}, schema {target.schema}, table {target.table or ANY_TABLE}"
    if entry is None:
        return f"an entry for {user.name} with a rule in {rule} would permit it"
    return f"one more rule for {entry.name} in {rule} would permit it"
