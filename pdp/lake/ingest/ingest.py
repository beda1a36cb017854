"""Ingest: files of audit folders into the tables of a lake, once or for as long as services write.

Spark lists the folders and cuts batches; `batches` writes them. The lake knows its files, so each run begins with a new
checkpoint.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from functools import reduce
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pdp.errors import PdpError
from pdp.lake.ingest.batches import BatchCounts, BatchWriter, batch_frame, escape_glob
from pdp.lake.ingest.facts import FactsExport
from pdp.lake.ingest.files import AuditFile, audit_file, audit_folder, check_folder
from pdp.lake.ingest.passes import IngestBatch
from pdp.lake.lake import Lake, ingest_lock
from pdp.lake.session import spark_failure
from pdp.lake.tables import DECISIONS, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMA: Final = "path string, modificationTime timestamp, length bigint, content binary"
_OPTIONS: Final = {
    "pathGlobFilter": "decisions-*.jsonl*",
    # by default, files much older than the newest one are left out without a word
    "maxFileAge": "36500d",
}


_TURN_SECONDS: Final = 0.5


class IngestOptions(msgspec.Struct, frozen=True):
    """Choices of an ingest. `late_days`: records older than the newest day by more go to quarantine; None takes all."""

    folders: tuple[str, ...]
    once: bool = False
    late_days: int | None = None
    bucket: str = "principal"
    batch_mib: int = 512
    interval_seconds: float = 10


class AuditIngest:
    """One run of the ingest. `say` shows the stage, `note` a line for each batch."""

    def __init__(
        self, lake: Lake, options: IngestOptions, say: Callable[[str], None], note: Callable[[str], None]
    ) -> None:
        self._lake = lake
        self._options = options
        self._say = say
        self._note = note
        self._folders = [audit_folder(folder) for folder in options.folders]
        self._writer = BatchWriter(lake, say, options.late_days)
        self._facts = FactsExport(lake, note)
        self._counts = BatchCounts()
        self._turn = Lock()
        """Held while a batch is chosen and written: the stream has a thread of its own."""
        self._error: PdpError | None = None

    def run(self) -> BatchCounts:
        """Ingest all files, and with `once` end then; raise InvalidArgument or Unavailable."""
        for folder in self._folders:
            check_folder(self._lake.spark, folder, needs_files=self._options.once)
        with ingest_lock(self._lake.spark, self._lake.catalog.folder):
            self._run()
        return self._counts

    def _run(self) -> None:
        self._say("preparing the tables")
        self._lake.create(TABLES.values(), {"decisions": ("day", f"bucket(16, {self._options.bucket})")})
        self._writer.begin()
        resumed = self._writer.resume()
        if resumed.files:
            self._report(resumed, 0)
        self._export_facts()
        with tempfile.TemporaryDirectory(prefix="pdp-ingest-") as scratch:
            self._stream(f"file:{scratch}")

    def explain(self) -> str:
        """Return Spark's plan for the rows of `decisions`."""
        files = [file for folder in self._folders for file in check_folder(self._lake.spark, folder, needs_files=True)]
        frame = batch_frame(self._lake.spark, IngestBatch("", tuple(files)), {}, DECISIONS)
        return str(frame._jdf.queryExecution().explainString(_explain_mode(self._lake)))  # noqa: SLF001  PySpark only prints it

    def _stream(self, checkpoint: str) -> None:
        from pyspark.errors import PySparkException  # noqa: PLC0415  an extra

        frame = reduce(lambda one, other: one.union(other), map(self._listing, self._folders))
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", checkpoint)
        trigger: dict[str, Any] = {"processingTime": f"{self._options.interval_seconds} seconds"}
        query = writer.trigger(**({"availableNow": True} if self._options.once else trigger)).start()
        self._say("waiting for files")
        looked = time.monotonic()
        try:
            while not (query.awaitTermination(_TURN_SECONDS) or self._error):
                if not self._options.once and time.monotonic() - looked >= self._options.interval_seconds:
                    self._look()
                    looked = time.monotonic()
        except PySparkException as error:
            raise spark_failure(error) from None
        finally:
            query.stop()
        if self._error:
            raise self._error

    def _listing(self, folder: str) -> DataFrame:
        reader = self._lake.spark.readStream.format("binaryFile").schema(_SCHEMA).options(**_OPTIONS)
        reader = reader.option("maxBytesPerTrigger", self._options.batch_mib << 20)
        return reader.load(escape_glob(folder)).select("path", "length")

    def _take(self, frame: DataFrame, number: int) -> None:
        """Write the files of one batch of the stream. `run` raises errors: Spark would make texts of them."""
        from pyspark.errors import PySparkException  # noqa: PLC0415  an extra

        if self._error:
            return
        try:
            self._ingest(file for row in frame.collect() if (file := audit_file(row.path, row.length)))
        except PdpError as error:
            self._error = error
        except PySparkException as error:
            self._error = spark_failure(error)

    def _look(self) -> None:
        """Write further parts of known files: Spark's stream gives each name once, however long a file grows."""
        listed = (
            file for folder in self._folders for file in check_folder(self._lake.spark, folder, needs_files=False)
        )
        self._ingest(filter(self._writer.known.has, listed))

    def _ingest(self, files: Iterable[AuditFile]) -> None:
        with self._turn:
            chosen = self._writer.known.new(files)
            if chosen:
                self._export_facts()
                started = time.monotonic()
                self._report(self._writer.write(chosen), time.monotonic() - started)

    def _export_facts(self) -> None:
        for folder in self._folders:
            self._facts.export(folder)

    def _report(self, counts: BatchCounts, seconds: float) -> None:
        self._counts.add(counts)
        rate = f", {counts.ingested / seconds:,.0f} checks/s" if seconds else ""
        bad = f", {counts.quarantined:,} lines to quarantine" if counts.quarantined else ""
        self._note(f"{counts.files:,} files: {counts.ingested:,} checks{bad}{rate}")
        self._say("waiting for files")


def _explain_mode(lake: Lake) -> Any:
    jvm: Any = lake.spark._jvm  # noqa: SLF001  PySpark has no other way to the text of a plan
    return jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
