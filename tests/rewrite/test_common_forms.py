"""Common forms of filters: each is usable from each dialect in each engine, and the documents have the table of them.

That a usable form shows the author's rows is shown by `test_functions_abroad*.py` and `test_times_abroad.py`, which
execute the same forms on the engines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from support.oracles.common_forms import NAMES, CommonForm, answer, common_forms, refusals
from support.oracles.functions_abroad import DIALECTS
from support.paths import ROOT

from pdp.engines.row_access.dialects import translate_filter
from pdp.engines.row_access.trino import UntranslatableSql

COMMON = list(common_forms())
PAIRS = len(DIALECTS) * (len(DIALECTS) - 1)
PARTLY = {"SAFE_CAST": {("duckdb", target) for target in DIALECTS if target != "duckdb"}}
"""Common form -> the pairs without it: DuckDB reads more texts as numbers than a pattern can say."""


@pytest.fixture(scope="module")
def refused() -> Mapping[str, Mapping[tuple[str, str], str]]:
    return {common.name: refusals(common) for common in COMMON}


def test_common_forms_are_usable_in_all_pairs(refused: Mapping[str, Mapping[tuple[str, str], str]]) -> None:
    assert len(COMMON) == len(NAMES) == 45
    found = {name: set(pairs) for name, pairs in refused.items() if pairs}
    assert found == PARTLY, {name: refused[name] for name in found}


@pytest.mark.parametrize("common", COMMON, ids=lambda common: common.name)
def test_a_common_form_is_usable_at_home(common: CommonForm) -> None:
    for dialect in DIALECTS:
        text = common.form.text(dialect)
        assert text is None or "sql" in answer(common.suite, text, dialect, dialect), (dialect, text)


def test_filters_of_trino_have_all_but_lookup_tables() -> None:
    without = set()
    for common in COMMON:
        for dialect in ("bigquery", "spark", "duckdb"):
            try:
                translate_filter(common.form.text(dialect) or "TRUE", dialect, common.suite.TYPES)
            except UntranslatableSql:
                without.add(common.name)
    assert without == {"EXISTS over a lookup table", "IN over a lookup table"}


def cell(text: str | None) -> str:
    """Return a filter as a cell of a table."""
    if text is None:
        return ""
    short = re.sub(r"'[0-9a-f]{64}'", "'..'", text).replace("|", "\\|")
    return f"``{short}``" if "`" in short else f"`{short}`"


def table(refused: Mapping[str, Mapping[tuple[str, str], str]]) -> str:
    """Return the table of the documents."""
    lines = [f"| form | {' | '.join(DIALECTS)} | pairs |", f"|---|{'---|' * len(DIALECTS)}---|"]
    for common in COMMON:
        texts = " | ".join(cell(common.form.text(dialect)) for dialect in DIALECTS)
        lines.append(f"| {common.name} | {texts} | {PAIRS - len(refused[common.name])} |")
    return "\n".join(lines)


def test_the_documents_have_the_table(refused: Mapping[str, Mapping[tuple[str, str], str]]) -> None:
    page = (ROOT / "docs" / "row-access.md").read_text("utf-8")
    assert table(refused) in page, table(refused)
