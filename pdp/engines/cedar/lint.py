"""Lint of Cedar files: every problem that stops a start, and remarks on policies that load.

Reads every file to the end, and examines policies, entities and the schema together, as the start does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from pdp.config.names import NameCheck
from pdp.engines.cedar.actions import ROLE, as_text
from pdp.engines.cedar.entity_files import EntityFiles, read_entities_json
from pdp.engines.cedar.model import find_ids_of_nothing, find_misfits, find_wrong_parents
from pdp.engines.cedar.names import is_never_true
from pdp.engines.cedar.policies import (
    CedarPolicies,
    find_name_faults,
    find_problems,
    inside,
    load_policies,
    read_policies,
)
from pdp.engines.cedar.schema import CedarSchema, CedarSources, SourceText, load_schema, read_sources
from pdp.engines.cedar.tokens import guarded_entities
from pdp.errors import EntitiesInvalid, Notice, Place, PolicyError, PolicyInvalid, SchemaInvalid

POLICY_SUFFIX: Final = ".cedar"
SCHEMA_SUFFIX: Final = ".cedarschema"
ENTITY_SUFFIX: Final = ".cedarentities.json"
SUFFIXES: Final = (POLICY_SUFFIX, SCHEMA_SUFFIX, ENTITY_SUFFIX)
"""Ends of the names of Cedar files. Other JSON is Cedar's if a list of entities begins there."""
_KINDS: Final = (POLICY_SUFFIX, SCHEMA_SUFFIX, ".json")
_ENTITY: Final = re.compile(r'\s*\[\s*\{\s*"(?:uid|attrs|parents|tags)"\s*:')
_CONSTANT: Final = re.compile(r"\b(?:true|false)\b")
_BEGINNING: Final = 4096
_CODES: Final = {PolicyInvalid: "cedar-policy", EntitiesInvalid: "cedar-entity", SchemaInvalid: "cedar-schema"}
_OTHER_ENTITY: Final = "cedar-other-entity"
NAME: Final = "cedar-name"
"""Code of a name at fault that does not stop the start."""
_PLACE_ID: Final = "cedar-place-id"


class CedarRemark(msgspec.Struct, frozen=True):
    """Remark on a Cedar file."""

    code: str
    severity: Literal["error", "warning", "info"]
    place: Place
    message: str
    policy: str = ""
    hint: str = ""


def is_cedar_file(path: Path) -> bool:
    """Tell whether a file has a name of Cedar's, or a list of entities."""
    return path.name.lower().endswith(SUFFIXES) or (path.suffix.lower() == ".json" and holds_entities(path))


def holds_entities(file: Path) -> bool:
    """Tell whether a JSON file begins like a list of entities: the first element has a `uid`."""
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            return bool(_ENTITY.match(text.read(_BEGINNING)))
    except OSError:
        return False  # the reader of the kind names the cause


def sources_of_files(paths: Iterable[Path]) -> CedarSources:
    """Return the sources of Cedar files by their names; JSON has entities. A schema replaces pdp's own."""
    found = {suffix: [path for path in paths if path.suffix.lower() == suffix] for suffix in _KINDS}
    policies, schema, entities = (read_sources(found[suffix]) for suffix in _KINDS)
    return CedarSources(policies, entities, schema[0] if schema else None, names=NameCheck())


def lint_cedar(sources: CedarSources) -> list[CedarRemark]:
    """Return the remarks on sources. Policies and entities are examined against the schema, if it parses."""
    try:
        schema = load_schema(sources.schema, sources.fragment)
    except SchemaInvalid as error:
        return [_error(error)]
    remarks = [_error(error) for error in _entity_problems(sources, schema)]
    problems = [_error(error) for error in find_problems(sources, schema)] if sources.policies else []
    if sources.policies and not problems:
        policies = load_policies(sources, schema)
        remarks += _remarks(policies, schema, _declared(sources.entities))
        for policy, fault in find_name_faults(sources, policies.policies):
            place = inside(policy, fault.offset)
            remarks.append(CedarRemark(NAME, "warning", place, f"{policy.effect} {fault.message}", policy.id))
    return [*problems, *remarks]


def roles_in_another_case(sources: CedarSources, roles: frozenset[str]) -> Iterator[Notice]:
    """Yield a notice for each role of a policy that differs in case alone from one of `roles`.

    Raise PolicyInvalid for a text that Cedar cannot parse.
    """
    check, policies = sources.names or NameCheck(), read_policies(sources)
    known = replace(check.known, roles=check.known.roles | roles)
    judged = {(policy.id, fault) for policy, fault in find_name_faults(sources, policies)}
    for policy, fault in find_name_faults(replace(sources, names=check._replace(known=known)), policies):
        if (policy.id, fault) not in judged:
            message = f"{policy.effect} `{policy.id}` of Cedar {fault.message}"
            yield Notice(inside(policy, fault.offset), message)


def _entity_problems(sources: CedarSources, schema: CedarSchema) -> Iterator[EntitiesInvalid]:
    try:
        declared = read_entities_json(sources.entities)
    except EntitiesInvalid as error:
        yield error
        return
    yield from find_ids_of_nothing(declared, sources.warehouses)
    if sources.names:
        yield from find_wrong_parents(declared, schema)
    yield from find_misfits(declared, EntityFiles({each.uid: each.entity for each in declared}), schema)


def _declared(sources: Sequence[SourceText]) -> EntityFiles:
    """Return the entities of files; none where a file cannot be read, which is a problem of its own."""
    try:
        return EntityFiles({each.uid: each.entity for each in read_entities_json(sources)})
    except EntitiesInvalid:
        return EntityFiles({})


def _remarks(policies: CedarPolicies, schema: CedarSchema, files: EntityFiles) -> Iterator[CedarRemark]:
    """Yield remarks on policies that load."""
    for policy in policies.policies:
        unknown = policy.reads - guarded_entities(policy.text) - files.by_uid.keys() - schema.groups.keys()
        for uid in sorted(each for each in unknown if each[0] != ROLE):  # facts know every role
            is_forbid = policy.effect == "forbid"
            effect = "the forbid then denies" if is_forbid else "the permit is then silent"
            yield CedarRemark(
                _OTHER_ENTITY,
                "warning",
                policy.place,
                f"the condition may read `{as_text(uid)}`, which no entity file declares: a check about something else "
                f"does not have this entity, and {effect} with an error",
                policy.id,
                f"guard the attribute with `{as_text(uid)} has ...`, or declare the entity in a file",
            )
        if _CONSTANT.search(policy.text) and is_never_true(policy.form()):
            message = "a constant part of the condition keeps the policy from ever holding"
            yield CedarRemark("cedar-never", "warning", policy.place, message, policy.id)
        if policy.id.removeprefix("policy").isdigit() and "@id" not in policy.text:
            message = "the id follows from the place: a new policy above changes the id"
            hint = 'write `@id("...")` before the policy'
            yield CedarRemark(_PLACE_ID, "info", policy.place, message, policy.id, hint)


def _error(error: PolicyError) -> CedarRemark:
    return CedarRemark(_CODES.get(type(error), "unreadable-file"), "error", error.place, error.message)
