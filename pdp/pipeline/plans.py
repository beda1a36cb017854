"""Plans of Spark as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def plan_text(frame: DataFrame) -> str:
    """Return Spark's plan of a frame. `explain` of Spark only prints."""
    machine: Any = frame.sparkSession.sparkContext._jvm  # noqa: SLF001  no other way to the text
    mode = machine.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    text: str = frame._jdf.queryExecution().explainString(mode)  # noqa: SLF001
    return text
