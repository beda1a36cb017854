"""docs/migration.md: every sentence about what holds without an option, a key or a file is a test."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT

from pdp.app.facts import build_pdp
from pdp.cli.migrate import openfga
from pdp.config.regular_files import advice_for
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import run_case
from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.openfga import migrate_openfga
from pdp.rewrite.policy_statements import CreatePolicy, read_policy_statement

PAGE = (ROOT / "docs" / "migration.md").read_text()
TESTS = ROOT / "tests"
Holds = Callable[[Path], None]
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ABOUT_A_DEFAULT = re.compile(
    r"\b(by default|defaults?|unless|without|else|otherwise|stay|at most|is missing|nothing|everybody"
    r"|as long as|ignored if|no container|if both|wins|replaces its|needs no|only|own counts|before 4|logs one line)\b",
    re.IGNORECASE,
)


def sentences() -> list[str]:
    """Return the sentences of the page, outside blocks: of paragraphs, list items and cells of tables."""
    found = []
    for block in re.split(r"\n\n|\n(?=[-|] ?)", _FENCED.sub("", PAGE)):
        text = " ".join(block.split()).removeprefix("- ")
        cells = text.strip("|").split(" | ") if text.startswith("|") else [text]
        found += [part for cell in cells for part in re.split(r"(?<=\.) |(?<=\.\*\*) |; ", cell.strip())]
    return [part.rstrip(".") for part in found if len(part.split()) > 3]


def answers(folder: Path, case: Mapping[str, Any]) -> list[bool]:
    with asyncio.Runner() as runner:
        outcome = run_case(Case("", folder, {**case, "want": [False] * len(case["checks"])}), build_pdp, runner)
    assert outcome.got, outcome.error
    return [one["allowed"] for one in outcome.got]


def lakeql(folder: Path, user: str, *, strict: bool = False, engine: str = "scopes") -> list[bool]:
    """Return whether a user may read and write a table that LakeQL's entries of others name."""
    given = {
        "config": {"policies": {"scopes": {"strict": strict}}},
        "permissions": [
            {
                "name": "other",
                "permissions": {"Query": [{"catalog": "hive", "schema": "s", "tables": ["t"]}], "Mutation": []},
            },
            {"name": "empty", "permissions": {"Query": [], "Mutation": []}},
        ],
    }
    check = {"principal": f"user:oidc~{user}", "resource": "table:hive/s/t"}
    checks = [{**check, "action": action} for action in ("read_data", "write_data")]
    return answers(folder, {"engines": [engine], "checks": checks, **(given if engine == "scopes" else {})})


def a_user_reads_as_in_lakeql(folder: Path) -> None:
    assert [lakeql(folder, user) for user in ("nobody", "empty")] == [[True, False], [True, False]]


def strict_scopes_deny(folder: Path) -> None:
    assert [lakeql(folder, user, strict=True) for user in ("nobody", "empty")] == [[False, False], [False, False]]


def grants_and_rules_give_nothing(folder: Path) -> None:
    assert [lakeql(folder, "nobody", engine=engine) for engine in ("grants", "cel")] == [[False, False], [False, False]]


def a_policy_without_grantees_is_for_all(folder: Path) -> None:
    statement = "CREATE ROW ACCESS POLICY p ON lake.s.t FILTER USING (region = 'EU')"
    read = read_policy_statement(statement)
    assert isinstance(read, CreatePolicy)
    assert tuple(read.body.grantees) == ("allAuthenticatedUsers",)
    shown = advice_for(".sql", statement)
    assert yaml.safe_load(shown.split("`")[1])["policies"][0]["grantees"] == ["allAuthenticatedUsers"]


def a_user_without_provider_is_of_idp(folder: Path) -> None:
    tuples = [{"user": "user:a", "relation": "admin", "object": "server:s"}]
    (folder / "tuples.json").write_text(json.dumps(tuples))
    files = [folder / "tuples.json"]
    for migration, idp in (
        (migrate_openfga(files, build_pdp), "oidc"),
        (migrate_openfga(files, build_pdp, idp="ldap"), "ldap"),
    ):
        assert f'"principal": "user:{idp}~a"' in migration.files["world.yaml"]


def three_hundred_pairs_are_asked(folder: Path) -> None:
    (most,) = (option for option in openfga.params if option.name == "most")
    assert (most.default, inspect.signature(migrate_openfga).parameters["most"].default) == (300, 300)
    store = TESTS / "offline" / "migration" / "lakekeeper-4.9"
    migration = migrate_openfga([store / "store.fga.yaml"], build_pdp, most=2)
    notes = [json.loads(line)["note"] for line in migration.files["tests.jsonl"].splitlines()]
    assert sum("store.fga.yaml test" not in note for note in notes) == 2


def the_profile_is_prod(folder: Path) -> None:
    prefix = "nessie.server.authorization.rules."
    (folder / "application.properties").write_text(f"%prod.{prefix}p=role=='p'\n%dev.{prefix}d=role=='d'\n")
    (folder / "a.env").write_text("QUARKUS_PROFILE=dev\n")
    (folder / "b.env").write_text("JAVA_OPTS=-Dquarkus.profile=dev\nQUARKUS_PROFILE=prod\n")
    for variables, profiles, id in (
        ((), (), "p"), (("a.env",), (), "d"), (("a.env",), ("prod",), "p"), (("b.env",), (), "d"),
    ):  # fmt: skip
        files = [folder / name for name in variables]
        migration = migrate_nessie([folder / "application.properties"], files, profiles, "nessie")
        assert list(yaml.safe_load(migration.files["rules.yaml"])["rules"]) == [id]


def an_id_is_spelt_with_dots(folder: Path) -> None:
    (folder / "a.env").write_text("NESSIE_SERVER_AUTHORIZATION_RULES_ALLOW_X=role=='x'\n")
    migration = migrate_nessie([], [folder / "a.env"], (), "nessie")
    assert list(yaml.safe_load(migration.files["rules.yaml"])["rules"]) == ["allow.x"]


def variables_that_are_off_are_ignored(folder: Path) -> None:
    names = (
        "ROLE_PROVIDER__LDAP",
        "OPENID_ADDITIONAL_ISSUERS_X",
        "ENABLE_KUBERNETES_AUTHENTICATION",
        "MAINTENANCE_MODE",
    )
    for text, status in (("false", "ignored"), ("off", "ignored"), ("OFF", "ignored"), ("no", "left"), ("", "left")):
        for name in (names[0], *names[2:]):
            (folder / "a.env").write_text(f"LAKEKEEPER__AUTHZ_BACKEND=openfga\nLAKEKEEPER__{name}={text}\n")
            parts = migrate_lakekeeper([folder / "a.env"]).parts
            assert [part.status for part in parts if part.subject == f"LAKEKEEPER__{name}"] == [status], (name, text)


def a_role_needs_no_project(folder: Path) -> None:
    tuples = [
        {"user": "project:p", "relation": "project", "object": "warehouse:w"},
        {"user": "warehouse:w", "relation": "warehouse", "object": "project:p"},
        {"user": "user:oidc~a", "relation": "assignee", "object": "role:r"},
        {"user": "role:r#assignee", "relation": "select", "object": "warehouse:w"},
    ]
    (folder / "tuples.json").write_text(json.dumps(tuples))
    (folder / "names.json").write_text(json.dumps({"warehouse:w": "lake", "role:r": "readers"}))
    migration = migrate_openfga([folder / "tuples.json"], build_pdp, folder / "names.json")
    assert migration.left == []
    grants = yaml.safe_load(migration.files["world.yaml"])["grants"]
    assert {grant["privilege"] for grant in grants} == {"assignee", "select"}


_WIDER = "offline/migration/test_openfga_never_wider.py"
_LAKEKEEPER = "offline/migration/test_lakekeeper.py"
_SOURCES = "offline/migration/test_nessie_sources.py"
_DEPLOYMENTS = "offline/migration/test_nessie_deployments.py"
_PARTS = "offline/migration/test_deployment_parts.py"
_ENV_FILES = "offline/migration/test_env_files.py"
_PLACES = "offline/migration/test_known_places.py"
_UNREAD = "offline/migration/test_unread_parts.py"
_GRANTS = "offline/migration/test_openfga.py"
DEFAULTS: Mapping[str, Holds | Sequence[str]] = {
    "Existing files stay unless you give `--force`": ["cli/test_migrate.py::test_files_are_overwritten_only_on_request"],
    "without `--out` the command only reports": ["cli/test_migrate.py::test_nothing_left_exits_with_0"],
    "The exit code is 0 if nothing is left, 1 if a part is left, 2 if a file cannot be read": [
        "cli/test_migrate.py::test_nothing_left_exits_with_0",
        "cli/test_migrate.py::test_the_written_files_work",
        "cli/test_migrate.py::test_bad_input_exits_with_2",
    ],
    "If the new files would allow more than the old ones, nothing is written, and the exit code is 1: see [never "
    "wider](#from-lakekeepers-grants-in-openfga)": ["cli/test_migrate.py::test_tuples_of_openfga_become_grants"],
    "without such a rule, its id is `allow.x`": an_id_is_spelt_with_dots,
    "The profile is `--profile`, else the property `quarkus.profile` of Java, else the variable `QUARKUS_PROFILE`, else "
    "`prod`": the_profile_is_prod,
    "Unless `authorization.enabled` is true, the chart writes no rules: they are left": [
        f"{_DEPLOYMENTS}::test_what_is_not_read_is_left_and_opens_no_branch"
    ],
    "left: Java gives them to the program, which does not read them": [
        f"{_DEPLOYMENTS}::test_what_is_not_read_is_left_and_opens_no_branch"
    ],
    "`-D` behind these, and in arguments without `java`": [
        f"{_DEPLOYMENTS}::test_what_is_not_read_is_left_and_opens_no_branch"
    ],
    "For the same reason, if a part is left and no rule mentions VIEW_REFERENCE, the new rules have one more, "
    "`left-parts`, which is `false` and mentions it": [
        f"{_DEPLOYMENTS}::test_what_is_not_read_is_left_and_opens_no_branch"
    ],
    "Remove it once nothing is left": [f"{_DEPLOYMENTS}::test_files_that_are_given_are_not_missing"],
    "A rule that does not compile becomes `false`, with its text in a comment: a rule that mentions VIEW_REFERENCE keeps "
    "Nessie's implicit rule off, and leaving the rule out would show every branch to everybody": [
        "offline/migration/test_nessie.py::test_a_broken_rule_on_viewing_does_not_open_every_branch"
    ],
    "otherwise the report shows what to write": [
        "offline/migration/test_lakekeeper.py::test_what_has_no_counterpart_is_left"
    ],
    "Without a claim of the subject it is `oid`, else `sub`, as in Lakekeeper": [
        f"{_LAKEKEEPER}::test_the_subject_is_the_claim_of_lakekeeper"
    ],
    "left, with the provider: without the scope more tokens would count": [
        f"{_LAKEKEEPER}::test_a_provider_with_a_scope_is_not_written"
    ],
    "Of the OPA bridge, `TRINO_<X>_CATALOG_NAME` with `LAKEKEEPER_<X>_WAREHOUSE` becomes `trino.catalogs`, "
    "`TRINO_ADMIN_USERS` becomes `trino.admin_users`, and `TRINO_ALLOW_UNMANAGED_CATALOGS` becomes "
    "`trino.unmanaged_catalogs`: `allow` for `true` to the letter, else `deny`": [
        f"{_LAKEKEEPER}::test_only_true_to_the_letter_opens_other_catalogs"
    ],
    "The bridge has four catalogs by default: `dev` with the warehouse `development`, `prod` with `production`, `demo` "
    "with `demo`, and `lakekeeper` with `lakekeeper`": [
        f"{_LAKEKEEPER}::test_a_bridge_has_its_catalogs_without_variables"
    ],
    "The new file has all four, because a catalog that is missing there would be one of those that "
    "`unmanaged_catalogs` opens": [f"{_LAKEKEEPER}::test_everything_that_has_a_counterpart"],
    "Other pairs have no default: a half is left, and then other catalogs stay closed": [
        f"{_LAKEKEEPER}::test_an_unknown_catalog_is_not_open"
    ],
    "Ids without a name are left": [f"{_GRANTS}::test_ids_as_names_are_left"],
    "A user without `<idp>~` is a user of `--idp`": a_user_without_provider_is_of_idp,
    "With a model, so do all actions of users on objects, for at most `--tests` pairs (300)": three_hundred_pairs_are_asked,
    "The new files allow nothing that OpenFGA denies": [f"{_WIDER}::test_a_migrated_world_is_never_wider"],
    "Grants on a server are left, unless this server alone is above all projects of the export": [
        f"{_WIDER}::test_what_would_be_wider_is_left"
    ],
    "Without a model, the version of the model among the tuples (`model_version`) tells which rules are older: before "
    "4.13, `can_accept_moved_namespace` needed `manage_grants`": [f"{_WIDER}::test_without_a_model_the_version_tells"],
    "Without a version, all of these count": [f"{_WIDER}::test_without_a_model_the_version_tells"],
    "left: nothing is granted to everybody": [f"{_GRANTS}::test_what_has_no_counterpart_is_left"],
    "an object without a parent, with two parents, or with the name of another object": [
        f"{_GRANTS}::test_what_has_no_counterpart_is_left",
        f"{_GRANTS}::test_two_objects_of_one_name_are_left",
    ],
    "In another folder, or without a container among the files that mounts it, a text with settings is left, and its "
    "rules are not written": [f"{_PARTS}::test_a_text_that_nessie_does_not_read_permits_nothing"],
    "`application.properties` and `application.yaml` inside a ConfigMap or Secret, nowhere else": [
        f"{_PLACES}::test_rules_of_another_place_permit_nothing"
    ],
    "Below any other key, and in any other kind of object (an ExternalSecret, a custom resource), nothing counts: texts "
    "that look like settings are left": [f"{_PLACES}::test_rules_of_another_place_permit_nothing"],
    "Files of values belong to the only release, or are one server beside several": [
        f"{_PLACES}::test_rules_in_a_known_place_are_read"
    ],
    "A step `RUN` may change any file, unless it only installs packages, prints, or makes and removes files below `/usr`, "
    "`/var` and `/tmp` by their full paths": [
        f"{_UNREAD}::test_a_step_that_may_change_files_makes_their_rules_false",
        f"{_UNREAD}::test_a_step_that_changes_no_settings_is_not_left",
    ],
    "neither is `.env` beside docker compose, unless `env_file` names it": [
        f"{_UNREAD}::test_a_file_of_variables_that_nothing_loads_permits_nothing"
    ],
    "The key `nessie.server.default-branch` becomes `default_ref` of the warehouse, as the profile and the ranks choose it": [
        "offline/migration/test_nessie_default_branch.py::test_a_known_default_branch_is_that_of_the_server"
    ],
    "If the files have no container, `application.properties` of a ConfigMap is read": [
        f"{_DEPLOYMENTS}::test_every_form_of_deployment_gives_the_same_rules"
    ],
    "As long as such a part may set variables, providers without a scope are left, because it may hold one": [
        f"{_PARTS}::test_parts_that_are_left_close_what_they_might_open"
    ],
    "as long as any such part is left, other catalogs stay closed": [
        f"{_PARTS}::test_parts_that_are_left_close_what_they_might_open"
    ],
    "The exit code is then 1, and Nessie's branches stay hidden": [
        f"{_PARTS}::test_a_part_that_stands_elsewhere_is_named",
        "cli/test_migrate.py::test_a_part_that_is_not_given_exits_with_1",
    ],
    "Without a manifest it is docker compose, and a line to look at names the lines that others read otherwise": [
        f"{_ENV_FILES}::test_a_file_of_nobody_is_read_as_by_compose_with_a_note"
    ],
    "the file of a profile (`application-prod.properties`) wins over its main file": [
        "offline/migration/test_nessie.py::test_files_and_variables_are_joined_by_rank"
    ],
    "of several profiles, the last wins": [f"{_SOURCES}::test_the_file_of_the_last_profile_wins"],
    "among variables its name is `CONFIG_ORDINAL`": [
        f"{_SOURCES}::test_an_ordinal_counts_wherever_it_stands"
    ],
    "Quarkus reads the file of a profile only beside its main file, of the same ending and in the same folder: without "
    "it, the file is left, and its rules become `false`": [
        f"{_SOURCES}::test_the_file_of_a_profile_counts_beside_its_main_file"
    ],
    "Releases of Quarkus agree on a quoted id only if its variable ends with `__` (`..._RULES__A_B__` is "
    '`rules."a.b"`)': [f"{_SOURCES}::test_a_variable_with_an_open_quote_permits_nothing_and_is_left"],
    "A rule in a variable that ends inside of quotes, or with one `_`, is left, and becomes `false`": [
        f"{_SOURCES}::test_a_variable_with_an_open_quote_permits_nothing_and_is_left"
    ],
    "Where it is not certain which file that is (an archive of `ADD`, a pattern that finds nothing, a folder that is not "
    "known), or where something is mounted over a file of the image, the rules become `false`": [
        "offline/migration/test_image_steps.py::test_a_file_that_a_later_step_may_replace_permits_nothing",
        "offline/migration/test_image_steps.py::test_a_file_of_an_image_under_a_mount_permits_nothing",
    ],
    "Variables of other programs' containers, of a container that only runs `migrate`, of `extraContainers` and of labels "
    "and annotations do not count": [
        f"{_SOURCES}::test_a_text_that_is_no_variable_of_the_server_permits_nothing",
        "offline/migration/test_lakekeeper_servers.py::test_a_variable_without_a_certain_value_is_left",
    ],
    "The address of the keys is known for Keycloak only": [f"{_LAKEKEEPER}::test_what_has_no_counterpart_is_left"],
    "ignored if `false` or `off`": variables_that_are_off_are_ignored,
    "If both are there, `LAKEKEEPER__...` wins": [f"{_LAKEKEEPER}::test_the_older_beginning_of_variables_counts"],
    "A variable replaces its half of a pair": [
        f"{_LAKEKEEPER}::test_a_half_of_a_pair_has_the_other_half_of_the_bridge"
    ],
    "beside them it logs one line": [
        "cli/config/test_foreign_rules.py::test_variables_of_lakekeeper_are_mentioned_in_one_line"
    ],
    "Of several spellings in the export, only Lakekeeper's own counts": [f"{_WIDER}::test_what_would_be_wider_is_left"],
    "before 4.7, `can_grant_data_admin` needed `data_admin`, and `can_read_assignments` of a role its ownership": [
        f"{_WIDER}::test_without_a_model_the_version_tells"
    ],
    "A role or tag needs no project, a project no server": a_role_needs_no_project,
    "Without `GRANT TO`, a policy is for `allAuthenticatedUsers`": a_policy_without_grantees_is_for_all,
    "By default, a user without an entry, or whose list `Query` is empty, may read as in LakeQL, and may not write": (
        a_user_reads_as_in_lakeql
    ),
    "With `policies.scopes.strict: true` such a user may not read either": strict_scopes_deny,
    "Without the engine `scopes`, such a user has what grants and rules give: by default nothing": (
        grants_and_rules_give_nothing
    ),
    "Helm joins mappings of several files of values, and replaces anything else, also by `[]` or `null`": ["offline/migration/test_chart_values.py::test_a_value_that_another_file_replaces_permits_nothing"],
    "may be true for a check without `contentType` (a repository configuration) or `type` (anything else): Nessie fails there, and denies": ["offline/migration/test_nessie_never_wider.py::test_a_rule_that_may_be_wider_is_left_unless_each_name_is_accepted"],
    "has a pattern that Java refuses or reads otherwise: `(?i)`, `(?P<..>)`, `{,3}`, or a class inside of a class": ["offline/migration/test_nessie_never_wider.py::test_a_rule_that_may_be_wider_is_left_unless_each_name_is_accepted"],
    "`api` and `actions` are in Nessie's manual, and a server without an authorizer of its own does not start with them": ["offline/migration/test_nessie_never_wider.py::test_recorded_rules_permit_no_more_after_the_migration"],
    "It starts `java` (with `-jar`) or `run-java.sh`, or has only their options": ["offline/migration/test_nessie_commands.py::test_a_command_that_is_not_known_whole_permits_nothing"],
    "For the same reason, every variable of Lakekeeper and its bridge is left unless the command starts `lakekeeper` or `opa` alone": ["offline/migration/test_lakekeeper_servers.py::test_variables_beside_a_command_that_is_not_known_whole_are_left"],
    "So does a word of a variable (`java $X`, `$(X)`, `${X}`), unless the container has one plain text for it: letters, digits, blanks and `./:=,@%+-`": ["offline/migration/test_uncertain_starts.py::test_a_word_of_a_variable_may_change_every_rule"],
    "`-Dname=$(X)` in a list of Kubernetes makes only its own property uncertain": ["offline/migration/test_nessie_sources.py::test_a_rule_with_a_variable_of_another_program_permits_nothing"],
    "An option of Java counts as harmless if it sets memory, garbage collection, logs, a debugger or access to modules, or is a `-D` without a meaning for Java itself": ["offline/migration/test_uncertain_starts.py::test_an_option_of_java_that_is_not_known_to_be_harmless_makes_rules_false"],
    "Two different models, and a model without types, are refused": ["offline/migration/test_openfga_never_wider.py::test_a_tuple_that_the_model_does_not_take_is_left"],
}  # fmt: skip
"""Sentence -> its test: a function here, or the places of tests."""


def test_every_sentence_about_a_default_has_a_test() -> None:
    page = sentences()
    assert [one for one in page if _ABOUT_A_DEFAULT.search(one) and one not in DEFAULTS] == []
    assert [one for one in DEFAULTS if one not in page] == []


@pytest.mark.parametrize("sentence", DEFAULTS, ids=lambda sentence: sentence[:60])
def test_a_sentence_about_a_default_holds(tmp_path: Path, sentence: str) -> None:
    holds = DEFAULTS[sentence]
    if callable(holds):
        holds(tmp_path)
        return
    for place in holds:
        file, _, test = place.partition("::")
        assert f"def {test}(" in (TESTS / file).read_text(), place


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("CREATE ROW ACCESS POLICY p ON s.t FILTER USING (a = 'New  York');", ["a = 'New  York'"]),
        ('create or replace row access policy p on s.t\n filter using (a = "x\\\\y");\n', ['a = "x\\\\y"']),
        ("-- why\nCREATE ROW ACCESS POLICY p ON s.t FILTER USING (a\n > 1)", ["a\n > 1"]),
        (
            "CREATE ROW ACCESS POLICY p ON s.t FILTER USING (a = ';');\nCREATE ROW ACCESS POLICY q ON s.t FILTER USING (b);",
            ["a = ';'", "b"],
        ),
    ],
)
def test_row_policies_in_sql_are_shown_as_yaml_that_means_the_same(text: str, filters: list[str]) -> None:
    shown = advice_for(".sql", text).partition("write in YAML `")[2].rpartition("`, or give each")[0]
    assert [policy["filter"] for policy in yaml.safe_load(shown)["policies"]] == filters


@pytest.mark.parametrize(
    "text", ["SELECT 1;", "CREATE ROW ACCESS POLICY p ON s.t FILTER USING (a); DROP TABLE s.t;", ""]
)
def test_other_sql_is_not_shown(text: str) -> None:
    assert "write row policies in YAML, `policies: [{id, table, grantees, filter}]`" in advice_for(".sql", text)
