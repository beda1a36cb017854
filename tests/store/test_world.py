"""World files: what they mean, what may not stand in them, and where an error is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.errors import InvalidArgument, PolicyError
from pdp.facts.objects import Grant, key_of, key_text
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal
from pdp.model.references import parse_resource
from pdp.store.world import load_world, parse_world

ALICE = Principal("user", "oidc~alice")
WORLD: dict[str, Any] = {
    "objects": [
        "project:p1",
        {"object": "warehouse:lake", "parent": "project:p1", "managedAccess": True},
        {"object": "namespace:lake/sales", "parent": "warehouse:lake", "managedAccess": True},
        {"object": "role:analyst", "parent": "project:p1"},
        {"object": "project:p2", "parent": "server"},
    ],
    "grants": [
        {"principal": "user:oidc~alice", "privilege": "select", "object": "namespace:lake/sales", "id": "7"},
        {"principal": "user:oidc~alice", "privilege": "assignee", "object": "role:analyst"},
        {"principal": "role:analyst", "privilege": "create", "object": "project:p1"},
    ],
    "seen": ["table:lake/sales/orders", 1],
}


def grant(**fields: Any) -> dict[str, Any]:
    return {"grants": [{"principal": "user:oidc~a", "privilege": "select", "object": "table:w/n/t"} | fields]}


def without(field: str) -> dict[str, Any]:
    [entry] = grant()["grants"]
    return {"grants": [{name: value for name, value in entry.items() if name != field}]}


def entry(**fields: Any) -> dict[str, Any]:
    return {"objects": ["project:p", fields]}


WRONG: list[tuple[Any, str]] = [
    ([], "must be a mapping"),
    (None, "must be a mapping"),
    ({"object": []}, "object: unknown key"),
    ({"objects": {}}, "objects: must be a list, not a mapping"),
    ({"grants": "all"}, "grants: must be a list, not a text"),
    ({"grants": ["all"]}, "grants[0]: must be a mapping"),
    (grant(to="x"), "grants[0].to: unknown key"),
    (without("principal"), "grants[0].principal: is missing"),
    (without("privilege"), "grants[0].privilege: is missing"),
    (without("object"), "grants[0].object: is missing"),
    (grant(privilege=7), "grants[0].privilege: must be a text that is not empty, not a number"),
    (grant(privilege=True), "grants[0].privilege: must be a text that is not empty, not a boolean"),
    (grant(privilege="read_data"), "grants[0].privilege: `read_data` cannot be granted on a table"),
    (grant(privilege="create"), "grants[0].privilege: `create` cannot be granted on a table"),
    (grant(object="user:oidc~a"), "grants[0].privilege: `select` cannot be granted on a user"),
    (grant(object="server"), "grants[0].privilege: `select` cannot be granted on a server"),
    (grant(object="table:w/n/t@main"), "grants[0].object: `table:w/n/t@main` names a ref"),
    (grant(object="table:w//t"), "grants[0].object: "),
    (grant(object="table:w/n/%zz"), "grants[0].object: "),
    (grant(object="cube:w/n"), "grants[0].object: "),
    (grant(object="content:w/n/t"), "grants[0].object: a content is not an object of grants"),
    (grant(object="table_or_view:w/n/t"), "grants[0].object: a table_or_view is not an object of grants"),
    (grant(object="reference:w@main"), "grants[0].object: a reference is not an object of grants"),
    (grant(principal="oidc~a"), "grants[0].principal: "),
    (grant(principal="user:a"), "grants[0].principal: "),
    (grant(principal="anonymous"), "grants[0].principal: nothing can be granted to `anonymous`"),
    (grant(principal="role:r", privilege="assignee", object="role:r"), "grants[0].principal: `role:r` cannot contain"),
    (grant(id=""), "grants[0].id: must be a text that is not empty"),
    (grant(id=None), "grants[0].id: must be a text that is not empty, not null"),
    ({"objects": [7]}, "objects[0]: must be a mapping with id, managedAccess, object, parent, not a number"),
    ({"objects": [None]}, "objects[0]: must be a mapping with id, managedAccess, object, parent, not null"),
    ({"objects": ["cube:x"]}, "objects[0]: "),
    ({"objects": ["role:r", {"object": "role:r"}]}, "objects[1]: `role:r` is registered twice"),
    (entry(parent="project:p"), "objects[1].object: is missing"),
    (entry(object="role:r", owner="x"), "objects[1].owner: unknown key"),
    (entry(object="role:r", parent="warehouse:w"), "objects[1].parent: `warehouse:w` cannot be the parent of a role"),
    (entry(object="role:r", parent="nowhere"), "objects[1].parent: "),
    (entry(object="warehouse:w", parent="server"), "objects[1].parent: `server` cannot be the parent of a warehouse"),
    (entry(object="project:q", parent="project:p"), "objects[1].parent: `project:p` cannot be the parent of a project"),
    (entry(object="server", parent="server"), "objects[1].parent: `server` cannot be the parent of a server"),
    (entry(object="namespace:w/a/b", parent="namespace:w/x"), "objects[1].parent: `namespace:w/x` is not the parent"),
    (entry(object="table:w/a/t", parent="warehouse:w"), "objects[1].parent: `warehouse:w` is not the parent"),
    (entry(object="table:w/a/t", managedAccess=True), "objects[1].managedAccess: a table has no managed access"),
    (entry(object="warehouse:w", managedAccess="yes"), "objects[1].managedAccess: must be true or false"),
]


@pytest.mark.parametrize(("world", "message"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_entry_is_named(world: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        parse_world(world)
    assert str(raised.value).startswith(message)


def check_facts(facts: Facts) -> None:
    lake, sales = ("warehouse", ("lake",)), ("namespace", ("lake", "sales"))
    assert facts.parent(lake) == ("project", ("p1",))
    assert facts.parent(("warehouse", ("other",))) is None
    assert {registered.key for registered in facts.objects() if registered.managed} == {lake, sales}
    assert list(facts.grants_on(sales)) == [Grant(sales, "select", ALICE.id, "7")]
    assert facts.roles_of(ALICE) == {"analyst"}
    assert {grant.object for grant in facts.grants_to(ALICE.id)} == {sales, ("role", ("analyst",))}


@pytest.mark.parametrize(("name", "write"), [("w.json", json.dumps), ("w.yaml", yaml.safe_dump), ("w.yml", json.dumps)])
def test_a_file_is_read(tmp_path: Path, name: str, write: Callable[[Any], str]) -> None:
    file = tmp_path / name
    file.write_text(write(WORLD))
    facts = load_world(file)
    check_facts(facts)
    assert (facts.epoch, facts.sequence) == (parse_world(WORLD).epoch, 0)


def test_the_epoch_is_of_the_content_and_not_of_its_order() -> None:
    turned = {section: list(reversed(entries)) for section, entries in WORLD.items()}
    epoch = parse_world(WORLD).epoch
    assert epoch == parse_world(turned).epoch == parse_world({**WORLD, "seen": []}).epoch
    assert parse_world({**WORLD, "grants": WORLD["grants"][1:]}).epoch != epoch
    assert parse_world({**WORLD, "objects": WORLD["objects"][:3]}).epoch != epoch


def test_a_grant_given_twice_counts_once() -> None:
    twice = parse_world({"grants": grant()["grants"] * 2})
    assert twice.epoch == parse_world(grant()).epoch
    assert len(list(twice.grants_on(("table", ("w", "n", "t"))))) == 1


INDENTED = (
    '{\n "objects": [],\n "grants": [\n  {"principal": "user:oidc~a",\n   "privilege": "fly",\n   "object": "server"}]}'
)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("w.json", INDENTED, ":5:17: grants[0].privilege: `fly` cannot be granted on a server"),
        ("w.json", INDENTED.replace("oidc~a", r"oidc~\ud83d\ude00"), ":1:1: grants[0].privilege: `fly`"),
        ("w.json", "{\n 'a'", ":2:2: not JSON: "),
        ("w.json", '{"grants": [], "grants": []}', ":1:1: key `grants` stands twice"),
        ("w.json", "[" * 100_000, ":1:1: not JSON: "),
        ("w.json", "[" + "1" * 5000 + "]", ":1:1: not JSON: "),
        ("w.json", "[]", ":1:1: must be a mapping"),
        ("w.yaml", "", ":1:1: must be a mapping"),
        ("w.yaml", "objects:\n- object: role:r\n  parent: tag:t\n", ":3:11: objects[0].parent: `tag:t` cannot be"),
        ("w.yaml", "objects: []\nobjects: []\n", ":2:1: not YAML: key `objects` stands twice"),
        ("w.yaml", "objects: [\n", ":2:1: not YAML: "),
        ("w.yaml", "? [a]\n: b\n", ":1:3: not YAML: a key must be a text"),
        ("w.yaml", "1: b\n", ":1:4: 1: unknown key"),
        ("w.yaml", "seen: 2024-13-45\n", ":1:1: not YAML: "),
        ("w.yaml", "seen: !!python/object:os.system {}\n", ":1:7: not YAML: "),
        ("w.yaml", "\x00", ":1:1: not YAML: "),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(PolicyError) as raised:
        load_world(file)
    assert str(raised.value).startswith(f"{file}{message}")
    assert raised.value.place.file == str(file)


def test_a_missing_file_or_one_in_another_encoding(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot read the world"):
        load_world(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'{"seen": ["\xe9"]}')
    with pytest.raises(PolicyError, match="cannot read the world"):
        load_world(tmp_path / "latin.json")


@pytest.mark.parametrize(
    "text",
    ["server", "project:p", "warehouse:a%2Fb", "role:a/b@c", "user:oidc~a:b/c", "tag:t%40", "namespace:w/a",
     "table:w/a%40b/t", "view:w/a/b/c"],
)  # fmt: skip
def test_a_key_and_its_text(text: str) -> None:
    assert key_text(key_of(parse_resource(text))) == text
    assert key_of(parse_resource("table:w/a/t@main")) == key_of(parse_resource("table:w/a/t"))


# --- facts --------------------------------------------------------------------------------------------------------


def roles(*pairs: str) -> Facts:
    """Facts of memberships written as `<member> <role>`."""
    entries = [pair.split() for pair in pairs]
    return parse_world(
        {"grants": [{"principal": who, "privilege": "assignee", "object": f"role:{role}"} for who, role in entries]}
    )


def test_memberships_go_through_roles_and_cycles_end() -> None:
    facts = roles("user:oidc~alice a", "role:a b", "role:b c", "role:c a", "role:d a")
    assert facts.roles_of(ALICE) == {"a", "b", "c"}
    assert facts.roles_of(Principal("role", "a")) == {"a", "b", "c"}
    assert facts.can_assume(ALICE, "c")
    assert not facts.can_assume(ALICE, "d")
    assert not facts.can_assume(Principal("anonymous", ""), "a")
    assert facts.can_assume(Principal("role", "x"), "x")


def test_empty_facts_know_nobody() -> None:
    facts = Facts.empty()
    assert (facts.epoch, facts.sequence, list(facts.grants())) == ("none", 0, [])
    assert facts.roles_of(ALICE) == frozenset()


def test_what_is_derived_stays_bounded() -> None:
    facts = roles(*(f"user:oidc~u{n} a" for n in range(30_000)))
    for n in range(30_000):
        assert facts.roles_of(Principal("user", f"oidc~u{n}")) == {"a"}
        facts.roles_of(Principal("user", f"oidc~stranger{n}"))
    assert 0 < len(facts.role_memo) <= 10_000
