"""Services that authenticate users, and requests with tokens and certificates over HTTP and gRPC."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
from google.protobuf.json_format import MessageToDict
from support.clients.grpc_messages import check_message
from support.clients.http_client import http_client
from support.clients.stubs import wire_grpc
from support.servers.idp import ISSUER, Provider, provider
from support.service.serving import serving, settings_of

from pdp.app.service import Service
from pdp.surfaces.wire import decision_pb2 as wire

ORDERS = "table:lake/sales/orders"
PEOPLE = "table:lake/hr/people"
WORLD = {
    "objects": [
        "project:p1",
        {"object": "warehouse:lake", "parent": "project:p1"},
        {"object": "role:analyst", "parent": "project:p1"},
        {"object": "role:auditor", "parent": "project:p1"},
    ],
    "grants": [
        {"principal": "user:oidc~alice", "privilege": "select", "object": ORDERS},
        {"principal": "user:oidc~bob", "privilege": "select", "object": "namespace:lake/sales"},
        {"principal": "user:oidc~carol", "privilege": "manage_grants", "object": "namespace:lake/sales"},
        {"principal": "user:oidc~carol", "privilege": "describe", "object": "namespace:lake/sales"},
        {"principal": "user:oidc~sam", "privilege": "admin", "object": "server"},
        {"principal": "role:analyst", "privilege": "select", "object": "namespace:lake/hr"},
        {"principal": "user:oidc~alice", "privilege": "assignee", "object": "role:auditor"},
        {"principal": "role:auditor", "privilege": "describe", "object": "namespace:lake/hr"},
    ],
}


def oidc(idp: Provider, **more: Any) -> dict[str, Any]:
    return {"issuer": ISSUER, "jwks": idp.url, "audiences": ["pdp"], "leeway_seconds": 0, **more}


@asynccontextmanager
async def service_of(folder: Path, idp: Any = None, **config: Any) -> AsyncIterator[Service]:
    """Start a service on WORLD; with a provider, the provider's tokens name users of `oidc`."""
    (folder / "world.json").write_text(json.dumps(WORLD))
    identity = dict(config.pop("identity", {}))
    if idp:
        identity.setdefault("providers", {"oidc": oidc(idp)})
    whole = {"store": {"url": "file:world.json"}, **config, "identity": identity}
    async with serving(settings_of(whole, folder)) as service:
        yield service


@asynccontextmanager
async def users(folder: Path, **config: Any) -> AsyncIterator[Service]:
    """Start a service with a provider of its own; no user may assert anything about others."""
    async with provider() as idp, service_of(folder, idp, **config) as service:
        yield service


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def post(
    service: Service, body: Any, path: str = "/v1/check", headers: Mapping[str, str] | None = None, **how: Any
) -> tuple[int, dict[str, str], Any]:
    """Post a body; return the status, the headers and the answer. `unix` uses the socket; `how` goes to aiohttp."""
    connector = aiohttp.UnixConnector(service.addresses["unix"]) if how.pop("unix", False) else None
    async with http_client(service, connector=connector) as client:
        response = await client.send("POST", path, body, headers, **how)
    return response.status, dict(response.headers), response.json()


async def ask(service: Service, token: str | None, *checks: Any, **more: Any) -> list[dict[str, Any]]:
    """Return decisions over HTTP; gRPC must answer the same."""
    status, _, reply = await post(service, {"checks": checks, **more}, headers=bearer(token) if token else {})
    assert status == 200, reply
    decisions: list[dict[str, Any]] = reply["decisions"]
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    async with grpc.aio.insecure_channel(service.addresses["grpc"]) as channel:
        request = wire.CheckRequest(checks=map(check_message, checks), explain=more.get("explain", False))
        response = await stub(channel).Check(request, timeout=20, metadata=metadata)
    for one, other in zip(decisions, map(MessageToDict, response.decisions), strict=True):
        assert (one["allowed"], one["by"]) == (other.get("allowed", False), other["by"])
        assert one.get("error") == other.get("error")
        assert ("trace" in one) == ("trace" in other)
    return decisions


def stub(channel: grpc.aio.Channel) -> Any:
    return wire_grpc.DecisionServiceStub(channel)


async def refused_by_grpc(service: Service, **call: Any) -> tuple[str, str]:
    """Return the code and the details of a call that must fail."""
    channel = call.pop("channel", None) or grpc.aio.insecure_channel(service.addresses["grpc"])
    try:
        await stub(channel).Check(wire.CheckRequest(), timeout=20, **call)
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    finally:
        await channel.close()
    raise AssertionError("the call was taken")


async def diagnostics(service: Service, path: str) -> str:
    """Return a page of the diagnostics listener."""
    async with http_client(service) as client:
        return (await client.send("GET", path, listener="diagnostics")).text


def client_context(ca: Path, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    if certificate:
        context.load_cert_chain(*certificate)
    return context
