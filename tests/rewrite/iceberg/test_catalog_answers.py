"""Relations of a catalog that answers as it is told: bounds, loops, redirects, etags, secrets, and broken metadata."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from support.oracles.converging import awaited
from support.servers.idp import Authority
from support.service.serving import settings_of

from pdp.config.warehouses import CatalogSettings
from pdp.errors import ConfigError, Unavailable
from pdp.rewrite.iceberg.client import MAX_ANSWER_BYTES, RestCatalogClient
from pdp.rewrite.iceberg.relations import CatalogRelations, RelationSources
from pdp.rewrite.process.messages import KNOWN, KnownRelation
from pdp.telemetry import Telemetry

pytestmark = pytest.mark.waits

SECRET = "tok3n-0f-the-service"
FIELDS = [{"id": 1, "name": "id", "required": False, "type": "int"}]


def table(*names: str, **more: Any) -> dict[str, Any]:
    fields = [{"id": at, "name": name, "required": False, "type": "string"} for at, name in enumerate(names or ("id",))]
    schemas = [{"type": "struct", "schema-id": 4, "fields": fields}]
    return {"metadata": {"current-schema-id": 4, "schemas": schemas, **more}, "config": {"token": "vended"}}


def view(*texts: tuple[str, str], **version: Any) -> dict[str, Any]:
    body = {
        "version-id": 2, "schema-id": 0, "default-namespace": ["a"],
        "representations": [{"type": "sql", "dialect": dialect, "sql": sql} for dialect, sql in texts], **version,
    }  # fmt: skip
    schemas = [{"type": "struct", "schema-id": 0, "fields": FIELDS}]
    return {"metadata": {"current-version-id": 2, "versions": [body], "schemas": schemas}}


class ToldCatalog:
    """Catalog whose answers are `told` by path; a path without an answer is missing. `etags` are by path, too."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = {"config": {}, **told}
        self.etags: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, str], str]] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path = unquote(request.path.removeprefix("/v1/")).replace("\x1f", ".")
        self.asked.append((path, dict(request.query), request.headers.get("Authorization", "")))
        answer = self.told.get(path)
        if callable(answer):
            answer = answer(request.query)
        if answer is None:
            error = {"error": {"type": "NoSuchNamespaceException", "code": 404, "message": ""}}
            return web.json_response(error, status=404)
        etag = self.etags.get(path, "")
        if etag and request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        if isinstance(answer, web.Response):
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=body, headers={"ETag": etag} if etag else {})


def listed(*names: str, namespace: str = "a") -> dict[str, Any]:
    return {"identifiers": [{"namespace": namespace.split("."), "name": name} for name in names]}


def whole(**more: Any) -> dict[str, Any]:
    """Answers of a catalog with one table and one view."""
    return {
        "namespaces": lambda query: {"namespaces": [] if query.get("parent") else [["a"]]},
        "namespaces/a/tables": listed("t"), "namespaces/a/views": listed("v"),
        "namespaces/a/tables/t": table(), "namespaces/a/views/v": view(("trino", "SELECT 1 AS id")), **more,
    }  # fmt: skip


@asynccontextmanager
async def reading(
    told: ToldCatalog, token_path: Path | None = None, tls: ssl.SSLContext | None = None, **rule: Any
) -> AsyncIterator[CatalogRelations]:
    runner = web.ServerRunner(web.Server(told, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    own = f"http{'s' * bool(tls)}://127.0.0.1:{runner.addresses[0][1]}"
    settings = CatalogSettings(**{"uri": own, "ttl_seconds": 0, "relations": {"max_relations": 40}, **rule})
    found = CatalogRelations("lake", RestCatalogClient("lake", settings, token_path), settings, Telemetry())
    try:
        yield found
    finally:
        await found.stop()
        await runner.cleanup()


def known(relations: CatalogRelations) -> dict[str, KnownRelation]:
    return {".".join(one.name): one for one in KNOWN.decode(relations.known.body)} if relations.known.body else {}


async def test_pages_and_levels_are_followed() -> None:
    dice = random.Random(2)
    spaces = {("a",), ("b c",), ("a", "x"), ("a", "x", "ü/%"), ("z.z",)}
    names = {space: [f"t{number} é/?#%" for number in range(dice.randrange(1, 5))] for space in spaces}

    def paged(entries: list[Any], key: str) -> Any:
        def answer(query: Mapping[str, str]) -> dict[str, Any]:
            at = int(query["pageToken"] or 0)
            more = {"next-page-token": str(at + 1)} if at + 1 < len(entries) else {}
            return {key: entries[at : at + 1], **more}

        return answer

    told: dict[str, Any] = {}

    def children(query: Mapping[str, str]) -> dict[str, Any]:
        parent = tuple(query["parent"].split("\x1f")) if "parent" in query else ()
        found = sorted(list(space) for space in spaces if space[:-1] == parent)
        answer: dict[str, Any] = paged(found, "namespaces")(query)
        return answer

    told["namespaces"] = children
    for space, some in names.items():
        place = f"namespaces/{'.'.join(space)}"
        told[f"{place}/tables"] = paged([{"namespace": space, "name": name} for name in some], "identifiers")
        told |= {f"{place}/tables/{name}": table() for name in some}
    async with reading(ToldCatalog(told)) as relations:
        await relations.refresh()
        wanted = {("lake", *space, name) for space, some in names.items() for name in some}
        assert {one.name for one in known(relations).values()} == wanted


def deep(query: Mapping[str, str]) -> dict[str, Any]:
    above = query["parent"].split("\x1f") if "parent" in query else []
    return {"namespaces": [[*above, "a"]]}


FOREIGN = web.Response(status=307, headers={"Location": "http://169.254.169.254/latest"})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"namespaces": deep}, "more than 9 levels"),
        ({"namespaces": {"namespaces": [["a", "b"]]}}, "outside of the one"),
        ({"namespaces": {"namespaces": [[]]}}, "outside of the one"),
        ({"namespaces": {"namespaces": [["a"]]}}, "outside of the one"),  # again, below the namespace `a`
        ({"namespaces": {"namespaces": [], "next-page-token": "x"}}, "without an end"),
        ({"namespaces": lambda query: {"next-page-token": query["pageToken"] + "x"}}, "pages without an end"),
        ({"namespaces/a/tables": listed("t", namespace="b")}, "outside of the namespace"),
        ({"namespaces/a/tables": listed("")}, "outside of the namespace"),
        ({"namespaces/a/tables": listed(*map(str, range(41)))}, "more than 40"),
        ({"namespaces/a/tables": FOREIGN}, "answered 307"),
        ({"namespaces/a/views": web.Response(status=500)}, "answered 500"),
        ({"namespaces/a/tables": b"["}, "outside of the Iceberg REST specification"),
        ({"namespaces/a/tables": b"[" * 100_000}, "outside of the Iceberg REST specification"),
        ({"namespaces/a/tables": b" " * (MAX_ANSWER_BYTES + 1)}, "more than"),
        ({"namespaces/a/tables": listed("t", "u"), "namespaces/a/tables/u": web.Response(status=503)}, "answered 503"),
        ({"namespaces/a/views": listed("w"), "namespaces/a/views/w": web.Response(status=401)}, "answered 401"),
        ({"config": web.Response(status=403)}, "answered 403"),
        ({"config": {"overrides": {"prefix": ".."}}}, "no name"),
        ({"config": FOREIGN}, "answered 307"),
    ],
)
async def test_a_catalog_that_leads_astray_is_not_read(more: dict[str, Any], words: str) -> None:
    told = ToldCatalog(whole())
    async with reading(told) as relations:
        await relations.refresh()
        before = relations.known
        told.told |= more
        with pytest.raises(Unavailable, match=words):
            await relations.refresh()
        assert relations.known is before
    assert len(told.asked) < 2_100


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=500), web.Response(status=403), FOREIGN, b"<html>", b"[" * 100_000, {}, table(schemas=[]),
        table(**{"current-schema-id": 9}), table(""), table("x" * 2_000), {"metadata": {"schemas": [{"fields": []}]}},
        b" " * (MAX_ANSWER_BYTES + 1),
    ],
)  # fmt: skip
async def test_a_broken_table_is_a_name_that_is_refused(answer: Any) -> None:
    async with reading(ToldCatalog(whole(**{"namespaces/a/tables/t": answer}))) as relations:
        await relations.refresh()
        assert known(relations)["lake.a.t"].problem
        assert not known(relations)["lake.a.v"].problem


@pytest.mark.parametrize(
    "answer",
    [
        view(), view(("", "SELECT 1")), view(("trino", " ")), view(("trino", "SELECT 1"), ("Trino", "SELECT 2")),
        view(("trino", "SELECT " + "1" * 100_001)), view(("trino", "SELECT 1"), **{"version-id": 3}),
        view(("trino", "SELECT 1"), **{"schema-id": 3}), {"metadata": {"current-version-id": 1, "versions": []}},
    ],
)  # fmt: skip
async def test_a_broken_view_is_a_name_that_is_refused(answer: Any) -> None:
    async with reading(ToldCatalog(whole(**{"namespaces/a/views/v": answer}))) as relations:
        await relations.refresh()
        assert known(relations)["lake.a.v"].problem
        assert not known(relations)["lake.a.t"].problem


async def test_types_have_one_name_in_every_dialect() -> None:
    struct = {"type": "struct", "fields": FIELDS}
    types = {
        "a": ("long", "BIGINT"), "B": ("string", "VARCHAR"), "c": ("decimal(10, 2)", "DECIMAL(10, 2)"),
        "d": ("timestamptz", ""), "e": (struct, ""), "f": ("unheard_of", ""), "g": ({"type": "list"}, ""), "h": (7, ""),
    }  # fmt: skip
    fields = [{"id": 1, "name": name, "type": type} for name, (type, _) in types.items()]
    body = {"metadata": {"schema": {"type": "struct", "fields": fields}}}  # version 1 of the format
    async with reading(ToldCatalog(whole(**{"namespaces/a/tables/t": body}))) as relations:
        await relations.refresh()
        assert dict(known(relations)["lake.a.t"].columns) == {name: type for name, (_, type) in types.items()}


async def test_a_pass_reads_names_and_new_relations() -> None:
    told = ToldCatalog(whole())
    async with reading(told) as relations:
        await relations.refresh()
        before = relations.known
        asked = len(told.asked)
        await relations.refresh()
        assert relations.known is before
        assert len(told.asked) == asked + 5, "the configuration, two lists of namespaces, and two lists of relations"
        told.told |= {"namespaces/a/tables": listed("u"), "namespaces/a/tables/u": web.Response(status=500)}
        await relations.refresh()
        assert set(known(relations)) == {"lake.a.u", "lake.a.v"}
        told.told["namespaces/a/tables/u"] = table()
        await relations.refresh()
        assert not known(relations)["lake.a.u"].problem, "a broken table is read again"


async def test_an_unchanged_table_is_not_sent_again() -> None:
    told = ToldCatalog(whole())
    told.etags["namespaces/a/tables/t"] = '"one"'
    async with reading(told) as relations:
        await relations.refresh()
        before = relations.known
        assert await relations.confirm(("a", "t")) is True
        assert relations.known is before
        told.etags["namespaces/a/tables/t"] = '"two"'
        told.told["namespaces/a/tables/t"] = table("x", "y")
        assert await relations.confirm(("a", "t")) is False
        assert [name for name, _ in known(relations)["lake.a.t"].columns] == ["x", "y"]
    # a catalog that says `unchanged` of what nobody has is broken
    told = ToldCatalog(whole(**{"namespaces/a/tables/t": web.Response(status=304)}))
    async with reading(told) as relations:
        await relations.refresh()
        assert known(relations)["lake.a.t"].problem


async def test_a_catalog_without_views_has_tables() -> None:
    error = {"error": {"type": "UnsupportedOperationException", "code": 406, "message": ""}}
    refused = web.Response(status=406, body=json.dumps(error).encode())
    endpoints = ["GET /v1/{prefix}/namespaces/{namespace}/tables"]
    for more in ({"namespaces/a/views": refused}, {"config": {"endpoints": endpoints}, "namespaces/a/views": b"?"}):
        async with reading(ToldCatalog(whole(**more))) as relations:
            await relations.refresh()
            assert set(known(relations)) == {"lake.a.t"}


async def test_secrets_go_to_the_catalog_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    cases: list[tuple[dict[str, Any], Path | None]] = [({"token": SECRET}, None), ({}, file)]
    for rule, token in cases:
        told = ToldCatalog(whole())
        async with reading(told, token, **rule) as relations:
            await relations.refresh()
            told.told["namespaces"] = FOREIGN
            with pytest.raises(Unavailable) as refused:
                await relations.refresh()
            assert SECRET not in str(refused.value)
            assert {sent for _, _, sent in told.asked} == {f"Bearer {SECRET}"}
            assert b"vended" not in relations.known.body
    async with reading(ToldCatalog(whole()), uri="http://127.0.0.1:9", token=SECRET) as relations:
        with pytest.raises(Unavailable):
            await relations.refresh()
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err


async def test_names_that_lead_out_of_the_catalog_are_asked_of_nobody() -> None:
    told = ToldCatalog(whole(**{"namespaces/a/tables": listed("..", ".", "t")}))
    async with reading(told) as relations:
        await relations.refresh()
        assert set(known(relations)) == {"lake.a.t", "lake.a.v"}
    assert all(".." not in path for path, *_ in told.asked)


async def test_statements_share_the_question_about_a_name() -> None:
    told = ToldCatalog(whole())
    async with reading(told) as relations:
        await relations.refresh()
        sources = RelationSources([relations])
        before = len(told.asked)
        names = [("lake", "a", "t"), ("LAKE", "a", "t"), ("other", "a", "t")]
        assert await asyncio.gather(*(sources.confirm(names) for _ in range(20))) == [True] * 20
        assert len(told.asked) == before + 1
        told.told["namespaces/a/tables/t"] = table("changed")
        assert await sources.confirm([("lake", "a", "t")]) is False
        assert await sources.confirm([("lake", "a", "t")]) is True
        # nobody knows whether the table became a view, so the statement waits for the catalog
        del told.told["namespaces/a/tables/t"]
        told.told["namespaces/a/views/t"] = web.Response(status=503)
        with pytest.raises(Unavailable):
            await sources.confirm([("lake", "a", "t")])
        told.told["namespaces/a/views/t"] = view(("duckdb", "SELECT 1 AS id"))
        assert await sources.confirm([("lake", "a", "t")]) is False
        assert known(relations)["lake.a.t"].is_view


async def test_what_was_read_is_used_until_it_is_too_old() -> None:
    for limit, is_old in ((3600, False), (1, True)):
        told = ToldCatalog(whole())
        async with reading(told, relations={"max_stale_seconds": limit}) as relations:
            assert "has not been read yet" in relations.problem
            await relations.refresh()
            sources = RelationSources([relations])
            told.told["namespaces/a/tables/t"] = web.Response(status=503)
            await asyncio.sleep(1.1)
            if not is_old:
                assert await sources.confirm([("lake", "a", "t")]) is True
                assert [*sources.problems()] == []
                continue
            with pytest.raises(Unavailable, match="too old"):
                await sources.confirm([("lake", "a", "t")])
            assert [*sources.problems()]


async def test_an_answer_of_the_last_seconds_is_not_asked_for_again() -> None:
    told = ToldCatalog(whole())
    async with reading(told, ttl_seconds=3600) as relations:
        await relations.refresh()
        sources = RelationSources([relations])
        asked = len(told.asked)
        assert await sources.confirm([("lake", "a", "t"), ("lake", "a", "v")]) is True
        assert len(told.asked) == asked
        for _ in range(3):
            assert await sources.confirm([("lake", "a", "absent")]) is True
        assert len(told.asked) == asked + 2, "a table and a view of the name, once"


def test_unusable_settings_stop_the_start(tmp_path: Path) -> None:
    for rule in (
        {"uri": "http://user:secret@host/x"}, {"uri": "file:///etc"}, {"uri": "http://host?x=1"},
        {"prefix": "../admin"}, {"token": "two words"}, {"token": "s3cr3t", "token_file": "y"}, {"token": "a\nb"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="validation error"):
            CatalogSettings(**{"uri": "http://127.0.0.1:1", **rule})
        if "token" in rule:
            with pytest.raises(ConfigError) as refused:
                settings_of({"warehouses": {"lake": {"catalog": {"uri": "http://127.0.0.1:1", **rule}}}}, tmp_path)
            assert str(rule["token"]) not in str(refused.value).replace("token_file", "")
    (tmp_path / "ca.pem").write_text("no certificate")
    for file in ("ca.pem", "none.pem"):
        settings = CatalogSettings(uri="https://127.0.0.1:1", ca_file=str(tmp_path / file))
        with pytest.raises(ConfigError, match="ca_file"):
            RestCatalogClient("lake", settings, None)


async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours.issue("localhost"))
    told = ToldCatalog(whole())
    async with reading(told, tls=context, ca_file=str(ours.path)) as relations:
        await relations.refresh()
        assert len(known(relations)) == 2
    rules: list[dict[str, Any]] = [{"ca_file": str(other.path)}, {}]
    for rule in rules:
        asked = len(told.asked)
        async with reading(told, tls=context, **rule) as relations:
            with pytest.raises(Unavailable, match="cannot be asked: ClientConnectorCertificateError"):
                await relations.refresh()
        assert len(told.asked) == asked


async def test_health_shows_no_name_of_a_table_at_which_a_catalog_fails() -> None:
    silent = {"namespaces/a/tables/zelda": web.Response(status=503)}
    told = ToldCatalog(whole(**{"namespaces/a/tables": listed("zelda"), **silent}))
    async with reading(told) as relations:
        with pytest.raises(Unavailable, match=r"answered 503 for table `a\.zelda`"):
            await relations.refresh()
        relations.start()
        await awaited(lambda: "answered 503" in relations.trouble)
        assert "zelda" not in relations.trouble + relations.problem
