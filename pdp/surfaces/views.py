"""HTTP: loads through view chains and changes of views. Only maps."""

from __future__ import annotations

from pdp.model.checks import Caller
from pdp.surfaces.http import Endpoints, Routes
from pdp.views.codec import decode_change, decode_load, encode_change, encode_load
from pdp.views.loads import ViewSecurity


def view_routes(endpoints: Endpoints, views: ViewSecurity, max_body: int) -> Routes:
    """POST /v1/load and POST /v1/commit-view. `max_body` is in bytes."""

    async def load(body: bytes, caller: Caller) -> bytes:
        return encode_load(await views.load(decode_load(body), caller, "http"))

    async def change(body: bytes, caller: Caller) -> bytes:
        return encode_change(await views.change(decode_change(body), caller, "http"))

    return {
        ("POST", "/v1/load"): endpoints.route("http", load, max_body),
        ("POST", "/v1/commit-view"): endpoints.route("http", change, max_body),
    }
