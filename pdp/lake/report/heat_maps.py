"""Fields coloured by their numbers: hours of the week, and denials by principal and place. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pdp.lake.report.asking import ReportAnswer
from pdp.lake.report.texts import WIDTH, Box, Label, clip, number, plural

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
