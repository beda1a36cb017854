"""Differences between two sets of decisions: exact totals, and the first groups and objects by name.

Memory is bounded for any number of changed checks, and the result does not depend on their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from pdp.audit.records.recorded import RecordedOutcome, ReplayCheck
from pdp.model.question import CONTENT_TYPES, ENGINE_TYPES, VERSIONED_TYPES, Check, Resource
from pdp.model.references import format_resource

MAX_GROUPS: Final = 2000
"""Groups that are listed by name."""
MAX_OBJECTS: Final = 50
"""Objects of one group that are listed by name."""

DifferenceKind: TypeAlias = Literal["gained", "lost", "reason", "errors"]
KINDS: Final[tuple[DifferenceKind, ...]] = ("gained", "lost", "reason", "errors")
"""Kinds of differences: access gained or lost; else another reason; else only other rules that raise."""


class ChangedCheck(msgspec.Struct, frozen=True):
    """A check with two different outcomes, that occurs `count` times."""

    kind: DifferenceKind
    recorded: ReplayCheck
    before: RecordedOutcome
    after: RecordedOutcome
    count: int


class GroupKey(msgspec.Struct, frozen=True, order=True):
    """Key of a group of changed checks. `container` is the object above the checked resource."""

    kind: int
    principal: str
    acting_role: str
    action: str
    container: str


class ChangedObject(msgspec.Struct, frozen=True, order=True):
    """Key of an object within a group, with both outcomes. `destination` is the new name of a rename."""

    resource: str
    destination: str
    delegated: bool
    before: tuple[bool, str, tuple[str, ...]]
    after: tuple[bool, str, tuple[str, ...]]


class RecordPosition(msgspec.Struct, frozen=True, order=True):
    """Place of a check in the audit: time and id of its record, and position within."""

    time: str
    decision: str
    at: int


class _CheckCount(Protocol):
    checks: int


K = TypeVar("K", bound=Any)
V = TypeVar("V", bound=_CheckCount)


class SmallestKeys(Generic[K, V]):
    """Values of the `limit` smallest keys, for keys in any order of arrival. `other` counts the checks of larger keys.

    Every key gets a value on arrival. Above `2 * limit` keys, all but the `limit` smallest are dropped. A dropped key
    always has `limit` smaller keys, because only even smaller keys can replace them. So the key never belongs to the
    result again: the result and `other` are exact.
    """

    def __init__(self, limit: int, make: Callable[[], V]) -> None:
        self._limit = limit
        self._make = make
        self._values: dict[K, V] = {}
        self._dropped = 0

    def at(self, key: K) -> V:
        """Return the value of a key; make one if the key is new."""
        value = self._values.get(key)
        if value is None:
            if len(self._values) >= 2 * self._limit:
                self._prune()
            value = self._values[key] = self._make()
        return value

    def items(self) -> list[tuple[K, V]]:
        """Return the smallest keys and their values, in order."""
        self._prune()
        return sorted(self._values.items(), key=lambda item: item[0])

    @property
    def other(self) -> int:
        """Return the number of checks of all other keys."""
        self._prune()
        return self._dropped

    def _prune(self) -> None:
        if len(self._values) > self._limit:
            for key in sorted(self._values)[self._limit :]:
                self._dropped += self._values.pop(key).checks


class ObjectChanges:
    """Checks of one object with the same two outcomes. `example` is the first of their records."""

    def __init__(self) -> None:
        self.checks = 0
        self.example: RecordPosition | None = None

    def add(self, change: ChangedCheck) -> None:
        """Count a changed check."""
        recorded = change.recorded
        self.checks += change.count
        example = RecordPosition(recorded.time, recorded.decision, recorded.at)
        self.example = min(self.example or example, example)


class GroupChanges:
    """Changed checks of one group, by object."""

    def __init__(self) -> None:
        self.checks = 0
        self.objects: SmallestKeys[ChangedObject, ObjectChanges] = SmallestKeys(MAX_OBJECTS, ObjectChanges)

    def add(self, change: ChangedCheck) -> None:
        """Count a changed check."""
        self.checks += change.count
        self.objects.at(_object_key(change)).add(change)


class Differences:
    """All changed checks: exact totals, and the first groups by name."""

    def __init__(self) -> None:
        self.checks = 0
        """Compared checks, changed or not."""
        self.totals: Counter[DifferenceKind] = Counter()
        self.appeared: Counter[str] = Counter()
        """Rule -> checks for which the rule raises only after the change."""
        self.vanished: Counter[str] = Counter()
        """Rule -> checks for which the rule raises only before the change."""
        self.groups: SmallestKeys[GroupKey, GroupChanges] = SmallestKeys(MAX_GROUPS, GroupChanges)

    def __bool__(self) -> bool:
        return bool(self.totals)

    def add(self, change: ChangedCheck) -> None:
        """Count a changed check."""
        self.totals[change.kind] += change.count
        before, after = change.before.errors, change.after.errors
        if before is not None and after is not None:
            self.appeared.update(dict.fromkeys(set(after) - set(before), change.count))
            self.vanished.update(dict.fromkeys(set(before) - set(after), change.count))
        self.groups.at(_group_key(change)).add(change)


def difference_kind(before: RecordedOutcome, after: RecordedOutcome) -> DifferenceKind | None:
    """Return how two outcomes differ; None if they do not. Unknown errors of `before` equal all others."""
    if before.allowed != after.allowed:
        return "gained" if after.allowed else "lost"
    if before.by != after.by:
        return "reason"
    return "errors" if before.errors is not None and before.errors != after.errors else None


class CheckSubject(NamedTuple):
    """Subject, action and container of a check, as reports group them."""

    principal: str
    acting_role: str
    action: str
    container: str


class CheckObject(NamedTuple):
    """Object of a check, and the new name of a rename."""

    resource: str
    destination: str


def check_subject(check: Check) -> CheckSubject:
    """Return subject, action and container of a check of one resource."""
    role = f"role:{check.question.acting_role}" if check.question.acting_role is not None else ""
    container = format_resource(_container(check.resources[0]))
    return CheckSubject(check.question.principal.id, role, check.question.action, container)


def check_object(check: Check) -> CheckObject:
    """Return the object of a check of one resource."""
    resource = check.resources[0]
    destination = resource.arguments.destination
    return CheckObject(format_resource(resource), format_resource(destination) if destination else "")


def _group_key(change: ChangedCheck) -> GroupKey:
    return GroupKey(KINDS.index(change.kind), *check_subject(change.recorded.check))


def _object_key(change: ChangedCheck) -> ChangedObject:
    check = change.recorded.check
    return ChangedObject(
        *check_object(check), check.question.delegated, _sortable(change.before), _sortable(change.after)
    )


def _sortable(outcome: RecordedOutcome) -> tuple[bool, str, tuple[str, ...]]:
    return outcome.allowed, outcome.by, outcome.errors or ()


def _container(resource: Resource) -> Resource:
    """Return the object above a resource: the namespace on the same ref, the warehouse, the catalog, or the server."""
    if not resource.path and resource.type != "reference":
        return Resource("server")
    if resource.type in ENGINE_TYPES - VERSIONED_TYPES:
        return Resource("catalog", resource.warehouse)
    if resource.type not in CONTENT_TYPES or len(resource.path) < 2:
        return Resource("warehouse", resource.warehouse)
    return Resource("namespace", resource.warehouse, resource.path[:-1], resource.ref)
