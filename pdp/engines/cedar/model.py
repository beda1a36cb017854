"""Everything that a Cedar engine is made of: schema, policies and entities, validated against one another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import msgspec

from pdp.engines.cedar.actions import ROLE, Uid, as_json, as_text, id_problem
from pdp.engines.cedar.entities import EntityBuilder
from pdp.engines.cedar.entity_files import DeclaredEntity, EntityFiles, FileEntity, read_entities_json
from pdp.engines.cedar.policies import CedarPolicies, load_policies, parse_policies
from pdp.engines.cedar.schema import GENERATIONS, CedarSchema, CedarSources, load_cedarpy, load_schema, parent_types
from pdp.engines.cedar.tokens import condition_texts, tokens_of
from pdp.engines.engine import ANY_TEXT
from pdp.errors import EntitiesInvalid
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal

_ROLE_TEXT: Final = re.compile(r"\\|\b(?:project_roles|global_role_ids|source_id|provider_id)\b")
"""Signs of a policy that may compare the id of a role as a text. A backslash may write any word in a string."""
_NOBODY: Final = Principal("anonymous", "")


class CedarModel(msgspec.Struct, frozen=True):
    """Schema, policies and entities of files in force."""

    schema: CedarSchema
    policies: CedarPolicies
    files: EntityFiles

    @property
    def named_roles(self) -> frozenset[str]:
        """Return the roles that policies and files may name, and `~x` for the roles `x` of all providers.

        A string counts as such an `x` in a policy that compares texts of roles.
        """
        files, policies = self.files, self.policies.policies
        above = (entity.parents for entity in files.by_uid.values())
        named = chain(files.by_uid, files.references, *above, *(policy.names for policy in policies))
        compared = (condition_texts(policy.text) for policy in policies if _ROLE_TEXT.search(policy.text))
        pieces = (piece for texts in compared for text in chain(*texts) for piece in text.split(ANY_TEXT))
        # an empty piece would stand for each role without a provider
        return frozenset({id for type, id in named if type == ROLE} | {f"~{piece}" for piece in pieces if piece})


@lru_cache(maxsize=GENERATIONS)
def load_model(sources: CedarSources) -> CedarModel:
    """Return the model of sources; raise SchemaInvalid, PolicyInvalid or EntitiesInvalid with the place."""
    schema = load_schema(sources.schema, sources.fragment)
    policies = load_policies(sources, schema)
    declared = read_entities_json(sources.entities)
    parents = find_wrong_parents(declared, schema) if sources.names else ()
    for problem in chain(find_ids_of_nothing(declared, sources.warehouses), parents):
        raise problem
    entities = load_entities(declared, schema)
    return CedarModel(schema, policies, entities)


def trusted_model(sources: CedarSources) -> CedarModel:
    """Return the model of sources that `load_model` made from files: nothing is validated again.

    Validation takes most of the time of a load, and a service that takes over new policies has requests to answer.
    """
    schema = load_schema(sources.schema, sources.fragment)
    declared = read_entities_json(sources.entities)
    files = EntityFiles({each.uid: each.entity for each in declared})
    return CedarModel(schema, parse_policies(sources.policies), files)


def load_entities(declared: Sequence[DeclaredEntity], schema: CedarSchema) -> EntityFiles:
    """Return the entities of files in Cedar's explicit form; raise EntitiesInvalid for the first that does not fit."""
    if not declared:
        return EntityFiles({})
    files = EntityFiles({each.uid: each.entity for each in declared})
    for problem in find_misfits(declared, files, schema):
        raise problem
    explicit = _explicit(files, schema)
    return EntityFiles({each.uid: _as_declared(each, explicit[each.uid]) for each in declared})


def find_ids_of_nothing(
    declared: Iterable[DeclaredEntity], warehouses: frozenset[str] | None
) -> Iterator[EntitiesInvalid]:
    """Yield a problem for each id without a possible check. `warehouses` as in CedarSources."""
    for each in declared:
        for uid in dict.fromkeys((each.uid, *each.entity.parents, *each.entity.references)):
            if problem := id_problem(uid, warehouses):
                yield EntitiesInvalid(f"`{as_text(uid)}` is nothing: {problem}", each.place)


def find_misfits(
    declared: Sequence[DeclaredEntity], files: EntityFiles, schema: CedarSchema
) -> Iterator[EntitiesInvalid]:
    """Yield a problem for each entity that does not fit the schema with its gaps filled; else for each in a cycle."""
    builder = _builder(files)
    cyclic = [each for each in declared if each.uid[0] == ROLE and each.uid[1] in builder.roles_above(each.uid)]
    if not cyclic and _parse(_with_chains(builder, files), schema) is None:
        return
    is_clean = True
    for each in declared:
        if (cause := _parse([builder.make(each.uid).text], schema)) is not None:
            is_clean = False
            hint = _wrong_part(each, files, schema) or cause
            yield EntitiesInvalid(f"`{as_text(each.uid)}` does not fit the schema: {hint}", each.place)
    for each in (cyclic or [_inside_itself(declared, builder)]) if is_clean else ():
        yield EntitiesInvalid(f"`{as_text(each.uid)}` is inside itself by the parents of entities", each.place)


def find_wrong_parents(declared: Iterable[DeclaredEntity], schema: CedarSchema) -> Iterator[EntitiesInvalid]:
    """Yield a problem for each parent of a type that the schema does not put directly above. Cedar takes any above."""
    allowed = parent_types(schema.text)
    for each in declared:
        types = allowed.get(each.uid[0], frozenset())
        for parent in each.entity.parents:
            if parent[0] not in types and each.uid[0] in allowed and parent[0] in allowed:
                wanted = ", ".join(sorted(types)) or "nothing"
                message = f"`{as_text(each.uid)}` does not fit the schema: parent `{as_text(parent)}`"
                yield EntitiesInvalid(f"{message}, where parents are of the type {wanted}", each.place)


def _builder(files: EntityFiles) -> EntityBuilder:
    """Return a builder without facts, and without the roles of users that no file lists."""
    return EntityBuilder(Facts.empty(), _NOBODY, files, on_server=True)


def _with_chains(builder: EntityBuilder, files: EntityFiles) -> list[str]:
    """Return the entities of files and all entities above, each once."""
    texts = {entity.uid: entity.text for uid in files.by_uid for entity in builder.with_chain(uid)}
    return list(texts.values())


def _parse(texts: Iterable[str], schema: CedarSchema) -> str | None:
    """Return the message with which Cedar refuses entities; None if all are well."""
    try:
        load_cedarpy().Entities.from_json_str(f"[{','.join(texts)}]", schema.handle)
    except ValueError as error:
        return str(error)
    return None


def _wrong_part(each: DeclaredEntity, files: EntityFiles, schema: CedarSchema) -> str:
    """Return the attribute, the tag or the parent of a file without which the entity fits; empty if there is none."""
    entity = each.entity
    without = [
        *((f"attribute `{name}`", _less(entity, attribute=name)) for name in entity.attributes),
        *((f"parent `{as_text(parent)}`", _less(entity, parent=parent)) for parent in entity.parents),
        *((f"tag `{name}`", _less(entity, tag=name)) for name in entity.tags),
    ]
    for name, changed in without:
        builder = _builder(EntityFiles({**files.by_uid, each.uid: changed}))
        if _parse([builder.make(each.uid).text], schema) is None:
            return name
    basename = each.uid[0].rpartition("::")[2]
    is_known = any(token.text == basename for token in tokens_of(schema.text))
    return "" if is_known else f"no entity type `{each.uid[0]}`"


def _less(entity: FileEntity, attribute: str = "", parent: Uid | None = None, tag: str = "") -> FileEntity:
    return FileEntity(
        {name: value for name, value in entity.attributes.items() if name != attribute},
        tuple(other for other in entity.parents if other != parent),
        {name: value for name, value in entity.tags.items() if name != tag},
    )


def _inside_itself(declared: Sequence[DeclaredEntity], builder: EntityBuilder) -> DeclaredEntity:
    """Return the first entity above itself; the first of all if none is."""
    for each in declared:
        parents = builder.make(each.uid).parents
        if any(entity.uid == each.uid for parent in parents for entity in builder.with_chain(parent)):
            return each
    return declared[0]


def _explicit(files: EntityFiles, schema: CedarSchema) -> dict[Uid, Any]:
    """Return the entities as Cedar writes them, with references and extension values in their explicit form."""
    builder = _builder(files)
    handle = load_cedarpy().Entities.from_json_str(f"[{','.join(_with_chains(builder, files))}]", schema.handle)
    return {(entity["uid"]["type"], entity["uid"]["id"]): entity for entity in json.loads(str(handle))}


def _as_declared(each: DeclaredEntity, explicit: Any) -> FileEntity:
    """Return an entity of a file with the explicit values of its own attributes and tags."""
    attributes = {name: explicit["attrs"][name] for name in each.entity.attributes}
    return FileEntity(attributes, each.entity.parents, explicit.get("tags", {}))


def entities_as_json(files: EntityFiles) -> list[dict[str, Any]]:
    """Return the entities of files in Cedar's JSON, in the order of their uids."""
    return [
        {
            "uid": as_json(uid),
            "attrs": entity.attributes,
            "parents": [as_json(parent) for parent in sorted(entity.parents)],
            "tags": entity.tags,
        }
        for uid, entity in sorted(files.by_uid.items())
    ]
