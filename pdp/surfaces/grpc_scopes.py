"""gRPC for LakeQL's scopes: `CheckScopes` of the decision service. Only maps messages; holds no policy."""

from __future__ import annotations

from msgspec import UNSET

from pdp.decision.scopes import ScopesBody, ScopeService
from pdp.decision.turns import converted
from pdp.model.question import Caller
from pdp.surfaces.grpc_handlers import RpcAnswer
from pdp.surfaces.grpc_messages import parse, read_struct
from pdp.wire import decision_pb2 as wire


async def check_scopes(service: ScopeService, surface: str, body: bytes, caller: Caller) -> RpcAnswer:
    """Answer `DecisionService.CheckScopes`: decide the scopes of a field."""
    answer = await service.answer(await converted(body, _read), caller, surface)
    return RpcAnswer(wire.CheckScopesResponse(allowed=answer.decision.allowed), answer.id)


def _read(body: bytes) -> ScopesBody:
    request = parse(body, wire.CheckScopesRequest)
    return ScopesBody(
        read_struct(request.current_user) if request.HasField("current_user") else None,
        read_struct(request.scopes) if request.HasField("scopes") else UNSET,
    )
