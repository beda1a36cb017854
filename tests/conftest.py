"""Settings of the test run itself."""

from __future__ import annotations

import os

import pytest
import structlog
from hypothesis import HealthCheck, settings

# machines are shared: how long an example takes says nothing; CI judges a change by the same examples each time, and
# new ones are looked for wherever else the tests run
settings.register_profile(
    "pdp", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pdp")


@pytest.fixture(autouse=True)
def default_logging() -> None:
    """Log as at the start: a command that an earlier test ran in this process configures logging for all."""
    structlog.reset_defaults()
