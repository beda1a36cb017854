"""gRPC for management: the methods of `pdp.v1.GrantsService` and `List`. Only maps messages; holds no policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc
from msgspec import UNSET, UnsetType

from pdp.decision.bodies import PrincipalBody, make_resource
from pdp.decision.turns import converted
from pdp.management.codec import (
    PAGE_SIZE,
    canonical_action,
    check_grantable,
    grant_body,
    grant_edits,
    make_grant_filter,
    make_list_requester,
    make_object_query,
    make_page_request,
    make_requester,
    object_edits,
    page_token,
)
from pdp.management.requests import GrantEdits, GrantListing, ObjectEdits, PageRequest, Requester
from pdp.management.service import Management
from pdp.model.question import Caller, Resource
from pdp.surfaces.grpc_handlers import GrpcHandlers, GrpcMethod, RpcAnswer
from pdp.surfaces.grpc_messages import parse, read_consistency, read_optional_principal, read_resource
from pdp.wire import decision_pb2 as wire


class GrantsService:
    """Methods of the grants service. Each maps a request message to a call and the result to a response message."""

    name: Final = "pdp.v1.GrantsService"

    def __init__(self, management: Management) -> None:
        self._management = management

    @property
    def methods(self) -> Mapping[str, GrpcMethod]:
        """Return the methods by name."""
        return {
            "WriteGrants": self.write_grants,
            "ListGrants": self.list_grants,
            "WriteObjects": self.write_objects,
            "Access": self.access,
        }

    def handler(self, handlers: GrpcHandlers) -> grpc.GenericRpcHandler:
        """Return the handler of all methods."""
        return handlers.service(self.name, self.methods)

    async def write_grants(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Add and remove grants."""
        request, edits = await converted(body, _read_grants)
        requester = read_requester(request, caller)
        revision, flagged = await self._management.write_grants(requester, edits)
        return RpcAnswer(wire.WriteGrantsResponse(revision=revision, flagged=map(_grant, flagged)), requester.id)

    async def list_grants(self, body: bytes, caller: Caller) -> RpcAnswer:
        """List one page of grants."""
        request = await converted(body, parse, wire.ListGrantsRequest)
        filter = make_grant_filter(
            {
                "object": request.object,
                "below": "true" if request.below else "false",
                "principal": request.principal,
                "privilege": request.privilege,
            }
        )
        requester = read_requester(request, caller)
        page = await self._management.list_grants(requester, filter, read_page(request))
        grants, token = map(_grant, page.entries), page_token(page.next)
        return RpcAnswer(
            wire.ListGrantsResponse(grants=grants, next_page_token=token, revision=page.revision), requester.id
        )

    async def write_objects(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Delete, move and register objects."""
        request, edits = await converted(body, _read_objects)
        requester = read_requester(request, caller)
        revision = await self._management.write_objects(requester, edits)
        return RpcAnswer(wire.WriteObjectsResponse(revision=revision), requester.id)

    async def access(self, body: bytes, caller: Caller) -> RpcAnswer:
        """List one page of the principals that may do an action on an object."""
        request, named = await converted(body, _read_access)
        resource = check_grantable(named, caller)
        action = canonical_action(resource.type, request.action)
        requester = read_requester(request, caller)
        page = await self._management.list_access(requester, action, resource, read_page(request))
        principals = [wire.AccessResponse.Access(principal=name, by=[by]) for name, by in page.entries.items()]
        token = page_token(page.next)
        return RpcAnswer(
            wire.AccessResponse(principals=principals, next_page_token=token, revision=page.revision), requester.id
        )


async def list_objects(management: Management, body: bytes, caller: Caller) -> RpcAnswer:
    """Answer `DecisionService.List`: list one page of the objects on which a principal may do an action."""
    request, principal = await converted(body, _read_list)
    role = request.acting_role if request.HasField("acting_role") else UNSET
    requester = make_list_requester(caller, principal, role, read_consistency(request.consistency))
    query = make_object_query(request.action, request.type, request.container)
    page = await management.list_objects(requester, query, read_page(request))
    objects, token = list(page.entries), page_token(page.next)
    return RpcAnswer(wire.ListResponse(objects=objects, next_page_token=token, revision=page.revision), requester.id)


def _read_grants(body: bytes) -> tuple[wire.WriteGrantsRequest, GrantEdits]:
    request = parse(body, wire.WriteGrantsRequest)
    return request, grant_edits([*map(_grant_entry, request.add)], [*map(_grant_entry, request.remove)])


def _read_objects(body: bytes) -> tuple[wire.WriteObjectsRequest, ObjectEdits]:
    request = parse(body, wire.WriteObjectsRequest)
    moves = [(getattr(move, "from"), move.to) for move in request.move]
    return request, object_edits([*map(_object_entry, request.put)], request.delete, moves)


def _read_access(body: bytes) -> tuple[wire.AccessRequest, Resource]:
    request = parse(body, wire.AccessRequest)
    return request, make_resource(read_resource(request.resource))


def _read_list(body: bytes) -> tuple[wire.ListRequest, str | PrincipalBody | UnsetType]:
    request = parse(body, wire.ListRequest)
    return request, read_optional_principal(request)


def read_page(request: Any) -> PageRequest:
    """Return the page that a message asks for; raise InvalidArgument."""
    return make_page_request(request.page_size or PAGE_SIZE, request.page_token)


def read_requester(request: Any, caller: Caller) -> Requester:
    """Return the requester of a message. Messages without the field `consistency` read the facts at hand."""
    actor = request.actor
    consistency = read_consistency(request.consistency) if hasattr(request, "consistency") else "minimize_latency"
    role: str | UnsetType = actor.acting_role if actor.HasField("acting_role") else UNSET
    return make_requester(caller, read_optional_principal(actor), role, consistency)


def _grant_entry(grant: wire.Grant) -> dict[str, str]:
    """Return a grant as a world file writes an entry."""
    entry = {"principal": grant.principal, "privilege": grant.privilege, "object": grant.object}
    return entry | ({"id": grant.id} if grant.id else {})


def _object_entry(object: wire.Object) -> dict[str, Any]:
    entry: dict[str, Any] = {"object": object.object}
    if object.parent:
        entry["parent"] = object.parent
    if object.HasField("managed_access"):
        entry["managedAccess"] = object.managed_access
    return entry | ({"id": object.id} if object.id else {})


def _grant(listing: GrantListing) -> wire.Grant:
    return wire.Grant(**grant_body(listing))
