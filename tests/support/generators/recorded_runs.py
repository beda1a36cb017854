"""Runs of a service whose policies, facts and state change between decisions, with an audit folder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st
from support.generators import worlds
from support.paths import TESTS

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.facts import build_pdp
from pdp.audit.facts.files import RecordedRevision
from pdp.audit.facts.writer import FactWriter
from pdp.audit.reader import read_audit
from pdp.audit.records.record import AnyRecord
from pdp.audit.records.recorded import ReadReport, RecordFilter
from pdp.audit.records.writing import RecordEncoder
from pdp.decision.codec import decode_checks
from pdp.decision.service import Pdp
from pdp.facts.objects import (
    Change,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectPut,
    RowPolicy,
    RowPolicyPut,
    RowPolicyRemoved,
    key_from_text,
)
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.answer import TypedColumn
from pdp.model.events import OPEN_GATE, AnswerHold, Event
from pdp.model.question import Batch
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.offline.replay.basis import FolderArchive, HistoricalPdps, RecordedFacts
from pdp.offline.replay.differences import Differences
from pdp.offline.replay.replay import repeat_recorded

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

    gate: AnswerHold = OPEN_GATE

    def __init__(self, folder: Path, columns_from: int) -> None:
        self._folder = folder
        self._encoder = RecordEncoder("i", columns_from)
        self.records = 0
        (folder / "bundles").mkdir()

    def admit(self) -> None:
        """Accept every request."""

    def append(self, record: AnyRecord) -> None:
        """Write a record."""
        with (self._folder / "decisions-i.jsonl").open("ab") as file:
            file.write(self._encoder.encode(record.whole(), self.records) + b"\n")
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
            self.pdp.restrict(Batch("test", EMBEDDED_CALLER, 1, (one,)), columns)

    def repeat(self) -> tuple[Differences, ReadReport]:
        assert self.writer.close(10)
        return repeat(self.folder)


def repeat(folder: Path) -> tuple[Differences, ReadReport]:
    reading = ReadReport()
    read = read_audit(folder, reading, RecordFilter(listings=True, at_revision=True))
    found = asyncio.run(
        repeat_recorded(read, HistoricalPdps(FolderArchive(folder), rebuild_pdp), reading, lambda _: None)
    )
    return found, reading


OBJECTS = ["table:w/n/t", "namespace:w/n", "warehouse:w", "project:p", "role:r", "server"]
GRANTS = st.builds(
    Grant,
    st.sampled_from(OBJECTS).map(key_from_text),
    st.sampled_from(["select", "describe", "ownership", "assignee", "project_admin"]),
    st.sampled_from(worlds.USERS),
    st.sampled_from(["", "", "", "id1"]),
)
ROW_RULES = st.builds(
    RowPolicy,
    st.sampled_from([("w", "n", "t"), ("w", "N", "T")]),
    st.sampled_from(["s1", "s2"]),
    st.sampled_from([("user:a",), ("role:r",), ("allUsers",)]),
    st.sampled_from(["x = 2", "TRUE", "x ="]),
    column=st.sampled_from(["", "", "c"]),
    kind=st.just("null"),
    tombstone=st.sampled_from([False, False, True]),
)
CHANGES = st.lists(
    st.builds(GrantAdded, GRANTS)
    | st.builds(GrantAdded, GRANTS)
    | st.builds(GrantRemoved, GRANTS)
    | st.builds(RowPolicyPut, ROW_RULES)
    | st.builds(RowPolicyRemoved, ROW_RULES.map(lambda rule: rule.key))
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


FIRST = st.tuples(POLICIES, CHANGES, CHANGES)


def play(folder: Path, first: Any, steps: Sequence[Any], checks: Any, columns_from: int) -> tuple[Run, int]:
    """Return a run of generated steps, and the number of its decisions without row views."""
    policies, seed, late = first
    run = Run(folder, columns_from)
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
    return run, decided
