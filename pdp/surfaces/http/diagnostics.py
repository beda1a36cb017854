"""HTTP for operators: liveness, readiness and metrics, on an address apart from decisions.

Liveness says that the event loop runs. Readiness says whether to send traffic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

from pdp.surfaces.http.handlers import Routes

RELOAD_FAILED: Final = "the last reload failed"
"""Beginning of the reason of a service that serves its last good policies: it is degraded."""


def diagnostics_routes(
    unready: Callable[[], Awaitable[Sequence[str]]],
    metrics: Callable[[], Awaitable[bytes]],
    details: Callable[[], Mapping[str, str]] = dict,
) -> Routes:
    """Return the routes of the diagnostics API. `unready` lists why the service is not ready; empty if ready.

    `details` has the condition of parts by name. Readiness does not rest on them.
    """

    async def live(request: web.BaseRequest) -> web.Response:
        return _json(200, {"status": "live"})

    async def ready(request: web.BaseRequest) -> web.Response:
        reasons = await unready()
        more = {"details": found} if (found := details()) else {}
        if reasons:
            degraded = all(reason.startswith(RELOAD_FAILED) for reason in reasons)
            return _json(503, {"status": "degraded" if degraded else "not ready", "reasons": reasons, **more})
        return _json(200, {"status": "ready", **more})

    async def show_metrics(request: web.BaseRequest) -> web.Response:
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(body=await metrics(), headers={"Content-Type": content_type})

    return {("GET", "/health/live"): live, ("GET", "/health/ready"): ready, ("GET", "/metrics"): show_metrics}


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
