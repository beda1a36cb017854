"""Claims of verified tokens by the paths of their provider: known, unknown or unreadable evidence.

Silence of a token is never a "no": a claim elsewhere, such as groups beyond the limit of Entra, is unknown. A claim of
another form than configured refuses the token. Messages name claims, and never quote values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pdp.config.identity import ClaimSettings
from pdp.errors import Unauthenticated

MAX_SUBJECT: Final = 1024
_SEVERAL: Final = re.compile(r"""[\s,;"'\[\](){}]""")
"""Signs of several values in a text."""
_OTHERS: Final = re.compile(r"""[,;"'\[\](){}]|(?! )\s""")
"""Signs of several values in a part of a text that a separator divides. A name may hold a blank."""
_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "text": lambda value: isinstance(value, str),
    "texts": lambda value: isinstance(value, list) and all(isinstance(text, str) for text in value),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, Mapping),
}
"""Type of an attribute -> the test of a value."""
_MOST_READINGS: Final = 64
"""Most readings of a path with dots."""
_CLAIM_NAMES: Final = "_claim_names"
"""Claim with the names of claims in other places (OpenID Connect Core 5.6.2); Entra's beyond 200 groups."""
_HAS_GROUPS: Final = "hasgroups"
"""Claim of Entra in place of `groups`, where an address has no room for more."""


class ClaimReader:
    """Reader of the claims of a token by the paths of the provider."""

    def __init__(self, settings: ClaimSettings, claims: Mapping[str, Any]) -> None:
        self.claims = claims
        self._settings = settings
        self._elsewhere = _names_elsewhere(claims)

    def audiences(self) -> tuple[str, ...]:
        """Return the audiences, each to the letter; raise Unauthenticated for another form."""
        found: list[str] = []
        for path in self._settings.audience:
            value = self._find(path)
            found += [] if value is None else [value] if isinstance(value, str) else _listed(path, value)
        return tuple(found)

    def subject(self) -> str:
        """Return the subject of the first present claim; raise Unauthenticated for another form."""
        for path in self._settings.subject:
            value = self._find(path)
            if value is None:
                continue
            if not isinstance(value, str) or not 0 < len(value) <= MAX_SUBJECT:
                raise Unauthenticated(f"the token names no subject: its claim `{path}` is no text of a usual length")
            return value
        raise Unauthenticated(f"the token names no subject: it lacks the claim {shown_paths(self._settings.subject)}")

    def texts(self, evidence: str) -> tuple[str, ...]:
        """Return the roles or groups of all paths; raise Unauthenticated for another form."""
        found: list[str] = []
        for path in self._settings.paths[evidence]:
            value = self._find(path)
            if isinstance(value, str):
                found += self._parts(path, value)
            elif isinstance(value, Mapping) and evidence in self._settings.keys_of:
                found += value
            elif value is not None:
                found += _listed(path, value)
        return tuple(found) if len(self._settings.paths[evidence]) == 1 else tuple(dict.fromkeys(found))

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of present claims; raise Unauthenticated for another type than configured."""
        found = {}
        for name, paths in self._settings.attributes.items():
            values = ((path, self._find(path)) for path in paths)
            path, value = next((each for each in values if each[1] is not None), ("", None))
            if value is not None:
                type = self._settings.type_of(name)
                if type and not _TYPES[type](value):
                    raise Unauthenticated(f"the token's claim `{path}` is no {type}: see `claims.types`")
                found[name] = value
        return found

    def present(self) -> frozenset[str]:
        """Return the paths of evidence with present claims."""
        paths = (path for paths in self._settings.paths.values() for path in paths)
        return frozenset(path for path in paths if self._find(path) is not None)

    def unknown(self) -> frozenset[str]:
        """Return the evidence in other places, and absent evidence among the required."""
        required = self._settings.evidence(self._settings.required)
        return frozenset(
            evidence
            for evidence, paths in self._settings.paths.items()
            if any(self._is_elsewhere(path) for path in paths)
            or (evidence in required and all(self._find(path) is None for path in paths))
        )

    def unseen(self, seen: frozenset[str]) -> frozenset[str]:
        """Return the evidence with a written path outside of `seen`, the paths with a claim in a token so far."""
        paths, found = self._settings.paths, {f"attributes.{name}" for name in self.attributes()}
        doubted = self._settings.doubted - found
        return frozenset(evidence for evidence in doubted if not seen.issuperset(paths[evidence]))

    def _find(self, path: str) -> Any:
        """Return a claim; None if absent. Raise Unauthenticated if the path leads through a list or another value."""
        value = find_claim(self.claims, path)
        if value is None and any(rest and found is not None for found, rest in _readings(self.claims, path)):
            raise Unauthenticated(f"the token's claim `{path}` stands in a value that is no object")
        return value

    def _parts(self, path: str, value: str) -> list[str]:
        separator = self._settings.separator
        if separator is not None:
            parts = [part for text in value.split(separator) if (part := text.strip())]
            if any(map(_OTHERS.search, parts)):
                raise Unauthenticated(
                    f"the token's claim `{path}` is one text with other signs of several values than "
                    "`claims.separator`: such names stand in a list"
                )
            return parts
        if _SEVERAL.search(value):
            raise Unauthenticated(
                f"the token's claim `{path}` is one text that may hold several values: `claims.separator` says what "
                "stands between them"
            )
        return [value]

    def _is_elsewhere(self, path: str) -> bool:
        return any(path == name or path.startswith(f"{name}.") for name in self._elsewhere)


def shown_paths(paths: Sequence[str]) -> str:
    """Return paths of claims as in messages."""
    return " or ".join(f"`{path}`" for path in paths)


def find_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by name or by a path of names joined by dots; None if absent or null.

    The whole path is a name first, then each dot divides two names, then names may have dots, as ids of clients.
    """
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is not None:
        return value
    return next((found for found, rest in _readings(claims, path) if not rest and found is not None), None)


def _readings(claims: Mapping[str, Any], path: str) -> Iterator[tuple[Any, str]]:
    """Yield the values at a path for all divisions into names, and those without names before the rest of the path."""
    pending: list[tuple[Any, str]] = [(claims, path)]
    for _ in range(_MOST_READINGS):
        if not pending:
            return
        value, rest = pending.pop()
        if rest and isinstance(value, Mapping):
            ends = [at for at, sign in enumerate(rest) if sign == "."] + [len(rest)]
            pending += [(value[rest[:end]], rest[end + 1 :]) for end in ends if rest[:end] in value]
        else:
            yield value, rest


def _listed(path: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise Unauthenticated(f"the token's claim `{path}` is no list of texts")
    return value


def _names_elsewhere(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of claims of a token in other places; raise Unauthenticated for another form."""
    names = claims.get(_CLAIM_NAMES)
    if names is not None and not isinstance(names, Mapping):
        raise Unauthenticated(f"the token's claim `{_CLAIM_NAMES}` is no object")
    has_groups = claims.get(_HAS_GROUPS) not in (None, False)
    return (*(names or ()), *(("groups",) if has_groups else ()))
