"""Recorded checks are decided again from the audit folder alone, with the result that they had."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generators import worlds
from support.generators.recorded_runs import EPOCH, FIRST, STEPS, Run, play, repeat

from pdp.audit.facts.files import FOLDER, list_files
from pdp.facts.objects import Grant, GrantAdded, GrantRemoved


@given(FIRST, STEPS, worlds.checks, st.sampled_from([1, 1000]))
def test_any_run_is_decided_again_as_it_was(first: Any, steps: list[Any], checks: Any, columns_from: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        run, decided = play(Path(name), first, steps, checks, columns_from)
        found, reading = run.repeat()
        assert not found, found.totals
        assert reading.skipped == {}
        assert (found.checks, reading.row_filters) == (reading.checks, 0)
        assert reading.checks > decided  # and the row views


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return the audit folder of a run with three revisions of the facts and two bundles."""
    run = Run(tmp_path, 1000)
    select = Grant(("table", ("w", "n", "t")), "select", "user:oidc~a")
    check = {"principal": "user:oidc~a", "action": "read_data", "resource": "table:w/n/t"}
    run.load({}, {}, {}, [])
    run.check([check])
    run.write([GrantAdded(select)])
    run.check([check])
    run.load({}, {"a": "true"}, {}, [])
    run.write([GrantRemoved(select)])
    run.check([check, {**check, "action": "write_data"}])
    found, reading = run.repeat()
    assert (found.checks, found.totals, reading.skipped) == (4 + 4, {}, {})
    return tmp_path


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "decisions-i.jsonl").read_text().splitlines()]


def rewrite(folder: Path, records: Sequence[dict[str, Any]]) -> None:
    (folder / "decisions-i.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_record_that_was_changed_is_a_difference(recorded: Path) -> None:
    records = lines(recorded)
    records[0]["checks"][0]["allowed"] = True
    rewrite(recorded, records)
    found, _ = repeat(recorded)
    assert found.totals == {"lost": 1}


def test_a_record_at_another_revision_is_a_difference(recorded: Path) -> None:
    records = lines(recorded)
    records[0]["revision"] = records[2]["revision"]
    rewrite(recorded, records)
    found, _ = repeat(recorded)
    assert found.totals == {"gained": 1}


def test_what_the_folder_lacks_is_counted_by_reason(recorded: Path) -> None:
    first, *_, last = lines(recorded)
    (recorded / "bundles" / first["revision"].rpartition(".")[2]).unlink()
    found, reading = repeat(recorded)
    assert (found.checks, found.totals) == (4, {})
    assert reading.skipped == {"its bundle is not in the folder": 4}
    bundle = recorded / "bundles" / last["revision"].rpartition(".")[2]
    bundle.write_bytes(bundle.read_bytes().replace(b'"true"', b'"false"'))
    found, reading = repeat(recorded)
    assert found.checks == 0
    assert reading.skipped == {"its bundle is not in the folder": 4, "its bundle was changed": 4}


def test_facts_that_the_folder_lacks_are_counted_by_reason(recorded: Path) -> None:
    found = list_files(recorded / FOLDER / EPOCH)
    (changes,) = found.changes.values()
    changes.write_bytes(b"".join(changes.read_bytes().splitlines(keepends=True)[:2]))
    differences, reading = repeat(recorded)
    assert (differences.checks, reading.skipped) == (4, {f"changes of the epoch `{EPOCH}` are missing": 4})
    (snapshot,) = found.snapshots.values()
    snapshot.unlink()
    _, reading = repeat(recorded)
    assert reading.skipped == {f"no snapshot of the epoch `{EPOCH}` is old enough": 8}
    records = lines(recorded)
    for record, revision in zip(records, ("", "x", "../../x.0.00", "e2.0.0", "e1.x.0", *["e1.9.zz"] * 9), strict=False):
        record["revision"] = revision
    rewrite(recorded, records)
    differences, reading = repeat(recorded)
    assert differences.checks == 0
    assert sum(reading.skipped.values()) == 8


def test_masked_values_and_failed_requests_are_counted_by_reason(recorded: Path) -> None:
    first, *rest = lines(recorded)
    entry = first["checks"][0]
    masked = {**entry, "resource": {"reference": entry["resource"], "properties": {"key": "***"}, "masked": True}}
    records = [
        {**first, "checks": [masked]},
        {**first, "checks": []},
        {**first, "inputs": None, "checks": [], "unencodable": "why"},
        {**first, "surface": "list", "listing": {"candidates": 3, "permitted": 1, "since": "e1.2.00"}},
        *rest,
    ]
    rewrite(recorded, records)
    found, reading = repeat(recorded)
    assert (found.checks, found.totals) == (7, {})
    assert reading.skipped == {
        "values are masked": 1,
        "a request that was answered without a check": 1,
        "a record that could not be written whole": 1,
        "a listing over several revisions": 1,
    }
