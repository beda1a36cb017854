"""`pdp policy` on a store: as an operator writes, lists and drops, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from support.service.command_line import policy

CONFIG = {
    "warehouses": {"lake": {"project": "p"}},
    "policies": {"rules": [], "row_access": ["rows.yaml"]},
    "store": {"url": "sqlite:///pdp.db"},
}
ROWS = {
    "tables": {"lake.sales.typed": {"columns": {"id": "INTEGER"}}},
    "policies": [{"id": "filed", "table": "lake.sales.other", "filter": "TRUE"}],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pdp.yaml").write_text(json.dumps(CONFIG))
    (tmp_path / "rows.yaml").write_text(json.dumps(ROWS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def done(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def stored() -> list[dict[str, object]]:
    return [json.loads(line) for line in done(policy("list", "--format", "json")).splitlines()]


def run(sql: str) -> Result:
    return policy("execute", input=sql)


def test_the_life_of_a_policy_and_a_mask() -> None:
    assert "no row policies" in done(policy("list"))
    said = done(policy("create", "eu", "lake.sales.orders", "--filter", "region = 'EU'", "--grantee", "group:eu"))
    assert "+ row policy `eu` on table:lake/sales/orders" in said
    done(policy("create", "m", "lake.sales.orders", "--mask", "mail", "--kind", "hash", "--grantee", "allUsers"))
    done(policy("create", "eu", "lake.sales.orders", "--filter", "TRUE", "--replace"))
    assert [(one["id"], one.get("filter"), one["grantees"]) for one in stored()] == [
        ("eu", "TRUE", ["allAuthenticatedUsers"]),
        ("m", None, ["allUsers"]),
    ]
    assert "filter: TRUE" in done(policy("list", "lake.sales.orders"))
    done(policy("drop", "eu", "table:lake/sales/orders"))
    assert "nothing to change" in done(policy("drop", "eu", "lake.sales.orders", "--if-exists"))
    done(policy("drop", "m", "lake.sales.orders", "--mask", "mail"))
    assert stored() == []


def test_statements_do_as_they_say() -> None:
    create = "CREATE ROW ACCESS POLICY p ON `lake.sales`.orders FILTER USING (region = 'EU')"
    done(run(create))
    assert "nothing to change" in done(run(create.replace("POLICY p", "POLICY IF NOT EXISTS p")))
    assert run(create).exit_code == 2
    done(run(create.replace("CREATE", "create or replace").replace("'EU'", "'US'")))
    done(
        run(
            create.replace("POLICY p", "POLICY q").replace(
                "FILTER", "GRANT TO ('user:a@x.com', \"domain:x.com\") FILTER"
            )
        )
    )
    assert [(one["id"], one["filter"], one["grantees"], one["dialect"]) for one in stored()] == [
        ("p", "region = 'US'", ["allAuthenticatedUsers"], "bigquery"),
        ("q", "region = 'EU'", ["user:a@x.com", "domain:x.com"], "bigquery"),
    ]
    done(run("DROP ROW ACCESS POLICY p ON lake.sales.orders"))
    assert run("DROP ROW ACCESS POLICY p ON lake.sales.orders").exit_code == 2
    assert "nothing to change" in done(run("DROP ROW ACCESS POLICY IF EXISTS p ON lake.sales.orders"))
    done(run("drop all row access policies on lake.sales.orders;"))
    assert stored() == []
    done(policy("execute", "--default", "lake.sales", input="CREATE ROW ACCESS POLICY p ON orders FILTER USING (TRUE)"))
    assert [one["table"] for one in stored()] == ["table:lake/sales/orders"]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 1", "no statement on row access policies"),
        ("CREATE ROW ACCESS POLICY p ON lake.sales.orders", "RAP_PARSE_ERROR"),
        ("CREATE ROW ACCESS POLICY p ON lake.sales.orders FILTER USING (a) OR (1=1)", "RAP_"),
        ("CREATE ROW ACCESS POLICY p ON lake.sales.orders FILTER USING (FALSE) OR (1=1)", "RAP_"),
        ("CREATE ROW ACCESS POLICY p ON lake.sales.orders GRANT TO () FILTER USING (TRUE)", "RAP_PARSE_ERROR"),
        ("CREATE ROW ACCESS POLICY p ON lake.sales.orders GRANT TO ('bob') FILTER USING (TRUE)", "is no grantee"),
        ("CREATE ROW ACCESS POLICY p ON orders FILTER USING (TRUE)", "is no `<warehouse>"),
        ("CREATE ROW ACCESS POLICY p ON sea.sales.orders FILTER USING (TRUE)", "sea"),
        ("CREATE ROW ACCESS POLICY p ON lake.sales.typed FILTER USING (nope = 1)", "no column"),
        ("CREATE ROW ACCESS POLICY p ON lake.sales.typed FILTER USING (id)", "is a column"),
        ("CREATE OR REPLACE ROW ACCESS POLICY filed ON lake.sales.other FILTER USING (TRUE)", "stands in a file"),
        ("DROP ROW ACCESS POLICY IF EXISTS filed ON lake.sales.other", "stands in a file"),
        ("DROP ALL ROW ACCESS POLICIES ON lake.sales.other", "stands in a file"),
        ("DROP ALL ROW ACCESS POLICIES ON lake.sales.orders; DROP TABLE x", "RAP_"),
        (
            "CREATE OR REPLACE ROW ACCESS POLICY IF NOT EXISTS p ON lake.sales.orders FILTER USING (TRUE)",
            "RAP_PARSE_ERROR",
        ),
    ],
)
def test_an_unsound_statement_fails_loudly(sql: str, words: str) -> None:
    result = run(sql)
    assert (result.exit_code, words in result.stderr.splitlines()[-1], result.stdout) == (2, True, ""), result.output
    assert stored() == []


def test_options_that_do_not_fit_are_refused() -> None:
    table = "lake.sales.orders"
    for arguments in (
        ["create", "p", table],
        ["create", "p", table, "--filter", "TRUE", "--mask", "c"],
        ["create", "p", table, "--filter", "FALSE) OR (1=1"],
        ["create", "p", "orders", "--filter", "TRUE"],
        ["drop", table],
        ["drop", "p", table, "--all"],
        ["drop", "p", table],
    ):
        assert policy(*arguments).exit_code == 2, arguments
    assert stored() == []
