"""Times that Spark returns, as PySpark makes them in the zone of this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest

from pdp.lake.replay.archive import utc_time, utc_value

TIMES = [
    datetime(2026, 1, 31, 23, 30, 0, 123456, UTC),
    # one local hour comes twice in Berlin, and one is left out
    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    datetime(2026, 3, 29, 1, 0, tzinfo=UTC),
]


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def collected_time(expected: datetime) -> datetime:
    """A time as `collect` gives it: without a zone, in that of this process."""
    return datetime.fromtimestamp(int(expected.timestamp())).replace(microsecond=expected.microsecond)  # noqa: DTZ006


@pytest.mark.spark
@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("expected", TIMES)
def test_spark_gives_local_times(expected: datetime) -> None:
    from pyspark.sql.types import TimestampType  # noqa: PLC0415  an extra

    micros = (expected - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    found = TimestampType().fromInternal(micros)
    assert (found, found.fold, found.tzinfo) == (collected_time(expected), collected_time(expected).fold, None)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("expected", TIMES)
def test_a_collected_time_is_the_time_in_the_table(expected: datetime) -> None:
    collected = collected_time(expected)
    for found in (utc_time(collected), utc_value(collected)):
        assert found == expected
        assert found.tzinfo is UTC


def test_other_values_stay() -> None:
    for value in (None, "x", 3, date(2026, 1, 31)):
        assert utc_value(value) is value
