"""Attacks on the gRPC surface: bodies that are refused, and the memory that refusals leave behind."""

from __future__ import annotations

from typing import Any

import grpc
import psutil  # type: ignore[import-untyped]
import pytest
from support.serving import serve_process

from pdp.wire import decision_pb2 as wire
from pdp.wire import decision_pb2_grpc as wire_grpc

pytestmark = pytest.mark.process
MIB = 1 << 20
CALLS = 40
BODY = wire.CheckRequest(checks=[wire.Check(action="a" * (8 * MIB - 4096))])
REFUSALS: dict[str, tuple[dict[str, Any], grpc.StatusCode]] = {
    "no caller": ({"metadata": (("authorization", "Basic x"),)}, grpc.StatusCode.UNAUTHENTICATED),
    "a proxy": ({"metadata": (("x-forwarded-for", "10.0.0.1"),)}, grpc.StatusCode.PERMISSION_DENIED),
    "no message": ({}, grpc.StatusCode.INVALID_ARGUMENT),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_no_body_is_kept_after_a_refusal(tmp_path: Any, refusal: str) -> None:
    options, wanted = REFUSALS[refusal]
    body = b"\xff" * (8 * MIB - 4096) if refusal == "no message" else BODY.SerializeToString()
    with serve_process(tmp_path) as process, grpc.insecure_channel(process.addresses["grpc"]) as channel:
        stub: Any = wire_grpc.DecisionServiceStub(channel)  # type: ignore[no-untyped-call]
        send: Any = channel.unary_unary("/pdp.v1.DecisionService/Check")
        watched = psutil.Process(process.process.pid)

        def refuse() -> None:
            with pytest.raises(grpc.RpcError) as caught:
                send(body, timeout=20, **options)
            error: Any = caught.value
            assert error.code() == wanted

        for _ in range(4):
            refuse()
        before = watched.memory_info().rss
        for _ in range(CALLS):
            refuse()
        assert watched.memory_info().rss - before < CALLS * 8 * MIB / 4
        assert len(stub.Check(wire.CheckRequest(), timeout=20).decisions) == 0
