"""Reports made by hand, with names of choice in every place of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pdp.lake.report.report import QUESTIONS, CellType, Report, ReportAnswer, ReportColumn, read_question

LAST = datetime(2026, 10, 31, 22, 15, tzinfo=UTC)
ALICE, BOB = "user:oidc~alice", "user:oidc~bob"
ORDERS = "table:lake/sales/orders"
COLUMNS: Mapping[str, str] = {
    "totals": "requests:n checks:n first_time:t last_time:t days:n left_out:n least_sampled:s median_us:n "
    "slowest_percent_us:n stale:n principals:n objects:n allowed:n denied:n hidden_in_lists:n delegated:n refused:n "
    "checks_with_errors:n",
    "days": "day:d requests:n allowed:n denied:n refused:n principals:n median_us:n slowest_percent_us:n",
    "hours": "weekday:n hour:n requests:n",
    "principals": "principal reads:n writes:n accesses:n allowed:n denied:n objects:n days:n first_time:t last_time:t",
    "roles": "role reads:n writes:n accesses:n allowed:n principals:n objects:n grants:n last_time:t",
    "objects": "object reads:n writes:n accesses:n denied:n principals:n last_week:n week_before:n last_time:t",
    "actions": "action kind allowed:n denied:n checks:n principals:n",
    "engines": "engine allowed:n denied:n checks:n reasons:n",
    "callers": "caller surface requests:n checks:n refused:n median_us:n slowest_percent_us:n last_time:t",
    "trusted_engines": "engine loads:n denied:n readers:n last_time:t",
    "denials": "principal rights_of action object reason missing raised checks:n days:n first_time:t last_time:t sample_id",
    "after_removal": "principal removed:t removed_by rights denied:n objects:n last_time:t",
    "delegated": "reader views owner object loads:n denied:n last_time:t sample_id",
    "unused_grants": "principal privilege object since:t last_used:t ever:n members:n active_members:n granted_by",
    "unused_rules": "rule effect text since:t last_used:t ever:n raised:n",
    "dormant": "principal last_time:t checks:n grants:n roles:n rights",
    "first_access": "principal place first_time:t object accesses:n objects:n reason",
    "errors": "problem source count:n days:n first_time:t last_time:t example",
    "changes": "time:t what actor change",
    "candidate": "kind principal action object checks:n last_time:t reason reason_after sample_id candidate",
}
"""Question -> the columns of its answer; a letter names the type, without one it is a text."""
TYPES: Mapping[str, CellType] = {"n": "number", "t": "time", "d": "day", "s": "share", "": "text"}


def columns_of(question: str) -> tuple[ReportColumn, ...]:
    """The columns that the page expects of an answer."""
    parts = (column.partition(":") for column in COLUMNS[question].split())
    return tuple(ReportColumn(name, TYPES[type]) for name, _, type in parts)


def answer(
    name: str, rows: Sequence[Sequence[Any]] = (), others: int = 0, rest: Mapping[str, int] | None = None
) -> ReportAnswer:
    """An answer with the title and the sums of its question."""
    question = read_question(name)
    cells = tuple(map(tuple, rows))
    return ReportAnswer(name, question.title, question.text, columns_of(name), cells, others, rest or {}, question.sums)


def report(principal: str = ALICE, object: str = ORDERS, text: str = "select on x", *, days: int = 31) -> Report:
    """A report with one row or more in every answer. `text` stands for every other text that comes from records."""
    calendar = [date(2026, 10, 31) - timedelta(days=number) for number in range(days)]
    totals = [9000, 12000, LAST - timedelta(days=days), LAST, days, 0, 1.0, 80, 400, 0, 3, 2, 8000, 90, 500, 40, 7, 12]
    rows: dict[str, list[list[Any]]] = {
        "totals": [totals],
        "days": [[day, 300, 250 + 9 * at, 3 + at % 5, 0, 3, 80, 400] for at, day in enumerate(calendar)],
        "hours": [[weekday, hour, weekday * hour] for weekday in range(1, 8) for hour in range(24)],
        "principals": [[principal, 50, 20, 70, 90, 3, 2, 20, LAST, LAST], [BOB, 5, 0, 5, 9, 0, 1, 2, LAST, LAST]],
        "roles": [[f"role:{text}", 50, 20, 70, 90, 2, 2, 1, LAST]],
        "objects": [[object, 40, 20, 60, 5, 2, 30, 20, LAST], ["table:lake/hr/people", 4, 0, 4, 0, 1, 3, 0, LAST]],
        "actions": [["read_data", "read", 50, 4, 54, 2], [text, "write", 10, 1, 11, 1]],
        "engines": [["grants", 60, 0, 60, 3], [text, 0, 5, 5, 1]],
        "callers": [[text, "http", 10, 20, 1, 80, 400, LAST]],
        "trusted_engines": [[text, 40, 1, 2, LAST]],
        "denials": [[principal, None, "read_data", object, "default_deny", "select", text, 60, 9, LAST, LAST, "1-2"],
                    [BOB, principal, "read_data", "table:lake/hr/people", "cel:closed", "none", "", 2, 1, LAST, LAST, text]],
        "after_removal": [[principal, LAST, BOB, text, 9, 2, LAST]],
        "delegated": [[principal, "lake/reports/v → lake/reports/w", BOB, object, 30, 2, LAST, "1-3"],
                      [BOB, text, principal, "table:lake/hr/people", 10, 0, LAST, "1-4"]],
        "unused_grants": [[principal, "select", object, LAST, None, 0, 1, 0, text]],
        "unused_rules": [[text, "permits", text, LAST, LAST, 4, 0]],
        "dormant": [[principal, None, None, 1, 0, text]],
        "first_access": [[principal, "lake/hr", LAST, object, 4, 1, text]],
        "errors": [["rule raised", text, 12, 2, LAST, LAST, object], ["request refused", "http x", 7, 2, LAST, LAST, text]],
        "changes": [[LAST - timedelta(days=2), "grant", principal, text]],
        "candidate": [["lost", principal, "read_data", object, 4, LAST, "cel:a", text, "1-5", text]],
    }  # fmt: skip
    answers = {name: answer(name, rows[name]) for name in (*QUESTIONS, "candidate")}
    return Report(f"/lakes/{text}", LAST - timedelta(days=days), LAST, 14, LAST, answers, text)


def empty_report() -> Report:
    """A report on a lake without records."""
    totals = [0, 0, None, None, 0, 0, None, None, None, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    answers = {name: answer(name, [totals] if name == "totals" else []) for name in QUESTIONS}
    return Report("/lakes/empty", None, None, 30, LAST, answers)
