"""Entries of a configuration, made of texts."""

from __future__ import annotations

from functools import partial

from pdp.config.quarkus.properties import ConfigEntry, positions_of


def entry(key: str, text: str, *, line: int = 3, file: str = "rules.properties") -> ConfigEntry:
    """Return an entry whose text begins in column 5 of a line."""
    return ConfigEntry(key, text, file, (line, 5), partial(positions_of, text, line, 5), (line, 1))
