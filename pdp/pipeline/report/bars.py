"""Tables with bars, and lines of small numbers, as places in a drawing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pdp.pipeline.report.answers import ReportAnswer
from pdp.pipeline.report.shapes import Box
from pdp.pipeline.report.texts import clip, number


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
