"""The form of a record as it is read back: strict in what decides, open in the rest.

The other end of `record.py`, which writes it. An unknown key where inputs or a resource are is an error, since what it
says might decide; unknown keys elsewhere are read over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pdp.audit.chains import RecordedLoad, RecordedViewCommit


class FullResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A resource that is more than its reference."""

    reference: str
    ref: str | None = None
    content_type: str = ""
    ref_type: str = ""
    id: str = ""
    properties: dict[str, Any] | None = None
    arguments: dict[str, Any] = {}


class SiblingNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Resources that differ in their last name alone."""

    type: str
    warehouse: str
    path: tuple[str, ...]
    names: list[str]
    ref: str | None = None


class _Principal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    id: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: msgspec.Raw = msgspec.Raw(b"{}")
    member_of: tuple[str, ...] = ()


class _Api(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    version: int = 0


class _Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api: _Api = _Api()
    actions: tuple[str, ...] = ()
    query_id: str = ""


class Inputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What checks of a record share. Unknown keys are refused: what they say might decide."""

    principal: _Principal
    acting_role: str | None = None
    context: _Context = _Context()
    inspected: bool = False


class RecordEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A row or a request; with `resources` a run of them as columns, the first at `at`; with an `error`, no check."""

    at: int | list[int]
    action: str = ""
    inputs: int = 0
    delegated: bool | None = None
    resource: str | FullResource = ""
    resources: list[str | FullResource] | SiblingNames | None = None
    allowed: bool | str = False
    by: list[str | int] = []
    reasons: list[str] = []
    errors: list[str] | dict[str, list[str]] | None = None
    error: dict[str, Any] | None = None
    load: RecordedLoad | None = None
    change: RecordedViewCommit | None = None

    @property
    def positions(self) -> Sequence[int]:
        """Where in the answer its resources are."""
        if isinstance(self.at, list):
            return self.at
        return range(self.at, self.at + (1 if self.resources is None else len(self.by)))


class Header(msgspec.Struct, frozen=True):
    """Enough of any record to say what it is."""

    event: str = ""
    schema: int = 0


class Record(Header, frozen=True, rename="camel"):
    """One request: `checks` are its concrete checks, `requests` what was asked where they are only the parts of it."""

    id: str = ""
    time: str = ""
    surface: str = ""
    revision: str = ""
    inputs: Inputs | None = None
    other_inputs: list[Inputs] = []
    checks: list[RecordEntry] = []
    requests: list[RecordEntry] = []


class ArchivedAuthority(msgspec.Struct, frozen=True):
    """What a kept bundle says of an authority."""

    engines: tuple[str, ...]


class ArchivedBundle(msgspec.Struct, frozen=True):
    """A bundle as the audit keeps it, as far as it is read back."""

    rules: dict[str, str]
    authorities: dict[str, ArchivedAuthority]


RECORD: Final = msgspec.json.Decoder(Record)
HEADER: Final = msgspec.json.Decoder(Header)
BUNDLE: Final = msgspec.json.Decoder(ArchivedBundle)
