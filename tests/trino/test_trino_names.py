"""How Trino's names are read, and the limits of its path."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.http_client import client_of
from support.serving import settings_of

from pdp.app.parts import build_pdp
from pdp.config.load import make_settings
from pdp.config.trino import TrinoCatalogSettings, TrinoSettings
from pdp.config.warehouses import WarehouseSettings
from pdp.engines.cel.rules import inline_rules
from pdp.errors import AmbiguousName, InvalidReference
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.checks import Resource
from pdp.store.world import parse_world
from pdp.trino.bodies import SchemaTables, read_tables
from pdp.trino.endpoints import TrinoSurface
from pdp.trino.names import Names

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
    siblings = NAMES.tables(catalog, schema, [table, table])
    assert siblings is None or list(siblings) == [read, read]


@pytest.mark.parametrize("table", ["t@dev", "t#x", "`t`", "t@dev$files"])
def test_a_name_that_nessie_reads_as_a_reference_is_ambiguous(table: str) -> None:
    with pytest.raises(AmbiguousName):
        NAMES.table("n", "a", table)
    assert NAMES.tables("n", "a", ["t", table]) is None


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


@pytest.mark.slow
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


def test_a_plain_filter_is_read_as_a_column() -> None:
    tables = read_tables(body_of(3))
    assert tables is not None
    assert (tables.catalog, tables.context.identity.user, tables.size) == ("k", "a", 3)
    assert tables.schemas == [SchemaTables("s", ["t0", "t1", "t2"], range(3))]


def named(schema: str, name: str) -> dict[str, Any]:
    return {"table": {"catalogName": "k", "schemaName": schema, "tableName": name}}


def filter_of(tables: list[tuple[str, str]], spaces: str = "") -> bytes:
    action = {"operation": "FilterTables", "filterResources": [named(*table) for table in tables]}
    body = json.loads(body_of(1))
    body["input"]["action"] = action
    return json.dumps(body, separators=(f",{spaces}", ":")).encode()


def test_a_filter_of_few_schemas_is_read_as_columns() -> None:
    tables = [("s", "a"), ("z", "a"), *[("s", f"t{i}") for i in range(20)], ("z", "b")]
    found = read_tables(filter_of(tables))
    assert found is not None
    assert [(group.schema, group.names[:2], list(group.positions)[:2]) for group in found.schemas] == [
        ("s", ["a", "t0"], [0, 2]),
        ("z", ["a", "b"], [1, 22]),
    ]
    assert read_tables(filter_of([(f"s{i}", "t") for i in range(20)])) is None


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
    bodies = [filter_of(tables, spaces) for spaces in ("", " ")]
    first, second = (asyncio.run(surface.batch(body, EMBEDDED_CALLER)) for body in bodies)
    assert first == second
    wanted = {(schema.replace("/", "."), name) for schema, name in granted}
    assert set(json.loads(first)["result"]) >= {at for at, table in enumerate(tables) if table in wanted}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"tableName":"t1"', b'"tableName":"x","tableName":"t1"'),
        (b'"tableName":"t1"', b'"tableName":"t1","tableName":"t1"'),
        (b'"tableName":"t1"', b'"tableName":"t1","columns":["a"]'),
        (b'"tableName":"t1"', b'"tableName":"t1","more":1'),
        (b'"tableName":"t1"', b'"tableName": "t1"'),
        (b'"tableName":"t1"', b'"tableName":"t\\u0031"'),
        (b'"tableName":"t1"', b'"tableName":"t\\"1"'),
        (b'"tableName":"t1"', b'"tableName":"\xc3\xa9"'),
        (b'"tableName":"t1"', b'"tableName":"t\x7f"'),
        (b'"schemaName":"s","tableName":"t1"', b'"schemaName":"z","tableName":"t1"'),
        (
            b'"catalogName":"k","schemaName":"s","tableName":"t1"',
            b'"catalogName":"z","schemaName":"s","tableName":"t1"',
        ),
        (b'"user":"a"', b'"user":"a","user":"b"'),
        (b'"groups":[]', b'"groups":[],"more":{}'),
        (b'"FilterTables"', b'"FilterTables","grantee":{"type":"USER","name":"FilterTables"}'),
        (b'"FilterTables"', b'"FilterSchemas"'),
        (
            b'{"table":{"catalogName":"k","schemaName":"s","tableName":"t1"}}',
            b'{"schema":{"catalogName":"k","schemaName":"s"}}',
        ),
        (
            b'{"table":{"catalogName":"k","schemaName":"s","tableName":"t1"}}',
            b'{"table":{"catalogName":"k","schemaName":"s","tableName":"t1"},"user":{"user":"x"}}',
        ),
    ],
)
def test_whatever_says_more_is_no_plain_filter(old: bytes, new: bytes) -> None:
    body = body_of(3)
    assert old in body
    assert read_tables(body.replace(old, new)) is None
