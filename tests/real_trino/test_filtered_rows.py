"""Row access in a real Trino, two ways: rewritten statements, and the statements of callers behind the plugin.

Both ways give the recorded rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.oracles.engine_cases import EngineCase, Tally, Way, recorded, rewriting, run_case, worlds
from support.oracles.equivalence import DATA
from support.oracles.secure_views import mask_columns
from support.oracles.trino_tables import (
    MASKED,
    MASKS,
    OUTSIDE,
    OWNER,
    WORKERS,
    TrinoTables,
    trino_document,
    trino_tables,
    user_of,
)
from support.pages.worked_examples import EXAMPLES, document, ids_of
from support.rewriting import full_database, plain_value, recorded_service, rows_of, sorted_rows, write_policies
from support.servers.trino_distribution import java, server_folder

from pdp.rewrite.process.local import RewriteRequest, service_of_files

pytestmark = [pytest.mark.process, pytest.mark.timeout(300, func_only=True)]
MASKED_TEXTS = [
    "SELECT * FROM lake.hr.salaries",
    "SELECT email FROM hr.salaries WHERE email LIKE '%bob%' OR salary > 500",
    "SELECT dept, COUNT(*) AS n, SUM(salary) AS s FROM lake.hr.salaries GROUP BY dept HAVING MAX(salary) IS NULL",
    "SELECT x.email FROM lake.hr.salaries AS x JOIN lake.hr.salaries AS y ON x.salary = y.salary",
    "SELECT id FROM leads WHERE id IN (SELECT emp_id FROM lake.hr.salaries WHERE dept = 'eng')",
    "SELECT dept, salary FROM lake.hr.v_pay",
    "WITH s AS (SELECT * FROM lake.hr.salaries) SELECT MAX(email) AS m FROM s",
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrinoTables]:
    server_folder()
    java()
    with trino_tables(tmp_path_factory.mktemp("filtered")) as started:
        yield started


def run(cases: list[EngineCase], way: Way) -> Tally:
    tally = Tally()
    with ThreadPoolExecutor(WORKERS) as workers:
        list(workers.map(lambda case: run_case(case, way, tally), cases))
    return tally


def test_rewritten_statements_show_the_recorded_rows(tables: TrinoTables) -> None:
    way = rewriting(recorded_service(), "trino", tables.execute)
    tally = run([case for case in recorded("trino") if not case.after], way)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.outcomes["same"] > 110, (tally.outcomes, tally.notes)


def test_the_plugin_shows_the_recorded_rows(tables: TrinoTables) -> None:
    way = Way(lambda case: case.sql, lambda case, sql: tables.execute(sql, user_of(case.caller)), tables.execute)
    tally = run([case for case in recorded("trino") if not case.after and case.caller not in OUTSIDE], way)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.outcomes["same"] > 100, (tally.outcomes, tally.notes)


def test_generated_queries_show_the_rows_of_filtered_tables(tables: TrinoTables) -> None:
    for world in worlds("trino", 41, 4, 20):
        tally = run(world.cases, rewriting(world.service, "trino", tables.execute))
        assert not tally.wrong, "\n".join(tally.wrong)
        assert tally.outcomes["same"] > 10, (tally.outcomes, tally.notes)


def test_the_worked_examples_give_their_rows_both_ways(tables: TrinoTables, tmp_path: Path) -> None:
    service = service_of_files([write_policies(tmp_path, document())])
    for example in EXAMPLES:
        if not example.caller.startswith("user:"):
            continue
        sql = service.rewrite(RewriteRequest(example.sql, "trino", example.caller, example.groups))
        user = example.caller.partition(":")[2]
        for found in (tables.execute(sql, schema="ex"), tables.execute(example.sql, user, "ex")):
            assert ids_of(found) == example.ids, (example.note, sql)


def test_rows_behind_a_definer_view_are_those_of_its_owner(tables: TrinoTables) -> None:
    """Trino evaluates `current_user` with the session of the statement: the filter names the owner by a literal."""
    carol = "carol@example.com"
    tables.execute("CREATE TABLE lake.ex.owned (who varchar, team varchar)")
    rows = [(OWNER, "none"), (carol, "none"), ("team", "eu@example.com")]
    tables.execute(f"INSERT INTO lake.ex.owned VALUES {', '.join(map(str, rows))}")
    tables.execute("CREATE VIEW lake.ex.v_owned SECURITY DEFINER AS SELECT who FROM lake.ex.owned", OWNER)
    assert tables.execute("SELECT who FROM lake.ex.v_owned", carol) == [[OWNER]]
    assert tables.execute("SELECT who FROM lake.ex.owned ORDER BY who", carol) == [[carol], ["team"]]
    assert tables.execute("SELECT who FROM lake.ex.v_owned", OWNER) == [[OWNER]]


@pytest.mark.parametrize("text", MASKED_TEXTS)
def test_masks_are_the_same_both_ways(tables: TrinoTables, tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    body = {"table": "lake.hr.salaries", "grantees": ["allUsers"], "except": []}
    wanted = rows_of(mask_columns(full_database(DATA), [{**body, **mask} for mask in MASKS], "bob"), text)[1]
    service = service_of_files([write_policies(tmp_path_factory.mktemp("masks"), trino_document())])
    sql = service.rewrite(RewriteRequest(text, "trino", f"user:{MASKED}"))
    for found in (tables.execute(sql), tables.execute(text, MASKED)):
        assert sorted_rows([list(map(plain_value, row)) for row in found]) == wanted, sql
