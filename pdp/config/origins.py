"""Origins of settings: the file with line and column, a variable, or an option. Knows no key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pdp.errors import ConfigError
from pdp.strict import position_of

Key: TypeAlias = tuple[str | int, ...]
"""Path of a key in the settings: `("authorities", "default", "engines", 0)`."""


def key_text(key: Sequence[str | int]) -> str:
    """Return a key as errors name it: `authorities.default.engines.0`."""
    return ".".join(map(str, key))


@dataclass(frozen=True, slots=True)
class Origins:
    """Sources of settings. Variables and options replace values of the file, each later one those before it."""

    file: Path | None = None
    text: str = ""
    given: list[tuple[Key, str]] = field(default_factory=list)
    """Keys that variables and options set, with the names of these, in order."""

    def note(self, key: Key, source: str) -> None:
        """Record that a variable or an option sets a key."""
        self.given.append((key, source))

    def of(self, key: Key) -> str:
        """Return the source of a value; empty for a default."""
        for names, source in reversed(self.given):
            if key[: len(names)] == names or names[: len(key)] == key:
                return source
        found = position_of(self.text, key, keys=True) if self.file else None
        return f"{self.file}:{found[0]}:{found[1]}" if found and found[2] == len(key) else ""

    def nearest(self, key: Key) -> str:
        """Return the source of a value, else of the nearest section around it, else the file."""
        while key:
            if source := self.of(key):
                return source
            key = key[:-1]
        return str(self.file) if self.file else ""

    def error(self, key: Key, message: str) -> ConfigError:
        """Return an error whose text begins with the source of a key. `message` names the key."""
        source = self.nearest(key)
        return ConfigError(f"{source}: {message}" if source else message)
