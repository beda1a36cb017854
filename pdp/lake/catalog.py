"""Catalogs of the lake: a folder with Iceberg's Hadoop catalog, or an Iceberg REST catalog of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pdp.config.origins import suggest
from pdp.config.warehouses import LakeSettings
from pdp.errors import ConfigError, InvalidArgument

CATALOG: Final = "lake"
"""Name of the catalog inside Spark."""
_PREFIX: Final = f"spark.sql.catalog.{CATALOG}"


class LakeCatalog(msgspec.Struct, frozen=True):
    """Catalog, and the namespace of the tables.

    `properties` are those of Spark at its start. `secrets` are set in a running session, so that no command line and no
    page of Spark shows them.
    """

    name: str
    namespace: str
    properties: Mapping[str, str]
    secrets: Mapping[str, str] = {}
    folder: Path | None = None
    """Folder of a catalog on this machine."""

    def table(self, name: str) -> str:
        """Return the full name of a table in SQL."""
        return f"{CATALOG}.{self.namespace}.{name}"


def choose_catalog(name: str, lakes: Mapping[str, LakeSettings]) -> LakeCatalog:
    """Return the catalog that `--lake` names: one of the configuration, else that of a folder."""
    if not name:
        raise InvalidArgument("`--lake` is empty")
    if name in lakes:
        return rest_catalog(name, lakes[name])
    if lakes and "/" not in name and not Path(name).is_dir():
        raise ConfigError(f"no lake `{name}` is configured{suggest(name, lakes)}; for a folder, write `./{name}`")
    return folder_catalog(name)


def folder_catalog(place: str) -> LakeCatalog:
    """Return the catalog of a folder: a path of this machine, or an address such as `hdfs://` or `s3a://`."""
    folder = None if "://" in place else Path(place).absolute()
    if folder and folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"`{place}` is no folder")
    properties = {_PREFIX: "org.apache.iceberg.spark.SparkCatalog", f"{_PREFIX}.type": "hadoop"}
    properties[f"{_PREFIX}.warehouse"] = str(folder or place)
    return LakeCatalog(place, "pdp", properties, folder=folder)


def rest_catalog(name: str, settings: LakeSettings) -> LakeCatalog:
    """Return a catalog of the configuration."""
    properties: dict[str, Any] = {
        _PREFIX: "org.apache.iceberg.spark.SparkCatalog",
        f"{_PREFIX}.type": "rest",
        f"{_PREFIX}.uri": settings.uri,
        **({f"{_PREFIX}.warehouse": settings.warehouse} if settings.warehouse else {}),
        **settings.spark,
    }
    secrets = {f"{_PREFIX}.{key}": value for key, value in settings.properties.items()}
    for key in ("token", "credential"):
        if value := getattr(settings, key):
            secrets[f"{_PREFIX}.{key}"] = value
    return LakeCatalog(name, settings.namespace, properties, secrets)
