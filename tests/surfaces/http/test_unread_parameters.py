"""Native endpoints refuse what they do not read: an `actor` in the wrong place must not make an operator's write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

from pdp.app import wiring
from pdp.surfaces.http.handlers import Routes
from pdp.surfaces.http.server import HttpServer

EVE = "user:oidc~eve"
POLICY = {"id": "p", "table": "table:lake/s/t", "grantees": ["allUsers"], "filter": "region = 'EU'"}
MASK = {"id": "m", "table": "table:lake/s/t", "grantees": ["allUsers"], "column": "c", "kind": "hash"}
ENTRY = "/v1/row-access-policies/p?table=table:lake/s/t"
READ_PARAMETERS = {("GET", path) for path in ("/v1/grants", "/v1/row-access-policies", "/v1/column-masks")} | {
    (method, f"{path}/*") for method in ("GET", "DELETE") for path in ("/v1/row-access-policies", "/v1/column-masks")
}


OF_OPA = ("/v1/data/", "/v1/policies")
"""Paths of OPA's REST API, which ignores unknown parameters."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[HttpClient, list[tuple[str, str]]]]:
    """Start one service; return its client and its native routes."""
    folder = tmp_path_factory.mktemp("served")
    found: list[tuple[str, str]] = []

    class Recording(HttpServer):
        def __init__(self, routes: Routes, *arguments: Any, **more: Any) -> None:
            found.extend(route for route in routes if route[1].startswith("/v1/") and not route[1].startswith(OF_OPA))
            super().__init__(routes, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "HttpServer", Recording)
        async with client_of(settings_of(config_of(folder), folder)) as client:
            assert (await client.send("POST", "/v1/objects", {"put": ["project:p", "table:lake/s/t"]})).status == 200
            assert (await client.send("POST", "/v1/row-access-policies", POLICY)).status == 200
            assert (await client.send("POST", "/v1/column-masks", MASK)).status == 200
            yield client, found


def config_of(folder: Path) -> dict[str, Any]:
    return {
        "warehouses": {"lake": {"project": "p"}},
        "store": {"url": f"sqlite:///{folder}/pdp.db"},
        "identity": {"callers": {"tests": {"loopback": True, "may_assert": ["principals"], "may_write": True}}},
        "audit": {"sinks": [{"file": f"{folder}/audit"}]},
    }


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["actor", "actingRole", "etag", "other", "Actor", ""])
async def test_every_route_refuses_parameters_that_it_does_not_read(
    served: tuple[HttpClient, list[tuple[str, str]]], name: str
) -> None:
    client, routes = served
    assert len(routes) >= 20
    for method, path in routes:
        if (method, path) in READ_PARAMETERS and name in ("actor", "actingRole", "etag"):
            continue
        body: Any = None if method in ("GET", "DELETE") else {}
        table = "table=table:lake/s/t&" if (method, path) in READ_PARAMETERS and path.endswith("*") else ""
        answer = await client.send(method, f"{path.replace('*', 'p')}?{table}{name}={EVE}", body)
        assert answer.status == 400, (method, path)
        assert f"unknown parameter `{name}`" in answer.text, (method, path, answer.text)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("write", [{"add": [{"principal": EVE, "privilege": "project_admin", "object": "project:p"}]}])
async def test_an_actor_in_the_query_writes_nothing(
    served: tuple[HttpClient, list[tuple[str, str]]], write: dict[str, Any]
) -> None:
    client, _ = served
    assert (await client.send("POST", "/v1/grants", write | {"actor": EVE})).status == 403
    assert (await client.send("POST", f"/v1/grants?actor={EVE}", write)).status == 400
    assert (await client.send("GET", f"/v1/grants?principal={EVE}")).json()["grants"] == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("body", [{"actor": EVE}, {"etag": "zzz"}, {}, b" ", b"x"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_entry_is_named_without_a_body(
    served: tuple[HttpClient, list[tuple[str, str]]], method: str, body: Any
) -> None:
    client, _ = served
    answer = await client.send(method, ENTRY, body)
    assert (answer.status, "takes no body" in answer.text) == (400, True)
    assert (await client.send("GET", ENTRY)).status == 200


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", f"{ENTRY}&etag=", None),
        ("DELETE", f"{ENTRY}&actor=", None),
        ("PUT", "/v1/row-access-policies/p", POLICY | {"etag": ""}),
        ("PUT", "/v1/column-masks/m", MASK | {"etag": ""}),
        ("GET", "/v1/grants?actor=", None),
        ("GET", "/v1/grants?actingRole=&object=table:lake/s/t", None),
        ("GET", "/v1/row-access-policies?table=", None),
        ("GET", "/v1/row-access-policies?actor=", None),
    ],
)
async def test_an_empty_value_is_not_an_absent_one(
    served: tuple[HttpClient, list[tuple[str, str]]], method: str, path: str, body: Any
) -> None:
    """An empty tag overwrote what others had written."""
    client, _ = served
    assert (await client.send(method, path, body)).status == 400
    assert (await client.send("GET", ENTRY)).json()["filter"] == "region = 'EU'"


@pytest.mark.asyncio(loop_scope="module")
async def test_the_first_page_may_have_an_empty_token(served: tuple[HttpClient, list[tuple[str, str]]]) -> None:
    client, _ = served
    assert (await client.send("GET", "/v1/grants?pageToken=&pageSize=5")).status == 200
