"""Identity providers from Lakekeeper's variables `OPENID_...` and `OPENID_PROVIDERS__<ID>__...`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml

from pdp.config.quarkus.properties import ConfigEntry
from pdp.offline.migration.report import Migration, Status

PRIMARY: Final = "oidc"
"""Id of the provider of `OPENID_PROVIDER_URI`."""
_KEYS: Final[Mapping[str, str]] = {
    "openid_provider_uri": "uri",
    "openid_audience": "audience",
    "openid_subject_claim": "subject_claims",
    "openid_roles_claim": "roles_claim",
}
_KNOWN: Final = (*_KEYS.values(), "require_connected_on_startup", "display_name_template")
_KEYCLOAK: Final = "/realms/"
_DISCOVERY: Final = "/.well-known/openid-configuration"
"""End of the address of a provider's metadata, beyond the issuer."""


class ProviderReader:
    """Reader of the variables of all providers."""

    def __init__(self, migration: Migration) -> None:
        self._migration = migration
        self._entries: dict[str, dict[str, ConfigEntry]] = {}

    def reads(self, parts: Sequence[str]) -> bool:
        """Tell whether a variable describes a provider."""
        return parts[0] in _KEYS or parts[0] == "openid_providers"

    def read(self, entry: ConfigEntry, parts: Sequence[str]) -> None:
        """Keep a variable for `settings`."""
        if parts[0] in _KEYS:
            self._entries.setdefault(PRIMARY, {})[_KEYS[parts[0]]] = entry
        elif len(parts) == 3 and parts[2] in _KNOWN:
            self._entries.setdefault(parts[1].replace("_", "-"), {})[parts[2]] = entry
        else:
            self._migration.add("left", entry.key_place, entry.key, "no such key of a provider is known")

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
        if uri is None:
            self._report("left", entries.values(), f"the provider `{idp}` has no URI, so it verifies no token")
            return None
        issuer = uri.text.rstrip("/").removesuffix(_DISCOVERY).rstrip("/")
        jwks = f"{issuer}/protocol/openid-connect/certs" if _KEYCLOAK in issuer else ""
        provider: dict[str, Any] = {"issuer": issuer, "jwks": jwks}
        if "audience" in entries:
            provider["audiences"] = _audiences(entries["audience"])
        claims = _claims(entries)
        if claims:
            provider["claims"] = claims
        if not jwks.startswith("https://"):
            provider["jwks"] = f"<jwks_uri of {issuer}/.well-known/openid-configuration, by https, or a file>"
            text = yaml.safe_dump(provider, default_flow_style=True, sort_keys=False, width=100_000).strip()
            why = "keys come over https only" if jwks else "the address of the keys is not in the variables"
            self._report("left", entries.values(), f"{why}: write `identity.providers.{idp}: {text}`")
            return None
        self._report("done", (entry for key, entry in entries.items() if key != "uri"), "")
        if "audience" not in entries:
            message = (
                f"no audience: every token is refused until `identity.providers.{idp}.audiences` names the service"
            )
            self._report("note", [uri], message)
        message = f"`issuer` and `jwks` are those of Keycloak: compare with {issuer}/.well-known/openid-configuration"
        self._report("note", [uri], message)
        return provider

    def _report(self, status: Status, entries: Iterable[ConfigEntry], message: str) -> None:
        for entry in entries:
            self._migration.add(status, entry.key_place, entry.key, message)


def _claims(entries: Mapping[str, ConfigEntry]) -> dict[str, Any]:
    """Return the claims. Of several for the subject, the first present claim counts."""
    names = {"subject": "subject_claims", "roles": "roles_claim"}
    paths = {claim: _parts(entries[key].text) for claim, key in names.items() if key in entries}
    return {claim: found[0] if len(found) == 1 or claim == "roles" else found for claim, found in paths.items()}


def _audiences(entry: ConfigEntry) -> list[str]:
    """Return the audiences of a text with commas, or of a list; raise PolicyError for a list of other things."""
    if not entry.text.strip().startswith("["):
        return _parts(entry.text)
    try:
        values = yaml.safe_load(entry.text)
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise entry.error(f"`{entry.key}` is no list of audiences: write them with commas between")
    return values


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]
