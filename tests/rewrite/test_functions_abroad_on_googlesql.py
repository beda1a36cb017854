"""Times, casts, pieces and lists of one dialect as filters of BigQuery: the author's rows by GoogleSQL's evaluator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import duckdb
import pytest
from support.oracles import casts_abroad, pieces_abroad, times_abroad, typed_abroad
from support.oracles.functions_abroad import local, printed, wanted
from support.servers.googlesql import evaluated

pytestmark = [pytest.mark.long, pytest.mark.process, pytest.mark.timeout(1200)]  # the first run fetches GoogleSQL


def literal(value: Any, name: str, kind: str) -> str:
    """Return a value of a column as SQL of BigQuery."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, list):
        return f"[{', '.join(literal(one, name, 'STRING') for one in value)}]" if value else f"CAST([] AS {kind})"
    if kind == "STRING":
        return f"CAST(FROM_HEX('{value.encode().hex()}') AS STRING)"
    return f"CAST('{value}{'+00:00' if kind == 'TIMESTAMP' else ''}' AS {kind})"


def shown_by_googlesql(conditions: Sequence[str], suite: ModuleType) -> list[list[int] | None]:
    """Return the rows that GoogleSQL shows under each condition; None where it fails."""
    kinds = {name: suite.COLUMNS["bigquery"].get(name, kind) for name, kind in suite.TYPES.items()}
    rows = ", ".join(
        f"STRUCT({', '.join(f'{literal(row[name], name, kind)} AS {name}' for name, kind in kinds.items())})"
        for row in suite.rows()
    )
    lookup = " UNION ALL ".join(f"SELECT {literal(text, 'x', 'STRING')} AS x" for text in pieces_abroad.LOOKUP)
    query = f"WITH m AS ({lookup}) SELECT id FROM UNNEST([{rows}])"
    found = evaluated([f"TO_JSON_STRING(ARRAY({query} WHERE {local(one)} ORDER BY id))" for one in conditions])
    return [json.loads(one[1:]) if one.startswith("=") else None for one in found]


def test_functions_of_each_type_show_the_same_rows_in_googlesql_and_duckdb() -> None:
    with duckdb.connect() as con:
        typed_abroad.fill_duckdb(con)

        def bigquery(conditions: Sequence[str]) -> list[list[int] | None]:
            return shown_by_googlesql(conditions, typed_abroad)

        duck = partial(typed_abroad.shown_by_duckdb, con)
        assert typed_abroad.differences("bigquery", "duckdb", bigquery, duck) == []
        assert typed_abroad.differences("duckdb", "bigquery", duck, bigquery) == []


@pytest.mark.parametrize(
    "suite", [times_abroad, casts_abroad, pieces_abroad], ids=lambda suite: suite.__name__.rpartition(".")[2]
)
def test_googlesql_shows_the_rows_of_the_author(suite: ModuleType) -> None:
    """BigQuery's own filters are among them: so the meanings are those of GoogleSQL, too."""
    data = suite.rows()
    cases = printed("bigquery", [*suite.FORMS, *suite.PARTLY], suite.TYPES)
    shown = shown_by_googlesql([case[2] for case in cases], suite)
    assert len(cases) > 70
    for (form, source, condition), found in zip(cases, shown, strict=True):
        assert found == wanted(form, source, data), (source, form.name, condition)
