"""Scopes engine: decides reads and writes of tables by LakeQL's permission files, explains, and remarks on files.

`permissions` has the decision tables and maps checks to scopes. The engine never forbids. Where LakeQL fails, the
engine has failed, and the service denies. An explanation has the rules of an entry, and the smallest change that turns
a denial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

import msgspec

from pdp.config.names import NO_NAMES, KnownNames, NameCheck, NameFault, name_fault
from pdp.engines.engine import (
    ABSTAIN,
    EFFECT_NAMES,
    FAILED,
    PERMIT,
    READS_POLICIES,
    SILENT,
    Cost,
    Dependency,
    EngineQuestion,
    FixedAnswer,
    ResourceCall,
    Verdicts,
)
from pdp.engines.scopes.permissions import (
    ANY_TABLE,
    NO_TABLES,
    QUESTIONS,
    READ,
    Access,
    EntryBody,
    NamedEntry,
    Permissions,
    RuleBody,
    SchemaTables,
    Scope,
    ScopeUser,
    Target,
    read_entries,
    target_of,
    user_of,
)
from pdp.errors import Place, PolicyError
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason, Trace
from pdp.model.arrays import PathArray
from pdp.model.question import Resource
from pdp.model.vocabulary import TABULAR_TYPES

NAME: Final = "scopes"


class ScopesEngine:
    """Engine of LakeQL's scopes. `entries` name subjects of `provider`."""

    forbids = True
    """A rule without tables fails, which denies."""
    counts_stored_roles = False
    """An entry names users alone."""

    def __init__(self, entries: Sequence[EntryBody], provider: str, *, strict: bool = False) -> None:
        self.entries = entries
        self.permissions = Permissions(entries, strict=strict)
        self.provider = provider
        self._digest = sha256(msgspec.json.encode((entries, provider, strict))).hexdigest()

    @property
    def name(self) -> str:
        """Return the name of the engine in `by` and `engines`."""
        return NAME

    @property
    def digest(self) -> str:
        """Return the digest of the entries and of the mode."""
        return self._digest

    @property
    def reads(self) -> frozenset[Dependency]:
        """Return the sources of verdicts: the files alone."""
        return READS_POLICIES

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict: two look-ups."""
        return Cost.MICROSECONDS

    def applies(self, action: str, type: str) -> bool:
        """Tell whether a scope stands for the action on the type."""
        return (action, type) in QUESTIONS

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Decide every resource. Work for the user is done once."""
        access = self.access(group)
        if access.fixed is not None:
            verdicts = _verdicts(access.entry, access.fixed)
            count = len(resources)
            errors = dict.fromkeys(range(count), verdicts.errors[0]) if verdicts.errors else {}
            return Verdicts(verdicts.effects * count, [verdicts.by[0]] * count, errors)
        effects = _effects(access, group, resources)
        by = list(map(_REASONS[access.entry].__getitem__, effects))
        if FAILED not in effects:
            return Verdicts(effects, by)
        errors = {row: (access.entry,) for row, effect in enumerate(effects) if effect == FAILED}
        return Verdicts(effects, by, errors)

    def prepare(self, group: EngineQuestion, facts: Facts) -> ResourceCall | None:
        """Return the call that decides one resource of a group."""
        access = self.access(group)
        if access.fixed is not None:
            return FixedAnswer(_verdicts(access.entry, access.fixed))
        return ScopeQuestion(group, access)

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the verdict with the rules of the user's entry; for a denial also the smallest change."""
        user, scope = user_of(group.principal, self.provider), QUESTIONS[group.action, group.type]
        verdicts = self.decide(group, (resource,), facts)
        target = target_of(group, resource)
        entry = next((entry for entry in self.entries if entry.name == user.name), None)
        outcome = EFFECT_NAMES[verdicts.effects[0]]
        return explain_access(scope, user, target, (outcome, verdicts.by[0]), entry)

    def access(self, group: EngineQuestion) -> Access:
        """Return the access of the group's user under the scope of the group's action."""
        user = user_of(group.principal, self.provider)
        return self.permissions.access(QUESTIONS[group.action, group.type], user.name, known=user.known)


class ScopeQuestion(msgspec.Struct, frozen=True):
    """Prepared question about the tables of one user."""

    group: EngineQuestion
    access: Access

    def __call__(self, resource: Resource) -> Verdicts:
        """Return the verdicts on a resource."""
        target = target_of(self.group, resource)
        return _verdicts(self.access.entry, _tables(self.access, target).effect(target.table))


class _Reasons(dict[str, dict[int, str | None]]):
    """Reasons by entry and effect. The names of entries are few."""

    def __missing__(self, entry: str) -> dict[int, str | None]:
        text = f"{NAME}:{entry}"
        if len(self) > _MOST_NAMES:
            self.clear()
        found = self[entry] = {ABSTAIN: None, PERMIT: text, FAILED: text}
        return found


_MOST_NAMES: Final = 100_000
_REASONS: Final = _Reasons()


def _verdicts(entry: str, effect: int) -> Verdicts:
    if effect == ABSTAIN:
        return SILENT
    reason = _REASONS[entry][effect]
    return Verdicts(bytes([effect]), (reason,), {0: (entry,)} if effect == FAILED else {})


def _effects(access: Access, group: EngineQuestion, resources: Sequence[Resource]) -> bytes:
    """Return the effects on resources. A column of tables needs one look-up for each namespace, and no object."""
    if type(resources) is PathArray and group.type in TABULAR_TYPES:
        schemas = [access.slot.get((group.warehouse, ".".join(parent)), NO_TABLES) for parent in resources.parents]
        rows = zip(resources.names, map(schemas.__getitem__, resources.parent_at), strict=True)
        return bytes([PERMIT if name in schema[0] else schema[1] for name, schema in rows])
    targets = [target_of(group, resource) for resource in resources]
    return bytes([_tables(access, target).effect(target.table) for target in targets])


def _tables(access: Access, target: Target) -> SchemaTables:
    return access.slot.get((target.catalog, target.schema), NO_TABLES)


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
    if path.suffix not in SUFFIXES:
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
