"""Requests of one question: contexts and entities, divided so that none sees the entity of another one's resource.

Cedar takes one set of entities for many requests. An entity of a neighbour changes nothing while no policy can read it:
policies read the principal, the resource, the context, what these name, and the entities that policies or files name.
So a division is needed only where the own entities of a resource are among the last, or contradict those of a
neighbour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pdp.engines.cedar.actions import (
    CONTEXTS,
    NO_CONTEXT,
    PROPERTIES,
    ROLE,
    ContextForm,
    Uid,
    as_json,
    as_value,
    has_properties,
    properties_uid,
)
from pdp.engines.cedar.entities import Entity, EntityBuilder, bare_entity, tagged_entity
from pdp.engines.cedar.entity_files import EntityFiles, find_bad_list, property_tags


class InvalidContext(ValueError):
    """Argument of a wrong JSON type, or a wrong access list in properties that a check writes."""


class CedarContext(NamedTuple):
    """Context as JSON text, and the tags of each set of properties that the context names."""

    text: str
    property_sets: tuple[tuple[Uid, Mapping[str, Any]], ...] = ()


def plain_context(*, delegated: bool) -> CedarContext:
    """Return the context of an action that takes no arguments."""
    return CedarContext('{"delegated":true}' if delegated else '{"delegated":false}')


def has_arguments(action: str) -> bool:
    """Tell whether arguments of a check are in the context of an action."""
    return action in CONTEXTS


def make_context(action: str, given: Mapping[str, Any], project: str, *, delegated: bool) -> CedarContext:
    """Return the context of an action from the arguments of a check; raise InvalidContext or LongAccessLists.

    `project` is the default of full role names in access lists.
    """
    form = CONTEXTS.get(action, NO_CONTEXT)
    context: dict[str, Any] = {"delegated": delegated}
    for attribute, argument in form.texts.items():
        if (text := _typed(given, argument, str)) is not None:
            context[attribute] = text
    for flag in form.flags:
        context[flag] = bool(_typed(given, flag, bool))
    sets = dict(_property_sets(form, given))
    if form.removal:
        context[form.removal] = _removed(form, given, sets)
    for attribute, properties in sets.items():
        if bad := find_bad_list(properties):
            raise InvalidContext(f"`{bad}` is no list of roles and users")
        context[attribute] = as_value((PROPERTIES, attribute))
    tagged = (((PROPERTIES, attribute), property_tags(each, project)) for attribute, each in sets.items())
    return CedarContext(msgspec.json.encode(context).decode(), tuple(tagged))


def _property_sets(form: ContextForm, given: Mapping[str, Any]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    if form.initial:
        return ((form.initial, _typed(given, "properties", dict) or {}),)
    if not form.updates:
        return ()
    updates = _typed(given, "updated_properties", dict)
    return ((form.updates, (_typed(given, "properties", dict) if updates is None else updates) or {}),)


def _removed(form: ContextForm, given: Mapping[str, Any], sets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the keys that a change removes: those listed, and those set to null."""
    listed = _typed(given, "removed_properties", list) or []
    if not all(isinstance(key, str) for key in listed):
        raise InvalidContext("`removed_properties` is no list of texts")
    return [*listed, *(key for key, value in sets[form.updates].items() if value is None)]


def _typed(given: Mapping[str, Any], argument: str, type: type) -> Any:
    """Return an argument, None if absent or null; raise InvalidContext for another type."""
    value = given.get(argument)
    if value is None or isinstance(value, type):
        return value
    raise InvalidContext(f"`{argument}` is no {type.__name__}")


_NOTHING: Final[frozenset[Uid]] = frozenset()


class EntitySlice:
    """Entities of the checks of one principal: those of the check, and those of files that a policy can reach.

    `read` are the entities that policies name and may read. `chains` has the entities of files with all above.
    """

    def __init__(
        self,
        builder: EntityBuilder,
        files: EntityFiles,
        read: frozenset[Uid],
        chains: Collection[Uid],
        *,
        with_properties: bool,
    ) -> None:
        self.builder = builder
        self._with_properties = with_properties
        self._files = files
        self._chains = chains
        found: dict[Uid, Entity] = {}
        self._add(builder.principal, found)
        for uid in sorted(read):
            if uid in chains or uid[0] == ROLE:  # facts know every role
                self._add(uid, found)
        self.common = found
        self._above: dict[Uid, Mapping[Uid, Entity]] = {}

    @property
    def size(self) -> int:
        """Return the number of remembered containers."""
        return len(self._above)

    def of_resource(self, uid: Uid) -> dict[Uid, Entity]:
        """Return the entities of a resource: all above and their properties, and all that files' attributes name.

        Raise TornRing and TooManyRoles as the builder does.
        """
        entity = self.builder.resource(uid)
        found = {uid: entity}
        for above in (*self.builder.links(entity), *self._referenced(entity)):
            found |= self._above_of(above)
        self._add_properties(uid, found)
        return found

    def _above_of(self, uid: Uid) -> Mapping[Uid, Entity]:
        known = self._above.get(uid)
        if known is None:
            found: dict[Uid, Entity] = {}
            self._add(uid, found)
            known = self._above[uid] = found
        return known

    def _add(self, uid: Uid, found: dict[Uid, Entity]) -> None:
        pending = [uid]
        while pending:
            next = pending.pop()
            if next not in found:
                entity = found[next] = self.builder.entity(next)
                self._add_properties(next, found)
                pending += [*self.builder.links(entity), *self._referenced(entity)]

    def _referenced(self, entity: Entity) -> Iterable[Uid]:
        return (uid for uid in entity.references if uid in self._chains or uid[0] == ROLE)

    def _add_properties(self, uid: Uid, found: dict[Uid, Entity]) -> None:
        """Add the properties of an object from the files; an entity without text stands for none."""
        if self._with_properties and has_properties(uid):
            own = properties_uid(uid)
            found[own] = self.builder.entity(own) if own in self._files.by_uid else Entity(own, "", ())


class RequestBatch:
    """Requests that share one set of entities. `rows` are their positions in the group."""

    def __init__(self, common: Mapping[Uid, Entity]) -> None:
        self.rows: list[int] = []
        self.requests: list[dict[str, Any]] = []
        self._texts = {uid: entity.text for uid, entity in common.items()}

    def accepts(self, own: Mapping[Uid, Entity]) -> bool:
        """Tell whether no entity here has another content."""
        texts = self._texts
        return all(texts.get(uid, entity.text) == entity.text for uid, entity in own.items())

    def add(self, row: int, request: dict[str, Any], own: Mapping[Uid, Entity]) -> None:
        """Add a request with its own entities, which win."""
        self.rows.append(row)
        self.requests.append(request)
        self._texts.update((uid, entity.text) for uid, entity in own.items())

    @property
    def entities(self) -> str:
        """Return the entities as Cedar's JSON."""
        return f"[{','.join(filter(None, self._texts.values()))}]"


class RequestBatches:
    """Division of the requests of a group into batches. `sensitive` are the entities that policies or files name."""

    def __init__(self, common: Mapping[Uid, Entity], sensitive: frozenset[Uid]) -> None:
        self._common = common
        self._sensitive = sensitive
        self._open: dict[frozenset[Uid], RequestBatch] = {}
        self.batches: list[RequestBatch] = []

    def add(self, row: int, request: dict[str, Any], own: Mapping[Uid, Entity]) -> None:
        """Add a request to a batch whose requests have the same sensitive entities."""
        # INVARIANT: all requests of a batch have the same sensitive entities. No policy and no file names the others,
        # so no request reaches those of another request.
        key = self._sensitive.intersection(own) if self._sensitive else _NOTHING
        current = self._open.get(key)
        if current is None or not current.accepts(own):
            current = self._open[key] = RequestBatch(self._common)
            self.batches.append(current)
        current.add(row, request, own)


def property_entities(uid: Uid, given: Mapping[str, Any], project: Uid) -> Entity:
    """Return the properties that a check brings of its own resource."""
    return tagged_entity(properties_uid(uid), property_tags(given, project[1]))


def context_entities(context: CedarContext) -> Iterator[Entity]:
    """Yield the sets of properties that a context names."""
    for uid, tags in context.property_sets:
        yield tagged_entity(uid, tags)


def make_request(principal: Uid, action: Uid, resource: Uid, context: CedarContext) -> dict[str, Any]:
    """Return a request in cedarpy's form."""
    return {
        "principal": as_json(principal),
        "action": as_json(action),
        "resource": as_json(resource),
        "context": context.text,
    }


def action_entities(actions: Iterable[Uid], groups: Mapping[Uid, Sequence[Uid]]) -> dict[Uid, Entity]:
    """Return actions with their groups as entities."""
    found: dict[Uid, Entity] = {}
    for uid in actions:
        parents = groups.get(uid, ())
        found[uid] = bare_entity(uid, parents)
        found |= {parent: bare_entity(parent, groups.get(parent, ())) for parent in parents}
    return found
