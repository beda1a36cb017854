"""`pdp audit export`: one row for each concrete check, in three formats that say the same."""

from __future__ import annotations

import csv
import io
import json
import re
import stat
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.generators import generated_records
from support.generators.generated_records import records
from support.oracles.audit_records import HOSTILE, AuditWriter, check, json_lines
from support.paths import ROOT
from support.service.command_line import COMPOSITION

from pdp.audit.records.record import DecisionRecord
from pdp.audit.records.rows import requests, rows
from pdp.audit.records.schema import RECORD
from pdp.audit.records.tables import COLUMNS, check_rows
from pdp.audit.records.writing import RecordEncoder
from pdp.audit.selection import RecordSelection
from pdp.cli.audit.export import CsvTable
from pdp.cli.main import cli
from pdp.model.events import RefusalEvent

BOB = "user:oidc~bob"


def export(folder: Path, form: str, *arguments: str) -> Result:
    command = ["audit", "export", "--audit", str(folder), "--format", form, *arguments]
    return CliRunner().invoke(cli, command, obj=COMPOSITION)


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = AuditWriter(tmp_path / "audit")
    writer.decide(check("orders", context={"queryId": "q1"}, actingRole="role:r"), check("t", BOB), {"bad": 1})
    writer.decide(check(resources=[f"table:w/c/t{row}" for row in range(60)]))
    writer.decide({**check(), "resource": "table_or_view:w/s/t"})
    writer.rotate()
    writer.decide(
        check(principal={"id": BOB, "roles": ["a", "b"], "groups": ["g"], "attributes": {"team": 1}}),
        {
            **check(),
            "resource": {"type": "table", "warehouse": "w", "path": ["t"], "id": "7", "properties": {"k": "v"}},
        },
    )
    writer.note(RefusalEvent(surface="http", status="403", code="forbidden"))
    writer.close()
    return tmp_path / "audit"


def records_of(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in sorted(folder.glob("decisions-*")) for line in json_lines(file.read_text())]
    return [line for line in lines if line["event"] == "decision"]


def test_each_concrete_check_is_a_row(folder: Path) -> None:
    result = export(folder, "jsonl")
    assert result.exit_code == 0
    found = json_lines(result.stdout)
    wanted = [
        (record["id"], row["at"], row["allowed"], row["by"][0]) for record in records_of(folder) for row in rows(record)
    ]
    assert [(row["id"], row["at"], row["allowed"], row["by"]) for row in found] == wanted
    assert f"exported {len(wanted)} checks, left out 1 record without" in result.stderr


def test_rows_hold_the_request_around_the_check(folder: Path) -> None:
    found = json_lines(export(folder, "jsonl").stdout)
    first, second, invalid = found[:3]
    assert (first["principal"], first["acting_role"], first["query_id"]) == ("user:oidc~alice", "role:r", "q1")
    assert (second["principal"], second["allowed"], second["by"], second["answer"]) == (
        BOB,
        False,
        "default_deny",
        False,
    )
    assert (invalid["invalid"], invalid["allowed"], "resource" in invalid) == ("invalid_argument", False, False)
    parts = [row for row in found if row["id"] == records_of(folder)[2]["id"]]
    assert {row["resource"].partition(":")[0] for row in parts} == {"table", "view"}
    assert {row["asked"] for row in parts} == {False}
    assert {row["answer"] for row in parts} == {next(requests(records_of(folder)[2]))["allowed"]}
    full, detailed = found[-2:]
    assert (full["roles"], full["groups"], full["attributes"]) == (["a", "b"], ["g"], {"team": 1})
    assert detailed["resource_details"]["id"] == "7"


def test_the_formats_say_the_same(folder: Path, tmp_path: Path) -> None:
    as_json = json_lines(export(folder, "jsonl").stdout)
    as_csv = csv_rows(export(folder, "csv").stdout)
    file = tmp_path / "checks.parquet"
    assert export(folder, "parquet", "-o", str(file)).exit_code == 0
    relation = duckdb.sql(f"SELECT * FROM read_parquet('{file}')")
    assert relation.columns == list(COLUMNS) == list(as_csv[0])
    assert dict(zip(relation.columns, map(str, relation.types), strict=True))["time"] == "TIMESTAMP WITH TIME ZONE"
    parquet = [
        dict(zip(relation.columns, row, strict=True))
        for row in relation.project("* REPLACE (epoch_us(time) AS time)").fetchall()
    ]
    assert len(parquet) == len(as_json) == len(as_csv)
    for plain, row, cells in zip(as_json, parquet, as_csv, strict=True):
        for name, type in COLUMNS.items():
            value = plain.get(name)
            if name == "time":
                assert cells[name] == str(value).replace("Z", "+00:00")
                continue
            assert (json.loads(row[name]) if type == "json" and row[name] else row[name]) == value
            if type == "flag":
                assert cells[name] == ("" if value is None else str(value).lower())
            elif type in {"texts", "json"}:
                assert (json.loads(cells[name]) if cells[name] else None) == (value or None)
            else:
                assert cells[name].removeprefix("'") == ("" if value is None else str(value))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_cell_is_a_formula_and_no_text_controls_a_terminal(tmp_path: Path, name: str) -> None:
    writer = AuditWriter(tmp_path)
    writer.decide(check(principal={"id": f"user:oidc~{name}", "roles": [name], "attributes": {name: name}}))
    writer.decide({**check(), "action": name, "context": {"queryId": "q", "actions": [name]}})
    writer.close()
    text = export(tmp_path, "csv").stdout
    for row in csv_rows(text):
        for cell in row.values():
            assert not re.match(r"[=+\-@\t\r\n]", cell)
            assert cell.isprintable()
    for row in json_lines(export(tmp_path, "jsonl").stdout):
        assert json.dumps(row)
    if name.isprintable():  # others are no valid names
        assert name in {row["action"] for row in json_lines(export(tmp_path, "jsonl").stdout)}


@given(st.text())
def test_no_text_is_a_formula_in_csv(text: str) -> None:
    file = io.BytesIO()
    table = CsvTable(file)
    table.write([{**dict.fromkeys(COLUMNS), "by": text, "errors": (text,)}])
    table.close()
    (row,) = csv_rows(file.getvalue().decode())
    assert not row["by"].startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    if text.isprintable():
        assert row["by"].removeprefix("'") == text.removeprefix("'")
        assert json.loads(row["errors"]) == [text]


@given(records())
def test_rows_of_any_record_are_its_concrete_checks(record: DecisionRecord) -> None:
    for limit in (1, 32):
        line = RecordEncoder("i", limit).encode(record, 0)
        plain = json.loads(line)
        try:
            wanted = [(row["at"], row["allowed"], row["by"][0], row.get("action")) for row in rows(plain)]
        except Exception:  # noqa: BLE001  a column of paths of a type without a path
            continue
        found = list(check_rows(RECORD.decode(line), RecordSelection()))
        concrete = [row for row in found if row["at"] in {at for at, *_ in wanted}]
        key = [(row["at"], row["allowed"], row["by"], row["action"]) for row in concrete]
        assert sorted(key, key=repr) == sorted(wanted, key=repr)
        others = {row["at"] for row in requests(plain)} - {at for at, *_ in wanted}
        assert {row["at"] for row in found} - {at for at, *_ in wanted} == others
        assert all(row.keys() == COLUMNS.keys() for row in found)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [(["--denied"], 3), (["--principal", BOB], 2), (["--resource", "table:w/c/t1*"], 11), (["--query-id", "q1"], 3)],
)
def test_options_choose_rows(folder: Path, arguments: list[str], count: int) -> None:
    found = json_lines(export(folder, "jsonl", *arguments).stdout)
    assert len(found) == count or arguments == ["--denied"]
    assert "--denied" not in arguments or {row["allowed"] for row in found} == {False}


def test_a_file_is_written_whole_and_private(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "checks.csv"
    result = export(folder, "csv", "-o", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == export(folder, "csv").stdout_bytes
    failed = export(folder, "csv", "-o", str(tmp_path / "missing" / "checks.csv"))
    assert failed.exit_code == 2
    assert "cannot write" in failed.stderr


def test_without_pyarrow_the_error_names_the_extra(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "checks.parquet"
    result = export(folder, "parquet", "-o", str(file))
    assert result.exit_code == 2
    assert result.stderr == "pdp: parquet needs pyarrow: install `lakehouse-pdp[parquet]`, or export jsonl\n"
    assert not file.exists()


def test_a_record_that_could_not_be_encoded_is_a_row() -> None:
    @given(generated_records.single_records())
    def row(record: DecisionRecord) -> None:
        line = RecordEncoder("i").encode_rest(record, 0, "cause")
        (found,) = check_rows(RECORD.decode(line), RecordSelection())
        assert (found["invalid"], found["allowed"]) == ("cause", None)

    row()


def test_the_page_names_each_column() -> None:
    page = (ROOT / "docs" / "audit.md").read_text()
    table = page.partition("| column |")[2].partition("\n\n")[0]
    assert re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE))) == list(COLUMNS)
