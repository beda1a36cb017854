"""Migration of Lakekeeper's variables: trusted engines with policy tests, identity providers, instance admins.

Reads the variables of its OPA bridge, too: Trino's surface of this service does the bridge's work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pdp.config.load import make_settings
from pdp.config.quarkus.properties import ConfigEntry
from pdp.errors import ConfigError, InvalidArgument
from pdp.offline.migration.host_files import JOINED, differing_values
from pdp.offline.migration.java_options import doubtful_commands, replacing_parts
from pdp.offline.migration.lakekeeper_parts import (
    BRIDGE_NAMES,
    NAMED,
    OLD_PREFIX,
    PREFIX,
    PROVIDER_NAMES,
    ProviderReader,
    decides,
    is_bridge_variable,
    is_own,
    list_of,
    named_variables,
    read_bridge,
    report_texts,
)  # fmt: skip
from pdp.offline.migration.manifests import read_deployment
from pdp.offline.migration.report import (
    TESTS_FILE,
    Migration,
    Status,
    engine_tests,
    report_references,
    to_yaml,
    variables_of_some,
)
from pdp.offline.migration.variables import EACH_ALONE, ELSEWHERE, ManifestContent, check_unique

_IMAGE: Final = re.compile(r"(?:^|/)lakekeeper/(?:catalog|lakekeeper)(?:[:@]|$)")
"""Name of an image of Lakekeeper."""
_BRIDGE_IMAGE: Final = re.compile(r"(?:^|/)openpolicyagent/opa(?:[:@]|$)")
_GRANTS: Final = "grants come by `pdp migrate openfga`"
_CEDAR: Final = "name policies and entities in `policies.cedar`, and the engine `cedar` in an authority (docs/cedar.md)"
_NO_COUNTERPART: Final[Mapping[str, str]] = {
    "cedar": _CEDAR,
    "role_provider": "pdp asks no directory: map roles of tokens (`identity.providers.<idp>.role_map`), or grant roles",
    "role_provider_file": "pdp asks no directory: map roles of tokens, or grant roles",
    "role_provider_chain": "pdp keeps no roles of tokens: a view owner's roles are those with grants of `assignee`",
    "insecure_allow_unauthenticated": "pdp names every caller: see `identity.callers`",
    "enable_kubernetes_authentication": "add `identity.providers.kubernetes` with the cluster's issuer and jwks",
    "kubernetes_authentication_audience": "write it to `identity.providers.kubernetes.audiences`",
    "kubernetes_authentication_subject_source": "write the claim to `identity.providers.kubernetes.claims.subject`",
    "kubernetes_authentication_accept_legacy_serviceaccount": "write the issuer to `identity.providers.kubernetes`",
    "default_project_id": "name the project of each warehouse: `warehouses.<name>.project`",
    "maintenance_mode": "pdp has no such mode: it decides about writes at all times",
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
_NO_POLICY: Final = frozenset(
    """audit cache debug idempotency kafka kv2 license log metrics nats openfga pagination pg s3 ssl task ui""".split()  # noqa: SIM905
)
"""First words of the names of variables without a policy, in any spelling."""
_NO_POLICY_NAMES: Final = frozenset(
    """allow_origin base_uri bind_ip default_tabular_expiration_delay_seconds enable_aws_system_credentials
    enable_azure_system_credentials enable_default_project enable_gcp_system_credentials endpoint_stat_flush_interval
    health_check_frequency_seconds listen_port max_request_body_size max_request_time openid_display_name_template
    reserved_namespaces role secret_backend serve_swagger_ui skip_storage_validation use_x_forwarded_headers""".split()  # noqa: SIM905
)
"""First parts of the names of Lakekeeper's other variables without a policy."""


def migrate_lakekeeper(files: Sequence[Path]) -> Migration:
    """Return the migration of the variables in env files and manifests; raise InvalidArgument if there are none."""
    migration = Migration()
    read = read_deployment(files, NAMED, _IMAGE)
    entries = [entry for one in read for entry in one.variables]
    hidden = [entry for one in read for entry in one.elsewhere]
    named = list(named_variables(read))
    unknown = {_today(entry.key) for entry in (*hidden, *named)}
    doubtful = [*doubtful_commands(read, is_own), *((entry, JOINED) for entry in differing_values(read))]
    doubtful += replacing_parts(read, files)
    for entry, message in doubtful:
        migration.add("left", entry.place(), f"`{entry.key}`", message)
    unknown |= {_today(entry.key) for entry in entries if doubtful}
    own = _settled(migration, _own_entries(migration, entries), unknown)
    bridge = _settled(migration, [entry for entry in entries if is_bridge_variable(entry.key)], unknown)
    alone = _of_some_servers(migration, read)
    own, bridge = ([entry for entry in some if entry.key not in alone] for some in (own, bridge))
    check_unique([*own, *bridge])
    left = report_references(migration, read, files)
    has_policies = report_texts(migration, read)
    if not own and not bridge and not migration.left and not any(is_own(entry.key) for entry in hidden):
        raise InvalidArgument(_nothing_found(entries))
    own_hidden = _own_entries(migration, hidden)
    bridge_hidden = [entry for entry in hidden if is_bridge_variable(entry.key)]
    for entry in (*own_hidden, *bridge_hidden):
        status: Status = "left" if _concerns(entry) else "ignored"
        migration.add(status, entry.key_place, entry.key, ELSEWHERE)
    _report_others(migration, [*entries, *hidden])
    more = [*named, *alone.values()]
    own_hidden += [one._replace(key=_today(one.key)) for one in more if _today(one.key).startswith(PREFIX)]
    bridge_hidden += [entry for entry in more if is_bridge_variable(entry.key)]
    unread = next((reference.entry.key for reference in left if not reference.is_volume), "")
    settings = LakekeeperSettings(migration, unread)
    settings.read(own, own_hidden)
    settings.data |= read_bridge(migration, bridge, bridge_hidden, is_whole=not (left or has_policies or doubtful))
    _write(migration, settings.data)
    return migration


def _own_entries(migration: Migration, entries: Sequence[ConfigEntry]) -> list[ConfigEntry]:
    """Return Lakekeeper's entries under the names of today."""
    present = {entry.key.upper() for entry in entries}
    found = []
    for entry in entries:
        name = entry.key.upper()
        if name.startswith(PREFIX):
            found.append(entry._replace(key=name))
        elif name.startswith(OLD_PREFIX):
            today = PREFIX + name.removeprefix(OLD_PREFIX)
            if today in present:
                migration.add("ignored", entry.key_place, entry.key, f"Lakekeeper prefers `{today}`")
            else:
                found.append(entry._replace(key=today))
    return found


def _today(name: str) -> str:
    """Return the name of today of a variable of Lakekeeper; another name as it is."""
    upper = name.upper()
    for prefix in (PREFIX, OLD_PREFIX):
        if upper.startswith(prefix):
            return PREFIX + upper.removeprefix(prefix)
    return name


def _settled(migration: Migration, entries: Sequence[ConfigEntry], unknown: Collection[str]) -> list[ConfigEntry]:
    """Return the variables whose value is known; report those that another part sets, too."""
    for entry in entries:
        if entry.key in unknown and _concerns(entry):
            message = "another part that is left may set it, too, so its value is not known: write it once"
            migration.add("left", entry.key_place, entry.key, message)
    return [entry for entry in entries if entry.key not in unknown or not _concerns(entry)]


def _of_some_servers(migration: Migration, read: Sequence[ManifestContent]) -> dict[str, ConfigEntry]:
    """Return variables in which several servers differ, and report them: together, they permit more than each."""
    found: dict[str, ConfigEntry] = {}
    for name_of, image in ((_own_name, _IMAGE), (_bridge_name, _BRIDGE_IMAGE)):
        alone = variables_of_some(read, name_of, image)
        found |= {name: entry for (name, _), entry in alone.items()}
    for entry in found.values():
        message = f"is a variable of one server of several: {EACH_ALONE}"
        migration.add("left", entry.key_place, entry.key, message)
    return found


def _own_name(entry: ConfigEntry) -> str:
    """Return the name of today of a variable of Lakekeeper that can matter for decisions, else ""."""
    name = _today(entry.key)
    return name if name.startswith(PREFIX) and _concerns(entry._replace(key=name)) else ""


def _bridge_name(entry: ConfigEntry) -> str:
    return entry.key if is_bridge_variable(entry.key) and decides(entry.key) else ""


def _nothing_found(entries: Sequence[ConfigEntry]) -> str:
    if any(entry.key.startswith("OPENFGA_") for entry in entries):
        return "the variables tune OpenFGA, which pdp does not need: `pdp migrate openfga` takes its tuples"
    return f"no variables `{PREFIX}...` found"


_FOREIGN: Final[Mapping[str, str]] = {
    "OPENFGA": "of OpenFGA, which pdp does not need: `pdp migrate openfga` takes its tuples",
    "QUARKUS": "of Quarkus: `pdp migrate nessie` takes Nessie's rules",
    "NESSIE": "of Nessie: `pdp migrate nessie` takes its rules",
    "RUST": "of Lakekeeper's log: `PDP_LOG_LEVEL` sets the log here",
}
"""First word of the name of another program's variable -> counterpart."""


def _report_others(migration: Migration, entries: Sequence[ConfigEntry]) -> None:
    """Report the variables of other programs, by the first word of their names."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        name = entry.key.upper()
        if name.startswith((PREFIX, OLD_PREFIX)) or is_bridge_variable(entry.key):
            continue
        if _is_misspelt(name):
            message = f"no such variable is known: those of Lakekeeper begin with `{PREFIX}`"
            near = get_close_matches(name, BRIDGE_NAMES, 1)
            hint = f", and its OPA bridge has `{near[0]}`" if near else ""
            migration.add("left", entry.key_place, entry.key, message + hint)
        else:
            found.setdefault(entry.key.upper().partition("_")[0], set()).add(entry.key)
    for first, names in sorted(found.items()):
        variables = "1 variable" if len(names) == 1 else f"{len(names)} variables"
        migration.add("ignored", "", first, f"{variables} {_FOREIGN.get(first, 'of another program')}")


def _is_misspelt(name: str) -> bool:
    """Tell whether a name is nearly a name of Lakekeeper or of the bridge."""
    first, separator, _ = name.partition("__")
    is_near = bool(separator and get_close_matches(first, (PREFIX.rstrip("_"), OLD_PREFIX.rstrip("_")), 1, 0.8))
    return name.startswith("LAKEKEEPER_") or is_near or bool(get_close_matches(name, BRIDGE_NAMES, 1, 0.85))


_POLICY_NAMES: Final = ("instance_admins", "referenced_by", "authz_backend")


class LakekeeperSettings:
    """Settings of this service from Lakekeeper's variables. `unread`: a part with possible further variables."""

    def __init__(self, migration: Migration, unread: str = "") -> None:
        self.data: dict[str, Any] = {"authorities": {"default": {"engines": ["grants"]}}}
        self._migration = migration
        self._engines: dict[str, dict[str, Any]] = {}
        self._places: dict[str, ConfigEntry] = {}
        self._providers = ProviderReader(migration, unread)
        self._other: Counter[str] = Counter()

    def read(self, entries: Sequence[ConfigEntry], hidden: Sequence[ConfigEntry] = ()) -> None:
        """Read all variables and report each. `hidden`: variables without a value, reported already."""
        for entry in entries:
            parts = _parts(entry)
            reader = self._reader(parts)
            if reader is not None:
                reader(entry, parts)
        for entry in hidden:
            if self._providers.reads(_parts(entry)):
                self._providers.hide(_parts(entry))
        self._finish_engines()
        self.data |= self._providers.settings(self.data.get("identity", {}))
        for first, count in sorted(self._other.items()):
            variables = "variable" if count == 1 else "variables"
            own = f"{count} {variables} of Lakekeeper itself"
            message = f"{own}: {_OWN[first]}" if first in _OWN else own
            self._migration.add("ignored", "", f"{PREFIX}{first.upper()}", message)

    def _reader(self, parts: Sequence[str]) -> Callable[[ConfigEntry, Sequence[str]], None] | None:
        first = parts[0]
        if first == "trusted_engines":
            return self._engine
        if self._providers.reads(parts):
            return self._providers.read
        known = dict(zip(_POLICY_NAMES, (self._admins, self._depth, self._backend), strict=True))
        if first in known:
            return known[first]
        if first in _NO_COUNTERPART:
            return self._left
        word = first.partition("_")[0]
        if word not in _NO_POLICY and first not in _NO_POLICY_NAMES:
            return self._unknown
        self._other[word] += 1
        return None

    def _unknown(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        known = ("trusted_engines", *_POLICY_NAMES, *PROVIDER_NAMES, *_NO_COUNTERPART, *_NO_POLICY_NAMES)
        near = get_close_matches(parts[0], known, 1)
        hint = f": did you mean `{PREFIX}{near[0].upper()}`?" if near else ""
        message = f"Lakekeeper has no such variable, and it may be misspelt{hint}"
        self._migration.add("left", entry.key_place, entry.key, message)

    def _engine(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        match parts[1:]:
            case [name, ("type" | "owner_property") as key]:
                self._engines.setdefault(name, {})[key] = entry.text
                self._migration.note(("trusted_engines", name, key), entry)
            case [name, "identities", idp, ("audiences" | "subjects") as key]:
                values = self._values(entry)
                identities = self._engines.setdefault(name, {}).setdefault("identities", {})
                if values:
                    identities.setdefault(idp.replace("_", "-"), {})[key] = values
                    self._migration.note(("trusted_engines", name, "identities", idp.replace("_", "-"), key), entry)
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
        self._migration.note(("identity", "instance_admins"), entry)
        self._migration.add("done", entry.key_place, entry.key)

    def _depth(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        if parts[1:] != ["max_nesting_depth"] or not re.fullmatch("[0-9]{1,9}", entry.text):
            raise entry.error(f"`{entry.key}` is no number of views")
        self.data["limits"] = {"referenced_by_depth": int(entry.text)}
        self._migration.note(("limits", "referenced_by_depth"), entry)
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
        if entry.text.strip().lower() in ("false", "off"):
            self._migration.add("ignored", entry.key_place, entry.key, "is off")
        else:
            message = _cedar_counterpart(entry, parts) if parts[0] == "cedar" else _NO_COUNTERPART[parts[0]]
            self._migration.add("left", entry.key_place, entry.key, message)


def _cedar_counterpart(entry: ConfigEntry, parts: Sequence[str]) -> str:
    """Return the keys to write in place of a variable of Cedar."""
    rest = "__".join(parts[1:])
    known = next((text for key, text in _CEDAR_KEYS.items() if f"{rest}__".startswith(f"{key}__")), "")
    return f"{known.format(entry.text.strip())}; {_CEDAR}" if known else _CEDAR


def _parts(entry: ConfigEntry) -> list[str]:
    """Return the parts of the name behind the prefix."""
    return entry.key[len(PREFIX) :].lower().split("__")


def _concerns(entry: ConfigEntry) -> bool:
    """Tell whether a variable can matter for decisions."""
    if is_bridge_variable(entry.key):
        return decides(entry.key)
    first = _parts(entry)[0]
    return first.partition("_")[0] not in _NO_POLICY and first not in _NO_POLICY_NAMES


def _write(migration: Migration, data: dict[str, Any]) -> None:
    try:
        make_settings(data, Path.cwd(), migration.origins)
    except ConfigError as error:
        raise InvalidArgument(f"the variables make no valid configuration: {error}") from None
    migration.files["pdp.yaml"] = to_yaml(data, "Settings from Lakekeeper. Add callers, the store and the audit.")
    tests = engine_tests(data)
    if tests["cases"]:
        migration.files[TESTS_FILE] = to_yaml(tests, "Engines that Lakekeeper trusts, and everybody else.")
