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


LISTED: Final = [
    {"user": "warehouse:w", "relation": "warehouse", "object": "project:p"},
    {"user": "namespace:n", "relation": "namespace", "object": "warehouse:w"},
]


@pytest.mark.parametrize("user", [
    "my_idp~bob", "OIDC~bob", "okta.com~bob", "my_idp%7Ebob", "OIDC%7Ebob", "a b~c", "~bob", "oidc~", "oidc~%00", "oidc~a%0Ab",
    "oidc~a%C2%85", "a%07b",
])  # fmt: skip
def test_a_user_of_no_provider_here_is_left(tmp_path: Path, user: str) -> None:
    """Such a user became a user of `--idp`, whom OpenFGA denies."""
    file = tmp_path / "a.json"
    file.write_text(json.dumps([*EDGES, *LISTED, {**GRANT, "user": f"user:{user}"}]))
    migration = migrate_openfga([file], build_pdp)
    assert "bob" not in migration.files["world.yaml"]
    assert [part.place for part in migration.left if "provider" in part.message] == [f"{file}#5"]


@pytest.mark.parametrize("user", ["bob", "oidc~bob", "oidc%7Ebob", "google~my_idp~bob", "oidc~b@x.example"])
def test_a_user_of_a_provider_is_granted(tmp_path: Path, user: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps([*EDGES, *LISTED, {**GRANT, "user": f"user:{user}"}]))
    assert "user:" in migrate_openfga([file], build_pdp).files["world.yaml"]


def test_an_object_whose_type_the_model_lacks_may_have_a_name(tmp_path: Path) -> None:
    model = {"schema_version": "1.1", "type_definitions": [{"type": "user"}]}
    for name, data in (("t.json", [*EDGES, GRANT]), ("m.json", model), ("n.json", {"namespace:n": "sales"})):
        (tmp_path / name).write_text(json.dumps(data))
    migration = migrate_openfga([tmp_path / "t.json", tmp_path / "m.json"], build_pdp, names=tmp_path / "n.json")
    assert migration.left
    (tmp_path / "n.json").write_text(json.dumps({"namespace:x": "sales"}))
    with pytest.raises(InvalidArgument, match="no object of the export"):
        migrate_openfga([tmp_path / "t.json", tmp_path / "m.json"], build_pdp, names=tmp_path / "n.json")
