r"""Property expressions, such as `${name:default}`, nested and escaped, and environment variables as keys.

Expressions follow SmallRye's ExpressionConfigSourceInterceptor. `${handler::text}` asks for a secret and is refused.
Variables follow the rules of MicroProfile Config and SmallRye's EnvConfigSource.

`NESSIE_SERVER_X` is `nessie.server.x`, and every other name with the same letters and other signs, such as
`nessie.server-x`. `_PROD_A_B` is `%prod.a.b`. Double underscores quote a part.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pdp.config.quarkus.properties import ConfigEntry, Position
from pdp.errors import PolicyError

_MOST_NESTED: Final = 32
_LONGEST: Final = 1 << 20
_MOST_EXPRESSIONS: Final = 1_000
"""Expressions of one text, with those that they lead to. Without a bound, 32 keys could stand for 2^32 expansions."""


class ExpressionReader:
    """Reader of one text with expressions. `lookup` returns the text of a name, or None."""

    def __init__(
        self, entry: ConfigEntry, lookup: Callable[[str], ConfigEntry | None], parent: ExpressionReader | None = None
    ) -> None:
        self._entry = entry
        self._text = entry.text
        self._lookup = lookup
        self.depth: int = parent.depth + 1 if parent else 0
        self.count: Iterator[int] = parent.count if parent else itertools.count()
        self._at = 0
        self._skipping = False

    def expand(self) -> tuple[str, list[int]]:
        """Return the expanded text, and for each of its characters the offset in the original text."""
        text, offsets = self._read(ends="")
        return text, offsets

    def _read(self, ends: str) -> tuple[str, list[int]]:
        """Read up to one of the signs `ends`, outside of expressions."""
        text: list[str] = []
        offsets: list[int] = []
        while self._at < len(self._text):
            start = self._at
            sign = self._text[start]
            if sign in ends and not (sign == ":" and self._text.startswith("::", start)):
                break
            if self._text.startswith(("\\$", "$$"), start):
                piece, self._at = "$", start + 2
            elif self._text.startswith("${", start):
                piece = self._expression()
            elif sign == ":" and ends and self._text.startswith("::", start):
                piece, self._at = "::", start + 2
            else:
                piece, self._at = sign, start + 1
            text.append(piece)
            offsets += [start] * len(piece)
            if len(offsets) > _LONGEST:
                raise self._entry.error(f"`{self._entry.key}` is too long after the expansion of its expressions")
        return "".join(text), offsets

    def _expression(self) -> str:
        start = self._at
        self._at += 2
        name, _ = self._read(ends=":}")
        found = None if self._skipping else self._find(start, name)
        default = self._default(skip=self._skipping or found is not None)
        if not self._text.startswith("}", self._at):
            raise self._error(start, "`${` without `}`: write `\\\\${` in a properties file for a dollar and a brace")
        self._at += 1
        if self._skipping:
            return ""
        if found is None and default is None:
            message = f"`${{{name}}}` has no value: add the key `{name}`, or write `${{{name}:default}}`"
            raise self._error(start, message)
        return (default or "") if found is None else found

    def _default(self, *, skip: bool) -> str | None:
        """Read the default after a colon; None without a default. An unused default may hold unknown names."""
        if not self._text.startswith(":", self._at):
            return None
        self._at += 1
        before, self._skipping = self._skipping, skip
        default, _ = self._read(ends="}")
        self._skipping = before
        return default

    def _find(self, start: int, name: str) -> str | None:
        if "::" in name:
            raise self._error(start, f"`${{{name}}}` asks a secret handler, which is not here: write the text itself")
        found = self._lookup(name)
        if found is None or "$" not in found.text:
            return found.text if found else None
        if self.depth >= _MOST_NESTED or next(self.count) >= _MOST_EXPRESSIONS:
            raise self._error(start, f"`${{{name}}}` refers to itself, or through too many names")
        return ExpressionReader(found, self._lookup, self).expand()[0]

    def _error(self, offset: int, message: str) -> PolicyError:
        return PolicyError(message, self._entry.place(offset))


def expand(entry: ConfigEntry, lookup: Callable[[str], ConfigEntry | None]) -> ConfigEntry:
    """Return an entry with its expressions replaced; raise PolicyError for a name without a value."""
    if "$" not in entry.text:
        return entry
    text, offsets = ExpressionReader(entry, lookup).expand()
    if text == entry.text:
        return entry

    def locate() -> Sequence[Position]:
        positions = entry.locate()
        return [positions[min(at, len(positions) - 1)] for at in (*offsets, len(entry.text))]

    start = locate()[0] if text else entry.start
    return ConfigEntry(entry.key, text, entry.file, start, locate, entry.key_start)


_NAME: Final = re.compile(r"\$\{([^${}:]+)")
_NESTED: Final = re.compile(r"\$\{[^}:]*\$\{")
_OF_PROFILE: Final = re.compile(r"^%[a-z0-9]+_")


def depending(entries: Iterable[ConfigEntry], names: Iterable[str]) -> Sequence[ConfigEntry]:
    """Return the entries with expressions that use one of some names, or an entry that does."""
    known = {_OF_PROFILE.sub("", spelling(name)) for name in names}
    pending = [entry for entry in entries if known and "${" in entry.text]
    found: list[ConfigEntry] = []
    while True:
        more = [
            entry for entry in pending
            if _NESTED.search(entry.text) or known & {spelling(name) for name in _NAME.findall(entry.text)}
        ]  # fmt: skip
        if not more:
            return found
        found += more
        known |= {_OF_PROFILE.sub("", spelling(entry.key)) for entry in more}
        seen = set(map(id, found))
        pending = [entry for entry in pending if id(entry) not in seen]


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
        return self._choose(self._entries.get(spelling(name), []), name)

    def _choose(self, entries: Iterable[ConfigEntry], name: str) -> ConfigEntry | None:
        found = list({(entry.key, entry.text): entry for entry in entries}.values())
        exact = [entry for entry in found if entry.key in (name, upper_name(name))]
        if len(found) > 1 and len(exact) != 1:
            first, last = found[0], found[-1]
            if first.key == last.key:
                raise last.error(f"`{last.key}` has another value at {first.key_place}: keep one of them")
            names = ", ".join(f"`{entry.key}`" for entry in found)
            raise last.error(f"the variables {names} are one name: keep one of them")
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
                found = self._choose(entries, upper_name(name))
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
    """Return the name of a variable that no known key spells, as SmallRye derives it. An open quote is closed."""
    profile = variable.startswith("_") and variable[1:2].isalnum()
    body = variable[1:] if profile else variable
    parts = body.lower().removesuffix("__").split("__")
    pieces = [
        f'"{part.removesuffix("_").replace("_", ".")}"' if number % 2 else _indexed(part)
        for number, part in enumerate(parts)
    ]
    return ("%" if profile else "") + ".".join(pieces)


def is_unfinished(variable: str) -> bool:
    """Tell whether the name of a variable in capitals ends inside of quotes or with a separator.

    Releases of SmallRye differ in the keys that such a variable sets: only `__` at the end closes quotes in all.
    """
    parts = variable.split("__")
    return "." not in variable and (len(parts) % 2 == 0 or parts[-1].endswith("_"))


def _indexed(part: str) -> str:
    return _INDEX.sub(r"[\1].", part).replace("_", ".").replace("]..", "].")
