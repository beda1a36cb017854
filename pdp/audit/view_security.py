"""View security in a record: the view chain of a load with each switch of identity, and changes of views.

Owns both directions, writing and reading. Reading is strict, because every field decides.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pdp.errors import InvalidReference
from pdp.model.question import ChainView, Check, Load, Resource, ViewCommit
from pdp.model.references import format_resource, parse_principal, parse_resource
from pdp.model.vocabulary import LOADS, VIEW_CHANGES

_CHANGES = frozenset(action for action, _ in VIEW_CHANGES.values())


class RecordedChainView(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A view of a chain. If the identity switches to the view's owner: the owner, and the engine's property in use."""

    view: str
    found: bool = True
    owner: str = ""
    engine: str = ""
    property: str = ""


class RecordedLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The view chain of a load. `entries` counts the named views; `ignored` is the reason for not using all of them.

    `enforced`: the loading engine applies row filters and masks itself. `owner_writes`: the right to write of a view's
    owner counts for storage access.
    """

    chain: tuple[RecordedChainView, ...] = ()
    entries: int = 0
    ignored: str = ""
    enforced: bool | UnsetType = UNSET
    owner_writes: bool | UnsetType = UNSET


class RecordedViewCommit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The protected properties that a change of a view touched."""

    touched: tuple[str, ...] = ()


def write_view_security(check: Check) -> dict[str, Any]:
    """Return the `load` or `change` field of a check; empty for every other check."""
    about = check.view_security
    if isinstance(about, Load):
        chain = tuple(_write_view(view, check.resources[0]) for view in about.views)
        return {
            "load": RecordedLoad(
                chain, about.entries, about.ignored, about.enforced or UNSET, about.owner_writes or UNSET
            )
        }
    return {"change": RecordedViewCommit(about.touched)} if about else {}


def read_view_security(
    action: str, load: RecordedLoad | None, change: RecordedViewCommit | None
) -> Load | ViewCommit | None:
    """Return the view security of a recorded check; raise InvalidReference if this service cannot have written it."""
    if (load and action not in LOADS) or (change and action not in _CHANGES):
        raise InvalidReference(f"`{action}` is no load or change of a view")
    if load:
        chain = tuple(map(_read_view, load.chain))
        return Load(chain, load.entries, load.ignored, bool(load.enforced), bool(load.owner_writes))
    return ViewCommit(change.touched) if change else None


def check_target(check: Check, resource: Resource) -> None:
    """Raise InvalidReference if a recorded load or change is about a type of resource that has none."""
    if check.view_security and resource.type not in LOADS.get(check.action, ("view",)):
        raise InvalidReference(f"a {check.action} of a {resource.type}")


def _write_view(view: ChainView, target: Resource) -> RecordedChainView:
    name = format_resource(view.resource(target))
    return RecordedChainView(name, view.exists, f"user:{view.owner}" if view.owner else "", view.engine, view.property)


def _read_view(recorded: RecordedChainView) -> ChainView:
    view = parse_resource(recorded.view)
    owner = parse_principal(recorded.owner) if recorded.owner else None
    if view.type != "view" or (owner and owner.type != "user"):
        raise InvalidReference(f"`{recorded.view}` is no view of a user")
    return ChainView(view.path, recorded.found, owner.name if owner else "", recorded.engine, recorded.property)
