"""Engines of other packages: found by entry points, guarded, and held to a contract."""

from __future__ import annotations

import inspect
from functools import partial
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec

from pdp.config.origins import suggest
from pdp.config.settings import Settings
from pdp.engines.engine import AsyncEngine, Cost, Dependency, Engine
from pdp.engines.engine_types import EngineType, PolicySources
from pdp.engines.guarded import AwaitedEngine, GuardedEngine
from pdp.errors import ConfigError

ENGINES: Final = "pdp.engines"
"""Group of the entry points of engines: functions of the options that return an `Engine` or an `AsyncEngine`."""
_LOADED: Final[dict[str, str]] = {}
"""Entry point -> package, as of the first use in this process."""
_ATTRIBUTES: Final = ("name", "digest", "reads", "cost", "applies", "decide")


def installed_kind(name: str) -> EngineType | None:
    """Return the kind of an installed engine; None if no package has one of this name."""
    entry = find_entry(ENGINES, name, f"authorities: engine `{name}`")
    if entry is None:
        return None
    return EngineType(partial(_build, name, entry), partial(_read, name, entry), _describe)


def find_entry(group: str, name: str, key: str) -> EntryPoint | None:
    """Return the entry point of a name; None without one. Raise ConfigError if several packages have one."""
    found = list(entry_points(group=group, name=name))
    if len({(entry.value, _package(entry)) for entry in found}) > 1:
        packages = ", ".join(sorted({_package(entry) for entry in found}))
        raise ConfigError(f"`{key}`: several packages have it: {packages}")
    return found[0] if found else None


def missing_engine(name: str) -> str:
    """Return the error of a name without an installed engine, as `missing_entry` does."""
    return missing_entry(ENGINES, name)


def missing_entry(group: str, name: str) -> str:
    """Return the error of a name without an entry point: the nearest known name, and how to make one of a function."""
    known = {entry.name for entry in entry_points(group=group)}
    text = f"no installed package has the entry point `{name}` in `{group}`{suggest(name, known)}"
    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        return text
    short = function.rpartition(".")[2]
    return (
        f'{text}: a function is named by an entry point of its package: write `{short} = "{name}"` below '
        f'`[project.entry-points."{group}"]` in its pyproject.toml, install the package, and write `{short}` here'
    )


def load_entry(entry: EntryPoint, key: str) -> Any:
    """Return the object of an entry point; raise ConfigError if the import fails."""
    loaded_package(entry)
    try:
        return entry.load()
    except Exception as error:
        raise ConfigError(f"`{key}`: `{entry.value}` cannot be loaded: {_cause(error)}") from error


def loaded_package(entry: EntryPoint) -> str:
    """Return name and version of the package of an entry point, as of its first use in this process.

    Python imports a module once, so a later installation of another version changes nothing here.
    """
    return _LOADED.setdefault(entry.value, _package(entry))


def require_recorded(key: str, recorded: str | None, digest: str) -> None:
    """Raise ConfigError if a bundle is made of the engine of another digest. None means that no bundle says."""
    if recorded not in (None, digest):
        raise ConfigError(
            f"`{key}`: this process has other code or policies of the package than the process that loaded the bundle: "
            "let equal policies have equal digests, and restart the service after an installation"
        )


def _read(name: str, entry: EntryPoint, settings: Settings) -> PolicySources:
    options = settings.policies.engines.get(name)
    return {"package": loaded_package(entry), "options": dict(options.options) if options else {}}


def _describe(sources: PolicySources, engine: Engine) -> PolicySources:
    return {**sources, "digest": engine.digest}


def _build(name: str, entry: EntryPoint, settings: Settings, sources: PolicySources) -> Engine:
    key = f"policies.engines.{name}"
    factory = load_entry(entry, key)
    try:
        engine = factory(sources["options"])
        missing = [each for each in _ATTRIBUTES if not hasattr(engine, each)]
        if missing or engine.name != name:
            fault = f"lacks {', '.join(missing)}" if missing else f"has the name `{engine.name}`"
            raise TypeError(f"the engine {fault}")
        if type(engine.reads) is not frozenset or not all(type(source) is Dependency for source in engine.reads):
            raise TypeError("`reads` is a frozenset of `Dependency`")
        if type(engine.cost) is not Cost:
            raise TypeError("`cost` is a `Cost`")
        if type(engine.digest) is not str or not engine.digest:
            raise TypeError("`digest` is a text")
        known = (loaded_package(entry), sources["options"], engine.digest)
        digest = sha256(msgspec.json.encode(known)).hexdigest()
    except Exception as error:
        raise ConfigError(f"`{key}`: `{entry.value}` makes no engine: {_cause(error)}") from error
    require_recorded(key, sources.get("digest"), digest)
    return _guarded(name, engine, digest, settings)


def _guarded(name: str, engine: Engine | AsyncEngine, digest: str, settings: Settings) -> Engine:
    if inspect.iscoroutinefunction(engine.decide):
        options = settings.policies.engines.get(name)
        return AwaitedEngine(name, engine, digest, options.timeout_seconds if options else 1.0)  # type: ignore[arg-type]
    return GuardedEngine(name, engine, digest)  # type: ignore[arg-type]


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"


def _cause(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
