"""Lists of tables: the quick decoder gives the values of the plain one, and proves that no key is duplicated."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdp.config.warehouses import TrinoCatalogSettings, TrinoSettings
from pdp.dialects.trino import name_lists
from pdp.dialects.trino.bodies import REQUEST
from pdp.dialects.trino.name_lists import (
    TableList,
    decode_table_list,
    refuse_duplicates_in,
    share_one_text,
    table_columns,
)
from pdp.dialects.trino.names import Names
from pdp.errors import InvalidArgument
from pdp.model.strict import refuse_duplicates

NAMES = Names(
    TrinoSettings(
        catalogs={"k": TrinoCatalogSettings(warehouse="lake", ref="main"), "n": TrinoCatalogSettings(warehouse="ness")}
    ),
    {},
)
TEXTS = st.sampled_from(
    ["", "a", "b", "aa", "é", "\U0001f600", "a.b", 'q"q', "back\\slash", "t$files", "\0", "x" * 300, "\t"]
)
TABLES = st.tuples(TEXTS, TEXTS, TEXTS)
COUNT = 12


def body_of(tables: list[tuple[str, str, str]], **more: Any) -> dict[str, Any]:
    """Return a body about a list of tables with `fields` each; `more` goes into the action."""
    fields = more.pop("fields", {})
    listed = [{"table": {"catalogName": c, "schemaName": s, "tableName": t, **fields}} for c, s, t in tables]
    context = {"identity": {"user": "u" * 300, "groups": ["g"]}, "queryId": "q", "softwareStack": {"trinoVersion": "4"}}
    return {"input": {"context": context, "action": {"operation": "FilterTables", "filterResources": listed, **more}}}


def turned(value: Any) -> Any:
    """Return a value with the keys of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(item) for key, item in reversed(value.items())}
    return [turned(item) for item in value] if isinstance(value, list) else value


WIDER: tuple[dict[str, Any], ...] = (
    {"tableType": "BASE TABLE", "comment": None},
    {"comment": None, "tableType": 1.0},
    {"owner": {"name": ["a", 1e5]}},
)
SPELLINGS: tuple[Callable[[Any], bytes], ...] = (
    msgspec.json.encode,
    lambda value: msgspec.json.encode(turned(value)),
    lambda value: json.dumps(value).encode(),
    lambda value: json.dumps(value, indent=3, ensure_ascii=False).encode(),
)


@pytest.fixture(autouse=True)
def learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test without learned kinds of tables."""
    monkeypatch.setattr(name_lists, "_wider_tables", name_lists._WiderTables())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(TABLES, min_size=COUNT, max_size=COUNT + 3),
    st.sampled_from(SPELLINGS),
    st.sampled_from([{}, {"resource": None}, {"grantee": None, "targetResource": None}, {"newField": ["x"]}]),
    st.sampled_from([{}, *WIDER]),
)
def test_a_list_has_the_values_of_the_plain_decoder(
    tables: list[tuple[str, str, str]], spell: Callable[[Any], bytes], more: dict[str, Any], fields: dict[str, Any]
) -> None:
    body = spell(body_of(tables, fields=fields, **more))
    plain = REQUEST.decode(body).input
    listed = decode_table_list(body)
    assert listed is not None
    named = plain.action.filter_resources or []
    assert listed.tables == TableList.of([name.table for name in named if name.table])
    assert msgspec.structs.replace(listed.input.action, filter_resources=named) == plain.action
    assert listed.input.context == plain.context
    assert not (listed.unique_keys and ("newField" in more or fields))
    refuse_duplicates_in(body, listed)


@pytest.mark.parametrize("spell", SPELLINGS)
def test_every_usual_spelling_is_proved(spell: Callable[[Any], bytes]) -> None:
    listed = decode_table_list(spell(body_of([("k", "s", f"t{number}") for number in range(COUNT)])))
    assert listed is not None
    assert listed.unique_keys


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(TABLES, min_size=COUNT, max_size=COUNT),
    st.sampled_from(SPELLINGS),
    st.sampled_from(["tableName", "schemaName", "table", "queryId", "user", "operation", "action", "unknown"]),
    st.integers(0, COUNT - 1),
    st.sampled_from([{}, *WIDER]),
)
def test_a_duplicate_key_is_never_taken_for_proved(
    tables: list[tuple[str, str, str]], spell: Callable[[Any], bytes], key: str, at: int, fields: dict[str, Any]
) -> None:
    body = spell(body_of(tables, unknown="x", fields=fields)).decode()
    places = [place for place in range(len(body)) if body.startswith(f'"{key}"', place)]
    place = places[min(at, len(places) - 1)]
    end = end_of_member(body, place)
    double = (body[:end] + "," + body[place:end] + body[end:]).encode()
    listed = decode_table_list(double)
    assert listed is None or not listed.unique_keys
    with pytest.raises(InvalidArgument, match="duplicate"):
        refuse_duplicates_in(double, listed) if listed else refuse_duplicates(double)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(TABLES, min_size=COUNT, max_size=COUNT),
    st.sampled_from(SPELLINGS),
    st.sampled_from(["x", ["filterResources"], {"filterResources": 1, "x": [{"table": {}}]}, 'a"[{"table"', 1.5, None]),
    st.booleans(),
)
def test_unknown_fields_outside_of_the_list_are_searched(
    tables: list[tuple[str, str, str]], spell: Callable[[Any], bytes], more: Any, same: bool
) -> None:
    value = body_of(tables, unknown=more)
    if same:
        value = {"before": [value["input"]["action"]["filterResources"]], **value}
    body = spell(value)
    listed = decode_table_list(body)
    assert listed is not None
    refuse_duplicates_in(body, listed)
    for start in (b'{"before":1,', b'{"before":{"x":1,"x":2},'):
        double = start + (body if same else b'{"before":[],' + body[1:]).lstrip()[1:]
        again = decode_table_list(double)
        assert again is not None
        with pytest.raises(InvalidArgument, match="duplicate"):
            refuse_duplicates_in(double, again)


def end_of_member(body: str, place: int) -> int:
    """Return the end of the member of an object that begins at a place."""
    value = body.index(":", place) + 1
    value += len(body[value:]) - len(body[value:].lstrip())
    return json.JSONDecoder().raw_decode(body, value)[1]


@pytest.mark.parametrize(
    "item",
    [
        {"schema": {"catalogName": "k", "schemaName": "s"}},
        {"table": {"catalogName": "k", "schemaName": "s", "tableName": "t", "columns": ["c"]}},
        {"table": {"catalogName": "k", "schemaName": "s", "tableName": "t", "newField": 1}},
        {"table": "ab"},
        {"table": {"catalogName": "k", "schemaName": "s", "tableName": "t"}, "function": None},
        {"table": {"catalogName": "k", "schemaName": "s", "tableName": 1}},
        {},
    ],
)
def test_a_list_with_anything_else_is_left_to_the_plain_decoder(item: dict[str, Any]) -> None:
    body = body_of([("k", "s", "t")] * COUNT)
    body["input"]["action"]["filterResources"].append(item)
    assert decode_table_list(msgspec.json.encode(body)) is None


@pytest.mark.parametrize("fields", [{"columns": None}, {"a b": 1}, dict.fromkeys("abcdefghi"), {"tableName": 1}])
def test_tables_with_odd_fields_are_left_to_the_plain_decoder(fields: dict[str, Any]) -> None:
    assert decode_table_list(msgspec.json.encode(body_of([("k", "s", "t")] * COUNT, fields=fields))) is None


def test_few_kinds_of_tables_are_learned() -> None:
    for number in range(20):
        decode_table_list(msgspec.json.encode(body_of([("k", "s", "t")] * COUNT, fields={f"new{number}": "x"})))
    assert len(name_lists._wider_tables.decoders) <= 8
    assert decode_table_list(msgspec.json.encode(body_of([("k", "s", "t")] * COUNT, fields={"yetAnother": 1}))) is None


@pytest.mark.parametrize(
    "more", [{"resource": {"user": {"user": "u"}}}, {"grantee": {"type": "USER", "name": "u"}}, {"operation": 1}]
)
def test_a_list_beside_another_resource_is_left_to_the_plain_decoder(more: dict[str, Any]) -> None:
    assert decode_table_list(msgspec.json.encode(body_of([("k", "s", "t")] * COUNT, **more))) is None


@pytest.mark.parametrize("body", [b"", b"{" * 5000, b'{"input":' * 5000, b"\xff" * 2000, b"[]" * 1000])
def test_a_body_without_sense_is_left_to_the_plain_decoder(body: bytes) -> None:
    assert decode_table_list(body) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.sampled_from("ab\0"), max_size=4), min_size=1, max_size=4))
def test_columns_of_one_text_are_told_apart(texts: list[str]) -> None:
    assert share_one_text(texts) == (len(set(texts)) == 1 and "\0" not in texts[0])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([f"c{number}" for number in range(40)] + ["k", "n"]), min_size=1, max_size=60))
def test_tables_of_many_catalogs_are_one_column_each(catalogs: list[str]) -> None:
    tables = TableList(catalogs, ["s", "z"] * 30, [f"t{number}" for number in range(60)])
    tables = TableList(*(column[: len(catalogs)] for column in tables))
    found = {
        at: resource
        for column in table_columns(NAMES, tables)
        for at, resource in zip(column.at, column.resources, strict=True)
    }
    mapped = [at for at, catalog in enumerate(catalogs) if catalog in ("k", "n")]
    assert found == {at: NAMES.table(*(column[at] for column in tables)) for at in mapped}


def test_a_short_list_is_left_to_the_plain_decoder() -> None:
    assert decode_table_list(msgspec.json.encode(body_of([("k", "s", "x" * 2000)]))) is None
