"""Checks and times that the user of a dry run gives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from pdp.audit.records.recorded import ReadReport, ReplayCheck
from pdp.audit.records.writing import timestamp
from pdp.decision.codec import decode_checks
from pdp.errors import InvalidArgument
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit


def read_checks(file: str, reading: ReadReport) -> Iterator[ReplayCheck]:
    """Yield the checks of a file, `-` for stdin; raise InvalidArgument for a line that is not a valid check."""
    if file == "-":
        yield from _parse(sys.stdin.buffer, "<stdin>", reading)
        return
    try:
        with Path(file).open("rb") as stream:
            yield from _parse(stream, file, reading)
    except OSError as error:
        raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None


def _parse(stream: BinaryIO, name: str, reading: ReadReport) -> Iterator[ReplayCheck]:
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        batch = admit(decode_checks([line], unique_keys=True).request("cli"), EMBEDDED_CALLER)
        for rejected in batch.rejected.values():
            raise InvalidArgument(f"{name}:{number}: {rejected.message}")
        reading.checks += batch.size
        for check in batch.checks:
            for resource in check.resources:
                key = msgspec.json.encode(resource, order="sorted").decode()
                yield ReplayCheck(msgspec.structs.replace(check, resources=(resource,), at=(0,), query_id=""), key)


def parse_time(text: str | None, option: str) -> str:
    """Return a time in the form of records, UTC if the text names no zone; raise InvalidArgument for other texts."""
    if not text:
        return ""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"`{option} {text}` is no time such as 2026-01-31T12:00Z") from None
    return timestamp((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
