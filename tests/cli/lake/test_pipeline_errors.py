"""Failures of Spark as one line, without Spark."""

from __future__ import annotations

import pytest

from pdp.cli.lake.options import one_line_spark_errors
from pdp.errors import InvalidArgument


def failure(module: str, text: str) -> Exception:
    kind: type[Exception] = type("Failure", (Exception,), {"__module__": module})
    return kind(text)


class JavaFailure(Exception):
    """Failure of the virtual machine, as py4j raises it."""

    __module__ = "py4j.protocol"

    class java_exception:  # noqa: N801  py4j's name
        """The exception inside."""

        @staticmethod
        def toString() -> str:  # noqa: N802  Java's name
            """Return the text."""
            return "java.io.IOException: no space left\n\tat a.b.c"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            failure("pyspark.errors.exceptions.captured", "\n[NO_TABLE] no such table\nJVM stacktrace"),
            "[NO_TABLE] no such",
        ),
        (failure("pyspark.errors", ""), "Failure"),
        (JavaFailure("An error occurred while calling o1.run"), "java.io.IOException: no space left"),
    ],
)
def test_a_failure_of_spark_is_one_line(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as end:
        one_line_spark_errors(command)()
    assert end.value.code == 2
    printed = capsys.readouterr().err
    assert f"Spark failed: {line}" in printed
    assert printed.count("\n") == 1


def test_other_errors_are_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    def refuses() -> None:
        raise InvalidArgument("no such lake")

    def breaks() -> None:
        raise KeyError("a defect")

    with pytest.raises(SystemExit):
        one_line_spark_errors(refuses)()
    assert "Spark" not in capsys.readouterr().err
    with pytest.raises(KeyError):
        one_line_spark_errors(breaks)()
