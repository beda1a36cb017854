"""Explanations of the scopes engine, and remarks on permission files.

An explanation has the rules of an entry, and the smallest change that turns a denial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from pdp.engines.engine import EFFECT_NAMES, PERMIT
from pdp.engines.scopes.permissions import ANY_TABLE, READ, EntryBody, NamedEntry, RuleBody, Scope, ScopeUser, Target
from pdp.errors import Place
from pdp.model.answer import Reason, Trace


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


SUFFIXES: Final = (".json", ".yaml", ".yml")
_BEGINNING: Final = 4096
"""Characters of a file that tell the kind."""
_LIST_OF_ENTRIES: Final = re.compile(
    r"(?:\s|#[^\n]*\n|---)*(?:\[\s*\{|-\s+\{?)\s*[\"']?(?:name|permissions|useSystemUser)[\"']?\s*:"
)
_SLOTS: Final = {"Query": "query", "Mutation": "mutation"}


class ScopeRemark(msgspec.Struct, frozen=True):
    """Remark on an entry of a permission file."""

    code: str
    severity: Literal["error", "warning", "info"]
    place: Place
    entry: str
    message: str


def is_permission_file(path: Path) -> bool:
    """Tell whether a file begins like a list of LakeQL's entries."""
    if path.suffix not in SUFFIXES:
        return False
    try:
        with path.open(encoding="utf-8", errors="replace") as text:
            return bool(_LIST_OF_ENTRIES.match(text.read(_BEGINNING)))
    except OSError:
        return False  # the reader of the kind names the cause


def lint_entries(entries: Sequence[NamedEntry], *, strict: bool) -> Iterator[ScopeRemark]:
    """Yield the remarks on the entries of all files together. `strict` is the mode of the engine."""
    first: dict[str, NamedEntry] = {}
    for each in entries:
        name = each.entry.name
        if name in first:
            message = f"never counts: `{name}` has an entry before, at {first[name].place('name')}"
            yield ScopeRemark("scopes-shadowed", "warning", each.place("name"), name, message)
            continue
        first[name] = each
        if name != name.strip() or not name:
            message = "the name is empty or has blanks around: names match exactly"
            yield ScopeRemark("scopes-blank", "warning", each.place("name"), name, message)
        if not strict and not each.entry.permissions.query:
            message = "no rules in `Query`: the user may read everything, unless `policies.scopes.strict` is set"
            yield ScopeRemark("scopes-reads-all", "warning", each.place("permissions"), name, message)
        yield from _lint_rules(each)


def _lint_rules(each: NamedEntry) -> Iterator[ScopeRemark]:
    for slot, field in _SLOTS.items():
        for number, rule in enumerate(getattr(each.entry.permissions, field) or ()):
            for code, (key, message) in _faults(rule).items():
                place = each.place("permissions", slot, number, *([key] if key else []))
                severity: Literal["error", "warning"] = "error" if code == "scopes-no-tables" else "warning"
                yield ScopeRemark(code, severity, place, each.entry.name, message)


def _faults(rule: RuleBody) -> Mapping[str, tuple[str, str]]:
    """Return the key and the message of each fault of a rule, by code."""
    found: dict[str, tuple[str, str]] = {}
    if rule.tables is None:
        found["scopes-no-tables"] = (
            "",
            "no `tables`: LakeQL fails at this rule, so checks of the schema are denied",
        )
    elif not rule.tables:
        found["scopes-empty"] = "tables", "no table: the rule permits nothing, and ends LakeQL's default permit"
    names = {"catalog": rule.catalog, "schema": rule.schema}
    for key, name in names.items():
        if "*" in name:
            found["scopes-literal"] = (
                key,
                f"`{name}` is no wildcard: only `*` as the first of `tables` is one",
            )
    later = [name for number, name in enumerate(rule.tables or ()) if "*" in name and (number or name != ANY_TABLE)]
    if later:
        found["scopes-literal"] = "tables", f"`{later[0]}` is no wildcard: only `*` as the first name is one"
    if any(name != name.strip() or not name for name in (*names.values(), *(rule.tables or ()))):
        found["scopes-blank"] = "", "a name is empty or has blanks around: names match exactly"
    return found
