"""Migration of OpenFGA's tuples: Lakekeeper's own store file, and the recorded worlds with OpenFGA's decisions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.generators.fga_export import export_world, fga_id, fga_user
from support.paths import RECORDED

from pdp.app.facts import build_pdp
from pdp.engines.grants.model import ACTIONS
from pdp.errors import InvalidArgument
from pdp.offline.cases.cases import find_cases
from pdp.offline.cases.runner import run_case
from pdp.offline.migration.fga_answers import FgaChecker
from pdp.offline.migration.fga_objects import FgaTuple
from pdp.offline.migration.fga_store import FgaModel, read_export, read_model
from pdp.offline.migration.openfga import migrate_openfga
from pdp.offline.migration.report import Migration
from pdp.store.world import load_world, read_key

STORE = Path(__file__).parent / "lakekeeper-4.9"
GOLDEN = [json.loads(line) for line in (RECORDED / "lakekeeper" / "golden.jsonl").read_text().splitlines()]
WORLDS = sorted({question["world"] for question in GOLDEN})
BOUND_ROLES = {f"managed-00{number}" for number in range(43, 47)}
"""Questions where managed access binds a role here, and does not in OpenFGA."""
EDGES = [
    {"user": "server:s", "relation": "server", "object": "project:p"},
    {"user": "project:p", "relation": "project", "object": "server:s"},
    {"user": "project:p", "relation": "project", "object": "warehouse:w"},
    {"user": "warehouse:w", "relation": "warehouse", "object": "project:p"},
    {"user": "warehouse:w", "relation": "parent", "object": "namespace:n"},
    {"user": "namespace:n", "relation": "namespace", "object": "warehouse:w"},
    {"user": "namespace:n", "relation": "parent", "object": "lakekeeper_table:w/t"},
    {"user": "lakekeeper_table:w/t", "relation": "child", "object": "namespace:n"},
]
GRANT = {"user": "user:oidc~a%40x", "relation": "select", "object": "lakekeeper_table:w/t"}


@cache
def model() -> FgaModel:
    file = STORE / "schema.json"
    return read_model(file, file.read_text())


def migrated(folder: Path, *tuples: Mapping[str, Any], edges: bool = True) -> Migration:
    (folder / "tuples.json").write_text(json.dumps([*(EDGES if edges else ()), *tuples]))
    return migrate_openfga([folder / "tuples.json"], build_pdp)


def world_of(migration: Migration) -> dict[str, Any]:
    world: dict[str, Any] = yaml.safe_load(migration.files["world.yaml"])
    return world


def messages(migration: Migration) -> dict[str, str]:
    return {part.subject: part.message for part in migration.left}


# --- Lakekeeper's own store file ------------------------------------------------------------------------------------


def test_the_assertions_of_lakekeeper_hold_here_but_those_of_newer_models(tmp_path: Path) -> None:
    migration = migrate_openfga([STORE / "store.fga.yaml"], build_pdp, most=2000)
    told = {(subject, message.split(",")[0]) for subject, message in messages(migration).items()}
    assert {one for one in told if one[1] != "the given model has no such relation"} == {
        ("`can_accept_moved_namespace` on `namespace`", "OpenFGA says no"),
        ("`can_accept_moved_namespace` on `warehouse`", "OpenFGA says no"),
    }
    for name, text in migration.files.items():
        (tmp_path / name).write_text(text)
    cases = list(find_cases([tmp_path / "tests.jsonl"]))
    with asyncio.Runner() as runner:
        assert [case.note for case in cases if not run_case(case, build_pdp, runner).passed] == []
    asserted = sum(len(case.data["checks"]) for case in cases if "store.fga.yaml test" in case.note)
    assert (asserted, len(read_export([STORE / "store.fga.yaml"]).assertions)) == (1010, 1012)


def test_the_plain_checker_gives_the_asserted_answers() -> None:
    export = read_export([STORE / "store.fga.yaml"])
    checker = FgaChecker(export.model, export.tuples)
    wrong = [one for one in export.assertions if checker.check(one.user, one.relation, one.object) != one.wanted]
    assert wrong == []


def test_both_languages_of_a_model_mean_the_same() -> None:
    file = STORE / "model.fga"
    assert read_model(file, file.read_text()) == model()


# --- the recorded decisions of OpenFGA ------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
def test_a_migrated_world_decides_as_recorded(tmp_path: Path, world: str) -> None:
    export = export_world(RECORDED / "lakekeeper" / world)
    (tmp_path / "tuples.json").write_text(json.dumps({"tuples": [{"key": one} for one in export.tuples]}))
    (tmp_path / "names.json").write_text(json.dumps(export.names))
    migration = migrate_openfga([tmp_path / "tuples.json"], build_pdp, tmp_path / "names.json")
    assert messages(migration) == {}
    (tmp_path / "world.yaml").write_text(migration.files["world.yaml"])
    cases = [question | {"world": "world.yaml"} for question in GOLDEN if question["world"] == world]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    with asyncio.Runner() as runner:
        outcomes = [run_case(case, build_pdp, runner) for case in find_cases([tmp_path / "cases.json"])]
    assert len(outcomes) == len(cases) > 0
    assert [outcome.note for outcome in outcomes if not outcome.passed] == []


@pytest.mark.parametrize("world", WORLDS)
def test_the_plain_checker_answers_as_recorded(world: str) -> None:
    file = RECORDED / "lakekeeper" / world
    facts = load_world(file)
    checker = FgaChecker(model(), [FgaTuple(**one) for one in export_world(file).tuples])
    asked = 0
    for question in (one for one in GOLDEN if one["world"] == world):
        (check,) = question["checks"]
        key = read_key(check["resource"], ())
        object, relation = fga_id(facts, key), f"can_{check['action']}"
        newer = (
            "accept_moved" in relation
            or "dataset" in question["note"]
            or not checker.knows(relation, object)
            or check["action"] not in ACTIONS[key[0]]
        )
        if newer or question["note"].partition(":")[0] in BOUND_ROLES:
            continue
        user = fga_user(check["principal"])
        answer = checker.check(fga_user(check["actingRole"]) if "actingRole" in check else user, relation, object)
        if "actingRole" in check:
            answer = answer and checker.check(user, "can_assume", check["actingRole"])
        assert [answer] == question["want"], question["note"]
        asked += 1
    assert asked > 20


# --- tuples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps({"tuples": [{"key": one, "timestamp": "x"} for one in (*EDGES, GRANT)]})),
        ("a.json", json.dumps([*EDGES, GRANT])),
        ("a.json", json.dumps({"tuple_keys": [*EDGES, GRANT]})),
        ("a.yaml", yaml.safe_dump([*EDGES, GRANT])),
        ("a.jsonl", "".join(f"{json.dumps(one)}\n" for one in (*EDGES, GRANT))),
        (
            "a.csv",
            "user_type,user_id,user_relation,relation,object_type,object_id\n"
            + "".join(
                ",".join((*one["user"].split(":"), "", one["relation"], *one["object"].split(":"))) + "\n"
                for one in (*EDGES, GRANT)
            ),
        ),
    ],
)
def test_every_form_of_an_export(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    migration = migrate_openfga([tmp_path / name], build_pdp)
    assert migration.left == []
    assert world_of(migration) == {
        "objects": [
            {"object": "namespace:w/n"},
            {"object": "project:p"},
            {"object": "table:w/n/t"},
            {"object": "warehouse:w", "parent": "project:p"},
        ],
        "grants": [{"principal": "user:oidc~a@x", "privilege": "select", "object": "table:w/n/t"}],
    }
    assert yaml.safe_load(migration.files["pdp.yaml"])["warehouses"] == {"w": {"project": "p"}}


def test_roles_with_members_and_managed_access(tmp_path: Path) -> None:
    migration = migrated(
        tmp_path,
        {"user": "project:p", "relation": "project", "object": "role:r"},
        {"user": "user:oidc~a", "relation": "assignee", "object": "role:r"},
        {"user": "role:q#assignee", "relation": "assignee", "object": "role:r"},
        {"user": "role:r#assignee", "relation": "modify", "object": "namespace:n"},
        {"user": "user:*", "relation": "managed_access", "object": "namespace:n"},
        {"user": "role:*", "relation": "managed_access", "object": "namespace:n"},
        {"user": "auth_model_id:1", "relation": "openfga_id", "object": "model_version:4.14"},
    )
    assert (migration.left, migration.counts()["ignored"]) == ([], 1)
    world = world_of(migration)
    assert {"object": "namespace:w/n", "managedAccess": True} in world["objects"]
    assert {"object": "role:r", "parent": "project:p"} in world["objects"]
    assert world["grants"] == [
        {"principal": "role:r", "privilege": "modify", "object": "namespace:w/n"},
        {"principal": "role:q", "privilege": "assignee", "object": "role:r"},
        {"principal": "user:oidc~a", "privilege": "assignee", "object": "role:r"},
    ]


@pytest.mark.parametrize(
    ("one", "message"),
    [
        ({"user": "user:*", "relation": "select", "object": "lakekeeper_table:w/t"}, "nothing is granted to everybody"),
        ({"user": "user:a", "relation": "select", "object": "lakekeeper_table:w/gone"}, "no tuple `parent` gives"),
        ({"user": "user:a", "relation": "can_drop", "object": "lakekeeper_table:w/t"}, "is no privilege"),
        ({"user": "user:a", "relation": "viewer", "object": "document:d"}, "no type `document` is known"),
        ({"user": "team:t#member", "relation": "select", "object": "namespace:n"}, "neither a user nor a role"),
        (
            {"user": "user:a", "relation": "select", "object": "namespace:n", "condition": {"name": "in_hours"}},
            "the condition `in_hours`",
        ),
        ({"user": "namespace:m", "relation": "parent", "object": "namespace:n"}, "has 2 parents"),
        ({"user": "role:r#assignee", "relation": "assignee", "object": "role:r"}, "cannot contain itself"),
    ],
)
def test_what_has_no_counterpart_is_left(tmp_path: Path, one: dict[str, Any], message: str) -> None:
    migration = migrated(tmp_path, one, GRANT)
    assert any(message in part.message for part in migration.left), migration.left
    assert all(grant["principal"] == "user:oidc~a@x" for grant in world_of(migration)["grants"])


def test_remarks(tmp_path: Path) -> None:
    migration = migrated(
        tmp_path,
        {"user": "user:a", "relation": "select", "object": "namespace:n"},
        {"user": "user:*", "relation": "managed_access", "object": "warehouse:w"},
    )
    notes = {part.subject: part.message for part in migration.parts if part.status == "note"}
    assert notes["ids of users"] == "1 grants to users without `<idp>~`: taken as users of `oidc`"
    assert "is set for user:* only" in notes["managed access of `warehouse:w`"]
    assert "no model is given" in notes["the model"]


def test_ids_as_names_are_left(tmp_path: Path) -> None:
    uuid = "8f0c9b1e-3f0a-4d5c-9c68-0d8f5b7a1c11"
    edges = ("warehouse:w", "parent", f"namespace:{uuid}"), (f"namespace:{uuid}", "namespace", "warehouse:w")
    (left,) = migrated(tmp_path, *(dict(zip(("user", "relation", "object"), edge, strict=True)) for edge in edges)).left
    assert left.message == f"`namespace:{uuid}` and 0 more keep ids as names: give their names by `--names`"


def test_two_objects_of_one_name_are_left(tmp_path: Path) -> None:
    (tmp_path / "names.yaml").write_text("m: n\n")
    twin = {"user": "warehouse:w", "relation": "parent", "object": "namespace:m"}
    grant = {"user": "user:oidc~b", "relation": "modify", "object": "namespace:m"}
    (tmp_path / "tuples.json").write_text(json.dumps([*EDGES, twin, grant]))
    migration = migrate_openfga([tmp_path / "tuples.json"], build_pdp, tmp_path / "names.yaml")
    left = {part.subject for part in migration.left if "another object has the same name" in part.message}
    assert left >= {"`namespace:n`", "`namespace:m`"}
    assert world_of(migration)["grants"] == []


@pytest.mark.parametrize("name", ["page.json", "page.yaml", "store.fga.yaml"])
def test_one_page_of_several_is_refused(tmp_path: Path, name: str) -> None:
    page = "page.json" if name == "store.fga.yaml" else name
    (tmp_path / page).write_text(json.dumps({"tuples": EDGES, "continuation_token": "x"}))
    (tmp_path / "rest.json").write_text(json.dumps([GRANT]))
    if name != page:
        (tmp_path / name).write_text(yaml.safe_dump({"tuple_file": page, "model": "type a"}))
    for files in ([name], [name, "rest.json"], ["rest.json", name]):
        with pytest.raises(InvalidArgument, match="is one page of several"):
            migrate_openfga([tmp_path / file for file in files], build_pdp)


NAMES: dict[str, tuple[str, str]] = {
    "a boolean": ("n: yes", "is a text"),
    "a number": ("n: 7", "is a text"),
    "null": ("n:", "is a text"),
    "a mapping": ("n: {a: b}", "is a text"),
    "an empty name": ("n: ''", "is a text"),
    "an empty list": ("n: []", "is a text"),
    "a list of numbers": ("n: [1]", "is a text"),
    "an id that is a number": ("7: n", "is a text"),
    "an id that is a boolean": ("on: n", "is a text"),
    "an unknown id": ("x: n", "no object of the export"),
    "an unknown type": ("table:n: n", "no object of the export"),
    "two ids of one object": ("{n: a, 'namespace:n': b}", "both name `namespace:n`"),
    "one id twice": ("n: a\nn: b", "cannot read"),
    "a path of another tree": ("n: [sales, x]", "the tree has it at `namespace:w/x`"),
    "a path that is too long": ("n: [w, n]", "the tree has it at"),
    "a list for a warehouse": ("w: [w]", "a list of parts is for a namespace"),
}


@pytest.mark.parametrize("form", NAMES)
def test_names_of_another_form_are_refused(tmp_path: Path, form: str) -> None:
    text, message = NAMES[form]
    (tmp_path / "tuples.json").write_text(json.dumps([*EDGES, GRANT]))
    (tmp_path / "names.yaml").write_text(f"{text}\n")
    with pytest.raises(InvalidArgument) as caught:
        migrate_openfga([tmp_path / "tuples.json"], build_pdp, tmp_path / "names.yaml")
    assert message in str(caught.value)


MODELS: dict[str, tuple[str, str]] = {
    "empty language": ("model.fga", ""),
    "comments alone": ("model.fga", "# type a\n"),
    "no types": ("model.fga", "model\n  schema 1.1\n"),
    "empty definitions": ("model.json", '{"schema_version": "1.1", "type_definitions": []}'),
    "definitions of another shape": ("model.json", '{"type_definitions": {}}'),
    "null": ("model.json", '{"type_definitions": null}'),
    "empty list of modules": ("fga.mod", ""),
    "modules without contents": ("fga.mod", "schema: '1.2'\ncontents: []\n"),
    "modules in one text": ("fga.mod", "schema: '1.2'\ncontents: a.fga\n"),
    "a missing module": ("fga.mod", "schema: '1.2'\ncontents: [a.fga, none.fga]\n"),
    "unknown keys of modules": ("fga.mod", "contents: [a.fga]\nmore: [b.fga]\n"),
    "no YAML": ("fga.mod", "contents: [a.fga\n"),
    "empty model of a store": ("store.fga.yaml", "model: ''\ntuples: []\n"),
    "no model of a store": ("store.fga.yaml", "model:\ntuples: []\n"),
    "model of a store, as a mapping": ("store.fga.yaml", "model: {type_definitions: []}\ntuples: []\n"),
    "files of models": ("store.fga.yaml", "model_file: [a.fga]\ntuples: []\n"),
}


@pytest.mark.parametrize("form", MODELS)
def test_an_empty_or_broken_model_is_refused(tmp_path: Path, form: str) -> None:
    name, text = MODELS[form]
    (tmp_path / "tuples.json").write_text(json.dumps([*EDGES, GRANT]))
    (tmp_path / "a.fga").write_text("module a\ntype user\n")
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgument):
        migrate_openfga([tmp_path / "tuples.json", tmp_path / name], build_pdp)


@pytest.mark.parametrize("text", ["contents:\n  - a.fga\n  - b.fga # the rest\n", "contents: ['a.fga', \"b.fga\"]\n"])
def test_every_module_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.fga").write_text("module a\ntype user\n  relations\n    define x: [user]\n")
    (tmp_path / "b.fga").write_text("module b\ntype role\n  relations\n    define y: [user]\n")
    (tmp_path / "fga.mod").write_text(f"schema: '1.2'\n{text}")
    assert read_export([tmp_path / "fga.mod"]).model.keys() == {"user", "role"}


def test_assertions_that_are_no_checks_are_left(tmp_path: Path) -> None:
    store = {
        "tuples": [*EDGES, GRANT],
        "tests": [
            {"name": "a", "check": [{"user": "user:a", "object": "namespace:n", "assertions": {"modify": False}}]},
            {"name": "b", "tuples": [GRANT]},
            {"name": "c", "list_objects": [{"user": "user:a", "type": "namespace"}]},
            {
                "name": "d",
                "check": [{"user": "role:x#assignee", "object": "namespace:n", "assertions": {"can_delete": False}}],
            },
            {
                "name": "e",
                "check": [{"users": ["user:oidc~b"], "object": "namespace:n", "assertions": {"can_delete": False}}],
            },
        ],
    }
    (tmp_path / "store.fga.yaml").write_text(yaml.safe_dump(store))
    migration = migrate_openfga([tmp_path / "store.fga.yaml"], build_pdp)
    assert [part.message.split(":")[0] for part in migration.left] == [
        "has tuples of its own",
        "`list_objects` has no counterpart in policy tests",
        "`modify` is no action on a namespace",
        "nobody asks as `role",
    ]
    (case,) = (json.loads(line) for line in migration.files["tests.jsonl"].splitlines())
    assert (case["checks"], case["want"]) == (
        [{"principal": "user:oidc~b", "action": "delete", "resource": "namespace:w/n"}],
        [False],
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{}", "is no export"),
        ("a.json", "[]", "no tuples found"),
        ("a.json", '[{"user": "a"}]', "tuple 1: not `user`, `relation` and `object`"),
        ("a.json", json.dumps([{**GRANT, "condition": ["x"]}]), "a.json`, tuple 1: `condition` is no condition"),
        (
            "a.json",
            json.dumps([GRANT, {**GRANT, "condition": {"name": 1}}]),
            "a.json`, tuple 2: `condition` is no condition",
        ),
        ("a.json", json.dumps({"tuples": [{"key": []}]}), "a.json`, tuple 1: not `user`, `relation` and `object`"),
        ("a.yaml", "- key: x\n", "a.yaml`, tuple 1: not `user`, `relation` and `object`"),
        ("a.csv", "user_type,user_id,relation,object_type,object_id\nuser,a\n", "a.csv`, tuple 1: not `user`"),
        ("a.json", "{", "does not parse"),
        ("a.yaml", "{", "does not parse"),
        ("a.csv", "a,b\n1,2\n", "has no column"),
        ("a.fga", "type a\n  relations\n    define x: [user with c]\n", "conditions are not read"),
        ("a.fga", "type a\n  relations\n    define x: y or\n", "line 3: a relation is missing"),
        ("a.fga", "condition c(x: int) {\n", "line 1: `condition c(x: int) {` is not read"),
        ("a.json", '{"type_definitions": [{"type": "a", "relations": {"x": {"odd": 1}}}]}', "unknown rule"),
        ("none.json", None, "cannot read"),
    ],
)
def test_bad_input(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        migrate_openfga([tmp_path / name], build_pdp)
    assert message in str(caught.value)


STORE_FILE: Mapping[str, Any] = {
    "tuples": [{**GRANT, "condition": {"name": "c"}}, {"key": GRANT}],
    "model": "type a\n",
    "tests": [{"name": "t", "check": [
        {"users": ["user:a"], "objects": ["namespace:n"], "assertions": {"can_delete": True}, "context": {}}]}],
}  # fmt: skip
ODD: tuple[Any, ...] = (None, "x", 5, ["x"], [[]], {"a": "b"}, {"name": []})


def _paths(node: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all nodes."""
    yield ()
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from ((key, *below) for below in _paths(value))


@pytest.mark.parametrize("path", list(_paths(STORE_FILE)), ids=lambda path: ".".join(map(str, path)))
def test_a_store_file_of_another_shape_is_refused_with_its_place(tmp_path: Path, path: Sequence[Any]) -> None:
    for odd in ODD:
        data = {"": json.loads(json.dumps(STORE_FILE))}
        node: Any = data
        for key in ("", *path)[:-1]:
            node = node[key]
        node[("", *path)[-1]] = odd
        (tmp_path / "a.json").write_text(json.dumps(data[""]))
        try:
            migrate_openfga([tmp_path / "a.json"], build_pdp)
        except InvalidArgument as error:
            assert "a.json" in str(error) or str(error).startswith("no tuples found"), (odd, error)  # noqa: PT017


LONE_EDGES = {
    "child of a namespace": ("lakekeeper_table:w/u", "child", "namespace:n", ["lakekeeper_table:w/u"]),
    "namespace of a namespace": ("namespace:m", "child", "namespace:n", ["namespace:m"]),
    "namespace of a warehouse": ("namespace:m", "namespace", "warehouse:w", ["namespace:m"]),
    "warehouse of a project": ("warehouse:v", "warehouse", "project:p", ["warehouse:v"]),
    "project of a server": ("project:q", "project", "server:s", ["project:q"]),
    "namespace that lists": ("lakekeeper_view:w/t", "child", "namespace:x", ["lakekeeper_view:w/t", "namespace:x"]),
    "warehouse that lists": ("namespace:m", "namespace", "warehouse:x", ["namespace:m", "warehouse:x"]),
}  # fmt: skip


@pytest.mark.parametrize("edge", LONE_EDGES)
def test_an_object_that_only_another_one_lists_is_left_with_its_name(tmp_path: Path, edge: str) -> None:
    user, relation, object, objects = LONE_EDGES[edge]
    migration = migrated(tmp_path, {"user": user, "relation": relation, "object": object})
    left = messages(migration)
    assert [one for one in objects if f"`{one}`" not in left] == []
    assert all("gives its parent" in left[f"`{one}`"] for one in objects)
    assert not any(one.partition(":")[2] == entry["object"].partition(":")[2]
                   for one in objects for entry in world_of(migration)["objects"])  # fmt: skip


def test_an_object_with_both_edges_is_not_left(tmp_path: Path) -> None:
    assert migrated(tmp_path).left == []
