"""Policies of the two sides of a dry run: settings from files, and Nessie's implicit rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import yaml

from pdp.audit.reader import read_bundle
from pdp.audit.schema import ArchivedBundle
from pdp.cli.composition import chosen_file
from pdp.cli.options import absolute_paths
from pdp.config.load import UNSUPPORTED, load_settings
from pdp.config.settings import Settings
from pdp.decision.service import Pdp
from pdp.engines.cel.engine import CelEngine
from pdp.errors import InvalidArgument
from pdp.store.world import WORLD_KEYS

_SETTINGS: Final = frozenset(Settings.model_fields) | {key.partition(".")[0] for key in UNSUPPORTED}
"""First keys of a pdp.yaml."""
_SUFFIXES: Final = ".properties, .yaml, .yml, .json"


def side_settings(
    config: Path | None, overrides: Sequence[str], files: Sequence[str], forbid: Sequence[str]
) -> Settings:
    """Return the settings of one side.

    The side's own pdp.yaml among `files` replaces the shared `config`. Rules, a world and forbidding rules of the side
    replace the configured ones. Raise InvalidArgument for unusable files.
    """
    kinds: dict[str, list[str]] = {"rules": [], "world": [], "settings": []}
    for file, path in zip(files, absolute_paths(files), strict=True):
        kinds[_kind(Path(file))].append(path)
    for kind in ("world", "settings"):
        if len(kinds[kind]) > 1:
            raise InvalidArgument(f"`{kinds[kind][1]}` is a second {kind} file: one side takes one")
    own = Path(kinds["settings"][0]) if kinds["settings"] else chosen_file(config)
    settings = load_settings(own, overrides) if own else load_settings(None, overrides).with_policies((), None)
    settings = settings.with_policies(kinds["rules"] or None, kinds["world"][0] if kinds["world"] else None)
    if not forbid:
        return settings
    policies = settings.policies.model_copy(update={"forbid": absolute_paths(forbid)})
    return settings.model_copy(update={"policies": policies})


def _kind(file: Path) -> str:
    """Return the kind of a file: `rules`, `world` or `settings`."""
    if file.suffix in (".properties", ".json"):
        return "rules" if file.suffix == ".properties" else "world"
    if file.suffix not in (".yaml", ".yml"):
        raise InvalidArgument(f"`{file}` is neither rules, a world nor settings: it ends in none of {_SUFFIXES}")
    key = _first_key(file)
    if key in ("rules", ""):
        return "rules"
    if key in WORLD_KEYS:
        return "world"
    if key in _SETTINGS:
        return "settings"
    raise InvalidArgument(f"`{file}` is neither rules, a world nor settings: it begins with the key `{key}`")


def _first_key(file: Path) -> str:
    """Return the first top-level key of a YAML file; empty if the file is no mapping or an empty one."""
    try:
        with file.open(encoding="utf-8") as text:
            # stream start, document start, mapping start, first key: no need to parse a large file further
            events = list(itertools.islice(yaml.parse(text, yaml.CSafeLoader), 4))
    except OSError as error:
        raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"`{file}` is not YAML: {error}") from None
    is_mapping = len(events) == 4 and isinstance(events[2], yaml.MappingStartEvent)
    return str(getattr(events[3], "value", "")) if is_mapping else ""


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
