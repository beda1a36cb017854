"""Recorded checks are decided again from the audit folder alone, with the result that they had."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import worlds
from support.paths import TESTS

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.parts import build_pdp
from pdp.audit.encoding import RecordEncoder
from pdp.audit.fact_files import FOLDER, RecordedRevision, list_files
from pdp.audit.fact_writer import FactWriter
from pdp.audit.reader import read_audit
from pdp.audit.record import DecisionRecord
from pdp.audit.recorded import ReadReport, RecordFilter
from pdp.decision.codec import decode_checks
from pdp.decision.service import Pdp
from pdp.facts.objects import Change, Grant, GrantAdded, GrantRemoved, Object, ObjectPut, key_from_text
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.checks import Batch, TypedColumn
from pdp.model.events import Event
from pdp.offline.case_runner import MemoryAudit, build_case_pdp
from pdp.offline.cases import Case
from pdp.offline.differences import Differences
from pdp.offline.recorded_basis import RecordedBasis, RecordedFacts
from pdp.offline.recorded_replay import repeat_recorded

EPOCH = "e1"
ROWS: dict[str, Any] = {
    "policies": [
        {"id": "rows_a", "table": "w.n.t", "grantees": ["user:a"], "filter": "x = 1"},
        {"id": "rows_r", "table": "w.n.t", "grantees": ["role:r"], "filter": True},
    ],
    "masks": [{"id": "mask_c", "table": "w.n.t", "column": "c", "grantees": ["user:b"], "kind": "null", "except": []}],
}


class FolderAudit:
    """Audit that writes each record at once, with its bundle, as a service would."""

    def __init__(self, folder: Path, columns_from: int) -> None:
        self._folder = folder
        self._encoder = RecordEncoder("i", columns_from)
        self.records = 0
        (folder / "bundles").mkdir()

    def admit(self) -> None:
        """Accept every request."""

    def append(self, record: DecisionRecord) -> None:
        """Write a record."""
        with (self._folder / "decisions-i.jsonl").open("ab") as file:
            file.write(self._encoder.encode(record, self.records) + b"\n")
        (self._folder / "bundles" / record.bundle_digest).write_bytes(record.bundle_text)
        self.records += 1

    def note(self, event: Event) -> bool:
        """Drop an event."""
        return True


class Run:
    """A service whose policies, facts and state change between decisions, and its audit folder."""

    def __init__(self, folder: Path, columns_from: int) -> None:
        self.folder = folder
        self.audit = FolderAudit(folder, columns_from)
        self.facts = Facts.build(EPOCH, 3, [], [])
        self.stale = False
        self.pdp: Pdp | None = None
        self.writer = FactWriter(folder, "i")
        self.writer.begin(self.facts)

    def load(self, config: Any, rules: Any, forbid: Any, rows: Any) -> None:
        data = {"config": config, "rules": rules, "forbid": forbid, "policies": rows}
        self.pdp, _ = build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())
        self.pdp.audit = self.audit
        self.pdp.clock = lambda: 1_800_000_000 + self.audit.records

    def write(self, changes: Sequence[Change]) -> None:
        sequence = self.facts.sequence + 1
        self.facts = self.facts.apply(sequence, changes)
        self.writer.follow(self.facts, [RecordedRevision(sequence, 1.5, "somebody", tuple(changes))])

    def check(self, checks: Sequence[Any]) -> None:
        assert self.pdp
        bundle = self.pdp.bundle
        projects = {name: each.project for name, each in bundle.warehouses.items() if each.project}
        self.pdp.source = RecordedFacts(self.facts.with_projects(projects), stale=self.stale)
        batch = admit(decode_checks([msgspec.json.encode(each) for each in checks]).request("test"), EMBEDDED_CALLER)
        asyncio.run(self.pdp.check(batch))
        for check in batch.checks:
            one = msgspec.structs.replace(check, resources=check.resources[:1], at=(0,))
            columns = [TypedColumn(name, "bigint") for name in ("c", "$path", "d")]
            self.pdp.filter(Batch("test", EMBEDDED_CALLER, 1, (one,)), columns)

    def repeat(self) -> tuple[Differences, ReadReport]:
        assert self.writer.close(10)
        return repeat(self.folder)


def repeat(folder: Path) -> tuple[Differences, ReadReport]:
    reading = ReadReport()
    read = read_audit(folder, reading, RecordFilter(listings=True, at_revision=True))
    found = asyncio.run(repeat_recorded(read, RecordedBasis(folder, rebuild_pdp), reading, lambda _: None))
    return found, reading


OBJECTS = ["table:w/n/t", "namespace:w/n", "warehouse:w", "project:p", "role:r", "server"]
GRANTS = st.builds(
    Grant,
    st.sampled_from(OBJECTS).map(key_from_text),
    st.sampled_from(["select", "describe", "ownership", "assignee", "project_admin"]),
    st.sampled_from(worlds.USERS),
    st.sampled_from(["", "", "", "id1"]),
)
CHANGES = st.lists(
    st.builds(GrantAdded, GRANTS)
    | st.builds(GrantAdded, GRANTS)
    | st.builds(GrantRemoved, GRANTS)
    | st.builds(
        ObjectPut,
        st.builds(Object, st.sampled_from(OBJECTS[:3]).map(key_from_text), st.just(""), st.booleans(), st.just("id1")),
    ),
    min_size=2,
    max_size=6,
)
TIMED = {"timed": "op=='READ_ENTITY_VALUE' && now < timestamp('2027-01-15T08:00:02Z')"}
RULES = st.builds(lambda rules, more: rules | more, worlds.rules, st.sampled_from([{}, TIMED]))
CONFIGS = st.builds(
    lambda config, engines, project, roles, admins, protected: {
        **config,
        "authorities": {"default": {"engines": engines}} if engines else config["authorities"],
        "warehouses": {"w": {"default_ref": "main", "project": project}},
        "identity": {
            "providers": {"oidc": {"issuer": "i", "jwks": "k", "role_map": roles}},
            "instance_admins": admins,
        },
        "row_access": {"protected": protected},
    },
    worlds.configs,
    st.sampled_from([[], ["grants"], ["grants", "cel"]]),
    st.sampled_from([None, "p"]),
    st.sampled_from([{}, {"r": "r"}]),
    st.sampled_from([[], ["user:oidc~a"]]),
    st.sampled_from([[], ["warehouse:w"]]),
)
PROBES = [
    {"principal": user, "action": action, "resource": resource}
    for user in worlds.USERS
    for action, resource in (("read_data", "table:w/n/t"), ("get_metadata", "namespace:w/n"), ("use", "warehouse:w"))
]
"""Checks whose answers depend on most grants."""
POLICIES = st.tuples(st.just("policies"), CONFIGS, RULES, worlds.rules, st.sampled_from([[], {}, ROWS]))
STEPS = st.lists(
    st.tuples(st.just("write"), CHANGES)
    | st.tuples(st.just("check"), worlds.checks)
    | st.tuples(st.just("check"), worlds.checks)
    | st.tuples(st.just("stale"), st.booleans())
    | POLICIES,
    max_size=8,
)


@pytest.mark.slow
@given(st.tuples(POLICIES, CHANGES, CHANGES), STEPS, worlds.checks, st.sampled_from([1, 1000]))
def test_any_run_is_decided_again_as_it_was(first: Any, steps: list[Any], checks: Any, columns_from: int) -> None:
    policies, seed, late = first
    with tempfile.TemporaryDirectory() as name:
        run = Run(Path(name), columns_from)
        decided = 0
        for kind, *values in [policies, ("write", seed), *steps, ("write", late), ("check", checks)]:
            if kind == "policies":
                run.load(*values)
            elif kind == "write":
                run.write(*values)
            elif kind == "stale":
                (run.stale,) = values
            else:
                run.check([*values[0], *PROBES])
                decided += len(values[0]) + len(PROBES)
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
