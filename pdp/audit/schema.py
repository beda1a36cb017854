"""Schema of a record for reading: strict in the fields that decide, open in all others.

`encoding` writes the same schema. In inputs and resources an unknown key is an error, because the key might decide;
elsewhere unknown keys are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pdp.audit.view_security import RecordedLoad, RecordedViewCommit

SCHEMA: Final = 1
"""Version of the schema."""
DECISION_EVENT: Final = "decision"
FILTER_EVENT: Final = "filter"
"""`event` of a record: decisions, or the row view of a table."""
OTHER_EVENTS: Final = frozenset({"refusal", "management", "service"})
"""`event` of the records without a decision: `pdp.model.events` has their fields."""


class FullResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A resource with more than its reference."""

    reference: str
    ref: str | None = None
    content_type: str = ""
    ref_type: str = ""
    id: str = ""
    properties: dict[str, Any] | None = None
    arguments: dict[str, Any] = {}
    masked: bool | list[str] = False
    """Places of masked values, true in older records: then the record does not decide again."""


class PathNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Column of paths: `names` below the container `path`, or below one of several containers, `parents[parent_at]`."""

    type: str
    warehouse: str
    names: list[str]
    path: tuple[str, ...] = ()
    parents: list[tuple[str, ...]] = []
    parent_at: list[int] = []
    ref: str | None = None


class _Principal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    id: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: msgspec.Raw = msgspec.Raw(b"{}")
    member_of: tuple[str, ...] = ()
    masked: bool | list[str] = False


class _Api(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    version: int = 0


class _Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api: _Api = _Api()
    actions: tuple[str, ...] = ()
    query_id: str = ""
    query_user: str = ""
    now: int = 0


class Inputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Inputs that checks of a record share. Unknown keys are refused, because they might decide."""

    principal: _Principal
    acting_role: str | None = None
    context: _Context = _Context()
    inspected: bool = False


class RecordEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One row, or columns if there are `resources`. An entry with an `error` is a position without a check."""

    at: int | list[int]
    action: str = ""
    inputs: int = 0
    delegated: bool | None = None
    resource: str | FullResource = ""
    resources: list[str | FullResource] | PathNames | None = None
    allowed: bool | str = False
    by: list[str | int] = []
    reasons: list[str] = []
    errors: list[str] | dict[str, list[str]] | None = None
    error: dict[str, Any] | None = None
    load: RecordedLoad | None = None
    change: RecordedViewCommit | None = None

    @property
    def positions(self) -> Sequence[int]:
        """Return the position in the answer of each resource."""
        if isinstance(self.at, list):
            return self.at
        return range(self.at, self.at + (1 if self.resources is None else len(self.by)))


class Header(msgspec.Struct, frozen=True):
    """The kind of a record, readable whatever the rest of the record holds."""

    event: str = ""
    schema: int = 0


class RecordedListing(msgspec.Struct, frozen=True):
    """Page of a listing. `since` is the revision of its first candidates, if that is not the record's."""

    since: str = ""


class Record(Header, frozen=True, rename="camel"):
    """One request: `checks` are the concrete checks, `requests` those checks of the caller that were split.

    `stale`: the facts were too old to permit anything. `masks` are the reasons of the masks of a row view, by column.
    """

    id: str = ""
    time: str = ""
    sampled: float = 1.0
    left_out: int = 0
    surface: str = ""
    revision: str = ""
    inputs: Inputs | None = None
    other_inputs: list[Inputs] = []
    checks: list[RecordEntry] = []
    requests: list[RecordEntry] = []
    stale: bool = False
    masks: dict[str, str | None] = {}
    listing: RecordedListing | None = None
    unencodable: str = ""


class ArchivedAuthority(msgspec.Struct, frozen=True):
    """An authority of an archived bundle: the names of its engines."""

    engines: tuple[str, ...]


class ArchivedBundle(msgspec.Struct, frozen=True):
    """A bundle in the audit folder, without the fields that no reader uses."""

    rules: dict[str, str]
    authorities: dict[str, ArchivedAuthority]


RECORD: Final = msgspec.json.Decoder(Record)
HEADER: Final = msgspec.json.Decoder(Header)
BUNDLE: Final = msgspec.json.Decoder(ArchivedBundle)
