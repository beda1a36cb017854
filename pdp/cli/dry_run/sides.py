"""Policies of the two sides of a dry run: settings from files, and Nessie's implicit rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import yaml

from pdp.audit.reader import read_bundle
from pdp.audit.records.schema import ArchivedBundle
from pdp.cli.options import absolute_paths
from pdp.cli.wiring import chosen_file
from pdp.config.load import UNSUPPORTED, load_settings
from pdp.config.settings import Settings
from pdp.config.warehouses import AuthoritySettings
from pdp.decision.service import Pdp
from pdp.engines.cedar.lint import holds_entities
from pdp.engines.cel.engine import CelEngine
from pdp.engines.scopes.explain import is_permission_file
from pdp.errors import InvalidArgument
from pdp.store.world import WORLD_KEYS

_SETTINGS: Final = frozenset(Settings.model_fields) | {key.partition(".")[0] for key in UNSUPPORTED}
"""First keys of a pdp.yaml."""
_SUFFIXES: Final = ".properties, .yaml, .yml, .json, .cedar, .cedarschema"
_ROW_KEYS: Final = frozenset({"default", "tables", "views", "masks"})
"""First keys of a file of row policies; `policies` with a list is one more."""
_KINDS: Final = "rules, a world, row policies, permissions of scopes, Cedar policies and settings"
FileKind: TypeAlias = Literal["rules", "world", "rows", "settings", "cedar", "entities", "schema", "permissions"]
"""Kind of a file of policies."""


_CEDAR: Final[Mapping[str, FileKind]] = {".cedar": "cedar", ".cedarschema": "schema"}
"""Characters of a JSON file that tell the kind."""


def side_settings(
    config: Path | None, overrides: Sequence[str], files: Sequence[str], forbid: Sequence[str]
) -> Settings:
    """Return the settings of one side.

    The side's own pdp.yaml among `files` replaces the shared `config`. Rules, a world and forbidding rules of the side
    replace the configured ones. Raise InvalidArgument for unusable files.
    """
    kinds = files_by_kind(files)
    own = Path(kinds["settings"][0]) if kinds["settings"] else chosen_file(config)
    settings = load_settings(own, overrides) if own else load_settings(None, overrides).with_policies((), None)
    settings = settings.with_policies(kinds["rules"] or None, kinds["world"][0] if kinds["world"] else None)
    others = {"forbid": absolute_paths(forbid), "row_access": tuple(kinds["rows"])}
    policies = settings.policies.model_copy(update={key: paths for key, paths in others.items() if paths})
    return with_cedar(with_scopes(settings.model_copy(update={"policies": policies}), kinds["permissions"]), kinds)


def with_scopes(settings: Settings, files: Sequence[str]) -> Settings:
    """Return settings with permission files. Without an authority for these, the default one asks `scopes`, too."""
    if not files:
        return settings
    scopes = settings.policies.scopes.model_copy(update={"permissions": tuple(files)})
    policies = settings.policies.model_copy(update={"scopes": scopes})
    return settings.model_copy(update={"policies": policies, "authorities": _asking("scopes", settings)})


def _asking(engine: str, settings: Settings) -> Mapping[str, AuthoritySettings]:
    """Return the authorities, one of which asks an engine: the default one if no other does.

    The default authority then has no engine for rules if there are none.
    """
    authorities = dict(settings.authorities)
    if not any(engine in authority.engines for authority in authorities.values()) and "default" in authorities:
        default = authorities["default"]
        kept = tuple(each for each in default.engines if each != "cel" or settings.policies.rules)
        authorities["default"] = default.model_copy(update={"engines": (*kept, engine)})
    return authorities


def with_cedar(settings: Settings, kinds: Mapping[FileKind, Sequence[str]]) -> Settings:
    """Return settings with the Cedar files of a side. Without an authority for these, the default one asks Cedar, too.

    A side without rules then has no engine for rules.
    """
    schema = kinds["schema"][0] if kinds["schema"] else None
    given = {"policies": tuple(kinds["cedar"]), "entities": tuple(kinds["entities"]), "schema": schema}
    update = {key: value for key, value in given.items() if value}
    if not update:
        return settings
    policies = settings.policies.model_copy(update={"cedar": settings.policies.cedar.model_copy(update=update)})
    return settings.model_copy(update={"policies": policies, "authorities": _asking("cedar", settings)})


def files_by_kind(files: Sequence[str]) -> dict[FileKind, list[str]]:
    """Return the absolute paths of the files of a side by kind; raise InvalidArgument for an unusable choice."""
    kinds: dict[FileKind, list[str]] = {kind: [] for kind in get_args(FileKind)}
    for file, path in zip(files, absolute_paths(files), strict=True):
        kinds[_kind(Path(file))].append(path)
    single: tuple[FileKind, ...] = ("world", "settings", "schema")
    for kind in single:
        if len(kinds[kind]) > 1:
            raise InvalidArgument(f"`{kinds[kind][1]}` is a second {kind} file: one side takes one")
    return kinds


def _kind(file: Path) -> FileKind:
    """Return the kind of a file."""
    if file.suffix == ".properties":
        return "rules"
    if file.suffix in _CEDAR:
        return _CEDAR[file.suffix]
    if file.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise InvalidArgument(f"`{file}` is none of {_KINDS}: it ends in none of {_SUFFIXES}")
    if file.suffix == ".json" and holds_entities(file):
        return "entities"
    if is_permission_file(file):
        return "permissions"
    key, value = _first_entry(file)
    if _is_row_key(key, value):
        return "rows"
    if key in WORLD_KEYS or file.suffix == ".json":
        return "world"
    if key in ("rules", ""):
        return "rules"
    if key in _SETTINGS:
        return "settings"
    raise InvalidArgument(f"`{file}` is none of {_KINDS}: it begins with the key `{key}`")


def is_row_file(file: Path) -> bool:
    """Tell whether a file begins like a file of row policies."""
    if file.suffix.lower() not in (".yaml", ".yml", ".json"):
        return False
    try:
        return _is_row_key(*_first_entry(file))
    except InvalidArgument:
        return False


def is_world_file(file: Path) -> bool:
    """Tell whether a file begins like a world."""
    if file.suffix.lower() not in (".yaml", ".yml", ".json"):
        return False
    try:
        return _first_entry(file)[0] in WORLD_KEYS
    except InvalidArgument:
        return False


def _is_row_key(key: str, value: str) -> bool:
    return key in _ROW_KEYS or (key == "policies" and value == "list")


def _first_entry(file: Path) -> tuple[str, str]:
    """Return the first top-level key of a YAML or JSON file, and `list` if the value is one.

    The key is empty if the file is no mapping or an empty one.
    """
    try:
        with file.open(encoding="utf-8") as text:
            # stream start, document start, mapping start, first key: no need to parse a large file further
            events = list(itertools.islice(yaml.parse(text, yaml.CSafeLoader), 5))
    except OSError as error:
        raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        if file.suffix == ".json":
            return "", ""  # the reader of worlds names the place
        raise InvalidArgument(f"`{file}` is not YAML: {error}") from None
    if len(events) < 4 or not isinstance(events[2], yaml.MappingStartEvent):
        return "", ""
    is_list = len(events) == 5 and isinstance(events[4], yaml.SequenceStartEvent)
    return str(getattr(events[3], "value", "")), "list" if is_list else ""


def warnings_of(baseline: Pdp | None, candidate: Pdp) -> list[str]:
    """Return the warnings about the policies of both sides."""
    sides = [("baseline", baseline), ("candidate", candidate)]
    return [f"{name}: {warning}" for name, pdp in sides if pdp for warning in pdp.bundle.warnings]


def has_implicit_rule(pdp: Pdp) -> bool:
    """Tell whether Nessie's implicit rule is in force: everyone may view references."""
    authorities = (pdp.bundle.default, *pdp.bundle.authorities.values())
    return any(
        isinstance(engine, CelEngine) and engine.has_implicit_rule
        for authority in authorities
        for engine in authority.engines
    )


def had_implicit_rule(folder: Path | None, digests: Iterable[str]) -> bool | None:
    """Tell whether the implicit rule was in force in all recorded bundles.

    Return None if a bundle is not in the audit folder, or if bundles differ.
    """
    bundles = [read_bundle(folder, digest) for digest in digests] if folder else []
    answers = {_is_implicit(bundle) if bundle else None for bundle in bundles}
    return answers.pop() if len(answers) == 1 else None


def _is_implicit(bundle: ArchivedBundle) -> bool:
    engines = {engine for authority in bundle.authorities.values() for engine in authority.engines}
    return "cel" in engines and not any("VIEW_REFERENCE" in text for text in bundle.rules.values())
