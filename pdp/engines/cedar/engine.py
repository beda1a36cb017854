"""Cedar engine: decides by Cedar policies, with one call of cedarpy for a group.

Stands for Cedar's decision, with one deviation: a forbid that raises denies. Cedar alone would ignore that forbid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from pdp.engines.cedar.actions import (
    ACTION,
    CEDAR_ACTIONS,
    CLUSTER,
    PROPERTIES,
    ROLE,
    SERVER,
    Uid,
    counterparts,
    has_counterpart,
    has_properties,
    object_of,
    path_of,
    uid_of_principal,
    uid_of_resource,
)
from pdp.engines.cedar.entities import (
    Entity,
    EntityBuilder,
    PolicyNames,
    TooManyRoles,
    TornRing,
    has_unreadable_email,
)
from pdp.engines.cedar.entity_files import LongAccessLists
from pdp.engines.cedar.explain import (
    INVALID_ARGUMENTS,
    LONG_ACCESS_LISTS,
    TOO_MANY_ROLES,
    TORN_RING,
    Judgement,
    explain_judgement,
    judgement_of,
)
from pdp.engines.cedar.model import CedarModel, entities_as_json
from pdp.engines.cedar.policies import RelaxedPolicies
from pdp.engines.cedar.requests import (
    CedarContext,
    EntitySlice,
    InvalidContext,
    RequestBatch,
    RequestBatches,
    action_entities,
    context_entities,
    has_arguments,
    make_context,
    make_request,
    plain_context,
    property_entities,
)
from pdp.engines.cedar.schema import action_uid, load_cedarpy
from pdp.engines.cedar.unknown_values import MISSING_NAME, missing_parts, takes_name
from pdp.engines.engine import FAILED, FORBID, Cost, Dependency, EngineQuestion, ForbiddenPath, Verdicts
from pdp.facts.objects import ObjectKey
from pdp.facts.snapshot import Facts
from pdp.model.answer import MISSING_ARGUMENT, Reason, Trace
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Principal, Resource

_READS: Final = frozenset({Dependency.POLICIES, Dependency.FACTS})
_PRINCIPALS: Final = 64
_LONGEST_PRINCIPAL: Final = 2_048
_CONTAINERS: Final = 200
"""Principals whose entities are remembered at one revision, characters of one, and containers of one: about 20 MB."""


_REFUSALS: Final[Mapping[type[ValueError], Reason]] = {
    InvalidContext: INVALID_ARGUMENTS,
    LongAccessLists: LONG_ACCESS_LISTS,
    TornRing: TORN_RING,
    TooManyRoles: TOO_MANY_ROLES,
}


class CedarEngine:
    """Engine of Cedar policies."""

    forbids = True
    """A policy may forbid."""
    counts_stored_roles = False
    """The engine reads memberships in the facts."""

    def __init__(self, model: CedarModel) -> None:
        self.model = model
        policies, files, schema = model.policies, model.files, model.schema
        self.has_forbids = bool(policies.forbids)
        """A policy forbids. Without such a policy the engine denies by failures alone."""
        self.beyond = CedarForbid(self) if self.has_forbids else None
        """Engine of the forbids on actions outside of the vocabulary."""
        self._named = policies.reads | files.references
        compared = {uid for policy in policies.policies for uid in policy.names}
        self._names = PolicyNames(policies.words, self._named, files.references | compared)
        self._shows_properties = "properties" in policies.words or any(type == PROPERTIES for type, _ in self._named)
        self._actions = {
            pair: action_uid(action) for pair, action in CEDAR_ACTIONS.items() if action_uid(action) in schema.groups
        }
        self._with_groups: dict[Uid, dict[Uid, Entity]] = {}
        self._shown: tuple[Facts, BoundedCache[tuple[Principal, str], EntitySlice]] | None = None
        self._chains: tuple[Facts, Collection[Uid]] | None = None
        parts = (policies.text, entities_as_json(files), schema.text)
        self._digest = sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()

    @property
    def name(self) -> str:
        """Return the name of the engine in `by` and `engines`."""
        return "cedar"

    @property
    def digest(self) -> str:
        """Return the digest of policies, entities and schema."""
        return self._digest

    @property
    def reads(self) -> frozenset[Dependency]:
        """Return the sources of verdicts: memberships and projects are facts."""
        return _READS

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict: Cedar asks every policy."""
        return Cost.MILLISECONDS

    def declared_objects(self) -> Iterator[ObjectKey]:
        """Yield the objects of warehouses that entity files declare, or whose properties they declare."""
        for uid in self.model.files.by_uid:
            if key := object_of(uid):
                yield key

    def forbidden_paths(self) -> Iterator[ForbiddenPath]:
        """Yield the paths in forbids, by parts, and the texts that forbids compare with names."""
        for policy in self.model.policies.forbids:
            yield from policy.paths

    def names_warehouse(self, warehouse: str) -> bool:
        """Tell whether a forbid looks at the name of a warehouse, or entity files describe the content to a forbid."""
        described = self.has_forbids and any(path_of(uid)[:1] == (warehouse,) for uid in self.model.files.by_uid)
        return described or any(forbid.names_warehouse(warehouse) for forbid in self.model.policies.forbids)

    @property
    def named_roles(self) -> frozenset[str]:
        """Return the roles in policies and files of entities."""
        return self.model.named_roles

    @property
    def forbids_read(self) -> frozenset[str]:
        """Return the evidence read by forbids."""
        return self.model.policies.forbids_read

    def applies(self, action: str, type: str) -> bool:
        """Tell whether the schema has an action for the catalog action on the type."""
        return (action, type) in self._actions

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Decide every resource. Resources share one call, unless one could see the entities of another."""
        return self.verdicts(self.judgements(group, resources, facts), len(resources))

    def verdicts(self, judged: Mapping[int, Judgement | Reason], count: int) -> Verdicts:
        """Return the decisions on some rows as verdicts; silence on all others."""
        effects = bytearray(count)
        by: list[Reason | None] = [None] * count
        errors: dict[int, tuple[str, ...]] = {}
        for row, judgement in judged.items():
            if isinstance(judgement, str):
                effects[row], by[row] = FAILED, judgement
                continue
            effects[row] = judgement.effect
            by[row] = f"cedar:{judgement.by.id}" if judgement.by else None
            if judgement.raised:
                missing = {MISSING_ARGUMENT} if MISSING_NAME in judgement.raised.values() else ()
                errors[row] = tuple(sorted({*judgement.raised, *missing}))
        return Verdicts(bytes(effects), by, errors)

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the policies that decide, those that raise, and for a denial a policy that would permit."""
        action = self._actions.get((group.action, group.type))
        if action is None:
            return Trace("cedar", "silent", f"does not apply to {group.action} on {group.type}")
        judgement = self.judgements(group, (resource,), facts)[0]
        uid = uid_of_resource(resource, group.type)
        return explain_judgement(judgement, uid_of_principal(group.principal), action, uid)

    def judgements(
        self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts, unlisted: Uid | None = None
    ) -> dict[int, Judgement | Reason]:
        """Return the decision on each row, or the reason of a refusal. Empty if no action applies.

        An action that the schema does not have is asked as `unlisted`.
        """
        action = self._actions.get((group.action, group.type), unlisted)
        judged: dict[int, Judgement | Reason] = {}
        if action is None:
            return judged
        try:
            shown = self._shown_to(group, facts)
        except (TornRing, TooManyRoles) as error:
            return dict.fromkeys(range(len(resources)), _REFUSALS[type(error)])
        tables: dict[frozenset[str], RequestBatches] = {}
        known, is_creation = _unknown_of(group.principal), takes_name(group)
        plain = None if has_arguments(action[1]) else plain_context(delegated=group.delegated)
        for row, resource in enumerate(resources):
            uid = uid_of_resource(resource, group.type)
            try:
                context = plain or _context(action, resource, shown.builder, uid, delegated=group.delegated)
                own = self._own(shown, uid, resource, context)
            except (InvalidContext, LongAccessLists, TornRing, TooManyRoles) as error:
                judged[row] = _REFUSALS[type(error)]
                continue
            unknown = known | missing_parts(resource) if is_creation else known
            table = tables.get(unknown)
            if table is None:
                table = tables[unknown] = self._table(shown, action)
            table.add(row, make_request(shown.builder.principal, action, uid, context), own)
        if shown.size > _CONTAINERS:
            self._forget(group)
        for unknown, table in tables.items():
            judged.update(self._judged(table, unknown))
        return judged

    def _judged(self, table: RequestBatches, unknown: frozenset[str]) -> Iterator[tuple[int, Judgement]]:
        """Yield the decision on each row of a table of requests. `unknown` names the unknown parts."""
        policies = self.model.policies
        handle, relaxed = policies.for_unknown(unknown) if unknown else RelaxedPolicies(policies.handle, {})
        for each in table.batches:
            for row, answer in zip(each.rows, self._ask(each, handle), strict=True):
                yield row, judgement_of(answer, policies.policies, relaxed)

    def _table(self, shown: EntitySlice, action: Uid) -> RequestBatches:
        """Return an empty table of requests about one action."""
        actions = self._with_groups.get(action)
        if actions is None:  # as many as the schema has actions
            groups = self.model.schema.groups
            actions = self._with_groups[action] = action_entities({action, *(self._named & groups.keys())}, groups)
        properties = {uid for uid in shown.common if uid[0] == PROPERTIES}
        return RequestBatches({**shown.common, **actions}, self._named | properties)

    def _own(self, shown: EntitySlice, uid: Uid, resource: Resource, context: CedarContext) -> dict[Uid, Entity]:
        """Return the entities of a resource and a context. Properties of the check win over those of files."""
        own = shown.of_resource(uid)
        if resource.properties is not None and self._shows_properties and has_properties(uid):
            entity = property_entities(uid, resource.properties, shown.builder.project_of(uid))
            own[entity.uid] = entity
        own.update((entity.uid, entity) for entity in context_entities(context))
        return own

    def _ask(self, each: RequestBatch, policies: Any) -> Sequence[Any]:
        """Return the answers of cedarpy to the requests of a batch."""
        library = load_cedarpy()
        entities = library.Entities.from_json_str(each.entities)
        answers: Sequence[Any] = library.is_authorized_batch(each.requests, policies, entities)
        return answers

    def _forget(self, group: EngineQuestion) -> None:
        """Forget the entities of a principal with too many containers."""
        if self._shown is not None:
            self._shown[1].pop(_memo_key(group), None)

    def _shown_to(self, group: EngineQuestion, facts: Facts) -> EntitySlice:
        """Return the entities of a principal's checks, remembered for some principals of one revision."""
        if self._shown is None or self._shown[0] is not facts:
            self._shown = facts, BoundedCache(_PRINCIPALS, _LONGEST_PRINCIPAL)
        memo, principal, key = self._shown[1], group.principal, _memo_key(group)
        shown = memo.get(key)
        if shown is None:
            files, on_server, on_role = self.model.files, key[1] == "server", key[1] == "role"
            builder = EntityBuilder(facts, principal, files, self._names, on_server=on_server, on_role=on_role)
            read, chains = self.model.policies.reads, self._chains_of(facts)
            shown = EntitySlice(builder, files, read, chains, with_properties=self._shows_properties)
            memo.keep(key, shown, principal.length())
        return shown

    def _chains_of(self, facts: Facts) -> Collection[Uid]:
        """Return the entities of files with all above; without those above if nothing names one."""
        files = self.model.files
        if self._named <= files.by_uid.keys() or not files.by_uid:
            return files.by_uid.keys()
        if self._chains is None or self._chains[0] is not facts:
            # roles are left out: facts know every role
            compared = frozenset(uid for uid in self._names.compared if uid[0] != ROLE)
            names = PolicyNames(frozenset(), frozenset(), compared)
            builder = EntityBuilder(facts, Principal("anonymous", ""), files, names, on_server=True)
            above = frozenset(entity.uid for uid in files.by_uid for entity in builder.with_chain(uid))
            self._chains = facts, above
        return self._chains[1]


def _unknown_of(principal: Principal) -> frozenset[str]:
    """Return the names of a principal's unknown evidence."""
    unknown = frozenset(principal.unknown)
    return unknown | {"attributes.email"} if has_unreadable_email(principal) else unknown


def _memo_key(group: EngineQuestion) -> tuple[Principal, str]:
    """Return the principal, and the type of resource that changes entities of principals: `server`, `role` or none.

    Sets of roles are empty on the server, and a policy may ask whether the principal is in a role that is the resource.
    """
    on_server = group.type in ("server", "user", CLUSTER[0])
    return group.principal, "server" if on_server else "role" if group.type == "role" else ""


def _context(action: Uid, resource: Resource, builder: EntityBuilder, uid: Uid, *, delegated: bool) -> CedarContext:
    """Return the context of a check with arguments; raise InvalidContext or LongAccessLists."""
    project = "" if uid == SERVER else builder.project_of(uid)[1]
    return make_context(action[1], resource.arguments.given, project, delegated=delegated)


class CedarForbid:
    """Forbids of Cedar on actions outside of the vocabulary, beside the engines that permit.

    Checks of Nessie, moves and datasets are asked as the same deed in the vocabulary. Any other action is in no group:
    only forbids on every action concern such an action.
    """

    name = "cedar"
    forbids = True
    counts_stored_roles = False
    has_forbids = True

    def __init__(self, engine: CedarEngine) -> None:
        self._engine = engine
        policies = engine.model.policies.policies
        self._is_open = any(policy.effect == "forbid" and policy.is_on_every_action for policy in policies)

    @property
    def digest(self) -> str:
        """Return the digest of policies, entities and schema."""
        return self._engine.digest

    @property
    def reads(self) -> frozenset[Dependency]:
        """Return the sources of verdicts."""
        return self._engine.reads

    @property
    def cost(self) -> Cost:
        """Return the cost of a verdict."""
        return self._engine.cost

    def applies(self, action: str, type: str) -> bool:
        """Tell whether a forbid may concern an action that Cedar does not decide."""
        return not self._engine.applies(action, type) and (self._is_open or has_counterpart(action, type))

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Forbid every resource with a forbid on any counterpart of the action."""
        effects = bytearray(len(resources))
        by: list[Reason | None] = [None] * len(resources)
        errors: dict[int, tuple[str, ...]] = {}
        for rows, asked, places in self._asked(group, resources):
            found = self._engine.verdicts(self._engine.judgements(asked, places, facts, _unlisted(asked)), len(places))
            for at, row in enumerate(rows):
                if found.effects[at] in (FORBID, FAILED) and effects[row] != FORBID:
                    effects[row], by[row] = found.effects[at], found.by[at]
                if found.effects[at] == FORBID and at in found.errors:
                    errors[row] = tuple(sorted({*errors.get(row, ()), *found.errors[at]}))
        return Verdicts(bytes(effects), by, errors)

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the policies that forbid the first counterpart of the action with a forbid."""
        for _, asked, places in self._asked(group, (resource,)):
            action = _unlisted(asked)
            judgement = self._engine.judgements(asked, places, facts, action)[0]
            if isinstance(judgement, str) or judgement.effect in (FORBID, FAILED):
                listed = CEDAR_ACTIONS.get((asked.action, asked.type))
                uid = uid_of_resource(places[0], asked.type)
                shown = action_uid(listed) if listed else action
                return explain_judgement(judgement, uid_of_principal(group.principal), shown, uid)
        return Trace("cedar", "silent", f"no forbid concerns {group.action} on {group.type}")

    def _asked(
        self, group: EngineQuestion, resources: Sequence[Resource]
    ) -> Iterator[tuple[Sequence[int], EngineQuestion, Sequence[Resource]]]:
        """Yield the questions about resources, each with the rows that it is about."""
        found: dict[tuple[str, str], tuple[list[int], list[Resource]]] = {}
        for row, resource in enumerate(resources):
            for one in counterparts(group.action, group.type, resource, group.context.actions):
                rows, places = found.setdefault((one.action, one.type), ([], []))
                rows.append(row)
                places.append(one.resource)
        for (action, type), (rows, places) in found.items():
            question = msgspec.structs.replace(group.question, action=action)
            yield rows, msgspec.structs.replace(group, question=question, type=type), places


def _unlisted(group: EngineQuestion) -> Uid:
    """Return the uid of an action that the schema does not have."""
    return ACTION, group.action
