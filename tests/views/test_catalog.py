"""Views from an Iceberg REST catalog: Apache Iceberg's own server, and one that answers as no catalog should."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.clients.http_client import HttpClient
from support.oracles.audit_files import audit_records
from support.oracles.view_loads import ENGINES, LOAD, OWNER, WORLD, load_client
from support.servers.iceberg_rest import IcebergServer, iceberg_server
from support.service.commands import run_pdp

from pdp.audit.records.rows import requests
from pdp.config.warehouses import NAMESPACE_SEPARATOR, CatalogSettings
from pdp.errors import ConfigError, Unavailable
from pdp.model.question import Resource
from pdp.rewrite.iceberg.client import MAX_ANSWER_BYTES
from pdp.views.catalog import IcebergCatalog

pytestmark = pytest.mark.waits

VIEW = Resource("view", "lake", ("ns", "v"))


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergServer]:
    with iceberg_server(tmp_path_factory.mktemp("catalog")) as running:
        yield running


@asynccontextmanager
async def asking(folder: Path, uri: str, **rule: Any) -> AsyncIterator[HttpClient]:
    lake = {"catalog": {"uri": uri, "ttl_seconds": 0, "timeout_seconds": 1, **rule}}
    async with load_client(folder, warehouses={"lake": lake}) as asked:
        yield asked


NOT_BROUGHT = {key: value for key, value in LOAD.items() if key != "views"}


async def test_views_that_are_not_brought_are_read_from_the_catalog(iceberg: IcebergServer, tmp_path: Path) -> None:
    await iceberg.create_namespace("ns")
    await iceberg.create_view("ns", "v", {OWNER: "bob", "comment": "x"})
    async with asking(tmp_path, iceberg.uri) as asked:
        status, answer = await asked.post("/v1/load", NOT_BROUGHT)
        assert (status, answer["allowed"], answer["referencedByUsed"]) == (200, True, True)
        assert answer["steps"][-1]["as"] == "user:oidc~bob"
        # what a request brings is not read
        brought = await asked.post("/v1/load", LOAD | {"views": [{"resource": "view:lake/ns/v", "properties": {}}]})
        assert brought[1]["steps"][-1]["as"] == "user:oidc~alice"
        # a new owner is a new metadata file
        await iceberg.set_properties("ns/views/v", {OWNER: "carol"})
        status, answer = await asked.post("/v1/load", NOT_BROUGHT)
        assert (status, answer["allowed"], answer["steps"][-1]["as"]) == (200, False, "user:oidc~carol")
        # a view, or a namespace, that is not there
        for chain in ("ns%1Fgone", "gone%1Fv", "v", "ns%1Fv,ns%1Fgone"):
            status, answer = await asked.post("/v1/load", NOT_BROUGHT | {"referencedBy": chain})
            assert (status, answer["allowed"], answer["error"]["code"]) == (200, False, "NoSuchView"), chain
        # on a ref the catalog is not asked: it would answer for another
        status, answer = await asked.post("/v1/load", NOT_BROUGHT | {"target": "table:lake/ns/t@dev"})
        assert answer["error"]["code"] == "NoSuchView"
        # no engine, no question
        status, answer = await asked.post(
            "/v1/load", NOT_BROUGHT | {"caller": {"idp": "oidc"}, "referencedBy": "gone%1Fv"}
        )
        assert (status, answer["referencedByUsed"]) == (200, False)
    chains = [next(requests(record))["load"]["chain"] for record in audit_records(tmp_path)]
    assert chains[0] == [{"view": "view:lake/ns/v", "owner": "user:oidc~bob", "engine": "trino", "property": OWNER}]


NAMES = [
    (("n é", "b"), "v w"),
    (("n,c",), "v+%2F"),
    (("n", "ü", "x"), "日本"),
    (("q?a=b&c#d",), "v?x#y"),
]


@pytest.mark.parametrize(("namespace", "name"), NAMES)
async def test_names_reach_the_catalog_as_they_are(
    iceberg: IcebergServer, tmp_path: Path, namespace: tuple[str, ...], name: str
) -> None:
    from urllib.parse import quote  # noqa: PLC0415  the test's own encoding, not the module's

    await iceberg.create_namespace(*namespace)
    await iceberg.create_view(quote("\x1f".join(namespace), safe=""), name, {OWNER: f"owner of {name}"})
    catalog = IcebergCatalog("lake", CatalogSettings(uri=iceberg.uri), None)
    try:
        assert await catalog.properties(Resource("view", "lake", (*namespace, name))) == {OWNER: f"owner of {name}"}
    finally:
        await catalog.close()


async def test_what_was_read_is_taken_as_read_for_a_while(iceberg: IcebergServer) -> None:
    await iceberg.create_namespace("kept")
    await iceberg.create_view("kept", "v", {OWNER: "bob"})
    view = Resource("view", "lake", ("kept", "v"))
    catalog = IcebergCatalog("lake", CatalogSettings(uri=iceberg.uri, ttl_seconds=2), None)
    try:
        first = await catalog.properties(view)
        await iceberg.set_properties("kept/views/v", {OWNER: "carol"})
        assert await catalog.properties(view) is first
        await asyncio.sleep(2.1)
        assert await catalog.properties(view) == {OWNER: "carol"}
        await asyncio.sleep(2.1)
        second = await catalog.properties(view)
        await asyncio.sleep(2.1)
        assert await catalog.properties(view) is second, "the same metadata file is not read twice"
    finally:
        await catalog.close()


@pytest.mark.process
async def test_an_explanation_reads_the_catalog_too(iceberg: IcebergServer, tmp_path: Path) -> None:
    await iceberg.create_namespace("shown")
    await iceberg.create_view("shown", "v", {OWNER: "bob"})
    (tmp_path / "world.json").write_text(json.dumps(WORLD))
    config = {
        "trusted_engines": ENGINES,
        "policies": {"rules": []},
        "store": {"url": "file:world.json"},
        "warehouses": {"lake": {"catalog": {"uri": iceberg.uri}}},
    }
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    body = json.dumps(NOT_BROUGHT | {"referencedBy": "shown%1Fv"})
    done = await asyncio.to_thread(run_pdp, "explain", "--load", "-", stdin=body, cwd=tmp_path)
    assert "user:oidc~bob takes over" in done.stdout, done.stderr


@pytest.mark.process
async def test_a_catalog_that_does_not_answer_denies(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with iceberg_server(tmp_path_factory.mktemp("stopping")) as iceberg:
        await iceberg.create_namespace("ns")
        await iceberg.create_view("ns", "v", {OWNER: "bob"})
        async with asking(tmp_path, iceberg.uri) as asked:
            assert (await asked.post("/v1/load", NOT_BROUGHT))[0] == 200
            os.kill(iceberg.process.pid, signal.SIGSTOP)
            status, answer = await asked.post("/v1/load", NOT_BROUGHT)
            assert (status, answer["error"]["code"]) == (503, "unavailable")
            assert "did not answer within 1 seconds" in answer["error"]["message"]
            os.kill(iceberg.process.pid, signal.SIGCONT)
            assert (await asked.post("/v1/load", NOT_BROUGHT))[0] == 200
            iceberg.process.kill()
            await asyncio.to_thread(iceberg.process.wait)
            status, answer = await asked.post("/v1/load", NOT_BROUGHT)
            assert (status, answer["error"]["code"]) == (503, "unavailable")
            assert "cannot be asked" in answer["error"]["message"]


# --- a server that answers as it is told ----------------------------------------------------------------------------

GOOD = {"metadata-location": "a", "metadata": {"properties": {OWNER: "bob"}}}


class Answers:
    """What the server says: to the configuration, then to each load of a view; `asked` is what it was asked."""

    def __init__(self, *views: tuple[int, Any], config: Any = None) -> None:
        self.views = list(views)
        self.config = {} if config is None else config
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((request.path_qs, request.headers.get("Authorization", "")))
        if request.path == "/r/v1/config":
            return _response(200, self.config)
        return _response(*(self.views.pop(0) if len(self.views) > 1 else self.views[0]))


def _response(status: int, body: Any) -> web.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return web.Response(status=status, body=data, headers={"Location": "/r/v1/elsewhere"} if status == 302 else {})


@asynccontextmanager
async def answering(
    answers: Answers, token: Path | None = None, separator: str = NAMESPACE_SEPARATOR, **rule: Any
) -> AsyncIterator[IcebergCatalog]:
    runner = web.ServerRunner(web.Server(answers, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    uri = f"http://127.0.0.1:{runner.addresses[0][1]}/r/"
    catalog = IcebergCatalog("lake", CatalogSettings(uri=uri, **rule), token, separator)
    try:
        yield catalog
    finally:
        await catalog.close()
        await runner.cleanup()


@pytest.mark.parametrize(
    ("config", "prefix"),
    [
        ({"overrides": {"prefix": "p"}, "defaults": {"prefix": "q"}}, "p/"),
        ({"defaults": {"prefix": "main|wh"}}, "main%7Cwh/"),
        ({"defaults": {}, "overrides": {}}, ""),
    ],
)
async def test_the_prefix_is_the_catalog_s_own(config: Any, prefix: str) -> None:
    answers = Answers((200, GOOD), config=config)
    async with answering(answers, warehouse="my wh", ttl_seconds=0) as catalog:
        assert await catalog.properties(VIEW) == {OWNER: "bob"}
        assert await catalog.properties(VIEW) == {OWNER: "bob"}
    view = f"/r/v1/{prefix}namespaces/ns/views/v"
    assert [path for path, _ in answers.asked] == ["/r/v1/config?warehouse=my%20wh", view, view]


@pytest.mark.parametrize(("separator", "place"), [("\x1f", "a%1Fb%7Cc"), (".", "a.b%7Cc"), ("/", "a%2Fb%7Cc")])
async def test_the_catalog_is_asked_with_its_separator(separator: str, place: str) -> None:
    answers = Answers((200, GOOD), (404, {"error": {"type": "Other"}}))
    async with answering(answers, ttl_seconds=0, separator=separator) as catalog:
        assert await catalog.properties(Resource("view", "lake", ("a", "b|c", "v"))) == {OWNER: "bob"}
        with pytest.raises(Unavailable, match=r"view `a\.b.c\.v`"):
            await catalog.properties(Resource("view", "lake", ("a", "b|c", "v")))
        with pytest.raises(Unavailable, match="divides namespaces"):
            await catalog.properties(Resource("view", "lake", ("a", f"b{separator}c", "v")))
    assert {path for path, _ in answers.asked[1:]} == {f"/r/v1/namespaces/{place}/views/v"}


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}),
        (200, {"metadata-location": "a", "metadata": {"properties": {OWNER: 7}}}),
        (200, {"metadata-location": "a", "metadata": []}),
        (200, b"<html>"),
        (200, b"\xff"),
        (200, b"[" * 100_000),
        (200, b" " * (MAX_ANSWER_BYTES + 1)),
        (204, b""),
        (302, {}),
        (401, {}),
        (403, {"error": {"type": "ForbiddenException", "code": 403, "message": ""}}),
        (404, {}),
        (404, b"not found"),
        (404, {"error": {"type": "NotFoundException", "code": 404, "message": ""}}),
        (500, {"error": {"type": "NoSuchViewException", "code": 500, "message": ""}}),
        (503, b""),
    ],
)
async def test_what_is_no_answer_is_unavailable(answer: tuple[int, Any]) -> None:
    answers = Answers(answer)
    async with answering(answers) as catalog:
        with pytest.raises(Unavailable):
            await catalog.properties(VIEW)
    assert len(answers.asked) == 2, "a redirect is not followed"


async def test_what_was_read_does_not_outlive_the_view() -> None:
    missing = (404, {"error": {"type": "NoSuchViewException", "code": 404, "message": ""}})
    async with answering(Answers((200, GOOD), missing, (500, b"")), ttl_seconds=0) as catalog:
        assert await catalog.properties(VIEW)
        assert await catalog.properties(VIEW) is None
        with pytest.raises(Unavailable):
            await catalog.properties(VIEW)


async def test_a_refused_token_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    answers = Answers((401, {}), (200, GOOD))
    async with answering(answers, token) as catalog:
        token.write_text("new\n")
        assert await catalog.properties(VIEW) == {OWNER: "bob"}
    assert [sent for _, sent in answers.asked] == ["Bearer old", "Bearer old", "Bearer new"]
    async with answering(Answers((401, {})), token) as catalog:
        token.unlink()
        with pytest.raises(Unavailable):
            await catalog.properties(VIEW)


def test_a_token_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="token"):
        IcebergCatalog("lake", CatalogSettings(uri="http://127.0.0.1:1"), tmp_path / "none")
