"""Facts of a service from settings: snapshots, stores, writers, catalogs, and a decision service on fixed facts.

Warns of roles that settings name and neither the facts nor the policies know, and of a seed that is newer than the
facts that are served. Must not know surfaces.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

import structlog

from pdp.app.assembly import PLANNERS, build_bundle
from pdp.audit.facts.writer import FactWriter
from pdp.audit.queue.queue import NoAudit
from pdp.config.origins import Key, suggest
from pdp.config.policy_files import FILE_KEYS, FileKey, patterns_of
from pdp.config.references import listed_warehouses, unknown_warehouse
from pdp.config.regular_files import read_regular
from pdp.config.settings import Settings
from pdp.config.warehouses import CatalogSettings
from pdp.decision.ports import AuditLog
from pdp.decision.service import Pdp
from pdp.engines.cel.rules import RuleSet
from pdp.engines.engine_types import PolicySources
from pdp.engines.row_access.policies import NamedDocument
from pdp.errors import ConfigError, PolicyError, Unavailable
from pdp.facts.objects import Change, GrantAdded, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.rewrite.iceberg.client import RestCatalogClient
from pdp.rewrite.iceberg.relations import CatalogRelations, RelationSources
from pdp.store.replica import FixedFacts, Replica
from pdp.store.sql import SqlStore, open_store, read_store
from pdp.store.store import write_seed
from pdp.store.world import load_world
from pdp.store.writer import Writer
from pdp.telemetry import Telemetry
from pdp.views.catalog import IcebergCatalog

T = TypeVar("T")
_ROLE: Final = "role:"
log = structlog.get_logger()
SEED: Final = "seed"
"""Author of the seed in the change log of the store."""


def read_facts(settings: Settings) -> Facts:
    """Return the facts of the configured store, with the warehouses' projects from the configuration.

    Do not create a missing database. If the store is missing or empty, return the facts of the seed.
    """
    file, missing = settings.store.world_file(), settings.sqlite_file()
    if file is not None:
        return _checked(settings, _load_world(settings, "url", file))
    facts = Facts.empty()
    if missing is None or missing.exists():
        with closing(_open_store(settings)) as store:
            facts = store.load()
    if facts.sequence == 0 and settings.store.seed is not None:
        return _checked(settings, _load_world(settings, "seed", settings.store.seed))
    return with_projects(settings, facts)


def inspect_facts(settings: Settings) -> Facts:
    """Return the facts as `read_facts` does, and change nothing in the store, not even its schema."""
    missing, seed = settings.sqlite_file(), settings.store.seed
    if settings.store.world_file() is not None:
        return read_facts(settings)
    world = Facts.empty() if seed is None else _load_world(settings, "seed", seed)  # the start reads it, too
    facts = None if missing is not None and not missing.exists() else _of_url(settings, read_store)
    if facts is None or facts.sequence == 0:
        return world if seed is None else _checked(settings, world)
    warn_of_unknown_names(settings, facts)
    return with_projects(settings, facts)


def read_source(settings: Settings) -> FixedFacts | Replica:
    """Return the source of facts of a running service. Create and seed a missing database."""
    limits = settings.store
    if limits.world_file() is not None:
        return FixedFacts(read_facts(settings))
    store = _open_store(settings)
    replica = Replica(store, _projects(settings), limits.max_staleness_seconds, limits.wait_seconds)
    if limits.seed is not None:
        world = _load_world(settings, "seed", limits.seed)
        if replica.facts.sequence:
            warn_of_newer_seed(settings.path(limits.seed), world, replica.facts, store)
        replica.seed(SEED, _seed_changes(settings, world, is_new=not replica.facts.sequence))
    warn_of_unknown_names(settings, replica.facts)
    return replica


def record_facts(settings: Settings, source: FixedFacts | Replica, instance: str) -> FactWriter | None:
    """Write the history of the facts of a source beside the audit from now on; None without an audit.

    Raise ConfigError if the folder cannot be made.
    """
    folder = settings.audit.folder
    if folder is None:
        return None
    writer = FactWriter(settings.path(folder), instance)
    source.record_to(writer)
    return writer


def _open_store(settings: Settings) -> SqlStore:
    return _of_url(settings, open_store)


def _of_url(settings: Settings, action: Callable[[str], T]) -> T:
    """Return the result of an action on the address of the store, whose errors name the key."""
    try:
        return action(settings.store_url())
    except ConfigError as error:
        raise settings.origins.error(("store", "url"), f"{error} (store.url)") from None
    except Unavailable as error:
        raise Unavailable(f"{error} (store.url)") from None


@contextlib.contextmanager
def writing(settings: Settings, actor: str, *, seeded: bool) -> Iterator[Writer]:
    """Open the configured store for the writes of one command.

    `seeded`: write the seed first if the store is empty, as the start of the service does. The result is then the same
    whether the command or the service comes first.
    """
    with closing(_open_store(settings)) as store:
        facts, seed = store.load(), settings.store.seed
        if seeded and seed is not None and facts.sequence == 0:
            world = _load_world(settings, "seed", seed)
            facts = write_seed(store, SEED, facts, _seed_changes(settings, world, is_new=True))
        yield Writer(store, with_projects(settings, facts), actor)


def _seed_changes(settings: Settings, world: Facts, *, is_new: bool) -> tuple[Change, ...]:
    """Return the changes that write a seed; raise before a contradiction to the configuration enters the database."""
    _checked(settings, world) if is_new else with_projects(settings, world)
    return (*map(ObjectPut, world.objects()), *map(GrantAdded, world.grants()))


def _checked(settings: Settings, world: Facts) -> Facts:
    """Return the facts of a world file with the configured projects; raise ConfigError if the two disagree."""
    require_known_roles(settings, world)
    return with_projects(settings, world)


def _load_world(settings: Settings, key: str, file: str) -> Facts:
    """Return the facts of a world file that a key of `store` names; raise PolicyError."""
    try:
        return load_world(settings.path(file), listed_warehouses(settings))
    except PolicyError as error:
        raise error.of_key(f"store.{key}", settings.origins.nearest(("store", key))) from None


def _projects(settings: Settings) -> dict[str, str]:
    return {name: warehouse.project for name, warehouse in settings.warehouses.items() if warehouse.project}


def with_projects(settings: Settings, facts: Facts) -> Facts:
    """Return the facts with the configured projects; raise ConfigError if facts and configuration disagree."""
    return facts.with_projects(_projects(settings))


def build_catalogs(settings: Settings) -> dict[str, IcebergCatalog]:
    """Return the catalogs of views by warehouse; raise ConfigError if a file cannot be read."""
    return {
        name: IcebergCatalog(name, rule, token, separator) for name, rule, token, separator in _catalog_rules(settings)
    }


def build_relations(settings: Settings, telemetry: Telemetry) -> RelationSources:
    """Return the tables and views of catalogs for the rewriter; raise ConfigError if a file cannot be read."""
    return RelationSources(
        CatalogRelations(name, RestCatalogClient(name, rule, token, separator), rule, telemetry)
        for name, rule, token, separator in _catalog_rules(settings)
        if rule.relations
    )


def _catalog_rules(settings: Settings) -> Iterator[tuple[str, CatalogSettings, Path | None, str]]:
    """Yield each warehouse with a catalog, its settings, the file of the token, and the separator of namespaces."""
    for name, warehouse in settings.warehouses.items():
        rule = warehouse.catalog
        if rule:
            way = settings.way_out(rule.ca_file, f"warehouses.{name}.catalog.ca_file")
            token = settings.path(rule.token_file) if rule.token_file else None
            yield name, rule.by(way), token, warehouse.namespace_separator


def build_pdp(
    settings: Settings,
    facts: Facts,
    rules: tuple[RuleSet, RuleSet],
    audit: AuditLog | None = None,
    documents: Iterable[NamedDocument] = (),
    sources: Mapping[str, PolicySources] | None = None,
) -> Pdp:
    """Return a decision service on fixed facts. Without an `audit`, decisions are not recorded.

    `sources` has the policies of engines by name, in place of the configured files.
    """
    source = FixedFacts(with_projects(settings, facts))
    return Pdp(build_bundle(settings, *rules, documents, sources), source, audit or NoAudit(), Telemetry(), PLANNERS)


def require_known_roles(settings: Settings, facts: Facts) -> None:
    """Raise ConfigError for a role in settings that the facts of a world file and the policies do not know.

    A configuration without warehouses may name any role, and so may settings that come from no file.
    """
    if settings.origins.file is None:
        return
    for key, message in unknown_roles(settings, facts):
        raise settings.error(key, message)


def warn_of_unknown_names(settings: Settings, facts: Facts) -> None:
    """Log the roles and warehouses that settings and a database do not share. Grants come and go while it runs."""
    for key, message in unknown_roles(settings, facts):
        log.warning(message, key=".".join(map(str, key)))
    known = listed_warehouses(settings)
    for type, name in facts.index.objects.get((), {}):
        if type == "warehouse" and (message := unknown_warehouse(name, known)):
            log.warning("the database knows a warehouse that the configuration does not", cause=message)


def unknown_roles(settings: Settings, facts: Facts) -> Iterator[tuple[Key, str]]:
    """Yield the key and the error of each role that neither the facts nor the policies know."""
    named = list(_named_roles(settings)) if listed_warehouses(settings) else []
    if not named or settings.policies.source:  # policies of a source may name any role
        return
    known = facts.known_roles()
    texts = [read_regular(file).decode("utf-8", "replace") for key in FILE_KEYS for file in _existing(settings, key)]
    for key, role in named:
        if role not in known and not any(_mentions(text, role) for text in texts):
            yield key, f"no role `{role}` is registered, granted or named in a policy{suggest(role, known)}"


def _named_roles(settings: Settings) -> Iterator[tuple[Key, str]]:
    for group, role in settings.trino.groups.items():
        yield ("trino", "groups", group), role
    for name, role in settings.polaris.roles.items():
        yield ("polaris", "roles", name), role
    for group, role in settings.starrocks.groups.items():
        yield ("starrocks", "groups", group), role
    for idp, provider in settings.identity.providers.items():
        for name, role in provider.role_map.items():
            yield ("identity", "providers", idp, "role_map", name), role


def _existing(settings: Settings, key: FileKey) -> list[Path]:
    return [file for file in settings.paths(patterns_of(settings.policies, key)) if file.is_file()]


def _mentions(text: str, role: str) -> bool:
    """Tell whether the text of a policy file names a role, as a text of CEL or as a grantee."""
    return any(form in text for form in (f"'{role}'", f'"{role}"', f"{_ROLE}{role}"))


LOOK_SECONDS: Final = 5.0
"""Time between two looks at the file."""


def warn_of_newer_seed(file: Path, seed: Facts, facts: Facts, store: SqlStore) -> None:
    """Log a seed that was edited after the database was made from it, and has something that the database lacks."""
    if file.stat().st_mtime <= store.time_of(1):
        return
    lacks = sum(not facts.has(grant) for grant in seed.grants())
    lacks += sum(facts.node(object.key).registered != object for object in seed.objects())
    if lacks:
        log.warning(
            "`store.seed` is newer than the database that was made from it, and is not read again",
            file=str(file),
            entries_not_in_the_database=lacks,
            remedy=f"pdp grants import {file}",
        )


class WorldEdits:
    """Edits of the world file since the start. The file is read at the start alone."""

    def __init__(self, settings: Settings) -> None:
        world = settings.store.world_file()
        self._file = settings.path(world) if world else None
        self._seen = self._look()

    async def watch(self) -> None:
        """Log each edit once, until cancelled."""
        while self._file:
            await asyncio.sleep(LOOK_SECONDS)
            if await asyncio.to_thread(self.is_edited):
                log.warning("the world file has changed since the start: restart to serve it", file=str(self._file))

    def is_edited(self) -> bool:
        """Tell whether the file was changed or removed since the start or the last call."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> tuple[int, int] | None:
        """Return the time and size of the file; None without one."""
        try:
            stat = self._file.stat() if self._file else None
        except OSError:
            return None
        return (stat.st_mtime_ns, stat.st_size) if stat else None
