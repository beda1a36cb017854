"""Engine that permits everything, for development. Refuses settings of a service that others could reach."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from pdp.config.section import is_loopback, split_address
from pdp.config.settings import Settings
from pdp.engines.engine import (
    PERMIT,
    READS_POLICIES,
    Cost,
    Dependency,
    EngineQuestion,
    FixedAnswer,
    ResourceCall,
    Verdicts,
)
from pdp.engines.engine_types import PolicySources
from pdp.errors import ConfigError
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason, Trace
from pdp.model.question import Resource

NAME: Final = "allow_all"
VARIABLE: Final = "PDP_DEVELOPMENT"
"""Variable that permits the engine: `1` on loopback addresses, `any-address` on all."""
WARNING: Final = "the engine `allow_all` PERMITS EVERYTHING to everybody: for development only"
_STAMP: Final[Reason] = "allow_all:development"
_PERMIT: Final = Verdicts(bytes([PERMIT]), (_STAMP,))


class AllowAllEngine:
    """Engine that permits every action on every resource."""

    forbids = False
    """Every verdict is a permit."""
    counts_stored_roles = False
    """No verdict rests on the principal."""

    @property
    def name(self) -> str:
        """Return the name of the engine in `by` and `engines`."""
        return NAME

    @property
    def digest(self) -> str:
        """Return the digest of no policies."""
        return NAME

    @property
    def reads(self) -> frozenset[Dependency]:
        """Return the sources of verdicts."""
        return READS_POLICIES

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict."""
        return Cost.MICROSECONDS

    def applies(self, action: str, type: str) -> bool:
        """Return true: the engine decides everything."""
        return True

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Permit every resource."""
        count = len(resources)
        return _PERMIT if count == 1 else Verdicts(_PERMIT.effects * count, [_STAMP] * count)

    def prepare(self, group: EngineQuestion, facts: Facts) -> ResourceCall | None:
        """Return the permit of all resources; None for a group whose resources may have properties."""
        return FixedAnswer(_PERMIT)

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the permit."""
        return Trace(NAME, "permit", _STAMP)


def permit_development(settings: Settings) -> PolicySources:
    """Return the mark of a development service; raise ConfigError for any other service."""
    for problem in _problems(settings):
        raise ConfigError(f"the engine `{NAME}` is for development: {problem}")
    return {"development": True}


def build_allow_all(settings: Settings, sources: PolicySources) -> AllowAllEngine:
    """Return the engine. `permit_development` has seen the settings."""
    return AllowAllEngine()


def _problems(settings: Settings) -> Iterator[str]:
    permission = os.environ.get(VARIABLE, "")
    if permission not in ("1", "any-address"):
        yield f"set {VARIABLE}=1 in the environment"
    if settings.identity.providers:
        yield "leave out `identity.providers`"
    if settings.trusted_engines:
        yield "leave out `trusted_engines`"
    if settings.store.url.startswith("postgresql"):
        yield "`store.url` must not be PostgreSQL"
    for key in ("http", "grpc"):
        address = getattr(settings.server, key)
        if permission == "1" and not is_loopback(split_address(address)[0]):
            yield f"`server.{key}` is `{address}`: listen on loopback, or set {VARIABLE}=any-address"
