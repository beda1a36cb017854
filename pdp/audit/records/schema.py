"""Schema of a record for reading: strict in the fields that decide, open in all others.

`writing.py` writes the same schema. In inputs, in resources and in view security an unknown key is an error, because
the key might decide; elsewhere unknown keys are ignored.

View security is read here, and written by `entries`: every field but `restrictions` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from pdp.errors import InvalidReference
from pdp.model.answer import SchemaColumn
from pdp.model.question import ChainView, Check, Load, Question, Resource, ViewCommit
from pdp.model.references import parse_principal, parse_resource
from pdp.model.vocabulary import LOADS, VIEW_CHANGES

_CHANGES = frozenset(action for action, _ in VIEW_CHANGES.values())


class RecordedChainView(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A view of a chain. If the identity switches to the view's owner: the owner, and the engine's property in use."""

    view: str
    found: bool = True
    owner: str = ""
    engine: str = ""
    property: str = ""


class RecordedRestrictions(msgspec.Struct, frozen=True):
    """The read restrictions of an answer: the reason of the rows, and the reason of each mask by column."""

    by: str
    masks: dict[str, str]


class RecordedLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The view chain of a load. `entries` counts the named views; `ignored` is the reason for not using all of them.

    `enforced`: the loading engine applies row filters and masks itself. `owner_writes`: the right to write of a view's
    owner counts for storage access. `columns`: the engine applies read restrictions, and these are the columns of the
    table. `restrictions`: the answer had such restrictions, for these reasons.
    """

    chain: tuple[RecordedChainView, ...] = ()
    entries: int = 0
    ignored: str = ""
    enforced: bool | UnsetType = UNSET
    owner_writes: bool | UnsetType = UNSET
    columns: tuple[SchemaColumn, ...] | UnsetType = UNSET
    restrictions: RecordedRestrictions | UnsetType = UNSET


class RecordedViewCommit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The protected properties that a change of a view touched."""

    touched: tuple[str, ...] = ()


def read_view_security(
    action: str, load: RecordedLoad | None, change: RecordedViewCommit | None
) -> Load | ViewCommit | None:
    """Return the view security of a recorded check; raise InvalidReference if this service cannot have written it."""
    if (load and action not in LOADS) or (change and action not in _CHANGES):
        raise InvalidReference(f"`{action}` is no load or change of a view")
    if load:
        chain = tuple(map(_read_view, load.chain))
        return Load(chain, load.entries, load.ignored, bool(load.enforced), bool(load.owner_writes), load.columns or ())
    return ViewCommit(change.touched) if change else None


def check_target(check: Check, resource: Resource) -> None:
    """Raise InvalidReference if a recorded load or change is about a type of resource that has none."""
    if check.question.view_security and resource.type not in LOADS.get(check.question.action, ("view",)):
        raise InvalidReference(f"a {check.question.action} of a {resource.type}")


def _read_view(recorded: RecordedChainView) -> ChainView:
    view = parse_resource(recorded.view)
    owner = parse_principal(recorded.owner) if recorded.owner else None
    if view.type != "view" or (owner and owner.type != "user"):
        raise InvalidReference(f"`{recorded.view}` is no view of a user")
    return ChainView(view.path, recorded.found, owner.name if owner else "", recorded.engine, recorded.property)


SCHEMA: Final = 1
"""Version of the schema."""
DECISION_EVENT: Final = "decision"
FILTER_EVENT: Final = "filter"
"""`event` of a record: decisions, or the row view of a table."""
OTHER_EVENTS: Final = frozenset({"refusal", "management", "rewrite", "service", "report"})
"""`event` of the records without a decision: `pdp.model.events` has their fields."""
RECORD_EVENTS: Final = OTHER_EVENTS | {DECISION_EVENT, FILTER_EVENT}
"""`event` of all records."""
DROPPED: Final = "records_dropped"
"""`what` of the record that announces dropped records. Only the sink that dropped them gets it."""


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
    """Column of paths: `names` below the container `path`, or below one of several containers, `parents[parent_at]`.

    A column with `like` n is written without names and containers, and shares those of the n-th column of the record
    with `names`, counted from 0 over `checks` and then `requests`. Decoded records have all columns whole.
    """

    type: str
    warehouse: str
    names: list[str] = []
    path: tuple[str, ...] = ()
    parents: list[tuple[str, ...]] = []
    parent_at: list[int] = []
    ref: str | None = None
    like: int | None = None

    def completed(self, others: Sequence[PathNames]) -> PathNames:
        """Return the column with the names of another one, as `like` tells; the same column without such another."""
        if self.like is None or not 0 <= self.like < len(others):
            return self
        other = others[self.like]
        return PathNames(self.type, self.warehouse, other.names, other.path, other.parents, other.parent_at, self.ref)


def _no_attributes() -> msgspec.Raw:
    return msgspec.Raw(b"{}")


class RecordedPrincipal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The subject of a check with the statements of the token or the caller. `attributes` is an object.

    `unknown` names unknown evidence; `unseen` names absent evidence at paths where no token had any.
    """

    id: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: msgspec.Raw = msgspec.field(default_factory=_no_attributes)
    member_of: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    masked: bool | list[str] = False


class RecordedApi(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The API of the catalog that received the request."""

    name: str = ""
    version: int = 0


class RecordedContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Circumstances of a check. `now` is the time of the decision in seconds, if the caller named one."""

    api: RecordedApi = RecordedApi()
    actions: tuple[str, ...] = ()
    query_id: str = ""
    query_user: str = ""
    now: int = 0


class RecordedSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user of the query that asks, null if unknown."""

    user: RecordedPrincipal | None


class Inputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Inputs that checks of a record share. Unknown keys are refused, because they might decide."""

    principal: RecordedPrincipal
    acting_role: str | None = None
    context: RecordedContext = RecordedContext()
    inspected: bool = False
    rules_follow: bool = False
    session: RecordedSession | None = None
    unfiltered: bool = False


IN_ENTRIES: Final[Mapping[str, Any]] = {"action": "", "delegated": False, "view_security": None}
"""Fields of a question that each entry has, with the values that stand for them among the inputs."""
_OWN_FORM: Final = frozenset({"principal", "acting_role", "context"})
"""Inputs with a form of their own. All others are JSON values under their names."""


class InputField(NamedTuple):
    """Field of a question among the inputs of a record: its name, its key in JSON, and the value that is left out."""

    name: str
    key: str
    default: Any


@cache
def more_fields(question: type[Question]) -> tuple[InputField, ...]:
    """Return the fields of a question that stand among the inputs under their own names."""
    known = _OWN_FORM | IN_ENTRIES.keys()
    return tuple(
        InputField(field.name, _camel(field.name), field.default)
        for field in msgspec.structs.fields(question)
        if field.name not in known
    )


def more_inputs(inputs: type[Inputs]) -> tuple[str, ...]:
    """Return the names of the inputs that stand in a record under their own names."""
    return tuple(name for name in inputs.__struct_fields__ if name not in _OWN_FORM)


def shared_inputs(question: Question) -> Question:
    """Return the part of a question that stands among the inputs: all but the fields of each entry."""
    return msgspec.structs.replace(question, **IN_ENTRIES)


def inputs_type(question: type[Question]) -> type[Inputs]:
    """Return the type that reads the inputs of a question: `Inputs`, and every field of the question that it lacks."""
    lacking = {field.name for field in more_fields(question)} - {*Inputs.__struct_fields__}
    if not lacking:
        return Inputs
    fields = [field for field in msgspec.structs.fields(question) if field.name in lacking]
    # INVARIANT: a field of a question is read back, or the whole record is refused. It never goes missing in a replay.
    return msgspec.defstruct(  # type: ignore[return-value]
        "Inputs", [(field.name, field.type, field.default) for field in fields], bases=(Inputs,), frozen=True,
        forbid_unknown_fields=True, rename="camel",
    )  # fmt: skip


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


if not TYPE_CHECKING:
    Inputs = inputs_type(Question)


class RecordedRoles(msgspec.Struct, frozen=True, omit_defaults=True):
    """Roles of a subject that the inputs do not show: `stored_roles` and `person_roles` of the engines' question."""

    stored: tuple[str, ...] = ()
    person: tuple[str, ...] = ()
    unknown: bool = False


class CheckEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One row, or columns if there are `resources`. An entry with an `error` is a refused position: nothing decided it.

    The `action`, `as` and `resource` are those of the refused check, if that was readable. Older records have none.
    `missing`: a check lacks the name of a new object or the destination of a move, so that the path was unknown. In
    older records such a check is without the field, and the container stood for the path.
    `other_roles` are roles that forbids counted beside those of the inputs: a replay finds them in the facts again.
    """

    at: int | list[int]
    action: str = ""
    subject: str = msgspec.field(name="as", default="")
    inputs: int = 0
    delegated: bool | None = None
    other_roles: RecordedRoles | None = None
    cached: bool | str = False
    resource: str | FullResource = ""
    resources: list[str | FullResource] | PathNames | None = None
    allowed: bool | str = False
    by: list[str | int] = []
    reasons: list[str] = []
    errors: list[str] | dict[str, list[str]] | None = None
    error: dict[str, Any] | None = None
    load: RecordedLoad | None = None
    change: RecordedViewCommit | None = None
    missing: bool = False

    @property
    def positions(self) -> Sequence[int]:
        """Return the position in the answer of each resource."""
        if isinstance(self.at, list):
            return self.at
        return range(self.at, self.at + (1 if self.resources is None else len(self.by)))


class EntryRest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """Part of an entry without a column. `listing_since`: the listing began at this earlier revision."""

    load: RecordedLoad | None = None
    change: RecordedViewCommit | None = None
    listing_since: str = ""
    missing: bool = False


class Header(msgspec.Struct, frozen=True):
    """The kind of a line, readable whatever the rest of the line holds."""

    event: str = ""
    schema: int = 0


class RecordHeader(Header, frozen=True):
    """Name and place of a record: `seq` has no gaps within an instance."""

    id: str = ""
    instance: str = ""
    seq: int = -1
    time: str = ""


class RecordedListing(msgspec.Struct, frozen=True):
    """Question of one page of a listing, and the numbers of candidates that were checked and permitted.

    `since` is the revision of the first candidates, if that is not the record's.
    """

    asked: dict[str, Any] = {}
    candidates: int = 0
    permitted: int = 0
    since: str = ""


class Record(RecordHeader, frozen=True, rename="camel"):
    """One request: `checks` are the concrete checks, `requests` those checks of the caller that were split.

    `caller_principal` is the subject of the caller's token if the caller has another name. `stale`: the facts were too
    old to permit anything. `masks` are the reasons of the masks of a row view, by column. A record that could not be
    encoded has the cause in `unencodable`, and in `allowed` one digit for each decision.
    """

    sampled: float = 1.0
    left_out: int = 0
    latency_us: int = 0
    surface: str = ""
    caller: str = ""
    caller_principal: str = ""
    request_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    revision: str = ""
    inputs: Inputs | None = None
    other_inputs: list[Inputs] = []
    checks: list[CheckEntry] = []
    requests: list[CheckEntry] = []
    stale: bool = False
    listing: RecordedListing | None = None
    masks: dict[str, str | None] = {}
    unencodable: str = ""
    allowed: str = ""

    def __post_init__(self) -> None:
        """Make columns with a reference to another column whole."""
        written: list[PathNames] = []
        for entries in (self.checks, self.requests):
            for at, entry in enumerate(entries):
                column = entry.resources
                if not isinstance(column, PathNames):
                    continue
                if column.like is None:
                    written.append(column)
                else:
                    entries[at] = msgspec.structs.replace(entry, resources=column.completed(written))


class ArchivedAuthority(msgspec.Struct, frozen=True):
    """An authority of an archived bundle: the names of its engines."""

    engines: tuple[str, ...]


class ArchivedBundle(msgspec.Struct, frozen=True):
    """A bundle in the audit folder, without the fields that no reader uses."""

    rules: dict[str, str]
    authorities: dict[str, ArchivedAuthority]


RECORD: Final = msgspec.json.Decoder(Record)
PLACE: Final = msgspec.json.Decoder(RecordHeader)
HEADER: Final = msgspec.json.Decoder(Header)
BUNDLE: Final = msgspec.json.Decoder(ArchivedBundle)
