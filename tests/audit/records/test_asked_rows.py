"""Rows of tables lead to the same checks as the records that they were made of."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generators import generated_records, worlds
from support.generators.generated_pdps import decide_and_record, make_pdp
from support.oracles.table_rows import table_rows

from pdp.audit.records import tables
from pdp.audit.records.record import DecisionRecord
from pdp.audit.records.recorded import ReadReport, RecordFilter, RecordReader, ReplayCheck
from pdp.audit.records.schema import RECORD, CheckEntry, EntryRest, Record
from pdp.audit.records.tables import SplitChecks, TableRow, TableRowReader, UnusableRow, asked_text, entry_text
from pdp.audit.records.writing import RecordEncoder

AGAIN = RecordFilter(listings=True, at_revision=True)
limits = st.sampled_from([1, 2, 32])


def from_record(record: Record) -> tuple[list[ReplayCheck], dict[str, int]]:
    report = ReadReport()
    found = list(RecordReader(record, "f:1", report, AGAIN).checks())
    return found, dict(report.skipped)


def from_rows(record: Record) -> tuple[list[ReplayCheck], dict[str, int]]:
    reader, found, skipped = TableRowReader(at_revision=True), [], dict[str, int]()
    for row in table_rows(record):
        try:
            found.append(reader.check(row))
        except UnusableRow as unusable:
            skipped[unusable.cause] = skipped.get(unusable.cause, 0) + 1
    undecidable = msgspec.json.decode(asked_text(record) or "{}", type=SplitChecks).undecidable
    return found, skipped | ({undecidable: 1} if undecidable else {})


def comparable(found: list[ReplayCheck]) -> list[Any]:
    """Return what decides, without the key: equal keys are promised within one way of reading alone."""
    plain = [msgspec.structs.replace(each, key="", rate=1.0) for each in found]
    return sorted(plain, key=lambda each: (each.at, each.check.question.action, repr(each)))


def assert_same(record: DecisionRecord, columns_from: int) -> None:
    read = RECORD.decode(RecordEncoder("i", columns_from).encode(record, 3))
    (checks, skipped), (of_rows, skipped_rows) = from_record(read), from_rows(read)
    assert comparable(of_rows) == comparable(checks)
    assert skipped_rows == skipped


@given(worlds.configs, worlds.rules, worlds.grants, worlds.checks, limits)
def test_decided_records_give_the_same_checks_by_both_ways(
    config: Any, rules: Any, grants: Any, checks: Any, columns_from: int
) -> None:
    _, record = decide_and_record(make_pdp(config, rules, grants), checks)
    assert_same(record, columns_from)


@given(generated_records.single_records() | generated_records.split_records(), limits)
def test_generated_records_give_the_same_checks_by_both_ways(record: DecisionRecord, columns_from: int) -> None:
    assert_same(record, columns_from)


REST: dict[str, Any] = {"load": {"entries": 1}, "change": {"touched": ["owner"]}, "missing": True}


def test_every_field_of_an_entry_without_a_column_is_in_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*EntryRest.__struct_fields__} == {*REST, "listing_since"}
    more = [("subject", str, "")]
    wider = msgspec.defstruct("WiderRest", more, bases=(EntryRest,), frozen=True, omit_defaults=True, rename="camel")
    monkeypatch.setattr(tables, "EntryRest", wider)
    record = RECORD.decode('{"event":"decision","checks":[]}')
    assert entry_text(record, CheckEntry(0)) is None
    for name, value in {**REST, "subject": "role:etl"}.items():
        entry = msgspec.convert({"at": 0, ("as" if name == "subject" else name): value}, CheckEntry)
        (written,) = json.loads(entry_text(record, entry) or "{}").items()
        assert written[0] == name
        assert msgspec.convert({written[0]: written[1]}, wider) == wider(**{name: getattr(entry, name)})


ROW = TableRow("decision", "e.1.ab", False, None, "read_data", "table:w/n/t", None, False, None, None, True, "x", ())
INPUTS = '{"principal":{"id":"user:oidc~a"}}'


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({}, "entry that cannot be read"),
        ({"inputs": "{"}, "entry that cannot be read"),
        ({"inputs": '{"principal":{"id":"user:oidc~a","new":1}}'}, "entry that cannot be read"),
        ({"inputs": '{"principal":{"id":"user:oidc~a","masked":true}}'}, "values are masked"),
        ({"inputs": INPUTS, "entry": '{"new":1}'}, "entry that cannot be read"),
        ({"inputs": INPUTS, "entry": '{"listingSince":"e.1.00"}'}, "a listing over several revisions"),
        (
            {"inputs": INPUTS, "resource_details": '{"reference":"table:w/t","masked":["/properties/a"]}'},
            "values are masked",
        ),
        ({"inputs": INPUTS, "resource": "tables:w"}, "check that cannot be asked now"),
        ({"inputs": INPUTS, "resource": None}, "check that cannot be asked now"),
        ({"inputs": INPUTS, "entry": '{"change":{"touched":["a"]}}'}, "entry that cannot be read"),
    ],
)
def test_a_row_that_lacks_something_is_named_by_its_cause(change: dict[str, Any], cause: str) -> None:
    with pytest.raises(UnusableRow) as raised:
        TableRowReader(at_revision=True).check(msgspec.structs.replace(ROW, **change))
    assert raised.value.cause == cause


def test_a_listing_over_several_revisions_can_be_decided_under_other_policies() -> None:
    row = msgspec.structs.replace(ROW, inputs=INPUTS, entry='{"listingSince":"e.1.00"}')
    assert TableRowReader(at_revision=False).check(row).key == "table:w/n/t"
