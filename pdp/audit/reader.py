"""An audit folder read back: records to checks that can be decided again, with what was decided then.

Owns the reading of every form a record has; streams, so that memory is bounded by the longest line. Nothing is
dropped silently: what gives no check is counted in the `Reading`, by kind, and the first of each kind is named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from pdp.audit.record import SCHEMA
from pdp.errors import InvalidArgument, InvalidReference
from pdp.model import NO_ARGUMENTS, Arguments, Check, Env, Principal, Resource
from pdp.references import parse_principal, parse_resource

EVENT: Final = "decision"
MAX_LINE_BYTES: Final = 512 << 20
"""A longer line is no record that this service wrote: its largest request is far smaller."""
MAX_NAMED: Final = 20
"""Kinds that are counted by name; further ones are counted together."""
_DIGEST: Final = re.compile(r"[0-9a-f]{16,64}")


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What was decided. `errors` is None where it was not recorded."""

    allowed: bool
    by: str
    errors: tuple[str, ...] | None = ()


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A check of one resource that can be decided again.

    `key` tells its resource, with all that goes along, from others. `then` is None where nothing was decided yet;
    `decision`, `at` and `time` say where it comes from, if it comes from a record.
    """

    check: Check
    key: str
    then: Outcome | None = None
    decision: str = ""
    at: int = 0
    time: str = ""


class Filter(msgspec.Struct, frozen=True):
    """Which records and checks are wanted; times as records write them, `since` inclusive, `until` not."""

    since: str = ""
    until: str = ""
    principal: str = ""


class Reading:
    """What has been read so far, and what of it gave no check."""

    def __init__(self) -> None:
        self.files = 0
        self.records = 0
        """Decision records that were read, wanted or not."""
        self.checks = 0
        self.filtered = 0
        """Checks outside the filter."""
        self.rejected = 0
        """What was no check then either, such as a malformed one."""
        self.torn: list[str] = []
        """Last lines that a crash left unfinished, as `file:line`."""
        self.skipped: Counter[str] = Counter()
        """Lines and checks that could not be used, by why; the first of each kind is in `first`."""
        self.first: dict[str, str] = {}
        self.bundles: set[str] = set()
        """Digests of the bundles that decided."""

    def skip(self, why: str, place: str, count: int = 1) -> None:
        """Count what cannot be used."""
        if why not in self.skipped and len(self.skipped) >= MAX_NAMED:
            why = "other"
        self.skipped[why] += count
        self.first.setdefault(why, place)


class _Full(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A resource that is more than its reference."""

    reference: str
    ref: str | None = None
    content_type: str = ""
    ref_type: str = ""
    id: str = ""
    properties: dict[str, Any] | None = None
    arguments: dict[str, Any] = {}


class _Principal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: msgspec.Raw = msgspec.Raw(b"{}")


class _Api(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    version: int = 0


class _Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api: _Api = _Api()
    actions: tuple[str, ...] = ()
    query_id: str = ""


class _Inputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What checks of a record share. Unknown keys are refused: what they say might decide."""

    principal: _Principal
    acting_role: str | None = None
    context: _Context = _Context()


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    """A row, a run of rows as columns, or a request; a row with an `error` was no check."""

    at: int | list[int]
    action: str = ""
    inputs: int = 0
    delegated: bool = False
    resource: str | _Full = ""
    resources: list[str | _Full] = []
    allowed: bool | str = False
    by: list[str | int] = []
    reasons: list[str] = []
    errors: list[str] | dict[str, list[str]] | None = None
    error: dict[str, Any] | None = None


class _Header(msgspec.Struct, frozen=True):
    """Enough of any record to say what it is."""

    event: str = ""
    schema: int = 0


class _Record(_Header, frozen=True, rename="camel"):
    id: str = ""
    time: str = ""
    revision: str = ""
    inputs: _Inputs | None = None
    other_inputs: list[_Inputs] = []
    checks: list[_Entry] = []
    requests: list[_Entry] = []


class _Shared(msgspec.Struct, frozen=True):
    """`_Inputs`, parsed."""

    principal: Principal
    acting_role: str | None
    env: Env


_RECORD: Final = msgspec.json.Decoder(_Record)
_HEADER: Final = msgspec.json.Decoder(_Header)
_NOTHING: Final = Filter()


def read_audit(folder: Path, reading: Reading, wanted: Filter = _NOTHING) -> Iterator[Recorded]:
    """The checks of all records in a folder, file by file; `reading` counts along.

    Raises InvalidArgument where the folder has no audit files.
    """
    files = sorted(folder.glob("decisions-*.jsonl"))
    if not files:
        raise InvalidArgument(f"no audit in `{folder}`: it has no file `decisions-*.jsonl`")
    for file in files:
        try:
            with file.open("rb") as stream:
                reading.files += 1
                yield from _read(stream, file.name, reading, wanted)
        except OSError as error:
            raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None


def kept_bundle(folder: Path, digest: str) -> Mapping[str, Any] | None:
    """The bundle that a record names, as it was kept; None where it is not there."""
    if not _DIGEST.fullmatch(digest):
        return None
    try:
        return msgspec.json.decode((folder / "bundles" / digest).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return None


def _read(stream: BinaryIO, name: str, reading: Reading, wanted: Filter) -> Iterator[Recorded]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        place = f"{name}:{number}"
        whole = line.endswith(b"\n")
        if not whole and len(line) == MAX_LINE_BYTES:
            _skip_line(stream)
            reading.skip("line too long", place)
        elif line.strip():
            record = _decode(line, place, reading, whole=whole)
            if record:
                yield from _checks(record, place, reading, wanted)


def _skip_line(stream: BinaryIO) -> None:
    while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _decode(line: bytes, place: str, reading: Reading, *, whole: bool) -> _Record | None:
    """The decision record of a line; None, counted, for any other line."""
    try:
        record = _RECORD.decode(line)
        header: _Header = record
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _header(line)
        if found is None:
            if whole:
                reading.skip("not JSON", place)
            else:
                reading.torn.append(place)
            return None
        header, problem = found, str(error)
    else:
        problem = ""
    if header.event != EVENT:
        reading.skip(f"event `{header.event[:50]}`", place)
    elif header.schema != SCHEMA:
        reading.skip(f"schema {header.schema}, this version reads {SCHEMA}", place)
    elif problem:
        reading.skip("no record of schema 1", f"{place}: {problem}")
    else:
        reading.records += 1
        return record
    return None


def _header(line: bytes) -> _Header | None:
    """What a line says it is; None where it is not JSON."""
    try:
        return _HEADER.decode(line)
    except msgspec.ValidationError:
        return _Header()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _checks(record: _Record, place: str, reading: Reading, wanted: Filter) -> Iterator[Recorded]:
    """The requests of a record where it has them, its rows otherwise."""
    reading.rejected += sum(entry.error is not None for entry in record.checks)
    digest = record.revision.rpartition(".")[2]
    if len(reading.bundles) < 1000:
        reading.bundles.add(digest)
    inputs = _AllInputs(record)
    requested = {request.at for request in record.requests if isinstance(request.at, int)}
    entries = [entry for entry in record.checks if entry.error is None]
    parts = _parts(entries, requested) if requested else {}
    for entry in (*(_completed(request, parts) for request in record.requests), *entries):
        try:
            shared = inputs[entry.inputs]
            found = list(_of_entry(entry, shared, record, () if entry in record.requests else requested))
        except (InvalidReference, _Broken) as error:
            reading.skip("check that cannot be asked now", f"{place}: {error}", _size(entry))
            continue
        yield from found
