"""Bare gRPC server: parses each CheckRequest and returns an answer that is ready. The least that grpc.aio costs.

python bench/grpc_bare.py PORT ANSWER, where ANSWER is a file with the bytes of a CheckResponse.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc
import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.clients.stubs import wire_grpc

from pdp.surfaces.wire import decision_pb2


class BareDecisionService(wire_grpc.DecisionServiceServicer):  # type: ignore[misc] # a generated class
    """Service that gives every request the same answer."""

    def __init__(self, answer: decision_pb2.CheckResponse) -> None:
        self._answer = answer

    async def Check(  # noqa: N802 # the name of the method in the proto file
        self, request: decision_pb2.CheckRequest, context: object
    ) -> decision_pb2.CheckResponse:
        """Return the answer."""
        return self._answer


async def serve(port: int, answer: bytes) -> None:
    """Serve until the process ends."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    service = BareDecisionService(decision_pb2.CheckResponse.FromString(answer))
    wire_grpc.add_DecisionServiceServicer_to_server(service, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), Path(sys.argv[2]).read_bytes()))
