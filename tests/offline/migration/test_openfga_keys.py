"""Files of tuples with unknown keys: a key may take the tuple back, or bind it to a condition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pdp.app.facts import build_pdp
from pdp.errors import InvalidArgument
from pdp.offline.migration.fga_store import read_export
from pdp.offline.migration.openfga import migrate_openfga

EDGES: Final = [
    {"user": "project:p", "relation": "project", "object": "warehouse:w"},
    {"user": "warehouse:w", "relation": "parent", "object": "namespace:n"},
]
GRANT: Final = {"user": "user:oidc~a", "relation": "select", "object": "namespace:n"}
CONDITION: Final = {"name": "in_hours", "context": {"a": 1}}
UNKNOWN_KEYS: Final = {
    "deleted": True, "operation": "TUPLE_OPERATION_DELETE", "Condition": CONDITION, "conditions": [CONDITION],
    "condition ": CONDITION, "condition_name": "in_hours", "expires_at": "2020", "Deleted": None, "tuple_key": {}, "": "",
}  # fmt: skip
FULL: Final = {**GRANT, "condition": CONDITION}


def with_unknown(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield files with an unknown key at each nesting of a tuple and of what holds tuples."""
    more = {key: value}
    for entry in (GRANT | more, {"key": GRANT | more}, {"key": GRANT} | more, FULL | {"condition": CONDITION | more}):
        yield "a.json", json.dumps([*EDGES, entry])
        yield "a.json", json.dumps({"tuples": [*EDGES, entry], "continuation_token": ""})
        yield "a.json", json.dumps({"tuple_keys": [*EDGES, entry]})
        yield "a.jsonl", "\n".join(map(json.dumps, [*EDGES, entry]))
        yield "a.yaml", yaml.safe_dump([*EDGES, entry])
        yield "a.fga.yaml", yaml.safe_dump({"model": "type a\n", "tuples": [*EDGES, entry]})
    yield "a.json", json.dumps({"tuples": [*EDGES, GRANT]} | more)
    yield "a.fga.yaml", yaml.safe_dump({"model": "type a\n", "tuples": [*EDGES, GRANT]} | more)
    columns = {"user_type": "user", "user_id": "a", "relation": "select", "object_type": "namespace", "object_id": "n"}
    for header in ([*columns, key], [key, *columns]):
        yield "a.csv", f"{','.join(header)}\n{','.join(columns.get(each, 'x') for each in header)}\n"


@pytest.mark.parametrize(("key", "value"), UNKNOWN_KEYS.items())
def test_an_unknown_key_beside_a_tuple_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    for number, (name, text) in enumerate(with_unknown(key, value)):
        if name == "a.csv" and key == "condition_name":  # a known column
            continue
        (tmp_path / name).write_text(text)
        with pytest.raises(InvalidArgument) as caught:
            migrate_openfga([tmp_path / name], build_pdp)
        assert f"`{key}` is not known" in str(caught.value), (number, text)
        assert str(caught.value).startswith(f"`{tmp_path / name}`"), (number, text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '[{"condition": {"name": "c"}, "condition": null, "user": "a", "relation": "b", "object": "c"}]', "does not parse"),
        ("a.jsonl", '{"user": "a", "user": "b", "relation": "b", "object": "c"}', "does not parse"),
        ("a.json", json.dumps({"tuples": [GRANT], "tuple_keys": [GRANT]}), "`tuples` and `tuple_keys`"),
        ("a.csv", "user_type,user_id,relation,object_type,object_id,condition_name\nuser,a,select,namespace,n\n", "tuple 1: not"),
        ("a.csv", "user_type,user_id,relation,object_type,object_id\nuser,a,select,namespace,n,in_hours\n", "tuple 1: not"),
        ("a.csv", "user_type,user_id,relation,object_type,object_id,relation\nuser,a,select,namespace,n,modify\n", "twice"),
        ("a.csv", "user_type,user_id,relation,object_type,object_id,condition_context\nuser,a,select,namespace,n,{}\n", "`condition"),
    ],
)  # fmt: skip
def test_a_tuple_of_two_readings_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgument, match=r"a\.(json|jsonl|csv)") as caught:
        migrate_openfga([tmp_path / name], build_pdp)
    assert message in str(caught.value)


def test_the_files_of_tuples_of_a_store_are_read(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(EDGES))
    (tmp_path / "two.yaml").write_text(yaml.safe_dump([GRANT]))
    store = {"name": "s", "model": "type a\n", "tuple_files": ["one.json", "two.yaml"], "tests": []}
    (tmp_path / "a.fga.yaml").write_text(yaml.safe_dump(store))
    assert len(read_export([tmp_path / "a.fga.yaml"]).tuples) == len(EDGES) + 1
