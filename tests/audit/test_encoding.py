"""The encoder of records against a plain one, on records of every kind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import generated_records, worlds
from support.generated_pdps import decide_and_record, make_pdp
from support.paths import TESTS
from support.plain_records import plain_record

from pdp.app.parts import build_pdp
from pdp.audit.encoding import RecordEncoder
from pdp.audit.record import DecisionRecord
from pdp.offline import case_runner
from pdp.offline.case_runner import MemoryAudit, run_case
from pdp.offline.cases import find_cases

limits = st.sampled_from([1, 2, 32])


@pytest.mark.slow
@given(st.lists(generated_records.records(), max_size=3), limits)
def test_any_records_encode_to_the_plain_objects(records: list[DecisionRecord], columns_from: int) -> None:
    encoder = RecordEncoder('i"1', columns_from)
    for seq, record in enumerate([*records, *records]):
        line = encoder.encode(record, seq)
        assert b"\n" not in line
        assert json.loads(line) == plain_record(record, 'i"1', seq, columns_from)


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks, limits)
def test_decided_records_encode_to_the_plain_objects(
    config: Any, rules: Any, grants: Any, checks: Any, columns_from: int
) -> None:
    _, record = decide_and_record(make_pdp(config, rules, grants), checks)
    line = RecordEncoder("i", columns_from).encode(record, 3)
    assert json.loads(line) == plain_record(record, "i", 3, columns_from)


@given(st.lists(generated_records.single_records() | generated_records.split_records(), min_size=1, max_size=5))
def test_records_of_one_check_encode_to_the_plain_objects_and_to_one_text(records: list[DecisionRecord]) -> None:
    kept = RecordEncoder("i")
    for seq, record in enumerate([*records, *records]):
        line = kept.encode(record, seq)
        assert json.loads(line) == plain_record(record, "i", seq)
        assert line == RecordEncoder("i").encode(record, seq)


class ComparingAudit(MemoryAudit):
    """Audit that compares each record with the plain one."""

    compared = 0

    def append(self, record: DecisionRecord) -> None:
        super().append(record)
        assert self.records[-1] == plain_record(record, "case", len(self.records) - 1)
        ComparingAudit.compared += 1


@pytest.mark.slow
def test_records_of_the_corpus_encode_to_the_plain_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_runner, "MemoryAudit", ComparingAudit)
    with asyncio.Runner() as runner:
        assert all(run_case(case, build_pdp, runner).passed for case in find_cases([TESTS / "cases"]))
    assert ComparingAudit.compared > 100
