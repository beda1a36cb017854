"""Our gRPC service beside a bare grpc.aio server: the same requests from the same client, in turns."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
from contest import Plan, our_files
from figures import Pair
from servers import Server, free_port, our_service, running, temporary_folder
from workloads.workload import Body, RightAnswer, Workload

from pdp.surfaces.wire import decision_pb2 as wire

METHOD: Final = "/pdp.v1.DecisionService/Check"
IN_FLIGHT: Final = {1: 8}
"""Checks in a request -> calls in flight. Larger requests go one after the other."""


@dataclass(frozen=True, slots=True)
class GrpcTarget:
    """Server to measure, with a channel to its gRPC port."""

    server: Server
    channel: grpc.aio.Channel

    async def call(self, request: bytes) -> bytes:
        """Return the bytes of an answer."""
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(METHOD, None, None)
        return bytes(await method(request, wait_for_ready=True, timeout=60))


def compare_grpc(workload: Workload, plan: Plan) -> list[Pair]:
    """Return the microseconds of CPU per request of our service and of the bare server, a pair for each turn.

    All answers of our service are checked, those under load too.
    """
    requests = [request_message(body) for body in workload.ours.bodies]
    port, bare_port = free_port(), free_port()
    with our_service(our_files(workload, plan), plan.settings, port) as ours:
        answer = asyncio.run(_first_answer(ours, port, requests, workload.right))
        with _bare_server(answer, bare_port) as bare:
            return asyncio.run(_turns({ours: port, bare: bare_port}, requests, workload.right, plan))


def request_message(body: Body) -> bytes:
    """Return a native JSON body as the bytes of a CheckRequest."""
    checks = (
        wire.Check(
            principal=wire.Principal(id=check["principal"]),
            action=check["action"],
            resource=wire.Resource(reference=check["resource"]),
        )
        for check in body["checks"]
    )
    return wire.CheckRequest(checks=checks).SerializeToString()


async def _first_answer(server: Server, port: int, requests: Sequence[bytes], right: Sequence[RightAnswer]) -> bytes:
    """Ask each request once, check the answers, and return the first."""
    server.wait(lambda: True)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_LARGE) as channel:
        target = GrpcTarget(server, channel)
        answers = [await target.call(request) for request in requests]
    _check(enumerate(answers), right)
    return answers[0]


@contextmanager
def _bare_server(answer: bytes, port: int) -> Iterator[Server]:
    with temporary_folder({}) as folder:
        file = folder / "answer"
        file.write_bytes(answer)
        command = [sys.executable, str(Path(__file__).parent / "grpc_bare.py"), str(port), str(file)]
        with running(command, port, folder) as server:
            yield server


async def _turns(
    ports: dict[Server, int], requests: Sequence[bytes], right: Sequence[RightAnswer], plan: Plan
) -> list[Pair]:
    found: list[Pair] = []
    async with AsyncExitStack() as held:
        ours, bare = [
            GrpcTarget(
                server, await held.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_LARGE))
            )
            for server, port in ports.items()
        ]
        for _ in range(1 + plan.starts * plan.turns):
            our_cost, answers = await _load(ours, requests, plan.seconds)
            _check(answers, right)
            bare_cost, _ = await _load(bare, requests, plan.seconds)
            found.append((our_cost, bare_cost))
    return found[1:]  # the first pair warmed them up


async def _load(target: GrpcTarget, requests: Sequence[bytes], seconds: int) -> tuple[float, list[tuple[int, bytes]]]:
    """Return the microseconds of CPU per request, and the answers with the places of their requests."""
    answers: list[tuple[int, bytes]] = []
    places = itertools.cycle(range(len(requests)))
    await target.call(requests[0])
    before, end = target.server.cpu(), time.monotonic() + seconds

    async def caller() -> None:
        while time.monotonic() < end:
            at = next(places)
            answers.append((at, await target.call(requests[at])))

    checks = len(wire.CheckRequest.FromString(requests[0]).checks)
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT.get(checks, 1))))
    return (target.server.cpu() - before) * 1e6 / len(answers), answers


def _check(answers: Iterator[tuple[int, bytes]] | Sequence[tuple[int, bytes]], right: Sequence[RightAnswer]) -> None:
    for at, answer in answers:
        allowed = [decision.allowed for decision in wire.CheckResponse.FromString(answer).decisions]
        wanted = right[at]
        found = allowed if isinstance(wanted, bool) else [place for place, one in enumerate(allowed) if one]
        if found != ([wanted] if isinstance(wanted, bool) else wanted):
            raise SystemExit(f"gRPC: wrong answer to request {at}: {str(found)[:300]}, not {str(wanted)[:300]}")


_LARGE: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
