"""Drawings of the page as places: bars, small lines, permits and denials by day, and delegated access.

Ribbons of delegated access go from readers over views and the owners of the rights to tables. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple

from pdp.lake.report.report import ReportAnswer
from pdp.lake.report.texts import WIDTH, Box, Label, ShortNames, Tick, clip, day, moment, number, plural


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


_MOST: Final = 9
"""Names of a column. All others are one node."""
_OTHERS: Final = "others"
_HEADS: Final = (("Reader", "", "strong"), ("View", "view", "strong middle"), ("Rights of", "owner", "strong middle"),
                 ("Table", "object", "strong end"))  # fmt: skip
_TOP: Final = 28.0
_GAP: Final = 9.0
_THICK: Final = 12.0


class Ribbon(NamedTuple):
    """Path between two nodes."""

    path: str
    style: str
    title: str


class FlowNode(NamedTuple):
    """Name in a column, as high as its number of loads."""

    x: float
    y: float
    width: float
    height: float
    style: str
    title: str
    text: str
    text_x: float
    text_y: float
    anchor: str


class Head(NamedTuple):
    """Heading of a column."""

    x: float
    text: str
    style: str


class FlowChart(NamedTuple):
    """Columns of nodes with ribbons in between."""

    about: str
    width: int
    height: int
    heads: tuple[Head, ...]
    nodes: tuple[FlowNode, ...]
    ribbons: tuple[Ribbon, ...]


class _Flow(NamedTuple):
    """Loads along one way, by outcome."""

    stops: tuple[str, ...]
    loads: int
    denied: bool


def flow_chart(answer: ReportAnswer, names: ShortNames) -> FlowChart | None:
    """Return the drawing of delegated access; None if there was none."""
    flows = _flows(answer)
    total = sum(flow.loads for flow in flows)
    if not total:
        return None
    columns = [_column(flows, at) for at in range(4)]
    height = _TOP + max(max(len(column) for column in columns) * 30, 150)
    scale = min((height - _TOP - _GAP * (len(column) - 1)) / total for column in columns)
    xs = [130.0, 400.0, 600.0, WIDTH - 190.0]
    places = [_places(column, scale, height) for column in columns]
    shorts: Sequence[Callable[[str], str]] = (
        names.principal, _last_parts, names.principal,
        names.object,
    )  # fmt: skip
    nodes = [
        _node(at, xs[at], places[at][name], clip(name if name == _OTHERS else shorts[at](name), (17, 30, 17, 25)[at]),
              f"{name}: {plural(loads, 'load')}")
        for at, column in enumerate(columns) for name, loads in column.items()
    ]  # fmt: skip
    heads = tuple(
        Head(x + (0 if at == 0 else _THICK / 2), text, style.replace("end", "").strip())
        for at, (x, (text, _, style)) in enumerate(zip(xs, _HEADS, strict=True))
    )
    return FlowChart(
        _about_flows(answer, total), WIDTH, int(height + 10), heads, tuple(nodes), _ribbons(flows, places, xs, scale)
    )


def _last_parts(chain: str) -> str:
    """Return a chain of views by their last names alone."""
    return " → ".join(view.rpartition("/")[2] for view in chain.split(" → "))


def _about_flows(answer: ReportAnswer, total: int) -> str:
    records = answer.records()
    readers, owners = ({row[name] for row in records} for name in ("reader", "owner"))
    denied = sum(row["denied"] for row in records)
    people = f"{plural(len(readers), 'reader')}, with the rights of {plural(len(owners), 'owner')}"
    text = f"{plural(total, 'load')} by {people}."
    return text + (f" {number(denied)} of these were denied: a right was missing behind the view." if denied else "")


def _flows(answer: ReportAnswer) -> list[_Flow]:
    """Return the ways of loads; names that are not among the most frequent of their column become others."""
    rows = [
        (
            (str(row["reader"]), str(row["views"]), str(row["owner"]), str(row["object"])),
            int(row["loads"]),
            int(row["denied"]),
        )
        for row in answer.records()
    ]
    kept: list[set[str]] = []
    for at in range(4):
        sums: dict[str, int] = {}
        for stops, loads, denied in rows:
            sums[stops[at]] = sums.get(stops[at], 0) + loads + denied
        kept.append(set(sorted(sums, key=lambda name: (-sums[name], name))[:_MOST]))
    ways: dict[tuple[tuple[str, ...], bool], int] = {}
    for stops, loads, denied in rows:
        way = tuple(name if name in kept[at] else _OTHERS for at, name in enumerate(stops))
        for count, refused in ((loads, False), (denied, True)):
            if count:
                ways[way, refused] = ways.get((way, refused), 0) + count
    found = [_Flow(stops, loads, denied) for (stops, denied), loads in ways.items()]
    return sorted(found, key=lambda flow: (flow.denied, -flow.loads, flow.stops))


def _column(flows: Sequence[_Flow], at: int) -> dict[str, int]:
    """Return the names of a column with their loads: the largest first, others last."""
    sums: dict[str, int] = {}
    for flow in flows:
        sums[flow.stops[at]] = sums.get(flow.stops[at], 0) + flow.loads
    return dict(sorted(sums.items(), key=lambda item: (item[0] == _OTHERS, -item[1], item[0])))


def _places(column: dict[str, int], scale: float, height: float) -> dict[str, tuple[float, float]]:
    """Return top and height of each node; the column stands in the middle."""
    used = sum(column.values()) * scale + _GAP * (len(column) - 1)
    y, found = _TOP + (height - _TOP - used) / 2, {}
    for name, loads in column.items():
        found[name] = (y, loads * scale)
        y += loads * scale + _GAP
    return found


def _node(at: int, x: float, place: tuple[float, float], text: str, title: str) -> FlowNode:
    y, high = place
    middle = round(y + high / 2 + 4, 1)
    left = at == 0
    return FlowNode(
        x, round(y, 1), _THICK, round(max(high, 1.5), 1), _HEADS[at][1], title, text,
        x - 8 if left else x + _THICK + 8, middle, "end" if left else "",
    )  # fmt: skip


def _ribbons(
    flows: Sequence[_Flow], places: Sequence[dict[str, tuple[float, float]]], xs: Sequence[float], scale: float
) -> tuple[Ribbon, ...]:
    """Return the ribbons between neighbouring columns, stacked in each node in the order of the flows."""
    found = []
    for at in range(3):
        after = {name: place[0] for name, place in places[at].items()}
        before = {name: place[0] for name, place in places[at + 1].items()}
        order = sorted(flows, key=lambda flow: (places[at + 1][flow.stops[at + 1]][0], flow.denied))
        starts: dict[int, float] = {}
        for flow in order:
            starts[id(flow)] = after[flow.stops[at]]
            after[flow.stops[at]] += flow.loads * scale
        for flow in sorted(flows, key=lambda flow: (places[at][flow.stops[at]][0], flow.denied)):
            start, end, high = starts[id(flow)], before[flow.stops[at + 1]], flow.loads * scale
            before[flow.stops[at + 1]] += high
            path = _band(xs[at] + _THICK, start, xs[at + 1], end, high)
            outcome = "denied" if flow.denied else "permitted"
            title = f"{' → '.join(flow.stops)}: {plural(flow.loads, 'load')} {outcome}"
            found.append(Ribbon(path, "bad-flow" if flow.denied else "", title))
    return tuple(found)


def _band(x1: float, y1: float, x2: float, y2: float, high: float) -> str:
    middle = (x1 + x2) / 2
    return (
        f"M{x1:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        f"L{x2:.1f} {y2 + high:.1f}C{middle:.1f} {y2 + high:.1f} {middle:.1f} {y1 + high:.1f} {x1:.1f} {y1 + high:.1f}Z"
    )
