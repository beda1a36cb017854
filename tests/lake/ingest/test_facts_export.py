"""History of facts from several folders: replicas have parts of one epoch, and the lake gets all of them once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers.lakes import rows
from support.servers.spark import folder_lake
from support.service.stores import added, content, grant

from pdp.audit.facts.files import FOLDER, RecordedRevision
from pdp.audit.facts.writer import FactWriter
from pdp.facts.objects import Object
from pdp.facts.snapshot import Facts
from pdp.lake.ingest.facts import FactsExport, KnownFacts
from pdp.lake.lake import Lake
from pdp.lake.replay.archive import read_archive
from pdp.lake.tables import TABLES
from pdp.model.revision import Revision

EPOCH = "e1"


def replicas(older: Path, younger: Path, begins: int, count: int) -> list[Facts]:
    """Write the history of two replicas, the younger one from a later revision; return the facts of each revision."""
    facts = [Facts.build(EPOCH, 0, [Object(("role", ("r",)), "p")], [grant(0)])]
    first, second = FactWriter(older, "i1"), FactWriter(younger, "i2")
    first.begin(facts[0])
    for number in range(1, count + 1):
        changes = tuple(added(number))
        facts.append(facts[-1].apply(number, changes))
        revision = RecordedRevision(number, 1000.5 + number, f"actor {number}", changes)
        first.follow(facts[-1], [revision])
        if number == begins:
            second.begin(facts[-1])
        elif number > begins:
            second.follow(facts[-1], [revision])
    assert first.close(10)
    assert second.close(10)
    return facts


def export(lake: Lake, *folders: str) -> list[str]:
    """Export folders to a lake, and return the notes."""
    notes: list[str] = []
    job = FactsExport(lake, notes.append)
    for folder in folders:
        job.export(folder)
    return notes


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(600)
def test_folders_of_replicas_give_all_revisions_in_any_order(tmp_path: Path) -> None:
    old, young = tmp_path / "old", tmp_path / "young"
    facts = replicas(old, young, begins=4, count=7)
    found = []
    for number, folders in enumerate([(young, old), (old, young)]):
        lake = folder_lake(tmp_path / f"lake{number}")
        lake.create(TABLES.values())
        addresses = [f"file:{folder}" for folder in folders]
        assert export(lake, addresses[0]) == export(lake, *addresses) == []
        written = rows(lake, "facts", "sequence", "number", "snapshot", "kind", "actor")
        assert export(lake, *addresses) == []
        assert rows(lake, "facts", "sequence", "number", "snapshot", "kind", "actor") == written
        assert len(set(written)) == len(written)
        archive = read_archive(lake)
        for sequence, expected in enumerate(facts):
            assert content(archive.facts_at(Revision(EPOCH, sequence))) == content(expected)
        found.append({row for row in written if not row[2]})
    assert found[0] == found[1]


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(600)
def test_files_without_a_change_are_not_read_again(tmp_path: Path) -> None:
    """Another file of the same size shows that nothing read the file, also behind Hadoop's own mount."""
    replicas(tmp_path / "audit", tmp_path / "other", begins=4, count=7)
    lake = folder_lake(tmp_path / "lake")
    lake.create(TABLES.values())
    lake.spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.facts.link./audit", (tmp_path / "audit").as_uri())
    notes: list[str] = []
    job = FactsExport(lake, notes.append)
    for address in (f"file:{tmp_path}/other", "viewfs://facts/audit"):
        job.export(address)
    for folder in ("audit", "other"):
        for file in (tmp_path / folder / FOLDER / EPOCH).glob("changes-*"):
            file.write_bytes(b"x" * (file.stat().st_size - 1) + b"\n")
    for address in (f"file:{tmp_path}/other", "viewfs://facts/audit"):
        job.export(address)
    assert notes == []
    assert export(lake, "viewfs://facts/audit")[0].startswith("left out facts of the epoch `e1`: a line of changes")


def test_known_revisions_are_ranges_and_additions() -> None:
    known = KnownFacts([("e", False, 5, 9), ("e", False, 2, 3), ("e", True, 1, 1), ("f", False, 4, 4)])
    assert [number for number in range(12) if known.has_changes("e", number)] == [2, 3, 5, 6, 7, 8, 9]
    assert [number for number in range(12) if known.has("e", number)] == [1, 2, 3, 5, 6, 7, 8, 9]
    known.add_changes("e", 4)
    known.add_snapshot("e", 11)
    assert [number for number in range(13) if known.has("e", number)] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]
    assert not known.has_changes("e", 11)
    assert not known.has("g", 4)
