"""View security in a record: the chain of a load, with the reason of every switch of identity, and changes of views.

Owns both ends, writing and reading back. Strict, since all of it decides.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pdp.errors import InvalidReference
from pdp.model.checks import ChainView, Check, Load, Resource, ViewCommit
from pdp.model.references import format_resource, parse_principal, parse_resource
from pdp.model.vocabulary import LOADS, VIEW_CHANGES

_CHANGES = frozenset(action for action, _ in VIEW_CHANGES.values())


class RecordedChainView(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A view of a chain, and by which property of which engine the identity switches to its owner after it."""

    view: str
    found: bool = True
    owner: str = ""
    engine: str = ""
    property: str = ""


class RecordedLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The chain of a load, of as many entries as were named; `ignored` says why it is not theirs.

    `enforced`: the engine that loads applies row filters and masks itself.
    """

    chain: tuple[RecordedChainView, ...] = ()
    entries: int = 0
    ignored: str = ""
    enforced: bool | UnsetType = UNSET


class RecordedViewCommit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The protected properties that a change of a view touched."""

    touched: tuple[str, ...] = ()


def kept(check: Check) -> dict[str, Any]:
    """What a record says of a check beyond its inputs and its outcome: nothing, a load or a change."""
    about = check.view_security
    if isinstance(about, Load):
        chain = tuple(_written(view, check.resources[0]) for view in about.views)
        return {"load": RecordedLoad(chain, about.entries, about.ignored, about.enforced or UNSET)}
    return {"change": RecordedViewCommit(about.touched)} if about else {}


def read_back(action: str, load: RecordedLoad | None, change: RecordedViewCommit | None) -> Load | ViewCommit | None:
    """What was kept of a check; InvalidReference where it cannot have been written here."""
    if (load and action not in LOADS) or (change and action not in _CHANGES):
        raise InvalidReference(f"`{action}` is no load or change of a view")
    if load:
        return Load(tuple(map(_read, load.chain)), load.entries, load.ignored, bool(load.enforced))
    return ViewCommit(change.touched) if change else None


def check_target(check: Check, resource: Resource) -> None:
    """Raise InvalidReference where a load or change read back is about what none can be about."""
    if check.view_security and resource.type not in LOADS.get(check.action, ("view",)):
        raise InvalidReference(f"a {check.action} of a {resource.type}")


def _written(view: ChainView, target: Resource) -> RecordedChainView:
    name = format_resource(Resource("view", target.warehouse, view.path, target.ref))
    return RecordedChainView(name, view.found, f"user:{view.owner}" if view.owner else "", view.engine, view.property)


def _read(written: RecordedChainView) -> ChainView:
    view = parse_resource(written.view)
    owner = parse_principal(written.owner) if written.owner else None
    if view.type != "view" or (owner and owner.type != "user"):
        raise InvalidReference(f"`{written.view}` is no view of a user")
    return ChainView(view.path, written.found, owner.name if owner else "", written.engine, written.property)
