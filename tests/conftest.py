"""Settings of the test run itself."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# machines are shared: how long an example takes says nothing; CI judges a change by the same examples each time, and
# new ones are looked for wherever else the tests run
settings.register_profile(
    "pdp", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pdp")
