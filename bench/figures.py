"""Figures of the comparison with their goals, and the table of docs/performance.md that holds them.

The markdown table is the only place of the committed figures: the benchmarks read it back to compare.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

PAGE: Final = Path(__file__).parent.parent / "docs" / "performance.md"
HEAD: Final = ("figure", "ours", "peer", "unit", "ours / peer", "goal")
WORSE: Final = 1.1
"""A ratio that is this many times the committed one counts as worse."""


Pair: TypeAlias = tuple[float, float]
"""The same measure of our service and of the peer."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: the same measure of our service and of a peer. Less is better.

    The goal is empty, a limit of the ratio (`<= 0.5`), or a limit of ours with the unit (`<= 150 MB`).
    """

    name: str
    ours: float
    peer: float
    unit: str
    goal: str = ""

    @property
    def ratio(self) -> float:
        """Our measure divided by the peer's."""
        return self.ours / self.peer

    @property
    def met(self) -> bool:
        """True if the goal is met, or if there is none."""
        if not self.goal:
            return True
        limit, _, unit = self.goal.removeprefix("<= ").partition(" ")
        return (self.ours if unit else self.ratio) <= float(limit)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row."""
        return self.name, short(self.ours), short(self.peer), self.unit, short(self.ratio), self.goal


def short(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:,.0f}".replace(",", "") if value >= 100 else f"{value:#.3g}".rstrip(".")


def read_table(text: str) -> dict[str, Figure]:
    """Return the figures of the table on a page, by name. A page without the table has none."""
    found: dict[str, Figure] = {}
    for cells in _rows(text):
        name, ours, peer, unit, _, goal = cells
        found[name] = Figure(name, float(ours), float(peer), unit, goal)
    return found


def replace_table(text: str, figures: Iterable[Figure], place: str, measured: str) -> str:
    """Return a page with other figures, and with the line `- place: measured` that says when and on which machine.

    Rows of figures that were not measured stay; new rows come last.
    """
    lines = [f"- {place}: {measured}" if line.startswith(f"- {place}: ") else line for line in text.splitlines()]
    first = lines.index(_line(HEAD))
    last = next((at for at in range(first, len(lines)) if not lines[at].startswith("|")), len(lines))
    rows = read_table(text) | {figure.name: figure for figure in figures}
    table = [_line(HEAD), _line(("---", "---:", "---:", "---", "---:", "---"))]
    table += [_line(figure.cells()) for figure in rows.values()]
    return "\n".join([*lines[:first], *table, *lines[last:]]) + "\n"


def middle_pair(pairs: Sequence[Pair]) -> Pair:
    """Return the pair with the median ratio; of an even number, the lower one of the two in the middle."""
    return sorted(pairs, key=lambda pair: pair[0] / pair[1])[(len(pairs) - 1) // 2]


def worse(now: Figure, committed: Figure | None) -> bool:
    """Tell whether the ratio got worse by more than a tenth."""
    return committed is not None and now.ratio > committed.ratio * WORSE


def report(figures: Sequence[Figure], committed: Mapping[str, Figure]) -> str:
    """Return the figures beside the committed ones, as a table in Markdown. Worse rows and missed goals are marked."""
    lines = [_line((*HEAD, "committed", "change", "")), _line(["---"] * (len(HEAD) + 3))]
    for figure in figures:
        before = committed.get(figure.name)
        change = f"{figure.ratio / before.ratio - 1:+.0%}" if before else "new"
        marks = [mark for mark, shown in (("WORSE", worse(figure, before)), ("misses goal", not figure.met)) if shown]
        lines.append(_line((*figure.cells(), short(before.ratio) if before else "", change, ", ".join(marks))))
    return "\n".join(lines)


def commit(figures: Iterable[Figure], place: str, machine: str) -> None:
    """Write figures to the page. The place is the line that tells the date, the machine and the versions."""
    today = datetime.now(UTC).date()
    text = f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}, {machine}"
    PAGE.write_text(replace_table(PAGE.read_text(), figures, place, text))


def middle(runs: Iterable[Sequence[Figure]]) -> list[Figure]:
    """Return the row with the median ratio of each figure in several runs of the same figures."""
    return [sorted(same, key=lambda one: one.ratio)[len(same) // 2] for same in zip(*runs, strict=True)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rows(text: str) -> Iterable[list[str]]:
    lines = iter(text.splitlines())
    if _line(HEAD) not in lines:
        return
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]
