"""Catalogs of lakes, and errors in one line before Spark starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.servers.iceberg_rest import iceberg_server
from support.servers.lakes import decision_line, ids_of, ingest, rows, write_segment
from support.servers.spark import spark_session
from support.service.commands import run_pdp

from pdp.config.load import make_settings
from pdp.config.warehouses import LakeSettings
from pdp.errors import ConfigError, InvalidArgument, Unavailable
from pdp.lake.ingest.batches import BatchCounts
from pdp.lake.lake import Lake
from pdp.lake.session import check_java, choose_catalog, folder_catalog, rest_catalog

CATALOG = "spark.sql.catalog.lake"
LAKES = {"prod": LakeSettings(uri="http://127.0.0.1:1/c", warehouse="w", token="canary", properties={"scope": "s"})}


def test_a_lake_is_a_catalog_of_the_configuration_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prod = choose_catalog("prod", LAKES)
    assert prod.properties[f"{CATALOG}.uri"] == "http://127.0.0.1:1/c"
    assert prod.properties[f"{CATALOG}.warehouse"] == "w"
    assert prod.secrets == {f"{CATALOG}.token": "canary", f"{CATALOG}.scope": "s"}
    assert "canary" not in str(prod.properties)
    for name in ("./prod", "hdfs://h/lake", str(tmp_path / "new")):
        assert choose_catalog(name, LAKES).properties[f"{CATALOG}.type"] == "hadoop"
    assert choose_catalog("anything", {}).folder == tmp_path / "anything"
    with pytest.raises(ConfigError, match=r"no lake `prdo` is configured, the nearest known is `prod`"):
        choose_catalog("prdo", LAKES)
    (tmp_path / "there").mkdir()
    assert choose_catalog("there", LAKES).folder == tmp_path / "there"
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match="is no folder"):
        choose_catalog(str(tmp_path / "file"), {})


@pytest.mark.parametrize("key", ["token", "credential"])
def test_secrets_of_a_lake_may_be_in_files(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_text("canary\n")
    lake: dict[str, Any] = {"uri": "http://127.0.0.1:1", f"{key}_file": "secret"}
    settings = make_settings({"lakes": {"prod": lake}}, tmp_path)
    assert rest_catalog("prod", settings.lakes["prod"]).secrets == {f"{CATALOG}.{key}": "canary"}
    with pytest.raises(ConfigError, match=rf"`lakes.prod.{key}` and `lakes.prod.{key}_file` cannot both be set"):
        make_settings({"lakes": {"prod": {**lake, key: "x"}}}, tmp_path)


@pytest.mark.process
@pytest.mark.parametrize(
    ("says", "error"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11: Spark needs Java 17 or 21"),
        ('java version "1.8.0_392"', "is Java 8: Spark"),
        ('openjdk version "25" 2025-09-16', "is Java 25: Spark"),
        ("nothing", "names no version"),
        ('openjdk version "17.0.15" 2025-04-15', ""),
        ('openjdk version "21" 2023-09-19', ""),
    ],
)
def test_a_wrong_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, error: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if not error:
        check_java()
        return
    with pytest.raises(ConfigError, match=error):
        check_java()


def test_no_java_is_an_error_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="there is no Java: Spark needs Java 17 or 21"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="has no `bin/java`"):
        check_java()


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--lake", "lake", "--spark", "x"], "`--spark x` is not `spark.<name>=<value>`"),
        (["--lake", "prdo", "-c", "pdp.yaml"], "no lake `prdo` is configured"),
        (["--lake", "lake"], "there is no Java"),
    ],
)
def test_errors_of_the_command_are_one_line(tmp_path: Path, arguments: list[str], error: str) -> None:
    (tmp_path / "pdp.yaml").write_text("lakes: {prod: {uri: 'http://127.0.0.1:1'}}\n")
    if "-c" not in arguments:
        (tmp_path / "pdp.yaml").unlink()
    done = run_pdp(
        "pipeline", "ingest", "--audit", "audit", *arguments, cwd=tmp_path, env={"PATH": "", "JAVA_HOME": ""}
    )
    assert done.returncode == 2
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(600)
def test_a_real_rest_catalog(tmp_path: Path) -> None:
    lines = [decision_line(seq) for seq in range(3)]
    write_segment(tmp_path / "audit", 1, lines)
    with iceberg_server(tmp_path) as server:
        settings = LakeSettings(uri=server.uri, namespace="trail", token="canary")
        catalog = rest_catalog("prod", settings)
        lake = Lake(spark_session(catalog), catalog)
        assert ingest(lake, tmp_path / "audit") == BatchCounts(1, 3, 0, 0)
        assert ingest(lake, tmp_path / "audit") == BatchCounts()
        assert rows(lake, "decisions", "id") == sorted((id,) for id in ids_of(lines))
        assert lake.name("decisions") == "lake.trail.decisions"
        assert "canary" not in str(lake.spark.sparkContext.getConf().getAll())


@pytest.mark.spark
@pytest.mark.process
def test_a_catalog_that_does_not_answer_is_an_error_in_one_line() -> None:
    catalog = rest_catalog("prod", LAKES["prod"])
    lake = Lake(spark_session(catalog), catalog)
    with pytest.raises(Unavailable, match="cannot reach the catalog of `prod`") as raised:
        lake.exists("decisions")
    assert "\n" not in str(raised.value)


@pytest.mark.spark
@pytest.mark.process
def test_the_plan_is_explained(tmp_path: Path) -> None:
    from pdp.lake.ingest.ingest import AuditIngest, IngestOptions  # noqa: PLC0415  needs Spark to run

    write_segment(tmp_path / "audit", 1, [decision_line(1)])
    catalog = folder_catalog(str(tmp_path / "lake"))
    lake = Lake(spark_session(catalog), catalog)
    options = IngestOptions((str(tmp_path / "audit"),))
    assert "MapInArrow" in AuditIngest(lake, options, lambda _: None, lambda _: None).explain()
    assert not (tmp_path / "lake").exists()
