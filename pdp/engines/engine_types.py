"""Types of engines: the seam between names in `authorities.<name>.engines` and the classes behind the names.

A new engine of the product needs one entry in `ENGINES` of `pdp/app/assembly.py`, which imports the engine when called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from pdp.config.settings import Settings
from pdp.engines.engine import Engine

PolicySources: TypeAlias = Mapping[str, Any]
"""Policies of one engine as a JSON object: part of the bundle's text, and all that builds the engine again."""


def no_policies(settings: Settings) -> PolicySources:
    """Return no policies, for an engine without files."""
    return {}


def only_policies(policies: PolicySources, engine: Engine) -> PolicySources:
    """Return the policies, for an engine that rests on nothing else."""
    return policies


class EngineType(NamedTuple):
    """Kind of engine: policies of the configured files, and the engine that the policies make.

    `build` makes an engine from settings and policies, and reads no file. `read` returns the policies of the configured
    files, or raises ConfigError or PolicyError with the place. Both run only if an authority names the engine.
    `describe` returns the policies for the text of the bundle. An engine with policies of its own adds a digest, and
    `build` raises ConfigError for policies with the digest of another engine.
    """

    build: Callable[[Settings, PolicySources], Engine]
    read: Callable[[Settings], PolicySources] = no_policies
    describe: Callable[[PolicySources, Engine], PolicySources] = only_policies
