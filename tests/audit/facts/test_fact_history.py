"""The history of facts in an audit folder: what is written is read back, whatever happened in between."""

from __future__ import annotations

import gzip
import random
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.service.stores import added, content, grant

from pdp.audit.facts import folder as fact_folder
from pdp.audit.facts import writer as fact_writer
from pdp.audit.facts.files import FOLDER, RecordedRevision, list_files
from pdp.audit.facts.folder import FactFolder
from pdp.audit.facts.history import FactsHistory
from pdp.audit.facts.writer import FactWriter
from pdp.errors import MissingFacts
from pdp.facts.objects import Change, Grant, GrantAdded, GrantRemoved, Object, ObjectDeleted, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision

EPOCH = "e1"


class World:
    """Facts of every revision of one epoch, and the revisions between."""

    def __init__(self, epoch: str = EPOCH) -> None:
        self.facts = [Facts.build(epoch, 0, [Object(("role", ("r",)), "p")], [grant(0)])]
        self.revisions: list[RecordedRevision] = []

    def write(self, *changes: Change) -> RecordedRevision:
        number = len(self.facts)
        revision = RecordedRevision(number, 1000.25 + number, f"actor \u2028 {number}", changes)
        self.facts.append(self.facts[-1].apply(number, changes))
        self.revisions.append(revision)
        return revision

    @property
    def newest(self) -> Facts:
        return self.facts[-1]


@contextmanager
def writing(folder: Path, instance: str = "i") -> Iterator[FactWriter]:
    writer = FactWriter(folder, instance)
    try:
        yield writer
    finally:
        assert writer.close(10)


def follow(writer: FactWriter, world: World, count: int = 1) -> None:
    """Hand over new revisions that each add a grant."""
    for _ in range(count):
        revision = world.write(*added(len(world.facts)))
        writer.follow(world.newest, [revision])


def read(folder: Path, sequence: int, epoch: str = EPOCH) -> set[Any]:
    return content(FactsHistory(folder).at(Revision(epoch, sequence)))


def files(folder: Path, epoch: str = EPOCH) -> list[str]:
    return sorted(path.name for path in (folder / FOLDER / epoch).iterdir() if not path.name.startswith("."))


def assert_all_there(folder: Path, world: World, first: int = 0) -> None:
    history = FactsHistory(folder)
    for number in range(first, len(world.facts)):
        found = history.at(Revision(world.newest.epoch, number))
        assert content(found) == content(world.facts[number])
        assert (found.epoch, found.sequence) == (world.newest.epoch, number)


def until(happens: Callable[[], Any], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_every_revision_is_read_back_while_the_service_goes_on(tmp_path: Path) -> None:
    world = World()
    history = FactsHistory(tmp_path)
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        for number in range(1, 6):
            follow(writer, world)
            # the call returns when the folder has the revision, so that a record never names one that is missing
            assert content(history.at(Revision(EPOCH, number))) == content(world.newest)
        with pytest.raises(MissingFacts, match=r"changes .* missing: revision e1\.6"):
            history.at(Revision(EPOCH, 6))
        follow(writer, world)
        assert content(history.at(Revision(EPOCH, 6))) == content(world.newest)
    assert files(tmp_path) == ["changes-000000000000.jsonl", "snapshot-000000000000.jsonl.gz"]
    assert [(one.sequence, one.time, one.actor, one.changes) for one in history.revisions(EPOCH)] == [
        (one.sequence, one.time, one.actor, one.changes) for one in world.revisions
    ]
    assert history.epochs() == [EPOCH]


def test_a_world_file_has_one_snapshot(tmp_path: Path) -> None:
    world = World("0123456789ab")
    for _ in range(2):
        with writing(tmp_path) as writer:
            writer.begin(world.newest)
    assert read(tmp_path, 0, "0123456789ab") == content(world.newest)
    assert len(files(tmp_path, "0123456789ab")) == 2


def test_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    world = World()
    with writing(tmp_path / "audit") as writer:
        writer.begin(world.newest)
        follow(writer, world)
    for path in (tmp_path / "audit").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_several_writers_write_each_revision_once(tmp_path: Path) -> None:
    world = World()
    first = world.newest
    for _ in range(60):
        world.write(*added(len(world.facts)))
    writers = [FactWriter(tmp_path, f"i{number}") for number in range(3)]

    def run(writer: FactWriter, step: int) -> None:
        writer.begin(first)
        for end in range(step, 61, step):
            # as a follower of a store: revisions may repeat, and the facts are those after the last of them
            writer.follow(world.facts[end], world.revisions[max(0, end - 2 * step) : end])
        writer.follow(world.newest, world.revisions[50:])

    threads = [threading.Thread(target=run, args=pair) for pair in zip(writers, (1, 3, 7), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(writer.close(10) for writer in writers)
    assert [one.sequence for one in FactsHistory(tmp_path).revisions(EPOCH)] == list(range(1, 61))
    assert_all_there(tmp_path, world)


def test_a_later_start_goes_on_where_the_history_ends(tmp_path: Path) -> None:
    world = World()
    with writing(tmp_path) as writer:
        assert writer.newest(EPOCH) is None
        writer.begin(world.newest)
        follow(writer, world, 2)
    missed = [world.write(*added(100 + number)) for number in range(3)]
    with writing(tmp_path, "j") as writer:
        assert writer.newest(EPOCH) == Revision(EPOCH, 2)
        writer.begin(world.newest, missed)
        follow(writer, world)
    assert_all_there(tmp_path, world)
    assert len(files(tmp_path)) == 2


def test_a_gap_is_followed_by_a_snapshot(tmp_path: Path) -> None:
    world = World()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        follow(writer, world, 2)
    for number in range(3):
        world.write(*added(100 + number))
    with writing(tmp_path, "j") as writer:
        writer.begin(world.newest)
        follow(writer, world)
    assert len(files(tmp_path)) == 4
    for known in (0, 1, 2, 5, 6):
        assert read(tmp_path, known) == content(world.facts[known])
    for unknown in (3, 4):
        with pytest.raises(MissingFacts, match=r"missing: revision e1\.3"):
            read(tmp_path, unknown)


def test_a_new_epoch_has_a_folder_of_its_own(tmp_path: Path) -> None:
    old, new = World(), World("e2")
    with writing(tmp_path) as writer:
        writer.begin(old.newest)
        follow(writer, old, 2)
        writer.begin(new.newest)
        writer.follow(old.newest, old.revisions)  # a write that began before the change
        follow(writer, new, 2)
    assert_all_there(tmp_path, old)
    assert_all_there(tmp_path, new)
    with pytest.raises(MissingFacts, match="no facts of the epoch `e3`"):
        read(tmp_path, 0, "e3")


@pytest.mark.parametrize("epoch", ["..", "", "a/b", "E", "e" * 65])
def test_an_epoch_is_never_a_path(tmp_path: Path, epoch: str) -> None:
    with pytest.raises(MissingFacts):
        read(tmp_path, 0, epoch)


def test_a_large_history_begins_a_new_snapshot_without_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_folder, "ROLL_BYTES", 1000)
    monkeypatch.setattr(fact_folder, "ROLL_SNAPSHOTS", 1)
    world = World()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        follow(writer, world, 40)
    found = list_files(tmp_path / FOLDER / EPOCH)
    assert len(found.snapshots) > 2
    assert set(found.snapshots) == set(found.changes)
    assert_all_there(tmp_path, world)
    # from the first snapshot alone: the changes go on from file to file
    for sequence, path in found.snapshots.items():
        if sequence:
            path.unlink()
    assert_all_there(tmp_path, world)


def test_old_files_can_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_folder, "ROLL_BYTES", 1000)
    monkeypatch.setattr(fact_folder, "ROLL_SNAPSHOTS", 1)
    world = World()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        follow(writer, world, 40)
    found = list_files(tmp_path / FOLDER / EPOCH)
    last = max(found.snapshots)
    for start in set(found.changes) - {last}:
        found.changes[start].unlink()
        found.snapshots[start].unlink()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        follow(writer, world, 3)
    assert_all_there(tmp_path, world, last)
    with pytest.raises(MissingFacts, match="no snapshot"):
        read(tmp_path, last - 1)


# --- crashes and damage ---------------------------------------------------------------------------------------------


def changes_file(folder: Path) -> Path:
    (path,) = list_files(folder / FOLDER / EPOCH).changes.values()
    return path


def test_any_cut_of_the_last_line_is_mended(tmp_path: Path) -> None:
    world = World()
    with writing(tmp_path / "a") as writer:
        writer.begin(world.newest)
        follow(writer, world, 2)
    whole = changes_file(tmp_path / "a").read_bytes()
    begin = whole[:-1].rindex(b"\n") + 1
    for cut in {begin, begin + 1, (begin + len(whole)) // 2, len(whole) - 1}:
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        changes_file(tmp_path / "b").write_bytes(whole[:cut])
        assert read(tmp_path / "b", 1) == content(world.facts[1])
        with pytest.raises(MissingFacts, match="missing"):
            read(tmp_path / "b", 2)
        with writing(tmp_path / "b", "j") as writer:
            assert writer.newest(EPOCH) == Revision(EPOCH, 1)
            writer.begin(world.newest, world.revisions[1:])
        assert changes_file(tmp_path / "b").read_bytes() == whole
        shutil.rmtree(tmp_path / "b")


@pytest.mark.parametrize("without", ["snapshot", "changes", "head"])
def test_a_start_that_was_killed_early_is_repeated(tmp_path: Path, without: str) -> None:
    world = World()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        follow(writer, world, 2)
    found = list_files(tmp_path / FOLDER / EPOCH)
    if without == "snapshot":
        found.snapshots[0].rename(found.snapshots[0].parent / ".snapshot-0")
    elif without == "changes":
        found.changes[0].unlink()
    else:
        found.changes[0].write_bytes(b'{"event":"facts_')
    with writing(tmp_path, "j") as writer:
        writer.begin(world.newest, ())
        follow(writer, world, 2)
    assert_all_there(tmp_path, world, 2)
    assert not list((tmp_path / FOLDER / EPOCH).glob(".snapshot-*"))


def test_an_edited_line_is_found(tmp_path: Path) -> None:
    world = World()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        follow(writer, world, 3)
    file = changes_file(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    edits: dict[str, Sequence[bytes]] = {
        "digest is another": [*lines[:2], lines[2].replace(b"oidc~alice", b"oidc~mallo"), lines[3]],
        "damaged": [*lines[:2], lines[3]],
        "no JSON": [*lines[:2], b"{}\n", lines[3]],
    }
    for edited in edits.values():
        file.write_bytes(b"".join(edited))
        assert read(tmp_path, 1) == content(world.facts[1])
        for sequence in (2, 3):
            with pytest.raises(MissingFacts, match="damaged"):
                read(tmp_path, sequence)


def test_an_edited_snapshot_is_found(tmp_path: Path) -> None:
    world = World()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
    (path,) = list_files(tmp_path / FOLDER / EPOCH).snapshots.values()
    text = gzip.decompress(path.read_bytes())
    for edited in (
        text.replace(b"oidc~alice", b"oidc~mallo"),
        text[: text[:-1].rindex(b"\n") + 1],
        text.replace(b'"epoch":"e1"', b'"epoch":"e2"'),
        text.replace(b'"schema":1', b'"schema":2'),
        b"",
    ):
        path.write_bytes(gzip.compress(edited))
        with pytest.raises(MissingFacts, match="snapshot"):
            read(tmp_path, 0)
    path.write_bytes(gzip.compress(text)[:-12])
    with pytest.raises(MissingFacts, match="snapshot"):
        read(tmp_path, 0)
    path.write_bytes(b"no gzip")
    with pytest.raises(MissingFacts, match="snapshot"):
        read(tmp_path, 0)


def put_back(folder: Path, away: Path) -> None:
    """Put a folder in place of the file that has its name. No try of the writer falls between the two steps."""
    time.sleep(0.2)  # each change wakes the writer for one try; then it pauses for longer
    folder.unlink()
    away.rename(folder)


def test_a_history_that_cannot_be_written_says_so_and_is_complete_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fact_writer, "RETRY_SECONDS", 0.5)
    world = World()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        follow(writer, world)
        folder = tmp_path / FOLDER / EPOCH
        folder.rename(tmp_path / "away")
        folder.touch()
        started = time.monotonic()
        follow(writer, world)
        until(lambda: writer.failing)
        follow(writer, world, 20)
        assert time.monotonic() - started < 3  # facts do not wait for a disk that takes nothing
        put_back(folder, tmp_path / "away")
        until(lambda: not writer.failing)
        follow(writer, world)
    assert_all_there(tmp_path, world)


def test_too_many_waiting_changes_become_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_writer, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(fact_writer, "MOST_WAITING", 5)
    world = World()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        folder = tmp_path / FOLDER / EPOCH
        folder.rename(tmp_path / "away")
        folder.touch()
        follow(writer, world)
        until(lambda: writer.failing)
        follow(writer, world, 20)
        put_back(folder, tmp_path / "away")
        until(lambda: not writer.failing)
        follow(writer, world)
    assert_all_there(tmp_path, world, 21)
    assert_all_there_is(tmp_path, world, 0)


def assert_all_there_is(folder: Path, world: World, sequence: int) -> None:
    assert read(folder, sequence) == content(world.facts[sequence])


def test_a_frozen_process_with_the_lock_does_not_hold_up_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_folder, "LOCK_SECONDS", 0.3)
    monkeypatch.setattr(fact_writer, "RETRY_SECONDS", 0.05)
    world = World()
    with writing(tmp_path) as writer:
        writer.begin(world.newest)
        frozen = FactFolder(tmp_path / FOLDER / EPOCH, EPOCH, "frozen")
        with frozen._locked():
            started = time.monotonic()
            follow(writer, world, 10)
            assert time.monotonic() - started < 5
            until(lambda: writer.failing)
        until(lambda: not writer.failing)
    assert_all_there(tmp_path, world)


# --- any history ----------------------------------------------------------------------------------------------------

KEYS = [
    ("table", ("w", "n", "t")),
    ("namespace", ("w", "n")),
    ("warehouse", ("w",)),
    ("role", ("r~/%",)),
    ("server", ()),
]
GRANTS = st.builds(
    Grant,
    st.sampled_from(KEYS),
    st.sampled_from(["select", "ownership", "assignee"]),
    st.sampled_from(["user:o~a", "user:o~\u2028\"'", "role:r~/%"]),
    st.sampled_from(["", "id1"]),
)
OBJECTS = st.builds(
    Object, st.sampled_from(KEYS), st.sampled_from(["", "p"]), st.booleans(), st.sampled_from(["", "id1"])
)
CHANGES = st.lists(
    st.builds(GrantAdded, GRANTS)
    | st.builds(GrantRemoved, GRANTS)
    | st.builds(ObjectPut, OBJECTS)
    | st.builds(ObjectDeleted, st.sampled_from(KEYS)),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(CHANGES | st.sampled_from(["restart", "missed", "gap"]), max_size=15)


@given(STEPS, st.integers(0, 600), st.integers(0, 99))
def test_any_history_is_read_back(steps: list[Any], roll: int, seed: int) -> None:
    world, unknown = World(), set()
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fact_folder, "ROLL_BYTES", roll)
        patch.setattr(fact_folder, "ROLL_SNAPSHOTS", 1)
        folder = Path(name)
        writer = FactWriter(folder, "i0")
        writer.begin(world.newest)
        for number, step in enumerate(steps, 1):
            if isinstance(step, list):
                revision = world.write(*step)
                writer.follow(world.newest, [revision])
                continue
            assert writer.close(10)
            newest = world.newest.sequence
            if step != "restart":
                for _ in range(2):
                    world.write(*added(newest))
            if step == "gap":
                unknown.add(newest + 1)
            writer = FactWriter(folder, f"i{number}")
            assert writer.newest(EPOCH) == Revision(EPOCH, newest)
            writer.begin(world.newest, world.revisions[newest:] if step == "missed" else ())
        assert writer.close(10)
        history, sequences = FactsHistory(folder), list(range(len(world.facts))) * 2
        random.Random(seed).shuffle(sequences)
        for sequence in sequences:
            if sequence in unknown:
                with pytest.raises(MissingFacts):
                    history.at(Revision(EPOCH, sequence))
            else:
                assert content(history.at(Revision(EPOCH, sequence))) == content(world.facts[sequence])


def test_facts_that_cannot_be_encoded_show_in_readiness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_writer, "RETRY_SECONDS", 0.05)
    world = World()
    writer = FactWriter(tmp_path, "i")
    writer.begin(world.newest)
    world.write(*added(1))
    writer.follow(world.newest, [RecordedRevision(1, 1001.0, "half of a sign: \ud800", tuple(added(1)))])
    until(lambda: writer.failing)
    assert not writer.close(0.2)
    assert read(tmp_path, 0) == content(world.facts[0])
