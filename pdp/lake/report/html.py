"""Page of a report: one HTML file without scripts, which needs no network. Pure: a report becomes a text.

The templates escape every text (`autoescape`), after `texts.show` has made control characters visible. A policy in the
page itself forbids scripts, requests and all styles but its own.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from pdp.lake.report.drawings import Part, Spark, bar_table, day_chart, flow_chart, spark_line
from pdp.lake.report.findings import find
from pdp.lake.report.report import Report, ReportAnswer
from pdp.lake.report.texts import (
    WIDTH,
    Box,
    Label,
    ShortNames,
    clip,
    day,
    duration,
    moment,
    name_parts,
    number,
    plural,
    share,
    show,
)

_WEEK: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_STEPS: Final = 5
"""Steps of colour of a heat map, beside that of zero."""


class HeatMap(NamedTuple):
    """Fields coloured by their numbers, with labels of rows and columns."""

    about: str
    width: int
    height: int
    boxes: tuple[Box, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]


def hour_map(answer: ReportAnswer) -> HeatMap:
    """Return the heat map of the hours of the week."""
    found = {(row["weekday"], row["hour"]): row["requests"] for row in answer.records()}
    most = max(found.values(), default=0)
    left, top, wide, high = 84.0, 24.0, 27.0, 27.0
    boxes = [
        Box(left + hour * wide, top + (weekday - 1) * high, wide, high, heat("h", count, most),
            f"{_WEEK[weekday - 1]}, {hour:02}:00 to {hour:02}:59: {plural(count, 'request')}")
        for weekday in range(1, 8) for hour in range(24) for count in [found.get((weekday, hour), 0)]
    ]  # fmt: skip
    rows = tuple(Label(left - 10, top + at * high + 18, name) for at, name in enumerate(_WEEK))
    columns = tuple(Label(left + (hour + 0.5) * wide, 17, f"{hour:02}") for hour in range(0, 24, 2))
    busiest = max(found, key=lambda at: found[at], default=None)
    about = "Requests by hour, in UTC."
    if busiest:
        night = sum(count for (_, hour), count in found.items() if hour < 6 or hour >= 20)
        about = (
            f"Busiest: {_WEEK[busiest[0] - 1]}, {busiest[1]:02}:00 UTC. "
            f"{100 * night / (sum(found.values()) or 1):.0f} % of all requests came between 20:00 and 06:00."
        )
    return HeatMap(about, int(left + 24 * wide + 4), int(top + 7 * high + 4), tuple(boxes), rows, columns)


def heat(prefix: str, value: int, most: int) -> str:
    """Return the class of the colour of a number: the root of its share, so that small numbers show."""
    if not value or not most:
        return f"{prefix}0"
    return f"{prefix}{max(1, min(_STEPS, round(_STEPS * (value / most) ** 0.5)))}"


def denial_matrix(
    denials: ReportAnswer, principal: Callable[[str], str], place: Callable[[str], str], most: tuple[int, int] = (12, 9)
) -> HeatMap | None:
    """Return the matrix of denials by principal and container; None without denials."""
    counts: dict[tuple[str, str], int] = {}
    for row in denials.records():
        where = str(row["object"]).partition(":")[2].rpartition("/")[0] or str(row["object"])
        key = str(row["principal"]), where
        counts[key] = counts.get(key, 0) + int(row["checks"])
    if not counts:
        return None
    who, where_ = (_most_denied(counts, at, bound) for at, bound in zip((0, 1), most, strict=True))
    top = max(counts.values())
    left, head, wide, high = 150.0, 26.0, min(110.0, (WIDTH - 158) / len(where_)), 28.0
    boxes = [
        Box(left + x * wide, head + y * high, wide, high, heat("d", count, top),
            f"{principal(name)}, {place(spot)}: {plural(count, 'denial')}", number(count) if count else "")
        for y, name in enumerate(who) for x, spot in enumerate(where_) for count in [counts.get((name, spot), 0)]
    ]  # fmt: skip
    rows = tuple(Label(left - 10, head + y * high + 19, clip(principal(name), 20)) for y, name in enumerate(who))
    columns = tuple(Label(left + (x + 0.5) * wide, 17, clip(place(spot), 16)) for x, spot in enumerate(where_))
    total = len({name for name, _ in counts})
    about = (
        f"The {len(who)} principals with the most denials, of {total}."
        if total > len(who)
        else "All principals with denials."
    )
    return HeatMap(
        about, int(left + len(where_) * wide + 4), int(head + len(who) * high + 4), tuple(boxes), rows, columns
    )


def _most_denied(counts: Mapping[tuple[str, str], int], at: int, most: int) -> list[str]:
    sums: dict[str, int] = {}
    for key, count in counts.items():
        sums[key[at]] = sums.get(key[at], 0) + count
    return sorted(sums, key=lambda name: (-sums[name], name))[:most]


_PARTS: Final = {
    "glance": "At a glance", "findings": "Findings", "activity": "Activity", "who": "Who", "what": "What",
    "views": "Through views", "denied": "Denied", "unused": "Without use", "candidate": "Candidate", "how": "How",
}  # fmt: skip
_READS: Final = Part("reads", "Reads", "permit")
_WRITES: Final = Part("writes", "Writes", "write")
_DENIED: Final = Part("denied", "Denials", "deny")
_ALLOWED: Final = Part("allowed", "Permits", "permit")


class Figure(NamedTuple):
    """Headline figure."""

    title: str
    value: str
    more: str
    style: str = ""
    spark: Spark | None = None


def render(report: Report) -> str:
    """Return the page of a report."""
    environment, style = _environment(), files(__package__).joinpath("page/style.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    values = {"report": report, "style": _Trusted(style), "style_hash": f"sha256-{digest}"}
    if report.first:
        values |= _contents(report)
    return environment.get_template("page.html.j2").render(values)


class _Trusted(str):
    """Text of this package that the page holds as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


@cache
def _environment() -> Environment:
    loader = PackageLoader("pdp.lake.report", "page")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_finalize)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters.update(number=number, moment=moment, day=day, share=share, parts=name_parts)
    return environment


def _finalize(value: Any) -> Any:
    return value if isinstance(value, _Trusted) else show(value)


def _contents(report: Report) -> dict[str, Any]:
    """Return the values of a page with decisions."""
    answers = report.answers
    names = _names(report)
    candidate = answers.get("candidate")
    return {
        "totals": report.records("totals")[0],
        "parts": [(id, title) for id, title in _PARTS.items() if id != "candidate" or candidate],
        "figures": _figures(report),
        "findings": find(report, names),
        "days": day_chart(answers["days"], answers.get("changes")),
        "hours": hour_map(answers["hours"]),
        "principals": bar_table(answers["principals"], "Principal", (_READS, _WRITES, _DENIED), names.principal),
        "roles": bar_table(
            answers["roles"], "Role", (_READS, _WRITES), lambda name: name.removeprefix("role:"),
            {"Principals": lambda row: number(row["principals"])},
        ),
        "objects": bar_table(
            answers["objects"], "Table or view", (_READS, _WRITES, _DENIED), names.object,
            {"Principals": lambda row: number(row["principals"]), "Last week": _trend}, 16,
        ),
        "flows": flow_chart(answers["delegated"], names),
        "matrix": denial_matrix(answers["denials"], names.principal, names.path),
        "engines": bar_table(answers["engines"], "Engine", (_ALLOWED, _DENIED), str),
        "actions": bar_table(answers["actions"], "Action", (_ALLOWED, _DENIED), str),
        "candidate": candidate,
    }  # fmt: skip


def _names(report: Report) -> ShortNames:
    principals = [str(row["principal"]) for row in report.records("principals")]
    objects = [str(row["object"]) for row in report.records("objects")]
    denied = [str(row["object"]) for row in report.records("denials") if "/" in str(row["object"])]
    return ShortNames(principals, [*objects, *denied])


def _figures(report: Report) -> list[Figure]:
    days = sorted(report.records("days"), key=lambda row: row["day"])
    total, requests = report.total, plural(report.total("requests"), "request")
    denied = total("denied") / (total("allowed") + total("denied") or 1)
    raised = plural(total("checks_with_errors"), "check")
    lines = [spark_line([row[name] for row in days]) for name in ("allowed", "denied", "principals")]
    slowest = duration(total("slowest_percent_us"))
    return [
        Figure("Permits", number(total("allowed")), f"in {requests}", "", lines[0]),
        Figure(
            "Denials", number(total("denied")), f"{share(denied)} of all decisions", "denied" * bool(denied), lines[1]
        ),
        Figure("Principals", number(total("principals")), f"on {plural(len(days), 'day')} with requests", "", lines[2]),
        Figure("Read through views", number(total("delegated")), "with the rights of their owners"),
        Figure("Time to decide", duration(total("median_us")), f"median; {slowest} for the slowest hundredth"),
        Figure("Refused requests", number(total("refused")), f"{raised} with a rule that raised"),
    ]


def _trend(row: Mapping[str, Any]) -> str:
    """Return the accesses of the last week with the change from the week before."""
    now, before = row["last_week"] or 0, row["week_before"] or 0
    if not before:
        return f"{number(now)} (new)" if now else "0"
    change = 100 * (now - before) / before
    return f"{number(now)} ({'+' if change >= 0.5 else ''}{change:.0f} %)"
