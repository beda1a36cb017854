"""Migration of Lakekeeper's variables: trusted engines with policy tests, identity providers, instance admins.

Reads the variables of its OPA bridge, too: Trino's surface of this service does the bridge's work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from pdp.config.load import make_settings
from pdp.config.quarkus.properties import ConfigEntry
from pdp.errors import ConfigError, InvalidArgument
from pdp.offline.migration.providers import ProviderReader
from pdp.offline.migration.report import TESTS_FILE, Migration, Status, to_yaml
from pdp.offline.migration.variables import check_unique, read_variables

_PREFIX: Final = "LAKEKEEPER__"
_GRANTS: Final = "grants come by `pdp migrate openfga`"
_CEDAR: Final = "name policies and entities in `policies.cedar`, and the engine `cedar` in an authority (docs/cedar.md)"
_NO_COUNTERPART: Final[Mapping[str, str]] = {
    "cedar": _CEDAR,
    "role_provider": "pdp asks no directory: map roles of tokens (`identity.providers.<idp>.role_map`), or grant roles",
    "role_provider_file": "pdp asks no directory: map roles of tokens, or grant roles",
    "role_provider_chain": "pdp keeps no roles of tokens: a view owner's roles are those with grants of `assignee`",
    "openid_scope": "pdp tests no scope: tell tokens apart by `identity.providers.oidc.audiences`",
    "openid_additional_issuers": "list all issuers with their keys in `identity.providers.oidc.issuers`",
    "insecure_allow_unauthenticated": "pdp names every caller: see `identity.callers`",
    "enable_kubernetes_authentication": "add `identity.providers.kubernetes` with the cluster's issuer and jwks",
    "kubernetes_authentication_audience": "write it to `identity.providers.kubernetes.audiences`",
    "kubernetes_authentication_subject_source": "write the claim to `identity.providers.kubernetes.claims.subject`",
    "default_project_id": "name the project of each warehouse: `warehouses.<name>.project`",
}
"""First part of a variable's name -> reason why the variable is left."""
_CEDAR_KEYS: Final[Mapping[str, str]] = {
    "policy_sources__local_files": "write `policies.cedar.policies: {}`",
    "policy_sources__k8s_cm": "mount the ConfigMap, and name its files in `policies.cedar.policies`",
    "entity_json_sources__local_files": "write `policies.cedar.entities: {}`",
    "entity_json_sources__k8s_cm": "mount the ConfigMap, and name its files in `policies.cedar.entities`",
    "refresh_interval_secs": "write `policies.refresh_seconds: {}`",
    "refresh_disabled": "pdp always looks for changed policies, every `policies.refresh_seconds`",
    "schema_file": "write `policies.cedar.schema.replace: {}`",
    "schema_fragment_file": "write `policies.cedar.schema.extend: {}`",
    "externally_managed_user_and_roles": "users and roles are those of the token and of `policies.cedar.entities`",
    "user_derivations": "pdp derives no attributes: declare the users in `policies.cedar.entities`",
    "debug": "pdp logs no entities: `pdp explain` shows what a policy read",
}
"""Beginning of a name behind `CEDAR__` -> counterpart. `{}` is the value."""
_OWN: Final[Mapping[str, str]] = {
    "audit": "`audit` is this service's own",
    "bind": "`server.http` is the address here",
    "cache": "see `cache`",
    "listen": "`server.http` is the address here",
    "metrics": "metrics are at `/metrics` of `server.http`",
    "openfga": f"pdp asks no OpenFGA: {_GRANTS}",
    "pg": "`store.url` is the database here",
    "secret": "pdp keeps no secrets",
    "ssl": "`server.tls` has the certificates here",
}
"""First word of the name of another variable -> counterpart."""
_FOREIGN: Final[Mapping[str, str]] = {
    "OPENFGA": "of OpenFGA, which pdp does not need: `pdp migrate openfga` takes its tuples",
    "QUARKUS": "of Quarkus: `pdp migrate nessie` takes Nessie's rules",
    "NESSIE": "of Nessie: `pdp migrate nessie` takes its rules",
    "RUST": "of Lakekeeper's log: `PDP_LOG_LEVEL` sets the log here",
}
"""First word of the name of another program's variable -> counterpart."""


def migrate_lakekeeper(files: Sequence[Path]) -> Migration:
    """Return the migration of the variables in env files and manifests; raise InvalidArgument if there are none."""
    migration = Migration()
    read = [read_variables(file) for file in files]
    entries = [entry for one in read for entry in one.entries]
    own = [entry for entry in entries if entry.key.upper().startswith(_PREFIX)]
    bridge = [entry for entry in entries if is_bridge_variable(entry.key)]
    check_unique([*own, *bridge])
    if not own and not bridge:
        raise InvalidArgument(_nothing_found(entries))
    hidden = [entry for one in read for entry in one.elsewhere]
    for entry in hidden:
        if entry.key.upper().startswith(_PREFIX) or is_bridge_variable(entry.key):
            status: Status = "left" if _concerns(entry) else "ignored"
            migration.add(status, entry.key_place, entry.key, "its value stands in a secret or in another object")
    _report_others(migration, [*entries, *hidden])
    for key in (entry for one in read for entry in one.chart):
        message = "is a value of the Helm chart, which becomes variables: migrate the output of `helm template`"
        migration.add("left", key.key_place, f"`{key.key}`", message)
    settings = LakekeeperSettings(migration)
    settings.read(own)
    settings.data |= read_bridge(migration, bridge)
    _write(migration, settings.data)
    return migration


def _nothing_found(entries: Sequence[ConfigEntry]) -> str:
    if any(entry.key.startswith("OPENFGA_") for entry in entries):
        return "the variables tune OpenFGA, which pdp does not need: `pdp migrate openfga` takes its tuples"
    return f"no variables `{_PREFIX}...` found"


class LakekeeperSettings:
    """Settings of this service, collected from Lakekeeper's variables."""

    def __init__(self, migration: Migration) -> None:
        self.data: dict[str, Any] = {"authorities": {"default": {"engines": ["grants"]}}}
        self._migration = migration
        self._engines: dict[str, dict[str, Any]] = {}
        self._places: dict[str, ConfigEntry] = {}
        self._providers = ProviderReader(migration)
        self._other: Counter[str] = Counter()

    def read(self, entries: Sequence[ConfigEntry]) -> None:
        """Read all variables and report each."""
        for entry in entries:
            parts = entry.key[len(_PREFIX) :].lower().split("__")
            reader = self._reader(parts)
            if reader is not None:
                reader(entry, parts)
        self._finish_engines()
        self.data |= self._providers.settings(self.data.get("identity", {}))
        for first, count in sorted(self._other.items()):
            variables = "variable" if count == 1 else "variables"
            own = f"{count} {variables} of Lakekeeper itself"
            message = f"{own}: {_OWN[first]}" if first in _OWN else own
            self._migration.add("ignored", "", f"{_PREFIX}{first.upper()}", message)

    def _reader(self, parts: Sequence[str]) -> Callable[[ConfigEntry, Sequence[str]], None] | None:
        first = parts[0]
        if first == "trusted_engines":
            return self._engine
        if self._providers.reads(parts):
            return self._providers.read
        known = {"instance_admins": self._admins, "referenced_by": self._depth, "authz_backend": self._backend}
        if first in known:
            return known[first]
        if first in _NO_COUNTERPART:
            return self._left
        self._other[first.partition("_")[0]] += 1
        return None

    def _engine(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        match parts[1:]:
            case [name, ("type" | "owner_property") as key]:
                self._engines.setdefault(name, {})[key] = entry.text
            case [name, "identities", idp, ("audiences" | "subjects") as key]:
                values = self._values(entry)
                identities = self._engines.setdefault(name, {}).setdefault("identities", {})
                if values:
                    identities.setdefault(idp.replace("_", "-"), {})[key] = values
            case _:
                self._migration.add("left", entry.key_place, entry.key, "no such key of a trusted engine is known")
                return
        self._places.setdefault(parts[1], entry)
        if not self._is_reported(entry):
            self._migration.add("done", entry.key_place, entry.key)

    def _is_reported(self, entry: ConfigEntry) -> bool:
        return any(part.subject == entry.key for part in self._migration.left)

    def _values(self, entry: ConfigEntry) -> list[str]:
        """Return the texts of a list `[a, b]`, without placeholders."""
        values = list_of(entry)
        for value in values:
            if value.startswith("<") and value.endswith(">"):
                message = f"`{value}` is a placeholder: write the value of your identity provider and migrate again"
                self._migration.add("left", entry.key_place, entry.key, message)
        return [value for value in values if not value.startswith("<")]

    def _finish_engines(self) -> None:
        """Report engines that are not complete, and keep the others."""
        for name, engine in list(self._engines.items()):
            missing = [key for key in ("type", "owner_property", "identities") if not engine.get(key)]
            if missing:
                keys = ", ".join(f"`{key}`" for key in missing)
                message = f"{keys} is missing, so nobody is trusted: Lakekeeper would not start either"
                self._migration.add("left", self._places[name].key_place, f"trusted engine `{name}`", message)
                del self._engines[name]
        if self._engines:
            self.data["trusted_engines"] = self._engines

    def _admins(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        admins = [f"user:{value}" for value in self._values(entry)]
        self.data.setdefault("identity", {})["instance_admins"] = admins
        self._migration.add("done", entry.key_place, entry.key)

    def _depth(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        if parts[1:] != ["max_nesting_depth"] or not entry.text.isdigit():
            raise entry.error(f"`{entry.key}` is no number of views")
        self.data["limits"] = {"referenced_by_depth": int(entry.text)}
        self._migration.add("done", entry.key_place, entry.key)

    def _backend(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        backends: Mapping[str, tuple[Any, str]] = {
            "openfga": ("done", _GRANTS),
            "allowall": ("left", "Lakekeeper allows everything, and pdp denies without grants: write grants"),
            "cedar": ("left", _NO_COUNTERPART["cedar"]),
        }
        status, message = backends.get(entry.text.lower(), ("left", "no such backend is known"))
        self._migration.add(status, entry.key_place, entry.key, message)

    def _left(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        if entry.text.strip().lower() == "false":
            self._migration.add("ignored", entry.key_place, entry.key, "is off")
        else:
            message = _cedar_counterpart(entry, parts) if parts[0] == "cedar" else _NO_COUNTERPART[parts[0]]
            self._migration.add("left", entry.key_place, entry.key, message)


def _cedar_counterpart(entry: ConfigEntry, parts: Sequence[str]) -> str:
    """Return the keys to write in place of a variable of Cedar."""
    rest = "__".join(parts[1:])
    known = next((text for key, text in _CEDAR_KEYS.items() if f"{rest}__".startswith(f"{key}__")), "")
    return f"{known.format(entry.text.strip())}; {_CEDAR}" if known else _CEDAR


def _report_others(migration: Migration, entries: Sequence[ConfigEntry]) -> None:
    """Report the variables of other programs, by the first word of their names."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        if entry.key.upper().startswith(_PREFIX) or is_bridge_variable(entry.key):
            continue
        if entry.key.upper().startswith("LAKEKEEPER_"):
            message = f"no such variable is known: those of Lakekeeper begin with `{_PREFIX}`"
            migration.add("left", entry.key_place, entry.key, message)
        else:
            found.setdefault(entry.key.upper().partition("_")[0], set()).add(entry.key)
    for first, names in sorted(found.items()):
        variables = "1 variable" if len(names) == 1 else f"{len(names)} variables"
        migration.add("ignored", "", first, f"{variables} {_FOREIGN.get(first, 'of another program')}")


def list_of(entry: ConfigEntry) -> list[str]:
    """Return the texts of a value such as `[a, "b"]`; raise PolicyError for another value."""
    try:
        values = yaml.safe_load(entry.text)
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        raise entry.error(f"`{entry.key}` is no list: write `[{entry.text}]`")
    return [str(value) for value in values]


def _concerns(entry: ConfigEntry) -> bool:
    """Tell whether a variable can matter for decisions."""
    if is_bridge_variable(entry.key):
        return not _CLIENT.fullmatch(entry.key)
    first = entry.key[len(_PREFIX) :].lower().partition("__")[0]
    return first.startswith(("trusted", "instance", "openid", "authz", "cedar", "role", "referenced"))


def _write(migration: Migration, data: dict[str, Any]) -> None:
    try:
        make_settings(data, Path.cwd())
    except ConfigError as error:
        raise InvalidArgument(f"the variables make no valid configuration: {error}") from None
    migration.files["pdp.yaml"] = to_yaml(data, "Settings from Lakekeeper. Add callers, the store and the audit.")
    tests = engine_tests(data)
    if tests["cases"]:
        migration.files[TESTS_FILE] = to_yaml(tests, "Engines that Lakekeeper trusts, and everybody else.")


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


_USER: Final = "user:oidc~alice"
_WORLD: Final = {
    "objects": [],
    "grants": [
        {"principal": _USER, "privilege": "modify", "object": "view:lake/ns/v"},
        {"principal": "user:oidc~bob", "privilege": "select", "object": "table:lake/ns/t"},
    ],
}


def engine_tests(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of tests for all engines of some settings."""
    engines = settings.get("trusted_engines", {})
    return {
        "engines": ["grants"],
        "config": {key: settings[key] for key in ("trusted_engines", "limits") if key in settings},
        "world": _WORLD,
        "cases": [case for name, engine in engines.items() for case in _cases(name, engine)],
    }


def _cases(name: str, engine: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for idp, identity in engine["identities"].items():
        for audience in identity.get("audiences", ()):
            yield from _trusted(name, engine, {"idp": idp, "subject": "service", "audiences": [audience]})
        for subject in identity.get("subjects", ()):
            yield from _trusted(name, engine, {"idp": idp, "subject": subject, "audiences": []})
    yield from _stranger(engine)


def _trusted(name: str, engine: Mapping[str, Any], caller: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    known = f"{name} by {caller['idp']} {', '.join(caller['audiences']) or caller['subject']}"
    yield {
        "note": f"{known}: may name the owner of a view",
        "caller": caller,
        "commitView": _commit(engine["owner_property"]),
        "wantCommit": {"allowed": True},
    }
    yield {
        "note": f"{known}: its chains of views count",
        "caller": caller,
        "load": _load(engine["owner_property"]),
        "wantLoad": {"referencedByUsed": True},
    }


def _stranger(engine: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    caller = {"idp": next(iter(engine["identities"])), "subject": "nobody-in-the-settings", "audiences": []}
    key = engine["owner_property"]
    for spelling in (key, key.upper()):
        yield {
            "note": f"anybody else: may not set {spelling}",
            "caller": caller,
            "commitView": _commit(spelling),
            "wantCommit": {"allowed": False, "error": {"code": "ProtectedPropertyModification"}},
        }
    yield {
        "note": "anybody else: the chain of views is ignored",
        "caller": caller,
        "load": _load(key),
        "wantLoad": {"allowed": False, "referencedByUsed": False},
    }


def _commit(key: str) -> dict[str, Any]:
    return {"principal": _USER, "view": "view:lake/ns/v", "operation": "commit", "set": {key: "bob"}}


def _load(key: str) -> dict[str, Any]:
    return {
        "principal": _USER,
        "action": "loadTable",
        "target": "table:lake/ns/t",
        "referencedBy": "ns%1Fv",
        "views": [{"resource": "view:lake/ns/v", "properties": {key: "bob"}}],
    }
