"""Report of a dry run, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from pdp.audit.records.recorded import ReadReport
from pdp.cli.terminal import plural, visible
from pdp.offline.replay.differences import (
    KINDS,
    ChangedObject,
    DifferenceKind,
    Differences,
    GroupChanges,
    GroupKey,
    ObjectChanges,
)

MAX_GROUPS: Final = 100
"""Groups of each kind that the text lists."""
MAX_OBJECTS: Final = 5
"""Objects of each group that the text lists."""
_TITLES: Final[Mapping[DifferenceKind, str]] = {
    "gained": "gains access",
    "lost": "loses access",
    "reason": "same verdict by another reason",
    "errors": "same verdict, other rules raise",
}
_STYLES: Final[Mapping[DifferenceKind, str]] = {
    "gained": "green",
    "lost": "red",
    "reason": "yellow",
    "errors": "yellow",
}


class DryRunReport(msgspec.Struct, frozen=True):
    """Result of a dry run. `implicit_*` tell whether Nessie's implicit rule is in force; None if nobody asks."""

    differences: Differences
    reading: ReadReport
    implicit_before: bool | None = None
    implicit_after: bool | None = None
    notes: Sequence[str] = ()

    @property
    def toggled(self) -> bool:
        """Tell whether the edit turns Nessie's implicit rule on or off."""
        return self.implicit_before is not None and self.implicit_before != self.implicit_after


# --- JSON ---------------------------------------------------------------------------------------------------------


def as_json(report: DryRunReport) -> dict[str, Any]:
    """Return the report as JSON values; docs/dry-run.md describes the keys."""
    differences, reading = report.differences, report.reading
    return {
        "checks": differences.checks,
        "different": differences.totals.total(),
        **{kind: differences.totals[kind] for kind in KINDS},
        "groups": [_group(key, group) for key, group in differences.groups.items()],
        "otherGroups": differences.groups.other,
        "errorsAppeared": dict(sorted(differences.appeared.items())),
        "errorsVanished": dict(sorted(differences.vanished.items())),
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
            "events": reading.events,
            "rejected": reading.rejected,
            "sampled": reading.sampled,
            "leftOut": reading.left_out,
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
        "before": _outcome(key.before),
        "after": _outcome(key.after),
        **(
            {"decisionId": example.decision, "at": example.at, "time": example.time} if example and example.time else {}
        ),
    }


def _outcome(outcome: tuple[bool, str, tuple[str, ...]]) -> dict[str, Any]:
    allowed, by, errors = outcome
    return {"allowed": allowed, "by": [by], "errors": errors}


# --- text ---------------------------------------------------------------------------------------------------------


def print_text(report: DryRunReport) -> None:
    """Print the report as text on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    for line in _text(report):
        console.print(line)


def _text(report: DryRunReport) -> Iterator[Text]:
    differences = report.differences
    yield _headline(differences)
    if report.toggled:
        yield _implicit_note(report)
    for kind_number, groups in groupby(differences.groups.items(), lambda item: item[0].kind):
        kind = KINDS[kind_number]
        yield Text()
        yield Text(f"{_TITLES[kind]}: {_checks(differences.totals[kind])}", f"bold {_STYLES[kind]}")
        yield from _groups(list(groups))
    if differences.groups.other:
        yield Text(f"further groups, not listed: {_checks(differences.groups.other)}", "dim")
    yield from _errors("raises now", differences.appeared)
    yield from _errors("no longer raises", differences.vanished)
    yield from _input(report.reading)
    yield from (Text(f"note: {visible(note)}", "dim") for note in report.notes)


def _headline(differences: Differences) -> Text:
    checks, totals = _checks(differences.checks), differences.totals
    if not differences:
        return Text(f"no difference in {checks}", "bold")
    counts = ", ".join(f"{totals[kind]:,} {kind}" for kind in KINDS if totals[kind])
    return Text(f"{totals.total():,} of {checks} different: {counts}", "bold")


def _implicit_note(report: DryRunReport) -> Text:
    change = (
        "the candidate turns on Nessie's implicit rule: none of its rules mentions VIEW_REFERENCE, "
        "so everyone may view references"
        if report.implicit_after
        else "the candidate turns off Nessie's implicit rule: one of its rules mentions VIEW_REFERENCE, "
        "so only principals that a rule permits may view references"
    )
    return Text(f"implicit rule: {change}", "bold yellow")


def _groups(groups: Sequence[tuple[GroupKey, GroupChanges]]) -> Iterator[Text]:
    for (principal, role), some in groupby(groups[:MAX_GROUPS], lambda item: (item[0].principal, item[0].acting_role)):
        yield Text(f"  {visible(principal)}" + (f" as {visible(role)}" if role else ""), "bold")
        for key, group in some:
            yield Text(f"    {visible(key.action)} in {visible(key.container)}: {_checks(group.checks)}")
            yield from _objects(group)
    if more := groups[MAX_GROUPS:]:
        yield Text(f"  and {len(more):,} more groups of {_checks(sum(group.checks for _, group in more))}", "dim")


def _objects(group: GroupChanges) -> Iterator[Text]:
    objects = group.objects.items()
    for key, changes in objects[:MAX_OBJECTS]:
        name = key.resource + (f" -> {key.destination}" if key.destination else "")
        name += " (delegated)" if key.delegated else ""
        count = f" ({changes.checks:,} times)" if changes.checks > 1 else ""
        line = Text(f"      {visible(name)}{count}")
        line.append(f"  {_why(key.before)} -> {_why(key.after)}", "dim")
        yield line
    more = sum(changes.checks for _, changes in objects[MAX_OBJECTS:]) + group.objects.other
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
    """Yield the counts of an audit, and everything that gave no check."""
    if reading.files:
        yield Text()
        read = (
            f"read {_checks(reading.checks)} of {plural(reading.records, 'record')} in {plural(reading.files, 'file')}"
        )
        counts = (("listing", reading.listings), ("row filter", reading.row_filters))
        skipped = [plural(count, noun) for noun, count in counts if count]
        yield Text(read + (f", {' and '.join(skipped)} skipped" if skipped else ""))
    if reading.filtered:
        yield Text(f"outside the filter: {_checks(reading.filtered)}")
    if reading.rejected:
        yield Text(f"no check then either: {reading.rejected:,}")
    if reading.left_out:
        yield Text(
            f"permits without a record, by sampling: {reading.left_out:,}; who loses access may be missing here",
            "yellow",
        )
    for place in reading.torn:
        yield Text(f"torn last line, skipped: {visible(place)}", "yellow")
    for why, count in sorted(reading.skipped.items()):
        yield Text(f"skipped {count:,}: {visible(why)}, first at {visible(reading.first[why])}", "yellow")


def _checks(count: int) -> str:
    return plural(count, "check")
