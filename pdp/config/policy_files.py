"""Files of policies, found or refused: a pattern that names nothing must not open anything.

Knows keys and files, not the content of a file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any, Final, Literal, NamedTuple

from pdp.config.origins import Key
from pdp.config.policies import PolicyFiles, PolicySettings
from pdp.config.regular_files import open_regular
from pdp.config.settings import Settings
from pdp.errors import ConfigError, Place, PolicyError

FileKey = Literal["rules", "forbid", "row_access", "scopes.permissions", "cedar.policies", "cedar.entities"]
FILE_KEYS: Final[tuple[FileKey, ...]] = (
    "rules",
    "forbid",
    "row_access",
    "scopes.permissions",
    "cedar.policies",
    "cedar.entities",
)
"""Keys of `policies` that name files."""
_YAML: Final = frozenset({".yaml", ".yml"})
_FAMILIES: Final = (_YAML, frozenset({".properties"}), frozenset({".json"}), frozenset({".cedar"}))
"""Endings of one format, in lower case."""
_RULE_ENDINGS: Final = _YAML | {".properties"}
RULES_KEY: Final = re.compile(
    r"^(?:\{\s*)?[\"']?rules[\"']?\s*:|\bauthorization[\"']?\s*:|nessie\.server\.authori",
    re.MULTILINE | re.IGNORECASE,
)
"""Key of rules in a file of YAML or properties."""
_QUARKUS: Final = re.compile(
    r"(?P<main>application|microprofile-config)(-(?P<profile>.+))?\.(?i:properties|ya?ml)", re.DOTALL
)
_RULE_KEYS: Final = ("rules", "forbid")
_MOST_NAMED: Final = 8
_CONTENT: Final = {
    "rules": "rule",
    "forbid": "rule",
    "row_access": "policy and no mask",
    "scopes.permissions": "entry",
    "cedar.policies": "policy",
    "cedar.entities": "entity",
}
_REMEDY: Final = "`allow_empty: true` beside `path` permits that"


class PolicyFileList(NamedTuple):
    """Files of one key. `required` maps each file that must hold a policy to the place of its pattern in the list."""

    settings: Settings
    key: FileKey
    paths: tuple[Path, ...]
    required: dict[Path, int]

    def require_content(self, filled: Collection[str]) -> None:
        """Raise ConfigError for the first file that must hold a policy and is none of the `filled`."""
        for path, place in self.required.items():
            if str(path) not in filled:
                message = f"`{path}` holds no {_CONTENT[self.key]}: {_REMEDY}"
                raise _error(self.settings, self.key, place, message)

    @contextmanager
    def naming_key(self) -> Iterator[None]:
        """Let each PolicyError name the key of these files."""
        try:
            yield
        except PolicyError as error:
            raise error.of_key(f"policies.{self.key}") from None


def policy_files(settings: Settings, key: FileKey) -> PolicyFileList:
    """Return the files of a key; raise ConfigError if a pattern matches none and does not allow that.

    The default of `policies.rules` may match none. A listed file of rules must hold one: without the rules that read
    VIEW_REFERENCE, Nessie's implicit rule permits everyone to view references.
    """
    patterns, is_default = patterns_of(settings.policies, key), _is_default(settings.policies, key)
    paths: list[Path] = []
    required: dict[Path, int] = {}
    for place, pattern in enumerate(patterns):
        files = settings.paths((pattern,))
        may_be_empty = is_default or (not isinstance(pattern, str) and pattern.allow_empty)
        existing = [file for file in files if file.exists()] if may_be_empty else files
        if not existing:
            if may_be_empty:
                continue
            text = pattern if isinstance(pattern, str) else pattern.path
            raise _error(settings, key, place, f"`{text}` matches no file: {_REMEDY}")
        for file in existing:
            _require_readable(settings, key, place, file)
        paths += existing
        required |= {} if may_be_empty else dict.fromkeys(files, place)
    return PolicyFileList(settings, key, tuple(dict.fromkeys(paths)), required)


def patterns_of(policies: PolicySettings, key: FileKey) -> Sequence[str | PolicyFiles]:
    """Return the patterns of a key of `policies`. A dot leads to a key of a subsection."""
    patterns: Sequence[str | PolicyFiles] = attrgetter(key)(policies)
    return patterns


def _is_default(policies: PolicySettings, key: FileKey) -> bool:
    return "." not in key and key not in policies.model_fields_set


def overlooked_files(settings: Settings) -> Iterator[tuple[Key, str]]:
    """Yield the place of each pattern beside whose files lie others that read like policies, and a warning."""
    if settings.policies.source is not None:
        return
    named = {file.resolve() for file in _named_files(settings)}
    for key in FILE_KEYS:
        for place, pattern in enumerate(patterns_of(settings.policies, key)):
            text = pattern if isinstance(pattern, str) else pattern.path
            if others := _listed(_other_endings(settings, key, text), named):
                yield _origin(key, place), f"`policies.{key}`: `{text}` does not match {others}: list or rename {_THAT}"
            files = settings.paths((text,)) if key in _RULE_KEYS else ()
            if message := missing_of_quarkus(files, text, named, settings.policies.profiles):
                yield _origin(key, place), f"`policies.{key}`: {message}"


_THAT: Final = "what holds policies"


def _named_files(settings: Settings) -> Iterator[Path]:
    """Yield the files that some key names, and the file of the settings."""
    for key in FILE_KEYS:
        yield from settings.paths(patterns_of(settings.policies, key))
    others = (settings.store.world_file(), settings.store.seed, settings.origins.file)
    yield from (settings.path(str(file)) for file in others if file)


def _listed(files: Iterable[Path], named: Collection[Path]) -> str:
    """Return the files that no key names, as a part of a message; empty without any."""
    found = sorted({file for file in files if file.is_file() and file.resolve() not in named})
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(f"`{file}`" for file in found[:_MOST_NAMED]) + more


def _other_endings(settings: Settings, key: FileKey, pattern: str) -> Iterator[Path]:
    """Yield the files that differ from a glob in the ending alone: of the same format, or rules of another one."""
    stem, dot, ending = PurePath(pattern).name.rpartition(".")
    if not dot or not any(mark in pattern for mark in "*?["):
        return
    near = {each for family in _FAMILIES if _fits(family, f".{ending}") for each in family}
    for file in settings.paths((str(PurePath(pattern).with_name(f"{stem}.*")),)):
        if fnmatchcase(file.stem, stem) and (file.suffix.lower() in near or (key in _RULE_KEYS and _holds_rules(file))):
            yield file


def _fits(endings: Collection[str], pattern: str) -> bool:
    return any(fnmatchcase(ending, pattern.lower()) for ending in endings)


def _holds_rules(file: Path) -> bool:
    """Tell whether a file has an ending and a key of rules. What cannot be read may hold some."""
    if file.suffix.lower() not in _RULE_ENDINGS or not file.is_file():
        return False
    try:
        return RULES_KEY.search(file.read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return True


def missing_of_quarkus(files: Iterable[Path], text: str, named: Collection[Path], profiles: Sequence[str]) -> str:
    """Return a warning if Quarkus reads others than `named` together with some files, which `text` names; else ""."""
    others = _listed(_quarkus_files(files, profiles), named)
    return f"Quarkus would read {others} beside `{text}`, and pdp does not: list {_THAT}, too" if others else ""


def _quarkus_files(files: Iterable[Path], profiles: Sequence[str]) -> Iterator[Path]:
    """Yield the files that Quarkus reads together with some files: of all formats and active profiles."""
    for file in files:
        if read := _QUARKUS.fullmatch(file.name):
            for other in file.parent.glob(f"{read['main']}*"):
                found = _QUARKUS.fullmatch(other.name)
                if found and found["profile"] in (None, *profiles):
                    yield other


def without_files(settings: Settings) -> Settings:
    """Return settings without files of policies, for policies that are at hand."""
    policies = settings.policies
    for key in FILE_KEYS:
        section, _, name = key.rpartition(".")
        update: dict[str, Any] = {name: ()}
        if section:
            update = {section: getattr(policies, section).model_copy(update=update)}
        policies = policies.model_copy(update=update)
    return settings.model_copy(update={"policies": policies})


def _require_readable(settings: Settings, key: FileKey, place: int, file: Path) -> None:
    try:
        open_regular(file).close()
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        source = settings.origins.nearest(_origin(key, place))
        named = PolicyError(f"cannot be read: {cause}", Place(str(file), 0, 0))
        raise named.of_key(f"policies.{key}", source) from None


def _error(settings: Settings, key: FileKey, place: int, message: str) -> ConfigError:
    """Return an error about the pattern at a place of the list."""
    return settings.origins.error(_origin(key, place), f"`policies.{key}`: {message}")


def _origin(key: FileKey, place: int) -> Key:
    return ("policies", *key.split("."), place)
