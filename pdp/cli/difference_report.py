"""What a dry run found, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from pdp.audit.recorded import ReadReport
from pdp.cli.context import visible
from pdp.offline.replay import KINDS, ChangedObject, Differences, GroupChanges, GroupKey, Kind, ObjectChanges

SHOWN_GROUPS: Final = 100
SHOWN_OBJECTS: Final = 5
"""What the text shows of each kind of change, and of each group."""
_TITLES: Final[Mapping[Kind, str]] = {
    "gained": "gains access",
    "lost": "loses access",
    "reason": "same verdict by another reason",
    "errors": "same verdict, other rules raise",
}
_STYLES: Final[Mapping[Kind, str]] = {"gained": "green", "lost": "red", "reason": "yellow", "errors": "yellow"}


class Report(msgspec.Struct, frozen=True):
    """All there is to say. `implicit_*`: whether the implicit rule is in force; None where nobody knows."""

    found: Differences
    reading: ReadReport
    implicit_before: bool | None
    implicit_after: bool
    notes: Sequence[str]

    @property
    def toggled(self) -> bool:
        """Whether the edit switches Nessie's implicit rule."""
        return self.implicit_before is not None and self.implicit_before != self.implicit_after


# --- JSON ---------------------------------------------------------------------------------------------------------


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs; see docs/dry-run.md."""
    found, reading = report.found, report.reading
    return {
        "checks": found.checks,
        "different": found.totals.total(),
        **{kind: found.totals[kind] for kind in KINDS},
        "groups": [_group(key, group) for key, group in found.groups.items()],
        "otherGroups": found.groups.other,
        "errorsAppeared": dict(sorted(found.appeared.items())),
        "errorsVanished": dict(sorted(found.vanished.items())),
        "implicitRule": {
            "baseline": report.implicit_before, "candidate": report.implicit_after, "toggled": report.toggled,
        },
        "input": {
            "files": reading.files,
            "records": reading.records,
            "checks": reading.checks,
            "filtered": reading.filtered,
            "listings": reading.listings,
            "rowFilters": reading.row_filters,
            "rejected": reading.rejected,
            "torn": reading.torn,
            "skipped": [
                {"why": why, "count": count, "first": reading.first[why]}
                for why, count in sorted(reading.skipped.items())
            ],
        },
        "notes": report.notes,
    }  # fmt: skip


def _group(key: GroupKey, group: GroupChanges) -> dict[str, Any]:
    return {
        "change": KINDS[key.kind],
        "principal": key.principal,
        "actingRole": key.acting_role or None,
        "action": key.action,
        "container": key.container,
        "checks": group.checks,
        "objects": [_object(object, changes) for object, changes in group.objects.items()],
        "otherObjects": group.objects.other,
    }


def _object(key: ChangedObject, changes: ObjectChanges) -> dict[str, Any]:
    example = changes.example
    return {
        "resource": key.resource,
        **({"destination": key.destination} if key.destination else {}),
        "delegated": key.delegated,
        "checks": changes.checks,
        "before": dict(zip(("allowed", "by", "errors"), (key.before[0], [key.before[1]], key.before[2]), strict=True)),
        "after": dict(zip(("allowed", "by", "errors"), (key.after[0], [key.after[1]], key.after[2]), strict=True)),
        **(
            {"decisionId": example.decision, "at": example.at, "time": example.time} if example and example.time else {}
        ),
    }


# --- text ---------------------------------------------------------------------------------------------------------


def print_text(report: Report) -> None:
    """The report for people, on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    for line in _text(report):
        console.print(line)


def _text(report: Report) -> Iterator[Text]:
    found = report.found
    yield _headline(found)
    if report.toggled:
        yield _implicit_note(report)
    for kind_number, groups in groupby(found.groups.items(), lambda item: item[0].kind):
        kind = KINDS[kind_number]
        yield Text()
        yield Text(f"{_TITLES[kind]}: {_checks(found.totals[kind])}", f"bold {_STYLES[kind]}")
        yield from _groups(list(groups))
    if found.groups.other:
        yield Text(f"further groups, not listed: {_checks(found.groups.other)}", "dim")
    yield from _errors("raises now", found.appeared)
    yield from _errors("no longer raises", found.vanished)
    yield from _input(report.reading)
    yield from (Text(f"note: {visible(note)}", "dim") for note in report.notes)


def _headline(found: Differences) -> Text:
    if not found:
        return Text(f"no difference in {_checks(found.checks)}", "bold")
    counts = ", ".join(f"{found.totals[kind]:,} {kind}" for kind in KINDS if found.totals[kind])
    return Text(f"{found.totals.total():,} of {_checks(found.checks)} different: {counts}", "bold")


def _implicit_note(report: Report) -> Text:
    change = (
        "the candidate turns on Nessie's implicit rule: none of its rules mentions VIEW_REFERENCE, "
        "so everyone may view references"
        if report.implicit_after
        else "the candidate turns off Nessie's implicit rule: one of its rules mentions VIEW_REFERENCE, "
        "so only who is permitted by a rule may view references"
    )
    return Text(f"implicit rule: {change}", "bold yellow")


def _groups(groups: Sequence[tuple[GroupKey, GroupChanges]]) -> Iterator[Text]:
    for (principal, role), some in groupby(
        groups[:SHOWN_GROUPS], lambda item: (item[0].principal, item[0].acting_role)
    ):
        yield Text(f"  {visible(principal)}" + (f" as {visible(role)}" if role else ""), "bold")
        for key, group in some:
            yield Text(f"    {visible(key.action)} in {visible(key.container)}: {_checks(group.checks)}")
            yield from _objects(group)
    if more := groups[SHOWN_GROUPS:]:
        yield Text(f"  and {len(more):,} more groups of {_checks(sum(group.checks for _, group in more))}", "dim")


def _objects(group: GroupChanges) -> Iterator[Text]:
    objects = group.objects.items()
    for key, changes in objects[:SHOWN_OBJECTS]:
        name = key.resource + (f" -> {key.destination}" if key.destination else "")
        name += " (delegated)" if key.delegated else ""
        count = f" ({changes.checks:,} times)" if changes.checks > 1 else ""
        line = Text(f"      {visible(name)}{count}")
        line.append(f"  {_why(key.before)} -> {_why(key.after)}", "dim")
        yield line
    more = sum(changes.checks for _, changes in objects[SHOWN_OBJECTS:]) + group.objects.other
    if more:
        yield Text(f"      and more objects: {_checks(more)}", "dim")


def _why(outcome: tuple[bool, str, tuple[str, ...]]) -> str:
    raised = f" (raised: {', '.join(outcome[2])})" if outcome[2] else ""
    return visible(outcome[1] + raised)


def _errors(title: str, rules: Mapping[str, int]) -> Iterator[Text]:
    if rules:
        yield Text()
    for rule, count in sorted(rules.items()):
        yield Text(f"rule {visible(rule)} {title}: {_checks(count)}", "yellow")


def _input(reading: ReadReport) -> Iterator[Text]:
    """What was read, where it was an audit; what was left out, in any case."""
    if reading.files:
        yield Text()
        read = f"read {_checks(reading.checks)} of {_many(reading.records, 'record')} in {_many(reading.files, 'file')}"
        left = (_many(reading.listings, "listing"), _many(reading.row_filters, "row filter"))
        counts = (reading.listings, reading.row_filters)
        skipped = [text for text, count in zip(left, counts, strict=True) if count]
        yield Text(read + (f", {' and '.join(skipped)} skipped" if skipped else ""))
    if reading.filtered:
        yield Text(f"outside the filter: {_checks(reading.filtered)}")
    if reading.rejected:
        yield Text(f"no check then either: {reading.rejected:,}")
    for place in reading.torn:
        yield Text(f"torn last line, skipped: {visible(place)}", "yellow")
    for why, count in sorted(reading.skipped.items()):
        yield Text(f"skipped {count:,}: {visible(why)}, first at {visible(reading.first[why])}", "yellow")


def _checks(count: int) -> str:
    return _many(count, "check")


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
