"""How Trino's names are read, and the limits of its path."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clients.http_client import client_of
from support.service.serving import settings_of

from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.config.warehouses import TrinoCatalogSettings, TrinoSettings, WarehouseSettings
from pdp.dialects.trino.bodies import TableName
from pdp.dialects.trino.endpoints import TrinoSurface
from pdp.dialects.trino.name_lists import TableList, table_columns
from pdp.dialects.trino.names import Names
from pdp.dialects.trino.requests import RequestDecoder
from pdp.engines.cel.rules import inline_rules
from pdp.errors import AmbiguousName, InvalidArgument, InvalidReference
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.question import Caller, Resource
from pdp.store.world import parse_world

NAMES = Names(
    TrinoSettings(
        catalogs={
            "k": TrinoCatalogSettings(warehouse="lake", ref="main"),
            "n": TrinoCatalogSettings(warehouse="ness", ref=None),
        }
    ),
    {"ness": WarehouseSettings(kind="nessie", project=None, default_ref="main")},
)


@pytest.mark.parametrize(
    ("catalog", "schema", "table", "read"),
    [
        ("k", "a", "t", Resource("table_or_view", "lake", ("a", "t"), "main")),
        ("k", "a.b", "t", Resource("table_or_view", "lake", ("a", "b", "t"), "main")),
        ("k", "a", "t.x", Resource("table_or_view", "lake", ("a", "t.x"), "main")),
        ("k", "a", "t@x", Resource("table_or_view", "lake", ("a", "t@x"), "main")),
        ("k", "a", "t$files", Resource("metadata_table", "lake", ("a", "t$files"), "main")),
        ("k", "a", "t$x$refs", Resource("metadata_table", "lake", ("a", "t$x$refs"), "main")),
        ("k", "a", "t$other", Resource("table_or_view", "lake", ("a", "t$other"), "main")),
        ("k", "a", "$files", Resource("table_or_view", "lake", ("a", "$files"), "main")),
        (
            "k",
            "information_schema",
            "tables",
            Resource("system_schema", "lake", ("information_schema", "tables"), "main"),
        ),
        ("system", "runtime", "queries", Resource("system_catalog", "system", ("runtime", "queries"))),
        ("tpch", "tiny", "nation", Resource("catalog", "tpch", ("tiny", "nation"))),
        ("n", "a", "t", Resource("table_or_view", "ness", ("a", "t"))),
    ],
)
def test_a_table_is_read_as(catalog: str, schema: str, table: str, read: Resource) -> None:
    assert NAMES.table(catalog, schema, table) == read
    columns = table_columns(NAMES, TableList.of([TableName(catalog, schema, table)] * 2))
    assert [list(column.resources) for column in columns] in ([], [[read, read]])


@pytest.mark.parametrize("table", ["t@dev", "t#x", "`t`", "t@dev$files"])
def test_a_name_that_nessie_reads_as_a_reference_is_ambiguous(table: str) -> None:
    with pytest.raises(AmbiguousName):
        NAMES.table("n", "a", table)
    (column,) = table_columns(NAMES, TableList.of([TableName("n", "a", "t"), TableName("n", "a", table)]))
    assert list(column.at) == [0]


@pytest.mark.parametrize(
    ("catalog", "schema", "table"),
    [("k", "", "t"), ("k", "a", ""), ("k", "a..b", "t"), ("", "a", "t"), ("k", "a", "t\n")],
)
def test_names_that_are_none(catalog: str, schema: str, table: str) -> None:
    with pytest.raises(InvalidReference):
        NAMES.table(catalog, schema, table)


def body_of(count: int) -> bytes:
    tables = [{"table": {"catalogName": "k", "schemaName": "s", "tableName": f"t{number}"}} for number in range(count)]
    action = {"operation": "FilterTables", "filterResources": tables}
    return json.dumps(
        {"input": {"context": {"identity": {"user": "a", "groups": []}}, "action": action}}, separators=(",", ":")
    ).encode()


@pytest.mark.parametrize("spaced", [False, True])
async def test_a_hundred_thousand_tables_are_one_batch_and_no_more(tmp_path: Path, spaced: bool) -> None:
    (tmp_path / "rules.yaml").write_text(
        "rules: {v: \"op=='VIEW_REFERENCE'\", k: \"op=='READ_CONTENT_KEY' && path=='s.t99999'\"}"
    )
    config: dict[str, Any] = {
        "policies": {"rules": ["rules.yaml"]},
        "trino": {"catalogs": {"k": {"warehouse": "lake", "ref": "main"}}},
    }
    async with client_of(settings_of(config, tmp_path)) as client:
        text = body_of(100_000).replace(b",", b", ") if spaced else body_of(100_000)
        assert await client.trino("batch", text) == (200, {"result": [99_999]})
        status, answer = await client.trino("batch", body_of(100_001))
        assert status == 400
        assert answer["error"]["code"] == "too_many_checks"


def named(schema: str, name: str) -> dict[str, Any]:
    return {"table": {"catalogName": "k", "schemaName": schema, "tableName": name}}


def filter_of(tables: list[tuple[str, str]]) -> bytes:
    action = {"operation": "FilterTables", "filterResources": [named(*table) for table in tables]}
    body = json.loads(body_of(1))
    body["input"]["action"] = action
    return json.dumps(body).encode()


NAMED: dict[str, Any] = {
    "warehouses": {"ness": {"kind": "nessie", "default_ref": "main"}},
    "trino": {"catalogs": {"k": {"warehouse": "lake", "ref": "main"}, "n": {"warehouse": "ness"}}},
}
CATALOGS = st.sampled_from(["k", "k", "n", "tpch", "system", "", "\n"])
SCHEMAS = st.sampled_from(["s", "z", "a.b", "a..b", "", "information_schema", "runtime", "s\u00a0", "\x7f"])
TABLES = st.sampled_from([*"abcd", "", "t.x", "t$files", "t$other", "x@y", "`t`", "é", "t\n", "\u2028", "t\u00a0"])
ITEMS = st.one_of(
    st.builds(
        lambda c, s, t: {"table": {"catalogName": c, "schemaName": s, "tableName": t}}, CATALOGS, SCHEMAS, TABLES
    ),
    st.builds(lambda c, s: {"schema": {"catalogName": c, "schemaName": s}}, CATALOGS, SCHEMAS),
)
ODD_ITEMS = st.sampled_from(
    [
        {},
        {"catalog": {"name": "k"}},
        {"user": {"user": "u"}},
        {"schema": {"catalogName": "k", "schemaName": "s", "properties": {"p": 1}}},
        {"schema": {"catalogName": "k", "schemaName": "s"}, "function": {"functionName": "f"}},
        {"table": {"catalogName": "k", "schemaName": "s", "tableName": "t", "columns": ["c"]}, "user": {"user": "x"}},
    ]
)


def read(items: list[dict[str, Any]]) -> dict[int, Any]:
    """Return the resource or rejection of each position."""
    pdp = build_pdp(make_settings(NAMED, Path()), parse_world({}), (inline_rules({}), inline_rules({})))
    decoder = RequestDecoder(pdp, 1000)
    body = json.loads(body_of(1))
    body["input"]["action"]["filterResources"] = items
    request = decoder.to_batch_request(decoder.decode_batch(json.dumps(body).encode()), Caller("c", frozenset()))
    assert request.size == len(items)
    pairs = [pair for check in request.checks for pair in zip(check.at, check.resources, strict=True)]
    assert len(pairs) + len(request.rejected) == request.size
    return dict(pairs) | dict(request.rejected)


@settings(max_examples=150, deadline=None)
@given(st.lists(ITEMS, min_size=2, max_size=12) | st.lists(ITEMS | ODD_ITEMS, min_size=2, max_size=5))
def test_a_list_is_read_like_its_items_one_by_one(items: list[dict[str, Any]]) -> None:
    assert read(items) == {at: read([item])[0] for at, item in enumerate(items)}


def test_a_filter_of_one_catalog_is_one_column() -> None:
    items = [named(schema, name)["table"] for schema, name in (("s", "a"), ("z", "a"), ("s", "b$files"), ("z", "b"))]
    tables = [TableName(t["catalogName"], t["schemaName"], t["tableName"]) for t in items]
    (column,) = table_columns(NAMES, TableList.of(tables))
    assert list(column.at) == [0, 1, 3]
    assert list(column.resources.parents) == [("s",), ("z",)]
    assert list(column.resources[1:]) == list(column.resources)[1:]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["s", "z", "a.b"]), st.sampled_from([*"abcdefgh", "t$files", "x@y"])), min_size=9
    ),
    st.sets(st.tuples(st.sampled_from(["s", "z", "a/b"]), st.sampled_from("abcdefgh")), max_size=6),
)
def test_columns_answer_like_one_table_after_the_other(
    tables: list[tuple[str, str]], granted: set[tuple[str, str]]
) -> None:
    objects = [f"table:lake/{schema}/{name}" for schema, name in sorted(granted)]
    world = {"grants": [{"principal": "user:oidc~a", "privilege": "select", "object": o} for o in objects]}
    config = {
        "authorities": {"default": {"engines": ["grants"]}},
        "trino": {"catalogs": {"k": {"warehouse": "lake", "ref": "main"}}},
    }
    pdp = build_pdp(make_settings(config, Path()), parse_world(world), (inline_rules({}), inline_rules({})))
    surface = TrinoSurface(pdp, 1000, 10)
    first = asyncio.run(surface.batch(filter_of(tables), EMBEDDED_CALLER))
    singles = [asyncio.run(surface.batch(filter_of([table]), EMBEDDED_CALLER)) for table in tables]
    assert json.loads(first)["result"] == [at for at, single in enumerate(singles) if json.loads(single)["result"]]
    wanted = {(schema.replace("/", "."), name) for schema, name in granted}
    assert set(json.loads(first)["result"]) >= {at for at, table in enumerate(tables) if table in wanted}


@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        (b'"tableName": "t1"', b'"tableName":"x","tableName":"t1"', True),
        (b'"tableName": "t1"', b'"tableName":"t1","tableName":"t1"', True),
        (b'"tableName": "t1"', b'"tableName":"t1","columns":["a"],"columns":["a"]', True),
        (b'"tableName": "t1"', b'"tableName":"t1","more":{"x":1,"x":1}', True),
        (b'"tableName": "t1"', b'"tableName":"t1","table\\u004eame":"t1"', True),
        (b'"groups": []', b'"groups":[],"groups":[]', True),
        (b'"tableName": "t1"', b'"tableName":"t1","columns":["a"]', False),
        (b'"tableName": "t1"', b'"tableName":"t1","more":{"x":1,"y":1}', False),
        (b'"tableName": "t1"', b'"tableName"\n:\t"t\\u0031"', False),
        (b'"groups": []', b'"groups":[],"more":{"groups":[]}', False),
    ],
)
def test_a_list_is_searched_for_duplicate_keys(old: bytes, new: bytes, refused: bool, count: int) -> None:
    body = filter_of([("s", f"t{number}") for number in range(count)])
    assert old in body
    pdp = build_pdp(make_settings(NAMED, Path()), parse_world({}), (inline_rules({}), inline_rules({})))
    decoder = RequestDecoder(pdp, 1000)
    if refused:
        with pytest.raises(InvalidArgument, match="duplicate key"):
            decoder.decode_batch(body.replace(old, new, 1))
    else:
        assert decoder.decode_batch(body.replace(old, new, 1)).size == count
