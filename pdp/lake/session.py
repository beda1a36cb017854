"""Session of Spark: its start, the catalogs of the lake in it, and the stages of a long job.

A session starts on this machine with Iceberg's jar, or is taken from `spark-submit`. Java is checked before. Spark's
log goes to a file, and every failure of the start is one line with its cause. A catalog is a folder with Iceberg's
Hadoop catalog, or an Iceberg REST catalog of the configuration. People see the stage of a job with its finished tasks;
at the end, rows, seconds and rate.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pdp.config.origins import suggest
from pdp.config.warehouses import LakeSettings
from pdp.errors import ConfigError, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


CATALOG: Final = "lake"
"""Name of the catalog inside Spark."""
_PREFIX: Final = f"spark.sql.catalog.{CATALOG}"


class LakeCatalog(msgspec.Struct, frozen=True):
    """Catalog, and the namespace of the tables.

    `properties` are those of Spark at its start. `secrets` are set in a running session, so that no command line and no
    page of Spark shows them.
    """

    name: str
    namespace: str
    properties: Mapping[str, str]
    secrets: Mapping[str, str] = {}
    folder: Path | None = None
    """Folder of a catalog on this machine."""

    def table(self, name: str) -> str:
        """Return the full name of a table in SQL."""
        return f"{CATALOG}.{self.namespace}.{name}"


def choose_catalog(name: str, lakes: Mapping[str, LakeSettings]) -> LakeCatalog:
    """Return the catalog that `--lake` names: one of the configuration, else that of a folder."""
    if not name:
        raise InvalidArgument("`--lake` is empty")
    if name in lakes:
        return rest_catalog(name, lakes[name])
    if lakes and "/" not in name and not Path(name).is_dir():
        raise ConfigError(f"no lake `{name}` is configured{suggest(name, lakes)}; for a folder, write `./{name}`")
    return folder_catalog(name)


def folder_catalog(place: str) -> LakeCatalog:
    """Return the catalog of a folder: a path of this machine, or an address such as `hdfs://` or `s3a://`."""
    folder = None if "://" in place else Path(place).absolute()
    if folder and folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"`{place}` is no folder")
    properties = {_PREFIX: "org.apache.iceberg.spark.SparkCatalog", f"{_PREFIX}.type": "hadoop"}
    properties[f"{_PREFIX}.warehouse"] = str(folder or place)
    return LakeCatalog(place, "pdp", properties, folder=folder)


def rest_catalog(name: str, settings: LakeSettings) -> LakeCatalog:
    """Return a catalog of the configuration."""
    properties: dict[str, Any] = {
        _PREFIX: "org.apache.iceberg.spark.SparkCatalog",
        f"{_PREFIX}.type": "rest",
        f"{_PREFIX}.uri": settings.uri,
        **({f"{_PREFIX}.warehouse": settings.warehouse} if settings.warehouse else {}),
        **settings.spark,
    }
    secrets = {f"{_PREFIX}.{key}": value for key, value in settings.properties.items()}
    for key in ("token", "credential"):
        if value := getattr(settings, key):
            secrets[f"{_PREFIX}.{key}"] = value
    return LakeCatalog(name, settings.namespace, properties, secrets)


ICEBERG: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
"""Iceberg for the version of Spark that the extra `spark` pins."""
_JAR: Final = "iceberg-spark-runtime"
_PACKAGES: Final = "spark.jars.packages"
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Variable that `spark-submit` sets."""
_DEFAULTS: Final = {
    "spark.app.name": "pdp pipeline",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
_FIXED: Final = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.session.timeZone": "UTC",
    # a cluster's own pattern may have fewer words
    "spark.redaction.regex": "(?i)secret|password|token|credential|access[.]?key",
}
"""Settings of every session, whether or not `spark-submit` starts it."""
_LOCAL: Final = {"spark.master": "local[*]", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings without a cluster: nobody else can connect."""
_logs: Final[list[Path]] = []
"""Log of this process, removed at the end unless an error names the file."""


def start_session(catalog: LakeCatalog, properties: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session with the catalog of a lake. `properties` are those of Spark, and win over all others.

    `spark-submit` brings its own master and jars. Raise ConfigError or Unavailable if Spark does not start.
    """
    _require_pyspark()
    given = {**catalog.properties, **(properties or {})}
    session = _submitted(given) if _SUBMITTED in os.environ else _launched(given)
    for name, value in catalog.secrets.items():
        session.conf.set(name, value)
    return session


def check_spark() -> None:
    """Raise ConfigError if PySpark is missing, or Java for a Spark that this process starts."""
    _require_pyspark()
    if _SUBMITTED not in os.environ:
        check_java()


def _require_pyspark() -> None:
    try:
        import pyspark.sql  # noqa: F401, PLC0415  an extra
    except ImportError:
        raise ConfigError("the pipeline needs PySpark: install `lakehouse-pdp[spark]`") from None


def _submitted(given: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415  an extra

    builder: Any = SparkSession.builder
    for name, value in {**_FIXED, **given}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _launched(given: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if running := SparkSession.getActiveSession():
        return _with_properties(running.newSession(), given)
    check_java()
    # executors take the same Python, whatever the path has
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**_DEFAULTS, **_LOCAL, **_FIXED, **given}
    settings[_PACKAGES] = ",".join(filter(None, (_iceberg(given), given.get(_PACKAGES))))
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    log = _log_file()
    try:
        with log.open("ab") as output:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
        session = SparkSession(SparkContext(conf=conf, gateway=gateway))
    except PySparkException:
        raise Unavailable(_cause_of(log)) from None
    _logs.append(log)
    atexit.register(_remove_logs)
    return session


def _with_properties(session: SparkSession, given: Mapping[str, str]) -> SparkSession:
    """Return a further session of this process with its lake: one virtual machine serves all."""
    for name, value in given.items():
        if name.startswith("spark.sql."):
            session.conf.set(name, value)
    return session


def _iceberg(given: Mapping[str, str]) -> str:
    """Return the package of Iceberg; none if `spark.jars` has its jar, so that Spark starts without a network."""
    return "" if _JAR in given.get("spark.jars", "") else ICEBERG


def kept_log() -> Path | None:
    """Return the log of Spark, and keep it when the process ends; None if `spark-submit` has the log."""
    return _logs.pop() if _logs else None


def _remove_logs() -> None:
    while _logs:
        _logs.pop().unlink(missing_ok=True)


def _log_file() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="pdp-spark-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def _cause_of(log: Path) -> str:
    """Return why Spark did not start, by its log."""
    lines = log.read_text(errors="replace").splitlines()
    if any("unresolved dependency" in line or "UNRESOLVED DEPENDENCIES" in line for line in lines):
        return f"Spark cannot fetch `{ICEBERG}`: see `{log}`; without a network, use `--spark spark.jars=<its file>`"
    causes = [line for line in lines if "Exception" in line or "Error" in line]
    return f"Spark did not start: {causes[0].strip() if causes else 'no cause in its log'}: see `{log}`"


OLDEST: Final = 17
NEWEST: Final = 23
"""Versions of Java that Spark 4.1 runs on. Java 24 has no security manager, which Hadoop's login calls."""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_HINT: Final = f"Spark needs Java {OLDEST} or 21: install one, and let JAVA_HOME name its folder"


def check_java() -> None:
    """Raise ConfigError if there is no Java, or none that Spark runs on."""
    java = _java()
    if java is None:
        raise ConfigError(f"there is no Java: {_HINT}")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  the operator's own Java
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"cannot run `{java}`: {error}: {_HINT}") from None
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None:
        raise ConfigError(f"`{java} -version` names no version: {_HINT}")
    if not OLDEST <= int(found[1]) <= NEWEST:
        raise ConfigError(f"`{java}` is Java {found[1]}: {_HINT}")


def _java() -> str | None:
    """Return the program that Spark's own script would start."""
    if home := os.environ.get("JAVA_HOME"):
        program = Path(home) / "bin" / "java"
        if not program.is_file():
            raise ConfigError(f"JAVA_HOME is `{home}`, which has no `bin/java`: {_HINT}")
        return str(program)
    return shutil.which("java")


_TRACEBACK: Final = "Traceback (most recent call last):"


def spark_failure(error: Exception) -> Unavailable:
    """Return a failure of Spark as an error. The log of Spark stays for the reader."""
    log = kept_log()
    return Unavailable(f"Spark failed: {failure_cause(error)}" + (f": see `{log}`" if log else ""))


def failure_cause(error: Exception) -> str:
    """Return the exception of a Python worker, if one failed, else the first line of Spark's message."""
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.toString())
    _, traceback, frames = text.rpartition(_TRACEBACK)
    lines = [line for line in (frames if traceback else text).splitlines() if line.strip()]
    if traceback:
        raised = next((line for line in lines if not line.startswith(" ")), "")
        name, colon, problem = raised.partition(": ")
        if raised:
            return f"a Python worker raised {name.rpartition('.')[2]}{colon}{problem}"
    return lines[0].strip() if lines else type(error).__name__


_SECONDS: Final = 1.0
"""Time between two looks at the tasks."""


class JobStage:
    """Stage that runs. `rows` is the number of rows that the stage worked on, once known."""

    def __init__(self, text: str, say: Callable[[str], None]) -> None:
        self.text = text
        self.rows = 0
        self._say = say
        say(text)

    def now(self, text: str) -> None:
        """Say the step within the stage that runs now."""
        self.text = text
        self._say(text)

    def count(self, rows: int) -> None:
        """Add rows that the stage worked on."""
        self.rows += rows


class StageNotices:
    """Notices about stages. `say` gets the present state for a status line, `note` one line for each ended stage."""

    def __init__(
        self, say: Callable[[str], None], note: Callable[[str], None], spark: SparkSession | None = None
    ) -> None:
        self._say = say
        self._note = note
        self._spark = spark

    @contextmanager
    def stage(self, text: str, unit: str = "") -> Iterator[JobStage]:
        """Say the stage until its end, then note its rows of a `unit`, unless there are none."""
        stage, ended, begun = JobStage(text, self._say), threading.Event(), time.monotonic()
        watcher = threading.Thread(target=self._watch, args=(stage, ended), daemon=True)
        if self._spark is not None:
            watcher.start()
        try:
            yield stage
        finally:
            ended.set()
            if self._spark is not None:
                watcher.join()
        if stage.rows:
            self._note(rate_text(text, stage.rows, unit, time.monotonic() - begun))

    def _watch(self, stage: JobStage, ended: threading.Event) -> None:
        while not ended.wait(_SECONDS):
            tasks = running_tasks(self._spark)
            if tasks[1]:
                self._say(f"{stage.text}: {tasks[0]:,} of {tasks[1]:,} tasks")


def rate_text(text: str, rows: int, unit: str, seconds: float) -> str:
    """Return one line about an ended stage, such as `grouping checks: 1,000 checks in 2.0 s (500 checks/s)`."""
    units = f"{unit}s" if rows != 1 else unit
    return f"{text}: {rows:,} {units} in {seconds:.1f} s ({rows / max(seconds, 0.001):,.0f} {unit}s/s)"


def running_tasks(spark: Any) -> tuple[int, int]:
    """Return the numbers of finished and of all tasks of the stages that Spark runs now."""
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    stages = [stage for stage in found if stage is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


def _silent(_: str) -> None:
    pass


SILENT: Final = StageNotices(_silent, _silent)
"""Notices that nobody reads."""


def plan_text(frame: DataFrame) -> str:
    """Return Spark's plan of a frame. `explain` of Spark only prints."""
    machine: Any = frame.sparkSession.sparkContext._jvm  # noqa: SLF001  no other way to the text
    mode = machine.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    text: str = frame._jdf.queryExecution().explainString(mode)  # noqa: SLF001
    return text
