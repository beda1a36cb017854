"""Names in settings that must be known: warehouses, their catalogs, identity providers. A wrong name opens nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pdp.config.origins import Key, suggest
from pdp.config.settings import Settings


def known_warehouses(settings: Settings) -> frozenset[str]:
    """Return the warehouses that a configuration names: `warehouses`, else those of Trino's catalogs.

    Empty if it names none. Then every name is taken.
    """
    catalogs = settings.trino.catalogs.values()
    return frozenset(settings.warehouses) or frozenset(catalog.warehouse for catalog in catalogs)


def listed_warehouses(settings: Settings) -> frozenset[str]:
    """Return the warehouses that `warehouses` lists: all that worlds and grants may name, unless there are none.

    A service can have grants on warehouses that Trino does not see, so Trino's catalogs are no such list.
    """
    return frozenset(settings.warehouses)


def unknown_warehouse(name: str, known: Collection[str]) -> str:
    """Return the error of a warehouse that the configuration does not name; empty for a known one."""
    if not known or name in known:
        return ""
    return f"no warehouse `{name}` is configured{suggest(name, known)}"


def unknown_names(settings: Settings) -> Iterator[tuple[Key, str]]:
    """Yield the key and the error of each name in settings that is unknown, or lacks what another key needs of it."""
    known = known_warehouses(settings)
    for name, authority in settings.authorities.items():
        for place, warehouse in enumerate(authority.warehouses):
            yield ("authorities", name, "warehouses", place), unknown_warehouse(warehouse, known)
    named = {engine for authority in settings.authorities.values() for engine in authority.engines}
    for name in settings.policies.engines:
        unused = "" if name in named else f"no authority names the engine `{name}`{suggest(name, named)}"
        yield ("policies", "engines", name), unused
    for name, catalog in settings.trino.catalogs.items():
        key = ("trino", "catalogs", name, "warehouse")
        yield key, unknown_warehouse(catalog.warehouse, known)
        described = settings.warehouses.get(catalog.warehouse)
        if settings.trino.create_over_listed == "deny" and (described is None or described.catalog is None):
            yield key, f"`trino.create_over_listed: deny` needs `warehouses.{catalog.warehouse}.catalog`"
    providers = settings.identity.providers
    for name, engine in settings.trusted_engines.items():
        for idp in engine.identities if providers else ():
            message = "" if idp in providers else f"no provider `{idp}` is configured{suggest(idp, providers)}"
            yield ("trusted_engines", name, "identities", idp), message
