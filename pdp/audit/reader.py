"""An audit folder read back: records to checks that can be decided again, with what was decided then.

Owns the reading of every form a record has; streams, so that memory is bounded by the longest line. Nothing is
dropped silently: what gives no check is counted in the `Reading`, by kind, and the first of each kind is named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

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
MAX_BUNDLES: Final = 1000
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


class _Asked(NamedTuple):
    """One resource of an entry, and what was decided about it."""

    at: int
    resource: str | _Full
    then: Outcome


class _Parts(NamedTuple):
    """What the rows of a request say that the request itself does not."""

    delegated: bool
    resources: list[_Full]


class _Unusable(Exception):
    """An entry that does not hold together."""


_RECORD: Final = msgspec.json.Decoder(_Record)
_HEADER: Final = msgspec.json.Decoder(_Header)
_ALL: Final = Filter()
_NO_PARTS: Final = _Parts(False, [])


def read_audit(folder: Path, reading: Reading, wanted: Filter = _ALL) -> Iterator[Recorded]:
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
                yield from _Reader(record, place, reading, wanted).checks()


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


class _Reader:
    """Reads one record."""

    def __init__(self, record: _Record, place: str, reading: Reading, wanted: Filter) -> None:
        self._record = record
        self._place = place
        self._reading = reading
        self._wanted = wanted
        self._inputs = [record.inputs, *record.other_inputs] if record.inputs else []
        self._shared: dict[int, Check] = {}

    def checks(self) -> Iterator[Recorded]:
        """The requests where the rows are only their parts, the rows otherwise."""
        record, reading = self._record, self._reading
        rows = [entry for entry in record.checks if entry.error is None]
        reading.rejected += len(record.checks) - len(rows)
        if len(reading.bundles) < MAX_BUNDLES:
            reading.bundles.add(record.revision.rpartition(".")[2])
        requested = {request.at for request in record.requests if isinstance(request.at, int)}
        parts = _parts(rows, requested) if requested else {}
        for request in record.requests:
            yield from self._entry(_completed(request, parts), ())
        for row in rows:
            yield from self._entry(row, requested)

    def _entry(self, entry: _Entry, without: Collection[int]) -> Iterator[Recorded]:
        try:
            asked = [item for item in _items(entry) if item.at not in without]
            shared = self._check(entry) if asked else None
        except (_Unusable, InvalidReference) as error:
            self._reading.skip("entry that cannot be read", f"{self._place}: {error}")
            return
        if shared is None:
            return
        if not self._is_wanted(shared):
            self._reading.filtered += len(asked)
            return
        for item in asked:
            recorded = self._recorded(shared, item)
            if recorded:
                self._reading.checks += 1
                yield recorded

    def _recorded(self, shared: Check, item: _Asked) -> Recorded | None:
        written = item.resource
        try:
            resource = parse_resource(written) if isinstance(written, str) else _resource(written)
        except (_Unusable, InvalidReference) as error:
            self._reading.skip("check that cannot be asked now", f"{self._place}: {error}")
            return None
        check = Check(
            shared.principal, shared.action, (resource,), (0,), shared.delegated, shared.acting_role, shared.env
        )
        key = written if isinstance(written, str) else msgspec.json.encode(written, order="sorted").decode()
        return Recorded(check, key, item.then, self._record.id, item.at, self._record.time)

    def _check(self, entry: _Entry) -> Check:
        """What the checks of an entry share. The query's id decides nothing and is left out."""
        found = self._shared.get(entry.inputs)
        if found is None:
            if not 0 <= entry.inputs < len(self._inputs):
                raise _Unusable(f"there are no inputs {entry.inputs}")
            found = self._shared[entry.inputs] = _shared(self._inputs[entry.inputs])
        return msgspec.structs.replace(found, action=entry.action, delegated=entry.delegated)

    def _is_wanted(self, check: Check) -> bool:
        wanted, time = self._wanted, self._record.time
        if wanted.principal and check.principal.id != wanted.principal:
            return False
        return (not wanted.since or time >= wanted.since) and (not wanted.until or time < wanted.until)


def _shared(inputs: _Inputs) -> Check:
    given = inputs.principal
    bare = parse_principal(given.id)
    attributes = bytes(given.attributes).decode()
    principal = Principal(bare.type, bare.name, given.roles, given.groups, attributes)
    role = parse_principal(inputs.acting_role).name if inputs.acting_role is not None else None
    api = inputs.context.api
    return Check(principal, "", (), (), acting_role=role, env=Env(api.name, api.version, inputs.context.actions))


def _items(entry: _Entry) -> Iterator[_Asked]:
    """The resources of an entry, whichever form it is in; _Unusable where its columns are not of one length."""
    if isinstance(entry.at, int):
        if not entry.by or not isinstance(entry.allowed, bool) or isinstance(entry.errors, dict):
            raise _Unusable("a row without its decision")
        raised = None if entry.errors is None else tuple(entry.errors)
        yield _Asked(entry.at, entry.resource, Outcome(entry.allowed, str(entry.by[0]), raised))
        return
    allowed, errors = entry.allowed, entry.errors
    if not isinstance(allowed, str) or not isinstance(errors, dict):
        raise _Unusable("columns without their decisions")
    if len({len(entry.at), len(entry.resources), len(allowed), len(entry.by)}) != 1:
        raise _Unusable("columns of different lengths")
    for row, at in enumerate(entry.at):
        reason = entry.by[row]
        if not isinstance(reason, int) or not 0 <= reason < len(entry.reasons):
            raise _Unusable(f"there is no reason {reason}")
        raised = tuple(errors.get(str(row), ()))
        yield _Asked(at, entry.resources[row], Outcome(allowed[row] == "1", entry.reasons[reason], raised))


def _parts(rows: Collection[_Entry], requested: Collection[int]) -> dict[int, _Parts]:
    """Per request, what its rows say beyond references; requests without any are left out."""
    found: dict[int, _Parts] = {}
    for row in rows:
        at_once = zip(row.at, row.resources, strict=False) if isinstance(row.at, list) else [(row.at, row.resource)]
        for at, resource in at_once:
            if at not in requested or not (row.delegated or isinstance(resource, _Full)):
                continue
            delegated, resources = found.get(at, _NO_PARTS)
            more = [resource] if isinstance(resource, _Full) else []
            found[at] = _Parts(delegated or row.delegated, [*resources, *more])
    return found


def _completed(request: _Entry, parts: Mapping[int, _Parts]) -> _Entry:
    """A request with what only its rows tell: whether it was delegated, and what its resource is beyond a reference.

    A row about the request's own object has all of it; a row about another, such as the container of a new object,
    has the arguments.
    """
    known = parts.get(request.at) if isinstance(request.at, int) else None
    if known is None:
        return request
    resource = request.resource
    if isinstance(resource, str) and known.resources:
        own = next((full for full in known.resources if _place(full.reference) == _place(resource)), None)
        full = own or _Full("", arguments=known.resources[0].arguments)
        resource = msgspec.structs.replace(full, reference=resource)
    return msgspec.structs.replace(request, resource=resource, delegated=request.delegated or known.delegated)


def _place(reference: str) -> tuple[str, tuple[str, ...], str]:
    """An object whatever its type and ref."""
    try:
        resource = parse_resource(reference)
    except InvalidReference:
        return "", (), reference
    return resource.warehouse, resource.path, resource.name


def _resource(full: _Full) -> Resource:
    bare = parse_resource(full.reference)
    return msgspec.structs.replace(
        bare,
        ref=full.ref or bare.ref,
        content_type=full.content_type,
        ref_type=full.ref_type,
        id=full.id,
        properties=full.properties,
        arguments=_arguments(full.arguments),
    )


def _arguments(given: Mapping[str, Any]) -> Arguments:
    if not given:
        return NO_ARGUMENTS
    name, destination = given.get("name"), given.get("destination")
    if not isinstance(name, str | None) or not isinstance(destination, str | None):
        raise _Unusable("`name` or `destination` is not a text")
    return Arguments(name, parse_resource(destination) if destination else None, given)
