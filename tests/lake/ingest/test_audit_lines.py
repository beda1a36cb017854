"""Lines of audit files: the ingest takes and refuses what the product's own reader does, and makes the same rows."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.generators import generated_records
from support.oracles.table_rows import concrete_rows

from pdp.audit.reader import TORN, TrailLine, read_lines
from pdp.audit.records.recorded import ReadReport
from pdp.audit.records.schema import RECORD, Inputs, Record
from pdp.audit.records.tables import SplitChecks, TableRowReader, asked_text, json_value
from pdp.audit.records.writing import RecordEncoder
from pdp.errors import InvalidReference
from pdp.lake.ingest.batches import SINGLE_REQUEST
from pdp.lake.ingest.files import AuditFile
from pdp.lake.ingest.lines import EventLine, JudgedLine, LineJudge, LineProblem, RecordLine, line_place
from pdp.lake.ingest.passes import (
    PLACES,
    SURVEY,
    IngestBatch,
    arrow_schema,
    decision_rows,
    event_rows,
    place_rows,
    quarantine_rows,
    record_batches,
    request_rows,
    survey_rows,
)
from pdp.lake.ingest.rows import RowMaker
from pdp.lake.tables import DECISIONS, EVENTS, QUARANTINE, REQUESTS
from pdp.model.references import parse_resource

any_records = generated_records.records() | generated_records.single_records() | generated_records.split_records()
columns_from = st.sampled_from([1, 2, 32])


def encoded(record: Any, columns_from: int, seq: int = 3) -> bytes:
    return RecordEncoder("i", columns_from).encode(record, seq) + b"\n"


def table_of(rows: Any, table: Any) -> list[dict[str, Any]]:
    """Rows as Spark gets them."""
    found: list[dict[str, Any]] = pa.Table.from_batches(record_batches(rows, table), arrow_schema(table)).to_pylist()
    return found


def plain_rows(record: Record, source: str) -> list[dict[str, Any]]:
    """The rows of `decisions`, in the plainest way."""
    rows = []
    for number, row in enumerate(concrete_rows(record)):
        time: datetime = row["time"]
        rows.append(
            {
                **row,
                **{name: list(row[name]) for name in ("roles", "groups", "errors") if row[name] is not None},
                "day": time.date(),
                "warehouse": warehouse(row["resource"]),
                "decision_id": f"{record.id}#{number}",
                "record_version": record.schema,
                "errors_json": json.dumps(row["errors"], separators=(",", ":"), ensure_ascii=False),
                "source": source,
            }
        )
    return rows


def warehouse(reference: str | None) -> str | None:
    """The warehouse of a reference; of one that is none, the part behind the type."""
    try:
        return parse_resource(reference).warehouse or None if reference else None
    except InvalidReference:
        return WITHOUT


WITHOUT = "no reference"
"""Warehouse of a text that is no reference: any is right."""


def assert_same(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    found = [
        {name: row[name] for name in wanted} | ({"warehouse": WITHOUT} if wanted["warehouse"] == WITHOUT else {})
        for row, wanted in zip(rows, expected, strict=True)
    ]
    assert found == expected


@given(any_records, columns_from)
def test_rows_are_those_of_the_export(record: Any, columns_from: int) -> None:
    line = encoded(record, columns_from)
    read = RECORD.decode(line)
    found = LineJudge().judge(TrailLine(1, line))
    if not read.id or read.latency_us >= 1 << 63:
        assert isinstance(found, LineProblem)
        return
    assert isinstance(found, RecordLine)
    rows = table_of(RowMaker().decisions(found, "f"), DECISIONS)
    assert_same(rows, plain_rows(read, "f"))
    (request,) = table_of([RowMaker().request(found, "f")], REQUESTS)
    assert (request["id"], request["checks"]) == (read.id, len(rows))
    assert request["allowed"] == sum(bool(row["allowed"]) for row in rows)
    assert request["asked"] == asked_text(read)
    assert request["masks"] == (json_value(read.masks) if read.masks else None)
    if rows and rows[0]["single"]:
        alone = {"left_out": 0, "checks": 1, "allowed": int(rows[0]["allowed"])}
        others = {name: alone.get(name) for name in SINGLE_REQUEST}
        assert request == {name: rows[0].get(name) for name in REQUESTS.names} | others
    place = line_place(TrailLine(1, line))
    assert place is not None
    assert (place.id, place.event) == (read.id, read.event)


def by_reader(line: TrailLine) -> str:
    """The judgement of the product's reader in a word."""
    report = ReadReport()
    found = list(read_lines([line], "f", report))
    if found:
        return "record" if found[0].record else "event"
    return "problem" if report.skipped or report.torn else "nothing"


def by_judge(found: JudgedLine | None) -> str:
    return {RecordLine: "record", EventLine: "event", LineProblem: "problem", type(None): "nothing"}[type(found)]


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A line with a part cut, doubled or replaced."""
    line = encoded(draw(any_records), draw(columns_from))
    at, length = draw(st.integers(0, len(line))), draw(st.integers(0, 40))
    middle = draw(
        st.sampled_from([b"", line[at : at + length] * 2, b'"', b"\xff", b"null", b"[[", b"{}", b"1e999", b"-1"])
    )
    return (line[:at] + middle + line[at + length :]).replace(b"\n", b"") + b"\n"


@given(spoilt())
def test_a_spoilt_line_is_refused_where_the_reader_refuses_it(line: bytes) -> None:
    """The lake asks for more: an id, a time, numbers of 64 bits, and entries that fit together."""
    trail = TrailLine(1, line)
    reader, judged = by_reader(trail), LineJudge().judge(trail)
    ours = by_judge(judged)
    assert ours == reader or (ours == "problem" and reader in ("record", "event"))
    if isinstance(judged, RecordLine):
        assert_same(table_of(RowMaker().decisions(judged, "f"), DECISIONS), plain_rows(RECORD.decode(line), "f"))
    if isinstance(judged, LineProblem):
        assert judged.reason in ("malformed", "schema", "event")
        judged.text.encode()


POISON: tuple[Any, ...] = (
    -1, 1, 2, 1 << 31, 99999999999, 1 << 63, 1 << 64, -(1 << 70), 1e308, None, True, "", "0", [], {}, [0], [-1], ["x"],
    {"a": 1 << 70}, "2026-01-31T25:00:00.000000Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-14:00",
    "2026-01-31x12:00:00.000000Z", "2026-01-31T12:00:00,000000Z", "2026-01-31T12:00:00.00000aZ", "a\0b",
)  # fmt: skip


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """All values inside a value of JSON, each with its container."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [(value, key) for key, _ in items] + [place for _, part in items for place in places_in(part)]


@st.composite
def poisoned(draw: st.DrawFn) -> bytes:
    """A line of any schema with a few values replaced or added, wherever they are."""
    fields = json.loads(encoded(draw(any_records), draw(columns_from)))
    fields["schema"] = draw(st.sampled_from([1, 1, 2]))
    for _ in range(draw(st.integers(1, 2))):
        container, key = draw(st.sampled_from(places_in(fields)))
        if isinstance(container, dict) and draw(st.booleans()):
            key = draw(st.sampled_from(["inputs", "at", "arguments", "leftOut", "cached", "error", "properties"]))
        container[key] = draw(st.sampled_from(POISON))
    return json.dumps(fields).encode() + b"\n"


def assert_rows_or_a_problem(*lines: bytes) -> None:
    """Every pass can write what it makes of lines, and no line is lost."""
    batch = IngestBatch("k", (AuditFile("file:/a/f", "file:/a", "f", 0),), time="2026-02-01T00:00:00.000000Z")
    trail = [TrailLine(number, line) for number, line in enumerate(lines, 1)]
    made = {
        table.name: table_of(rows(batch, 0, trail, frozenset()), table)
        for rows, table in (
            (decision_rows, DECISIONS), (request_rows, REQUESTS), (event_rows, EVENTS), (quarantine_rows, QUARANTINE),
            (place_rows, PLACES), (survey_rows, SURVEY),
        )
    }  # fmt: skip
    assert len(made["requests"]) + len(made["events"]) + len(made["quarantine"]) == len(lines)


@given(poisoned() | spoilt())
def test_a_poisoned_line_is_rows_or_a_problem_for_every_pass(line: bytes) -> None:
    assert_rows_or_a_problem(*([line] if line.strip() else []))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"T12:00:00.000001Z", b"T25:00:00.000000Z"),
        (b"T12:00:00.000001Z", b"T12:00:00.00000xZ"),
        (b"2026-01-31T12:00:00.000001Z", b"0001-01-01T00:00:00+14:00"),
        (b'"schema":1', b'"schema":99999999999'),
        (b'"at":0', b'"at":0,"inputs":-1'),
        (b'"at":0', b'"at":0,"inputs":1'),
    ],
)
@pytest.mark.parametrize("schema", [b'"schema":1', b'"schema":2'])
def test_a_line_that_no_pass_can_write_is_a_problem(old: bytes, new: bytes, schema: bytes) -> None:
    bad = GOOD.replace(old, new).replace(b'"schema":1,', schema + b",")
    assert bad != GOOD
    assert_rows_or_a_problem(GOOD, bad, GOOD)


GOOD = (
    b'{"event":"decision","schema":1,"id":"x","instance":"i","seq":1,"time":"2026-01-31T12:00:00.000001Z","inputs":'
    b'{"principal":{"id":"user:a~b"}},"revision":"e.1.d","checks":[{"action":"read","as":"user:a~b","delegated":false,'
    b'"cached":false,"at":0,"resource":"table:lake/s/t@main","allowed":true,"by":["r"],"errors":[]}]}\n'
)


@pytest.mark.parametrize(
    ("old", "new", "reason", "problem"),
    [
        (b'"schema":1', b'"schema":0', "schema", "schema 0"),
        (b'"decision"', b'"decided"', "event", "event `decided`"),
        (b'"id":"x"', b'"id":""', "malformed", "without an id"),
        (b"2026-01-31T12:00:00.000001Z", b"yesterday", "malformed", "no time: `yesterday`"),
        (b"2026-01-31T12:00:00.000001Z", b"2026-01-31T12:00:00", "malformed", "without a zone"),
        (b"2026-01-31T12:00:00.000001Z", b"2026-02-31T12:00:00.000001Z", "malformed", "no time"),
        (b'"seq":1', b'"seq":-1', "malformed", "`seq` is -1"),
        (b'"seq":1', b'"seq":9223372036854775808', "malformed", "9223372036854775808"),
        (b'"by":["r"]', b'"by":[]', "malformed", "a row without its decision"),
        (b'"allowed":true', b'"allowed":"1"', "malformed", "a row without its decision"),
        (b'{"principal":{"id":"user:a~b"}}', b'{"principal":{"id":"u"},"more":1}', "malformed", "more"),
        (b"]}\n", b"\n", "malformed", "not JSON"),
    ],
)
def test_problems_have_a_reason_and_the_text(old: bytes, new: bytes, reason: str, problem: str) -> None:
    line = GOOD.replace(old, new)
    found = LineJudge().judge(TrailLine(1, line))
    assert isinstance(found, LineProblem)
    assert found.reason == reason
    assert problem in found.problem
    assert found.text == line.decode().rstrip("\n")


def test_a_line_without_an_end_is_torn_unless_it_is_whole() -> None:
    judge = LineJudge()
    cut = judge.judge(TrailLine(1, GOOD[:80], TORN))
    assert isinstance(cut, LineProblem)
    assert cut.reason == "torn"
    assert isinstance(judge.judge(TrailLine(1, GOOD.rstrip(b"\n"), TORN)), RecordLine)


@pytest.mark.parametrize("time", ["2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00Z", "20260131T120000Z"])
def test_times_of_other_forms_are_in_utc(time: str) -> None:
    found = LineJudge().judge(TrailLine(1, GOOD.replace(b"2026-01-31T12:00:00.000001Z", time.encode())))
    assert isinstance(found, RecordLine)
    (row,) = table_of(RowMaker().decisions(found, "f"), DECISIONS)
    assert row["time"].isoformat() == "2026-01-31T12:00:00+00:00"
    assert row["day"] == date(2026, 1, 31)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"revision"', b'"purpose":"audit","revision"'),
        (b'"delegated":false', b'"delegated":false,"purpose":{"a":[1]}'),
        (b'{"id":"user:a~b"}', b'{"id":"user:a~b","clearance":3}'),
        (b'"table:lake/s/t@main"', b'{"reference":"table:lake/s/t@main","purpose":"x"}'),
    ],
)
def test_a_record_of_a_later_schema_is_taken_with_the_known_fields(old: bytes, new: bytes) -> None:
    line = GOOD.replace(b'"schema":1', b'"schema":2').replace(old, new)
    found = LineJudge().judge(TrailLine(1, line))
    assert isinstance(found, RecordLine)
    (row,) = table_of(RowMaker().decisions(found, "f"), DECISIONS)
    expected = plain_rows(RECORD.decode(GOOD), "f")[0]
    names = ("principal", "action", "allowed", "by", "warehouse", "decision_id")
    assert {name: row[name] for name in names} == {name: expected[name] for name in names}
    assert row["record_version"] == 2


@pytest.mark.parametrize("place", [b'{"id":"user:a~b"}', b'"table:lake/s/t@main"'])
def test_a_field_that_might_decide_keeps_a_check_from_being_decided_again(place: bytes) -> None:
    new = {b'{"id":"user:a~b"}': b'{"id":"user:a~b","clearance":3}'}.get(place, b'{"reference":"table:l/t","new":1}')
    found = LineJudge().judge(TrailLine(1, GOOD.replace(b'"schema":1', b'"schema":2').replace(place, new)))
    assert isinstance(found, RecordLine)
    (row,) = table_of(RowMaker().decisions(found, "f"), DECISIONS)
    assert '"schema":2' in row["inputs"]
    (request,) = table_of([RowMaker().request(found, "f")], REQUESTS)
    assert request["asked"] is None
    reader = TableRowReader(at_revision=True)
    with pytest.raises(msgspec.ValidationError, match="schema"):
        msgspec.json.decode(row["inputs"], type=type(RECORD.decode(GOOD).inputs))
    assert reader


@given(any_records, columns_from)
def test_each_check_of_a_later_schema_is_refused_once(record: Any, columns_from: int) -> None:
    line = encoded(record, columns_from)
    assume(isinstance(LineJudge().judge(TrailLine(1, line)), RecordLine))
    fields = json.loads(line)
    for inputs in filter(None, (fields.get("inputs"), *fields.get("otherInputs", ()))):
        inputs["principal"]["clearance"] = 3
    found = LineJudge().judge(TrailLine(1, json.dumps({**fields, "schema": 2}).encode() + b"\n"))
    assert isinstance(found, RecordLine)
    if found.later is None:
        return
    asked, before = found.later.asked, asked_text(RECORD.decode(line))
    rows = msgspec.json.decode(asked, type=SplitChecks) if asked else SplitChecks()
    known = msgspec.json.decode(before, type=SplitChecks) if before else SplitChecks()
    places = [[(group.at, group.resources) for group in each.groups] for each in (rows, known)]
    assert (rows.undecidable, places[0]) == (known.undecidable, places[1])
    for group in rows.groups:
        assert json.loads(group.inputs)["schema"] == 2
        with pytest.raises(msgspec.ValidationError, match="schema"):
            msgspec.json.decode(group.inputs, type=Inputs)


def test_late_records_are_told_by_their_day() -> None:
    day = (date(2026, 1, 31) - date(1970, 1, 1)).days
    found = LineJudge(day + 1).judge(TrailLine(1, GOOD))
    assert isinstance(found, LineProblem)
    assert (found.reason, found.problem, found.id) == ("late", "of 2026-01-31, before 2026-02-01", "x")
    assert isinstance(LineJudge(day).judge(TrailLine(1, GOOD)), RecordLine)


def test_events_have_their_kind_and_outcome() -> None:
    head = '"schema":1,"id":"x%d","instance":"i","seq":1,"time":"2026-01-31T12:00:00.000001Z"'
    bodies = [
        '"event":"management","operation":"write_grants","caller":"c","actor":"user:a~b","allowed":false',
        '"event":"refusal","surface":"http","status":"401","code":"unauthenticated","caller":""',
        '"event":"service","what":"started","details":{}',
    ]
    lines = [TrailLine(n, f"{{{body},{head % n}}}\n".encode()) for n, body in enumerate(bodies)]
    batch = IngestBatch("k", (AuditFile("file:/a/f", "file:/a", "f", 0),))
    rows = table_of(event_rows(batch, 0, lines, frozenset()), EVENTS)
    assert [(row["event"], row["kind"], row["allowed"], row["actor"]) for row in rows] == [
        ("management", "write_grants", False, "user:a~b"),
        ("refusal", "unauthenticated", False, None),
        ("service", "started", None, None),
    ]
    assert [row["details"] for row in rows] == [line.data.decode().strip() for line in lines]
