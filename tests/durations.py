"""Prints where the time of a test run went: `python tests/durations.py REPORT...`, with reports of `pytest --junitxml`.

First the slowest tests, then the sum of each folder.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

SLOWEST = 40


def read_seconds(reports: Iterable[str]) -> dict[tuple[str, str], float]:
    """Return the seconds of each test, its fixtures included, by module and name."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for report in reports:
        for case in ET.parse(report).iter("testcase"):
            if case.attrib["classname"]:  # a module that was skipped whole has none
                found[case.attrib["classname"], case.attrib["name"]] += float(case.attrib["time"])
    return found


def main(*reports: str) -> None:
    """Print both tables."""
    if missing := [report for report in reports if not Path(report).exists()]:
        raise SystemExit(f"no reports {', '.join(missing)}: run `make test` first")
    seconds = read_seconds(reports)
    slowest = sorted(seconds.items(), key=lambda item: -item[1])[:SLOWEST]
    folders: defaultdict[str, float] = defaultdict(float)
    for (module, _), took in seconds.items():
        folders[module.rpartition(".")[0]] += took
    print(f"{sum(seconds.values()):8.1f} s in {len(seconds):,} tests; the slowest {len(slowest)}:")
    for (module, name), took in slowest:
        print(f"{took:8.1f} s  {module.replace('.', '/')}.py::{name}")
    print("and the folders:")
    for folder, took in sorted(folders.items(), key=lambda item: -item[1]):
        count = sum(module.rpartition(".")[0] == folder for module, _ in seconds)
        print(f"{took:8.1f} s  {count:6,} tests  {folder.replace('.', '/')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
