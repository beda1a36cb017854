"""Administration of objects and grants: the rules on snapshots, and no gain of rights by any edits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec.grant_worlds import OBJECTS, PRINCIPALS, ask, worlds
from spec.grants import TABULAR, TIERS, Spec

from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import CREATE, DELETE, OWNER, Actor, GrantEdits, ObjectEdits, ObjectPatch
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.model import STORED
from pdp.errors import Forbidden, InvalidArgument
from pdp.facts.objects import SERVER, Grant, GrantAdded, Object, ObjectKey, key_from_text, key_text
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal
from pdp.model.references import parse_principal
from pdp.store.world import format_world, parse_world, read_grant, read_object

RULES = Administration()
X = "user:i~x"
OPERATOR = Actor("ops")
CONTENT = TABULAR | {"namespace"}


def actor(principal: str = X) -> Actor:
    return Actor(principal, parse_principal(principal))


def world(objects: Iterable[Any] = (), grants: Iterable[str] = ()) -> Facts:
    """Facts of entries of `objects`, and of grants as `<principal> <privilege> <object> [id]`."""
    names = ("principal", "privilege", "object", "id")
    entries = [dict(zip(names, text.split(), strict=False)) for text in grants]
    return parse_world({"objects": [*objects], "grants": entries})


def placed(object: str, project: str = "p", **more: Any) -> dict[str, Any]:
    return {"object": object, "parent": f"project:{project}", **more}


def grant(text: str) -> Grant:
    return read_grant(dict(zip(("principal", "privilege", "object", "id"), text.split(), strict=False)), ())


def put(facts: Facts, by: Actor, *entries: Any, rules: Administration = RULES) -> Facts:
    return carry_out(facts, by, ObjectEdits([read_object(entry, ()) for entry in entries]), rules)


def delete(facts: Facts, by: Actor, *objects: str) -> Facts:
    return carry_out(facts, by, ObjectEdits(delete=[*map(key_from_text, objects)]))


def move(facts: Facts, by: Actor, *pairs: tuple[str, str]) -> Facts:
    return carry_out(facts, by, ObjectEdits(move=[(key_from_text(a), key_from_text(b)) for a, b in pairs]))


def carry_out(facts: Facts, by: Actor, edits: ObjectEdits, rules: Administration = RULES) -> Facts:
    return facts.apply(facts.sequence + 1, rules.edit_objects(facts, by, edits))


def change(facts: Facts, by: Actor, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Facts:
    edits = GrantEdits([*map(grant, add)], [*map(grant, remove)])
    return facts.apply(facts.sequence + 1, RULES.edit_grants(facts, by, edits))


def granted(facts: Facts) -> set[str]:
    return {f"{g.principal} {g.privilege} {key_text(g.object)} {g.id}".strip() for g in facts.grants()}


def may(facts: Facts, principal: str, action: str, target: str, id: str = "") -> bool:
    return ask(GrantsEngine(), facts, principal, action, target, id)[0]


# --- grants ---------------------------------------------------------------------------------------------------------


def right(type: str, privilege: str, *, takes_back: bool) -> str:
    """The model's action for it, from the model's description."""
    if privilege == "ownership":
        return "change_ownership"
    own = takes_back and privilege in TIERS and type not in ("project", "server")
    return f"{'revoke' if own else 'grant'}_{privilege}"


@settings(max_examples=200)
@given(st.data())
def test_who_holds_the_right_and_nobody_else_adds_and_removes(data: st.DataObject) -> None:
    given = data.draw(worlds())
    facts = parse_world(given)
    target = data.draw(st.sampled_from([o for o in OBJECTS if STORED[o.partition(":")[0]]]))
    type, principal = target.partition(":")[0], data.draw(st.sampled_from(PRINCIPALS))
    spec = Spec(given, principal, target)
    for privilege in sorted(STORED[type]):
        wanted = Grant(key_from_text(target), privilege, "user:i~new")
        there = facts.apply(1, [GrantAdded(wanted)])
        for before, edits, takes_back in (
            (facts, GrantEdits(add=[wanted]), False),
            (there, GrantEdits(remove=[wanted]), True),
        ):
            try:
                made = RULES.edit_grants(before, actor(principal), edits)
            except Forbidden:
                made = ()
            assert bool(made) == spec.may(right(type, privilege, takes_back=takes_back), target), privilege


@pytest.mark.parametrize(
    ("target", "privilege"), [(o, p) for o in OBJECTS for p in sorted(STORED[o.partition(":")[0]]) if o[-1] != "y"]
)
def test_every_privilege_has_somebody_who_may_and_somebody_who_may_not(target: str, privilege: str) -> None:
    facts = world([placed("warehouse:v"), placed("warehouse:w"), placed("role:r"), placed("role:s"), placed("role:t"),
                   placed("tag:k")], [f"{X} operator server"])  # fmt: skip
    wanted = f"user:i~new {privilege} {target}"
    after = change(facts, actor(), [wanted])
    assert wanted in granted(after)
    assert granted(change(after, actor(), remove=[wanted])) == granted(facts)
    for attempt in ({"add": [wanted]}, {"remove": [wanted]}):
        with pytest.raises(Forbidden, match=f"`user:i~y` lacks .* on {target}"):
            change(after, actor("user:i~y"), **attempt)


def test_an_operator_of_the_deployment_needs_no_right_and_owns_nothing() -> None:
    facts = change(world(), OPERATOR, [f"{X} select table:v/a/t"])
    facts = put(facts, OPERATOR, placed("warehouse:v"), "namespace:v/b")
    assert granted(facts) == {f"{X} select table:v/a/t"}


def test_pass_grants_hands_out_what_is_held_and_takes_nothing_back() -> None:
    facts = world(grants=[f"{X} pass_grants table:v/a/t", f"{X} select table:v/a/t", "role:r modify table:v/a/t"])
    after = change(facts, actor(), ["user:i~y select table:v/a/t", "user:i~y describe table:v/a/t"])
    assert may(after, "user:i~y", "read_data", "table:v/a/t")
    for refused in ("modify", "pass_grants", "manage_grants", "manage_tags", "ownership"):
        with pytest.raises(Forbidden):
            change(facts, actor(), [f"user:i~y {refused} table:v/a/t"])
    for theirs in ("user:i~y select table:v/a/t", f"{X} select table:v/a/t", "role:r modify table:v/a/t"):
        with pytest.raises(Forbidden, match="lacks revoke_"):
            change(after, actor(), remove=[theirs])


@pytest.mark.parametrize("owner", [X, "role:r"])
def test_managed_access_strips_owners_of_granting_as_themselves_and_as_a_role(owner: str) -> None:
    objects = [placed("role:r"), {"object": "namespace:v/a", "managedAccess": True}]
    facts = world(objects, [f"{owner} ownership table:v/a/t", f"{X} assignee role:r"])
    by = [actor("role:r"), actor()] if owner == "role:r" else [actor()]
    for who in by:
        for attempt in ({"add": ["user:i~y select table:v/a/t"]}, {"remove": [f"{owner} ownership table:v/a/t"]}):
            with pytest.raises(Forbidden):
                change(facts, who, **attempt)
        with pytest.raises(Forbidden):
            move(facts, who, ("table:v/a/t", "table:v/b/t"))
        with pytest.raises(Forbidden, match="set_managed_access"):
            put(facts, who, {"object": "namespace:v/a", "managedAccess": False})


def test_the_first_administrator_is_configured() -> None:
    rules = Administration(frozenset({X}))
    for principal, allowed in ((X, True), ("user:i~y", False)):
        try:
            edits = GrantEdits(add=[grant("user:i~y operator server")])
            assert rules.edit_grants(world(), actor(principal), edits) == (GrantAdded(edits.add[0]),)
        except Forbidden:
            assert not allowed
        else:
            assert allowed
    facts = put(world(), actor(), "project:p", placed("warehouse:v"), rules=rules)
    assert granted(facts) == {f"{X} project_admin project:p", f"{X} ownership warehouse:v"}


def test_ownership_changes_hands_in_one_request() -> None:
    facts = world(grants=[f"{X} ownership table:v/a/t"])
    after = change(facts, actor(), ["user:i~y ownership table:v/a/t"], [f"{X} ownership table:v/a/t"])
    assert granted(after) == {"user:i~y ownership table:v/a/t"}
    with pytest.raises(Forbidden):
        change(after, actor(), [f"{X} ownership table:v/a/t"])


def test_what_is_so_already_is_no_change_but_needs_the_right() -> None:
    facts = world(["namespace:v/a"], [f"{X} ownership table:v/a/t"])
    known = grant(f"{X} ownership table:v/a/t")
    assert RULES.edit_grants(facts, actor(), GrantEdits([known, known], [grant("user:i~y select table:v/a/t")])) == ()
    assert RULES.edit_objects(facts, OPERATOR, ObjectEdits([ObjectPatch(("namespace", ("v", "a")))])) == ()
    with pytest.raises(Forbidden):
        RULES.edit_grants(facts, actor("user:i~y"), GrantEdits([known]))


def test_a_grant_is_not_added_and_removed() -> None:
    for by in (OPERATOR, actor()):
        with pytest.raises(InvalidArgument, match="select on table:v/a/t for user:i~y is to be added and removed"):
            change(world(), by, ["user:i~y select table:v/a/t"], ["user:i~y select table:v/a/t"])


# --- creating -------------------------------------------------------------------------------------------------------

PARENTS: dict[str, tuple[str, str]] = {
    "project": ("server", "admin"),
    "warehouse": ("project:p", "create"),
    "namespace": ("warehouse:v", "create"),
    "role": ("project:p", "role_creator"),
    "tag": ("project:p", "tag_creator"),
    "user": ("server", "operator"),
} | dict.fromkeys(TABULAR, ("namespace:v/a", "create"))
NEW: dict[str, Any] = {"project": "project:n", "warehouse": placed("warehouse:n"), "namespace": "namespace:v/n", "role": placed("role:n"),
       "tag": placed("tag:n"), "user": "user:i~n"} | {type: f"{type}:v/a/n" for type in TABULAR}  # fmt: skip


@pytest.mark.parametrize("type", sorted(CREATE))
@pytest.mark.parametrize("who", [X, "role:r"])
def test_who_creates_owns(type: str, who: str) -> None:
    parent, privilege = PARENTS[type]
    facts = world([placed("warehouse:v")], [f"{who} {privilege} {parent}"])
    new = NEW[type]
    name = new if isinstance(new, str) else new["object"]
    after = put(facts, actor(who), new)
    owned = {f"{who} {'project_admin' if type == 'project' else 'ownership'} {name}"} if type != "user" else set()
    assert granted(after) - granted(facts) == owned
    assert granted(put(after, actor(who), new)) == granted(after)
    with pytest.raises(Forbidden, match=f"lacks {CREATE[type]} on {parent}"):
        put(facts, actor("user:i~y"), new)


def test_a_chain_is_created_in_one_request() -> None:
    facts = world([placed("warehouse:v")], [f"{X} create warehouse:v"])
    after = put(facts, actor(), "namespace:v/a", "namespace:v/a/b", "table:v/a/b/t")
    assert granted(after) - granted(facts) == {
        f"{X} ownership {name}" for name in ("namespace:v/a", "namespace:v/a/b", "table:v/a/b/t")
    }


def test_creating_below_an_own_new_object_needs_no_more() -> None:
    facts = world(grants=[f"{X} role_creator project:p"])
    with pytest.raises(Forbidden, match="create_warehouse"):
        put(facts, actor(), placed("role:n"), placed("warehouse:n"))


def test_what_has_grants_already_gets_no_owner() -> None:
    for known in ("user:i~y select table:v/a/n", "user:i~y select table:v/a/n/b/t"):
        facts = world([placed("warehouse:v")], [f"{X} create warehouse:v", known])
        type = "table" if known.endswith("n") else "namespace"
        after = put(facts, actor(), f"{type}:v/a/n")
        assert granted(after) == granted(facts)
        assert not may(after, X, "read_assignments", f"{type}:v/a/n")


def test_another_id_is_another_object() -> None:
    table = {"object": "table:v/a/t", "id": "old"}
    facts = world([placed("warehouse:v"), table], [f"{X} create warehouse:v", "user:i~y ownership table:v/a/t old"])
    new = {"object": "table:v/a/t", "id": "new"}
    with pytest.raises(Forbidden, match="lacks drop"):
        put(facts, actor(), new)
    facts = change(facts, OPERATOR, [f"{X} modify table:v/a/t"])
    after = put(facts, actor(), new)
    assert granted(after) - granted(facts) == {f"{X} ownership table:v/a/t new"}
    for asked in ("", "old", "new"):
        assert not may(after, "user:i~y", "get_metadata", "table:v/a/t", asked)
    assert may(after, X, "read_assignments", "table:v/a/t", "new")
    assert not may(after, X, "read_assignments", "table:v/a/t", "old")


def test_a_first_id_is_the_owners_to_give() -> None:
    facts = world(["table:v/a/t"], [f"{X} modify table:v/a/t", "user:i~y ownership table:v/a/t"])
    named = {"object": "table:v/a/t", "id": "1"}
    with pytest.raises(Forbidden, match="lacks change_ownership"):
        put(facts, actor(), named)
    assert put(facts, actor("user:i~y"), named).object(("table", ("v", "a", "t"))).id == "1"


# --- deleting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", sorted(DELETE))
def test_deleting_takes_all_grants_below(type: str) -> None:
    new = NEW[type]
    name = new if isinstance(new, str) else new["object"]
    holds = "modify" if "modify" in STORED[type] else "ownership"
    facts = world([placed("warehouse:v"), new], [] if type == "user" else [f"{X} {holds} {name}"])
    if type == "user":
        facts = change(facts, OPERATOR, [f"{X} admin server", f"{name} select table:v/a/t"])
    if type in ("warehouse", "namespace"):
        below = name.removeprefix(type)
        facts = change(facts, OPERATOR, [f"user:i~y select table{below}/b/t", f"role:r select namespace{below}/b old"])
    if type == "role":
        facts = change(facts, OPERATOR, [f"{name} select table:v/a/t", f"{name} assignee role:r"])
    with pytest.raises(Forbidden, match=f"lacks {DELETE[type]}"):
        delete(facts, actor("user:i~y"), name)
    after = delete(facts, actor(), name)
    assert granted(after) == ({f"{X} admin server"} if type == "user" else set())
    assert {key_text(o.key) for o in after.objects()} == {"warehouse:v"}
    assert delete(after, OPERATOR, name).index == after.index


def test_a_deleted_role_made_anew_has_nothing() -> None:
    facts = world(
        [placed("role:n")], ["role:n modify table:v/a/t", f"{X} ownership role:n", f"{X} role_creator project:p"]
    )
    after = put(delete(facts, actor(), "role:n"), actor(), placed("role:n"))
    assert not may(after, X, "read_data", "table:v/a/t")


def test_neither_the_server_nor_a_project_in_use_is_deleted() -> None:
    facts = world(["project:p", placed("role:r")], [f"{X} operator server"])
    with pytest.raises(InvalidArgument, match="the server cannot be deleted"):
        delete(facts, actor(), "server")
    with pytest.raises(InvalidArgument, match="project:p still holds role:r"):
        delete(facts, actor(), "project:p")
    assert not delete(facts, actor(), "role:r", "project:p").is_registered(("project", ("p",)))


# --- moving ---------------------------------------------------------------------------------------------------------

OWNED = [f"{X} ownership namespace:v/a", f"{X} ownership namespace:v/b"]


def test_a_moved_subtree_keeps_everything() -> None:
    objects = [{"object": "namespace:v/a/c", "managedAccess": True, "id": "7"}, {"object": "table:v/a/c/t", "id": "8"}]
    inside = [
        "role:r select table:v/a/c/t 8",
        "user:i~y describe namespace:v/a/c",
        "user:i~y modify view:v/a/c/d/w old",
    ]
    facts = world(objects, [*OWNED, *inside])
    after = move(facts, actor(), ("namespace:v/a/c", "namespace:v/b/e/c"))
    expected = format_world(facts)
    for entry in (*expected["objects"], *expected["grants"]):
        entry["object"] = entry["object"].replace("v/a/c", "v/b/e/c")
    moved = parse_world(expected)
    assert format_world(after) == format_world(moved)
    assert after.index.objects == moved.index.objects
    assert after.index.grantees == moved.index.grantees


def test_moving_needs_the_right_at_both_ends() -> None:
    needed = ["manage_grants table:v/a/t", "modify table:v/a/t", "create namespace:v/b"]
    pair = ("table:v/a/t", "table:v/b/t")
    assert move(world(grants=[f"{X} {n}" for n in needed]), actor(), pair)
    for missing in needed:
        with pytest.raises(Forbidden):
            move(world(grants=[f"{X} {n}" for n in needed if n != missing]), actor(), pair)
    managed = world([{"object": "namespace:v/b", "managedAccess": True}], [f"{X} {n}" for n in needed])
    with pytest.raises(Forbidden, match="accept_moved_tabular"):
        move(managed, actor(), pair)


def test_a_new_name_in_the_same_place_is_a_rename() -> None:
    grants = [f"{X} modify table:v/a/t", f"{X} modify namespace:v/b", f"{X} modify warehouse:w"]
    with pytest.raises(Forbidden, match="lacks create_table on namespace:v/a"):
        move(world(grants=grants), actor(), ("table:v/a/t", "table:v/a/u"))
    facts = world(grants=[*grants, f"{X} create namespace:v/a"])
    assert f"{X} modify table:v/a/u" in granted(move(facts, actor(), ("table:v/a/t", "table:v/a/u")))
    assert f"{X} modify warehouse:u" in granted(move(facts, actor(), ("warehouse:w", "warehouse:u")))
    with pytest.raises(Forbidden, match="lacks move on namespace:v/b"):
        move(facts, actor(), ("namespace:v/b", "namespace:v/c"))


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("namespace:v/a", "namespace:v/a/b", "below itself"),
        ("warehouse:v", "warehouse:w", "there already"),
        ("table:v/a/t", "view:v/a/u", "that is a view"),
        ("namespace:v/a", "namespace:w/c", "another warehouse"),
        ("table:v/a/t", "table:v/a/u", "there already"),
        ("namespace:v/a", "namespace:v/b", "there already"),
        ("role:r", "role:s", "a role keeps its name"),
        ("project:p", "project:q", "a project keeps its name"),
        ("user:i~x", "user:i~y", "a user keeps its name"),
        ("server", "warehouse:v", "a server keeps its name"),
        ("table:v/a/t", "table:v/a/t", "named twice"),
    ],
)
def test_moves_that_make_no_sense(source: str, target: str, said: str) -> None:
    facts = world(
        [placed("warehouse:w")], ["role:r select table:v/a/t", "role:r select table:v/a/u", "role:r select view:v/b/u"]
    )
    with pytest.raises(InvalidArgument, match=said):
        move(facts, OPERATOR, (source, target))


def test_a_table_moves_into_the_namespace_of_its_own_name() -> None:
    facts = world(grants=["role:r select table:v/a/t"])
    assert granted(move(facts, OPERATOR, ("table:v/a/t", "table:v/a/t/u"))) == {"role:r select table:v/a/t/u"}


def test_a_refused_move_does_not_tell_what_is_known() -> None:
    facts = world(grants=[f"{X} select table:v/a/t", "user:i~y select table:v/a/secret"])
    said = set()
    for target in ("table:v/a/secret", "table:v/a/nothing"):
        with pytest.raises(Forbidden) as refused:
            move(facts, actor(), ("table:v/a/t", target))
        said.add(str(refused.value))
    assert len(said) == 1


def test_nothing_is_named_twice() -> None:
    key = key_from_text("namespace:v/a")
    other = key_from_text("namespace:v/b")
    for edits in (
        ObjectEdits([ObjectPatch(key), ObjectPatch(key)]),
        ObjectEdits([ObjectPatch(key)], [key]),
        ObjectEdits(delete=[key, key]),
        ObjectEdits(delete=[key], move=[(other, key)]),
        ObjectEdits(move=[(key, other), (other, key)]),
        ObjectEdits([ObjectPatch(other)], move=[(key, other)]),
    ):
        with pytest.raises(InvalidArgument, match="is named twice"):
            carry_out(world(), OPERATOR, edits)


# --- projects -------------------------------------------------------------------------------------------------------


def test_a_configured_project_holds() -> None:
    facts = world([placed("warehouse:v")]).with_projects({"v": "p", "c": "q"})
    for entry in (placed("warehouse:v", "q"), placed("warehouse:c", "p")):
        with pytest.raises(InvalidArgument, match="by configuration"):
            put(facts, OPERATOR, entry)
    put(facts, OPERATOR, placed("warehouse:c", "q"), "warehouse:c2")


@pytest.mark.parametrize(("source", "target"), [("warehouse:v", "warehouse:c"), ("warehouse:c", "warehouse:n")])
def test_a_renamed_warehouse_does_not_change_its_project(source: str, target: str) -> None:
    facts = world([placed("warehouse:v")], [f"{X} modify warehouse:v", f"{X} modify warehouse:c"])
    facts = facts.with_projects({"c": "q"})
    facts = delete(facts, OPERATOR, target)
    for by in (actor(), OPERATOR):
        with pytest.raises(InvalidArgument, match="belongs to `q` by configuration"):
            move(facts, by, (source, target))
    after = move(facts, actor(), ("warehouse:v", "warehouse:n"))
    assert after.parent(("warehouse", ("n",))) == ("project", ("p",))
    assert after.with_projects({"c": "q"})


ADMIN_OF_Q = [f"{X} project_admin project:q"]
UNPLACED: dict[str, tuple[list[Any], list[str], str, str, str]] = {
    "a role that was granted something": ([], ["role:n select table:v/a/t"], "role:n", "read_data", "table:v/a/t"),
    "a role with members": ([], ["user:i~y assignee role:n"], "role:n", "assume", "role:n"),
    "a registered role": (["role:n"], [], "role:n", "assume", "role:n"),
    "a registered warehouse": (["warehouse:v"], [], "warehouse:v", "delete", "warehouse:v"),
    "a warehouse with grants": ([], ["user:i~y select warehouse:v"], "warehouse:v", "delete", "warehouse:v"),
    "a warehouse with a table": ([], ["user:i~y select table:v/a/t"], "warehouse:v", "read_data", "table:v/a/t"),
    "a tag with grants": ([], ["user:i~y apply tag:n"], "tag:n", "apply", "tag:n"),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "known", "name", "action", "target"), UNPLACED.values(), ids=UNPLACED)
def test_what_is_in_use_is_not_taken_into_an_own_project(
    objects: list[Any], known: list[str], name: str, action: str, target: str
) -> None:
    facts = world(objects, [*ADMIN_OF_Q, *known])
    with pytest.raises(Forbidden, match=f"lacks change_ownership on {name}"):
        put(facts, actor(), placed(name, "q"))
    assert not may(facts, X, action, target)
    operator = change(facts, OPERATOR, ["user:i~o operator server"])
    assert granted(put(operator, actor("user:i~o"), placed(name, "q"))) == granted(operator)
    owned = change(facts, OPERATOR, [f"{X} ownership {name}"])
    assert put(owned, actor(), placed(name, "q")).parent(key_from_text(name)) == ("project", ("q",))


def test_a_role_that_configuration_makes_an_administrator_is_not_taken() -> None:
    rules = Administration(frozenset({"role:ops"}))
    with pytest.raises(Forbidden, match="change_ownership on role:ops"):
        put(world(grants=ADMIN_OF_Q), actor(), placed("role:ops", "q"), rules=rules)


def test_a_configured_warehouse_gets_no_owner() -> None:
    facts = world(grants=[f"{X} create project:p"]).with_projects({"v": "p"})
    after = put(facts, actor(), "warehouse:v")
    assert after.is_registered(("warehouse", ("v",)))
    assert granted(after) == granted(facts)
    assert not may(after, X, "read_data", "table:v/a/t")


@pytest.mark.parametrize("id", ["", "new"])
def test_another_project_needs_the_right_to_grant(id: str) -> None:
    facts = world([placed("warehouse:v", id="old")], [*ADMIN_OF_Q, f"{X} modify warehouse:v"])
    elsewhere = placed("warehouse:v", "q") | ({"id": id} if id else {})
    with pytest.raises(Forbidden, match="lacks change_ownership on warehouse:v"):
        put(facts, actor(), elsewhere)
    with pytest.raises(Forbidden, match="lacks create_warehouse on project:q"):
        put(change(facts, OPERATOR, ["user:i~y ownership warehouse:v"]), actor("user:i~y"), elsewhere)
    after = put(change(facts, OPERATOR, [f"{X} ownership warehouse:v"]), actor(), elsewhere)
    assert after.parent(("warehouse", ("v",))) == ("project", ("q",))


def test_a_name_without_a_project_cannot_be_created() -> None:
    for name in ("warehouse:n", "role:n", "tag:n"):
        with pytest.raises(InvalidArgument, match="needs a parent"):
            put(world(grants=ADMIN_OF_Q), actor(), name)
    with pytest.raises(InvalidArgument, match="the server is always there"):
        put(world(), OPERATOR, "server")


def test_namespaces_nest_as_deep_as_anybody_likes() -> None:
    deep = "/".join(["v", *["a"] * 250])
    facts = change(world(), OPERATOR, [f"{X} select table:{deep}/t"])
    facts = put(facts, OPERATOR, f"namespace:{deep}/b")
    assert len(list(facts.subtree(SERVER))) == 253
    assert not list(delete(facts, OPERATOR, "warehouse:v").grants())


# --- no way round ---------------------------------------------------------------------------------------------------

NAMES = ("project:p", "project:q", "warehouse:v", "warehouse:w", "namespace:v/a", "namespace:v/b", "namespace:w/a",
         "table:v/a/t", "view:v/b/t", "table:w/a/t", "role:r", "role:s", "tag:k")  # fmt: skip
KEYS = [key_from_text(name) for name in NAMES]
RIGHTS = ("describe", "select", "modify", "create")
IDS = st.sampled_from((None, None, "1", "2"))


@st.composite
def small_grants(draw: st.DrawFn, principals: tuple[str, ...]) -> Grant:
    key = draw(st.sampled_from(KEYS))
    principal = draw(st.sampled_from([p for p in principals if p != key_text(key)]))
    return Grant(key, draw(st.sampled_from(sorted(STORED[key[0]]))), principal, draw(IDS) or "")


@st.composite
def small_patches(draw: st.DrawFn, named: bool = True) -> ObjectPatch:
    key = draw(st.sampled_from(KEYS))
    project = draw(st.sampled_from((None, "p", "q"))) if key[0] in ("warehouse", "role", "tag") else None
    managed = draw(st.sampled_from((None, None, True, False))) if key[0] in ("warehouse", "namespace") else None
    return ObjectPatch(key, project, managed, draw(IDS) if named else None)


@st.composite
def small_moves(draw: st.DrawFn) -> tuple[ObjectKey, ObjectKey]:
    source = draw(st.sampled_from([key for key in KEYS if key[0] in CONTENT | {"warehouse"}]))
    beside = (*source[1][:-1], draw(st.sampled_from("cw")))
    elsewhere = (source[1][0], draw(st.sampled_from("abn")), draw(st.sampled_from("ct")))
    return source, (source[0], draw(st.sampled_from((beside, elsewhere))))


small_worlds = st.builds(
    lambda objects, theirs, mine: Facts.build(
        "e", 0, [patch.apply_to(Object(patch.key)) for patch in objects], {*theirs, *mine}
    ),
    st.lists(small_patches(), max_size=6, unique_by=lambda patch: patch.key),
    st.lists(small_grants(("user:i~y", "role:r", "role:s")), max_size=4),
    st.lists(small_grants((X,)), min_size=1, max_size=4),
)
any_edits = st.one_of(
    st.builds(GrantEdits, st.lists(small_grants((X, "role:r", "role:s")), min_size=1, max_size=2)),
    st.builds(GrantEdits, st.just(()), st.lists(small_grants((X, "user:i~y", "role:r")), min_size=1, max_size=1)),
    st.builds(ObjectEdits, st.lists(small_patches(), min_size=1, max_size=2, unique_by=lambda patch: patch.key)),
    st.builds(ObjectEdits, st.lists(small_patches(named=False), min_size=1, max_size=1)),
    st.builds(ObjectEdits, delete=st.lists(st.sampled_from(KEYS), min_size=1, max_size=1)),
    st.builds(ObjectEdits, move=st.lists(small_moves(), min_size=1, max_size=1)),
)


def identities(facts: Facts, principal: Principal) -> list[Principal]:
    """Everybody as whom a principal can act."""
    return [principal, *(Principal("role", role) for role in sorted(facts.roles_of(principal)))]


def reachable(facts: Facts, principal: Principal) -> Facts:
    """The facts after a principal granted itself all that the model lets it, again and again."""
    while True:
        more = [
            GrantAdded(wanted)
            for key in KEYS
            for privilege in STORED[key[0]]
            if not facts.node(key).grants.get(principal.id, _NONE).has(privilege, "")
            for wanted in [Grant(key, privilege, principal.id)]
            if any(RULES.may(facts, Actor(p.id, p), right(key[0], privilege, takes_back=False), key)
                   for p in identities(facts, principal))
        ]  # fmt: skip
        if not more:
            return facts
        facts = facts.apply(facts.sequence + 1, more)


class _None:
    def has(self, privilege: str, id: str) -> bool:
        return False


_NONE: Any = _None()


def held(facts: Facts, principal: Principal, key: ObjectKey) -> set[str]:
    """Return the actions of a principal on an object's content, as itself or in a role."""
    engine = GrantsEngine()
    actions = ("assume",) if key[0] == "role" else RIGHTS
    return {a for p in identities(facts, principal) for a in actions if engine.may(p, a, key, facts)}


def follow(where: dict[ObjectKey, ObjectKey], edits: ObjectEdits) -> None:
    """Update the current keys of the initial objects after accepted edits; a deleted object has no key."""
    for gone in edits.delete:
        for key, now in list(where.items()):
            if now == gone or (gone[0] in ("warehouse", "namespace") and now[0] in CONTENT and _is_in(now, gone)):
                del where[key]
    for source, target in edits.move:
        for key, now in where.items():
            if now == source or (source[0] in ("warehouse", "namespace") and now[0] in CONTENT and _is_in(now, source)):
                where[key] = (now[0], (*target[1], *now[1][len(source[1]) :]))


def _is_in(key: ObjectKey, container: ObjectKey) -> bool:
    return len(key[1]) > len(container[1]) and key[1][: len(container[1])] == container[1]


@settings(max_examples=500, deadline=None)
@given(small_worlds, st.lists(any_edits, min_size=1, max_size=8), st.booleans(), st.data())
def test_no_edits_give_what_could_not_be_granted(
    facts: Facts, wanted: list[ObjectEdits | GrantEdits], configured: bool, data: st.DataObject
) -> None:
    """Whatever a principal gets accepted, with what was there before it can do no more than if it had only granted."""
    facts = facts.with_projects({"w": facts.object(("warehouse", ("w",))).project or "q"} if configured else {})
    principal, most = parse_principal(X), reachable(facts, parse_principal(X))
    known = {key for key, _ in facts.subtree(SERVER)} | {key_from_text(name) for name in facts.grantees()}
    where = {key: key for key in known if key[0] in CONTENT | {"warehouse", "role"}}
    accepted = []
    for edits in wanted:
        who = data.draw(st.sampled_from(identities(facts, principal)))
        try:
            if isinstance(edits, GrantEdits):
                made = RULES.edit_grants(facts, Actor(who.id, who), edits)
            else:
                made = RULES.edit_objects(facts, Actor(who.id, who), edits)
                follow(where, edits)
        except (Forbidden, InvalidArgument):
            continue
        accepted.append((who.id, edits))
        facts = facts.apply(facts.sequence + 1, made)
        for key, now in where.items():
            assert held(facts, principal, now) <= held(most, principal, key), (key_text(key), accepted)


def test_every_type_has_an_owner_but_users() -> None:
    assert set(OWNER) == set(CREATE) - {"user"}
    assert all(privilege in STORED[type] for type, privilege in OWNER.items())
