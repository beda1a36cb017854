"""Stages of a long job on Spark: for people, the stage with its finished tasks; at the end, rows, seconds and rate.

Also prints plans of Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
