"""The encoder of records against a plain one, on records of every kind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generators import generated_records, worlds
from support.generators.generated_pdps import decide_and_record, make_pdp
from support.oracles.plain_records import plain_record
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.audit.records.record import AnyRecord, DecisionRecord
from pdp.audit.records.rows import EntryError, entry_rows, whole_record
from pdp.audit.records.schema import RECORD
from pdp.audit.records.writing import RecordEncoder
from pdp.model.question import Resource
from pdp.model.references import format_resource
from pdp.offline.cases import runner as case_runner
from pdp.offline.cases.cases import find_cases
from pdp.offline.cases.runner import MemoryAudit, run_case

limits = st.sampled_from([1, 2, 32])


@given(st.lists(generated_records.records(), max_size=3), limits)
def test_any_records_encode_to_the_plain_objects(records: list[DecisionRecord], columns_from: int) -> None:
    encoder = RecordEncoder('i"1', columns_from)
    for seq, record in enumerate([*records, *records]):
        line = encoder.encode(record, seq)
        assert b"\n" not in line
        assert whole_record(json.loads(line)) == plain_record(record, 'i"1', seq, columns_from)


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks, limits)
def test_decided_records_encode_to_the_plain_objects(
    config: Any, rules: Any, grants: Any, checks: Any, columns_from: int
) -> None:
    _, record = decide_and_record(make_pdp(config, rules, grants), checks)
    line = RecordEncoder("i", columns_from).encode(record, 3)
    assert whole_record(json.loads(line)) == plain_record(record, "i", 3, columns_from)


@given(st.lists(generated_records.single_records() | generated_records.split_records(), min_size=1, max_size=5))
def test_records_of_one_check_encode_to_the_plain_objects_and_to_one_text(records: list[DecisionRecord]) -> None:
    kept = RecordEncoder("i")
    for seq, record in enumerate([*records, *records]):
        line = kept.encode(record, seq)
        assert whole_record(json.loads(line)) == plain_record(record, "i", seq)
        assert line == RecordEncoder("i").encode(record, seq)


@pytest.mark.parametrize("schemas", [1, 3])
def test_entries_of_the_same_tables_have_the_names_once(schemas: int) -> None:
    resources = [f"table_or_view:lake/s{at % schemas}/orders_{at}" for at in range(40)]
    check = {"principal": "user:oidc~bob", "action": "include_in_list", "resources": resources}
    _, record = decide_and_record(make_pdp({}, {"r": "true"}), [check])
    line = RecordEncoder("i").encode(record, 0)
    entries = [*json.loads(line)["checks"], *json.loads(line)["requests"]]
    assert [entry["resources"].get("like") for entry in entries] == [None, 0, 0]
    assert line.count(b"orders_39") == 1
    read = RECORD.decode(line)
    for entry, type in zip([*read.checks, *read.requests], ("table", "view", "table_or_view"), strict=True):
        found = [format_resource(row.resource) for row in entry_rows(entry) if isinstance(row.resource, Resource)]
        assert found == [name.replace("table_or_view", type) for name in resources]


@pytest.mark.parametrize("like", [-1, 1, 7])
def test_a_column_like_no_other_is_no_column(like: int) -> None:
    column = {"type": "table", "warehouse": "lake", "like": like}
    entry = {"at": 0, "resources": column, "allowed": "", "by": [], "errors": {}}
    record = RECORD.decode(json.dumps({"event": "decision", "checks": [entry]}))
    with pytest.raises(EntryError, match=f"no column {like}"):
        list(entry_rows(record.checks[0]))


class ComparingAudit(MemoryAudit):
    """Audit that compares each record with the plain one."""

    compared = 0

    def append(self, record: AnyRecord) -> None:
        super().append(record)
        assert whole_record(self.records[-1]) == plain_record(record.whole(), "case", len(self.records) - 1)
        ComparingAudit.compared += 1


def test_records_of_the_corpus_encode_to_the_plain_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_runner, "MemoryAudit", ComparingAudit)
    with asyncio.Runner() as runner:
        assert all(run_case(case, build_pdp, runner).passed for case in find_cases([TESTS / "cases"]))
    assert ComparingAudit.compared > 100
