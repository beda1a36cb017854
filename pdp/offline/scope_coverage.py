"""Coverage of LakeQL's permissions by the checks of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pdp.decision.bundle import Bundle
from pdp.engines.engine import PERMIT
from pdp.engines.scopes.engine import ScopesEngine
from pdp.engines.scopes.permissions import ANY_TABLE, QUESTIONS, EntryBody, RuleBody, Scope, Target, target_of, user_of
from pdp.offline.coverage import NOT_NEEDED, Coverage, PolicyItem
from pdp.offline.observed_engines import EngineAnswer

NO_BOUNDARY: Final = "no check denies its user another table"
_SLOTS: Final[Mapping[Scope, str]] = {"readPermission": "Query", "writePermission": "Mutation"}


class ScopeCoverage:
    """Rules of entries of all bundles so far, and the points that checks show."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    def add(self, bundle: Bundle, origin: str) -> None:
        """Add all rules of a bundle's permissions; `origin` is the place of the files."""
        for authority in (bundle.default, *bundle.authorities.values()):
            for engine in authority.engines:
                for entry in first_entries(engine.entries) if isinstance(engine, ScopesEngine) else ():
                    for item, _ in _items(entry, origin):
                        self._coverage.add(item, [NOT_NEEDED, NO_BOUNDARY])

    def show(self, answers: Iterable[EngineAnswer], origin: str) -> None:
        """Note the points that the answers of engines of scopes show."""
        for answer in answers:
            engine = answer.engine
            if not isinstance(engine, ScopesEngine):
                continue
            user = user_of(answer.group.principal, engine.provider)
            entry = next((entry for entry in engine.entries if entry.name == user.name), None)
            if entry is not None:
                self._show(answer, entry, origin)

    def _show(self, answer: EngineAnswer, entry: EntryBody, origin: str) -> None:
        scope = QUESTIONS[answer.group.action, answer.group.type]
        rules = list(_items(entry, origin, scope))
        for resource, effect in zip(answer.resources, answer.verdicts.effects, strict=True):
            target = target_of(answer.group, resource)
            if effect == PERMIT:
                deciding = next((item for item, rule in rules if _permits(rule, target)), None)
                if deciding:
                    self._coverage.show(deciding, [NOT_NEEDED])
            else:
                for item, _ in rules:
                    self._coverage.show(item, [NO_BOUNDARY])


def first_entries(entries: Sequence[EntryBody]) -> Iterator[EntryBody]:
    """Yield the entries that count: of several with one name, the first."""
    names = set()
    for entry in entries:
        if entry.name not in names:
            names.add(entry.name)
            yield entry


def _items(entry: EntryBody, origin: str, scope: Scope | None = None) -> Iterator[tuple[PolicyItem, RuleBody]]:
    """Yield the rules of an entry under one scope, or under both."""
    slots: dict[Scope, Sequence[RuleBody] | None] = {
        "readPermission": entry.permissions.query,
        "writePermission": entry.permissions.mutation,
    }
    for each, rules in slots.items():
        for rule in (rules or ()) if scope in (None, each) else ():
            tables = ", ".join(rule.tables or ())
            name = f"{entry.name}: {_SLOTS[each]} {rule.catalog}.{rule.schema} [{tables}]"
            yield PolicyItem("permission", name, origin), rule


def _permits(rule: RuleBody, target: Target) -> bool:
    if (rule.catalog, rule.schema) != (target.catalog, target.schema):
        return False
    tables = rule.tables or ()
    return tables[:1] == (ANY_TABLE,) or target.table in tables
