"""Chains of views: the `referenced-by` value, its limits, view owners and protected owner properties.

Must not know bodies, transports, plans or the source of view properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

from pdp.errors import (
    AmbiguousViewOwner,
    InvalidReference,
    NamespaceDepthExceeded,
    ReferencedByDepthExceeded,
    UnresolvableViewOwner,
)
from pdp.model.question import ChainView, TrustedEngine
from pdp.model.references import check_part, parse_principal

Path = tuple[str, ...]
ReferencedBy = str | Sequence[Sequence[str]]
"""The query parameter, still encoded; or its entries as lists of namespace parts and name."""

_LONGEST_CACHED: Final = 256
"""Characters of an entry whose parsed path is cached."""
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def check_chain_length(referenced_by: ReferencedBy, limit: int) -> int:
    """Return the number of views in a chain before any decoding; raise ReferencedByDepthExceeded above the limit."""
    if isinstance(referenced_by, str):
        entries = referenced_by.count(",") + 1 if referenced_by else 0
    else:
        entries = len(referenced_by)
    if entries > limit:
        raise ReferencedByDepthExceeded(f"{entries} views in `referencedBy`, the limit is {limit}")
    return entries


def check_namespace_depth(paths: Iterable[Path], limit: int) -> None:
    """Raise NamespaceDepthExceeded if a path has more namespace parts than the limit."""
    deepest = max((len(path) - 1 for path in paths), default=0)
    if deepest > limit:
        raise NamespaceDepthExceeded(f"a namespace of {deepest} parts, the limit is {limit}")


def parse_chain(referenced_by: ReferencedBy, separator: str) -> tuple[Path, ...]:
    """Return the paths of the views in a chain, outermost first; raise InvalidReference for a malformed entry.

    Raw commas separate entries. Each entry is decoded once as a query value, then split at the separator of namespaces.
    """
    if isinstance(referenced_by, str):
        if not referenced_by:
            return ()
        return tuple(
            _parse_cached(entry, separator) if len(entry) <= _LONGEST_CACHED else _parse_entry(entry, separator)
            for entry in referenced_by.split(",")
        )
    return tuple(map(_path, referenced_by))


@lru_cache(maxsize=4096)
def _parse_cached(entry: str, separator: str) -> Path:
    return _parse_entry(entry, separator)


def _parse_entry(entry: str, separator: str) -> Path:
    if _BAD_ESCAPE.search(entry):
        raise InvalidReference("an entry has a bad percent escape")
    try:
        text = unquote_to_bytes(entry.replace("+", " ")).decode()
    except UnicodeError:
        raise InvalidReference("an entry does not decode to UTF-8") from None
    return _path(text.split(separator))


def _path(parts: Sequence[str]) -> Path:
    if not parts:
        raise InvalidReference("an entry is empty")
    return tuple(map(check_part, parts))


KnownUsers: TypeAlias = Mapping[str, frozenset[str]]
"""Subjects of all users by provider, for providers that list them."""


def resolve_owner(
    path: Path, properties: Mapping[str, Any], engines: Sequence[TrustedEngine], users: KnownUsers
) -> ChainView:
    """Return a view with the owner from the view's properties, as the matched engines read the properties.

    Raise AmbiguousViewOwner if engines read different owners, UnresolvableViewOwner if the owner is no user of the
    engine's identity provider.
    """
    readers = [engine for engine in engines if engine.owner_property in properties]
    if not readers:
        return ChainView(path)
    engine = readers[0]
    key = engine.owner_property
    if any(properties[reader.owner_property] != properties[key] for reader in readers):
        names = " and ".join(f"`{reader.name}`" for reader in readers)
        raise AmbiguousViewOwner(f"the engines {names} read different owners of view `{'.'.join(path)}`")
    owner = _user(path, key, properties[key], engine.idp)
    known = users.get(engine.idp)
    if known is not None and properties[key] not in known:
        listed = f"`identity.providers.{engine.idp}.users` lists"
        raise UnresolvableViewOwner(f"`{key}` of view `{'.'.join(path)}` names no user that {listed}")
    return ChainView(path, owner=owner, engine=engine.name, property=key)


def _user(path: Path, key: str, owner: Any, idp: str) -> str:
    """Return the owner's user name. The value is a subject of the provider, verbatim: `role:x` is a user, too."""
    problem = "is not a text"
    if isinstance(owner, str):
        try:
            return parse_principal(f"user:{idp}~{owner}").name
        except InvalidReference as error:
            problem = f"names no user: {error}"
    raise UnresolvableViewOwner(f"`{key}` of view `{'.'.join(path)}` {problem}")


def protected_keys(keys: Iterable[str], configured: Iterable[str], matched: Sequence[TrustedEngine]) -> tuple[str, ...]:
    """Return the protected keys, sorted: the caller must not change these.

    A key is protected if the key equals a `configured` owner property in any casing. A matched engine may change the
    property of that engine in the exact spelling.
    """
    protected = {key.casefold() for key in configured}
    own = {engine.owner_property for engine in matched}
    return tuple(sorted({key for key in keys if key.casefold() in protected and key not in own}))
