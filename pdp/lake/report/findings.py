"""Findings of a report: what somebody should look at, in words, with the evidence beside. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pdp.lake.report.report import Report
from pdp.lake.report.texts import ShortNames, day, moment, number, plural, share

Urgency: TypeAlias = Literal["act", "review", "know", "fine"]
LABELS: Final[dict[Urgency, str]] = {"act": "Act", "review": "Review", "know": "Good to know", "fine": "Fine"}
_OFTEN: Final = 5
"""Days on which the same denial is a habit."""
_NIGHT: Final = (20, 6)
"""Hours, in UTC, from and to which first access is worth a look."""


class AccessFinding(NamedTuple):
    """Finding with a place on the page that has its evidence."""

    urgency: Urgency
    title: str
    text: str
    anchor: str = ""
    link: str = ""

    @property
    def label(self) -> str:
        """Return the urgency in words."""
        return LABELS[self.urgency]


def find(report: Report, names: ShortNames) -> list[AccessFinding]:
    """Return the findings of a report, the most urgent first."""
    parts = (
        _removed,
        _raised,
        _stale,
        _habits,
        _night,
        _grants,
        _rules,
        _dormant,
        _forbidden,
        _delegated,
        _refused,
        _sampled,
        _candidate,
    )
    found = [finding for part in parts for finding in part(report, names)]
    order = list(LABELS)
    if not any(finding.urgency in ("act", "review") for finding in found):
        found.append(AccessFinding("fine", "Nothing needs a look", "No finding of this report asks for an action."))
    return sorted(found, key=lambda finding: order.index(finding.urgency))


def _removed(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    for row in report.records("after_removal")[:3]:
        name = names.principal(row["principal"])
        yield AccessFinding(
            "act",
            f"{name} went on trying after the end of rights",
            f"Denied {plural(row['denied'], 'time')} on {plural(row['objects'], 'object')}, last on "
            f"{moment(row['last_time'])}. Removed on {day(row['removed'])} by {names.principal(row['removed_by'])}: "
            f"{row['rights']}.",
            "removed",
            "See the attempts",
        )


def _raised(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    rules = [row for row in report.records("errors") if row["problem"] == "rule raised"]
    for row in rules[:2]:
        yield AccessFinding(
            "act",
            f"The rule {row['source']} raises",
            f"In {plural(row['count'], 'check')}, last on {moment(row['last_time'])} for {names.object(row['example'])}"
            ". A rule that raises permits nothing, and a forbid that raises denies.",
            "errors",
            "See the errors",
        )


def _stale(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    if report.total("stale"):
        yield AccessFinding(
            "act",
            "Grants were too old to permit anything",
            f"In {plural(report.total('stale'), 'request')} the store had not answered for too long.",
            "errors",
            "See the errors",
        )


def _habits(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    rows = [
        row for row in report.records("denials") if row["reason"] == "default_deny" and row["action"] != "get_metadata"
    ]
    by_right: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        by_right.setdefault((row["rights_of"] or row["principal"], row["object"], row["missing"]), []).append(row)
    often = [each for each in by_right.values() if max(row["days"] for row in each) >= _OFTEN]
    for each in sorted(often, key=lambda each: -sum(row["checks"] for row in each))[:3]:
        first = each[0]
        times = plural(sum(row["checks"] for row in each), "time")
        days = plural(max(row["days"] for row in each), "day")
        missing = f"{first['missing']} is missing" if first["missing"] else "no right permits this"
        if first["rights_of"]:
            title = f"A view of {names.principal(first['rights_of'])} is denied {names.object(first['object'])}"
            text = f"{times}, for {plural(len(each), 'reader')}: {missing} for the owner of the view."
        else:
            title = f"{names.principal(first['principal'])} is denied {names.object(first['object'])} again and again"
            text = f"{times} on {days}: {missing}. Grant it, or stop what asks."
        yield AccessFinding("review", title, text, "denied", "See the denials")


def _night(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    start, end = _NIGHT
    late = [
        row for row in report.records("first_access") if row["first_time"].hour >= start or row["first_time"].hour < end
    ]
    by_name: dict[str, list[str]] = {}
    for row in late:
        by_name.setdefault(row["principal"], []).append(f"{names.path(row['place'])} on {moment(row['first_time'])}")
    for name, places in list(by_name.items())[:2]:
        yield AccessFinding(
            "review",
            f"{names.principal(name)} looked at new places at night",
            f"For the first time: {', '.join(places[:3])} UTC.",
            "new",
            "See first-time access",
        )


def _grants(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    answer = report.answers.get("unused_grants")
    if answer and answer.rows:
        count = len(answer.rows) + answer.others
        broad = [
            f"{row['privilege']} on {row['object']} for {names.principal(row['principal'])}"
            for row in sorted(answer.records(), key=lambda row: (str(row["object"]).count("/"), str(row["object"])))
            if row["privilege"] not in ("assignee", "ownership")
        ]
        yield AccessFinding(
            "review",
            f"{plural(count, 'grant')} without use",
            f"In effect, and without a decision in {report.days} days. "
            f"The broadest: {'; '.join(broad[:3]) or 'memberships'}.",
            "grants",
            "See the grants",
        )


def _rules(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    answer = report.answers.get("unused_rules")
    if answer and answer.rows:
        rules = [str(row["rule"]) for row in answer.records()]
        yield AccessFinding(
            "review",
            f"{plural(len(rules) + answer.others, 'rule')} without use",
            f"No decision named {_some(rules, 4)} in {report.days} days.",
            "rules",
            "See the rules",
        )


def _dormant(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    answer = report.answers.get("dormant")
    if answer and answer.rows:
        people = [names.principal(row["principal"]) for row in answer.records()]
        yield AccessFinding(
            "review",
            f"{plural(len(people) + answer.others, 'principal')} with rights, but without requests",
            f"{_some(people, 6)}: not seen in {report.days} days.",
            "dormant",
            "See the principals",
        )


def _forbidden(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    rows = [row for row in report.records("denials") if str(row["reason"]).startswith("cel:")]
    if rows:
        rules = sorted({str(row["reason"]).removeprefix("cel:") for row in rows})
        people = {row["principal"] for row in rows}
        yield AccessFinding(
            "know",
            f"Rules that forbid stopped {plural(len(people), 'principal')}",
            f"{plural(sum(row['checks'] for row in rows), 'denial')} by {', '.join(rules[:4])}.",
            "denied",
            "See the denials",
        )


def _delegated(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    rows = report.records("delegated")
    if rows:
        owners = sorted({names.principal(row["owner"]) for row in rows})
        objects = {row["object"] for row in rows}
        yield AccessFinding(
            "know",
            f"{plural(len({row['reader'] for row in rows}), 'principal')} read with the rights of others",
            f"{plural(len(objects), 'table')} through views of {_some(owners, 4)}.",
            "views",
            "See who read what",
        )


def _refused(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    refused = report.total("refused")
    if refused:
        part = refused / (refused + report.total("requests"))
        yield AccessFinding(
            "review" if part > 0.01 else "know",
            f"{plural(refused, 'request')} refused as a whole",
            f"{share(part)} of all requests, before any decision.",
            "errors",
            "See the errors",
        )


def _sampled(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    if report.total("least_sampled") and report.total("least_sampled") < 1:
        yield AccessFinding(
            "know",
            "Some permits have no record",
            f"The service sampled permits: {number(report.total('left_out'))} requests have none. Numbers of permits "
            "are too low, and a right without use may be in use.",
        )


def _candidate(report: Report, names: ShortNames) -> Iterator[AccessFinding]:
    rows = report.records("candidate")
    if rows:
        counts = {kind: sum(row["checks"] for row in rows if row["kind"] == kind) for kind in ("gained", "lost")}
        yield AccessFinding(
            "know",
            f"A candidate would change {plural(sum(counts.values()), 'decision')}",
            f"{rows[0]['candidate']}: {plural(counts['lost'], 'permit')} lost, {number(counts['gained'])} gained.",
            "candidate",
            "See who gains and who loses",
        )


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (" and others" if len(names) > most else "")
