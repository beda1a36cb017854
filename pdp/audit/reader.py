"""An audit folder read back: records to checks that can be decided again, with what was decided then.

Owns the reading of every form a record has; streams, so that memory is bounded by the longest line. Nothing is
dropped silently: what gives no check is counted in the `ReadReport`, by kind, and the first of each kind is named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from pdp.audit.chains import check_target, read_back
from pdp.audit.form import (
    BUNDLE,
    HEADER,
    RECORD,
    ArchivedBundle,
    FullResource,
    Header,
    Inputs,
    Record,
    RecordEntry,
    SiblingNames,
)
from pdp.audit.record import LISTING, SCHEMA
from pdp.errors import InvalidArgument, InvalidReference
from pdp.model.checks import CONTENT_TYPES, NO_ARGUMENTS, Arguments, Check, Env, Principal, Resource
from pdp.model.references import format_resource, parse_principal, parse_resource

EVENT: Final = "decision"
FILTER: Final = "filter"
MAX_LINE_BYTES: Final = 512 << 20
"""A longer line is no record that this service wrote: its largest request is far smaller."""
MAX_NAMED: Final = 20
"""Kinds that are counted by name; further ones are counted together."""
MAX_BUNDLES: Final = 1000
_DIGEST: Final = re.compile(r"[0-9a-f]{16,64}")


class RecordedOutcome(msgspec.Struct, frozen=True, gc=False):
    """What was decided. `errors` is None where it was not recorded."""

    allowed: bool
    by: str
    errors: tuple[str, ...] | None = ()


class RecordedCheck(msgspec.Struct, frozen=True, gc=False):
    """A check of one resource that can be decided again.

    `key` tells its resource, with all that goes along, from others. `then` is None where nothing was decided yet;
    `decision`, `at` and `time` say where it comes from, if it comes from a record.
    """

    check: Check
    key: str
    then: RecordedOutcome | None = None
    decision: str = ""
    at: int = 0
    time: str = ""


class RecordFilter(msgspec.Struct, frozen=True):
    """Which records and checks are wanted; times as records write them, `since` inclusive, `until` not.

    `listings`: also what listings asked, which are hypothetical questions and many.
    """

    since: str = ""
    until: str = ""
    principal: str = ""
    listings: bool = False


class ReadReport:
    """What has been read so far, and what of it gave no check."""

    def __init__(self) -> None:
        self.files = 0
        self.records = 0
        """Decision records that were read, wanted or not."""
        self.checks = 0
        self.filtered = 0
        """Checks outside the filter."""
        self.listings = 0
        """Records of listings that were not wanted."""
        self.row_filters = 0
        """Records of what somebody sees of a table: nothing was decided in them."""
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


class _EntryResource(NamedTuple):
    """One resource of an entry, as written or as parsed from its columns, and what was decided about it."""

    at: int
    resource: str | FullResource | Resource
    then: RecordedOutcome


class _Unusable(Exception):
    """An entry that does not hold together."""


_ALL: Final = RecordFilter()


def read_audit(folder: Path, reading: ReadReport, wanted: RecordFilter = _ALL) -> Iterator[RecordedCheck]:
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


def kept_bundle(folder: Path, digest: str) -> ArchivedBundle | None:
    """The bundle that a record names, as it was kept; None where it is not there."""
    if not _DIGEST.fullmatch(digest):
        return None
    try:
        return BUNDLE.decode((folder / "bundles" / digest).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def _read(stream: BinaryIO, name: str, reading: ReadReport, wanted: RecordFilter) -> Iterator[RecordedCheck]:
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


def _decode(line: bytes, place: str, reading: ReadReport, *, whole: bool) -> Record | None:
    """The decision record of a line; None, counted, for any other line."""
    try:
        record = RECORD.decode(line)
        header: Header = record
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
    if header.event == FILTER and header.schema == SCHEMA:
        reading.row_filters += 1
    elif header.event != EVENT:
        reading.skip(f"event `{header.event[:50]}`", place)
    elif header.schema != SCHEMA:
        reading.skip(f"schema {header.schema}, this version reads {SCHEMA}", place)
    elif problem:
        reading.skip(f"no record of schema {SCHEMA}", f"{place}: {problem}")
    else:
        reading.records += 1
        return record
    return None


def _header(line: bytes) -> Header | None:
    """What a line says it is; None where it is not JSON."""
    try:
        return HEADER.decode(line)
    except msgspec.ValidationError:
        return Header()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class _Reader:
    """Reads one record."""

    def __init__(self, record: Record, place: str, reading: ReadReport, wanted: RecordFilter) -> None:
        self._record = record
        self._place = place
        self._reading = reading
        self._wanted = wanted
        self._inputs = [record.inputs, *record.other_inputs] if record.inputs else []
        self._shared: dict[int, Check] = {}

    def checks(self) -> Iterator[RecordedCheck]:
        """The requests where the rows are only their parts, the rows otherwise."""
        record, reading = self._record, self._reading
        if record.surface == LISTING and not self._wanted.listings:
            reading.listings += 1
            return
        rows = [entry for entry in record.checks if entry.error is None]
        reading.rejected += len(record.checks) - len(rows)
        if len(reading.bundles) < MAX_BUNDLES:
            reading.bundles.add(record.revision.rpartition(".")[2])
        requested = {at for request in record.requests for at in request.positions}
        delegated = {at for row in rows if row.delegated and requested for at in row.positions}
        for request in record.requests:
            yield from self._entry(request, (), delegated)
        for row in rows:
            yield from self._entry(row, requested, ())

    def _entry(
        self, entry: RecordEntry, without: Collection[int], delegated: Collection[int]
    ) -> Iterator[RecordedCheck]:
        """`delegated` is where the parts were, which a request itself does not say."""
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
            # the parts of a load are delegated by its chain, each as it falls: the load itself is not
            within = not shared.view_security and item.at in delegated
            recorded = self._recorded(shared, item, shared.delegated or within)
            if recorded:
                self._reading.checks += 1
                yield recorded

    def _recorded(self, shared: Check, item: _EntryResource, delegated: bool) -> RecordedCheck | None:
        try:
            resource, key = _resource(item.resource)
            check_target(shared, resource)
        except (_Unusable, InvalidReference) as error:
            self._reading.skip("check that cannot be asked now", f"{self._place}: {error}")
            return None
        check = msgspec.structs.replace(shared, resources=(resource,), at=(0,), delegated=delegated)
        return RecordedCheck(check, key, item.then, self._record.id, item.at, self._record.time)

    def _check(self, entry: RecordEntry) -> Check:
        """What the checks of an entry share. The query's id decides nothing and is left out."""
        found = self._shared.get(entry.inputs)
        if found is None:
            if not 0 <= entry.inputs < len(self._inputs):
                raise _Unusable(f"there are no inputs {entry.inputs}")
            found = self._shared[entry.inputs] = _shared(self._inputs[entry.inputs])
        about = read_back(entry.action, entry.load, entry.change)
        return msgspec.structs.replace(found, action=entry.action, delegated=bool(entry.delegated), view_security=about)

    def _is_wanted(self, check: Check) -> bool:
        wanted, time = self._wanted, self._record.time
        if wanted.principal and check.principal.id != wanted.principal:
            return False
        return (not wanted.since or time >= wanted.since) and (not wanted.until or time < wanted.until)


def _shared(inputs: Inputs) -> Check:
    given = inputs.principal
    bare = parse_principal(given.id)
    attributes = bytes(given.attributes).decode()
    principal = Principal(bare.type, bare.name, given.roles, given.groups, attributes, given.member_of)
    role = parse_principal(inputs.acting_role).name if inputs.acting_role is not None else None
    api = inputs.context.api
    env = Env(api.name, api.version, inputs.context.actions)
    return Check(principal, "", (), (), acting_role=role, env=env, inspected=inputs.inspected)


def _items(entry: RecordEntry) -> Iterator[_EntryResource]:
    """The resources of an entry, whichever form it is in; _Unusable where it does not hold together."""
    if entry.resources is not None:
        yield from _columns(entry, _listed(entry.resources))
        return
    if (
        not isinstance(entry.at, int)
        or not entry.by
        or isinstance(entry.allowed, str)
        or isinstance(entry.errors, dict)
    ):
        raise _Unusable("a row without its decision")
    raised = None if entry.errors is None else tuple(entry.errors)
    yield _EntryResource(entry.at, entry.resource, RecordedOutcome(entry.allowed, str(entry.by[0]), raised))


def _columns(entry: RecordEntry, resources: Sequence[str | FullResource | Resource]) -> Iterator[_EntryResource]:
    allowed, errors, positions = entry.allowed, entry.errors, entry.positions
    if not isinstance(allowed, str) or not isinstance(errors, dict):
        raise _Unusable("columns without their decisions")
    if len({len(positions), len(resources), len(allowed), len(entry.by)}) != 1:
        raise _Unusable("columns of different lengths")
    for row, reason in enumerate(entry.by):
        if not isinstance(reason, int) or not 0 <= reason < len(entry.reasons):
            raise _Unusable(f"there is no reason {reason}")
        raised = tuple(errors.get(str(row), ())) if errors else ()
        yield _EntryResource(
            positions[row], resources[row], RecordedOutcome(allowed[row] == "1", entry.reasons[reason], raised)
        )


def _listed(resources: list[str | FullResource] | SiblingNames) -> Sequence[str | FullResource | Resource]:
    if isinstance(resources, list):
        return resources
    if resources.type not in CONTENT_TYPES:
        raise _Unusable(f"a {resources.type} has no siblings")
    type, warehouse, path, ref = resources.type, resources.warehouse, resources.path, resources.ref
    return [Resource(type, warehouse, (*path, name), ref) for name in resources.names]


def _resource(written: str | FullResource | Resource) -> tuple[Resource, str]:
    """A resource and its key."""
    if isinstance(written, str):
        return parse_resource(written), written
    if isinstance(written, Resource):
        return written, format_resource(written)
    bare = parse_resource(written.reference)
    resource = msgspec.structs.replace(
        bare,
        ref=written.ref or bare.ref,
        content_type=written.content_type,
        ref_type=written.ref_type,
        id=written.id,
        properties=written.properties,
        arguments=_arguments(written.arguments),
    )
    return resource, msgspec.json.encode(written, order="sorted").decode()


def _arguments(given: Mapping[str, Any]) -> Arguments:
    if not given:
        return NO_ARGUMENTS
    name, destination = given.get("name"), given.get("destination")
    if not isinstance(name, str | None) or not isinstance(destination, str | None):
        raise _Unusable("`name` or `destination` is not a text")
    return Arguments(name, parse_resource(destination) if destination else None, given)
