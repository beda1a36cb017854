"""Month of a demonstration: the same for the same seed, in order, with working hours and the planted events."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime

import pytest

from pdp.lake.demo.company import Company, read_company
from pdp.lake.demo.month import CONTRACTOR, CONTRACTOR_LEAVES, DAYS, MonthPlan, PlayedRequest, month

FIRST = date(2026, 10, 1)


@pytest.fixture(scope="module")
def company() -> Company:
    return read_company()


@pytest.fixture(scope="module")
def steps(company: Company) -> list[PlayedRequest]:
    return month(company, MonthPlan(FIRST))


def users(steps: list[PlayedRequest]) -> Counter[str]:
    """Queries of Trino by user."""
    found: Counter[str] = Counter()
    for step in steps:
        if step.path == "/v1/data/trino/allow":
            found[json.loads(step.body)["input"]["context"]["identity"]["user"]] += 1
    return found


def test_a_seed_and_a_first_day_give_one_month(company: Company, steps: list[PlayedRequest]) -> None:
    assert month(company, MonthPlan(FIRST)) == steps
    assert month(company, MonthPlan(FIRST, seed=21)) != steps
    assert month(company, MonthPlan(date(2026, 3, 1))) != steps


@pytest.mark.parametrize("first", [FIRST, date(2024, 2, 29), date(2025, 12, 15)])
def test_a_month_is_in_order_and_within_its_days(company: Company, first: date) -> None:
    plan = MonthPlan(first)
    times = [step.time for step in month(company, plan)]
    assert times == sorted(times)
    assert plan.at(0, 0) <= times[0]
    assert times[-1] < plan.at(DAYS, 0.1)


def test_people_work_on_working_days(steps: list[PlayedRequest]) -> None:
    queries = [datetime.fromtimestamp(step.time, UTC) for step in steps if step.path == "/v1/data/trino/allow"]
    at_weekends = sum(time.weekday() >= 5 for time in queries)
    by_day = sum(8 <= time.hour < 18 for time in queries)
    assert at_weekends / len(queries) < 0.05
    assert by_day / len(queries) > 0.8


def test_few_people_and_tables_have_most_of_the_work(company: Company, steps: list[PlayedRequest]) -> None:
    found = users(steps)
    analysts = [found[member] for member in company.teams["analyst"].members]
    assert analysts[0] > 2 * analysts[-1]
    assert found["olga"] == found["wren"] == 0


def test_the_contractor_tries_on_after_the_end(steps: list[PlayedRequest]) -> None:
    end = MonthPlan(FIRST).at(CONTRACTOR_LEAVES, 17.5)
    before = users([step for step in steps if step.time < end])[CONTRACTOR]
    after = users([step for step in steps if step.time > end])[CONTRACTOR]
    assert before > after > 10
    assert [step.path for step in steps if step.time == end] == ["/v1/grants"]


def test_a_share_makes_a_smaller_month(company: Company, steps: list[PlayedRequest]) -> None:
    small = month(company, MonthPlan(FIRST, share=0.1))
    assert sum(users(small).values()) < sum(users(steps).values()) / 5
    assert sum(not step.path for step in small) == 1
