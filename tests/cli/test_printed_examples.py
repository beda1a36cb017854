"""Examples of the manuals of Nessie, Lakekeeper, LakeQL and bqemulator, pasted as they are printed.

Each works, or is refused with a line that says what to write instead. docs/migration.md has the same list.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from support.paths import ROOT
from support.service.commands import run_pdp

pytestmark = pytest.mark.process

RULES = "nessie.server.authorization.rules."
LINT = ("lint", "{file}")
CHECK = ("check", "--rules", "{file}")
WORLD = ("check", "--world", "{file}")
LAKEKEEPER = ("migrate", "lakekeeper", "{file}")
OPENFGA = ("migrate", "openfga", "{file}")
ROWS = ("check", "--set", "policies.row_access=[{file}]")
CEDAR = "name the file in `policies.cedar.policies`"
CODE = "permissions in code are not read: for LakeQL, name its permission files in `policies.scopes.permissions`"


class Printed(NamedTuple):
    """Example with its command, the exit code, and the words of the answer."""

    name: str
    file: str
    text: str
    command: tuple[str, ...]
    code: int
    words: str = ""


def working_rule(name: str, text: str) -> list[Printed]:
    """Return a rule that lint and check take, as one example."""
    printed = f"{RULES}{name}=\\\n  {text}\n"
    return [Printed(f"`{name}`", f"{name}.properties", printed, command, 0) for command in (LINT, CHECK)]


def broken_rule(name: str, path: str, role: str) -> Printed:
    ops = "op in ['READ_ENTITY_VALUE', 'UPDATE_ENTITY', 'DELETE_ENTITY']"
    printed = f"{RULES}{name}=\\\n  {ops} && path=='{path}` && role=='{role}')\n"
    words = f"write `{ops} && path=='{path}' && role=='{role}'`"
    return Printed(f"`{name}`", f"{name}.properties", printed, CHECK, 2, words)


ENGINE = "LAKEKEEPER__TRUSTED_ENGINES__TRINO__"
MINIMAL = (
    f"{ENGINE}TYPE=trino\n{ENGINE}OWNER_PROPERTY=trino.run-as-owner\n{ENGINE}IDENTITIES__OIDC__AUDIENCES=[trino]\n"
)
CEDAR_ADMIN = """\
permit (
    principal == Lakekeeper::User::"oidc~<sub-field-from-user-token>",
    action,
    resource
);
"""
CEDAR_WAREHOUSE = """\
// Grant full access to all entities in a warehouse with name "wh-1"
permit (
    principal in Lakekeeper::Role::"warehouse-1-admins",
    action in [Lakekeeper::Action::"NamespaceActions",
               Lakekeeper::Action::"TableActions",
               Lakekeeper::Action::"ViewActions"],
    resource
)
when { resource.warehouse.name == "wh-1" };
"""
CEDAR_TABLE = """\
permit (
    principal == Lakekeeper::User::"oidc~<sub-field-from-user-token>",
    action in [Lakekeeper::Action::"TableSelectActions"],
    resource
)
when {
    resource.namespace.name == "analytics" &&
    resource.warehouse.name == "wh-1"
};
"""
ENTITIES = """\
[
    {
        "uid": {
            "type": "Lakekeeper::User",
            "id": "oidc~90471f73-e338-4032-9a6b-1e021cc3cb1e"
        },
        "attrs": {
            "display_name": "machine-user-1"
        },
        "parents": [
            {
                "type": "Lakekeeper::Role",
                "id": "data-engineering"
            }
        ]
    }
]
"""
OPENFGA_VARIABLES = """\
OPENFGA_DATASTORE_MAX_OPEN_CONNS=200
OPENFGA_DATASTORE_MAX_IDLE_CONNS=100
OPENFGA_CACHE_CONTROLLER_ENABLED=true
OPENFGA_CHECK_QUERY_CACHE_ENABLED=true
OPENFGA_CHECK_ITERATOR_CACHE_ENABLED=true
"""
ROW_POLICY = """\
CREATE [OR REPLACE] ROW ACCESS POLICY [IF NOT EXISTS] <policy>
  ON <table>
  [GRANT TO (<grantee_list>)]
  FILTER USING (<bool_expr>);
"""
LAKEQL = """\
import { defineConfig } from "@lakeql/api/config"

export const config = defineConfig({
  allConfigs,
  hasWritePermission: ({ context, catalog, schema, tableName }) => {
    // Custom logic: all writes require admin role
    return context.currentUser?.role === "admin"
  },
})
"""
LAKEQL_FIELD = """\
builder.queryField("sensitiveData", (t) =>
  t.field({
    type: "String",
    authScopes: {
      readPermission: {
        catalog: "hive",
        schema: "internal",
        tableName: "secrets",
      },
    },
    resolve: () => "classified information",
  })
)
"""

EXAMPLES: list[Printed] = [
    Printed("`enabled=true`", "a.properties", "nessie.server.authorization.enabled=true\n", CHECK, 0),
    Printed(
        "`rules.<ruleId>`", "a.properties", f"{RULES}<ruleId>=<rule_expression>\n", CHECK, 2, "is a placeholder: write"
    ),
    *working_rule(
        "allow_branch_listing", "op=='VIEW_REFERENCE' && role.startsWith('test_') && ref.startsWith('allowedBranch')"
    ),
    *working_rule(
        "allow_branch_creation", "op=='CREATE_REFERENCE' && role=='test_user' && ref.matches('.*allowedBranch.*')"
    ),
    *working_rule(
        "allow_branch_deletion",
        "op in ['VIEW_REFERENCE', 'DELETE_REFERENCE'] && role=='test_user123' && ref.endsWith('allowedBranch')",
    ),
    *working_rule("allow_listing_commitlog", "op in ['VIEW_REFERENCE', 'LIST_COMMIT_LOG'] && ref.startsWith('dev')"),
    *working_rule(
        "allow_reading_entity_value",
        "op in ['VIEW_REFERENCE', 'READ_ENTITY_VALUE'] && role=='test_user' && path.startsWith('allowed.')",
    ),
    *working_rule("allow_deleting_entity", "op in ['VIEW_REFERENCE', 'DELETE_ENTITY'] && path.startsWith('dev.')"),
    *working_rule("allow_listing_reflog", "op=='VIEW_REFLOG' && role=='admin_user'"),
    *working_rule("prod", "op in ['VIEW_REFERENCE'] && ref=='prod' && role in ['Alice', 'Bob', 'Carol', 'Dave']"),
    *working_rule(
        "reading_foo_on_prod", "op in ['READ_ENTITY_VALUE'] && ref=='prod' && path=='Foo' && role in ['Alice', 'Dave']"
    ),
    *(
        example
        for name, role in (("carol-branch", "Carol"), ("dave-experiment", "Dave"))
        for example in working_rule(
            name,
            "op in ['VIEW_REFERENCE', 'CREATE_REFERENCE', 'DELETE_REFERENCE', 'COMMIT_CHANGE_AGAINST_REFERENCE'] && "
            f"ref=='{name}' && role=='{role}'",
        )
    ),
    broken_rule("bob", "BobsBar", "Bob"),
    broken_rule("carol", "CarolsSecret", "Alice"),
    broken_rule("dave", "DavesHiddenX", "Dave"),
    Printed("minimal example for Trino", "a.env", MINIMAL, LAKEKEEPER, 0, "5 policy tests passed"),
    Printed(
        "`IDENTITIES__OIDC__SUBJECTS`",
        "a.env",
        f'{MINIMAL}{ENGINE}IDENTITIES__OIDC__SUBJECTS=["<trino-service-account-subject>"]\n',
        LAKEKEEPER,
        1,
        "`<trino-service-account-subject>` is a placeholder: write",
    ),
    Printed("`OPENFGA_...`", "a.env", OPENFGA_VARIABLES, LAKEKEEPER, 2, "pdp does not need"),
    Printed(
        "`LAKEKEEPER__CEDAR__REFRESH_INTERVAL_SECS`",
        "a.env",
        "LAKEKEEPER__CEDAR__REFRESH_INTERVAL_SECS=5\n",
        LAKEKEEPER,
        1,
        "write `policies.refresh_seconds: 5`; name policies and entities in `policies.cedar`",
    ),
    *(
        Printed(name, "a.cedar", text, command, 2, CEDAR)
        for name, text in (
            ("Cedar: admin access", CEDAR_ADMIN),
            ("Cedar: warehouse access of a role", CEDAR_WAREHOUSE),
            ("Cedar: read access in a namespace", CEDAR_TABLE),
        )
        for command in (CHECK, LAKEKEEPER)
    ),
    *(
        Printed(
            "Cedar: entities",
            "a.json",
            ENTITIES,
            command,
            2,
            "name the file in `policies.cedar.entities`, or for each parent",
        )
        for command in (WORLD, OPENFGA)
    ),
    Printed("`CREATE ROW ACCESS POLICY`", "a.sql", ROW_POLICY, ROWS, 2, "write row policies in YAML"),
    Printed("LakeQL: custom resolvers", "config.ts", LAKEQL, CHECK, 2, CODE),
    Printed("LakeQL: `authScopes`", "config.ts", LAKEQL_FIELD, CHECK, 2, CODE),
    *(
        Printed(name, f"config.{suffix}", text, LINT, 1, CODE)
        for suffix, name, text in (
            ("ts", "LakeQL: custom resolvers", LAKEQL),
            ("mjs", "LakeQL: `authScopes`", LAKEQL_FIELD),
        )
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.name} {example.command[0]}")
def test_a_printed_example_works_or_says_what_to_write(tmp_path: Path, example: Printed) -> None:
    (tmp_path / "pdp.yaml").write_text("policies: {rules: []}\n")
    (tmp_path / example.file).write_text(example.text)
    ended = run_pdp(*(part.format(file=example.file) for part in example.command), cwd=tmp_path)
    assert ended.returncode == example.code, ended.stderr
    assert example.words in ended.stdout + ended.stderr
    if example.code == 2:
        assert ended.stderr.count("\n") == 1


def test_the_page_lists_every_example() -> None:
    page = (ROOT / "docs" / "migration.md").read_text()
    table = page.partition("## Printed examples")[2]
    assert [example.name for example in EXAMPLES if example.name not in table] == []


def test_a_row_policy_in_sql_is_shown_in_yaml(tmp_path: Path) -> None:
    text = "CREATE ROW ACCESS POLICY eu ON `lake.sales.orders` GRANT TO ('user:a@x') FILTER USING (region = 'EU');\n"
    (tmp_path / "pdp.yaml").write_text("policies: {rules: []}\n")
    (tmp_path / "a.sql").write_text(text)
    ended = run_pdp("check", "--set", "policies.row_access=[a.sql]", cwd=tmp_path)
    assert ended.returncode == 2
    assert (
        'policies: [{id: eu, table: lake.sales.orders, grantees: ["user:a@x"], dialect: bigquery, '
        "filter: \"region = 'EU'\"}]" in ended.stderr
    )
