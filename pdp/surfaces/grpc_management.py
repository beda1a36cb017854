"""gRPC for management: the methods of `pdp.v1.GrantsService` and `List`. Only maps messages; holds no policy."""

from __future__ import annotations

from typing import Any, Final

import grpc
from msgspec import UNSET, UnsetType

from pdp.decision.codec import make_resource
from pdp.management.codec import (
    PAGE_SIZE,
    action_of,
    asking_about,
    asking_of,
    grant_body,
    grant_edits,
    granted_on,
    list_question,
    object_edits,
    page_of,
    token_of,
    wanted_of,
)
from pdp.management.service import GrantListing, Management, PageRequest, PageResult, Requester
from pdp.model.checks import Caller
from pdp.surfaces.grpc_handlers import GrpcHandlers
from pdp.surfaces.grpc_messages import parse, read_consistency, read_optional_principal, read_resource
from pdp.wire import decision_pb2 as wire


class GrantsService:
    """Methods of the grants service. Each maps a request message to a call and the result to a response message."""

    name: Final = "pdp.v1.GrantsService"

    def __init__(self, management: Management) -> None:
        self._management = management

    def handler(self, handlers: GrpcHandlers) -> grpc.GenericRpcHandler:
        """Return the handler of all methods."""
        return handlers.service(
            self.name,
            {
                "WriteGrants": self.write_grants,
                "ListGrants": self.list_grants,
                "WriteObjects": self.write_objects,
                "Access": self.access,
            },
        )

    async def write_grants(self, body: bytes, caller: Caller) -> wire.WriteGrantsResponse:
        """Add and remove grants."""
        request = parse(body, wire.WriteGrantsRequest)
        edits = grant_edits([*map(_grant_entry, request.add)], [*map(_grant_entry, request.remove)])
        revision, flagged = await self._management.write_grants(_requester(request, caller), edits)
        return wire.WriteGrantsResponse(revision=revision, flagged=map(_grant, flagged))

    async def list_grants(self, body: bytes, caller: Caller) -> wire.ListGrantsResponse:
        """List one page of grants."""
        request = parse(body, wire.ListGrantsRequest)
        filter = wanted_of(
            {
                "object": request.object,
                "below": "true" if request.below else "false",
                "principal": request.principal,
                "privilege": request.privilege,
            }
        )
        listings, next, revision = await self._management.grants(_requester(request, caller), filter, _page(request))
        return wire.ListGrantsResponse(grants=map(_grant, listings), next_page_token=token_of(next), revision=revision)

    async def write_objects(self, body: bytes, caller: Caller) -> wire.WriteObjectsResponse:
        """Delete, move and register objects."""
        request = parse(body, wire.WriteObjectsRequest)
        moves = [(getattr(move, "from"), move.to) for move in request.move]
        edits = object_edits([*map(_object_entry, request.put)], request.delete, moves)
        return wire.WriteObjectsResponse(
            revision=await self._management.write_objects(_requester(request, caller), edits)
        )

    async def access(self, body: bytes, caller: Caller) -> wire.AccessResponse:
        """List one page of the principals that may do an action on an object."""
        request = parse(body, wire.AccessRequest)
        resource = granted_on(make_resource(read_resource(request.resource)), caller)
        action = action_of(resource.type, request.action)
        page = await self._management.access(_requester(request, caller), action, resource, _page(request))
        principals = [wire.AccessResponse.Access(principal=name, by=[by]) for name, by in page.entries.items()]
        return wire.AccessResponse(principals=principals, next_page_token=token_of(page.next), revision=page.revision)


async def list_objects(management: Management, body: bytes, caller: Caller) -> wire.ListResponse:
    """Answer `DecisionService.List`: list one page of the objects on which a principal may do an action."""
    request = parse(body, wire.ListRequest)
    role = request.acting_role if request.HasField("acting_role") else UNSET
    requester = asking_about(caller, read_optional_principal(request), role, read_consistency(request.consistency))
    question = list_question(request.action, request.type, request.container)
    page: PageResult = await management.list_objects(requester, question, _page(request))
    return wire.ListResponse(objects=list(page.entries), next_page_token=token_of(page.next), revision=page.revision)


def _page(request: Any) -> PageRequest:
    return page_of(request.page_size or PAGE_SIZE, request.page_token)


def _requester(request: Any, caller: Caller) -> Requester:
    """Return who manages. Messages without the field `consistency` read the facts at hand."""
    actor = request.actor
    consistency = read_consistency(request.consistency) if hasattr(request, "consistency") else "minimize_latency"
    role: str | UnsetType = actor.acting_role if actor.HasField("acting_role") else UNSET
    return asking_of(caller, read_optional_principal(actor), role, consistency)


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
