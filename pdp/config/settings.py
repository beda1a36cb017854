"""Settings of the service, with their defaults and texts. docs/configuration.md is generated from these classes.

Frozen. `pdp.config.load` reads the settings from `pdp.yaml`, the environment and `--set`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, PrivateAttr

from pdp.config.audit import AuditSettings
from pdp.config.cache import CacheSettings
from pdp.config.identity import IdentitySettings, TrustedEngineSettings, grantee_id
from pdp.config.origins import Key, Origins, key_text
from pdp.config.policies import PolicyFiles, PolicySettings, RowAccessSettings
from pdp.config.regular_files import find_files
from pdp.config.section import Secret, SecretAddress, Section, defaults, names_secret
from pdp.config.server import LimitSettings, OutgoingSettings, ServerSettings, WayOut
from pdp.config.warehouses import (
    AuthoritySettings,
    AuthzenSettings,
    LakekeeperChecksSettings,
    LakeSettings,
    PolarisSettings,
    RangerSettings,
    StarrocksSettings,
    TrinoSettings,
    WarehouseSettings,
)
from pdp.errors import ConfigError


class StoreSettings(Section):
    """Storage of grants, memberships and registered objects."""

    url: SecretAddress = Field(
        "sqlite:///pdp.db",
        pattern=r"^(file:|sqlite:///|postgresql://|postgres://).+",
        description="`sqlite:///` and a path, `postgresql://...`, or `file:` and the path of a world file, which is "
        "read once at start and takes no writes; `url_file` in its place names a file that holds the address",
    )
    seed: str | None = Field(None, description="a world file that goes into a database when it is made")
    max_staleness_seconds: float = Field(
        300, gt=0, description="grants permit nothing once the database has been silent for so long"
    )
    wait_seconds: float = Field(2, gt=0, le=60, description="how long a check that demands a revision waits for it")
    bootstrap_admins: tuple[Annotated[str, AfterValidator(grantee_id)], ...] = Field(
        (), description="principals that hold server `operator` without a stored grant"
    )

    def world_file(self) -> str | None:
        """Return the path of the world file that holds the facts; None if a database holds the facts."""
        return self.url.removeprefix("file:") if self.url.startswith("file:") else None


_UNPACK: Final = "unpack the bundle by `pdp bundle verify --unpack`, and give `policies.folder` in place of the source"


class Settings(Section):
    """Configuration of the service."""

    server: ServerSettings = defaults(ServerSettings)
    limits: LimitSettings = defaults(LimitSettings)
    authorities: Mapping[str, AuthoritySettings] = Field(
        {"default": defaults(AuthoritySettings, engines=("cel", "grants"))},
        description="which engines decide for which warehouses",
    )
    warehouses: Mapping[str, WarehouseSettings] = Field({}, description="warehouses by name")
    policies: PolicySettings = defaults(PolicySettings)
    row_access: RowAccessSettings = defaults(RowAccessSettings)
    store: StoreSettings = defaults(StoreSettings)
    cache: CacheSettings = defaults(CacheSettings)
    audit: AuditSettings = defaults(AuditSettings)
    identity: IdentitySettings = defaults(IdentitySettings)
    outgoing: OutgoingSettings = defaults(OutgoingSettings)
    trusted_engines: Mapping[str, TrustedEngineSettings] = Field(
        default_factory=dict, description="query engines whose word on views counts, by name"
    )
    trino: TrinoSettings = defaults(TrinoSettings)
    polaris: PolarisSettings = defaults(PolarisSettings)
    starrocks: StarrocksSettings = defaults(StarrocksSettings)
    ranger: RangerSettings = defaults(RangerSettings)
    lakekeeper: LakekeeperChecksSettings = defaults(LakekeeperChecksSettings)
    authzen: AuthzenSettings = defaults(AuthzenSettings)
    lakes: Mapping[str, LakeSettings] = Field({}, description="Iceberg catalogs of `pdp pipeline`, by name")
    _base: Path = PrivateAttr(default_factory=Path.cwd)
    _origins: Origins = PrivateAttr(default_factory=Origins)

    @property
    def origins(self) -> Origins:
        """Return the sources of these settings."""
        return self._origins

    def error(self, key: Key, message: str) -> ConfigError:
        """Return an error about a key: its source, the key and the message."""
        return self._origins.error(key, f"`{key_text(key)}`: {message}")

    def path(self, relative: str) -> Path:
        """Return a path of the configuration, resolved from the folder of pdp.yaml."""
        return self._base / relative

    def way_out(self, own_ca: str | None, key: str) -> WayOut:
        """Return the way to another server, whose own authorities are in the file of a key; raise ConfigError."""
        ca, name = (own_ca, key) if own_ca else (self.outgoing.ca_file, "outgoing.ca_file")
        return WayOut(self.path(ca) if ca else None, name, *self.outgoing.proxies(os.environ))

    def policy_path(self, relative: str) -> Path:
        """Return a path of the section `policies`; raise ConfigError for a file of `policies.source`."""
        if self.policies.source is not None and not Path(relative).is_absolute():
            raise self.error(("policies", "source"), f"`{relative}` is in the source: {_UNPACK}")
        return self._base / self.policies.folder / relative

    def with_policy_folder(self, folder: Path) -> Settings:
        """Return these settings with the policies of a folder in place of those of a source."""
        update = {"folder": str(folder), "source": None}
        return self.model_copy(update={"policies": self.policies.model_copy(update=update)})

    def chain_keys(self) -> tuple[bytes, ...]:
        """Return the keys of the audit's hash chain, the signing one first; raise ConfigError."""
        return self.audit.chain_keys(self._base)

    def store_url(self) -> str:
        """Return the URL of the database. The path of an SQLite file is resolved from the folder of pdp.yaml."""
        scheme, _, path = self.store.url.partition("///")
        return f"{scheme}///{self.path(path)}" if scheme == "sqlite:" else self.store.url

    def sqlite_file(self) -> Path | None:
        """Return the SQLite file that holds the facts; None if the facts are elsewhere."""
        scheme, _, path = self.store_url().partition("///")
        return Path(path) if scheme == "sqlite:" else None

    def with_policies(self, rules: Sequence[str] | None, world: str | None) -> Settings:
        """Return these settings with other rule files or another world file. None keeps the configured files.

        Whoever tries rules may try none, so an existing file may be empty.
        """
        update: dict[str, Any] = {}
        if rules is not None:
            update["policies"] = self.policies.model_copy(update={"rules": tuple(map(self._tried, rules))})
        if world is not None:
            update["store"] = self.store.model_copy(update={"url": f"file:{world}"})
        return self.model_copy(update=update)

    def _tried(self, pattern: str) -> str | PolicyFiles:
        exists = any(file.exists() for file in self.paths((pattern,)))
        return PolicyFiles(path=pattern, allow_empty=True) if exists else pattern

    def paths(self, patterns: Sequence[str | PolicyFiles]) -> tuple[Path, ...]:
        """Return the policy files of names and globs. The files of a glob are sorted; a plain name need not exist."""
        texts = (pattern if isinstance(pattern, str) else pattern.path for pattern in patterns)
        return tuple(dict.fromkeys(file for text in texts for file in self._files(text)))

    def _files(self, pattern: str) -> Sequence[Path]:
        path = self.policy_path(pattern)
        is_glob = any(mark in pattern for mark in "*?[")
        return _matches(self._base / self.policies.folder, Path(pattern)) if is_glob else (path,)


def _matches(base: Path, pattern: Path) -> list[Path]:
    try:
        return find_files(Path(pattern.anchor or base), str(pattern.relative_to(pattern.anchor)))
    except ValueError as error:
        raise ConfigError(f"`{pattern}` is not a glob: {str(error).lower()}") from None
    except OSError as error:  # such as no free descriptors
        raise ConfigError(f"cannot look for `{pattern}`: {error.strerror}") from None


ANY_NAME: Final = "*"
"""Step of a pattern for each name of a map."""
_FREE: Final = (("lakes", ANY_NAME, "properties"), ("lakes", ANY_NAME, "spark"))
"""Maps of texts with names of another program."""
_FREE_TREES: Final = (*_FREE, ("policies", "engines", ANY_NAME, "options"))
"""The same, and maps of all kinds of values."""


class SecretKey(NamedTuple):
    """Path and mark of a secret key. `has_file_key`: a key of the settings names the file, for a later reader."""

    path: tuple[str, ...]
    mark: Secret
    has_file_key: bool


def secret_of(key: Sequence[str | int]) -> Secret | None:
    """Return the mark of a secret key; None for any other key."""
    for secret in secret_keys():
        if _fits(secret.path, key):
            return secret.mark
    in_properties = any(_fits(path, key[:-1]) for path in _FREE)
    return Secret() if in_properties and names_secret(str(key[-1])) else None


def is_hidden(key: Sequence[str | int]) -> bool:
    """Tell whether the whole value of a key is not to be shown: a secret, or a free name like the name of a secret."""
    mark = secret_of(key)
    if mark is not None:
        return not mark.address
    free = (len(path) for path in _FREE_TREES if _fits(path, key[: len(path)]))
    return any(names_secret(str(step)) for length in free for step in key[length:])


def is_free(key: Sequence[str | int]) -> bool:
    """Tell whether a key is in a map of free names."""
    return any(_fits(path, key[: len(path)]) for path in _FREE_TREES)


def _fits(path: Sequence[str], key: Sequence[str | int]) -> bool:
    return len(path) == len(key) and all(step in (ANY_NAME, name) for step, name in zip(path, key, strict=True))


@cache
def secret_keys() -> tuple[SecretKey, ...]:
    """Return the secret keys of the settings. `*` stands for each name of a map."""
    return tuple(_marked(Settings, ()))


def _marked(section: type[BaseModel], path: tuple[str, ...]) -> Iterator[SecretKey]:
    for name, field in section.model_fields.items():
        at, has_file_key = (*path, name), f"{name}_file" in section.model_fields
        parts = [*_parts(field.annotation, at)]
        for below, part in parts:
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _marked(part, below)
        marks = (part for _, part in parts if isinstance(part, Secret))
        yield from (SecretKey(at, mark, has_file_key) for mark in (*field.metadata, *marks) if isinstance(mark, Secret))


def _parts(annotation: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the smallest parts of a type, and marks, each with a path."""
    parts = get_args(annotation)
    if not parts:
        yield path, annotation
    below = (*path, ANY_NAME) if get_origin(annotation) in (Mapping, tuple) else path
    for part in parts:
        yield from _parts(part, below)
