"""Times, casts, pieces and lists of one dialect as filters of BigQuery: the author's rows by GoogleSQL's evaluator."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from support.oracles import casts_abroad, pieces_abroad, times_abroad
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


@pytest.mark.parametrize(
    "suite", [times_abroad, casts_abroad, pieces_abroad], ids=lambda suite: suite.__name__.rpartition(".")[2]
)
def test_googlesql_shows_the_rows_of_the_author(suite: ModuleType) -> None:
    """BigQuery's own filters are among them: so the meanings are those of GoogleSQL, too."""
    kinds = {name: suite.COLUMNS["bigquery"].get(name, kind) for name, kind in suite.TYPES.items()}
    data = suite.rows()
    rows = ", ".join(
        f"STRUCT({', '.join(f'{literal(row[name], name, kind)} AS {name}' for name, kind in kinds.items())})"
        for row in data
    )
    cases = printed("bigquery", [*suite.FORMS, *suite.PARTLY], suite.TYPES)
    lookup = " UNION ALL ".join(f"SELECT {literal(text, 'x', 'STRING')} AS x" for text in pieces_abroad.LOOKUP)
    query = f"WITH m AS ({lookup}) SELECT id FROM UNNEST([{rows}])"
    shown = evaluated([f"TO_JSON_STRING(ARRAY({query} WHERE {local(case[2])} ORDER BY id))" for case in cases])
    assert len(cases) > 70
    for (form, source, condition), found in zip(cases, shown, strict=True):
        assert found == f"={str(wanted(form, source, data)).replace(' ', '')}", (source, form.name, condition)
