"""View security: what `referenced-by` names, who owns the views in it, and the plan of a load through them.

Owns the encoding of chains, their limits, the switch to a view's owner and the protection of owner properties. Must
not know bodies, transports or where a view's properties come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from pdp.decision.plan import AllOf, EachOf, Node, PlanContext
from pdp.errors import (
    AmbiguousViewOwner,
    InvalidReference,
    NamespaceDepthExceeded,
    ReferencedByDepthExceeded,
    UnresolvableViewOwner,
)
from pdp.model.checks import ChainView, Check, Load, Principal, Reason, Resource, TrustedEngine, ViewCommit
from pdp.model.references import check_part, parse_principal
from pdp.model.vocabulary import VIEW_CHANGES

Path = tuple[str, ...]
ReferencedBy = str | Sequence[Sequence[str]]
"""The still-encoded value of the query parameter, or its entries as lists of namespace parts and name."""

NO_SUCH_VIEW: Final = "no_such_view"
PROTECTED: Final = "protected_property"
"""The reasons of a chain with a view that is not there, and of a change of a view's owner."""
READS: Final = "read_data"
WRITES: Final = "write_data"
_LONGEST_KEPT: Final = 256
"""Characters of an entry that is remembered once parsed."""
_SEPARATOR: Final = "\x1f"
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def bound_entries(referenced_by: ReferencedBy, limit: int) -> int:
    """How many views are named, counted before anything is decoded; ReferencedByDepthExceeded above the limit."""
    if isinstance(referenced_by, str):
        entries = referenced_by.count(",") + 1 if referenced_by else 0
    else:
        entries = len(referenced_by)
    if entries > limit:
        raise ReferencedByDepthExceeded(f"{entries} views in `referencedBy`, the limit is {limit}")
    return entries


def bound_namespaces(paths: Iterable[Path], limit: int) -> None:
    """Raise NamespaceDepthExceeded where a path has more parts above its name than the limit."""
    deepest = max((len(path) - 1 for path in paths), default=0)
    if deepest > limit:
        raise NamespaceDepthExceeded(f"a namespace of {deepest} parts, the limit is {limit}")


def parse_chain(referenced_by: ReferencedBy) -> tuple[Path, ...]:
    """The paths of the named views, outermost first; InvalidReference where an entry does not parse.

    An entry is split off at a raw comma, then decoded once as a query value, then split at U+001F.
    """
    if isinstance(referenced_by, str):
        if not referenced_by:
            return ()
        return tuple(
            _remembered(entry) if len(entry) <= _LONGEST_KEPT else _parse_entry(entry)
            for entry in referenced_by.split(",")
        )
    return tuple(map(_path, referenced_by))


@lru_cache(maxsize=4096)
def _remembered(entry: str) -> Path:
    return _parse_entry(entry)


def _parse_entry(entry: str) -> Path:
    if _BAD_ESCAPE.search(entry):
        raise InvalidReference("an entry has a bad percent escape")
    try:
        text = unquote_to_bytes(entry.replace("+", " ")).decode()
    except UnicodeError:
        raise InvalidReference("an entry does not decode to UTF-8") from None
    return _path(text.split(_SEPARATOR))


def _path(parts: Sequence[str]) -> Path:
    if not parts:
        raise InvalidReference("an entry is empty")
    return tuple(map(check_part, parts))


def owned(path: Path, properties: Mapping[str, Any], engines: Sequence[TrustedEngine]) -> ChainView:
    """A view with the owner that its properties name to the matched engines, a user of their provider.

    Raises AmbiguousViewOwner where engines read different owners, UnresolvableViewOwner where one is no user.
    """
    named = [engine for engine in engines if engine.owner_property in properties]
    if not named:
        return ChainView(path)
    if any(properties[engine.owner_property] != properties[named[0].owner_property] for engine in named):
        names = " and ".join(f"`{engine.name}`" for engine in named)
        raise AmbiguousViewOwner(f"the engines {names} read different owners of view `{'.'.join(path)}`")
    engine = named[0]
    key = engine.owner_property
    owner = _user(path, key, properties[key], engine.idp)
    return ChainView(path, owner=owner, engine=engine.name, property=key)


def _user(path: Path, key: str, owner: Any, idp: str) -> str:
    """The owner's name, taken verbatim: whatever it looks like, it is a user of that provider and nothing else."""
    problem = "is not a text"
    if isinstance(owner, str):
        try:
            return parse_principal(f"user:{idp}~{owner}").name
        except InvalidReference as error:
            problem = f"names no user: {error}"
    raise UnresolvableViewOwner(f"`{key}` of view `{'.'.join(path)}` {problem}")


def protected_keys(keys: Iterable[str], configured: Iterable[str], matched: Sequence[TrustedEngine]) -> tuple[str, ...]:
    """The keys that equal a `configured` owner property but for casing and are none that a matched engine spells so."""
    protected = {key.casefold() for key in configured}
    own = {engine.owner_property for engine in matched}
    return tuple(sorted({key for key in keys if key.casefold() in protected and key not in own}))


def plan_views(asker: PlanContext, check: Check) -> Node | None:
    """The tree of a load or of a change of a view; None for every other check."""
    about = check.view_security
    if isinstance(about, Load):
        return _load(asker, check, about)
    return _change(asker, check, about) if about else None


def _load(asker: PlanContext, check: Check, load: Load) -> Node:
    """Every view as whoever came to it, what is loaded as whoever came there; storage is told of, if not needed."""
    targets = check.resources
    target = targets[0]
    if missing := [view for view in load.views if not view.found]:
        hops = ([view.resource(target)] * len(targets) for view in missing)
        return AllOf(tuple(asker.fixed(False, NO_SUCH_VIEW, "get_metadata", hop) for hop in hops))
    parts: list[Node] = []
    hidden: Reason | None = None
    for view in load.views:
        hop = [view.resource(target)] * len(targets)
        hidden = hidden or asker.restricted(hop[0])
        parts += (asker.leaf("view", "get_metadata", hop), asker.leaf("view", "select", hop))
        if view.owner:
            asker = _as_owner(asker, view.owner)
    parts.append(asker.leaf(target.type, "get_metadata", targets))
    if target.type != "view":
        withheld = _nothing if load.enforced else lambda table: hidden or asker.restricted(table)
        # files hold all that row policies and masks are to hide, those of views on them as well
        storage = tuple(
            asker.unless(withheld, targets, action, partial(asker.leaf, target.type, action))
            for action in (READS, WRITES)
        )
        parts.append(EachOf(storage, optional=check.action == "loadTable"))
    return AllOf(tuple(parts))


def _nothing(table: Resource) -> None:
    """Why files are withheld from an engine that applies row filters and masks itself: for no reason."""


def _as_owner(asker: PlanContext, owner: str) -> PlanContext:
    """From here on as a view's owner: a plain user, without roles or attributes of whoever came here."""
    return msgspec.structs.replace(asker, principal=Principal("user", owner, bare=True), delegated=True)


def _change(asker: PlanContext, check: Check, commit: ViewCommit) -> Node:
    if commit.touched:
        return asker.fixed(False, PROTECTED, check.action, check.resources)
    step = next(step for name, step in VIEW_CHANGES.values() if name == check.action)
    asker = asker.with_actions(step.also)
    if step.on == "parent":
        return asker.in_parent(step.action, check.resources)
    return asker.leaf("view", step.action, check.resources)
