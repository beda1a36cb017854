"""Rows of tables are decided again with the same result as the records of the audit folder."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.generators import worlds
from support.generators.recorded_runs import CHANGES, FIRST, POLICIES, STEPS, play
from support.oracles.table_rows import TableArchive, folder_records, table_rows

from pdp.app.archived_bundle import rebuild_pdp
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport, RecordFilter
from pdp.offline.cases.runner import MemoryAudit
from pdp.offline.replay.basis import CandidatePolicies, RecordedFacts
from pdp.offline.replay.replay import replay
from pdp.offline.replay.table_replay import ReplayedQuestion, RowQuestion, TableReplay


def questions(folder: Path, *, views: bool = True) -> Iterable[RowQuestion]:
    """Yield each row of a folder as a question of its own."""
    for record in folder_records(folder):
        if views or record.event == "decision":
            yield from (RowQuestion(row, 1) for row in table_rows(record))


def totals(results: Iterable[ReplayedQuestion]) -> Counter[str]:
    """Return the number of checks of each kind."""
    found: Counter[str] = Counter()
    for result in results:
        found[result.kind] += result.checks
    return found


@given(FIRST, STEPS, worlds.checks, st.sampled_from([1, 1000]))
def test_any_run_is_decided_again_by_its_rows_as_it_was(first: Any, steps: Any, checks: Any, columns_from: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        run, _ = play(Path(name), first, steps, checks, columns_from)
        _, reading = run.repeat()
        results = TableReplay(TableArchive(run.folder), rebuild_pdp).decide(questions(run.folder))
        assert totals(results) == {"same": reading.checks}, results


@given(FIRST, STEPS, worlds.checks, POLICIES, CHANGES)
def test_a_candidate_gives_the_same_differences_by_rows_and_by_records(
    first: Any, steps: Any, checks: Any, policies: Any, changes: Any
) -> None:
    with tempfile.TemporaryDirectory() as name:
        run, _ = play(Path(name), first, steps, checks, 1000)
        run.write(changes)
        run.load(*policies[1:])
        candidate = run.pdp
        assert candidate
        run.repeat()
        projects = {each: found.project for each, found in candidate.bundle.warehouses.items() if found.project}
        candidate.source, candidate.audit = RecordedFacts(run.facts.with_projects(projects), stale=False), MemoryAudit()
        by_records = asyncio.run(
            replay(read_audit(run.folder, ReadReport(), RecordFilter(listings=True)), None, candidate)
        )
        given = CandidatePolicies(bundle=candidate.bundle.text, facts=run.facts)
        results = TableReplay(TableArchive(run.folder), rebuild_pdp, given).decide(questions(run.folder, views=False))
        found = totals(results)
        assert found.pop("same", 0) == by_records.checks - by_records.totals.total()
        assert found == by_records.totals
