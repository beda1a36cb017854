"""The ingest by `spark-submit` with executors of their own: they find the product in a shipped archive."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.paths import ROOT
from support.servers.lakes import decision_line, event_line, ids_of, rows, write_segment
from support.servers.spark import folder_lake

from pdp.lake.session import ICEBERG

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(600)]
JOB = "from pdp.app import main\nmain()\n"
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
SITE = """
import os, sys
with open({log!r}, "a") as file:
    file.write(f"{{os.path.realpath(__file__)}}\\n")
"""


def packed_environment(folder: Path) -> Path:
    """An archive with the product and a `bin/python`, as `venv-pack` makes it; the libraries are those of this Python."""
    home = folder / "environment"
    (home / "bin").mkdir(parents=True)
    shutil.copytree(ROOT / "pdp", home / "lib" / "pdp", ignore=shutil.ignore_patterns("__pycache__"))
    (home / "lib" / "sitecustomize.py").write_text(SITE.format(log=str(folder / "starts.log")))
    python = home / "bin" / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$(dirname "$0")/../lib:$PYTHONPATH" exec {sys.executable} "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    with tarfile.open(folder / "pdp-env.tar.gz", "w:gz", compresslevel=1) as archive:
        for each in home.iterdir():
            archive.add(each, each.name)
    return home


@pytest.mark.spark_long
def test_executors_find_the_product_in_an_archive(tmp_path: Path) -> None:
    import pyspark  # noqa: PLC0415  an extra

    home = packed_environment(tmp_path)
    lines = [decision_line(seq) for seq in range(4)]
    write_segment(tmp_path / "audit", 1, [event_line(9), *lines[:2], b"broken\n"])
    write_segment(tmp_path / "audit", 2, lines[2:], end=".zst")
    (tmp_path / "job.py").write_text(JOB)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [
        str(submit), "--master", "local-cluster[2,1,1024]", "--packages", ICEBERG, "--archives", f"{tmp_path}/pdp-env.tar.gz#env",
        "--conf", f"spark.sql.extensions={EXTENSIONS}", "--conf", "spark.pyspark.python=./env/bin/python", "--conf",
        f"spark.pyspark.driver.python={home}/bin/python", "--conf", "spark.ui.enabled=false", "--conf",
        "spark.sql.shuffle.partitions=2", "--driver-memory", "1g", "--executor-memory", "1g", "job.py", "pipeline",
        "ingest", "--audit", str(tmp_path / "audit"), "--lake", str(tmp_path / "lake"), "--once", "--format", "json",
    ]  # fmt: skip
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"ingested": 4, "duplicates": 0, "quarantined": 1}
    started = set((tmp_path / "starts.log").read_text().splitlines())
    assert started > {f"{home.resolve()}/lib/sitecustomize.py"}, "no executor took its Python from the archive"
    lake = folder_lake(tmp_path / "lake")
    assert rows(lake, "decisions", "id") == sorted((id,) for id in ids_of(lines))
