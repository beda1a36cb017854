"""The grants engine: what it applies to, which grant it names, ids, Nessie's words, configuration, explanations."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec.grant_worlds import PRINCIPALS, ask, group, resource_of, worlds

from pdp.engines.engine import ABSTAIN, PERMIT, EngineQuestion
from pdp.engines.grants import engine as engine_module
from pdp.engines.grants.effective_access import EffectiveAccess
from pdp.engines.grants.engine import GrantsEngine
from pdp.engines.grants.model import ACTIONS, MODEL, NESSIE, STORED
from pdp.engines.grants.principal_grants import PrincipalGrants
from pdp.engines.grants.rules import RULES, RelationDefinition, evaluate
from pdp.facts.objects import BIT, ObjectKey, key_from_text
from pdp.facts.snapshot import Facts
from pdp.model import vocabulary
from pdp.model.answer import Trace
from pdp.model.question import Principal, Question, Resource
from pdp.model.references import parse_principal
from pdp.model.vocabulary import PRIVILEGES
from pdp.store.world import parse_world

ENGINE = GrantsEngine()
ALICE = "user:oidc~alice"
TABLE = "table:lake/sales/eu/orders"
OBJECTS = [
    {"object": "warehouse:lake", "parent": "project:p1"},
    {"object": "role:analyst", "parent": "project:p1"},
    {"object": "role:auditor", "parent": "project:p1"},
    {"object": "tag:pii", "parent": "project:p1"},
]


def world(*grants: str) -> Facts:
    """Facts of grants written as `<principal> <privilege> <object> [<id>]`; `alice` is short for her id."""
    entries = []
    for grant in grants:
        principal, privilege, target, *id = grant.replace("alice", ALICE).split()
        entries.append(
            {"principal": principal, "privilege": privilege, "object": target} | ({"id": id[0]} if id else {})
        )
    return parse_world({"objects": OBJECTS, "grants": entries})


def leaves(rule: RelationDefinition) -> list[RelationDefinition]:
    return [leaf for part in rule.parts for leaf in leaves(part)] if rule.parts else [rule]


# --- the table ----------------------------------------------------------------------------------------------------


def test_the_table_has_the_actions_of_the_vocabulary() -> None:
    assert ACTIONS == vocabulary.CATALOG_ACTIONS
    assert set(NESSIE) == vocabulary.CONTENT_CHECKS
    for type, aliases in vocabulary.ALIASES.items():
        assert set(aliases.values()) <= ACTIONS[type]


def test_every_name_in_a_rule_exists() -> None:
    everywhere = {relation for rules in RULES.values() for relation in rules}
    for type, rules in RULES.items():
        for relation, rule in rules.items():
            evaluate(type, 0, None, False).witness(relation)
            for leaf in leaves(rule):
                assert leaf.name in everywhere if leaf.kind in ("up", "down") else leaf.kind in ("stored", "own")


def test_every_stored_privilege_has_a_relation_and_a_strength() -> None:
    for type, stored in STORED.items():
        assert {p for p in stored if RelationDefinition("stored", p) in leaves(RULES[type][p])} == stored
        assert stored <= set(PRIVILEGES)
    assert len(MODEL) == 11


@pytest.mark.parametrize(
    ("action", "type", "wanted"),
    [
        ("read_data", "table", True),
        ("read_data", "view", False),
        ("select", "view", True),
        ("read_grants", "table", False),
        ("READ_ENTITY_VALUE", "content", True),
        ("CREATE_ENTITY", "namespace", True),
        ("READ_ENTITY_VALUE", "table_or_view", False),
        ("VIEW_REFERENCE", "reference", False),
        ("READ_CONTENT_KEY", "reference", False),
        ("READ_REPOSITORY_CONFIG", "repository_config", False),
        ("trino:SelectFromColumns", "table", False),
        ("read_data", "nonsense", False),
    ],
)
def test_applies(action: str, type: str, wanted: bool) -> None:
    assert ENGINE.applies(action, type) is wanted


def test_what_does_not_apply_is_silent() -> None:
    facts = world(f"alice ownership {TABLE}")
    assert ask(ENGINE, facts, ALICE, "read_grants", TABLE) == (False, None)
    assert ENGINE.explain(group(ALICE, "nonsense", resource_of(TABLE)), resource_of(TABLE), facts).outcome == "silent"


def test_the_digest_tells_configurations_apart() -> None:
    assert ENGINE.name == "grants"
    assert GrantsEngine().digest == ENGINE.digest != GrantsEngine(frozenset({ALICE})).digest


# --- the determining grant ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grants", "wanted"),
    [
        (["alice select warehouse:lake", f"alice select {TABLE}"], f"select on {TABLE} via {ALICE}"),
        (["alice ownership namespace:lake/sales", "alice select namespace:lake/sales/eu"],
         f"select on namespace:lake/sales/eu via {ALICE}"),
        ([f"alice select {TABLE}", f"alice modify {TABLE}"], f"modify on {TABLE} via {ALICE}"),
        ([f"alice modify {TABLE}", f"alice ownership {TABLE}"], f"ownership on {TABLE} via {ALICE}"),
        ([f"alice describe {TABLE}", "alice select warehouse:lake"], f"select on warehouse:lake via {ALICE}"),
        (["alice assignee role:analyst", f"role:analyst select {TABLE}"], f"select on {TABLE} via role:analyst"),
        (["alice assignee role:analyst", f"role:analyst select {TABLE}", f"alice select {TABLE}"],
         f"select on {TABLE} via {ALICE}"),
        (["alice assignee role:analyst", f"role:analyst modify {TABLE}", f"alice select {TABLE}"],
         f"modify on {TABLE} via role:analyst"),
        (["alice ownership role:auditor", "role:auditor assignee role:analyst", f"role:analyst select {TABLE}",
          f"role:auditor select {TABLE}"], f"select on {TABLE} via role:analyst"),
        (["alice data_admin project:p1"], f"data_admin on project:p1 via {ALICE}"),
        (["alice operator server"], f"operator on server via {ALICE}"),
    ],
)  # fmt: skip
def test_by_names_the_nearest_then_strongest_then_direct_grant(grants: list[str], wanted: str) -> None:
    assert ask(ENGINE, world(*grants), ALICE, "read_data", TABLE) == (True, f"grants:{wanted}")


def test_by_prefers_what_is_held_above_to_what_shows_from_below() -> None:
    below = f"alice select {TABLE}"
    assert ask(ENGINE, world(below), ALICE, "use", "warehouse:lake")[1] == f"grants:select on {TABLE} via {ALICE}"
    both = world(below, "alice describe project:p1")
    assert ask(ENGINE, both, ALICE, "use", "warehouse:lake")[1] == f"grants:describe on project:p1 via {ALICE}"


def test_by_names_the_smallest_object_that_shows_from_below() -> None:
    facts = world(
        f"alice modify {TABLE}", f"alice describe {TABLE}", "alice select view:lake/a/v",
        "alice assignee role:analyst", "role:analyst describe table:lake/a/b/t", "role:analyst create namespace:lake/z",
    )  # fmt: skip
    smallest = "grants:create on namespace:lake/z via role:analyst"
    assert ask(ENGINE, facts, ALICE, "get_metadata", "warehouse:lake")[1] == smallest
    assert ask(ENGINE, facts, ALICE, "read", "tag:pii")[1] == smallest
    nearer = f"grants:modify on {TABLE} via {ALICE}"
    assert ask(ENGINE, facts, ALICE, "list_tables", "namespace:lake/sales")[1] == nearer
    assert not ask(ENGINE, facts, ALICE, "list_everything", "warehouse:lake")[0]


@pytest.mark.parametrize("privilege", ["pass_grants", "manage_grants", "manage_tags"])
def test_what_shows_nothing_itself_shows_nothing_above(privilege: str) -> None:
    assert not ask(ENGINE, world(f"alice {privilege} {TABLE}"), ALICE, "use", "warehouse:lake")[0]


def test_a_grant_holds_on_every_ref() -> None:
    facts = world(f"alice select {TABLE}")
    assert ask(ENGINE, facts, ALICE, "read_data", f"{TABLE}@feature%2Fx") == (
        True, f"grants:select on {TABLE} via {ALICE}"
    )  # fmt: skip


def test_by_is_in_the_canonical_encoding() -> None:
    facts = world("alice select table:lake/a%2fb/t%40")
    resource = Resource("table", "lake", ("a/b", "t@"))
    verdicts = ENGINE.decide(group(ALICE, "read_data", resource), (resource,), facts)
    assert verdicts.by == [f"grants:select on table:lake/a%2Fb/t%40 via {ALICE}"]


# --- principals ---------------------------------------------------------------------------------------------------


def test_a_role_has_only_its_own_rights() -> None:
    facts = world(f"alice select {TABLE}", "alice assignee role:analyst", "role:analyst assignee role:auditor",
                  "role:auditor describe warehouse:lake")  # fmt: skip
    assert not ask(ENGINE, facts, "role:analyst", "read_data", TABLE)[0]
    assert ask(ENGINE, facts, "role:analyst", "get_metadata", TABLE)[0]


def test_token_roles_are_not_memberships() -> None:
    resource = resource_of(TABLE)
    asked = group(ALICE, "read_data", resource)
    carrying = Principal("user", "oidc~alice", roles=("analyst", "role:analyst"), groups=("analyst",))
    facts = world(f"role:analyst select {TABLE}")
    other = EngineQuestion(Question(carrying, asked.action, context=asked.context), asked.type, asked.warehouse, None)
    assert ENGINE.decide(other, (resource,), facts).effects == bytes([ABSTAIN])
    assert not facts.can_assume(carrying, "analyst")


@pytest.mark.parametrize("action", sorted(ACTIONS["user"]))
def test_everything_on_oneself(action: str) -> None:
    assert ask(ENGINE, Facts.empty(), ALICE, action, ALICE) == (True, "grants:self")


def test_reading_others_needs_a_name() -> None:
    assert ask(ENGINE, Facts.empty(), ALICE, "read", "user:oidc~bob") == (True, "grants:authenticated")
    assert ask(ENGINE, Facts.empty(), ALICE, "read_metadata", "role:analyst") == (True, "grants:authenticated")
    assert ask(ENGINE, Facts.empty(), "anonymous", "read", "user:oidc~bob") == (False, None)


def test_others_are_administered_through_the_server() -> None:
    facts = world("alice admin server")
    assert ask(ENGINE, facts, ALICE, "update", "user:oidc~bob") == (True, f"grants:admin on server via {ALICE}")
    assert not ask(ENGINE, facts, "user:oidc~bob", "update", ALICE)[0]


def test_a_role_is_itself() -> None:
    assert ask(ENGINE, Facts.empty(), "role:analyst", "assume", "role:analyst") == (True, "grants:self")
    assert not ask(ENGINE, Facts.empty(), "role:analyst", "delete", "role:analyst")[0]


# --- ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("carried", "allowed"), [("", True), ("1", True), ("2", False)])
def test_a_grant_for_an_id_never_serves_another(carried: str, allowed: bool) -> None:
    facts = world(f"alice select {TABLE} 1")
    assert ask(ENGINE, facts, ALICE, "read_data", TABLE, carried)[0] is allowed


def test_by_passes_over_a_grant_for_another_id() -> None:
    facts = world(f"alice select {TABLE} 1", "alice assignee role:analyst", f"role:analyst select {TABLE} 2")
    assert ask(ENGINE, facts, ALICE, "read_data", TABLE, "2")[1] == f"grants:select on {TABLE} via role:analyst"


def test_the_id_of_a_new_object_says_nothing_of_its_parent() -> None:
    facts = world("alice create namespace:lake/sales 1")
    assert ask(ENGINE, facts, ALICE, "CREATE_ENTITY", "table:lake/sales/new", "2")[0]


# --- Nessie's words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "target", "content_type", "weakest"),
    [
        ("READ_CONTENT_KEY", "table", "", "describe"),
        ("READ_CONTENT_KEY", "namespace", "", "describe"),
        ("READ_ENTITY_VALUE", "view", "", "select"),
        ("READ_ENTITY_VALUE", "namespace", "", "describe"),
        ("READ_ENTITY_VALUE", "dataset", "", "select"),
        ("READ_ENTITY_VALUE", "content", "", "select"),
        ("READ_ENTITY_VALUE", "content", "ICEBERG_TABLE", "select"),
        ("READ_ENTITY_VALUE", "content", "ICEBERG_VIEW", "select"),
        ("READ_ENTITY_VALUE", "content", "NAMESPACE", "describe"),
        ("READ_ENTITY_VALUE", "content", "UDF", "select"),
        ("UPDATE_ENTITY", "namespace", "", "modify"),
        ("UPDATE_ENTITY", "view", "", "modify"),
        ("UPDATE_ENTITY", "generic_table", "", "modify"),
        ("UPDATE_ENTITY", "dataset", "", "modify"),
        ("DELETE_ENTITY", "namespace", "", "modify"),
        ("DELETE_ENTITY", "content", "ICEBERG_TABLE", "modify"),
        ("CREATE_ENTITY", "table", "", "create"),
        ("CREATE_ENTITY", "view", "", "create"),
        ("CREATE_ENTITY", "namespace", "", "create"),
        ("CREATE_ENTITY", "generic_table", "", "create"),
        ("CREATE_ENTITY", "dataset", "", "create"),
        ("CREATE_ENTITY", "content", "ICEBERG_VIEW", "create"),
    ],
)
def test_a_nessie_check_asks_its_action(check: str, target: str, content_type: str, weakest: str) -> None:
    resource = Resource(target, "lake", ("sales", "x"), "main", content_type=content_type)
    asked = group(ALICE, check, resource)
    for privilege in ("describe", "select", "modify", "create"):
        enough = {"describe": True, "select": privilege in ("select", "modify")}.get(weakest, privilege == weakest)
        verdicts = ENGINE.decide(asked, (resource,), world(f"alice {privilege} namespace:lake/sales"))
        assert (verdicts.effects[0] == PERMIT) is enough, privilege


def test_creating_is_asked_on_the_parent() -> None:
    facts = world("alice create warehouse:lake")
    assert ask(ENGINE, facts, ALICE, "CREATE_ENTITY", "namespace:lake/new")[0]
    assert not ask(ENGINE, facts, ALICE, "CREATE_ENTITY", "table:lake/new")[0]
    assert not ask(ENGINE, world("alice ownership table:lake/a/t"), ALICE, "CREATE_ENTITY", "table:lake/a/t")[0]


# --- configuration ------------------------------------------------------------------------------------------------


def test_bootstrap_admins_operate_the_server_without_a_grant() -> None:
    engine = GrantsEngine(frozenset({ALICE}))
    by = "config:store.bootstrap_admins"
    assert ask(engine, world(), ALICE, "grant_operator", "server") == (True, by)
    assert ask(engine, world(), ALICE, "read_data", TABLE) == (True, by)
    assert ask(engine, world(), "user:oidc~bob", "read_data", TABLE) == (False, None)
    assert ask(engine, world("alice operator server"), ALICE, "delete", "project:p1")[1] == (
        f"grants:operator on server via {ALICE}"
    )


def test_a_bootstrap_admin_under_a_role_is_that_role() -> None:
    facts = world("alice assignee role:analyst")
    assert not ask(GrantsEngine(frozenset({ALICE})), facts, "role:analyst", "read_data", TABLE)[0]


def test_a_warehouse_without_a_project_hangs_below_nothing() -> None:
    engine = GrantsEngine(frozenset({ALICE}))
    assert not ask(engine, world(), ALICE, "read_data", "table:other/a/t")[0]


# --- explanations -------------------------------------------------------------------------------------------------


def explain(facts: Facts, principal: str, action: str, target: str) -> Trace:
    return ENGINE.explain(group(principal, action, resource_of(target)), resource_of(target), facts)


def test_an_explanation_goes_upward_object_by_object() -> None:
    facts = world(
        "alice assignee role:analyst", "role:analyst select namespace:lake/sales", f"alice manage_tags {TABLE}"
    )
    trace = explain(facts, ALICE, "read_data", TABLE)
    assert (trace.outcome, trace.why) == ("permit", "grants:select on namespace:lake/sales via role:analyst")
    assert [(part.what, part.outcome, part.why) for part in trace.parts] == [
        (TABLE, "manage_tags, select, describe", f"manage_tags via {ALICE}"),
        ("namespace:lake/sales/eu", "select, describe", ""),
        ("namespace:lake/sales", "select, describe", "select via role:analyst"),
        ("warehouse:lake", "nothing", ""),
        ("project:p1", "nothing", ""),
        ("server", "nothing", ""),
    ]


@pytest.mark.parametrize(
    ("action", "target", "wanted"),
    [
        ("read_data", TABLE, f"select on {TABLE} to {ALICE} would permit it"),
        ("get_metadata", TABLE, f"describe on {TABLE} to {ALICE} would permit it"),
        ("move", TABLE, f"ownership on {TABLE} to {ALICE} would permit it"),
        ("create_table", "namespace:lake/a", f"create on namespace:lake/a to {ALICE} would permit it"),
        ("read", "role:analyst", f"describe on project:p1 to {ALICE} would permit it"),
        ("delete", "user:oidc~bob", f"admin on server to {ALICE} would permit it"),
        ("read", "role:stray", f"no single grant to {ALICE} would permit read on role:stray"),
    ],
)
def test_a_denial_names_the_smallest_missing_grant(action: str, target: str, wanted: str) -> None:
    trace = explain(world(), ALICE, action, target)
    assert (trace.outcome, trace.why) == ("silent", wanted)


def test_anonymous_cannot_be_helped() -> None:
    trace = explain(world(), "anonymous", "read_data", TABLE)
    assert trace.why == "anonymous has no grants"


def test_paths_of_any_depth() -> None:
    deep = "table:lake/" + "/".join(["a"] * 256)
    facts = world("alice select namespace:lake/a")
    assert ask(ENGINE, facts, ALICE, "read_data", deep) == (True, f"grants:select on namespace:lake/a via {ALICE}")


@pytest.mark.parametrize("type", ["table", "namespace"])
def test_nothing_is_looked_up_below_a_container_without_objects(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of 250 parts costs a look-up for each level and role otherwise."""
    looks: list[tuple[str, ...]] = []
    nodes_in = PrincipalGrants.nodes_in

    def note(self: PrincipalGrants, path: tuple[str, ...]) -> object:
        looks.append(path)
        return nodes_in(self, path)

    monkeypatch.setattr(PrincipalGrants, "nodes_in", note)
    facts = world(
        "alice select namespace:lake/s", "alice modify table:lake/s/a/a/t", "alice pass_grants table:lake/x/a/u"
    )
    names = [Resource(type, "lake", (space, *("a",) * 250, "t")) for space in ("s", "x", "y")]
    action = {"table": "read_data", "namespace": "list_tables"}[type]
    asked = EngineQuestion(Question(Principal("user", "oidc~alice"), action), type, "lake", None)
    found = GrantsEngine().decide(asked, names, facts)
    assert max(map(len, looks)) <= 5
    assert list(found.effects) == [PERMIT, ABSTAIN, ABSTAIN]
    assert found.by[0] == f"grants:select on namespace:lake/s via {ALICE}"


def plain_smallest_grant(facts: Facts, principal: Principal, relation: str, key: ObjectKey) -> Any:
    """Return the nearest object and the weakest privilege that would permit, by a new access for each try."""
    for target in (key, *facts.ancestors(key)):
        for privilege in engine_module._WEAKEST_FIRST:
            if privilege in STORED[target[0]]:
                access = EffectiveAccess(facts, principal, {target: BIT[privilege]})
                if access.relations_on(key).witness(relation) is not None:
                    return target, privilege
    return None


@settings(max_examples=60)
@given(worlds(), st.sampled_from(PRINCIPALS), st.sampled_from(["table:v/a/t", "namespace:v/a/a", "view:v/t", "role:r"]))
def test_the_smallest_missing_grant_is_that_of_a_new_access_for_each_try(
    data: Any, principal: str, object: str
) -> None:
    facts, key = parse_world(data), key_from_text(object)
    access = EffectiveAccess(facts, parse_principal(principal), {})
    for relation in sorted(MODEL[key[0]].relations):
        found = engine_module.smallest_grant(access, relation, key, "")
        assert found == plain_smallest_grant(facts, access.grants.principal, relation, key), relation


def test_an_explanation_looks_at_the_grants_of_many_roles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles of a principal are looked through a few times for each object above, not for each possible grant."""
    roles = [f"role:r{at}" for at in range(40)]
    grants = [{"principal": "user:oidc~a", "privilege": "assignee", "object": role} for role in roles]
    grants += [{"principal": role, "privilege": "describe", "object": "namespace:v/a/b/c/d"} for role in roles]
    facts = parse_world({"objects": [], "grants": grants})
    looked = []
    nodes_in = PrincipalGrants.nodes_in

    def counted(self: PrincipalGrants, path: tuple[str, ...]) -> Any:
        looked.append(path)
        return nodes_in(self, path)

    monkeypatch.setattr(PrincipalGrants, "nodes_in", counted)
    asked = group("user:oidc~a", "read_data", resource_of("table:v/a/b/c/d/t"))
    trace = GrantsEngine().explain(asked, resource_of("table:v/a/b/c/d/t"), facts)
    assert "would permit it" in trace.why
    assert len(looked) <= 25, Counter(looked)
