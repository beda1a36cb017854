"""Changes of a store, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from pdp.cli.context import visible
from pdp.facts.objects import Change, Grant, GrantAdded, GrantRemoved, Object, ObjectDeleted, ObjectPut, key_text
from pdp.facts.snapshot import Facts
from pdp.store.world import format_grant, format_object
from pdp.store.world_text import entry_text

SHOWN: Final = 20
"""How many changes the text lists."""
_COUNTED: Final = {
    "added": ("grant", "added"),
    "removed": ("grant", "removed"),
    "registered": ("object", "registered"),
    "changed": ("object", "changed"),
    "deleted": ("registration", "deleted"),
}
"""Kind of change -> of what, and what happens to it; in the order of the report."""


class ChangeReport(msgspec.Struct, frozen=True):
    """What was written, or would be, to the facts as they were `before`; `revision` is the store's after that."""

    changes: Sequence[Change]
    before: Facts
    revision: str
    dry_run: bool = False

    @classmethod
    def of_dry_run(cls, changes: Sequence[Change], facts: Facts) -> ChangeReport:
        """What would be written to these facts."""
        return cls(changes, facts, f"{facts.epoch}.{facts.sequence}", dry_run=True)

    def counts(self) -> dict[str, int]:
        """Kind of change -> how many, all kinds in order."""
        found = Counter(self.kind(change) for change in self.changes)
        return {kind: found[kind] for kind in _COUNTED}

    def kind(self, change: Change) -> str:
        """What a change does."""
        if isinstance(change, GrantAdded | GrantRemoved):
            return "added" if isinstance(change, GrantAdded) else "removed"
        if isinstance(change, ObjectDeleted):
            return "deleted"
        return "changed" if self.before.is_registered(change.object.key) else "registered"


def grant_text(grant: Grant) -> str:
    """A grant in words; not yet fit for a terminal."""
    only = f" (id {grant.id})" if grant.id else ""
    return f"{grant.privilege} on {key_text(grant.object)}{only} for {grant.principal}"


def many(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# --- text ---------------------------------------------------------------------------------------------------------


def text_lines(report: ChangeReport, conclusion: str) -> Iterator[str]:
    """The report for people: some of the changes, what they come to, and the revision."""
    for change in report.changes[:SHOWN]:
        yield visible(f"  {_change_text(report, change)}")
    if len(report.changes) > SHOWN:
        yield f"  and {len(report.changes) - SHOWN:,} more"
    yield visible(conclusion)
    yield f"revision {report.revision}"


def summary(report: ChangeReport) -> str:
    """How many changes of each kind there are."""
    tense = "would be " if report.dry_run else ""
    return ", ".join(
        f"{many(count, _COUNTED[kind][0])} {tense}{_COUNTED[kind][1]}"
        for kind, count in report.counts().items()
        if count
    )


def _change_text(report: ChangeReport, change: Change) -> str:
    if isinstance(change, GrantAdded | GrantRemoved):
        return f"{'+' if isinstance(change, GrantAdded) else '-'} {grant_text(change.grant)}"
    if isinstance(change, ObjectDeleted):
        return f"- {_object_text(report.before.object(change.key))}"
    if report.kind(change) == "registered":
        return f"+ {_object_text(change.object)}"
    return f"~ {key_text(change.object.key)}: {_differences(report.before.object(change.object.key), change.object)}"


def _object_text(known: Object) -> str:
    entry = format_object(known)
    said = [f"{name} {_plain(value)}" for name, value in entry.items() if name != "object"]
    return f"{entry['object']}{', ' if said else ''}{', '.join(said)}"


def _differences(was: Object, now: Object) -> str:
    """Field by field, as world files name them."""
    before, after = format_object(was), format_object(now)
    names = [name for name in ("parent", "managedAccess", "id") if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {_plain(before.get(name))} -> {_plain(after.get(name))}" for name in names)


def _plain(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# --- JSON ---------------------------------------------------------------------------------------------------------


def json_lines(report: ChangeReport) -> Iterator[str]:
    """The report for programs: one JSON object, a change a line."""
    head = {"dryRun": report.dry_run, "revision": report.revision, "counts": report.counts()}
    yield f'{entry_text(head)[:-1]}, "changes": ['
    last = len(report.changes) - 1
    for at, change in enumerate(report.changes):
        yield f"  {entry_text(_change_body(report, change))}{',' if at < last else ''}"
    yield "]}"


def _change_body(report: ChangeReport, change: Change) -> dict[str, Any]:
    kind = report.kind(change)
    if isinstance(change, GrantAdded | GrantRemoved):
        return {"change": kind, "grant": format_grant(change.grant)}
    key = change.object.key if isinstance(change, ObjectPut) else change.key
    body: dict[str, Any] = {"change": kind}
    if isinstance(change, ObjectPut):
        body["object"] = format_object(change.object)
    if report.before.is_registered(key):
        body["was"] = format_object(report.before.object(key))
    return body
