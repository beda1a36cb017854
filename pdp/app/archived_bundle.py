"""Service rebuilt from an archived bundle of an audit folder, with the same policies and settings of decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.config.settings import Settings
from pdp.decision.service import Pdp
from pdp.engines.cel.rules import RuleSet, inline_rules
from pdp.engines.row_access.policies import NamedDocument, parse_document
from pdp.errors import Place, PolicyError
from pdp.facts.snapshot import Facts

_NOWHERE: Final = "archived"
"""Issuer and keys of a provider in the settings of a rebuilt service, which verifies no token."""


class BundleSources(msgspec.Struct, frozen=True, rename="camel"):
    """Sources of a bundle, as `source_text` wrote them."""

    rules: dict[str, str]
    forbid: dict[str, str]
    cel_extensions: Sequence[str]
    cel_provider: str
    authorities: dict[str, Any]
    warehouses: dict[str, Any]
    trino: dict[str, Any]
    bootstrap_admins: Sequence[str]
    role_maps: dict[str, Mapping[str, str]]
    instance_admins: Sequence[str]
    row_access: Sequence[dict[str, Any]] = ()
    row_access_rules: dict[str, Any] = {}
    engines: dict[str, dict[str, Any]] = {}
    polaris: dict[str, Any] = {}
    engine_warehouses: Sequence[str] = ()
    cel_roles: str = ""
    """Roles that permits see; empty if no rule reads roles, and in bundles of versions that counted sent ones alone."""

    def rule_sets(self) -> tuple[RuleSet, RuleSet]:
        """Return the permitting and the forbidding rules; raise RuleCompileError."""
        extensions = frozenset(self.cel_extensions)
        return inline_rules(self.rules, extensions), inline_rules(self.forbid, extensions)

    def documents(self) -> list[NamedDocument]:
        """Return the documents of row policies; raise PolicyError."""
        return [parse_document(document) for document in self.row_access]


_SOURCES: Final = msgspec.json.Decoder(BundleSources)


def rebuild_pdp(text: bytes) -> Pdp:
    """Return a service without facts that decides as the one whose bundle has this text. It records nothing.

    Raise ConfigError or PolicyError for a text that this version cannot read.
    """
    sources = read_sources(text)
    documents = sources.documents()
    rules, forbid = sources.rule_sets()
    if not sources.cel_roles:
        rules, forbid = replace(rules, as_sent=True), replace(forbid, as_sent=True)
    return build_pdp(_settings(sources), Facts.empty(), (rules, forbid), documents=documents, sources=sources.engines)


def read_sources(text: bytes) -> BundleSources:
    """Return the sources in the text of a bundle; raise PolicyError for a text that this version cannot read."""
    try:
        return _SOURCES.decode(text)
    except msgspec.MsgspecError as error:
        raise PolicyError(f"no bundle of this version: {error}", Place("<bundle>", 0)) from None


def _settings(sources: BundleSources) -> Settings:
    """Return settings with everything that decides; all other settings have their defaults."""
    providers = {
        idp: {"issuer": f"{_NOWHERE}:{idp}", "jwks": _NOWHERE, "role_map": role_map}
        for idp, role_map in sources.role_maps.items()
    }
    data = {
        "authorities": sources.authorities,
        "warehouses": sources.warehouses,
        "trino": sources.trino,
        "polaris": sources.polaris,
        "starrocks": {"catalogs": {name: name for name in sources.engine_warehouses}},
        "policies": {"rules": (), "forbid": (), "row_access": (), "cel_extensions": sources.cel_extensions},
        "row_access": sources.row_access_rules,
        "store": {"bootstrap_admins": sources.bootstrap_admins},
        "identity": {
            "providers": providers,
            "cel_provider": sources.cel_provider,
            "cel_roles": sources.cel_roles or "token",
            "instance_admins": sources.instance_admins,
        },
        "audit": {"sinks": ()},
    }
    return make_settings(data, Path())
