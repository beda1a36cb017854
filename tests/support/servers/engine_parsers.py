"""Parsers of Trino, Spark and BigQuery: one process of Java for each, which reads statements by line and runs none.

The classes are those of the engines: of the server that the tests run for Trino, of the installed PySpark, and of
GoogleSQL in Maven Central for BigQuery. `tests/support/judges` has the programs.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, NoReturn

from support.paths import TESTS
from support.servers.trino_distribution import CACHE, java, server_folder
from support.untested import SETUP, not_tested

PROGRAMS: Final = TESTS / "support" / "judges"
_GOOGLESQL: Final = "2024.03.1"
"""Newest release whose jars are complete. That of 2025.12.1 lacks classes of its own gRPC."""
_GOOGLESQL_SHA256: Final = "c5ab799cf4dcbe22afc80b686a058e1b497fec80d53d328208e112dfdbcc7805"


class EngineSight(NamedTuple):
    """Parts of a statement as an engine's parser sees them. Names are in lower case, with dots between the parts.

    `tables` has the sources and the targets, `opaque` the table functions and names that the engine computes.
    """

    statement: str
    tables: Counter[str]
    opaque: frozenset[str]
    functions: frozenset[str]
    parameters: int
    columns: frozenset[str]
    session: frozenset[str]
    bare: frozenset[str]
    """Tables in a query without a condition."""


class EngineParser:
    """Running parser of one engine."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def read(self, text: str) -> EngineSight | None:
        """Return the parts of a statement; None for a text that the engine does not parse."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(base64.b64encode(text.encode()) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline().decode()
        assert line, "the engine's parser has ended"
        return None if line.strip() == "-" else _sight(line.split())


def _sight(things: list[str]) -> EngineSight:
    found: dict[str, list[str]] = {}
    for thing in things:
        kind, _, name = thing.partition("=")
        text = base64.b64decode(name).decode()
        found.setdefault(kind, []).append(text if kind == "statement" else text.replace("\n", ".").lower())
    return EngineSight(
        " ".join(found["statement"] + found.get("command", [])),
        Counter(found.get("table", [])) + Counter(found.get("target", [])),
        frozenset(found.get("table_function", [])), frozenset(found.get("function", [])),
        len(found.get("parameter", [])), frozenset(found.get("column", [])), frozenset(found.get("session", [])),
        frozenset(found.get("bare", [])),
    )  # fmt: skip


@contextmanager
def engine_parser(dialect: str, program: str = "Judge") -> Iterator[EngineParser]:
    """Return the parser of a dialect, or another program on it; skip the test without a Java or the engine's classes."""
    machine = java()  # the version that Trino needs runs the others, too
    classes = _CLASSES[dialect]()
    command = [
        str(machine), "-Xmx1G", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--enable-native-access=ALL-UNNAMED",
        "-cp", classes, str(PROGRAMS / f"{dialect.capitalize()}{program}.java"),
    ]  # fmt: skip
    with TemporaryDirectory() as folder, Path(folder, "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        parser = EngineParser(process)
        try:
            assert parser.read("SELECT 1"), Path(folder, "log").read_text()[-4000:]
            yield parser
        finally:
            process.kill()
            process.communicate()


def _trino_classes() -> str:
    folder = server_folder() / "lib"
    names = ("io.trino_trino-parser", "io.trino_trino-grammar", "org.antlr_antlr4-runtime", "com.google.guava_")
    return ":".join(str(file) for file in sorted(folder.glob("*.jar")) if file.name.startswith(names))


def _spark_classes() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        _untested("with Spark's parser", "no pyspark", "make test-spark")
    return f"{Path(found.origin).parent / 'jars'}/*"


def bigquery_classes() -> str:
    """Return the jars of GoogleSQL, fetched once and checked."""
    folder = CACHE / f"googlesql-{_GOOGLESQL}"
    subject = "with GoogleSQL's parser"
    if not folder.exists():
        if shutil.which("mvn") is None:
            _untested(subject, "no `mvn` on the PATH", SETUP)
        CACHE.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".googlesql-", dir=CACHE) as temporary:
            command = ["mvn", "-q", "-f", str(PROGRAMS / "googlesql.xml"), "dependency:copy-dependencies",
                       "-DincludeScope=runtime", f"-DoutputDirectory={temporary}/jars"]  # fmt: skip
            try:
                subprocess.run(command, check=True, timeout=900, capture_output=True, cwd=temporary)
            except (OSError, subprocess.SubprocessError) as error:
                _untested(subject, f"the jars cannot be fetched: {error}", "a network with Maven Central")
            shutil.move(Path(temporary) / "jars", folder)
    jars = sorted(folder.glob("*.jar"))
    digest = hashlib.sha256(b"".join(hashlib.sha256(jar.read_bytes()).digest() for jar in jars)).hexdigest()
    assert digest == _GOOGLESQL_SHA256, f"{folder} is not what it was: {digest}"
    return ":".join(map(str, jars))


def _untested(subject: str, lacks: str, mend: str) -> NoReturn:
    not_tested(subject, lacks, mend)


_CLASSES: Final[Mapping[str, Callable[[], str]]] = {
    "trino": _trino_classes,
    "spark": _spark_classes,
    "bigquery": bigquery_classes,
}
