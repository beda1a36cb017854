"""Explanations of the scopes engine, and remarks on permission files.

An explanation has the rules of an entry, and the smallest change that turns a denial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from pdp.config.names import NO_NAMES, KnownNames, NameCheck, NameFault, name_fault
from pdp.engines.engine import EFFECT_NAMES, PERMIT
from pdp.engines.scopes.permissions import (
    ANY_TABLE,
    READ,
    EntryBody,
    NamedEntry,
    RuleBody,
    Scope,
    ScopeUser,
    Target,
    read_entries,
)
from pdp.errors import Place, PolicyError
from pdp.model.answer import Reason, Trace


def explain_access(
    scope: Scope, user: ScopeUser, target: Target, verdict: tuple[str, Reason | None], entry: EntryBody | None
) -> Trace:
    """Return the trace of a verdict: outcome and reason, with a part for each rule of the user's entry."""
    outcome, reason = verdict
    slot = "Query" if scope == READ else "Mutation"
    what = f"scopes: {scope} on {_text(target)} for {user.name if user.name is not None else 'no named user'}"
    rules: Sequence[RuleBody] | None = ()
    if entry is not None:
        rules = entry.permissions.query if scope == READ else entry.permissions.mutation
    if rules is None:
        return Trace(what, outcome, f"LakeQL fails at an entry without `{slot}`: write `{slot}: []` for no rules")
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
_LITERAL: Final = "scopes-literal"
_WRONG: Final = "scopes-wrong-name"
_UNKNOWN: Final = "scopes-unknown-name"
_BLANK: Final = "scopes-blank"
NAME_CODES: Final = frozenset({_WRONG, _UNKNOWN, _BLANK})
"""Codes of remarks on names."""
_ERRORS: Final = frozenset({_LITERAL, _WRONG, "scopes-no-tables"})
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
    if path.suffix.lower() not in SUFFIXES:
        return False
    try:
        with path.open(encoding="utf-8", errors="replace") as text:
            return bool(_LIST_OF_ENTRIES.match(text.read(_BEGINNING)))
    except OSError:
        return False  # the reader of the kind names the cause


def load_entries(paths: Sequence[Path], names: NameCheck | None = None) -> list[NamedEntry]:
    """Return the entries of files; raise PolicyError as `read_entries` does, and for a `*` without effect.

    With `names`, raise PolicyError for a name in a form or case that nobody has, too, and for others as `names` tells.
    """
    entries = list(read_entries(paths))
    for remark in lint_entries(entries, strict=True, known=names.known if names else NO_NAMES):
        is_at_fault = names and remark.code in NAME_CODES and names.stops(is_wrong=remark.code == _WRONG)
        if remark.code == _LITERAL or is_at_fault:
            raise PolicyError(remark.message, remark.place)
    return entries


def lint_entries(entries: Sequence[NamedEntry], *, strict: bool, known: KnownNames = NO_NAMES) -> Iterator[ScopeRemark]:
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
            message = "the name is empty or has blanks around: names match exactly, and an empty `userName` is a name"
            yield ScopeRemark(_BLANK, "warning", each.place("name"), name, message)
        if ANY_TABLE in name:
            message = f"`{name}` is no pattern of users: write an entry for each user, by the whole `userName`"
            yield ScopeRemark(_LITERAL, "error", each.place("name"), name, message)
        yield from _name_remarks(each, known)
        slots = each.entry.permissions
        for slot, field in _SLOTS.items():
            if getattr(slots, field) is None:
                message = f"no `{slot}`: LakeQL fails there, so the user is denied; write `{slot}: []` for no rules"
                yield ScopeRemark("scopes-no-slot", "warning", each.place("permissions"), name, message)
        if not strict and slots.query is not None and not slots.query:
            message = "no rules in `Query`: the user may read everything, unless `policies.scopes.strict` is set"
            yield ScopeRemark("scopes-reads-all", "warning", each.place("permissions"), name, message)
        yield from _lint_rules(each)


def _name_remarks(each: NamedEntry, known: KnownNames) -> Iterator[ScopeRemark]:
    """Yield the remarks on the user of an entry, who is a subject, and on the warehouses and schemas of its rules."""
    name = each.entry.name
    found: list[tuple[tuple[str | int, ...], NameFault | None]] = [
        (("name",), name_fault("subject", "equals", name.strip(), known))  # blanks have a code of their own
    ]
    for slot, field in _SLOTS.items():
        for number, rule in enumerate(getattr(each.entry.permissions, field) or ()):
            at = ("permissions", slot, number)
            found.append(((*at, "catalog"), name_fault("warehouse", "equals", rule.catalog, known)))
            found.append(((*at, "schema"), name_fault("path", "equals", rule.schema, known)))
    for where, fault in found:
        if fault and ANY_TABLE not in fault.message:  # no pattern, which is an error with a code of its own
            code = _WRONG if fault.is_wrong else _UNKNOWN
            yield ScopeRemark(code, "error" if fault.is_wrong else "warning", each.place(*where), name, fault.message)


def _lint_rules(each: NamedEntry) -> Iterator[ScopeRemark]:
    for slot, field in _SLOTS.items():
        for number, rule in enumerate(getattr(each.entry.permissions, field) or ()):
            for code, (key, message) in _faults(rule).items():
                place = each.place("permissions", slot, number, *([key] if key else []))
                severity: Literal["error", "warning"] = "error" if code in _ERRORS else "warning"
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
            found[_LITERAL] = (
                key,
                f"`{name}` is no pattern: write a rule for each {key}, by its whole name",
            )
    later = [name for number, name in enumerate(rule.tables or ()) if "*" in name and (number or name != ANY_TABLE)]
    if later:
        message = f"`{later[0]}` is no pattern: write whole names, or `*` as the first name for all tables"
        found[_LITERAL] = "tables", message
    if any(name != name.strip() or not name for name in (*names.values(), *(rule.tables or ()))):
        found["scopes-blank"] = "", "a name is empty or has blanks around: names match exactly"
    return found
