"""Checks decided under two sets of policies: what changed, and for whom. Pure: reads no file, records nothing.

Memory is bounded whatever the number of checks: they are decided in windows, and of what changed the first groups and
objects by name are kept, with exact totals for all others. The result does not depend on the order of the checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from pdp.audit.recorded import RecordedCheck, RecordedOutcome
from pdp.decision.service import Pdp
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.checks import (
    CONTENT_TYPES,
    DEFAULT_DENY,
    ENGINE_TYPES,
    VERSIONED_TYPES,
    Answer,
    Batch,
    Check,
    CheckGrouper,
    Resource,
)
from pdp.model.references import format_resource

WINDOW: Final = 20_000
"""Different checks decided together; equal ones among them are decided once."""
MAX_GROUPS: Final = 2000
MAX_OBJECTS: Final = 50
"""Groups, and objects in each, that are kept by name."""

Kind: TypeAlias = Literal["gained", "lost", "reason", "errors"]
KINDS: Final[tuple[Kind, ...]] = ("gained", "lost", "reason", "errors")
"""What can change: access, or the same verdict by another reason, or only the rules that raised."""


class Change(msgspec.Struct, frozen=True):
    """A check that comes out differently, `count` times."""

    kind: Kind
    recorded: RecordedCheck
    before: RecordedOutcome
    after: RecordedOutcome
    count: int


class GroupKey(msgspec.Struct, frozen=True, order=True):
    """What changes are gathered by; `container` is the object above the one asked about."""

    kind: int
    principal: str
    acting_role: str
    action: str
    container: str


class ChangedObject(msgspec.Struct, frozen=True, order=True):
    """One object of a group, and how it changed. `destination` is where a rename goes."""

    resource: str
    destination: str
    delegated: bool
    before: tuple[bool, str, tuple[str, ...]]
    after: tuple[bool, str, tuple[str, ...]]


class Example(msgspec.Struct, frozen=True, order=True):
    """The first of the records behind a change."""

    time: str
    decision: str
    at: int


class _Counted(Protocol):
    checks: int


K = TypeVar("K", bound=Any)
V = TypeVar("V", bound=_Counted)


class Smallest(Generic[K, V]):
    """The first `limit` keys in order, whatever order they come in; `other` counts the checks of all further ones.

    A key is dropped only while `limit` smaller ones are there, which it can never outlive: what is kept is exact.
    """

    def __init__(self, limit: int, make: Callable[[], V]) -> None:
        self._limit = limit
        self._make = make
        self._found: dict[K, V] = {}
        self._dropped = 0

    def at(self, key: K) -> V:
        """The value of a key, new where it has none."""
        value = self._found.get(key)
        if value is None:
            if len(self._found) >= 2 * self._limit:
                self._prune()
            value = self._found[key] = self._make()
        return value

    def items(self) -> list[tuple[K, V]]:
        """What is kept, in order."""
        self._prune()
        return sorted(self._found.items(), key=lambda item: item[0])

    @property
    def other(self) -> int:
        """The checks of keys that are not kept."""
        self._prune()
        return self._dropped

    def _prune(self) -> None:
        if len(self._found) > self._limit:
            for key in sorted(self._found)[self._limit :]:
                self._dropped += self._found.pop(key).checks


class ObjectChanges:
    """The checks of one object that changed alike."""

    def __init__(self) -> None:
        self.checks = 0
        self.example: Example | None = None

    def add(self, change: Change) -> None:
        recorded = change.recorded
        self.checks += change.count
        example = Example(recorded.time, recorded.decision, recorded.at)
        self.example = min(self.example or example, example)


class GroupChanges:
    """The checks of one group."""

    def __init__(self) -> None:
        self.checks = 0
        self.objects: Smallest[ChangedObject, ObjectChanges] = Smallest(MAX_OBJECTS, ObjectChanges)

    def add(self, change: Change) -> None:
        self.checks += change.count
        self.objects.at(_object_key(change)).add(change)


class Differences:
    """All that changed: exact totals, and the first groups by name."""

    def __init__(self) -> None:
        self.checks = 0
        """Checks that were compared, changed or not."""
        self.totals: Counter[Kind] = Counter()
        self.appeared: Counter[str] = Counter()
        self.vanished: Counter[str] = Counter()
        """Checks per rule that raises now and did not, or no longer."""
        self.groups: Smallest[GroupKey, GroupChanges] = Smallest(MAX_GROUPS, GroupChanges)

    def __bool__(self) -> bool:
        return bool(self.totals)

    def add(self, change: Change) -> None:
        """Count one change."""
        self.totals[change.kind] += change.count
        before, after = change.before.errors, change.after.errors
        if before is not None and after is not None:
            self.appeared.update(dict.fromkeys(set(after) - set(before), change.count))
            self.vanished.update(dict.fromkeys(set(before) - set(after), change.count))
        self.groups.at(_group_key(change)).add(change)


async def replay(
    recorded: Iterable[RecordedCheck],
    baseline: Pdp | None,
    candidate: Pdp,
    progress: Callable[[Differences], None] = lambda _: None,
) -> Differences:
    """What changes from `baseline` to `candidate`; without a baseline, from what was decided then."""
    found = Differences()
    for window in _windows(recorded):
        async for change in _changes(window, baseline, candidate):
            found.add(change)
        found.checks += sum(counted.count for counted in window.values())
        progress(found)
    return found


class _EqualChecks:
    """Equal checks: the first of their records, and how many there are."""

    __slots__ = ("count", "recorded")

    def __init__(self, recorded: RecordedCheck) -> None:
        self.recorded = recorded
        self.count = 0

    def add(self, recorded: RecordedCheck) -> None:
        self.count += 1
        if (recorded.time, recorded.decision, recorded.at) < (
            self.recorded.time, self.recorded.decision, self.recorded.at
        ):  # fmt: skip
            self.recorded = recorded


_Window: TypeAlias = Mapping[Hashable, _EqualChecks]


def _windows(recorded: Iterable[RecordedCheck]) -> Iterator[_Window]:
    window: dict[Hashable, _EqualChecks] = {}
    for one in recorded:
        check = one.check
        key = (
            check.principal, check.action, check.delegated, check.acting_role, check.env, check.inspected,
            check.view_security, one.key, one.outcome,
        )  # fmt: skip
        same = window.get(key)
        if same is None:
            if len(window) >= WINDOW:
                yield window
                window = {}
            same = window[key] = _EqualChecks(one)
        same.add(one)
    if window:
        yield window


async def _changes(window: _Window, baseline: Pdp | None, candidate: Pdp) -> AsyncIterator[Change]:
    batch = _batch([same.recorded.check for same in window.values()])
    old = await baseline.check(batch) if baseline else None
    new = await candidate.check(batch)
    if old and (old.allowed, old.by, old.errors) == (new.allowed, new.by, new.errors):
        return
    for at, same in enumerate(window.values()):
        before = _outcome(old, at) if old else same.recorded.outcome
        after = _outcome(new, at)
        kind = _kind(before, after) if before else None
        if before and kind:
            yield Change(kind, same.recorded, before, after, same.count)


def _batch(checks: Sequence[Check]) -> Batch:
    """Checks of one resource each as one batch."""
    gathered = CheckGrouper()
    for at, check in enumerate(checks):
        gathered.put(check, at)
    return Batch("replay", EMBEDDED_CALLER, len(checks), gathered.checks())


def _outcome(answer: Answer, at: int) -> RecordedOutcome:
    allowed = bool(answer.allowed[at])
    return RecordedOutcome(allowed, answer.by[at] or DEFAULT_DENY, () if allowed else answer.errors.get(at, ()))


def _kind(before: RecordedOutcome, after: RecordedOutcome) -> Kind | None:
    if before.allowed != after.allowed:
        return "gained" if after.allowed else "lost"
    if before.by != after.by:
        return "reason"
    return "errors" if before.errors is not None and before.errors != after.errors else None


def _group_key(change: Change) -> GroupKey:
    check = change.recorded.check
    role = f"role:{check.acting_role}" if check.acting_role is not None else ""
    container = format_resource(_container(check.resources[0]))
    return GroupKey(KINDS.index(change.kind), check.principal.id, role, check.action, container)


def _object_key(change: Change) -> ChangedObject:
    check = change.recorded.check
    resource = check.resources[0]
    to = resource.arguments.destination
    return ChangedObject(
        format_resource(resource),
        format_resource(to) if to else "",
        check.delegated,
        _sortable(change.before),
        _sortable(change.after),
    )


def _sortable(outcome: RecordedOutcome) -> tuple[bool, str, tuple[str, ...]]:
    return outcome.allowed, outcome.by, outcome.errors or ()


def _container(resource: Resource) -> Resource:
    """The object above one: a namespace on its ref, a warehouse, a catalog, or the server."""
    if not resource.path and resource.type != "reference":
        return Resource("server")
    if resource.type in ENGINE_TYPES - VERSIONED_TYPES:
        return Resource("catalog", resource.warehouse)
    if resource.type not in CONTENT_TYPES or len(resource.path) < 2:
        return Resource("warehouse", resource.warehouse)
    return Resource("namespace", resource.warehouse, resource.path[:-1], resource.ref)
