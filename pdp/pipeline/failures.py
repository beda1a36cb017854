"""Failures of Spark as errors in one line, with their cause and the log of Spark."""

from __future__ import annotations

from typing import Final

from pdp.errors import Unavailable
from pdp.pipeline.session import kept_log

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
