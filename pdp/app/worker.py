"""Worker process: one service on sockets of its supervisor, which gives the orders.

A process of its own interpreter, started by `pdp.app.worker_process`. Ends when the supervisor orders it or is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import signal
import socket
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from pdp.app.channel import (
    Assignment,
    Channel,
    FailureReport,
    HealthQuestion,
    HealthReport,
    MetricsQuestion,
    MetricsReport,
    ReadyReport,
    StopOrder,
    StopReport,
)
from pdp.app.service import Service, Stopping, run_loop, serve_until
from pdp.cli.logs import configure_logging
from pdp.config.load import make_settings
from pdp.errors import PdpError
from pdp.surfaces.listeners import Listeners


def main(descriptor: int) -> NoReturn:
    """Serve as a worker. `descriptor` is the worker's end of the channel."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # an order to the supervisor, which may reach the whole group
    # the supervisor asks a worker that hangs for the stack of every thread, before it kills the worker
    faulthandler.register(signal.SIGQUIT)
    raise SystemExit(run_loop(partial(_work, descriptor)))


async def _work(descriptor: int) -> int:
    channel = await Channel.open(socket.socket(fileno=descriptor))
    assignment = await channel.receive_order()
    if not isinstance(assignment, Assignment):
        return 1
    configure_logging(worker=assignment.worker)
    try:
        return await _serve(channel, assignment)
    except PdpError as error:
        channel.send(FailureReport(str(error)))
        return 2
    finally:
        await channel.close()


async def _serve(channel: Channel, assignment: Assignment) -> int:
    settings = make_settings(msgspec.json.decode(assignment.settings), Path(assignment.base))
    unix = None if assignment.unix is None else socket.socket(fileno=assignment.unix)
    http = tuple(socket.socket(fileno=number) for number in assignment.http)
    service = Service(settings, Listeners(http, assignment.grpc, unix))
    stopping = Stopping()
    answering = asyncio.create_task(_answer(channel, service, stopping))
    try:
        flushed = await serve_until(service, stopping, lambda: channel.send(ReadyReport(service.pdp.bundle.digest)))
    finally:
        answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await answering
    channel.send(StopReport(flushed, service.metrics()))
    return 0 if flushed else 1


async def _answer(channel: Channel, service: Service, stopping: Stopping) -> None:
    """Answer questions until cancelled; begin the stop on an order, or when the supervisor is gone."""
    while order := await channel.receive_order():
        match order:
            case HealthQuestion(number):
                channel.send(HealthReport(number, tuple(service.unready())))
            case MetricsQuestion(number):
                channel.send(MetricsReport(number, service.metrics()))
            case StopOrder(successor):
                stopping.successor = successor
                stopping.set()
    stopping.set()
