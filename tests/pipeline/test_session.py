"""Session of Spark: started here or by `spark-submit`, with the same settings that keep secrets off pages and logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.spark import PROPERTIES

JOB = f"""
from pdp.config.lakes import LakeSettings
from pdp.pipeline.catalog import rest_catalog
from pdp.pipeline.session import start_session

lake = LakeSettings(uri="http://127.0.0.1:1", credential="canary", token="canary")
session = start_session(rest_catalog("prod", lake), {PROPERTIES!r})
assert session.conf.get("spark.sql.session.timeZone") == "UTC"
for row in session.sql("SET").collect():
    print("SET", row.key, row.value)
"""


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
        [*start, str(job)], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shown = dict(line.split(" ", 2)[1:] for line in done.stdout.splitlines() if line.startswith("SET "))
    assert "redacted" in shown["spark.sql.catalog.lake.credential"]
    assert "redacted" in shown["spark.sql.catalog.lake.token"]
    assert "canary" not in done.stdout
