"""A service with one view whose owner differs from its reader, and requests for loads through the view."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

OWNER = "trino.run-as-owner"
ENGINES = {"trino": {"type": "trino", "owner_property": OWNER, "identities": {"oidc": {"audiences": ["trino"]}}}}
WORLD: dict[str, Any] = {
    "objects": [],
    "grants": [
        {"principal": "user:oidc~alice", "privilege": "select", "object": "view:lake/ns/v"},
        {"principal": "user:oidc~bob", "privilege": "select", "object": "table:lake/ns/t"},
    ],
}
LOAD: dict[str, Any] = {
    "principal": "user:oidc~alice",
    "action": "loadTable",
    "target": "table:lake/ns/t",
    "referencedBy": "ns%1Fv",
    "views": [{"resource": "view:lake/ns/v", "properties": {OWNER: "bob"}}],
    "caller": {"idp": "oidc", "subject": "svc", "audiences": ["trino"]},
}


@asynccontextmanager
async def load_client(folder: Path, **config: Any) -> AsyncIterator[HttpClient]:
    """Start a service on WORLD that trusts ENGINES, and yield a client of it."""
    (folder / "world.json").write_text(json.dumps(WORLD))
    usual = {
        "trusted_engines": ENGINES,
        "store": {"url": "file:world.json"},
        "authorities": {"default": {"engines": ["grants"]}},
    }
    async with client_of(settings_of({**usual, **config}, folder)) as client:
        yield client
