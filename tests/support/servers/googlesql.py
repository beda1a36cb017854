"""Evaluator of GoogleSQL, the language of BigQuery: a process of Java that evaluates expressions."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence

from support.servers.engine_parsers import PROGRAMS, bigquery_classes
from support.servers.trino_distribution import java, server_folder


def evaluated(expressions: Sequence[str]) -> list[str]:
    """Return the text of each expression behind `=`, NULL, or an error; skip the test without Java or the classes."""
    jars = (server_folder() / "lib").glob("com.google.guava_*.jar")  # GoogleSQL's own is too old for its evaluator
    classes = ":".join([*map(str, sorted(jars)), bigquery_classes()])
    command = [
        str(java()), "-Xmx1G", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--enable-native-access=ALL-UNNAMED",
        "-cp", classes, str(PROGRAMS / "BigqueryEvaluator.java"),
    ]  # fmt: skip
    lines = b"".join(base64.b64encode(one.encode()) + b"\n" for one in expressions)
    found = subprocess.run(command, input=lines, capture_output=True, check=True, timeout=300)
    answers = found.stdout.decode().splitlines()
    assert len(answers) == len(expressions), found.stderr.decode()[-2000:]
    return answers
