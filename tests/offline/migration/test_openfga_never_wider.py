"""A migrated world never allows what OpenFGA denies: random tuples of Lakekeeper's model, every question asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from support.generators.fga_tuples import FgaKey, random_tuples, tidy_tuples
from support.oracles.migrated_worlds import NEWER, SCHEMA, FgaAsked, answers, checker_of, migrated, questions, version

from pdp.app.facts import build_pdp
from pdp.errors import InvalidArgument
from pdp.offline.migration.openfga import NEWER_ACTIONS, migrate_openfga

# --- one cause each -------------------------------------------------------------------------------------------------

TREE = [
    ("server:s", "server", "project:p"),
    ("project:p", "project", "warehouse:w"),
    ("warehouse:w", "warehouse", "project:p"),
    ("warehouse:w", "parent", "namespace:n"),
    ("namespace:n", "namespace", "warehouse:w"),
    ("namespace:n", "parent", "lakekeeper_table:w/t"),
    ("lakekeeper_table:w/t", "child", "namespace:n"),
]
OPERATOR = ("user:oidc~a", "operator", "server:s")
MANAGED = [("user:*", "managed_access", "namespace:n"), ("role:*", "managed_access", "namespace:n")]
MEMBER = [("project:p", "project", "role:r"), ("role:r#assignee", "modify", "namespace:n")]


class Merging(NamedTuple):
    """Tuples of a question that OpenFGA denies, and the name that accepts the permit of this service."""

    note: str
    tuples: Sequence[Sequence[str]]
    principal: str
    action: str
    resource: str
    accepted: str = ""
    names: Mapping[str, str] = {}


MERGINGS = [
    Merging(
        "an operator of a left-over server",
        [*TREE, ("user:oidc~a", "operator", "server:old")],
        "user:oidc~a", "delete", "project:p", "servers",
    ),
    Merging(
        "an administrator of a left-over server",
        [*TREE, ("user:oidc~a", "admin", "server:old")],
        "user:oidc~a", "list_users", "server", "servers",
    ),
    Merging(
        "a project of another server",
        [*TREE, OPERATOR, ("server:old", "server", "project:q")],
        "user:oidc~a", "delete", "project:q", "servers",
    ),
    Merging("a project without a server", [*TREE[1:], OPERATOR], "user:oidc~a", "delete", "project:p", "servers"),
    Merging(
        "a project that is below its server under a condition",
        [(*TREE[0], "in_hours"), *TREE[1:], OPERATOR],
        "user:oidc~a", "delete", "project:p", "servers",
    ),
    Merging(
        "two servers above every project",
        [*TREE, ("server:old", "server", "project:p"), ("user:oidc~a", "operator", "server:old")],
        "user:oidc~a", "create_project", "server", "servers",
    ),
    Merging(
        "an object that its parent does not list",
        [*TREE[:-1], ("user:oidc~a", "select", "lakekeeper_table:w/t")],
        "user:oidc~a", "get_metadata", "warehouse:w", "unlisted",
    ),
    Merging(
        "an object that its parent lists under a condition",
        [*TREE[:-1], (*TREE[-1], "in_hours"), ("user:oidc~a", "select", "lakekeeper_table:w/t")],
        "user:oidc~a", "get_metadata", "namespace:w/n", "unlisted",
    ),
    Merging(
        "an object that is below its parent under a condition",
        [*TREE[:5], (*TREE[5], "in_hours"), TREE[6], ("user:oidc~a", "select", "lakekeeper_table:w/t")],
        "user:oidc~a", "read_data", "table:w/n/t",
    ),
    Merging(
        "managed access under a condition",
        [*TREE, *((*one, "in_hours") for one in MANAGED), ("user:oidc~a", "ownership", "lakekeeper_table:w/t")],
        "user:oidc~a", "grant_select", "table:w/n/t",
    ),
    Merging(
        "managed access of an object whose id is no id here",
        [
            *(tuple(part.replace("namespace:n", "namespace:n!") for part in one) for one in (*TREE, *MANAGED)),
            ("user:oidc~a", "ownership", "lakekeeper_table:w/t"),
        ],
        "user:oidc~a", "grant_select", "table:w/sales/t", names={"n!": "sales"},
    ),
    Merging(
        "managed access of a warehouse without a project",
        [
            *TREE[3:],
            *(tuple(part.replace("namespace:n", "warehouse:w") for part in one) for one in MANAGED),
            ("user:oidc~a", "ownership", "namespace:n"),
        ],
        "user:oidc~a", "grant_select", "namespace:w/n",
    ),
    Merging(
        "a role named like one that is only a grantee",
        [*TREE, MEMBER[1], ("user:oidc~a", "assignee", "role:q"), ("project:p", "project", "role:q")],
        "user:oidc~a", "delete", "namespace:w/n", names={"role:q": "r"},
    ),
    Merging(
        "a role named like the id of a role without a place",
        [
            *TREE, *MEMBER, ("project:q", "project", "role:r"),
            ("project:p", "project", "role:q"), ("user:oidc~a", "assignee", "role:q"),
        ],
        "user:oidc~a", "delete", "namespace:w/n", names={"role:r": "z", "role:q": "r"},
    ),
    Merging(
        "a user without a provider beside one with it",
        [*TREE, ("user:a", "modify", "namespace:n"), ("user:oidc~a", "describe", "namespace:n")],
        "user:oidc~a", "delete", "namespace:w/n", "spellings",
    ),
    Merging(
        "a user without escapes beside one with them",
        [*TREE, ("user:oidc~a@x", "modify", "namespace:n"), ("user:oidc~a%40x", "describe", "namespace:n")],
        "user:oidc~a@x", "delete", "namespace:w/n", "spellings",
    ),
]  # fmt: skip


def decides(folder: Path, merging: Merging, *accepted: str) -> bool:
    (folder / "names.json").write_text(json.dumps(merging.names))
    migration = migrated(folder, [*merging.tuples, version("4.14")], *accepted, names=folder / "names.json")
    asked = FgaAsked("", f"can_{merging.action}", "", merging.principal, merging.resource)
    return answers(folder, migration, [asked]) == [True]


@pytest.mark.parametrize("merging", MERGINGS, ids=lambda merging: merging.note)
def test_what_would_be_wider_is_left(tmp_path: Path, merging: Merging) -> None:
    assert not decides(tmp_path, merging)
    if merging.accepted:
        assert decides(tmp_path, merging, merging.accepted)


@pytest.mark.parametrize("merging", [one for one in MERGINGS if one.accepted], ids=lambda merging: merging.note)
def test_the_report_names_what_accepts_it(tmp_path: Path, merging: Merging) -> None:
    left = [part.message for part in migrated(tmp_path, merging.tuples).left]
    assert any(f"`--accept-wider {merging.accepted}` allows this" in message for message in left), left
    accepted = migrated(tmp_path, merging.tuples, merging.accepted)
    notes = {part.subject: part.message for part in accepted.parts if part.status == "note"}
    assert notes[f"`--accept-wider {merging.accepted}`"].startswith("allows more than OpenFGA: without it, ")


# --- rules of another version ---------------------------------------------------------------------------------------

CREATES = [*TREE, ("user:oidc~a", "create", "warehouse:w")]
READS_ROLES = [*TREE, ("project:p", "project", "role:r"), ("user:oidc~a", "describe", "project:p")]


def test_a_wider_rule_of_this_service_is_found_beside_any_tuples(tmp_path: Path) -> None:
    assert migrated(tmp_path, CREATES, model=SCHEMA).refused == {NEWER, NEWER_ACTIONS}
    assert migrated(tmp_path, TREE, model=SCHEMA).refused == set()
    assert migrated(tmp_path, CREATES, NEWER, NEWER_ACTIONS, model=SCHEMA).refused == set()


@pytest.mark.parametrize(
    ("tuples", "refused"),
    [
        (CREATES, {NEWER}),
        ([*CREATES, version("4.9")], {NEWER}),
        ([*CREATES, version("collaboration-4.12")], {NEWER}),
        ([*CREATES, version("4.9"), version("4.13")], set()),
        ([*CREATES, version("collaboration-4.14")], set()),
        ([*TREE, ("user:oidc~a", "ownership", "warehouse:w")], set()),
        (READS_ROLES, {"can_read_assignments"}),
        ([*READS_ROLES, version("4.7")], set()),
        ([*TREE, ("user:oidc~a", "admin", "server:s"), version("4.6")], {"can_grant_data_admin"}),
    ],
)
def test_without_a_model_the_version_tells(tmp_path: Path, tuples: Sequence[FgaKey], refused: set[str]) -> None:
    migration = migrated(tmp_path, tuples)
    assert migration.refused == refused
    assert all("give the model (`fga model get`)" in part.message for part in migration.left)


def test_an_unknown_rule_of_a_given_model_is_found_by_the_probe(tmp_path: Path) -> None:
    schema = json.loads(SCHEMA.read_text())
    (table,) = (one for one in schema["type_definitions"] if one["type"] == "lakekeeper_table")
    table["relations"]["can_drop"] = {"computedUserset": {"relation": "ownership"}}
    (tmp_path / "model.json").write_text(json.dumps(schema))
    tuples = [*TREE, ("user:oidc~a", "modify", "project:p")]
    migration = migrated(tmp_path, tuples, NEWER_ACTIONS, model=tmp_path / "model.json")
    assert migration.refused == {"can_drop"}
    (left,) = migration.left
    assert left.subject == "`can_drop` on `lakekeeper_table`"
    assert left.message == (
        "OpenFGA says no, pdp yes, in 1 question, such as `user:oidc~a` on `lakekeeper_table:w/t`; "
        "`--accept-wider can_drop` allows this"
    )


def test_a_name_that_accepts_nothing_is_reported(tmp_path: Path) -> None:
    parts = migrated(tmp_path, TREE, "servers", "no-such-name").parts
    ignored = {part.subject: part.message for part in parts if part.status == "ignored"}
    assert ignored == dict.fromkeys(
        ("`--accept-wider servers`", "`--accept-wider no-such-name`"), "nothing in this export needs it"
    )


# --- another reading of the model -----------------------------------------------------------------------------------


def changed_model(folder: Path, type: str, name: str, *users: object, rule: object = None) -> Path:
    """Return the recorded model with other users of a relation, or with another rule."""
    schema = json.loads(SCHEMA.read_text())
    (definition,) = (one for one in schema["type_definitions"] if one["type"] == type)
    definition["metadata"]["relations"][name]["directly_related_user_types"] = list(users)
    if rule is not None:
        definition["relations"][name] = rule
    (folder / "model.json").write_text(json.dumps(schema))
    return folder / "model.json"


MEMBERS = {"type": "role", "relation": "assignee"}
SELECTS = [*TREE, ("user:oidc~a", "select", "namespace:n")]
BY_ROLE = [*TREE, ("user:oidc~a", "assignee", "role:r"), ("role:r#assignee", "select", "namespace:n")]


@pytest.mark.parametrize(
    "users", [[], [MEMBERS], [{"type": "user", "condition": "c"}], [{"type": "user", "wildcard": {}}]]
)
@pytest.mark.parametrize(
    ("tuples", "type", "name"),
    [(SELECTS, "namespace", "select"), (BY_ROLE, "role", "assignee")],
)
def test_a_tuple_that_the_model_does_not_take_is_left(
    tmp_path: Path, tuples: Sequence[FgaKey], type: str, name: str, users: list[object]
) -> None:
    model = changed_model(tmp_path, type, name, *users)
    migration = migrated(tmp_path, tuples, NEWER_ACTIONS, NEWER, model=model)
    asked = FgaAsked("", "can_read_data", "", "user:oidc~a", "table:w/n/t")
    assert answers(tmp_path, migration, [asked]) == [False]
    assert any(f"`{name}`" in part.subject and "drops it" in part.message for part in migration.left)
    assert answers(tmp_path, migrated(tmp_path, tuples, NEWER_ACTIONS, NEWER, model=SCHEMA), [asked]) == [True]


@pytest.mark.parametrize("relation", ["can_read_data", "can_create_table", "can_write_data"])
def test_a_relation_that_the_model_lacks_is_no(tmp_path: Path, relation: str) -> None:
    tuples = [*TREE, ("user:oidc~a", "ownership", "namespace:n")]
    schema = json.loads(SCHEMA.read_text())
    for one in schema["type_definitions"]:
        one.get("relations", {}).pop(relation, None)
    (tmp_path / "model.json").write_text(json.dumps(schema))
    migration = migrated(tmp_path, tuples, NEWER, model=tmp_path / "model.json")
    assert migration.refused == {NEWER_ACTIONS}
    assert any(part.subject.startswith(f"`{relation}` on") for part in migration.left)
    assert migrated(tmp_path, tuples, NEWER, NEWER_ACTIONS, model=tmp_path / "model.json").refused == set()


@pytest.mark.parametrize("text", ["", "model\n  schema 1.1\n", '{"type_definitions": []}'])
def test_a_model_without_types_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / ("m.json" if text.startswith("{") else "m.fga")
    file.write_text(text)
    with pytest.raises(InvalidArgument, match="the model has no types"):
        migrated(tmp_path, SELECTS, model=file)


@pytest.mark.parametrize("most", [0, 2, 300])
@pytest.mark.parametrize("privilege", ["ownership", "assignee"])
def test_a_narrower_rule_of_roles_is_found_with_any_number_of_tests(tmp_path: Path, most: int, privilege: str) -> None:
    model = changed_model(tmp_path, "role", "assignee", {"type": "user"}, MEMBERS, rule={"this": {}})
    tuples = [*TREE, ("user:oidc~a", privilege, "role:r"), ("role:r#assignee", "select", "namespace:n")]
    migration = migrated(tmp_path, tuples, NEWER, NEWER_ACTIONS, model=model, most=most)
    assert ("can_read_data" in migration.refused) is (privilege == "ownership")


@pytest.mark.parametrize("turned", [False, True])
def test_two_models_are_refused(tmp_path: Path, turned: bool) -> None:
    narrow = changed_model(tmp_path, "namespace", "select", rule={"this": {}})
    (tmp_path / "tuples.json").write_text(
        json.dumps([dict(zip(("user", "relation", "object"), one, strict=True)) for one in SELECTS])
    )
    models = [SCHEMA, narrow][:: -1 if turned else 1]
    with pytest.raises(InvalidArgument, match="two models are given"):
        migrate_openfga([tmp_path / "tuples.json", *models], build_pdp)
    assert migrate_openfga([tmp_path / "tuples.json", SCHEMA, SCHEMA], build_pdp, most=0).files


@pytest.mark.parametrize("length", [100, 600])
def test_deep_roles_and_trees_are_no_crash(tmp_path: Path, length: int) -> None:
    roles = [(f"role:{at}#assignee", "assignee", f"role:{at + 1}") for at in range(length)]
    roles += [("user:oidc~a", "assignee", "role:0"), (f"role:{length}#assignee", "select", "namespace:n")]
    names = ["n", *(f"n{at}" for at in range(length))]
    edges = [(f"namespace:{above}", f"namespace:{below}") for above, below in pairwise(names)]
    spaces = [one for above, below in edges for one in ((above, "parent", below), (below, "child", above))]
    for tuples in ([*TREE, *roles], [*TREE, *spaces, OPERATOR]):
        try:
            migrated(tmp_path, tuples, model=SCHEMA)
        except InvalidArgument as error:
            assert "nested too deeply" in str(error)  # noqa: PT017


# --- random tuples --------------------------------------------------------------------------------------------------


SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 24))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_migrated_world_is_never_wider(tmp_path: Path, seed: int) -> None:
    tuples = random_tuples(seed, SCHEMA)
    asked = [one for one in questions(tuples) if one.relation != NEWER]
    permits = checker_of(tuples)
    here = answers(tmp_path, migrated(tmp_path, [*tuples, version("4.14")]), asked)
    wider = [one for one, answer in zip(asked, here, strict=True) if answer and not permits(one)]
    assert wider == [], Counter((one.user, one.relation, one.object) for one in wider).most_common(5)
    assert any(here)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tidy_export_is_not_narrower_either(tmp_path: Path, seed: int) -> None:
    tuples = tidy_tuples(seed, SCHEMA)
    # Managed access binds a role that asks for itself here, and not in OpenFGA.
    asked = [one for one in questions(tuples) if one.relation != NEWER and one.user.startswith("user:")]
    permits = checker_of(tuples)
    migration = migrated(tmp_path, [*tuples, version("4.14")])
    here = answers(tmp_path, migration, asked)
    assert [one for one, answer in zip(asked, here, strict=True) if answer != permits(one)] == []
    assert migration.left == []


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))])
def test_the_run_itself_finds_nothing_wider_but_the_newer_rule(tmp_path: Path, seed: int) -> None:
    migration = migrated(tmp_path, random_tuples(seed, SCHEMA), model=SCHEMA, most=30)
    assert migration.refused <= {NEWER, NEWER_ACTIONS}
    assert migration.files["tests.jsonl"]
