"""Parts of a Lakekeeper beside its engines: identity providers, the OPA bridge, and variables of other programs.

Defaults are those of Lakekeeper, and of the `configuration.rego` of its bridge: four catalogs, also without variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import yaml

from pdp.config.quarkus.properties import ConfigEntry
from pdp.model import strict
from pdp.offline.migration.report import Migration, Status
from pdp.offline.migration.variables import OF_EXTENSION, OF_HOOKS, OF_OTHERS, ManifestContent

PRIMARY: Final = "oidc"
"""Id of the provider of `OPENID_PROVIDER_URI`."""
_KEYS: Final[Mapping[str, str]] = {
    "openid_provider_uri": "uri",
    "openid_audience": "audience",
    "openid_subject_claim": "subject_claims",
    "openid_roles_claim": "roles_claim",
    "openid_scope": "scope",
    "openid_additional_issuers": "additional_issuers",
}
_UNKNOWN_KEY: Final = "no such key of a provider is known: write `OPENID_PROVIDERS__<ID>__<KEY>` for each key"
PROVIDER_NAMES: Final = (*_KEYS, "openid_providers")
"""First parts of the names of variables about providers."""
_KNOWN: Final = (*_KEYS.values(), "require_connected_on_startup", "display_name_template")
_PATHS: Final[Mapping[str, Sequence[str]]] = {
    "uri": ("issuer", "jwks"), "audience": ("audiences",), "subject_claims": ("claims.subject",),
    "roles_claim": ("claims.roles",),
}  # fmt: skip
"""Key -> keys of a provider here."""
_SUBJECT: Final = ["oid", "sub"]
"""Lakekeeper's claims of the subject, as long as no variable names others."""
_LEFT: Final[Mapping[str, str]] = {
    "scope": "pdp tests no scope: tell tokens apart by `identity.providers.{}.audiences`",
    "additional_issuers": "list all issuers with their keys in `identity.providers.{}.issuers`",
}
"""Key without a counterpart -> reason."""
_KEYCLOAK: Final = "/realms/"
_DISCOVERY: Final = "/.well-known/openid-configuration"
"""End of the address of a provider's metadata, beyond the issuer."""


class ProviderReader:
    """Reader of the variables of all providers. `unread`: a part with possible further variables."""

    def __init__(self, migration: Migration, unread: str = "") -> None:
        self._migration = migration
        self._unread = unread
        self._entries: dict[str, dict[str, ConfigEntry]] = {}
        self._hidden: dict[str, set[str]] = {}
        self._tables: set[str] = set()

    def reads(self, parts: Sequence[str]) -> bool:
        """Tell whether a variable describes a provider."""
        return parts[0] in PROVIDER_NAMES

    def read(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        """Keep a variable for `settings`."""
        if parts[0] in _KEYS or (len(parts) == 3 and parts[2] in _KNOWN):
            idp, key = (PRIMARY, _KEYS[parts[0]]) if parts[0] in _KEYS else (parts[1].replace("_", "-"), parts[2])
            earlier = self._entries.setdefault(idp, {}).setdefault(key, entry)
            if earlier is not entry:
                message = f"`{earlier.key}` describes the provider `{idp}`, too: keep one of them"
                self._migration.add("left", entry.key_place, entry.key, message)
                self._hidden.setdefault(idp, set()).add(key)
        else:
            self._hide_whole(parts)
            self._migration.add("left", entry.key_place, entry.key, _UNKNOWN_KEY)

    def _hide_whole(self, parts: Sequence[str]) -> None:
        """Note a variable that may set any key, such as a table: of one provider, or of all."""
        hidden = self._hidden.setdefault(parts[1].replace("_", "-"), set()) if len(parts) > 1 else self._tables
        hidden.add("__".join(parts).upper())

    def hide(self, parts: Sequence[str]) -> None:
        """Note a variable without a value: its provider is not known well enough to be written."""
        if parts[0] in _KEYS:
            self._hidden.setdefault(PRIMARY, set()).add(_KEYS[parts[0]])
        elif len(parts) == 3:
            self._hidden.setdefault(parts[1].replace("_", "-"), set()).add(parts[2])
        else:
            self._hide_whole(parts)

    def settings(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Return the section `identity` with the providers, and report every variable."""
        providers = {}
        for idp, entries in self._entries.items():
            provider = self._provider(idp, entries)
            if provider:
                providers[idp] = provider
        merged = {**identity, **({"providers": providers} if providers else {})}
        return {"identity": merged} if merged else {}

    def _provider(self, idp: str, entries: Mapping[str, ConfigEntry]) -> dict[str, Any] | None:
        """Return the settings of a provider; None without an address of its keys that the service takes."""
        uri = entries.get("uri")
        why = self._reason_to_leave(idp, entries)
        if uri is None:
            lines = (entry for key, entry in entries.items() if key not in _LEFT)
            self._report("left", lines, f"the provider `{idp}` has no URI, so it verifies no token")
            return None
        issuer = uri.text.rstrip("/").removesuffix(_DISCOVERY).rstrip("/")
        jwks = f"{issuer}/protocol/openid-connect/certs" if _KEYCLOAK in issuer else ""
        provider: dict[str, Any] = {"issuer": issuer, "jwks": jwks}
        for key, entry in entries.items():
            for path in _PATHS.get(key, ()):
                self._migration.note(("identity", "providers", idp, *path.split(".")), entry)
        if "audience" in entries:
            provider["audiences"] = _texts(entries["audience"])
        provider["claims"] = _claims(entries)
        safe = jwks.startswith("https://")
        if not safe:
            provider["jwks"] = f"<jwks_uri of {issuer}/.well-known/openid-configuration, by https, or a file>"
        if why or not safe:
            address = "keys come over https only" if jwks else "the address of the keys is not in the variables"
            text = yaml.safe_dump(provider, default_flow_style=True, sort_keys=False, width=100_000).strip()
            lines = (entry for key, entry in entries.items() if key not in _LEFT)
            self._report("left", lines, f"{why or address}: write `identity.providers.{idp}: {text}`")
            return None
        self._report("done", (entry for key, entry in entries.items() if key not in ("uri", *_LEFT)), "")
        if "audience" not in entries:
            message = (
                f"no audience: every token is refused until `identity.providers.{idp}.audiences` names the service"
            )
            self._report("note", [uri], message)
        if "subject_claims" not in entries:
            message = "no variable names the claim of the subject: it is `oid`, else `sub`, as in Lakekeeper"
            self._report("note", [uri], message)
        message = f"`issuer` and `jwks` are those of Keycloak: compare with {issuer}/.well-known/openid-configuration"
        self._report("note", [uri], message)
        return provider

    def _reason_to_leave(self, idp: str, entries: Mapping[str, ConfigEntry]) -> str:
        """Return the reason why a provider is not written, or "", and report the keys without a counterpart.

        A scope takes tokens away, so a provider without it would know more principals than Lakekeeper does. More
        issuers only add tokens.
        """
        for key, message in _LEFT.items():
            if key in entries and entries[key].text.strip():
                self._report("left", [entries[key]], message.format(idp))
            elif key in entries:
                self._report("ignored", [entries[key]], "is empty")
        hidden = sorted((self._hidden.get(idp, set()) | self._tables) - {"additional_issuers"})
        if hidden:
            return f"the value of `{hidden[0]}` stands elsewhere, so the provider is not written"
        if self._unread and "scope" not in entries:
            return f"`{self._unread}` may hold a scope, without which more tokens would count"
        return "a token without the scope would count" if "scope" in entries and entries["scope"].text.strip() else ""

    def _report(self, status: Status, entries: Iterable[ConfigEntry], message: str) -> None:
        for entry in entries:
            self._migration.add(status, entry.key_place, entry.key, message)


def _claims(entries: Mapping[str, ConfigEntry]) -> dict[str, Any]:
    """Return the claims. Of several for the subject, the first present claim counts."""
    subject = _texts(entries["subject_claims"]) if "subject_claims" in entries else _SUBJECT
    claims: dict[str, Any] = {"subject": subject[0] if len(subject) == 1 else subject}
    return claims | ({"roles": entries["roles_claim"].text.strip()} if "roles_claim" in entries else {})


def _texts(entry: ConfigEntry) -> list[str]:
    """Return the texts of a value with commas, or of a list; raise PolicyError for a list of other things."""
    if not entry.text.strip().startswith("["):
        return _parts(entry.text)
    try:
        values = strict.load_yaml(entry.text)
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        what = "claims" if "CLAIM" in entry.key else "audiences"
        raise entry.error(f"`{entry.key}` is no list of {what}: write them with commas between")
    return values


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


PREFIX: Final = "LAKEKEEPER__"
"""Beginning of Lakekeeper's own variables."""
OLD_PREFIX: Final = "ICEBERG_REST__"
"""Older beginning. Lakekeeper prefers `PREFIX`."""
STOCK_CATALOGS: Final[Mapping[str, tuple[str, str]]] = {
    "DEV": ("dev", "development"),
    "PROD": ("prod", "production"),
    "DEMO": ("demo", "demo"),
    "LAKEKEEPER": ("lakekeeper", "lakekeeper"),
}
"""Part of a variable's name -> catalog of Trino and warehouse of Lakekeeper, as long as no variable names others."""
_CATALOG: Final = re.compile(r"TRINO_(\w+)_CATALOG_NAME")
_WAREHOUSE: Final = re.compile(r"LAKEKEEPER_([A-Z0-9]\w*)_WAREHOUSE")
_ADMINS: Final = "TRINO_ADMIN_USERS"
_UNMANAGED: Final = "TRINO_ALLOW_UNMANAGED_CATALOGS"
_TOKENS: Final = "LAKEKEEPER_TOKEN_ENDPOINT"
"""Variable of every bridge."""
_CLIENT: Final = re.compile(r"LAKEKEEPER_(URL|TOKEN_ENDPOINT|CLIENT_ID|CLIENT_SECRET|SCOPE|MAX_BATCH_CHECK_SIZE)")
BRIDGE_NAMES: Final = (_ADMINS, _UNMANAGED, *(f"TRINO_{id}_CATALOG_NAME" for id in STOCK_CATALOGS))
"""Variables of Trino's part of the bridge."""


def is_bridge_variable(name: str) -> bool:
    """Tell whether a variable configures the OPA bridge."""
    patterns = (_CATALOG, _WAREHOUSE, _CLIENT)
    return name in (_ADMINS, _UNMANAGED) or any(pattern.fullmatch(name) for pattern in patterns)


OWN_NAME: Final = re.compile(rf"^(?:{PREFIX}|{OLD_PREFIX})", re.IGNORECASE)


def is_own(name: str) -> bool:
    """Tell whether a variable belongs to Lakekeeper or the bridge."""
    return bool(OWN_NAME.search(name)) or is_bridge_variable(name)


def decides(name: str) -> bool:
    """Tell whether a variable of the bridge matters for decisions."""
    return not _CLIENT.fullmatch(name)


def read_bridge(
    migration: Migration, entries: Sequence[ConfigEntry], hidden: Sequence[ConfigEntry], *, is_whole: bool = True
) -> dict[str, Any]:
    """Return the sections `trino` and `warehouses`, and report every variable.

    `hidden`: variables without a value. `is_whole`: no part is left with possible further catalogs.
    """
    trino: dict[str, Any] = {}
    for entry in entries:
        if entry.key == _ADMINS:
            migration.note(("trino", "admin_users"), entry)
            trino["admin_users"] = [name.strip() for name in entry.text.split(",") if name.strip()]
        elif entry.key == _UNMANAGED:
            trino["unmanaged_catalogs"] = "allow" if entry.text == "true" else "deny"
            if entry.text not in ("true", "false"):
                message = f"is `{entry.text}`, and the bridge takes nothing but `true` for true: this is `deny` here"
                migration.add("note", entry.key_place, entry.key, message)
                continue
        elif _CLIENT.fullmatch(entry.key):
            migration.add("ignored", entry.key_place, entry.key, "pdp asks no Lakekeeper: it decides itself")
            continue
        migration.add("done", entry.key_place, entry.key)
    if not any(decides(entry.key) or entry.key == _TOKENS for entry in (*entries, *hidden)):
        return {}
    pairs, complete = _CatalogReader(migration, entries, hidden).pairs()
    if trino.get("unmanaged_catalogs") == "allow" and not (complete and is_whole):
        trino["unmanaged_catalogs"] = "deny"
        message = "a catalog of an unknown name would be open to everybody: `trino.unmanaged_catalogs` is `deny`"
        migration.add("left", "", _UNMANAGED, f"{message}; write `allow` after all catalogs are in `trino.catalogs`")
    trino["catalogs"] = {name: {"warehouse": warehouse} for name, warehouse in pairs.items()}
    return {"trino": trino, "warehouses": {warehouse: {} for warehouse in pairs.values()}}


class _CatalogReader:
    """Reader of the pairs of a catalog and a warehouse."""

    def __init__(self, migration: Migration, entries: Sequence[ConfigEntry], hidden: Sequence[ConfigEntry]) -> None:
        self._migration = migration
        self._names = _by_id(_CATALOG, entries)
        self._warehouses = _by_id(_WAREHOUSE, entries)
        self._hidden = _by_id(_CATALOG, hidden) | _by_id(_WAREHOUSE, hidden)

    def pairs(self) -> tuple[dict[str, str], bool]:
        """Return the warehouse of each catalog, and whether all catalogs are known."""
        pairs: dict[str, str] = {}
        complete = not self._hidden
        unnamed = []
        for id in dict.fromkeys((*self._names, *self._warehouses, *STOCK_CATALOGS)):
            if id in self._hidden:
                continue
            pair = self._pair(id)
            if pair is None:
                complete = False
                continue
            name, warehouse = pair
            if name != name.lower():
                entry = self._names[id]
                message = f"Trino has no catalog `{name}`, because its names are in lower case: write `trino.catalogs`"
                self._migration.add("left", entry.key_place, f"catalog `{name}`", message)
                complete = False
                continue
            if name in pairs:
                entry = self._names.get(id) or next(iter(self._names.values()))
                raise entry.error(f"two catalogs of the bridge have the name `{name}`: name each catalog once")
            pairs[name] = warehouse
            for entry in filter(None, (self._names.get(id), self._warehouses.get(id))):
                self._migration.note(("trino", "catalogs", name), entry)
                self._migration.note(("warehouses", warehouse), entry)
            if id not in self._names and id not in self._warehouses:
                unnamed.append(f"`{name}` with the warehouse `{warehouse}`")
        if unnamed:
            message = f"the bridge has more catalogs without a variable: {', '.join(unnamed)}"
            self._migration.add("note", "", "trino.catalogs", f"{message}; remove those that Trino does not have")
        return pairs, complete

    def _pair(self, id: str) -> tuple[str, str] | None:
        """Return catalog and warehouse; None, and a line of the report, if either is unknown."""
        found = (self._names.get(id), self._warehouses.get(id))
        for entry in found:
            if entry is not None and not entry.text:
                raise entry.error(f"`{entry.key}` is empty: write the name, or remove the variable for the default")
        stock = STOCK_CATALOGS.get(id)
        name, warehouse = (entry.text if entry else None for entry in found)
        if stock is not None:
            return name or stock[0], warehouse or stock[1]
        if name is None or warehouse is None:
            entry = found[0] or found[1]
            missing = f"LAKEKEEPER_{id}_WAREHOUSE" if warehouse is None else f"TRINO_{id}_CATALOG_NAME"
            message = f"`{missing}` is missing, and the bridge has a default for {_stock_names()} alone"
            place = entry.key_place if entry else ""
            self._migration.add("left", place, f"catalog `{id.lower()}`", f"{message}: write `trino.catalogs`")
            return None
        message = (
            f"the bridge's own files read {_stock_names()} alone: your files have this pair, too, or nobody reads it"
        )
        self._migration.add("note", found[0].key_place if found[0] else "", f"catalog `{name}`", message)
        return name, warehouse


def _by_id(pattern: re.Pattern[str], entries: Sequence[ConfigEntry]) -> dict[str, ConfigEntry]:
    matches = ((pattern.fullmatch(entry.key), entry) for entry in entries)
    return {match[1]: entry for match, entry in matches if match}


def _stock_names() -> str:
    return ", ".join(f"`{id}`" for id in STOCK_CATALOGS)


_LOOKS: Final = re.compile(
    rf"{PREFIX}|{OLD_PREFIX}|TRINO_\w+_CATALOG_NAME|LAKEKEEPER_\w+_WAREHOUSE|{_ADMINS}|{_UNMANAGED}", re.IGNORECASE
)
"""Text about variables of Lakekeeper or its bridge."""
_POLICIES: Final[Mapping[str, str]] = {
    ".rego": "a policy of the OPA bridge may name catalogs and users: write `trino.catalogs` and `trino.admin_users`",
    ".cedar": "name policies of Cedar in `policies.cedar` (docs/cedar.md)",
}
"""Suffix of a file inside a manifest -> what to write instead."""


_NAMES_SET: Final = re.compile(
    rf"(?:{PREFIX}|{OLD_PREFIX})\w+|TRINO_\w+_CATALOG_NAME|LAKEKEEPER_\w+_WAREHOUSE|{_ADMINS}|{_UNMANAGED}",
    re.IGNORECASE,
)
NAMED: Final = re.compile(rf"^(?:{_NAMES_SET.pattern})$", re.IGNORECASE)
"""Name of a variable of Lakekeeper, or of the bridge about decisions."""


def named_variables(read: Sequence[ManifestContent]) -> Iterator[ConfigEntry]:
    """Yield a variable without a value for each name in a text that is left, because the text may set the variable."""
    for one in read:
        dropped = (entry for entry, message in one.dropped if message not in (OF_OTHERS, OF_EXTENSION, OF_HOOKS))
        references = (reference.entry for reference in one.references)
        for entry in (*one.rest, *one.commands, *one.files, *one.mounted, *dropped, *references):
            if PurePosixPath(entry.key).suffix not in _POLICIES:
                for match in _NAMES_SET.finditer(f"{entry.key} {entry.text}"):
                    yield entry._replace(key=match[0].upper(), text="")


def report_texts(migration: Migration, read: Sequence[ManifestContent]) -> bool:
    """Report values of charts and other texts about Lakekeeper; tell whether there are any."""
    before = len(migration.left)
    for key in (entry for one in read for entry in one.chart):
        message = "is a value of the Helm chart, which becomes variables: migrate the output of `helm template`"
        migration.add("left", key.key_place, f"`{key.key}`", message)
    for one in read:
        known = {(entry.key, entry.text) for entry in one.variables}
        texts = ((entry, "") for entry in (*one.rest, *one.commands, *one.files, *one.mounted))
        for entry, message in (*one.dropped, *texts):
            suffix = PurePosixPath(entry.key).suffix
            if suffix in _POLICIES and entry.text:
                migration.add("left", entry.place(), f"`{entry.key}`", _POLICIES[suffix])
            elif (_LOOKS.search(entry.key) or _LOOKS.search(entry.text)) and (entry.key, entry.text) not in known:
                told = message or (_SETS if entry in one.commands else _NOT_READ)
                migration.add("left", entry.place(), f"`{entry.key.lstrip('.') or 'a text'}`", told)
    return len(migration.left) > before


_NOT_READ: Final = "names variables, and stands where Lakekeeper does not read them"
_SETS: Final = "may set variables when the server starts: write them into a file, or into the manifest"


def list_of(entry: ConfigEntry) -> list[str]:
    """Return the texts of a value such as `[a, "b"]`; raise PolicyError for another value."""
    try:
        values = strict.load_yaml(entry.text)
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        raise entry.error(f"`{entry.key}` is no list: write `[{entry.text}]`")
    return [str(value) for value in values]
