"""Roles that settings name and neither the facts nor the policies know. A misspelt role could escape a forbid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from pdp.config.origins import Key, suggest
from pdp.config.policy_files import FILE_KEYS, FileKey, patterns_of
from pdp.config.references import listed_warehouses, unknown_warehouse
from pdp.config.regular_files import read_regular
from pdp.config.settings import Settings
from pdp.facts.snapshot import Facts

_ROLE: Final = "role:"
log = structlog.get_logger()


def require_known_roles(settings: Settings, facts: Facts) -> None:
    """Raise ConfigError for a role in settings that the facts of a world file and the policies do not know.

    A configuration without warehouses may name any role, and so may settings that come from no file.
    """
    if settings.origins.file is None:
        return
    for key, message in unknown_roles(settings, facts):
        raise settings.error(key, message)


def warn_of_unknown_names(settings: Settings, facts: Facts) -> None:
    """Log the roles and warehouses that settings and a database do not share. Grants come and go while it runs."""
    for key, message in unknown_roles(settings, facts):
        log.warning(message, key=".".join(map(str, key)))
    known = listed_warehouses(settings)
    for type, name in facts.index.objects.get((), {}):
        if type == "warehouse" and (message := unknown_warehouse(name, known)):
            log.warning("the database knows a warehouse that the configuration does not", cause=message)


def unknown_roles(settings: Settings, facts: Facts) -> Iterator[tuple[Key, str]]:
    """Yield the key and the error of each role that neither the facts nor the policies know."""
    named = list(_named_roles(settings)) if listed_warehouses(settings) else []
    if not named or settings.policies.source:  # policies of a source may name any role
        return
    known = known_roles(facts)
    texts = [read_regular(file).decode("utf-8", "replace") for key in FILE_KEYS for file in _existing(settings, key)]
    for key, role in named:
        if role not in known and not any(_mentions(text, role) for text in texts):
            yield key, f"no role `{role}` is registered, granted or named in a policy{suggest(role, known)}"


def known_roles(facts: Facts) -> frozenset[str]:
    """Return the ids of all roles that are registered, have members, or have grants."""
    registered = {name for type, name in facts.index.objects.get((), {}) if type == "role"}
    grantees = {name.removeprefix(_ROLE) for name in facts.grantees() if name.startswith(_ROLE)}
    return frozenset(registered | grantees)


def _named_roles(settings: Settings) -> Iterator[tuple[Key, str]]:
    for group, role in settings.trino.groups.items():
        yield ("trino", "groups", group), role
    for idp, provider in settings.identity.providers.items():
        for name, role in provider.role_map.items():
            yield ("identity", "providers", idp, "role_map", name), role


def _existing(settings: Settings, key: FileKey) -> list[Path]:
    return [file for file in settings.paths(patterns_of(settings.policies, key)) if file.is_file()]


def _mentions(text: str, role: str) -> bool:
    """Tell whether the text of a policy file names a role, as a text of CEL or as a grantee."""
    return any(form in text for form in (f"'{role}'", f'"{role}"', f"{_ROLE}{role}"))
