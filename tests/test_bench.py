"""Parts of the benchmarks that decide what their figures mean: the committed table, spellings, right answers."""

from __future__ import annotations

import json
import sys
from random import Random
from typing import Any

import pytest
from support.generators.cel_values import arguments
from support.paths import RECORDED, ROOT

sys.path.append(str(ROOT / "bench"))

from allowing import count_resources
from figures import HEAD, PAGE, Figure, middle, middle_pair, read_table, replace_table, report, worse
from side_by_side import TABLE
from workloads.forms import varied
from workloads.grant_checks import GrantWorld
from workloads.rule import PathTest
from workloads.single_checks import CONTENT, cel_text, domain_path, twenty_rules
from workloads.spelling import SPELLINGS
from workloads.trino_requests import TableName, TrinoUser
from workloads.workload import QUERY, read_answer

from pdp.engines.cel.program import compile_program

TEXT = f"""# Performance

- beside OPA: never
- beside others: never

| {" | ".join(HEAD)} |
| --- | ---: | ---: | --- | ---: | --- |
| single: CPU | 186 | 44.6 | us | 4.17 | <= 0.5 |
| start: memory | 79.5 | 36.3 | MB | 2.19 | <= 80 MB |

More text.
"""


def test_the_table_is_read_back() -> None:
    found = read_table(TEXT)
    assert found == {
        "single: CPU": Figure("single: CPU", 186, 44.6, "us", "<= 0.5"),
        "start: memory": Figure("start: memory", 79.5, 36.3, "MB", "<= 80 MB"),
    }
    assert replace_table(TEXT, found.values(), "beside OPA", "never") == TEXT
    assert replace_table(TEXT, [], "beside OPA", "never") == TEXT
    assert read_table("no table") == {}


def test_a_written_table_keeps_the_other_rows_and_the_text() -> None:
    page = replace_table(TEXT, [Figure("new", 1234.5, 0.04567, "s")], "beside OPA", "today")
    assert "- beside OPA: today\n- beside others: never\n" in page
    assert page.endswith("\n| new | 1234 | 0.0457 | s | 27031 |  |\n\nMore text.\n")
    assert [*read_table(page)] == ["single: CPU", "start: memory", "new"]
    assert read_table(page)["new"].goal == ""


def test_goals_limit_the_ratio_or_our_own_measure() -> None:
    assert not Figure("a", 186, 44.6, "us", "<= 0.5").met
    assert Figure("a", 22, 44.6, "us", "<= 0.5").met
    assert Figure("a", 79.5, 36.3, "MB", "<= 80 MB").met
    assert not Figure("a", 80.5, 100, "MB", "<= 80 MB").met
    assert Figure("a", 2, 1, "us").met


def test_a_ratio_that_grows_by_more_than_a_tenth_is_marked() -> None:
    committed = Figure("a", 100, 100, "us", "<= 2.0")
    slower = Figure("a", 224, 200, "us", "<= 2.0")
    assert worse(slower, committed)
    assert not worse(Figure("a", 216, 200, "us"), committed), "a slow machine is slow for both"
    assert not worse(slower, None)
    assert "| 1.00 | +12% | WORSE |" in report([slower], {"a": committed})
    assert "| new |  |" in report([slower], {})


def test_of_several_runs_the_middle_ratio_counts() -> None:
    runs = [[Figure("a", ours, 10, "us")] for ours in (3, 1, 2)]
    assert middle(runs) == [Figure("a", 2, 10, "us")]


def test_the_turn_with_the_middle_ratio_counts() -> None:
    assert middle_pair([(1, 10), (4, 2), (30, 100)]) == (30, 100)
    assert middle_pair([(4, 2), (1, 10)]) == (1, 10)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_change_bytes_and_keep_the_question(spelling: str) -> None:
    tables = [TableName("cat0", "sales_eu", f"t{number}").resource() for number in range(3)]
    action = {"operation": "FilterTables", "filterResources": tables}
    body: dict[str, Any] = {"input": {"context": TrinoUser("ann", ["g1"]).context(), "action": action}}
    text = SPELLINGS[spelling](body, 7)
    found = json.loads(text)
    assert text.count(QUERY) == 1
    assert found["input"]["context"]["identity"].items() >= body["input"]["context"]["identity"].items()
    assert [each["table"]["tableName"] for each in found["input"]["action"]["filterResources"]] == ["t0", "t1", "t2"]
    assert (text == json.dumps(body, separators=(",", ":"))) == (spelling == "plain")
    native = {"checks": [{"principal": "user:a~b", "action": "read_data", "resource": "table:lake/ns/t"}]}
    assert json.loads(SPELLINGS[spelling](native, 7))["checks"][0].items() >= native["checks"][0].items()


def test_other_forms_of_rules_mean_the_same() -> None:
    random = Random(3)
    rules = twenty_rules(random)
    text = "".join(varied(cel_text(rules), seed) for seed in range(5))
    programs = [compile_program(line.partition("=")[2]) for line in text.splitlines()]
    for number in range(300):
        rule = rules[number % len(rules)]
        role = rule.role if number % 3 else "hr_writer"
        operation, path = random.choice(CONTENT), domain_path(random, rule if number % 2 else None)
        values = arguments(op=operation, role=role, roles=(), path=path)
        found = [program.evaluate(*values) for program in programs]
        wanted = [rule.allows(role, operation, path) for rule in rules]
        assert found == wanted * 5


def test_answers_of_both_servers_are_read_alike() -> None:
    decisions = [{"allowed": False}, {"allowed": True}]
    assert read_answer({"decisions": decisions}, [1]) == read_answer({"result": [1]}, [1]) == [1]
    assert read_answer({"decisions": decisions[1:]}, True) is read_answer({"result": True}, True) is True
    assert read_answer({}, False) is False, "OPA leaves out what is undefined"
    assert read_answer({"result": [2, 0]}, [0, 2]) == [0, 2]


def test_neutral_rules_by_hand() -> None:
    path = "sales_eu.orders_0007"
    for kind, text in {"prefix": "sales_", "suffix": "_0007", "contains": ".orders", "regex": "^[a-z]+_eu[.]"}.items():
        assert PathTest(kind, text).holds(path)
        assert not PathTest(kind, text).holds("hr_us.logs_0001")
    assert PathTest("any").holds(path)
    assert PathTest("any").cel() == PathTest("any").rego("p") == []
    world = GrantWorld(Random(1))
    grant = next(each for each in world.grants if each.kind == "user" and each.privilege == "modify")
    table = next(each for each in world.tables if f"{each}.".startswith(f"{grant.object}."))
    assert world.may(grant.holder, "modify", table)
    assert world.may(grant.holder, "select", table)
    assert world.may(world.owner[table], "modify", table)


def test_the_committed_table_has_every_row() -> None:
    assert {wanted.name for wanted in TABLE} <= read_table(PAGE.read_text()).keys()


def test_the_allowing_server_counts_what_trino_filters() -> None:
    lines = (RECORDED / "trino" / "requests.jsonl").read_text().splitlines()
    counted = 0
    for line in lines:
        body = json.loads(line)["request"]
        action = body["input"]["action"]
        if items := action.get("filterResources"):
            columns = action["operation"] == "FilterColumns"
            wanted = len(items[0]["table"]["columns"]) if columns else len(items)
            assert count_resources(json.dumps(body, separators=(",", ":")).encode()) == wanted
            counted += 1
    assert counted > 5
