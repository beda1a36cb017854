"""Texts that make the parser of SQL stumble: invalid expressions, and text literals as constants."""

from __future__ import annotations

from contextlib import suppress

import pytest

from pdp.engines.row_access.dialects import parse_expression, translate_constant


@pytest.mark.parametrize("dialect", ["trino", "bigquery", "spark", "duckdb"])
@pytest.mark.parametrize("text", ["VAR_MAP(1)", "VAR_MAP(1) = 1", "CAST(", "MAP(", "x[", "INTERVAL", "DATE_ADD()"])
def test_no_text_raises_anything_else(text: str, dialect: str) -> None:
    with suppress(ValueError):
        parse_expression(text, dialect)


def test_a_constant_that_does_not_parse_is_a_text() -> None:
    assert translate_constant("VAR_MAP(1)") == "'VAR_MAP(1)'"
