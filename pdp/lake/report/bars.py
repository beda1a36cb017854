"""Charts of bars, small lines, and permits and denials by day, as places in a drawing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from pdp.lake.report.asking import ReportAnswer
from pdp.lake.report.texts import WIDTH, Box, Label, Tick, clip, day, moment, number, plural


class Part(NamedTuple):
    """Column of numbers that a bar shows."""

    name: str
    title: str
    style: str


class BarRow(NamedTuple):
    """Row of a table with bars."""

    name: str
    short: str
    values: tuple[int, ...]
    extras: tuple[str, ...]
    bars: tuple[Box, ...]
    is_rest: bool = False


class BarTable(NamedTuple):
    """Table with a bar in each row."""

    heading: str
    parts: tuple[Part, ...]
    extras: tuple[str, ...]
    rows: tuple[BarRow, ...]


class Spark(NamedTuple):
    """Line of small numbers in a field of 100 by 30, and the area below."""

    line: str
    area: str


def bar_table(
    answer: ReportAnswer,
    heading: str,
    parts: Sequence[Part],
    short: Callable[[str], str],
    extras: Mapping[str, Callable[[Mapping[str, Any]], str]] | None = None,
    most: int = 14,
) -> BarTable:
    """Return a table with bars; the first column of the answer names the rows."""
    records, key = answer.records(), answer.columns[0].name
    shown = records[:most]
    values = [tuple(int(row[part.name] or 0) for part in parts) for row in shown]
    widest = max(map(sum, values), default=0) or 1
    extra = extras or {}
    rows = [
        BarRow(str(row[key]), clip(short(str(row[key])), 40), each, tuple(show(row) for show in extra.values()),
               _bars(each, parts, widest))
        for row, each in zip(shown, values, strict=True)
    ]  # fmt: skip
    left = answer.after(most)
    if left.rows:
        sums = tuple(left.sums.get(part.name, 0) for part in parts)
        rows.append(BarRow("", f"{number(left.rows)} more", sums, ("",) * len(extra), (), is_rest=True))
    return BarTable(heading, tuple(parts), tuple(extra), tuple(rows))


def _bars(values: Sequence[int], parts: Sequence[Part], widest: int) -> tuple[Box, ...]:
    boxes, x = [], 0.0
    for value, part in zip(values, parts, strict=True):
        width = max(100 * value / widest, 0.4) if value else 0
        if width:
            boxes.append(Box(round(x, 2), 0, round(width, 2), 10, part.style))
        x += width
    return tuple(boxes)


def spark_line(values: Sequence[float]) -> Spark | None:
    """Return a line of small numbers; None for fewer than three."""
    if len(values) < 3:
        return None
    most = max(values) or 1
    points = [(100 * at / (len(values) - 1), 28 - 25 * value / most) for at, value in enumerate(values)]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return Spark(line, f"{line}L100 30L0 30Z")


class DayChart(NamedTuple):
    """Columns of permits and of denials, day by day, in two panels with scales of their own."""

    about: str
    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    columns: tuple[Box, ...]
    ticks: tuple[Tick, ...]
    labels: tuple[Label, ...]
    names: tuple[Label, ...]
    weekends: tuple[Box, ...]
    marks: tuple[Box, ...]


def day_chart(answer: ReportAnswer, changes: ReportAnswer | None) -> DayChart:
    """Return the chart of permits and denials by day, with marks where policies or grants changed."""
    rows = {row["day"]: row for row in answer.records()}
    first, last = min(rows), max(rows)
    first = max(first, last - timedelta(days=365))
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    left, right, panels = 64.0, WIDTH - 8.0, ((34.0, 214.0), (250.0, 320.0))
    step = (right - left) / len(days)
    width = max(step * 0.74, 1.0)
    columns: list[Box] = []
    ticks: list[Tick] = []
    for (name, style, noun), (top, bottom) in zip(
        (("allowed", "permit", "permit"), ("denied", "deny", "denial")), panels, strict=True
    ):
        values = [int(rows[each][name] or 0) if each in rows else 0 for each in days]
        most = _round_up(max(values))
        ticks += [
            Tick(round(bottom - (bottom - top) * part, 1), number(most * part))
            for part in ((0, 0.5, 1) if top < 100 else (0, 1))
        ]
        for at, (each, value) in enumerate(zip(days, values, strict=True)):
            high = round(max((bottom - top) * value / most, 1.5), 1) if value else 0
            if high:
                x = round(left + at * step + (step - width) / 2, 1)
                columns.append(
                    Box(x, round(bottom - high, 1), round(width, 1), high, style, f"{day(each)}: {plural(value, noun)}")
                )
    weekends = [
        Box(round(left + at * step, 1), 0, round(step, 1), 0) for at, each in enumerate(days) if each.weekday() > 4
    ]
    every = max(round(len(days) / 11), 1)
    labels = [
        Label(round(left + (at + 0.5) * step, 1), 340, day(each)[:-5])
        for at, each in enumerate(days)
        if at % every == 0
    ]
    names = (Label(left, panels[0][0] - 20, "Permits"), Label(left, panels[1][0] - 12, "Denials"))
    return DayChart(
        _about_days(answer), WIDTH, 350, left, right, panels[0][0], panels[1][1], tuple(columns), tuple(ticks),
        tuple(labels), names, tuple(weekends) if len(days) < 100 else (), _marks(changes, first, left, step),
    )  # fmt: skip


def _about_days(answer: ReportAnswer) -> str:
    records = answer.records()
    busiest = max(records, key=lambda row: row["allowed"])
    worst = max(records, key=lambda row: row["denied"])
    text = f"Most permits on {day(busiest['day'])}: {number(busiest['allowed'])}."
    return text + (f" Most denials on {day(worst['day'])}: {number(worst['denied'])}." if worst["denied"] else "")


def _marks(changes: ReportAnswer | None, first: date, left: float, step: float) -> tuple[Box, ...]:
    """Return a mark for each day with changes after the first day."""
    by_day: dict[date, list[str]] = {}
    for row in changes.records() if changes else ():
        if isinstance(row["time"], datetime) and row["time"].date() > first:
            by_day.setdefault(row["time"].date(), []).append(f"{moment(row['time'])}: {row['change']}")
    return tuple(
        Box(round(left + ((each - first).days + 0.5) * step, 1), 0, 0, 0, "", "; ".join(texts[:5]))
        for each, texts in sorted(by_day.items())
    )


def _round_up(most: int) -> int:
    """Return a round number for the top of a scale."""
    size = 10 ** (len(str(max(most, 1))) - 1)
    return next(
        (
            size * part // 2
            for part in (2, 3, 4, 5, 6, 8, 10, 12, 15, 20)
            if size * part // 2 >= most and size * part % 2 == 0
        ),
        most,
    )
