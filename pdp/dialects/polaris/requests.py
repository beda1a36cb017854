"""Requests of Apache Polaris's authorizer: bodies to native checks, and the plan of operations without checks.

Polaris up to 1.7 puts a root above every object, and names the namespace of a rename's destination. Later versions send
no root, and name the destination. Both are read. Anything else raises InvalidArgument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from pdp.config.warehouses import PolarisSettings
from pdp.decision.plan import Node, PlanContext
from pdp.errors import InvalidArgument
from pdp.facts.snapshot import Facts
from pdp.model.polaris_operations import (
    NEW_DATA,
    POLARIS_ACTIONS,
    POLARIS_OPERATIONS,
    POLARIS_PREFIX,
    PolarisOperation,
    PolarisStep,
    TargetKind,
)
from pdp.model.question import (
    Arguments,
    BatchRequest,
    Caller,
    Check,
    CheckGrouper,
    Load,
    Principal,
    Question,
    Resource,
)
from pdp.model.references import bound_claims, check_part, check_path, format_resource
from pdp.model.strict import decode
from pdp.model.vocabulary import LOADS

SURFACE: Final = "polaris"
MOST_TARGETS: Final = 1000
"""Targets of one request: tables of one transaction."""
_ADMINS: Final = "config:polaris.admins"
_ROOT: Final = "ROOT"
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


class _PolarisBody(msgspec.Struct, omit_defaults=True, gc=False):
    """Base of Polaris's bodies: unknown keys are ignored.

    No default is an object with fields: `pdp.model.strict.has_all_strings` needs bodies that encode no key of their
    own.
    """


class ObjectName(_PolarisBody):
    """An object by name, below its parents from the outermost."""

    type: str
    name: str
    parents: list[ObjectName] | UnsetType = UNSET


class PolarisObjects(_PolarisBody):
    """Targets of an operation, and its secondary objects. Polaris omits an empty list."""

    targets: list[ObjectName] | UnsetType = UNSET
    secondaries: list[ObjectName] | UnsetType = UNSET


class PolarisActor(_PolarisBody):
    """The principal and its principal roles."""

    principal: str
    roles: list[str] | UnsetType = UNSET


class PolarisContext(_PolarisBody):
    """The context of a request. Polaris before 1.7 sends no realm."""

    request_id: str | UnsetType | None = UNSET
    realm: str | UnsetType = UNSET


class PolarisInput(_PolarisBody):
    """OPA's input document."""

    actor: PolarisActor
    action: str
    resource: PolarisObjects
    context: PolarisContext | UnsetType = UNSET


class PolarisRequest(_PolarisBody):
    """The body of every request."""

    input: PolarisInput


_REQUEST: Final = msgspec.json.Decoder(PolarisRequest)


def decode_request(body: bytes) -> PolarisInput:
    """Return the input document of a body; raise InvalidArgument."""
    return decode(body, _REQUEST, typed=True).input


def operation_name(input: PolarisInput) -> str:
    """Return the name of the operation; raise InvalidArgument for a text that is none."""
    if not _NAME.fullmatch(input.action):
        raise InvalidArgument("`input.action` is no name of an operation")
    return input.action


class PolarisReader:
    """Reader of requests under one set of settings and facts."""

    def __init__(self, settings: PolarisSettings, facts: Facts) -> None:
        self._settings = settings
        self._facts = facts

    def read(self, input: PolarisInput, caller: Caller) -> BatchRequest:
        """Return the checks of a request, which must all permit; raise InvalidArgument for any other request."""
        self._check_realm(input)
        principal = self._principal(input.actor, caller)
        grouper = CheckGrouper()
        count = 0
        for question, resource in self._checks(input, principal):
            grouper.put(Check(question, (resource,), (count,)), count)
            count += 1
        return BatchRequest(SURFACE, count, grouper.checks(), {})

    def _check_realm(self, input: PolarisInput) -> None:
        realms = self._settings.realms
        realm = input.context.realm if input.context is not UNSET else UNSET
        if realm is UNSET and len(realms) > 1:
            raise InvalidArgument("`input.context.realm` is missing, and `polaris.realms` has several")
        if realm is not UNSET and realm not in realms:
            raise InvalidArgument("`input.context.realm` is none of `polaris.realms`")

    def _principal(self, actor: PolarisActor, caller: Caller) -> Principal:
        """Return the principal of an actor. Polaris sends no groups and no attributes, so these are unknown."""
        name = self._settings.user_prefix + check_part(actor.principal)
        unknown = {"attributes", "groups"} - caller.empty
        sent = actor.roles
        if sent is UNSET:
            return Principal("user", name, unknown=tuple(sorted({*unknown, "roles", "member_of"})))
        bound_claims(sent)
        roles = tuple(dict.fromkeys(role for each in sent if (role := self._settings.roles.get(each))))
        return Principal("user", name, roles, member_of=roles, unknown=tuple(sorted(unknown)))

    def _checks(self, input: PolarisInput, principal: Principal) -> Iterator[tuple[Question, Resource]]:
        """Yield a question about one resource for each check of a request."""
        operation = POLARIS_OPERATIONS.get(operation_name(input))
        targets = _objects(input.resource.targets)
        secondaries = _objects(input.resource.secondaries)
        if operation is None or not operation.steps:
            question = Question(principal, POLARIS_PREFIX + input.action)
            yield from ((question, resource) for resource in self._of_administrators(operation, targets, secondaries))
            return
        found = self._targets(operation.target, targets)
        places = self._places(operation, secondaries)
        if "NAMESPACE" in operation.secondary:
            yield from _rename(operation, principal, found, places)
            return
        for step in operation.steps:
            question = _question(principal, step)
            yield from ((question, resource) for resource in self._resources_of(step, found))

    def _resources_of(self, step: PolarisStep, targets: Sequence[Resource]) -> Sequence[Resource]:
        if step.on in ("target", "content"):
            return targets
        return (Resource("server"),) if step.on == "server" else self._projects()

    def _projects(self) -> Sequence[Resource]:
        """Return the projects of all catalogs. A question about all catalogs needs its right in each of them."""
        warehouses = sorted(set(self._settings.catalogs.values()))
        parents = [self._facts.parent(("warehouse", (name,))) for name in warehouses]
        if not parents or None in parents:
            raise InvalidArgument("no project is known of a warehouse of `polaris.catalogs`")
        return [Resource("project", name=name) for name in dict.fromkeys(key[1][0] for key in parents if key)]

    def _targets(self, kind: TargetKind, named: Sequence[ObjectName]) -> Sequence[Resource]:
        if kind == "root":
            if any(each.type != _ROOT for each in named):
                raise InvalidArgument("a target is not the root")
            return ()
        if not named:
            raise InvalidArgument("`input.resource.targets` is missing")
        return [self._target(kind, each) for each in named]

    def _target(self, kind: TargetKind, named: ObjectName) -> Resource:
        """Return the resource of a target; raise InvalidArgument for a target of another type than the operation's."""
        if named.type not in _TYPES[kind]:
            raise InvalidArgument(f"a target is not a {' or '.join(_TYPES[kind])}")
        if named.type == "PRINCIPAL":
            _refuse_parents(named)
            return Resource("user", name=self._settings.user_prefix + check_part(named.name))
        if named.type == "PRINCIPAL_ROLE":
            _refuse_parents(named)
            role = self._settings.roles.get(named.name)
            if role is None:
                raise InvalidArgument("a principal role is none of `polaris.roles`")
            return Resource("role", name=role)
        return self._resource(named, kind if kind in ("table", "view") else "")

    def _resource(self, named: ObjectName, kind: str) -> Resource:
        """Return a catalog, a namespace, or an object in a namespace, as a resource below a warehouse."""
        catalog, *path = _path(named)
        warehouse = self._settings.catalogs.get(catalog)
        if warehouse is None:
            raise InvalidArgument("a catalog is none of `polaris.catalogs`")
        type = _RESOURCE_TYPES.get(named.type, kind)
        return Resource(type, warehouse, check_path(type, tuple(path)))

    def _places(self, operation: PolarisOperation, secondaries: Sequence[ObjectName]) -> Sequence[Resource]:
        """Return the destinations of a rename; none for every other operation. Raise for others than expected."""
        if any(each.type not in operation.secondary for each in secondaries):
            raise InvalidArgument("a secondary object is not of the operation's type")
        if "NAMESPACE" not in operation.secondary or not operation.steps:
            return ()
        return [self._resource(each, operation.target) for each in secondaries]

    def _of_administrators(
        self, operation: PolarisOperation | None, targets: Sequence[ObjectName], secondaries: Sequence[ObjectName]
    ) -> Iterator[Resource]:
        """Yield the server once for each object of an operation without checks, with the object's names as arguments.

        An unknown operation can have any objects.
        """
        if operation is None:
            yield Resource("server")
            return
        self._places(operation, secondaries)
        for named in (*targets, *secondaries) or (ObjectName(_ROOT, _ROOT),):
            yield Resource("server", arguments=Arguments(given=self._place_of(named)))

    def _place_of(self, named: ObjectName) -> dict[str, Any]:
        """Return the names of an object as arguments: none of the root, the catalog, the namespace and the object."""
        if named.type == _ROOT:
            return {}
        if named.type in ("PRINCIPAL", "PRINCIPAL_ROLE"):
            _refuse_parents(named)
            return {"type": named.type, "object": check_part(named.name)}
        catalog, *path = map(check_part, _path(named))
        if catalog not in self._settings.catalogs:
            raise InvalidArgument("a catalog is none of `polaris.catalogs`")
        *namespace, name = path or [""]
        return {"type": named.type, "catalog": catalog, "namespace": namespace, "object": name or catalog}


_TYPES: Final[Mapping[TargetKind, tuple[str, ...]]] = {
    "table": ("TABLE_LIKE",),
    "view": ("TABLE_LIKE",),
    "namespace": ("NAMESPACE",),
    "container": ("NAMESPACE", "CATALOG"),
    "catalog": ("CATALOG",),
    "principal": ("PRINCIPAL",),
    "principal_role": ("PRINCIPAL_ROLE",),
}
"""Kind of the targets of an operation -> types in a body."""
_RESOURCE_TYPES: Final = {"CATALOG": "warehouse", "NAMESPACE": "namespace"}
"""Type in a body -> type of the resource, unless the operation says the type."""


def _objects(named: list[ObjectName] | UnsetType) -> Sequence[ObjectName]:
    if named is UNSET:
        return ()
    if len(named) > MOST_TARGETS:
        raise InvalidArgument(f"more than {MOST_TARGETS} objects in one request")
    return named


def _parents(named: ObjectName) -> Sequence[ObjectName]:
    """Return the parents of an object; raise InvalidArgument if these have parents of their own."""
    parents = () if named.parents is UNSET else named.parents
    if any(each.parents for each in parents):
        raise InvalidArgument("the parents of an object have parents of their own")
    return parents


def _refuse_parents(named: ObjectName) -> None:
    if any(each.type != _ROOT for each in _parents(named)):
        raise InvalidArgument(f"a {named.type} has parents")


def _path(named: ObjectName) -> list[str]:
    """Return the names from the catalog to an object: a catalog, then namespaces, then the object itself."""
    chain = [*_parents(named), named]
    if chain[0].type == _ROOT:
        del chain[0]
    types = [each.type for each in chain]
    inside = types[1:] if types[-1] == "NAMESPACE" else types[1:-1]
    in_namespace = types[-1] not in ("CATALOG", "NAMESPACE", "CATALOG_ROLE")
    if types[:1] != ["CATALOG"] or any(type != "NAMESPACE" for type in inside) or (in_namespace and not inside):
        raise InvalidArgument("the parents of an object are not a catalog and namespaces")
    return [each.name for each in chain]


def _question(principal: Principal, step: PolarisStep) -> Question:
    security = Load() if step.action in LOADS else None
    action = NEW_DATA if step.on == "content" else step.action
    return Question(principal, action, view_security=security, unfiltered=True)


def _rename(
    operation: PolarisOperation, principal: Principal, sources: Sequence[Resource], places: Sequence[Resource]
) -> Iterator[tuple[Question, Resource]]:
    """Yield the checks of a rename to another name, or to an unknown name in a namespace.

    An unknown name takes three checks. A policy that reads the name knows no path in the first and the last. The second
    is for what a move between the two namespaces needs.
    """
    if len(sources) != 1 or len(places) != 1:
        raise InvalidArgument("a rename takes one target and one secondary object")
    (source,), (place,) = sources, places
    rename, creation = (_question(principal, step) for step in operation.steps)
    if place.type != "namespace":
        yield rename, _renamed(source, place)
        return
    same_name = Resource(source.type, place.warehouse, (*place.path, source.path[-1]))
    yield rename, source
    yield rename, _renamed(source, same_name)
    yield creation, place


def _renamed(source: Resource, target: Resource) -> Resource:
    given = {"destination": format_resource(target)}
    return msgspec.structs.replace(source, arguments=Arguments(destination=target, given=given))


def plan_polaris(context: PlanContext, check: Check) -> Node | None:
    """Return the plan of an operation without checks: for administrators, where no forbid binds. None for any other.

    The data of a new table needs a container without hidden rows and columns.
    """
    action = check.question.action
    if not action.startswith(POLARIS_PREFIX):
        return None
    if action == NEW_DATA:
        change = partial(context.concrete, "update_properties")
        return context.deny_restricted(check.resources, action, change)
    if action not in POLARIS_ACTIONS:
        return context.denied("unknown_action", action, check.resources)
    principal, settings = context.principal, context.bundle.polaris
    name = principal.name.removeprefix(settings.user_prefix)
    is_admin = principal.type == "user" and name != principal.name and name in settings.admins
    return (context.permitted if is_admin else context.denied)(_ADMINS, action, check.resources)
