"""Variables of Lakekeeper's OPA bridge, whose work Trino's surface of this service does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pdp.config.quarkus.properties import ConfigEntry
from pdp.offline.migration.report import Migration

_CATALOG: Final = re.compile(r"TRINO_(\w+)_CATALOG_NAME")
_WAREHOUSE: Final = re.compile(r"LAKEKEEPER_([A-Z0-9]\w*)_WAREHOUSE")
_ADMINS: Final = "TRINO_ADMIN_USERS"
_UNMANAGED: Final = "TRINO_ALLOW_UNMANAGED_CATALOGS"
_CLIENT: Final = re.compile(r"LAKEKEEPER_(URL|TOKEN_ENDPOINT|CLIENT_ID|CLIENT_SECRET|SCOPE|MAX_BATCH_CHECK_SIZE)")


def is_bridge_variable(name: str) -> bool:
    """Tell whether a variable configures the OPA bridge."""
    patterns = (_CATALOG, _WAREHOUSE, _CLIENT)
    return name in (_ADMINS, _UNMANAGED) or any(pattern.fullmatch(name) for pattern in patterns)


def read_bridge(migration: Migration, entries: Sequence[ConfigEntry]) -> dict[str, Any]:
    """Return the sections `trino` and `warehouses`, and report every variable."""
    trino: dict[str, Any] = {}
    names: dict[str, str] = {}
    warehouses: dict[str, str] = {}
    for entry in entries:
        if match := _CATALOG.fullmatch(entry.key):
            names[match[1]] = entry.text
        elif match := _WAREHOUSE.fullmatch(entry.key):
            warehouses[match[1]] = entry.text
        elif entry.key == _ADMINS:
            trino["admin_users"] = [name.strip() for name in entry.text.split(",") if name.strip()]
        elif entry.key == _UNMANAGED:
            trino["unmanaged_catalogs"] = "allow" if entry.text.lower() == "true" else "deny"
        else:
            migration.add("ignored", entry.key_place, entry.key, "pdp asks no Lakekeeper: it decides itself")
            continue
        migration.add("done", entry.key_place, entry.key)
    pairs = {names.get(key, key.lower()): warehouses.get(key, key.lower()) for key in {**names, **warehouses}}
    if pairs:
        trino["catalogs"] = {name: {"warehouse": warehouse} for name, warehouse in pairs.items()}
    sections: dict[str, Any] = {"trino": trino} if trino else {}
    return sections | ({"warehouses": {warehouse: {} for warehouse in pairs.values()}} if pairs else {})
