"""Apache Ranger's PDP protocol, for services of the type `hive`: authorize, authorizeMulti and permissions.

A permission is native checks that must all permit. A permit to select has the row filter and the masks in SQL of Spark,
which the client applies. Nothing else is filtered, so other rights to data need all rows and columns. Services, types
of resources and permissions without a meaning here are denied. Source: Ranger 2.9, `authz-api` and `authz-remote`. Must
not know rules of engines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from pdp.config.warehouses import RangerSettings
from pdp.decision.batch_builder import BatchBuilder
from pdp.decision.bodies import CheckBody, ContextBody, PrincipalBody, make_resource
from pdp.decision.codec import bound_checks
from pdp.decision.service import Pdp
from pdp.decision.turns import converted
from pdp.engines.known_names import reads_table_reference
from pdp.errors import AmbiguousName, InvalidArgument, TableDenied
from pdp.facts.objects import fold_column
from pdp.identity.evidence import DESCRIPTION, admit, naming_alone, without_inspection
from pdp.management.codec import MAX_PAGE_SIZE, canonical_action, check_grantable, make_requester
from pdp.management.requests import PageRequest
from pdp.management.service import Management
from pdp.model.answer import Rejection
from pdp.model.question import Batch, Caller
from pdp.model.references import check_part, check_path, format_parts
from pdp.model.strict import decode
from pdp.row_access.requests import FilterBody, FilterResult
from pdp.row_access.service import StatementService
from pdp.surfaces.admission import BodyLimits
from pdp.surfaces.http.answers import EndpointAnswer, HttpFailure, HttpSurface
from pdp.surfaces.http.handlers import HttpHandlers, Routes

T = TypeVar("T")


def ranger_error(failure: HttpFailure) -> bytes:
    """Return the body of a failure as Ranger's PDP writes errors."""
    return msgspec.json.encode({"code": failure.code, "message": failure.message})


SURFACE: Final = HttpSurface("ranger", ranger_error, any_parameter=True)
MOST_CHECKS: Final = 1000
"""Permissions of one request, each on one resource."""
_SERVICE_TYPE: Final = "hive"
_SELECT: Final = "select"
_NAME: Final = re.compile(r"[A-Za-z_ -]{1,64}")


class RangerStep(NamedTuple):
    """Check of a permission. `on` is the parent for a creation, whose name the check has.

    `is_whole`: the client applies no filters and masks, so all rows and columns are needed.
    """

    action: str
    type: str
    on: str = "resource"
    is_whole: bool = False


_READ: Final = (RangerStep("read_data", "table_or_view", is_whole=True),)
"""Right to all rows and columns. Without this right, the right to the visible part is asked, with the filter."""
PERMISSIONS: Final[Mapping[tuple[str, str], tuple[RangerStep, ...]]] = {
    ("database", "_any"): (RangerStep("include_in_list", "namespace"),),
    ("database", "create"): (RangerStep("create_namespace", "warehouse", "parent"),),
    ("database", "alter"): (RangerStep("update_properties", "namespace"),),
    ("database", "drop"): (RangerStep("delete", "namespace"),),
    ("table", "_any"): (RangerStep("include_in_list", "table_or_view"),),
    ("table", "select"): _READ,
    ("column", "select"): _READ,
    ("table", "update"): (RangerStep("write_data", "table", is_whole=True),),
    ("table", "create"): (RangerStep("create_table", "namespace", "parent"),),
    ("table", "alter"): (RangerStep("commit", "table"), RangerStep("rename", "table")),
    ("table", "drop"): (RangerStep("drop", "table"),),
}
"""Type of a resource and permission of a service of Hive -> the checks, which must all permit. No other is known."""
_PARTS: Final = {"database": 1, "table": 2, "column": 3}
_WHOLE: Final = frozenset(step.action for steps in PERMISSIONS.values() for step in steps if step.is_whole)


class _RangerBody(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """Base of Ranger's bodies: unknown keys are ignored, and Jackson leaves out null and empty values."""


class RangerResource(_RangerBody):
    """A resource as `type:name`, with names of resources below."""

    name: str
    sub_resources: list[str] | UnsetType | None = UNSET
    name_match_scope: str | UnsetType | None = UNSET


class RangerUser(_RangerBody):
    """A user, and the evidence that the caller states."""

    name: str
    attributes: dict[str, Any] | UnsetType | None = UNSET
    groups: list[str] | UnsetType | None = UNSET
    roles: list[str] | UnsetType | None = UNSET


class RangerAccess(_RangerBody):
    """Permissions on a resource."""

    resource: RangerResource
    action: str | UnsetType | None = UNSET
    permissions: list[str] | UnsetType | None = UNSET


class RangerContext(_RangerBody):
    """The service behind a request."""

    service_name: str | UnsetType | None = UNSET
    service_type: str | UnsetType | None = UNSET


class RangerRequest(_RangerBody):
    """Body of authorize, or of authorizeMulti."""

    user: RangerUser
    context: RangerContext
    request_id: str | UnsetType | None = UNSET
    access: RangerAccess | UnsetType | None = UNSET
    accesses: list[RangerAccess] | UnsetType | None = UNSET


class RangerListing(_RangerBody):
    """Body of permissions."""

    resource: RangerResource
    context: RangerContext
    request_id: str | UnsetType | None = UNSET


_REQUEST: Final = msgspec.json.Decoder(RangerRequest)
_LISTING: Final = msgspec.json.Decoder(RangerListing)


class _Access(NamedTuple):
    """Access of a request in native form: `place` is the table, and `columns` are keys with names of columns.

    `checks` has the checks of each permission; empty for a permission without a meaning.
    """

    place: tuple[str, ...]
    columns: Mapping[str, str]
    checks: Mapping[str, Sequence[CheckBody]]
    is_column: bool = False


class RangerSurface:
    """Endpoints of the protocol. `statements` gives filters and masks, `management` lists principals."""

    def __init__(
        self, pdp: Pdp, statements: StatementService, management: Management, settings: RangerSettings
    ) -> None:
        self._pdp, self._statements, self._management, self._settings = pdp, statements, management, settings

    def routes(self, handlers: HttpHandlers, limits: BodyLimits) -> Routes:
        """Return the three routes below the address of the client's configuration."""
        endpoints = {"authorize": self.authorize, "authorizeMulti": self.authorize_all, "permissions": self.permissions}
        return {
            ("POST", f"/authz/v1/{path}"): handlers.for_body(SURFACE, endpoint, limits)
            for path, endpoint in endpoints.items()
        }

    async def authorize(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Decide the permissions of one access: ALLOW if all are allowed, else DENY."""
        request = await converted(body, _read, _REQUEST)
        if not request.access or request.accesses:
            raise InvalidArgument("`access` is missing, or beside `accesses`")
        results, id = await self._decide(request, [request.access], caller)
        return EndpointAnswer(msgspec.json.encode({**_head(request.request_id), **results[0]}), id)

    async def authorize_all(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Decide the permissions of several accesses, in order: PARTIAL if some are allowed."""
        request = await converted(body, _read, _REQUEST)
        if not request.accesses or request.access:
            raise InvalidArgument("`accesses` is missing or empty, or beside `access`")
        results, id = await self._decide(request, request.accesses, caller)
        kinds = {result["decision"] for result in results}
        decision = kinds.pop() if len(kinds) == 1 else "PARTIAL"
        answer = {**_head(request.request_id), "decision": decision, "accesses": results}
        return EndpointAnswer(msgspec.json.encode(answer), id)

    async def permissions(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return who has which permission on a resource. Users with hidden rows or columns lack rights to data."""
        listing = await converted(body, _read, _LISTING)
        requester = replace(make_requester(caller, UNSET, UNSET), unfiltered=True)
        found: dict[str, dict[str, dict[str, Any]]] = {"user": {}, "role": {}}
        for permission, action, reference in self._listed(listing):
            resource, _ = check_grantable(make_resource(reference), caller)
            asked = canonical_action(resource.type, action)
            page = await self._management.list_access(requester, asked, resource, PageRequest.at(MAX_PAGE_SIZE, ""))
            if page.next:
                raise InvalidArgument(f"more than {MAX_PAGE_SIZE} principals have a permission: ask by /v1/access")
            for kind, name in filter(None, map(self._foreign, page.entries)):
                found[kind].setdefault(name, {})[permission] = _permission(permission, is_allowed=True)
        answer = {"resource": listing.resource, "users": found["user"], "groups": {}, "roles": found["role"]}
        return EndpointAnswer(msgspec.json.encode(answer), requester.id)

    def _foreign(self, principal: str) -> tuple[str, str] | None:
        """Return the kind and name of a principal as Ranger knows them; None for principals without a name there."""
        kind, _, name = principal.partition(":")
        prefix = self._settings.user_prefix
        if kind == "user" and name.startswith(prefix):
            return kind, name.removeprefix(prefix)
        return (kind, name) if kind == "role" else None

    def _listed(self, listing: RangerListing) -> Iterator[tuple[str, str, str]]:
        """Yield each permission that one check on the resource itself decides, with the action and the reference."""
        type = listing.resource.name.partition(":")[0]
        named = [permission for kind, permission in PERMISSIONS if kind == type]
        access = self._native(RangerAccess(listing.resource, permissions=named), listing.context, UNSET)
        for permission, checks in access.checks.items():
            if len(checks) == 1 and checks[0].context is UNSET and isinstance(checks[0].resource, str):
                yield permission, checks[0].action, checks[0].resource.replace("table_or_view:", "table:", 1)

    async def _decide(
        self, request: RangerRequest, accesses: Sequence[RangerAccess], caller: Caller
    ) -> tuple[list[dict[str, Any]], str]:
        """Return the result of each access, and the id of the decision; raise AssertionNotAllowed."""
        bound_checks(sum(len(access.permissions or ()) for access in accesses), MOST_CHECKS)
        principal, speaker = self._speaker(request.user, caller)
        asked = [self._native(access, request.context, principal) for access in accesses]
        batch = await self._admitted(asked, principal, speaker, accesses)
        answer = (await self._pdp.decide(batch)).answer
        allowed = iter(answer.allowed)
        results = []
        for access in asked:
            counts = {name: len(checks) or 1 for name, checks in access.checks.items()}
            decided = {name: all([*islice(allowed, count)]) for name, count in counts.items()}
            part = None
            if decided.get(_SELECT) is False:
                part = await self._visible_part(access, principal, speaker)
                decided[_SELECT] = part is not None
            results.append(_result(access, decided, part))
        return results, answer.id

    async def _admitted(
        self, asked: Sequence[_Access], principal: PrincipalBody, speaker: Caller, accesses: Sequence[RangerAccess]
    ) -> Batch:
        """Return the admitted checks, with one rejected position for a permission without a meaning."""
        builder, unknown = BatchBuilder(), Rejection("unknown_action", "the permission has no meaning here")
        builder.add_items(
            item for access in asked for checks in access.checks.values() for item in checks or (unknown,)
        )
        request = builder.request(SURFACE.name)
        checks = [check.asking(unfiltered=check.question.action in _WHOLE) for check in request.checks]
        batch = admit(replace(request, checks=checks), speaker)
        if batch.refused:
            raise await self._pdp.refusal(batch)
        action = accesses[0].action if len(accesses) == 1 else ""
        probes = all(check.question.action == "read_data" for check in checks)
        return replace(batch, operation=action if action and _NAME.fullmatch(action) else "", probes=probes)

    def _speaker(self, user: RangerUser, caller: Caller) -> tuple[PrincipalBody, Caller]:
        """Return the principal of a request, and the caller with the rights to what the request states.

        Jackson leaves out empty values, so absent evidence is unknown, unless the caller's `empty` has the kind.
        """
        given = {kind: value for kind in DESCRIPTION if (value := getattr(user, kind))}
        principal = PrincipalBody(f"user:{self._settings.user_prefix}{check_part(user.name)}", **_frozen(given))
        return principal, without_inspection(naming_alone(caller, given))

    def _native(self, access: RangerAccess, context: RangerContext, principal: PrincipalBody | UnsetType) -> _Access:
        """Return an access in native form. Without a place here, no permission has a meaning."""
        named = dict.fromkeys(access.permissions or ())
        try:
            type, place, columns = self._place(access.resource, context)
        except InvalidArgument:
            return _Access((), {}, dict.fromkeys(named, ()))
        table = place[:-1] if type == "column" else place
        return _Access(
            table,
            columns,
            {name: [_check(step, table, principal) for step in PERMISSIONS.get((type, name), ())] for name in named},
            type == "column",
        )

    def _place(
        self, resource: RangerResource, context: RangerContext
    ) -> tuple[str, tuple[str, ...], Mapping[str, str]]:
        """Return the type, the path with the warehouse, and the columns of a resource; raise InvalidArgument."""
        warehouse = self._settings.services.get(context.service_name or "")
        if warehouse is None or (context.service_type or _SERVICE_TYPE) != _SERVICE_TYPE:
            raise InvalidArgument("a service is none of `ranger.services`, or not of Hive")
        if (resource.name_match_scope or "SELF") != "SELF":
            raise InvalidArgument("a resource stands for others below")
        type, _, name = resource.name.partition(":")
        parts = name.split("/")
        columns = {key: _column(key) for key in resource.sub_resources or ()}
        if _PARTS.get(type) != len(parts) or not all(parts) or (columns and type != "table"):
            raise InvalidArgument("a resource is no database, table or column")
        if any(sign in text for text in (name, *columns.values()) for sign in "*\\"):
            raise InvalidArgument("a name is a pattern, or has an escape")
        database, *below = parts
        if type == "column":
            columns = {resource.name: below[1]}
        if below and reads_table_reference(self._pdp.bundle.warehouses.get(warehouse), below[0]):
            raise AmbiguousName(f"`{below[0]}` may be a table reference of Nessie's")
        path = (*database.split("."), *below)
        check_path("table" if type == "column" else "namespace" if type == "database" else type, path)
        return type, (warehouse, *path), columns

    async def _visible_part(self, access: _Access, principal: PrincipalBody, speaker: Caller) -> FilterResult | None:
        """Return the filter and masks of a table with hidden rows or columns.

        None without the right to read, and if the client cannot apply them, or Spark cannot read them.
        """
        if not access.checks[_SELECT] or not self._pdp.bundle.has_row_policies(self._pdp.source.facts):
            return None
        body = FilterBody(f"table_or_view:{format_parts(access.place)}", "spark", principal)
        try:
            found = await self._statements.filter(body, speaker, SURFACE.name)
        except (InvalidArgument, TableDenied):
            return None
        # A client that names no columns masks none.
        return found if access.columns or not found.masks else None


def _read(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    return decode(body, decoder, typed=True)


def _frozen(given: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: tuple(value) if isinstance(value, list) else value for kind, value in given.items()}


def _check(step: RangerStep, place: tuple[str, ...], principal: PrincipalBody | UnsetType) -> CheckBody:
    """Return the check of a step on a database or table."""
    if step.on == "parent":
        *above, name = place
        context = ContextBody(arguments={"name": name})
        return CheckBody(principal=principal, action=step.action, resource=_reference(above), context=context)
    return CheckBody(principal=principal, action=step.action, resource=f"{step.type}:{format_parts(place)}")


def _reference(container: Sequence[str]) -> str:
    return f"{'namespace' if len(container) > 1 else 'warehouse'}:{format_parts(container)}"


def _column(key: str) -> str:
    """Return the column of a resource below a table; raise InvalidArgument for another resource."""
    type, _, name = key.partition(":")
    if type != "column":
        raise InvalidArgument("a resource below a table is no column")
    return check_part(name)


def _head(id: str | UnsetType | None) -> dict[str, str]:
    return {"requestId": id} if id else {}


def _permission(name: str, *, is_allowed: bool) -> dict[str, Any]:
    return {"permission": name, "access": {"decision": "ALLOW" if is_allowed else "DENY"}}


def _result(access: _Access, decided: Mapping[str, bool], part: FilterResult | None) -> dict[str, Any]:
    """Return the result of an access, with the filter and masks of a permit to select."""
    permissions = {name: _permission(name, is_allowed=allowed) for name, allowed in decided.items()}
    for name, result in permissions.items():
        masks = {}
        if name == _SELECT and part is not None:
            masks = {fold_column(column): _mask(column, mask.expression) for column, mask in part.masks}
            if part.row_filter is not None:
                result["rowFilter"] = {"filterExpr": part.row_filter.expression}
        below = {}
        for key, column in access.columns.items():
            mask = masks.get(fold_column(column))
            below[key] = _permission(name, is_allowed=decided[name]) | ({"dataMask": mask} if mask else {})
        if access.is_column:
            result.update(next(iter(below.values())))
        elif below:
            result["subResources"] = below
    is_allowed = bool(decided) and all(decided.values())
    return {"decision": "ALLOW" if is_allowed else "DENY", "permissions": permissions}


def _mask(column: str, sql: str) -> dict[str, str]:
    """Return a mask of one column. The client puts the name of the column for `{col}`."""
    sql = "NULL" if "{" in sql else sql
    sql = sql.replace(f"`{column}`", "`{col}`") if column.isidentifier() else sql
    return {"maskType": "CUSTOM", "maskedValue": sql}
