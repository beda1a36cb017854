"""Trino's parser as a judge of what the rewriter reads."""

from __future__ import annotations

import pytest
from support.judging import judge_seconds
from support.oracles.engine_judges import assert_agreement


@pytest.mark.process
@pytest.mark.timeout(1800 + 2 * judge_seconds(0))  # the first run fetches Trino
def test_trino_sees_no_table_function_or_parameter_that_the_reader_does_not() -> None:
    assert_agreement("trino")
