"""Two ingests of one lake: the second one is refused, and no row is doubled. A killed ingest leaves no lock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from support.paths import ROOT
from support.servers.iceberg_rest import iceberg_server
from support.servers.lakes import decision_line, ids_of, ingest, rows, write_segment
from support.servers.spark import folder_lake, spark_options, spark_session

from pdp.config.warehouses import LakeSettings
from pdp.errors import Unavailable
from pdp.lake.ingest.batches import BATCH, BatchCounts, BatchWriter
from pdp.lake.ingest.ingest import AuditIngest, IngestOptions
from pdp.lake.lake import Lake, SoleWriter, TableChanged
from pdp.lake.session import rest_catalog
from pdp.lake.tables import BUNDLES

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(600)]
MOST_SECONDS = 300


def command(folder: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "pdp", "pipeline", "ingest", "--audit", str(folder / "a"), "--lake",
        str(folder / "lake"), *spark_options(), *more,
    ]  # fmt: skip


def environ() -> dict[str, str]:
    return {
        "PYTHONPATH": str(ROOT),
        **{name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ},
    }


def once(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, "--once"), capture_output=True, text=True, timeout=MOST_SECONDS, check=False, cwd=folder,
        env=environ(),
    )  # fmt: skip


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    lines = [decision_line(seq) for seq in range(3)]
    write_segment(tmp_path / "a", 1, lines)
    log = tmp_path / "log"
    with log.open("wb") as output:
        holder = subprocess.Popen(
            command(tmp_path, "--interval", "1"), stdout=output, stderr=output, cwd=tmp_path, env=environ()
        )
    children: list[psutil.Process] = []
    try:
        begun = time.monotonic()
        while "checks" not in log.read_text():
            assert holder.poll() is None, log.read_text()
            assert time.monotonic() - begun < MOST_SECONDS
            time.sleep(0.2)
        children = psutil.Process(holder.pid).children(recursive=True)
        second = once(tmp_path)
        assert second.returncode == 2
        assert f"pdp: another ingest of the lake `{tmp_path / 'lake'}` runs: let it end, or stop it" in second.stderr
        assert len(second.stderr.splitlines()) == 1
    finally:
        holder.kill()
        holder.wait(30)
    psutil.wait_procs(children, 60)  # the virtual machine ends when the command has gone, and holds the lock until then
    done = once(tmp_path)
    assert done.returncode == 0, done.stderr
    lake = folder_lake(tmp_path / "lake")
    assert rows(lake, "decisions", "id") == sorted((id,) for id in ids_of(lines))
    assert rows(lake, "sources", "state") == [("begun",), ("done",)]


def test_a_second_ingest_in_one_process_is_refused(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    write_segment(tmp_path / "a", 1, [decision_line(1)])
    options = IngestOptions((str(tmp_path / "a"),), once=True)
    refused: list[str] = []

    def say(step: str) -> None:
        if "reading" in step:
            with pytest.raises(Unavailable, match="another ingest of the lake") as raised:
                ingest(lake, tmp_path / "a")
            refused.append(str(raised.value))

    assert AuditIngest(lake, options, say, lambda _: None).run().ingested == 1
    assert len(refused) == 1
    assert ingest(lake, tmp_path / "a").files == 0


def rest_lake(uri: str) -> Lake:
    catalog = rest_catalog("prod", LakeSettings(uri=uri, token="canary"))
    return Lake(spark_session(catalog), catalog)


@pytest.mark.spark_long
@pytest.mark.parametrize("at", ["reading", "writing requests", "writing decisions"])
def test_without_a_lock_the_later_of_two_writers_is_refused(tmp_path: Path, at: str) -> None:
    """Another ingest begins, and ends, while the first one is at some step: the catalog is remote and has no lock."""
    lines = [decision_line(seq) for seq in range(3)]
    write_segment(tmp_path / "a", 1, lines)
    with iceberg_server(tmp_path) as server:
        lake, options = rest_lake(server.uri), IngestOptions((str(tmp_path / "a"),), once=True)
        others: list[BatchCounts | None] = []

        def say(step: str) -> None:
            if step.startswith(at) and not others:
                others.append(None)
                others[0] = ingest(rest_lake(server.uri), tmp_path / "a")

        with pytest.raises(TableChanged, match="run one ingest of a lake at a time"):
            AuditIngest(lake, options, say, lambda _: None).run()
        assert others[0] is not None
        assert others[0].ingested == 3
        assert ingest(rest_lake(server.uri), tmp_path / "a").files == 0
        for table in ("decisions", "requests"):
            assert rows(rest_lake(server.uri), table, "id") == sorted((id,) for id in ids_of(lines))


def test_a_batch_that_two_runs_finish_has_its_rows_once(tmp_path: Path) -> None:
    """The next run takes a live batch for one of a killed process."""
    lake, lines = folder_lake(tmp_path / "lake"), [decision_line(seq) for seq in range(3)]
    write_segment(tmp_path / "a", 1, lines)
    ingest(lake, tmp_path / "a")
    lake.spark.sql(f"DELETE FROM {lake.name('sources')} WHERE state = 'done'")
    lake.spark.sql(f"DELETE FROM {lake.name('decisions')}")
    batch = lake.table("sources").first()["batch"]
    for table in ("decisions", "requests"):
        found = lake.spark.table(f"{lake.name(table)}.snapshots").where(f"summary['{BATCH}'] = '{batch}'")
        assert found.count() == 1
    late, early = BatchWriter(lake, lambda _: None), BatchWriter(lake, lambda _: None)
    late.begin()
    early.begin()
    assert early.resume().files == 1
    assert late.resume().files == 0
    assert len(rows(lake, "requests", "id")) == 3


def test_only_rows_of_others_make_a_writer_lose(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "lake")
    lake.create([BUNDLES])
    own = SoleWriter(lake, BUNDLES)

    def frame(digest: str) -> object:
        return lake.spark.createDataFrame([(digest, "{}", "f")], BUNDLES.schema)

    own.append(frame("a"))
    own.append(frame("b"))
    lake.spark.sql(
        "CALL lake.system.rewrite_data_files(table => 'pdp.bundles', options => map('min-input-files', '2'))"
    )
    own.append(frame("c"))
    other = SoleWriter(lake, BUNDLES)
    own.append(frame("d"))
    with pytest.raises(TableChanged, match=r"another job has written to `lake.pdp.bundles`"):
        other.append(frame("e"))
    assert [digest for (digest,) in rows(lake, "bundles", "digest")] == ["a", "b", "c", "d"]
