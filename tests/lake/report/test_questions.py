"""Questions of the report on real Spark: exact answers for a small lake, sums for a generated one."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from datetime import UTC
from itertools import product
from random import Random
from typing import Any

import pytest
from support.pages.report_lake import DENIED, LakeRows, ago, check, granted
from support.pages.reports import columns_of
from support.servers.spark import folder_lake

from pdp.lake.report.html import render
from pdp.lake.report.report import QUESTIONS, Asker, Report, ReportAnswer, missing_privileges, read_question

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(900)]
ALICE, BOB, CAROL, DORA = (f"user:oidc~{name}" for name in ("alice", "bob", "carol", "dora"))
ORDERS, PEOPLE, VIEW = "table:lake/sales/orders", "table:lake/hr/people", "view:lake/reports/v"
ANALYST = granted("select", "namespace:lake/sales", "role:analyst")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return folder_lake(tmp_path_factory.mktemp("lake")).spark


def answers(spark: Any, rows: LakeRows, *names: str, days: int = 14) -> dict[str, ReportAnswer]:
    rows.create_views(spark)
    asker = Asker(spark, days)
    with asker.views(lambda _: None):
        return {name: asker.ask(read_question(name)) for name in names or QUESTIONS}


def small() -> LakeRows:
    rows = LakeRows()
    rows.policies("bundle0", rules={"old": "true", "used": "path=='x'"})
    rows.policies(
        "bundle1",
        rules={"used": "path=='x'", "idle": "path=='y'", "new": "path=='z'", "bad": "int(role) > 1"},
        forbid={"closed": "path=='hr.people'", "idle_forbid": "false"},
        rowAccess=[{
            "policies": [{"id": "eu", "table": "lake.sales.orders", "filter": "TRUE"}, {"id": "none", "table": "t", "filter": "x"}],
            "masks": [{"id": "mail", "table": "t", "column": "c"}, {"id": "unmasked", "table": "t", "column": "d"}],
        }],
    )  # fmt: skip
    rows.grant("role:analyst", "select", "namespace:lake/sales")
    rows.grant("role:staff", "assignee", "role:analyst")
    rows.grant(ALICE, "assignee", "role:staff")
    rows.grant(DORA, "assignee", "role:staff")
    rows.grant(BOB, "ownership", VIEW)
    rows.grant(BOB, "select", "warehouse:lake")
    rows.grant(BOB, "modify", PEOPLE)
    rows.grant(CAROL, "select", ORDERS, days=2, by="user:oidc~root")
    rows.grant(CAROL, "modify", PEOPLE, days=90)
    rows.grant(CAROL, "modify", PEOPLE, days=20, added=False, by="user:oidc~root")
    rows.revision = "epoch.1.bundle0"
    rows.request(check(ALICE, "read_data", f"{ORDERS}@main", "cel:used"), days=40)
    rows.revision = "epoch.1.bundle1"
    rows.request(check(CAROL, "read_data", ORDERS, ANALYST), days=39)
    # Trino asks about a table or a view: two checks, one access
    twin: dict[str, Any] = {"asked": False, "surface": "trino", "caller": "trino"}
    for day in (1, 3, 3.1):
        rows.request(
            check(ALICE, "read_data", f"{ORDERS}@main", ANALYST, **twin),
            check(ALICE, "select", "view:lake/sales/orders@main", ANALYST, **twin), days=day, surface="trino", caller="trino",
        )  # fmt: skip
    rows.request(
        check(BOB, "read_data", "table:lake/reports/v", DENIED, **twin, errors=["bad"]),
        check(BOB, "select", VIEW, DENIED, **twin, errors=["bad"]), days=2, surface="trino", caller="trino",
    )  # fmt: skip
    # a load through a view of bob; the right to write is no access, and no denial
    chain = [{"view": VIEW, "owner": BOB, "engine": "trino"}]
    asked = {"principal": ALICE, "action": "loadTable", "resource": f"{PEOPLE}@main", "allowed": True, "by": "x"}
    load: dict[str, Any] = {"asked": False}
    owned: dict[str, Any] = {"as": BOB, "delegated": True, "answer": True, **load}
    rows.request(
        check(ALICE, "select", VIEW, ANALYST, **load),
        check(ALICE, "read_data", PEOPLE, granted("select", "warehouse:lake", BOB), **owned),
        check(ALICE, "write_data", PEOPLE, DENIED, **owned), days=0,
        asked=json.dumps({"rows": [{**asked, "entry": json.dumps({"load": {"chain": chain}})}]}),
    )  # fmt: skip
    for day in (5, 6, 6.1):
        rows.request(check(CAROL, "write_data", PEOPLE, DENIED), days=day)
    rows.request(check(CAROL, "read_data", PEOPLE, "cel:closed", allowed=False), days=4)
    rows.request(check(CAROL, "include_in_list", PEOPLE, DENIED), days=4)
    rows.request(check(ALICE, "trino:GetRowFilters", ORDERS, "row_access:eu"), days=1, event="filter",
                 masks=json.dumps({"c": "row_access:mail", "d": None}))  # fmt: skip
    rows.event("refusal", "invalid_argument", days=3, surface="http", caller="catalog")
    rows.event(
        "refusal",
        "invalid_argument",
        days=2,
        surface="http",
        caller="catalog",
        details={"message": "", "suppressed": 4},
    )
    rows.event("management", "write_grants", days=2, actor="user:oidc~root", allowed=True)
    return rows


@pytest.fixture(scope="module")
def found(spark: Any) -> dict[str, ReportAnswer]:
    return answers(spark, small())


def by(answer: ReportAnswer, *keys: str) -> dict[Any, dict[str, Any]]:
    return {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in answer.records()}


def test_answers_have_the_columns_that_the_page_expects(found: dict[str, ReportAnswer]) -> None:
    for name, answer in found.items():
        assert answer.columns == columns_of(name), name


def test_a_name_that_may_be_a_table_or_a_view_is_one_access(found: dict[str, ReportAnswer]) -> None:
    objects = by(found["objects"], "object")
    assert objects.keys() == {ORDERS, PEOPLE, VIEW}
    assert (objects[ORDERS]["reads"], objects[ORDERS]["principals"]) == (5, 2)
    assert (objects[VIEW]["reads"], objects[VIEW]["denied"]) == (1, 1)


def test_a_load_reads_and_does_not_write(found: dict[str, ReportAnswer]) -> None:
    people = by(found["objects"], "object")[PEOPLE]
    assert (people["reads"], people["writes"], people["denied"]) == (1, 0, 4)
    (delegated,) = found["delegated"].records()
    assert (delegated["reader"], delegated["owner"], delegated["object"]) == (ALICE, BOB, PEOPLE)
    assert (delegated["views"], delegated["loads"], delegated["denied"]) == ("lake/reports/v", 1, 0)
    (engine,) = found["trusted_engines"].records()
    assert (engine["engine"], engine["loads"]) == ("trino", 1)


def test_principals_and_roles_are_counted(found: dict[str, ReportAnswer]) -> None:
    principals = by(found["principals"], "principal")
    assert {name: (row["reads"], row["writes"], row["denied"]) for name, row in principals.items()} == {
        ALICE: (6, 0, 0), BOB: (0, 0, 1), CAROL: (1, 0, 4),
    }  # fmt: skip
    (role,) = found["roles"].records()
    assert (role["role"], role["reads"], role["principals"]) == ("role:analyst", 5, 2)


def test_denials_have_reason_and_missing_privilege(found: dict[str, ReportAnswer]) -> None:
    denials = by(found["denials"], "principal", "action")
    assert denials.keys() == {(CAROL, "write_data"), (CAROL, "read_data"), (BOB, "select")}
    written = denials[CAROL, "write_data"]
    assert (written["checks"], written["days"], written["missing"], written["rights_of"]) == (3, 2, "modify", None)
    assert denials[CAROL, "read_data"]["missing"] == "none: a rule forbids it"
    assert (denials[BOB, "select"]["missing"], denials[BOB, "select"]["raised"]) == ("select", "bad")
    assert written["sample_id"].startswith("r")


def test_grants_without_use_are_those_that_decided_nothing(found: dict[str, ReportAnswer]) -> None:
    unused = {(row["principal"], row["privilege"], row["object"]): row for row in found["unused_grants"].records()}
    # the grant to the role, and each membership on the way of alice, decided; carol's is too young; the view ran as bob
    assert unused.keys() == {(DORA, "assignee", "role:staff"), (BOB, "modify", PEOPLE)}
    assert (unused[BOB, "modify", PEOPLE]["ever"], unused[BOB, "modify", PEOPLE]["active_members"]) == (0, 1)
    assert unused[DORA, "assignee", "role:staff"]["active_members"] == 0


def test_a_grant_has_no_use_any_more(spark: Any) -> None:
    later = by(answers(spark, small(), "unused_grants", days=1)["unused_grants"], "principal", "object")
    assert (BOB, "warehouse:lake") not in later
    assert (CAROL, ORDERS) in later
    assert later[CAROL, ORDERS]["granted_by"] == "user:oidc~root"


def test_rules_without_use_are_named_by_their_effect(found: dict[str, ReportAnswer]) -> None:
    rules = by(found["unused_rules"], "rule")
    assert rules.keys() == {"used", "idle", "new", "bad", "idle_forbid", "none", "unmasked"}
    assert (rules["used"]["ever"], rules["used"]["last_used"]) == (1, ago(40))
    assert {name: row["effect"] for name, row in rules.items() if name != "used"} == {
        "idle": "permits", "new": "permits", "bad": "permits", "idle_forbid": "forbids", "none": "shows rows",
        "unmasked": "masks",
    }  # fmt: skip
    assert rules["bad"]["raised"] == 2


def test_dormant_principals_and_first_access(found: dict[str, ReportAnswer]) -> None:
    assert [(row["principal"], row["last_time"]) for row in found["dormant"].records()] == [(DORA, None)]
    first = by(found["first_access"], "principal", "place")
    assert first.keys() == {(ALICE, "lake/reports")}  # orders were read before; people through a view only


def test_attempts_after_a_removal_are_found(found: dict[str, ReportAnswer]) -> None:
    (row,) = found["after_removal"].records()
    assert (row["principal"], row["removed"], row["removed_by"], row["denied"]) == (CAROL, ago(20), "user:oidc~root", 4)


def test_errors_and_totals(found: dict[str, ReportAnswer]) -> None:
    errors = by(found["errors"], "problem", "source")
    assert errors["request refused", "http invalid_argument"]["count"] == 5  # one with a record, four counted
    assert errors["request refused", "http invalid_argument"]["example"] == "no good"
    assert errors["rule raised", "bad"]["count"] == 2
    (totals,) = found["totals"].records()
    assert (totals["requests"], totals["refused"], totals["denied"], totals["hidden_in_lists"]) == (13, 5, 5, 1)
    assert (totals["principals"], totals["delegated"], totals["checks_with_errors"]) == (3, 1, 2)
    policies = [row["change"].split(":")[0] for row in found["changes"].records() if row["what"] == "policies"]
    assert policies == ["new policies", "first policies"]


def test_a_page_is_made_of_the_answers(found: dict[str, ReportAnswer]) -> None:
    made = Report("lake", ago(40).astimezone(UTC), ago(0), 14, ago(0), found)
    page = render(made)
    assert "carol went on trying" in page
    assert "2 grants without use" in page


def test_sampled_permits_are_said(spark: Any) -> None:
    rows = small()
    for row in rows.rows["requests"]:
        row |= {"sampled": 0.1, "left_out": 9}
    totals = answers(spark, rows, "totals")["totals"].records()[0]
    assert (totals["least_sampled"], totals["left_out"]) == (0.1, 9 * 13)


def test_numbers_out_of_range_stop_no_question(spark: Any) -> None:
    rows = LakeRows()
    rows.request(check(ALICE, "read_data", ORDERS, DENIED), sampled=0.0)
    for suppressed in ("many", 1 << 63, 4):
        rows.event("refusal", "invalid_argument", surface="http", caller="catalog", details={"suppressed": suppressed})
    found = answers(spark, rows)
    totals = found["totals"].records()[0]
    assert (totals["least_sampled"], totals["denied"], totals["refused"]) == (0, 1, 6)
    assert [row["refused"] for name in ("days", "callers") for row in found[name].records()] == [6, 6]


def test_a_lake_without_records(spark: Any) -> None:
    found = answers(spark, LakeRows())
    assert found["totals"].records()[0]["requests"] == 0
    assert [name for name, answer in found.items() if answer.rows] == ["totals"]


def test_one_decision(spark: Any) -> None:
    rows = LakeRows()
    rows.request(check(ALICE, "read_data", ORDERS, DENIED))
    found = answers(spark, rows)
    assert [row["checks"] for row in found["denials"].records()] == [1]
    page = render(Report("lake", ago(1), ago(1), 14, ago(0), found))
    assert "in 1 request<" in page


def test_generated_checks_are_all_counted(spark: Any) -> None:
    """Sums by principal and by object equal a count in plain Python, with few rows and the rest summed."""
    random = Random(7)
    rows = LakeRows()
    wanted: dict[str, Counter[str]] = defaultdict(Counter)
    for _ in range(1500):
        principal, table = f"user:oidc~p{random.randrange(40)}", f"table:lake/n/t{random.randrange(60)}"
        action, allowed = random.choice(("read_data", "write_data", "include_in_list")), random.random() < 0.7
        rows.request(check(principal, action, table, ANALYST if allowed else DENIED), days=random.uniform(0, 30))
        kind = {"read_data": "reads", "write_data": "writes"}.get(action, "lists")
        for name in (principal, table) if allowed else ():
            wanted[name][kind] += 1
        if not allowed and kind != "lists":
            wanted[principal]["denied"] += 1
            wanted[table]["denied"] += 1
    rows.create_views(spark)
    questions = (("principals", "principal", "user:"), ("objects", "object", "table:"))
    for (question, key, prefix), most in product(questions, (1000, 7)):
        asker = Asker(spark, 14, most)
        with asker.views(lambda _: None):
            answer = asker.ask(read_question(question))
            names = [name for name in wanted if name.startswith(prefix)]
            for column in ("reads", "writes", "denied"):
                for row in answer.records():
                    assert row[column] == wanted[row[key]][column]
                shown = sum(row[column] for row in answer.records())
                assert shown + answer.rest.get(column, 0) == sum(wanted[name][column] for name in names)
            assert len(answer.rows) == min(most, len(names))
            assert len(answer.rows) + answer.others == len(names)


def test_each_action_of_the_model_has_a_missing_privilege() -> None:
    found = missing_privileges()
    assert found["table", "read_data"] == "select"
    assert found["table", "write_data"] == "modify"
    assert found["table", "get_metadata"] == "describe"
    assert found["table", "move"] == "manage_grants and modify"
    assert found["namespace", "create_table"] == "create"
    assert all(privilege and not set(privilege) & set("()|&+-") for privilege in found.values())


def test_questions_read_the_tables_and_nothing_else(spark: Any) -> None:
    """No function of Python runs per row."""
    rows = small()
    rows.create_views(spark)
    asker = Asker(spark, 14)
    with asker.views(lambda _: None):
        for name in QUESTIONS:
            plan = asker.plan(read_question(name))
            assert "Physical Plan" in plan
            assert not re.search("PythonUDF|BatchEvalPython|ArrowEval|MapIn", plan)
