"""Session of Spark: started on this machine with Iceberg's jar, or taken from `spark-submit`.

Java is checked before. Spark's log goes to a file, and every failure of the start is one line with its cause.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pdp.errors import ConfigError, Unavailable
from pdp.lake.catalog import LakeCatalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
