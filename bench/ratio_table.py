"""Tables of the benchmarks of grants: our figures, those of OpenFGA, and the ratio."""

from __future__ import annotations


def heading(title: str) -> None:
    """Print the title and the heads of the columns."""
    print(f"{title}\n  {'':<66} {'ours':>10} {'':<8} {'OpenFGA':>10} {'ratio':>10}")


def row(label: str, ours: float, theirs: float | None, unit: str, goal: str = "") -> None:
    """Print one line. The ratio tells how many times better ours is: low times are good, high rates are good."""
    line = f"  {label:<66} {ours:>10,.2f} {unit:<8}"
    if theirs is not None:
        ratio = ours / theirs if unit == "checks/s" else theirs / ours
        line += f" {theirs:>10,.1f} {ratio:>9,.1f}x"
    print(f"{line:<109} {goal}".rstrip(), flush=True)
