"""Parts of the service from settings: facts, writers, catalogs, and a decision service on fixed facts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

from pdp.assembly import PLANNERS, build_bundle
from pdp.audit.log import NoAudit
from pdp.config.settings import Settings
from pdp.decision.service import AuditLog, Pdp
from pdp.engines.cel.rules import RuleSet
from pdp.engines.rowaccess.document import NamedDocument
from pdp.facts.objects import Change, GrantAdded, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.store.replica import FixedFacts, Replica
from pdp.store.sql import open_store
from pdp.store.store import write_seed
from pdp.store.world import load_world
from pdp.store.writer import Writer
from pdp.telemetry import Telemetry
from pdp.views.catalog import IcebergCatalog

SEED: Final = "seed"
"""Author of the seed in the change log of the store."""


def read_facts(settings: Settings) -> Facts:
    """Return the facts of the configured store, with the warehouses' projects from the configuration.

    Do not create a missing database. If the store is missing or empty, return the facts of the seed.
    """
    file, missing = settings.store.world_file(), settings.sqlite_file()
    if file is not None:
        return with_projects(settings, load_world(settings.path(file)))
    facts = Facts.empty()
    if missing is None or missing.exists():
        with closing(open_store(settings.store_url())) as store:
            facts = store.load()
    if facts.sequence == 0 and settings.store.seed is not None:
        facts = load_world(settings.path(settings.store.seed))
    return with_projects(settings, facts)


def read_source(settings: Settings) -> FixedFacts | Replica:
    """Return the source of facts of a running service. Create and seed a missing database."""
    limits = settings.store
    if limits.world_file() is not None:
        return FixedFacts(read_facts(settings))
    store = open_store(settings.store_url())
    replica = Replica(store, _projects(settings), limits.max_staleness_seconds, limits.wait_seconds)
    if limits.seed is not None:
        replica.seed(SEED, _seed(settings, limits.seed))
    return replica


@contextlib.contextmanager
def writing(settings: Settings, actor: str, *, seeded: bool) -> Iterator[Writer]:
    """Open the configured store for the writes of one command.

    `seeded`: write the seed first if the store is empty, as the start of the service does. The result is then the same
    whether the command or the service comes first.
    """
    with closing(open_store(settings.store_url())) as store:
        facts, seed = store.load(), settings.store.seed
        if seeded and seed is not None and facts.sequence == 0:
            facts = write_seed(store, SEED, facts, _seed(settings, seed))
        yield Writer(store, with_projects(settings, facts), actor)


def _seed(settings: Settings, file: str) -> tuple[Change, ...]:
    world = load_world(settings.path(file))
    with_projects(settings, world)  # raises before a contradiction to the configuration enters the database
    return (*map(ObjectPut, world.objects()), *map(GrantAdded, world.grants()))


def _projects(settings: Settings) -> dict[str, str]:
    return {name: warehouse.project for name, warehouse in settings.warehouses.items() if warehouse.project}


def with_projects(settings: Settings, facts: Facts) -> Facts:
    """Return the facts with the configured projects; raise ConfigError if facts and configuration disagree."""
    return facts.with_projects(_projects(settings))


def build_catalogs(settings: Settings) -> dict[str, IcebergCatalog]:
    """Return the catalogs of views by warehouse; raise ConfigError if a token file cannot be read."""
    return {
        name: IcebergCatalog(name, rule, settings.path(rule.token_file) if rule.token_file else None)
        for name, warehouse in settings.warehouses.items()
        if (rule := warehouse.catalog)
    }


def build_pdp(
    settings: Settings,
    facts: Facts,
    rules: tuple[RuleSet, RuleSet],
    audit: AuditLog | None = None,
    documents: Iterable[NamedDocument] = (),
) -> Pdp:
    """Return a decision service on fixed facts. Without an `audit`, decisions are not recorded."""
    source = FixedFacts(with_projects(settings, facts))
    return Pdp(build_bundle(settings, *rules, documents), source, audit or NoAudit(), Telemetry(), PLANNERS)
