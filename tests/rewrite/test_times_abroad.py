"""Times, today's date and casts of one dialect in another: the author's rows on a real DuckDB, or a refusal."""

from __future__ import annotations

import itertools

import duckdb
import pytest
from support.oracles.functions_abroad import DIALECTS, Form, Printer, wanted
from support.oracles.times_abroad import COLUMNS, FORMS, TYPES, ZONES, rows

DATA = rows()


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    columns = ", ".join(f"{name} {COLUMNS['duckdb'].get(name, kind)}" for name, kind in TYPES.items())
    con.execute(f"set TimeZone = 'UTC'; create table t({columns})")
    con.executemany(f"insert into t values ({', '.join('?' * len(TYPES))})", [list(row.values()) for row in DATA])
    return con


@pytest.fixture(scope="module")
def printer() -> Printer:
    return Printer(TYPES)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_duckdb_shows_the_rows_of_the_author(engine: duckdb.DuckDBPyConnection, printer: Printer, form: Form) -> None:
    for source, zone in itertools.product(DIALECTS, ZONES):
        text = form.text(source)
        if text is None:
            continue
        engine.execute(f"set TimeZone = '{zone}'")
        condition = printer.condition(text, source, "duckdb")
        assert condition is not None, (source, text, printer.refusal(text, source, "duckdb"))
        found = [row[0] for row in engine.execute(f"SELECT id FROM t WHERE {condition} ORDER BY id").fetchall()]
        assert found == wanted(form, source, DATA), (source, zone, text, condition)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_each_pair_prints_the_form(printer: Printer, form: Form) -> None:
    for source, target in itertools.permutations(DIALECTS, 2):
        if (text := form.text(source)) is not None:
            assert printer.refusal(text, source, target) == "", (source, target, text)
