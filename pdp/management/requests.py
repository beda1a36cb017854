"""Values of management requests and results. Knows no wire format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from pdp.engines.grants.edits import GrantEdits, ObjectEdits
from pdp.facts.objects import Grant, ObjectKey
from pdp.model.question import Caller, Consistency, Principal
from pdp.model.revision import new_id

__all__ = [
    "GrantEdits",
    "GrantFilter",
    "GrantListing",
    "GrantPage",
    "ObjectEdits",
    "ObjectQuery",
    "PageRequest",
    "PageResult",
    "Requester",
]


class Requester(msgspec.Struct, frozen=True):
    """The caller, and the actor on whose behalf the caller manages; without an actor the caller is an operator.

    A caller with a principal of its own always acts as that principal, never as an operator. `id` is the id of the
    request's record.
    """

    caller: Caller
    principal: Principal | None = None
    acting_role: str | None = None
    consistency: Consistency = "minimize_latency"
    id: str = msgspec.field(default_factory=new_id)


class PageRequest(msgspec.Struct, frozen=True):
    """A page of a long result: at most `size` entries, all after the entry named `after`."""

    size: int
    after: str = ""


class GrantFilter(msgspec.Struct, frozen=True):
    """A choice of grants: each field narrows the choice. `below` includes everything below `object`."""

    object: ObjectKey | None = None
    below: bool = False
    principal: str = ""
    privilege: str = ""


class ObjectQuery(NamedTuple):
    """A request for the objects of a type below a container on which an action is allowed."""

    action: str
    type: str
    container: ObjectKey


class GrantListing(msgspec.Struct, frozen=True):
    """A grant with its flags (`unknown_principal`, `orphaned`) and the name for sorting."""

    grant: Grant
    flags: tuple[str, ...]
    name: str


class GrantPage(msgspec.Struct, frozen=True):
    """A page of grants, in order. `next` names the last entry of the page, "" on the last page."""

    entries: Sequence[GrantListing]
    next: str
    revision: str


class PageResult(msgspec.Struct, frozen=True):
    """A page of names with their reasons, in order. `next` names the last candidate checked, "" on the last page."""

    entries: Mapping[str, str]
    next: str
    revision: str
