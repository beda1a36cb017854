"""Coverage of policies by tests: the points that tests can show, and the points that they have shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from pdp.engines.cel.rule_conditions import NEVER_TRUE

NOT_NEEDED: Final = "no check needs it"
UNREACHED: Final = frozenset({NEVER_TRUE, NOT_NEEDED})
"""First points of rules and of grants."""


class PolicyItem(msgspec.Struct, frozen=True):
    """Rule, forbid, grant, membership, row policy or mask. `text` tells items of one name and place apart."""

    kind: str
    name: str
    place: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.kind} {self.name}"


class UncoveredItem(msgspec.Struct, frozen=True):
    """Item with the points that no test shows."""

    kind: str
    name: str
    place: str
    missing: tuple[str, ...]

    def __str__(self) -> str:
        """Return one line. For an item that no test reaches at all, that point alone."""
        points = self.missing[:1] if self.missing[0] in UNREACHED else self.missing
        return f"{self.place}: {self.kind} {self.name}: {'; '.join(points)}"


class CoverageReport(msgspec.Struct, frozen=True):
    """Number of points, number of shown points, and the items with others."""

    points: int
    covered: int
    uncovered: tuple[UncoveredItem, ...]

    @property
    def percent(self) -> float:
        """Return the share of shown points, rounded down to a tenth; 0 without any points."""
        return int(1000 * self.covered / self.points) / 10 if self.points else 0.0

    def as_object(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"percent": self.percent, **msgspec.to_builtins(self)}


class Coverage:
    """Points of all items so far."""

    def __init__(self) -> None:
        self._shown: dict[PolicyItem, dict[str, bool]] = {}

    def add(self, item: PolicyItem, points: Iterable[str]) -> bool:
        """Add an item with its points; tell whether the item is new."""
        is_new = item not in self._shown
        if is_new:
            self._shown[item] = dict.fromkeys(points, False)
        return is_new

    def is_open(self, item: PolicyItem) -> bool:
        """Tell whether a point of an item is not shown yet."""
        return not all(self._shown[item].values())

    def lacks(self, item: PolicyItem, point: str) -> bool:
        """Tell whether an item has a point that is not shown yet."""
        return self._shown[item].get(point) is False

    def show(self, item: PolicyItem, points: Iterable[str]) -> bool:
        """Note shown points of an item; tell whether one is new. Points that the item does not have are ignored."""
        found = self._shown[item]
        new = [point for point in points if found.get(point) is False]
        found.update(dict.fromkeys(new, True))
        return bool(new)

    def report(self) -> CoverageReport:
        """Return the report, with items in the order of their places."""
        shown: Sequence[bool] = [value for points in self._shown.values() for value in points.values()]
        uncovered = [
            UncoveredItem(item.kind, item.name, item.place, missing)
            for item, points in self._shown.items()
            if (missing := tuple(point for point, value in points.items() if not value))
        ]
        return CoverageReport(len(shown), sum(shown), tuple(uncovered))
