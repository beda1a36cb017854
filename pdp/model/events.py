"""Events: all that a service records beside decisions. Refusals, management, and the life of the service.

Holds values and the protocol of their destination; `pdp.audit` writes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from pdp.model.question import Caller
from pdp.model.revision import new_id


def token_subject(caller: Caller) -> str:
    """Return the principal of a caller's token if the caller has another name; empty otherwise."""
    return caller.own.id if caller.own is not None and caller.own.id != caller.name else ""


class _Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    id: str = msgspec.field(default_factory=new_id)
    time: float = msgspec.field(default_factory=time.time)


class RefusalEvent(_Event, frozen=True, kw_only=True, tag_field="event", tag="refusal"):
    """A request that was refused as a whole, or the number of refusals for one reason without records of their own.

    `status` is the code of the protocol. `suppressed` counts refusals of this surface and code since the last record.
    `caller_principal` is the subject of the caller's token if the caller has another name. `peer` is the address of a
    sender whose caller is not known. `unverified_issuer` and `unverified_kid` are what a refused token says of itself,
    escaped and cut: its signature need not hold.
    """

    surface: str
    status: str
    code: str
    message: str = ""
    endpoint: str = ""
    caller: str = ""
    caller_principal: str = ""
    peer: str = ""
    unverified_issuer: str = ""
    unverified_kid: str = ""
    request_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    suppressed: int = 0


BEGUN: Final = "begun"
"""Code of the record that a change begins."""


class ManagementEvent(_Event, frozen=True, kw_only=True, tag_field="event", tag="management"):
    """A request of management: a write of grants or objects, done or refused, or a list.

    `caller_principal` is as in a refusal. `actor` is the principal on whose behalf the caller acts, or claimed to act,
    empty for an operator. `asked` has the request, with at most `left_out` entries missing. `revision` is that of the
    result, empty after a refusal. With the code `begun` another record has the outcome.
    """

    operation: str
    caller: str
    caller_principal: str = ""
    actor: str = ""
    acting_role: str = ""
    request_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    allowed: bool
    code: str = ""
    message: str = ""
    revision: str = ""
    asked: dict[str, Any] = {}
    left_out: int = 0


class RewriteEvent(_Event, frozen=True, kw_only=True, tag_field="event", tag="rewrite"):
    """A statement that was rewritten or refused. Records hold no text of a statement.

    `principal` is the reader, `decision` the id of the record with the rights. `tables` has each use of a relation: the
    `table`, the `use` (read, write, create, copy), the owner `as` behind a view, and the ids of policies and masks.
    `length` counts the characters of the statement. `code` and `message` are those of a refusal.
    """

    surface: str
    caller: str
    caller_principal: str = ""
    principal: str
    acting_role: str = ""
    dialect: str
    length: int
    request_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    allowed: bool
    changed: bool = False
    code: str = ""
    message: str = ""
    revision: str = ""
    decision: str = ""
    latency_us: int = 0
    tables: list[dict[str, Any]] = []


class ServiceEvent(_Event, frozen=True, kw_only=True, tag_field="event", tag="service"):
    """A step in the life of a service: `started`, `stopping`, `stopped`, `reloading`, `reloaded`, `reload_failed`.

    `policies_replaced` and `policies_refused` are steps of a reload without a restart.
    """

    what: str
    details: dict[str, Any] = {}


class ShadowDifference(msgspec.Struct, frozen=True, kw_only=True, rename={"principal": "as", "report_by": "reportBy"}):
    """A concrete check that an authority in report mode decides in another way. `by` is the reason of the answer."""

    action: str
    resource: str
    principal: str
    delegated: bool
    allowed: bool
    by: tuple[str, ...]
    report_by: tuple[str, ...]
    errors: tuple[str, ...] = ()


class ShadowEvent(_Event, frozen=True, kw_only=True, tag_field="event", tag="report"):
    """Differences between one decision and an authority in report mode, with at most `left_out` missing.

    `decision` is the id of the decision's record, `compared` the number of concrete checks.
    """

    authority: str
    decision: str
    surface: str
    caller: str
    compared: int
    differences: tuple[ShadowDifference, ...]
    left_out: int = 0


Event: TypeAlias = RefusalEvent | ManagementEvent | RewriteEvent | ServiceEvent | ShadowEvent


class AnswerHold(Protocol):
    """Gate between requests and their records: requests wait for room, and answers until their records are safe."""

    holds: bool
    """True if answers have to wait for `durable`."""
    crowded: bool
    """True while requests have to wait for `room`."""

    async def room(self) -> None:
        """Wait until requests need not wait any more."""
        ...

    async def durable(self) -> None:
        """Wait until all records so far are safe; raise Unavailable if no answer may leave."""
        ...

    def when_durable(self, settled: Callable[[Exception | None], None]) -> None:
        """Do the same as `durable` without waiting: call back later, with the error or None. Raise nothing."""
        ...

    def forget(self, settled: Callable[[Exception | None], None]) -> None:
        """Do not call back any more."""
        ...


class OpenGate:
    """Gate where nobody waits: there is no audit."""

    holds = crowded = False

    async def room(self) -> None:
        """Return at once."""

    async def durable(self) -> None:
        """Return at once."""

    def when_durable(self, settled: Callable[[Exception | None], None]) -> None:
        """Call back at once."""
        settled(None)

    def forget(self, settled: Callable[[Exception | None], None]) -> None:
        """Forget nothing: nobody waits."""


OPEN_GATE: Final = OpenGate()


class EventLog(Protocol):
    """Destination of events. Calls do not wait for a disk."""

    def note(self, event: Event) -> bool:
        """Take an event; return False if too much waits already."""
        ...
