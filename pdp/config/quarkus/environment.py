"""Environment variables as keys, by the rules of MicroProfile Config and SmallRye's EnvConfigSource.

`NESSIE_SERVER_X` is `nessie.server.x`, and every other name with the same letters and other signs, such as
`nessie.server-x`. `_PROD_A_B` is `%prod.a.b`. Double underscores quote a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pdp.config.quarkus.entries import ConfigEntry

ENVIRONMENT_ORDINAL: Final = 300
"""Rank of the environment. Files have 250 to 265."""
_INDEX: Final = re.compile(r"_([0-9]+)_")


class EnvironmentName(NamedTuple):
    """Name in force for a variable: ordinal, name without profile, profiles, entry."""

    ordinal: int
    name: str
    profiles: Sequence[str]
    entry: ConfigEntry


class EnvironmentNames:
    """Variables of an environment, found by the names that they spell.

    A variable that spells no known name stands for its own dotted name, if this name begins with one of `own`.
    """

    def __init__(
        self, entries: Iterable[ConfigEntry], ordinal: int = ENVIRONMENT_ORDINAL, own: tuple[str, ...] = ("",)
    ) -> None:
        self._ordinal = ordinal
        self._own = own
        self._entries: dict[str, list[ConfigEntry]] = {}
        for entry in entries:
            self._entries.setdefault(spelling(entry.key), []).append(entry)

    def find(self, name: str) -> ConfigEntry | None:
        """Return the variable that spells a name; raise PolicyError if several do."""
        found = self._entries.get(spelling(name), [])
        exact = [entry for entry in found if entry.key in (name, upper_name(name))]
        if len(found) > 1 and len(exact) != 1:
            names = ", ".join(f"`{entry.key}`" for entry in found)
            raise found[-1].error(f"the variables {names} are one name: keep one of them")
        return next(iter(exact or found), None)

    def resolve(self, known: Iterable[str], profiles: Sequence[str]) -> Iterator[EnvironmentName]:
        """Yield each variable under the known names that it spells, else under its own dotted name."""
        by_spelling: dict[str, list[str]] = {}
        for name in known:
            by_spelling.setdefault(spelling(name), []).append(name)
        for prefix, named in [("", ()), *((f"%{profile}.", (profile,)) for profile in profiles)]:
            for entry in self._with_prefix(prefix):
                bare = dotted_name(entry.key).removeprefix(prefix)
                for name in by_spelling.get(spelling(bare), [bare] if bare.startswith(self._own) else []):
                    yield EnvironmentName(self._ordinal, name, named, entry)

    def _with_prefix(self, prefix: str) -> Iterator[ConfigEntry]:
        for entries in self._entries.values():
            name = dotted_name(entries[0].key)
            if name.startswith(prefix) and (prefix or not name.startswith("%")):
                found = self.find(upper_name(name))
                if found is not None:
                    yield found


def environment_entries(variables: Mapping[str, str], file: str = "environment") -> list[ConfigEntry]:
    """Return entries for variables without a file; the place of each is its name."""
    return [ConfigEntry(name, text, f"{file} {name}", (1, 1), lambda: [(1, 1)]) for name, text in variables.items()]


def spelling(name: str) -> str:
    """Return one spelling for all names that a variable can stand for."""
    profile = name[:1] in ("%", "_") and name[1:2].isalnum()
    body = re.sub(r"[^A-Za-z0-9]", "_", name[1:] if profile else name).lower()
    return ("%" if profile else "") + (body[:-1] if body.endswith("__") else body)


def upper_name(name: str) -> str:
    """Return the usual variable of a name, such as `A_B_C` for `a.b-c`."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def dotted_name(variable: str) -> str:
    """Return the name of a variable that no known key spells, as SmallRye derives it."""
    profile = variable.startswith("_") and variable[1:2].isalnum()
    body = variable[1:] if profile else variable
    parts = body.lower().removesuffix("__").split("__")
    quoted = len(body.lower().removesuffix("__")) < len(body)
    pieces = [
        f'"{part.replace("_", ".")}"' if number % 2 and (number < len(parts) - 1 or quoted) else _indexed(part)
        for number, part in enumerate(parts)
    ]
    return ("%" if profile else "") + ".".join(pieces)


def _indexed(part: str) -> str:
    return _INDEX.sub(r"[\1].", part).replace("_", ".").replace("]..", "].")
