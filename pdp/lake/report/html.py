"""Page of a report: one HTML file without scripts, which needs no network. Pure: a report becomes a text.

The templates escape every text (`autoescape`), after `texts.show` has made control characters visible. A policy in the
page itself forbids scripts, requests and all styles but its own.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from pdp.lake.report.asking import Report
from pdp.lake.report.bars import Part, Spark, bar_table, day_chart, spark_line
from pdp.lake.report.findings import find
from pdp.lake.report.flows import flow_chart
from pdp.lake.report.heat_maps import denial_matrix, hour_map
from pdp.lake.report.texts import ShortNames, day, duration, moment, name_parts, number, plural, share, show

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
