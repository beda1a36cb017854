"""Names of entries: active profiles, and the choice between several entries of one name.

Follows SmallRye's ProfileConfigSourceInterceptor: an entry of an active profile wins over a plain entry, unless the
plain entry is in a source of a higher ordinal. Of several active profiles, the last wins. Of several entries of a
profile, the entry with the fewest profiles wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath, PurePosixPath
from typing import Final, NamedTuple

from pdp.config.quarkus.expressions import EnvironmentNames
from pdp.config.quarkus.properties import ConfigEntry

PROD: Final = ("prod",)
"""Profile of a packaged application."""
_PROFILES: Final = re.compile(r"%([^.{}\"]+)\.(.+)", re.DOTALL)


class ConfigSource(NamedTuple):
    """Entries of one source. A source with a higher ordinal wins."""

    ordinal: int
    entries: Sequence[ConfigEntry]


ORDINALS: Final = {".properties": 250, ".yaml": 255, ".yml": 255}
"""Suffix of a file -> ordinal."""
_IN_CONFIG: Final = 10
"""Added to the ordinal of a file in a folder `config`."""
_MICROPROFILE: Final = 100
FILE_PROFILE: Final = re.compile(r"(?P<main>application|microprofile-config)-(?P<profile>.+)(?P<suffix>\.\w+)")
"""Name of the file of a profile."""


class ConfigFile(NamedTuple):
    """Configuration file in a folder. `place` is for messages."""

    place: str
    folder: str
    name: str
    entries: Sequence[ConfigEntry]


class FileSources(NamedTuple):
    """Sources in force, files of other profiles, and files of active profiles without their main file."""

    sources: Sequence[ConfigSource]
    inactive: Sequence[ConfigFile]
    orphans: Sequence[ConfigFile]


def ordinal_of(entries: Iterable[ConfigEntry], default: int) -> int:
    """Return the ordinal of a source: the key `config_ordinal`, or a default. Raise PolicyError for another text."""
    for entry in entries:
        if entry.key == "config_ordinal":
            if not re.fullmatch(r"\s*[+-]?[0-9]{1,9}\s*", entry.text):
                raise entry.error(f"`{entry.key}` is no whole number: it ranks all keys beside it")
            default = int(entry.text)
    return default


def file_sources(files: Sequence[ConfigFile], profiles: Sequence[str]) -> FileSources:
    """Return the sources of some files.

    SmallRye's AbstractLocationConfigSourceLoader reads the file of a profile only beside the main file, and ranks it
    above the main file. Of several profiles, the last wins.
    """
    mains = {
        (file.folder, file.name): ordinal_of(file.entries, _default_ordinal(file))
        for file in files if not FILE_PROFILE.fullmatch(file.name)
    }  # fmt: skip
    sources: list[ConfigSource] = []
    inactive: list[ConfigFile] = []
    orphans: list[ConfigFile] = []
    for file in files:
        match = FILE_PROFILE.fullmatch(file.name)
        main = mains.get((file.folder, f"{match['main']}{match['suffix']}" if match else file.name))
        if match and match["profile"] not in profiles:
            inactive.append(file)
        elif main is None:
            orphans.append(file)
        elif match:
            rank = main + 2 + list(profiles).index(match["profile"])
            sources.append(ConfigSource(ordinal_of(file.entries, rank), file.entries))
        else:
            sources.append(ConfigSource(ordinal_of(file.entries, _default_ordinal(file)), file.entries))
    return FileSources(sources, inactive, orphans)


def _default_ordinal(file: ConfigFile) -> int:
    if file.name == "microprofile-config.properties":
        return _MICROPROFILE
    return ORDINALS[PurePosixPath(file.name).suffix] + (_IN_CONFIG if PurePath(file.folder).name == "config" else 0)


class RankedEntry(NamedTuple):
    """Entry with the ordinal of its source and the profiles that its key names."""

    ordinal: int
    profiles: Sequence[str]
    entry: ConfigEntry


class ActiveConfig(NamedTuple):
    """Entries in force by name, and the other entries as pairs of name and entry.

    `inactive`: entries of other profiles. `duplicates`: entries that a later entry of equal rank replaces. The key of
    an entry keeps its profile.
    """

    entries: Mapping[str, ConfigEntry]
    inactive: Sequence[tuple[str, ConfigEntry]]
    duplicates: Sequence[tuple[str, ConfigEntry]]


def split_profiles(entry: ConfigEntry) -> tuple[Sequence[str], str]:
    """Return the profiles of a key and the name without profiles.

    Raise PolicyError for a key that begins with `%` and names no profile.
    """
    if not entry.key.startswith("%"):
        return (), entry.key
    match = _PROFILES.fullmatch(entry.key)
    if match is None:
        raise entry.error(f"`{entry.key}` names no profile: write `%prod.` or `%prod,dev.` before the key")
    return tuple(match[1].split(",")), match[2]


def active_config(
    sources: Sequence[ConfigSource], profiles: Sequence[str], variables: EnvironmentNames | None = None
) -> ActiveConfig:
    """Return the entries that are in force under some profiles.

    A variable of the environment stands for every name that it spells, and for its own dotted name otherwise.
    """
    candidates: dict[str, list[RankedEntry]] = {}
    inactive: list[tuple[str, ConfigEntry]] = []
    for source in sources:
        for entry in source.entries:
            named, name = split_profiles(entry)
            if named and not set(named) & set(profiles):
                inactive.append((name, entry))
            else:
                candidates.setdefault(name, []).append(RankedEntry(source.ordinal, named, entry))
    for ordinal, name, named, entry in variables.resolve(candidates, profiles) if variables else ():
        candidates.setdefault(name, []).append(RankedEntry(ordinal, named, entry))
    duplicates: list[tuple[str, ConfigEntry]] = []
    winners = {}
    for name, found in candidates.items():
        winners[name], replaced = _winner(found, profiles)
        duplicates += [(name, one.entry) for one in replaced]
    return ActiveConfig(winners, inactive, duplicates)


def _winner(candidates: Sequence[RankedEntry], profiles: Sequence[str]) -> tuple[ConfigEntry, Sequence[RankedEntry]]:
    """Return the entry in force, and the earlier candidates of its rank."""
    if len(candidates) == 1:
        return candidates[0].entry, ()
    plain = [one for one in candidates if not one.profiles]
    group = plain
    for profile in reversed(profiles):
        special = [one for one in candidates if profile in one.profiles]
        if special:
            group = plain if plain and _ordinal(plain) > _ordinal(special) else special
            break
    rank = max(map(_rank, group))
    *replaced, best = [one for one in group if _rank(one) == rank]
    return best.entry, replaced


def _ordinal(candidates: Sequence[RankedEntry]) -> int:
    return max(one.ordinal for one in candidates)


def _rank(candidate: RankedEntry) -> tuple[int, int]:
    return candidate.ordinal, -len(candidate.profiles)
