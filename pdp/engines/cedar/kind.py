"""Cedar engine from settings: configured files to policies as JSON, and the engine that these make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

import msgspec

from pdp.config.policies import CedarSchemaFiles
from pdp.config.policy_files import FileKey, policy_files
from pdp.config.references import name_check
from pdp.config.settings import Settings
from pdp.engines.cedar.actions import PROPERTIES, ROLE
from pdp.engines.cedar.engine import CedarEngine
from pdp.engines.cedar.model import CedarModel, entities_as_json, load_model, trusted_model
from pdp.engines.cedar.policies import CedarPolicy
from pdp.engines.cedar.schema import CedarSources, SourceText, read_sources
from pdp.engines.cedar.tokens import split_policies, tokens_of
from pdp.engines.cedar.unknown_values import spared_roles
from pdp.engines.engine_types import PolicySources
from pdp.errors import EntitiesInvalid, Notice, PolicyError, PolicyInvalid, SchemaInvalid


def read_cedar(settings: Settings) -> PolicySources:
    """Return policies, entities and schema of the configured files.

    Raise ConfigError for a pattern without a file or a file without content, PolicyError with the place of a problem.
    """
    return as_sources(configured_model(settings))


def build_cedar(settings: Settings, sources: PolicySources) -> CedarEngine:
    """Return the engine of policies as JSON; raise PolicyError where they do not fit together."""
    entities = msgspec.json.encode(sources["entities"]).decode()
    texts = CedarSources((SourceText(sources["policies"]),), (SourceText(entities),), SourceText(sources["schema"]))
    is_checked = sources.get("checked") == _checksum(sources)
    return CedarEngine(trusted_model(texts) if is_checked else load_model(texts))


def unfed_cedar(settings: Settings, engine: object = None) -> Iterator[Notice]:
    """Yield a notice for each forbid on evidence without a source in Trino or Polaris.

    The forbids are those of an engine, else of the configured files.
    """
    asking = settings.trino.catalogs or settings.polaris.catalogs
    if not asking or not any("cedar" in authority.engines for authority in settings.authorities.values()):
        return
    model = engine.model if isinstance(engine, CedarEngine) else configured_model(settings)
    yield from _unfed_by_trino(settings, model) if settings.trino.catalogs else ()
    yield from _unfed_by_polaris(settings, model) if settings.polaris.catalogs else ()


def _unfed_by_polaris(settings: Settings, model: CedarModel) -> Iterator[Notice]:
    """Yield the notices for Polaris. A principal is in a role by the store, and by `polaris.roles`."""
    fed = frozenset(settings.polaris.roles.values())
    for policy in model.policies.policies:
        on_roles = policy.effect == "forbid" and not policy.evidence.isdisjoint(_ROLES)
        if on_roles and not _is_fed(policy, fed):
            message = (
                f"forbid `{policy.id}` of Cedar reads `roles`, and no principal role of `polaris.roles` feeds them: "
                "members in the store alone are in the role for Polaris; map the principal roles"
            )
            yield Notice(policy.place, message)


def _is_fed(policy: CedarPolicy, fed: frozenset[str]) -> bool:
    """Tell whether settings feed each role that a policy names, or any role where the policy names none."""
    named = frozenset(id for type, id in policy.names if type == ROLE)
    return fed >= named if named else bool(fed)


def _unfed_by_trino(settings: Settings, model: CedarModel) -> Iterator[Notice]:
    """Yield the notices for Trino. A user is in a role by the store, and by `trino.groups`."""
    trino = settings.trino
    fed = frozenset(trino.groups.values())
    provider = settings.identity.providers.get(trino.user_prefix.removesuffix("~"))
    has_properties = any(type == PROPERTIES for type, _ in model.files.by_uid)
    for policy in model.policies.policies:
        if policy.effect == "permit":
            continue
        if not has_properties and _READS_PROPERTIES.search(policy.text):
            why = "which Trino does not send and no entity file declares: `hasTag` is false there"
            yield Notice(policy.place, f"forbid `{policy.id}` of Cedar reads `properties`, {why}")
        if not policy.evidence:
            continue
        is_fed = _is_fed(policy, fed)
        lacking = {"attributes" if name.startswith("attributes") else "roles" for name in policy.evidence}
        for name in sorted(lacking.difference(trino.unknown, {"roles"} if is_fed else ())):
            place = ": `email` is absent there" if name == "attributes" else _MEMBERS
            has_effect = name == "attributes" or (provider is not None and bool(provider.role_map))
            remedy = f"; `trino.unknown: [{name}]` makes the policy deny" if has_effect else ""
            message = f"forbid `{policy.id}` of Cedar reads `{name}`, which Trino does not send{place}{remedy}"
            yield Notice(policy.place, message)


def cedar_spares_stored(settings: Settings) -> Iterator[Notice]:
    """Yield a notice for each forbid of the files that spares members of a role which only the store gives."""
    if not any("cedar" in authority.engines for authority in settings.authorities.values()):
        return
    given = {role for provider in settings.identity.providers.values() for role in provider.role_map.values()}
    for policy in configured_model(settings).policies.policies:
        # a look at the text first: Cedar takes half a millisecond to parse a policy
        if policy.effect == "permit" or not _MAY_SPARE.search(policy.text):
            continue
        for role in sorted(spared_roles(policy.form()) - given):
            message = (
                f"forbid `{policy.id}` of Cedar spares members of the role `{role}`, which no `role_map` gives: who "
                "may grant the role in the store lifts the forbid"
            )
            yield Notice(policy.place, message)


_ROLES: Final = frozenset({"member_of", "roles"})
"""Evidence of a policy on roles."""
_MAY_SPARE: Final = re.compile(r"\bunless\b|!|\bif\b|==")
_READS_PROPERTIES: Final = re.compile(r"\.\s*properties\b|\[\s*\"properties\"")
_MEMBERS: Final = ", and no `trino.groups` feeds: members in the store alone are in the role there"


def as_sources(model: CedarModel) -> PolicySources:
    """Return a model as JSON, without the places of files: they decide nothing.

    `checked` is the checksum of the three parts. With another part in place of one, all are validated again.
    """
    sources = {
        "policies": model.policies.text,
        "entities": entities_as_json(model.files),
        "schema": model.schema.text,
    }
    return {**sources, "checked": _checksum(sources)}


def _checksum(sources: PolicySources) -> str:
    parts = [sources["policies"], sources["entities"], sources["schema"]]
    return sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def configured_model(settings: Settings) -> CedarModel:
    """Return the model of the configured files; raise ConfigError or PolicyError."""
    if not settings.policies.cedar.policies:
        raise settings.error(("policies", "cedar", "policies"), "no file is named, and an authority asks `cedar`")
    sources = configured_sources(settings)
    try:
        return load_model(sources)
    except PolicyInvalid as error:
        raise error.of_key("policies.cedar.policies") from None
    except EntitiesInvalid as error:
        raise error.of_key("policies.cedar.entities") from None
    except SchemaInvalid as error:
        is_fragment = sources.fragment is not None and sources.fragment.file == error.place.file
        raise error.of_key(_schema_key(settings, "extend" if is_fragment else "replace")) from None


def configured_sources(settings: Settings) -> CedarSources:
    """Return the texts of the configured files; raise ConfigError or PolicyError."""
    policies = _texts(settings, "cedar.policies")
    entities = _texts(settings, "cedar.entities")
    replacement, fragment = _schema_texts(settings)
    return CedarSources(policies, entities, replacement, fragment, name_check(settings))


def _schema_texts(settings: Settings) -> tuple[SourceText | None, SourceText | None]:
    """Return the configured schema and the configured fragment of a schema; None for neither."""
    chosen = settings.policies.cedar.schema
    if chosen is None:
        return None, None
    given = CedarSchemaFiles(replace=chosen) if isinstance(chosen, str) else chosen
    return _schema_text(settings, "replace", given.replace), _schema_text(settings, "extend", given.extend)


def _schema_text(settings: Settings, key: str, file: str | None) -> SourceText | None:
    if file is None:
        return None
    try:
        text = read_sources([settings.policy_path(file)])[0]
        if not any(True for _ in tokens_of(text.text)):
            raise SchemaInvalid("no declaration in the schema", text.place())
    except PolicyError as error:
        raise error.of_key(
            _schema_key(settings, key), settings.origins.nearest(("policies", "cedar", "schema", key))
        ) from None
    return text


def _schema_key(settings: Settings, key: str) -> str:
    is_text = isinstance(settings.policies.cedar.schema, str)
    return "policies.cedar.schema" if is_text else f"policies.cedar.schema.{key}"


def _texts(settings: Settings, key: FileKey) -> tuple[SourceText, ...]:
    files = policy_files(settings, key)
    with files.naming_key():
        texts = read_sources(files.paths)
    is_filled = split_policies if key == "cedar.policies" else _has_entities
    files.require_content({text.file for text in texts if is_filled(text.text)})
    return texts


def _has_entities(text: str) -> bool:
    """Tell whether a JSON text is anything but an empty list; a text that is no list is refused later, with a place."""
    return "".join(text.split()) not in ("", "[]")
