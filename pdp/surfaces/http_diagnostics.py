"""HTTP for operators: liveness, readiness and metrics, on an address apart from decisions.

Liveness says that the event loop runs. Readiness says whether to send traffic.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from pdp.surfaces.http_handlers import Routes
from pdp.telemetry import Telemetry


def diagnostics_routes(telemetry: Telemetry, unready: Callable[[], list[str]]) -> Routes:
    """Return the routes of the diagnostics API. `unready` lists why the service is not ready; empty if ready."""

    async def live(request: web.BaseRequest) -> web.Response:
        return _json(200, {"status": "live"})

    async def ready(request: web.BaseRequest) -> web.Response:
        reasons = unready()
        telemetry.ready.set(0 if reasons else 1)
        if reasons:
            return _json(503, {"status": "not ready", "reasons": reasons})
        return _json(200, {"status": "ready"})

    async def metrics(request: web.BaseRequest) -> web.Response:
        telemetry.ready.set(0 if unready() else 1)
        return web.Response(body=telemetry.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return {("GET", "/health/live"): live, ("GET", "/health/ready"): ready, ("GET", "/metrics"): metrics}


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
