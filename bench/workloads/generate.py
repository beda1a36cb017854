"""All workloads of a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from workloads.grant_checks import grant_checks
from workloads.single_checks import domain_path, many_rules, numbered_path, single_checks, twenty_rules
from workloads.trino_requests import trino_requests
from workloads.workload import Workload

RULES: Final = (10, 1000, 10_000)


def workloads(seed: int) -> Iterator[Workload]:
    """Yield the workloads in a fixed order: each takes its random numbers after the previous one."""
    random = Random(seed)
    yield single_checks("single", twenty_rules(random), random, domain_path)
    for count in RULES:
        yield single_checks(f"rules-{count}", many_rules(random, count), random, numbered_path)
    yield from trino_requests(random)
    yield from grant_checks(random)
