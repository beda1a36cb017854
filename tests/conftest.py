"""Settings of the test run itself."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# machines are shared: how long an example takes says nothing
settings.register_profile("pdp", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pdp")
