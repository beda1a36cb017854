"""Audit files of a service."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from uuid_utils import uuid7

from pdp.audit.files.chain import CONTROL_EVENTS
from pdp.audit.files.folder import DEFAULT_FORM, AuditFolder, SegmentForm
from pdp.audit.files.segments import SegmentFile, segment_files
from pdp.audit.queue.file_sink import LineSink
from pdp.audit.queue.queue import DEFAULT_OPTIONS, RecordQueue, TrailOptions
from pdp.config.audit import Durability
from pdp.telemetry import Telemetry

T = TypeVar("T")


def file_audit(
    folder: Path,
    telemetry: Telemetry | None = None,
    options: TrailOptions = DEFAULT_OPTIONS,
    *,
    durability: Durability = "batch",
    form: SegmentForm = DEFAULT_FORM,
) -> RecordQueue:
    """Return a trail that writes to a folder alone."""
    telemetry = telemetry or Telemetry()
    instance = uuid7().hex
    writer = LineSink(AuditFolder(folder, instance, form), durability, telemetry.audit_written.inc)
    return RecordQueue(instance, [writer], telemetry, options)


def audit_files(folder: Path) -> list[SegmentFile]:
    """Return the record files below a service's folder, by instance."""
    found = folder / "audit"
    return segment_files(found) if found.is_dir() else []


def audit_text(folder: Path, *, running: bool = False) -> str:
    """Return the text of all record files below a service's folder."""
    return _read_whole(lambda: "".join(file_text(file, running=running) for file in audit_files(folder)))


def _read_whole(read: Callable[[], T]) -> T:
    """Return what some files hold; read again if a service gives one of them its final name meanwhile."""
    for _ in range(20):
        with contextlib.suppress(FileNotFoundError):
            return read()
    return read()


def file_text(file: SegmentFile, *, running: bool = False) -> str:
    """Return the text of a file, if a service may be writing its last line, without a part of a line."""
    with file.open() as stream:
        text = stream.read().decode()
    return text[: text.rfind("\n") + 1] if running else text


def records_in(files: Iterable[SegmentFile], *, running: bool = False) -> list[dict[str, Any]]:
    """Return all records in files, events included, but no line of the chain."""
    lines = (json.loads(line) for file in files for line in file_text(file, running=running).split("\n") if line)
    return [line for line in lines if line["event"] not in CONTROL_EVENTS]


def all_records(folder: Path, *, running: bool = False) -> list[dict[str, Any]]:
    """Return all records below a service's folder, events included. A running service may be writing the last line."""
    return _read_whole(lambda: records_in(audit_files(folder), running=running))


def audit_records(folder: Path, *, running: bool = False) -> list[dict[str, Any]]:
    """Return the records of decisions and row views below a service's folder."""
    return [record for record in all_records(folder, running=running) if record["event"] in ("decision", "filter")]
