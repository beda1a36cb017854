"""Settings: `pdp.yaml`, the environment and `--set`, checked once, then frozen.

Owns every key, its default and its text (docs/configuration.md is generated from here). An unknown key is an error:
a misspelt key must not open anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import AfterValidator, AliasChoices, Field, PrivateAttr, ValidationError, model_validator

from pdp import strict
from pdp.config.identity import Identity, TrustedEngineSettings
from pdp.config.section import Section, is_loopback, split_address
from pdp.errors import ConfigError

ENV_PREFIX = "PDP__"


TEMPLATE_FIELD: Final = re.compile(r"\{([^{}]*)\}")
"""A field of a template of members."""
_BETWEEN = r"[^{}]*[^{}a-z0-9-][^{}]*"
_DIVIDED: Final = re.compile(rf"[^{{}}]*(\{{idp\}}{_BETWEEN}\{{subject\}}|\{{subject\}}{_BETWEEN}\{{idp\}})[^{{}}]*")
"""A template in which nobody can say where a provider's id ends but in one way."""


def _template(template: str) -> str:
    fields = set(TEMPLATE_FIELD.findall(template))
    bare = TEMPLATE_FIELD.sub("", template)
    if "subject" not in fields or fields - {"subject", "idp"} or "{" in bare or "}" in bare:
        raise ValueError("a template holds `{subject}`, may hold `{idp}`, and no other braces")
    if "idp" in fields and not _DIVIDED.fullmatch(template):
        raise ValueError(
            "a sign that no provider's id holds stands between `{idp}` and `{subject}`, such as `~` or `@`"
        )
    return template


def _address(address: str) -> str:
    split_address(address)
    return address


class Tls(Section):
    """Certificates of HTTP and gRPC; PEM files, so that no key stands in a configuration."""

    cert: str | None = Field(None, description="the file of the service's certificate and its chain")
    key: str | None = Field(
        None, validation_alias=AliasChoices("key", "key_file"), description="the file of its private key, unencrypted"
    )
    client_ca: str | None = Field(
        None, description="the file of the authorities that sign clients; gRPC then demands a certificate, HTTP asks"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.cert is None) != (self.key is None) or (self.client_ca and not self.cert):
            raise ValueError("`cert` and `key` belong together, and `client_ca` needs both")
        return self


class Server(Section):
    """Where the service listens and how it stops."""

    http: Annotated[str, AfterValidator(_address)] = Field(
        "127.0.0.1:8181", description="HTTP address for checks and Trino; port 0 takes a free one"
    )
    grpc: Annotated[str, AfterValidator(_address)] = Field("127.0.0.1:8081", description="gRPC address")
    diagnostics: Annotated[str, AfterValidator(_address)] = Field(
        "127.0.0.1:8282", description="health and metrics; no decisions are served here, so it may leave loopback"
    )
    unix: str | None = Field(None, min_length=1, description="the path of a socket that serves HTTP, too")
    tls: Tls = Tls()
    drain_seconds: float = Field(5, ge=0, le=600, description="how long a stop waits for requests in flight")


class Limits(Section):
    """Bounds that keep one request, or many, from exhausting the service."""

    max_checks: int = Field(10_000, ge=1, description="checks in one request")
    max_body_bytes: int = Field(8_388_608, ge=1024, le=2**31 - 1, description="bytes of one request body")
    max_in_flight: int = Field(1024, ge=1, description="requests served at once; above it 429")
    request_timeout_seconds: float = Field(
        10, gt=0, le=3600, description="from the first byte of a request to its answer"
    )
    idle_timeout_seconds: float = Field(
        65, gt=0, le=3600, description="a connection that sends no whole request head for so long is closed"
    )
    referenced_by_depth: int = Field(10, ge=1, description="views that one load may go through")
    namespace_depth: int = Field(10, ge=1, description="parts in the namespace of what is loaded, and of its views")
    trino_max_resources: int = Field(100_000, ge=1, description="resources in one Trino batch")
    trino_max_body_bytes: int = Field(67_108_864, ge=1024, le=2**31 - 1, description="bytes of one Trino request body")


class AuthoritySettings(Section):
    """Which engines decide, and how their verdicts combine; a forbid always wins and silence denies."""

    engines: tuple[str, ...] = Field(min_length=1, description="engines in order; the first that permits is named")
    combine: Literal["any", "all"] = Field("any", description="`any` engine that applies, or `all` of them")
    warehouses: tuple[str, ...] = Field((), description="the warehouses it decides; `default` has the rest")


class CatalogRule(Section):
    """An Iceberg REST catalog that is asked for the views of a chain that a request does not bring."""

    uri: str = Field(pattern=r"^https?://[^\s?#]+$", description="the REST catalog's address, without `/v1`")
    warehouse: str | None = Field(None, min_length=1, description="the catalog's own name of the warehouse")
    token_file: str | None = Field(None, description="a file with the bearer token; read again when it is refused")
    timeout_seconds: float = Field(5, gt=0, le=60, description="for one answer of the catalog")
    ttl_seconds: float = Field(5, ge=0, le=3600, description="how long a view's properties are taken as read")


class Warehouse(Section):
    """What is known of a warehouse beyond its name."""

    project: str | None = Field(None, description="the project it belongs to")
    default_ref: str | None = Field(None, min_length=1, description="the ref of resources that name none")
    kind: Literal["iceberg", "nessie", "hive"] = Field("iceberg", description="the catalog behind it")
    catalog: CatalogRule | None = Field(None, description="where views are read that a request does not bring")


class Policies(Section):
    """Where policies are read from; relative paths start at the folder of pdp.yaml."""

    rules: tuple[str, ...] = Field(("rules/*.properties",), description="CEL rule files (globs): .properties or .yaml")
    forbid: tuple[str, ...] = Field((), description="rule files whose rules deny when true, in every authority")
    cel_extensions: tuple[Literal["strings"], ...] = Field((), description="CEL extensions that rules may use")
    row_access: tuple[str, ...] = Field((), description="files (globs) of row policies and masks: .yaml or .json")


class Member(Section):
    """How a principal is written in lists of grantees."""

    template: Annotated[str, AfterValidator(_template)] = Field(
        "user:{subject}",
        description="a user of `identity.cel_provider` as a member; `{subject}` of others is `<idp>~<subject>`, unless "
        "the template holds `{idp}`",
    )


class RowAccessRules(Section):
    """What holds for row policies and masks together."""

    protected: tuple[str, ...] = Field(
        (), description="warehouses and namespaces below which a table without policies shows no rows"
    )
    member: Member = Member()


class StoreSettings(Section):
    """Where grants, memberships and registered objects are kept."""

    url: str = Field(
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
    bootstrap_admins: tuple[str, ...] = Field(
        (), description="principals that hold server `operator` without a stored grant"
    )

    def world_file(self) -> str | None:
        """The path of the world file, if it is one that keeps the facts."""
        return self.url.removeprefix("file:") if self.url.startswith("file:") else None


class FileSink(Section):
    """A folder of JSON lines, one file per start of the service."""

    file: str = Field(description="the folder")


class Audit(Section):
    """Where the record of every request goes."""

    sinks: tuple[FileSink, ...] = Field(
        (FileSink(file="audit/"),), max_length=1, description="folders that receive JSON lines; none writes no audit"
    )


class TrinoCatalog(Section):
    """The warehouse behind a Trino catalog."""

    warehouse: str
    ref: str | None = Field(None, min_length=1, description="the ref it reads; the warehouse's default otherwise")


class TrinoFunctions(Section):
    """Which functions may be called without a check on their schema."""

    allow: tuple[str, ...] = Field((), description="functions in `system` schemas, as catalog.schema.function")
    builtin_catalogs: tuple[str, ...] = Field((), description="catalogs that `sql.path` names: all functions allowed")


class TrinoProcedures(Section):
    """Which procedures everyone may call."""

    allow: tuple[str, ...] = Field((), description="procedures as catalog.schema.procedure")


class TrinoSessionProperties(Section):
    """Which session properties nobody may set."""

    deny: tuple[str, ...] = Field((), description="`name` of a system property, or `catalog.name`")


class TrinoExecuteQuery(Section):
    """Who may run queries at all."""

    allow: tuple[str, ...] = Field(("*",), description="Trino users; `*` is everyone with a name")


class Trino(Section):
    """How Trino's names and operations are read."""

    catalogs: Mapping[str, TrinoCatalog] = Field(default_factory=dict, description="Trino catalog -> warehouse and ref")
    user_prefix: str = Field("oidc~", pattern=r"^[a-z0-9-]+~$", description="put before Trino's user names")
    admin_users: tuple[str, ...] = Field((), description="Trino users with all administrative operations")
    impersonation: Mapping[str, tuple[str, ...]] = Field(default_factory=dict, description="who may become whom")
    groups: Mapping[str, str] = Field(default_factory=dict, description="Trino group -> role id")
    unmanaged_catalogs: Literal["deny", "allow"] = Field("deny", description="catalogs that no warehouse stands behind")
    functions: TrinoFunctions = TrinoFunctions()
    procedures: TrinoProcedures = TrinoProcedures()
    session_properties: TrinoSessionProperties = TrinoSessionProperties()
    execute_query: TrinoExecuteQuery = TrinoExecuteQuery()
    on_internal_failure: Literal["deny", "error"] = Field(
        "deny", description="what Trino gets where no answer can be made: a denial, or an error that its user sees"
    )


class Settings(Section):
    """All of the configuration."""

    server: Server = Server()
    limits: Limits = Limits()
    authorities: Mapping[str, AuthoritySettings] = Field(
        {"default": AuthoritySettings(engines=("cel", "grants"))},
        description="which engines decide for which warehouses",
    )
    warehouses: Mapping[str, Warehouse] = Field({}, description="warehouses by name")
    policies: Policies = Policies()
    row_access: RowAccessRules = RowAccessRules()
    store: StoreSettings = StoreSettings()
    audit: Audit = Audit()
    identity: Identity = Identity()
    trusted_engines: Mapping[str, TrustedEngineSettings] = Field(
        default_factory=dict, description="query engines whose word on views counts, by name"
    )
    trino: Trino = Trino()
    _base: Path = PrivateAttr(default_factory=Path.cwd)

    def path(self, relative: str) -> Path:
        """A path of the configuration, from the folder of pdp.yaml."""
        return self._base / relative

    def store_url(self) -> str:
        """The database's URL, with the path of an SQLite file made absolute."""
        scheme, _, path = self.store.url.partition("///")
        return f"{scheme}///{self.path(path)}" if scheme == "sqlite:" else self.store.url

    def sqlite_file(self) -> Path | None:
        """The SQLite file that keeps the facts, if one does."""
        scheme, _, path = self.store_url().partition("///")
        return Path(path) if scheme == "sqlite:" else None

    def with_policies(self, rules: Sequence[str] | None, world: str | None) -> Settings:
        """The same settings on other rule files or another world file; None keeps what is configured."""
        update: dict[str, Any] = {}
        if rules is not None:
            update["policies"] = self.policies.model_copy(update={"rules": tuple(rules)})
        if world is not None:
            update["store"] = self.store.model_copy(update={"url": f"file:{world}"})
        return self.model_copy(update=update)

    def paths(self, patterns: Sequence[str]) -> tuple[Path, ...]:
        """The files that globs name, sorted; a plain name stands for itself, whether it exists or not."""
        found: list[Path] = []
        for pattern in patterns:
            if any(mark in pattern for mark in "*?["):
                found += _matches(self._base, Path(pattern))
            else:
                found.append(self._base / pattern)
        return tuple(dict.fromkeys(found))


def _matches(base: Path, pattern: Path) -> list[Path]:
    try:
        return sorted(Path(pattern.anchor or base).glob(str(pattern.relative_to(pattern.anchor))))
    except ValueError as error:
        raise ConfigError(f"`{pattern}` is not a glob: {str(error).lower()}") from None


def load_settings(
    file: Path | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """The settings of a file, over which the environment goes, over which `section.key=value` overrides go.

    Raises ConfigError, naming the key, on anything that cannot be used.
    """
    data = _read(file) if file else {}
    for variable in sorted(environ):
        if variable.startswith(ENV_PREFIX):
            names = _spelt(variable[len(ENV_PREFIX) :].split("__"), data)
            _put(data, names, _yaml_value(environ[variable], variable), variable)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"`--set {override}` is not `section.key=value`")
        _put(data, key.split("."), _yaml_value(value, f"--set {key}"), f"--set {key}")
    return make_settings(data, file.resolve().parent if file else Path.cwd())


LATER: Final[Mapping[str, Any]] = {
    "server.workers": 1,
    "policies.cedar": {"policies": [], "entities": [], "schema": None},
    "policies.scopes": {"permissions": [], "strict": False},
    "policies.refresh_seconds": 5,
    "row_access.strict_dialects": True,
    "cache": {
        "redis": None, "redis_for": "auto", "mac_key": None,
        "ttl_seconds": 60, "timeout_ms": 5, "local_entries": 100000,
    },
    "audit.durability": "batch",
    "audit.on_full": "block",
    "audit.mask": [],
    "audit.sample_allows": {},
    "audit.hmac_key": None,
}  # fmt: skip
"""Keys of the public contract that this version knows by their default alone; another value is refused, because a
setting that is read over may leave open what it was to close."""


def make_settings(data: Mapping[str, Any], base: Path) -> Settings:
    """Settings from already merged data; relative paths start at `base`."""
    try:
        settings = Settings.model_validate(_with_secrets(_without_defaults_of_later(data), base))
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(problem) for problem in error.errors())) from None
    _refuse_strangers(settings)
    settings._base = base  # noqa: SLF001  pydantic keeps private attributes out of its constructor
    return settings


def _refuse_strangers(settings: Settings) -> None:
    """Nobody from elsewhere may connect while being on this machine is what makes a caller."""
    server, callers = settings.server, settings.identity.callers
    by_place = [name for name, rule in callers.items() if rule.loopback]
    for key, address in (("http", server.http), ("grpc", server.grpc)):
        if is_loopback(split_address(address)[0]) or (callers and not by_place):
            continue
        why = f"`identity.callers.{by_place[0]}` is" if by_place else "without `identity.callers` callers are"
        raise ConfigError(f"`server.{key}`: `{address}` is not a loopback address, and {why} known by loopback alone")
    for name, rule in callers.items():
        if rule.mtls and not server.tls.client_ca:
            raise ConfigError(f"`identity.callers.{name}.mtls` needs `server.tls.client_ca`: nobody signs the clients")


def _without_defaults_of_later(data: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: dict(value) if isinstance(value, Mapping) else value for key, value in data.items()}
    for key, default in LATER.items():
        section, _, name = key.partition(".")
        place = kept.get(section) if name else kept
        if not isinstance(place, dict) or (name or section) not in place:
            continue
        value = place.pop(name or section)
        whole = {**default, **value} if isinstance(default, dict) and isinstance(value, Mapping) else value
        if whole != default:
            raise ConfigError(f"`{key}` is not supported by this version: leave it out, or at its default {default!r}")
    return kept


def _with_secrets(data: dict[str, Any], base: Path) -> dict[str, Any]:
    """The data with `store.url` from the file that `store.url_file` names: an address may hold a password."""
    store = data.get("store")
    if not isinstance(store, dict) or "url_file" not in store:
        return data
    if "url" in store:
        raise ConfigError("`store.url` and `store.url_file` cannot both be set")
    file = base / str(store["url_file"])
    try:
        url = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read `store.url_file`, `{file}`: {type(error).__name__}") from None
    rest = {key: value for key, value in store.items() if key != "url_file"}
    return {**data, "store": {**rest, "url": url}}


def _read(file: Path) -> dict[str, Any]:
    try:
        data = strict.load_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read `{file}`: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"`{file}` is not YAML: {_one_line(error)}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"`{file}` must hold sections, such as `server:`")
    return data


def _put(target: dict[str, Any], names: Sequence[str], value: Any, said: str) -> None:
    """Set a nested key, as `said`."""
    *outer, last = names
    for name in outer:
        below = target.setdefault(name, {})
        if not isinstance(below, dict):
            raise ConfigError(f"{said} goes below `{name}`, which is a value")
        target = below
    target[last] = value


def _spelt(names: Sequence[str], known: Any) -> list[str]:
    """A variable's names as the file spells them where it has them, in lower case otherwise."""
    found = []
    for name in names:
        known = known if isinstance(known, Mapping) else {}
        alike = (str(key) for key in known if str(key).upper().replace("-", "_") == name.upper())
        found.append(next(alike, name.lower()))
        known = known.get(found[-1])
    return found


def _yaml_value(text: str, where: str) -> Any:
    try:
        return strict.load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not YAML: {_one_line(error)}") from None


def _explain(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key `{key}`"
    return f"`{key}`: {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
