"""Groups, roles and claims of the caller in filters and masks of each engine: literals of the request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from click.testing import CliRunner, Result
from msgspec.structs import replace
from support.service.command_line import COMPOSITION

from pdp.cli.main import cli
from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.policy_set import PolicySet
from pdp.model.question import Principal
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.identity import CallerIdentity, PrincipalCaller, owner_identity
from pdp.rewrite.process.local import RewriteRequest
from pdp.rewrite.rewriter import Rewriter

TABLES = {"lake.s.t": {"columns": {"id": "INTEGER", "team": "VARCHAR"}}}
NAME = ("lake", "s", "t")
MEMBERS = Members("user:{subject}", "oidc")
ANN = Principal(
    "user",
    "oidc~ann",
    roles=("etl",),
    groups=("eu", "o'n"),
    attributes='{"team":"eu","n":3}',
    member_of=("etl", "stored"),
)
HOME = {
    "trino": "contains(current_groups(), team)", "duckdb": "list_contains(current_groups(), team)",
    "spark": "array_contains(current_groups(), team)", "bigquery": "team IN UNNEST(current_groups())",
}  # fmt: skip
LISTS = {
    "trino": "CAST(ARRAY['eu', 'o''n'] AS array(varchar))", "duckdb": "CAST(['eu', 'o''n'] AS VARCHAR[])",
    "spark": "CAST(array('eu', 'o\\'n') AS array<string>)", "bigquery": "ARRAY<STRING>['eu', 'o\\'n']",
}  # fmt: skip
ROWS = [(1, "eu"), (2, "us"), (3, None), (4, "o'n"), (5, "etl"), (6, "")]


def policies(text: str, dialect: str, kind: str = "filter") -> PolicySet:
    entry = {"id": "p", "table": "lake.s.t", "grantees": ["allUsers"], "dialect": dialect}
    mask = {**entry, "column": "team", "kind": "expression", "expression": text}
    document = {"policies": [{**entry, "filter": text}]} if kind == "filter" else {"masks": [mask]}
    return policy_set_of([parse_document(document).document])


def rewriter() -> Rewriter:
    return Rewriter(catalog_of([parse_document({"tables": TABLES}).document]))


def condition(text: str, source: str, target: str, who: Principal | CallerIdentity = ANN) -> str:
    caller = who if isinstance(who, CallerIdentity) else PrincipalCaller(who, MEMBERS)
    return rewriter().visible(NAME, target, caller, policies(text, source))[0]


def shown(sql: str, rows: list[tuple[int, str | None]] = ROWS) -> list[int]:
    database = duckdb.connect()
    database.execute("CREATE TABLE _rap_row (id INTEGER, team VARCHAR)")
    database.executemany("INSERT INTO _rap_row VALUES (?, ?)", rows)
    return [row[0] for row in database.execute(f"SELECT id FROM _rap_row WHERE {sql} ORDER BY id").fetchall()]


@pytest.mark.parametrize("dialect", HOME)
def test_groups_are_a_list_of_literals_at_home(dialect: str) -> None:
    found = condition(HOME[dialect], dialect, dialect)
    assert LISTS[dialect] in found
    assert "current_" not in found
    assert sqlglot.parse_one(found, read=dialect)


@pytest.mark.parametrize("source", HOME)
@pytest.mark.parametrize("target", HOME)
def test_groups_mean_the_same_abroad(source: str, target: str) -> None:
    for text in (HOME[source], f"NOT ({HOME[source]})", f"{HOME[source]} AND id > 1", f"id = 6 OR {HOME[source]}"):
        found = condition(text, source, target)
        assert LISTS[target] in found
        here = sqlglot.transpile(found, read=target, write="duckdb")[0] if target == "trino" else found
        if target in ("duckdb", "trino"):
            rows = {"id": [1, 4], "NOT": [2, 5, 6], "AND": [4], "OR": [1, 4, 6]}
            wanted = rows["NOT" if "NOT" in text else "AND" if "AND" in text else "OR" if " OR " in text else "id"]
            assert shown(here) == wanted, found


@pytest.mark.parametrize("target", HOME)
@pytest.mark.parametrize(
    "text", ["is_member('eu')", "is_account_group_member(team)", "IS_MEMBER ( 'us' )", "NOT is_member('us')"]
)
def test_databricks_tests_for_groups(text: str, target: str) -> None:
    found = condition(text, "spark", target)
    assert LISTS[target] in found
    assert "is_" not in found.lower()
    if target == "duckdb":
        wanted = {"'eu'": [1, 2, 3, 4, 5, 6], "team": [1, 4]}
        assert shown(found) == (
            [1, 2, 3, 4, 5, 6] if "NOT" in text else wanted.get(text.partition("(")[2].strip(" )"), [])
        )


@pytest.mark.parametrize("source", HOME)
@pytest.mark.parametrize("target", HOME)
def test_claims_and_roles(source: str, target: str) -> None:
    assert shown(condition("team = current_claim('team')", source, "duckdb")) == [1]
    assert "'eu'" in condition("team = Current_Claim ( 'team' )", source, target)
    roles = HOME[source].replace("current_groups", "current_roles")
    assert "'etl'" in condition(roles, source, target)
    assert "stored" not in condition(roles, source, target)


UNKNOWN = [
    ("team <> current_claim('none')", ANN), ("COALESCE(team <> current_claim('n'), TRUE)", ANN),
    ("team <> current_claim('team')", Principal("user", "oidc~bob")),
    ("team <> current_claim('team')", replace(ANN, unknown=("attributes.team",))),
    ("NOT {groups}", replace(ANN, unknown=("groups",))), ("NOT {groups}", replace(ANN, bare=True)),
    ("NOT {groups}", Principal("role", "etl")), ("NOT {roles}", replace(ANN, unknown=("member_of",))),
    ("NOT {groups}", replace(ANN, groups=("a\u2028b",))), ("NOT {roles}", CallerIdentity("user:ann", ["eu"])),
    ("NOT {groups}", owner_identity("user:ann")), ("NOT {groups}", owner_identity("user:ann", MEMBERS)),
]  # fmt: skip


@pytest.mark.parametrize("target", HOME)
@pytest.mark.parametrize(("text", "who"), UNKNOWN)
def test_an_unknown_value_hides_the_row_and_the_value(text: str, who: Principal | CallerIdentity, target: str) -> None:
    """Negated too, at home and abroad."""
    for source in (target, "trino"):
        groups = HOME[source]
        filled = text.format(groups=groups, roles=groups.replace("current_groups", "current_roles"))
        assert condition(filled, source, target, who) == "FALSE"
        caller = who if isinstance(who, CallerIdentity) else PrincipalCaller(who, MEMBERS)
        value = f"CASE WHEN {filled} THEN team END"
        masked = rewriter().visible(NAME, target, caller, policies(value, source, "mask"))[1]
        assert "CASE WHEN FALSE THEN" in dict(masked)["team"]


@pytest.mark.parametrize("dialect", HOME)
def test_no_caller_gets_the_literals_of_another(dialect: str) -> None:
    """One rewriter and one set of policies remember the filters of many callers."""
    here, some = rewriter(), policies(HOME[dialect], dialect)
    callers = [
        ANN, replace(ANN, groups=("us",)), replace(ANN, groups=()), replace(ANN, roles=("dev",)), replace(ANN, attributes="{}"),
        replace(ANN, unknown=("groups",)), replace(ANN, bare=True),
    ]  # fmt: skip
    for _ in range(2):
        for who in callers:
            found = here.visible(NAME, dialect, PrincipalCaller(who, MEMBERS), some)[0]
            assert found == condition(HOME[dialect], dialect, dialect, who)
    assert "'us'" in here.visible(NAME, dialect, PrincipalCaller(callers[1], MEMBERS), some)[0]


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("team = current_groups()", "trino"), ("cardinality(current_groups()) > 0", "trino"),
        ("team = current_claim(team)", "trino"), ("team = current_claim('a', 'b')", "duckdb"),
        ("team = current_claim('a''b')", "duckdb"), ("x.current_groups() IS NULL", "trino"),
        ("team = current_claim()", "spark"), ("is_member(team, team)", "spark"), ("is_member('x')", "duckdb"),
        ('list_contains("current_groups"(), team)', "duckdb"),
    ],
)  # fmt: skip
def test_other_forms_are_refused_abroad(text: str, dialect: str) -> None:
    with pytest.raises(RewriteRefused):
        condition(text, dialect, "bigquery")


@pytest.mark.parametrize(
    "text", ["SELECT current_groups()", "SELECT * FROM lake.s.t WHERE current_claim('team') = 'eu'"]
)
@pytest.mark.parametrize("dialect", HOME)
def test_statements_do_not_ask_for_them(text: str, dialect: str) -> None:
    """The engine would answer for its session, or know no such function."""
    with pytest.raises(RewriteRefused):
        rewriter().rewrite(text, dialect, PrincipalCaller(ANN, MEMBERS), policies("TRUE", dialect))


@pytest.mark.parametrize("dialect", sorted(HOME))
def test_roles_and_claims_that_a_request_asserts(dialect: str) -> None:
    """A list of roles is whole: `[]` is no role, and None unknown. A claim that is not given is unknown, negated too."""
    roles, claim = HOME[dialect].replace("groups", "roles"), "team = current_claim('team')"

    def of(text: str, **more: Any) -> str:
        request = RewriteRequest("", dialect, "user:ann@x.example", **more)
        return condition(text, dialect, dialect, request.caller())

    assert LISTS[dialect] in of(roles, roles=("eu", "o'n"))
    assert "'eu'" not in of(roles, roles=())
    assert of(claim, claims={"team": "eu"}) == "team = 'eu'"
    for text in (roles, claim, f"NOT ({claim})"):
        assert of(text) == of(text, claims={"other": "eu"}) == "FALSE"


def test_asserted_roles_are_grantees() -> None:
    entry = {"id": "p", "table": "lake.s.t", "grantees": ["role:boss"], "filter": "TRUE"}
    known = policy_set_of([parse_document({"policies": [entry]}).document])
    for roles, rows in (
        (None, "FALSE"),
        ((), "FALSE"),
        (("clerk",), "FALSE"),
        (("clerk", "boss"), ""),
        ((" role:boss",), ""),
    ):
        caller = RewriteRequest("", "duckdb", "user:ann@x.example", roles=roles).caller()
        assert rewriter().visible(NAME, "duckdb", caller, known)[0] == rows, roles


def test_the_command_takes_roles_and_claims(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    entry = {"id": "p", "table": "lake.s.t", "grantees": ["allUsers"], "dialect": "duckdb"}
    both = "list_contains(current_roles(), team) AND team = current_claim('team')"
    file.write_text(json.dumps({"tables": TABLES, "policies": [{**entry, "filter": both}]}))
    command = ["rewrite", "--policies", str(file), "--dialect", "duckdb", "--as", "user:ann@x.example"]

    def run(*more: str) -> Result:
        return CliRunner().invoke(cli, [*command, *more], obj=COMPOSITION, input="SELECT id FROM lake.s.t")

    assert "'etl'" in run("--roles", "etl, eu", "--claim", "team=a=b").stdout
    assert "team = 'a=b'" in run("--roles", "etl, eu", "--claim", "team=a=b").stdout
    assert "FALSE" in run("--roles", "etl").stdout
    for wrong in (["--claim", "team"], ["--claim", "a=1", "--claim", "a=2"]):
        assert "write each --claim once" in run(*wrong).output
        assert run(*wrong).exit_code
