"""Duplicate keys in JSON: the proof by counted strings agrees with a search for duplicates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pdp.decision.codec import CheckRequest
from pdp.dialects.trino.bodies import REQUEST, OpaRequest
from pdp.errors import InvalidArgument
from pdp.model.strict import decode, has_all_strings, load_yaml, position_of, refuse_duplicates
from pdp.views.codec import ChangeBody, LoadBody, decode_change, decode_load

TEXTS = st.sampled_from(['"a"', '"b"', '""', '":"', '"\\u0022:"', '"\\"a\\":1"', '" :"', '"\\u0061"', '"ü"'])
CHECK_REQUEST = msgspec.json.Decoder(CheckRequest)
SPACES = st.sampled_from(["", "", " ", "\n\t "])


def _pair(key: str, before: str, after: str, value: str) -> str:
    return f"{key}{before}:{after}{value}"


JSON = st.recursive(
    TEXTS | st.sampled_from(["1", "null", "1e999", "12345678901234567890123"]),
    lambda values: (
        st.builds(
            lambda pairs: "{" + ",".join(pairs) + "}",
            st.lists(st.builds(_pair, TEXTS, SPACES, SPACES, values), max_size=4),
        )
        | st.builds(lambda items: "[" + ",".join(items) + "]", st.lists(values, max_size=3))
    ),
    max_leaves=12,
)


def _has_duplicates(text: str) -> bool:
    found = False

    def note(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found |= len({key for key, _ in pairs}) < len(pairs)

    json.loads(text, object_pairs_hook=note)
    return found


@given(JSON)
@example('{"a":1,"a":"\\u0022:"}')
@example('{"a" :1, "b":{"a":1,"a" :2}}')
def test_the_proof_finds_the_duplicates_that_a_search_finds(text: str) -> None:
    body = text.encode()
    if _has_duplicates(text):
        with pytest.raises(InvalidArgument, match="duplicate key"):
            refuse_duplicates(body)
    else:
        refuse_duplicates(body)


@given(JSON)
def test_a_value_with_all_strings_has_no_duplicate(text: str) -> None:
    body = text.encode()
    if "e999" not in text and has_all_strings(body, msgspec.json.decode(body)):
        assert not _has_duplicates(text)


CHECKS: dict[str, Any] = {
    "checks": [
        {"principal": "user:oidc~u", "action": "read_data", "resource": "table:w/a/b"},
        {
            "principal": {
                "id": "user:oidc~ü\n",
                "roles": ["r", "r"],
                "attributes": {"a": {"b": 1, "": "a"}, "b": [1e3]},
            },
            "action": 'x"y\\',
            "resource": {"type": "table", "warehouse": "w", "path": ["a", "a"], "properties": {"action": "action"}},
            "delegated": True,
            "context": {"api": {"name": "n", "version": 1000}, "arguments": {'"': "\u2028", "\\": {}}},
        },
    ],
    "answer": "indices",
}
QUERY: dict[str, Any] = {
    "input": {
        "context": {
            "identity": {"user": "ü", "groups": ["g", "g"]},
            "softwareStack": {"trinoVersion": "476"},
            "queryId": "q",
        },
        "action": {
            "operation": "SelectFromColumns",
            "resource": {
                "table": {
                    "catalogName": "c", "schemaName": 's"', "tableName": "t\n", "columns": ["a", "b"],
                    "properties": {"a": {"b": 1.5, "c": [None, "a"]}},
                }
            },
        },
    }
}  # fmt: skip


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> tuple[str, bool]:
    """Return one of many spellings of a value, and whether a key stands twice."""
    doubles = draw(st.sampled_from([0.0, 0.0, 0.05]))
    spaces = draw(st.sampled_from([[""], [""], ["", " ", "\n\t"]]))
    escapes = draw(st.sampled_from([0.0, 0.0, 0.3]))
    random = draw(st.randoms(use_true_random=False))
    mixes = draw(st.booleans())
    doubled = False

    def text(value: str) -> str:
        letters = [
            f"\\u{ord(c):04x}" if random.random() < escapes else json.dumps(c, ensure_ascii=False)[1:-1] for c in value
        ]
        return f'"{"".join(letters)}"'

    def write(value: Any) -> str:
        nonlocal doubled
        space = random.choice(spaces)
        if isinstance(value, list):
            return f"[{space}{f',{space}'.join(map(write, value))}]"
        if not isinstance(value, dict):
            return text(value) if isinstance(value, str) else json.dumps(value)
        pairs = list(value.items())
        if mixes:
            random.shuffle(pairs)
        if pairs and random.random() < doubles:
            doubled = True
            pairs.insert(random.randrange(len(pairs) + 1), random.choice(pairs))
        return f"{{{space}{f',{space}'.join(f'{text(key)}{space}:{write(each)}' for key, each in pairs)}}}"

    return write(value), doubled


@pytest.mark.parametrize(("value", "decoder"), [(CHECKS, CHECK_REQUEST), (QUERY, REQUEST)])
@given(data=st.data())
def test_a_typed_body_with_a_key_that_stands_twice_is_refused_in_any_spelling(
    value: dict[str, Any], decoder: msgspec.json.Decoder[Any], data: st.DataObject
) -> None:
    body, doubled = data.draw(spelled(value))
    assert _has_duplicates(body) == doubled
    if doubled:
        with pytest.raises(InvalidArgument, match="duplicate key"):
            decode(body.encode(), decoder, typed=True)
    else:
        assert decode(body.encode(), decoder, typed=True) == decoder.decode(json.dumps(value))


@pytest.mark.parametrize(("value", "decoder"), [(CHECKS, CHECK_REQUEST), (QUERY, REQUEST)])
def test_a_body_as_clients_write_it_proves_itself(value: dict[str, Any], decoder: msgspec.json.Decoder[Any]) -> None:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert b"\\" in body
    assert has_all_strings(body, decoder.decode(body))
    assert not has_all_strings(body + b" ", decoder.decode(body))


TRINO = {
    "input": {
        "context": {"identity": {"user": "u", "groups": ["g"]}, "softwareStack": {"trinoVersion": "476"}},
        "action": {"operation": "FilterTables", "filterResources": [{"function": {"functionName": "f"}}, {}]},
    }
}


@pytest.mark.parametrize("indent", [None, 2])
def test_a_typed_value_proves_its_body_whatever_the_spelling(indent: int | None) -> None:
    body = json.dumps(TRINO, indent=indent).encode()
    assert has_all_strings(body, REQUEST.decode(body))


@pytest.mark.parametrize(
    "body",
    [
        b'{"input":{"context":{"identity":{"user":"u"}},"action":{"operation":"a","operation":"b"}}}',
        b'{"input":{"context":{"identity":{"user":"u","user":"u"}},"action":{"operation":"a","resource":{"function":{}}}}}',
        b'{"input":{"context":{"identity":{"user":"u"}},"action":{"operation":"a"},"newer":{"x":1,"x":2}}}',
    ],
)
def test_a_duplicate_key_is_refused_in_known_and_unknown_fields(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="duplicate key"):
        decode(body, REQUEST, typed=True)


def test_typed_bodies_write_no_default_that_could_stand_for_a_dropped_key() -> None:
    load = b'{"target":"table:w/a","action":"x"}'
    change = b'{"view":"view:w/a","operation":"x"}'
    for body, value in ((load, decode_load(load)), (change, decode_change(change))):
        assert json.loads(msgspec.json.encode(value)) == json.loads(body)
    request = b'{"input":{"context":{"identity":{"user":"u"}},"action":{"operation":"a"}}}'
    assert msgspec.json.encode(REQUEST.decode(request)) == request


def _structs(info: Any) -> Iterator[msgspec.inspect.StructType]:
    """Yield all structs of a type, at any depth."""
    if isinstance(info, msgspec.inspect.StructType):
        yield info
        parts = [field.type for field in info.fields]
    else:
        parts = [getattr(info, name) for name in ("item_type", "value_type") if hasattr(info, name)]
        parts += getattr(info, "types", ())
    for part in parts:
        yield from _structs(part)


@pytest.mark.parametrize("body", [CheckRequest, LoadBody, ChangeBody, OpaRequest])
def test_no_struct_of_a_typed_body_encodes_a_default_at_any_depth(body: type[msgspec.Struct]) -> None:
    structs = list(_structs(msgspec.inspect.type_info(body)))
    assert len(structs) > 3
    for struct in structs:
        for field in struct.fields:
            assert field.required or struct.cls.__struct_config__.omit_defaults, f"{struct.cls}: {field.name}"
            assert not isinstance(field.default, msgspec.Struct), f"{struct.cls}: {field.name}"
            assert field.default_factory in (dict, list, msgspec.NODEFAULT), f"{struct.cls}: {field.name}"


DEEP = {
    "flow": "a: " + "[" * 50_000,
    "mixed flow": "a: " + "{b: [" * 30_000,
    "block": "\n".join(" " * at + "a:" for at in range(1_000)),
    "compact": "- " * 50_000 + "a",
}


@pytest.mark.parametrize("shape", DEEP)
def test_deep_yaml_is_an_error(shape: str) -> None:
    """The loader of the C library recurses without a limit, and would end the process."""
    with pytest.raises(RecursionError, match="deeper than 200 levels"):
        load_yaml(DEEP[shape])
    assert position_of(DEEP[shape], ["a"]) is None


def test_a_key_of_a_merge_has_the_place_where_it_stands() -> None:
    text = "a: &a {x: 1}\nb: &b\n  y: 2\n  x: 3\nc:\n  <<: [*a, *b]\n  z: 4\nd: {<<: *b, x: 5}\n"
    assert position_of(text, ["c", "x"], keys=True) == (1, 8, 2)
    assert position_of(text, ["c", "y"], keys=True) == (3, 3, 2)
    assert position_of(text, ["c", "z"], keys=True) == (7, 3, 2)
    assert position_of(text, ["d", "x"]) == (8, 16, 2)
    assert position_of(text, ["c", "w"], keys=True) == (5, 1, 1)


def test_wide_yaml_is_no_deep_one() -> None:
    assert len(load_yaml("\n".join(["- {a: [1], b: {c: 1}}"] * 1_000))) == 1_000
    assert load_yaml("[" * 200 + "]" * 200)
