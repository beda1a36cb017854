"""Drawing of delegated access: ribbons from readers over views and the owners of the rights to tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pdp.lake.report.asking import ReportAnswer
from pdp.lake.report.texts import WIDTH, ShortNames, clip, number, plural

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
        _about(answer, total), WIDTH, int(height + 10), heads, tuple(nodes), _ribbons(flows, places, xs, scale)
    )


def _last_parts(chain: str) -> str:
    """Return a chain of views by their last names alone."""
    return " → ".join(view.rpartition("/")[2] for view in chain.split(" → "))


def _about(answer: ReportAnswer, total: int) -> str:
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
