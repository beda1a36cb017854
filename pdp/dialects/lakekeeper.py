"""Lakekeeper's check API, for the published policies for OPA: configuration, and checks in batches.

`warehouse-id` is the prefix that the configuration answered: the name of a warehouse, or an entry of
`lakekeeper.warehouses`. The sender applies no row filters and masks, so a right to data needs all rows and columns.
Source: Lakekeeper 0.13, `authz/opa-bridge` and its management API. Must not know rules of engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from pdp.config.warehouses import LakekeeperChecksSettings
from pdp.decision.batch_builder import BatchBuilder
from pdp.decision.bodies import CheckBody, ContextBody
from pdp.decision.codec import bound_checks
from pdp.decision.service import Pdp
from pdp.decision.turns import converted
from pdp.errors import AssertionNotAllowed, InvalidArgument, NotFound
from pdp.facts.objects import ObjectKey
from pdp.facts.snapshot import Facts
from pdp.identity.evidence import admit, naming_alone
from pdp.model.answer import Rejection
from pdp.model.question import Batch, Caller
from pdp.model.references import format_parts
from pdp.model.strict import decode, read_parameters
from pdp.surfaces.admission import BodyLimits
from pdp.surfaces.http.answers import EndpointAnswer, HttpFailure, HttpSurface
from pdp.surfaces.http.handlers import HttpHandlers, Query, Routes

_ERRORS: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NoSuchWarehouseException",
    503: "ServiceUnavailableException",
}
"""Status -> the type of an error in the specification of Iceberg's REST catalogs."""


def iceberg_error(failure: HttpFailure) -> bytes:
    """Return the body of a failure in the form of Iceberg's REST catalogs."""
    type = _ERRORS.get(failure.status, "InternalServerError")
    return msgspec.json.encode({"error": {"message": failure.message, "type": type, "code": failure.status}})


SURFACE: Final = HttpSurface("lakekeeper", iceberg_error, any_parameter=True)
MOST_CHECKS: Final = 1000
"""Most checks of one request, as in Lakekeeper."""
_TYPES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "server": ("server", ()),
    "project": ("project", ("project-id", "project_id")),
    "warehouse": ("warehouse", ()),
    "namespace": ("namespace", ("namespace-id", "namespace_id")),
    "table": ("table", ("table-id", "table_id")),
    "view": ("view", ("view-id", "view_id", "table-id", "table_id")),
    "generic-table": ("generic_table", ("generic-table-id", "generic_table_id", "table-id", "table_id")),
}
"""Key of an operation -> the type of the object, and the keys of an id."""
_NAMES: Final = {"view": ("view",), "generic_table": ("generic-table", "generic_table")}
"""Type -> the keys of a name, besides `table`."""
_VIEW_ACTIONS: Final = {"read_data": "select", "write_data": "commit"}
"""Action on a view as the published policies send it -> the meant action."""
_ARGUMENTS: Final = ("name", "properties", "updated_properties", "removed_properties")


_Id: TypeAlias = tuple[str, str, str]
"""Type, warehouse and id of an object."""


class _Request(msgspec.Struct):
    checks: list[Raw]


class _Check(msgspec.Struct):
    """One check. `id` comes back with the answer."""

    identity: dict[str, Any] | UnsetType = UNSET
    operation: Any = UNSET
    id: Any = UNSET


class BridgeCheck(NamedTuple):
    """A check of a request: the id, and the native form or the reason why there is none."""

    id: Any
    body: CheckBody | Rejection


_REQUEST: Final = msgspec.json.Decoder(_Request)
_CHECK: Final = msgspec.json.Decoder(_Check)


class LakekeeperSurface:
    """Endpoints of the check API. `owner_properties` name owners of views: only trusted engines set them."""

    def __init__(self, pdp: Pdp, settings: LakekeeperChecksSettings, owner_properties: Sequence[str]) -> None:
        self._pdp = pdp
        self._warehouses = settings.warehouses
        self._owner_properties = frozenset(map(str.lower, owner_properties))
        self._objects = KnownIds()

    def routes(self, handlers: HttpHandlers, limits: BodyLimits) -> Routes:
        """Return the two routes that a client with one URL of Lakekeeper calls."""
        check = handlers.for_decision(SURFACE, self.check, limits, self._check_now)
        return {
            ("GET", "/catalog/v1/config"): handlers.for_query(SURFACE, self.config),
            ("POST", "/management/v1/action/batch-check"): check,
        }

    async def config(self, query: Query, caller: Caller) -> EndpointAnswer:
        """Return the prefix of a warehouse; raise NotFound for a warehouse without one."""
        _require_rights(caller)
        name = read_parameters(query, frozenset({"warehouse"})).get("warehouse")
        if not name:
            raise InvalidArgument("the parameter `warehouse` is missing")
        if self._warehouse(name) is None:
            raise NotFound("no such warehouse: see `lakekeeper.warehouses`")
        return EndpointAnswer(msgspec.json.encode({"overrides": {}, "defaults": {"prefix": name}}), "")

    async def check(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Decide the checks of a body, in order."""
        asked = await converted(body, self._read)
        answer = (await self._pdp.decide(self._batch(asked, caller))).answer
        return EndpointAnswer(_encode(asked, answer.allowed), answer.id)

    def _check_now(self, body: bytes, caller: Caller) -> EndpointAnswer | None:
        asked = self._read(body)
        result = self._pdp.decide_now(self._batch(asked, caller))
        if result is None:
            return None
        return EndpointAnswer(_encode(asked, result.answer.allowed), result.answer.id)

    def _read(self, body: bytes) -> Sequence[BridgeCheck]:
        """Return the checks of a body; raise InvalidArgument for a body, or an identity, in another form."""
        checks = decode(body, _REQUEST).checks
        if not checks:
            raise InvalidArgument("`checks` is empty")
        bound_checks(len(checks), MOST_CHECKS)
        return [self._read_check(number, bytes(text)) for number, text in enumerate(checks)]

    def _read_check(self, number: int, text: bytes) -> BridgeCheck:
        try:
            check = _CHECK.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise InvalidArgument(f"`checks[{number}]` has another form") from None
        principal = _principal(number, check.identity)
        try:
            return BridgeCheck(check.id, self._native(principal, check.operation))
        except InvalidArgument as error:
            return BridgeCheck(check.id, Rejection(error.code, str(error)))

    def _native(self, principal: str, operation: Any) -> CheckBody:
        """Return the native form of an operation; raise InvalidArgument for one without."""
        if not isinstance(operation, dict) or len(operation) != 1:
            raise InvalidArgument("`operation` names one object")
        ((kind, given),) = operation.items()
        known = _TYPES.get(kind.replace("_", "-"))
        if known is None or not isinstance(given, dict):
            raise InvalidArgument("`operation` names an object of an unknown type, or does not describe it")
        action, arguments = _action(given)
        type, path = self._place(known, given)
        if type == "view":
            action = _VIEW_ACTIONS.get(action, action)
            self._refuse_owner(arguments)
        context = ContextBody(arguments=arguments) if arguments else UNSET
        reference = "server" if type == "server" else f"{type}:{format_parts(path)}"
        return CheckBody(principal=principal, action=action, resource=reference, context=context)

    def _place(self, known: tuple[str, tuple[str, ...]], given: Mapping[str, Any]) -> ObjectKey:
        """Return the type and path of an object by name or id."""
        type, id_keys = known
        if type == "server":
            return type, ("",)
        if type == "project":
            return type, (_text(given, *id_keys),)
        prefix = _text(given, "warehouse-id", "warehouse_id")
        warehouse = self._warehouse(prefix)
        if warehouse is None:
            raise InvalidArgument("`warehouse-id` is no entry of `lakekeeper.warehouses`")
        if type == "warehouse":
            return type, (warehouse,)
        if not given.keys().isdisjoint(id_keys):
            if any(key in given for key in ("table", *_NAMES.get(type, ()))):
                raise InvalidArgument("an object has a name or an id, not both")
            return self._objects.find(self._pdp.source.facts, type, warehouse, _text(given, *id_keys))
        namespace = given.get("namespace")
        if not isinstance(namespace, list) or not namespace or not all(part.__class__ is str for part in namespace):
            raise InvalidArgument("`namespace` is no list of names")
        name = () if type == "namespace" else (_text(given, "table", *_NAMES.get(type, ())),)
        return type, (warehouse, *namespace, *name)

    def _warehouse(self, prefix: str) -> str | None:
        """Return the warehouse of a prefix; None if no warehouse has the prefix."""
        if self._warehouses:
            return self._warehouses.get(prefix)
        return prefix if prefix in self._pdp.bundle.warehouses else None

    def _refuse_owner(self, arguments: Mapping[str, Any]) -> None:
        given = [names for key in _ARGUMENTS[1:] if isinstance(names := arguments.get(key), dict | list)]
        if any(str(name).lower() in self._owner_properties for names in given for name in names):
            raise InvalidArgument("the owner of a view is set by its engine alone")

    def _batch(self, asked: Sequence[BridgeCheck], caller: Caller) -> Batch:
        """Return the admitted checks; raise AssertionNotAllowed for a caller who may not name principals."""
        _require_rights(caller)
        builder = BatchBuilder()
        builder.add_items(each.body for each in asked)
        return admit(builder.unfiltered_request(SURFACE.name), naming_alone(caller))


class KnownIds:
    """Objects of facts by their ids. Made when a request first names an id, and again when the facts change."""

    def __init__(self) -> None:
        self._known: tuple[Facts | None, dict[_Id, ObjectKey | None]] = None, {}

    def find(self, facts: Facts, type: str, warehouse: str, id: str) -> ObjectKey:
        """Return the object of a type with an id; raise InvalidArgument unless the warehouse has exactly one."""
        known = self._known
        if known[0] is not facts:
            # INVARIANT: facts and keys are read and set together, because a thread reads long bodies.
            known = self._known = facts, _keys_by_id(facts)
        key = known[1].get((type, warehouse, id))
        if key is None:
            raise InvalidArgument("this id names no known object, or several")
        return key


def _keys_by_id(facts: Facts) -> dict[_Id, ObjectKey | None]:
    """Return the objects with an id; None for an id of several."""
    keys: dict[_Id, ObjectKey | None] = {}
    for each in facts.objects():
        if each.id and each.key[1]:
            name = each.key[0], each.key[1][0], each.id
            keys[name] = None if name in keys else each.key
    return keys


def _require_rights(caller: Caller) -> None:
    if "principals" not in caller.may_assert:
        raise AssertionNotAllowed(f"caller `{caller.name}` may not assert principals")


def _principal(number: int, identity: Mapping[str, Any] | UnsetType) -> str:
    """Return the principal of an identity; raise InvalidArgument unless exactly one is named."""
    if identity is not UNSET and len(identity) == 1 and type(user := identity.get("user")) is str and user:
        return f"user:{user}"
    found = {} if identity is UNSET else {key: id for key, id in identity.items() if id is not None}
    if len(found) != 1 or found.keys() - {"user", "role"}:
        raise InvalidArgument(f"`checks[{number}].identity` names exactly one `user` or `role`")
    ((kind, id),) = found.items()
    if not isinstance(id, str) or not id:
        raise InvalidArgument(f"`checks[{number}].identity.{kind}` is no text")
    return f"{kind}:{id}"


def _action(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the action of an operation, and the arguments."""
    action = given.get("action")
    if isinstance(action, str):
        return action, {}
    if not isinstance(action, dict) or not isinstance(action.get("action"), str):
        raise InvalidArgument("`action` has no name")
    if len(action) == 1:
        return action["action"], {}
    return action["action"], {key: action[key] for key in _ARGUMENTS if action.get(key) is not None}


def _text(given: Mapping[str, Any], *keys: str) -> str:
    """Return the one text under some keys; raise InvalidArgument for none, several, or another value."""
    found: Any = UNSET
    for key in keys:
        value = given.get(key, UNSET)
        if value is not UNSET:
            found = value if found is UNSET else None
    if type(found) is not str or not found:
        raise InvalidArgument(f"`{keys[0]}` is missing, no text, or written twice")
    return found


def _encode(asked: Sequence[BridgeCheck], allowed: Sequence[int]) -> bytes:
    """Return the answers in order, each with the id of the check."""
    results = [
        {"allowed": bool(each)} if check.id is UNSET or check.id is None else {"id": check.id, "allowed": bool(each)}
        for check, each in zip(asked, allowed, strict=True)
    ]
    return msgspec.json.encode({"results": results})
