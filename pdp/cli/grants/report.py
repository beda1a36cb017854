"""Report of the changes of a store, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from pdp.cli.terminal import plural, visible
from pdp.facts.objects import (
    Change,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectDeleted,
    ObjectPut,
    RowPolicyPut,
    RowPolicyRemoved,
    RuleKey,
    key_text,
)
from pdp.facts.snapshot import Facts
from pdp.store.world import format_grant, format_object
from pdp.store.world_text import entry_text

MAX_LISTED: Final = 20
"""Changes that the text lists. JSON lists all."""
_KINDS: Final = {
    "added": ("grant", "added"),
    "removed": ("grant", "removed"),
    "registered": ("object", "registered"),
    "changed": ("object", "changed"),
    "deleted": ("registration", "deleted"),
    "rule_put": ("row rule", "written"),
    "rule_removed": ("row rule", "removed"),
}
"""Kind of change -> noun and participle for the summary, in the order of the report."""
_RULE_KINDS: Final = frozenset({"rule_put", "rule_removed"})


class ChangeReport(msgspec.Struct, frozen=True):
    """Changes of a store, written or planned.

    `before` are the facts without the changes, `revision` is the revision of the store after the command.
    """

    changes: Sequence[Change]
    before: Facts
    revision: str
    dry_run: bool = False

    @classmethod
    def of_dry_run(cls, changes: Sequence[Change], facts: Facts) -> ChangeReport:
        """Return the report of changes that were not written."""
        return cls(changes, facts, str(facts.revision()), dry_run=True)

    def counts(self) -> dict[str, int]:
        """Return the number of changes of every kind, also of kinds without a change but for row rules."""
        counts = Counter(self.kind(change) for change in self.changes)
        return {kind: counts[kind] for kind in _KINDS if counts[kind] or kind not in _RULE_KINDS}

    def kind(self, change: Change) -> str:
        """Return the kind of a change, a key of `counts`."""
        if isinstance(change, GrantAdded | GrantRemoved):
            return "added" if isinstance(change, GrantAdded) else "removed"
        if isinstance(change, RowPolicyPut | RowPolicyRemoved):
            return "rule_put" if isinstance(change, RowPolicyPut) else "rule_removed"
        if isinstance(change, ObjectDeleted):
            return "deleted"
        return "changed" if self.before.is_registered(change.object.key) else "registered"


def grant_text(grant: Grant) -> str:
    """Return a grant in words, without escapes for the terminal."""
    id = f" (id {grant.id})" if grant.id else ""
    return f"{grant.privilege} on {key_text(grant.object)}{id} for {grant.principal}"


def rule_text(key: RuleKey) -> str:
    """Return the key of a row rule in words, without escapes for the terminal."""
    table, column, id = key
    return f"{f'mask `{id}` of column `{column}`' if column else f'row policy `{id}`'} on {key_text(('table', table))}"


# --- text ---------------------------------------------------------------------------------------------------------


def text_lines(report: ChangeReport, conclusion: str) -> Iterator[str]:
    """Yield the report as text: the first changes, a conclusion and the revision."""
    for change in report.changes[:MAX_LISTED]:
        yield visible(f"  {_change_text(report, change)}")
    if len(report.changes) > MAX_LISTED:
        yield f"  and {len(report.changes) - MAX_LISTED:,} more"
    yield visible(conclusion)
    yield f"revision {report.revision}"


def summary(report: ChangeReport) -> str:
    """Return the number of changes of each kind in words."""
    tense = "would be " if report.dry_run else ""
    return ", ".join(
        f"{plural(count, _KINDS[kind][0])} {tense}{_KINDS[kind][1]}" for kind, count in report.counts().items() if count
    )


def _change_text(report: ChangeReport, change: Change) -> str:
    if isinstance(change, GrantAdded | GrantRemoved):
        return f"{'+' if isinstance(change, GrantAdded) else '-'} {grant_text(change.grant)}"
    if isinstance(change, RowPolicyPut):
        end = " (its table was dropped)" if change.rule.tombstone else ""
        return f"+ {rule_text(change.rule.key)}{end}"
    if isinstance(change, RowPolicyRemoved):
        return f"- {rule_text(change.key)}"
    if isinstance(change, ObjectDeleted):
        return f"- {_object_text(report.before.object(change.key))}"
    if report.kind(change) == "registered":
        return f"+ {_object_text(change.object)}"
    return f"~ {key_text(change.object.key)}: {_differences(report.before.object(change.object.key), change.object)}"


def _object_text(object: Object) -> str:
    entry = format_object(object)
    fields = [f"{name} {_plain(value)}" for name, value in entry.items() if name != "object"]
    return ", ".join((entry["object"], *fields))


def _differences(old: Object, new: Object) -> str:
    """Return the changed fields of an object, named as in world files."""
    before, after = format_object(old), format_object(new)
    names = [name for name in ("parent", "managedAccess", "id") if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {_plain(before.get(name))} -> {_plain(after.get(name))}" for name in names)


def _plain(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# --- JSON ---------------------------------------------------------------------------------------------------------


def json_lines(report: ChangeReport) -> Iterator[str]:
    """Yield the report as lines of a JSON object, with a line for each change."""
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
    if isinstance(change, RowPolicyPut | RowPolicyRemoved):
        table, column, id = change.rule.key if isinstance(change, RowPolicyPut) else change.key
        return {"change": kind, "rule": {"table": key_text(("table", table)), "id": id, "column": column}}
    key = change.object.key if isinstance(change, ObjectPut) else change.key
    body: dict[str, Any] = {"change": kind}
    if isinstance(change, ObjectPut):
        body["object"] = format_object(change.object)
    if report.before.is_registered(key):
        body["was"] = format_object(report.before.object(key))
    return body
