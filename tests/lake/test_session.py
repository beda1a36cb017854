"""Session of Spark: started here or by `spark-submit`, with the same settings that keep secrets off pages and logs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.servers.lakes import decision_line, write_segment
from support.servers.spark import PROPERTIES, folder_lake
from support.untested import not_tested

from pdp.lake.session import failure_cause

JOB = f"""
from pdp.config.warehouses import LakeSettings
from pdp.lake.session import rest_catalog
from pdp.lake.session import start_session

lake = LakeSettings(uri="http://127.0.0.1:1", credential="canary", token="canary")
session = start_session(rest_catalog("prod", lake), {PROPERTIES!r})
assert session.conf.get("spark.sql.session.timeZone") == "UTC"
for row in session.sql("SET").collect():
    print("SET", row.key, row.value)
"""


def run_ingest(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Ingest once in a process with a folder of its own for temporary files."""
    if find_spec("pyspark") is None:
        not_tested("on Spark", "no `pyspark` in .venv", "make test-spark")
    (folder / "tmp").mkdir(exist_ok=True)
    options = [part for name, value in PROPERTIES.items() for part in ("--spark", f"{name}={value}")]
    command = ["-m", "pdp", "pipeline", "ingest", "--audit", "audit", "--lake", "lake", "--once", *options, *more]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(folder / "tmp")}
    return subprocess.run(
        [sys.executable, *command], env=environ, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.spark_long
def test_a_jar_of_this_machine_needs_no_network_and_the_log_goes_with_the_process(tmp_path: Path) -> None:
    lake = folder_lake(tmp_path / "other")  # fetches the jar
    jars = lake.spark.sparkContext.getConf().get("spark.jars", "").split(",")
    jar = next(jar for jar in jars if "iceberg-spark-runtime" in jar)
    write_segment(tmp_path / "audit", 1, [decision_line(1)])
    no_network = ("--spark", f"spark.jars.ivy={tmp_path / 'ivy'}", "--spark", f"spark.jars={jar}")
    done = run_ingest(tmp_path, *no_network)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ivy").exists()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert "1 checks ingested" in done.stdout


@pytest.mark.spark
@pytest.mark.process
def test_an_error_of_the_start_names_a_log_that_stays(tmp_path: Path) -> None:
    write_segment(tmp_path / "audit", 1, [decision_line(1)])
    done = run_ingest(tmp_path, "--spark", "spark.master=nowhere")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    (log,) = (tmp_path / "tmp").glob("pdp-spark-*.log")
    assert str(log) in done.stderr


@pytest.mark.spark
@pytest.mark.process
def test_the_cause_in_a_worker_is_named(tmp_path: Path) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415  an extra

    spark = folder_lake(tmp_path / "lake").spark

    def fail(batches: Any) -> Any:
        yield from ()
        raise ValueError("cannot read `x`")

    with pytest.raises(PySparkException) as raised:
        spark.range(1).mapInArrow(fail, "id bigint").collect()
    assert failure_cause(raised.value) == "a Python worker raised ValueError: cannot read `x`"
    with pytest.raises(PySparkException) as raised:
        spark.sql("SELECT raise_error('no')").collect()
    assert failure_cause(raised.value).endswith("no SQLSTATE: P0001")
    for text, cause in (
        ("", "Exception"),
        ("\n one \n two", "one"),
        ("Traceback (most recent call last):\n", "Exception"),
    ):
        assert failure_cause(Exception(text)) == cause


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.parametrize("submitted", [False, True])
def test_spark_shows_no_credential_whoever_starts_it(tmp_path: Path, submitted: bool) -> None:
    import pyspark  # noqa: PLC0415  an extra

    submit = str(Path(pyspark.__file__).parent / "bin/spark-submit")
    start = (
        [submit, "--master", "local[2]", "--conf", "spark.redaction.regex=(?i)password"]
        if submitted
        else [sys.executable]
    )
    job = tmp_path / "job.py"
    job.write_text(JOB)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [*start, str(job)], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shown = dict(line.split(" ", 2)[1:] for line in done.stdout.splitlines() if line.startswith("SET "))
    assert "redacted" in shown["spark.sql.catalog.lake.credential"]
    assert "redacted" in shown["spark.sql.catalog.lake.token"]
    assert "canary" not in done.stdout
