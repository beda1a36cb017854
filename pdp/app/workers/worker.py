"""Worker process: one service on sockets of its supervisor, which gives the orders.

A process of its own interpreter, started by `pdp.app.workers.process`. Ends when the supervisor orders it or is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import signal
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import structlog

from pdp.app.reload.published import PreparedPolicies
from pdp.app.service import Service
from pdp.app.serving import StopEvent, run_loop, serve_until
from pdp.app.workers.channel import (
    AcceptOrder,
    Assignment,
    BundleReport,
    Channel,
    FailureReport,
    HealthQuestion,
    HealthReport,
    MetricsQuestion,
    MetricsReport,
    NoteOrder,
    PrepareOrder,
    ReadyReport,
    StopOrder,
    StopReport,
    SwitchOrder,
)
from pdp.cli.logs import configure_logging
from pdp.config.load import make_settings
from pdp.errors import PdpError
from pdp.model.pauses import set_pauses
from pdp.surfaces.listeners import Listeners, ServerSite, Sockets, close

log = structlog.get_logger()


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
    set_pauses(assignment.pauses)
    try:
        return 0 if await _Worker(channel, assignment).serve() else 1
    except PdpError as error:
        channel.send(FailureReport(str(error), error.shown))
        return 2
    finally:
        await channel.close()


class _Worker:
    """Service of this process, and the sockets of all places for HTTP."""

    def __init__(self, channel: Channel, assignment: Assignment) -> None:
        self._channel = channel
        self._sockets = {number: tuple(map(_socket, found)) for number, found in assignment.http.items()}
        self._sites: dict[int, list[ServerSite]] = {}
        """Sites on the sockets of other places."""
        self._stopping = StopEvent()
        self._prepared: PreparedPolicies | None = None
        self._preparing: asyncio.Task[None] | None = None
        settings = make_settings(msgspec.json.decode(assignment.settings), Path(assignment.base))
        unix = None if assignment.unix is None else _socket(assignment.unix)
        self._service = Service(
            settings, Listeners(self._copies(assignment.worker), assignment.grpc, unix), assignment.published
        )

    async def serve(self) -> bool:
        """Serve until an order to stop or a signal. Return False if audit records are left."""
        answering = asyncio.create_task(self._answer())
        try:
            flushed = await serve_until(self._service, self._stopping, self._report_ready)
        finally:
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering
        self._channel.send(StopReport(flushed, self._service.metrics()))
        return flushed

    async def _answer(self) -> None:
        """Carry out orders until cancelled; begin to stop on an order, or when the supervisor is gone."""
        while order := await self._channel.receive_order():
            match order:
                case HealthQuestion(number):
                    self._channel.send(HealthReport(number, tuple(self._service.unready()), self._service.details()))
                case MetricsQuestion(number):
                    self._channel.send(MetricsReport(number, self._service.metrics()))
                case AcceptOrder(workers) if not self._stopping.is_set():
                    await self._accept_for(workers)
                case PrepareOrder() | SwitchOrder():
                    self._change_policies(order)
                case NoteOrder(what, details):
                    self._service.note(what, **details)
                case StopOrder(at_once=True):
                    self._stopping.at_once.set()
                case StopOrder(successor):
                    self._stop(successor=successor)
        self._stop(successor=False)

    def _change_policies(self, order: PrepareOrder | SwitchOrder) -> None:
        """Build a bundle, or serve the one that was built; answer with the digest."""
        if isinstance(order, PrepareOrder):
            self._preparing = asyncio.create_task(self._prepare(order))
            return
        prepared, self._prepared = self._prepared, None
        if prepared and prepared.bundle.digest == order.bundle:
            self._service.switch(prepared)
        self._channel.send(BundleReport(order.number, self._service.pdp.bundle.digest))

    def _report_ready(self) -> None:
        bundle = self._service.pdp.bundle
        self._channel.send(ReadyReport(bundle.digest, self._service.published(), self._service.counts))

    async def _prepare(self, order: PrepareOrder) -> None:
        """Prepare policies while requests go on, and report the result."""
        try:
            self._prepared = prepared = await self._service.prepare(order.published)
        except PdpError as error:
            self._channel.send(BundleReport(order.number, "", str(error), error.shown))
        else:
            self._channel.send(BundleReport(order.number, prepared.bundle.digest))

    async def _accept_for(self, workers: Sequence[int]) -> None:
        """Accept the connections of these workers, too, and of no others."""
        for number in self._sites.keys() - workers:
            for site in self._sites.pop(number):
                site.stop()
        try:
            for number in workers:
                if number not in self._sites:
                    self._sites[number] = await self._service.accept_on(self._copies(number))
        except OSError as error:  # out of file descriptors, of which readiness tells
            log.warning("cannot accept for other workers", cause=error.strerror)

    def _copies(self, number: int) -> Sockets:
        """Return copies of the sockets of a place: a server closes its own."""
        return tuple(each.dup() for each in self._sockets[number])

    def _stop(self, *, successor: bool) -> None:
        """Begin to stop. No socket may go on listening here after the service has closed its own."""
        self._stopping.successor = successor
        self._stopping.set()
        for sockets in self._sockets.values():
            close(*sockets)


def _socket(descriptor: int) -> socket.socket:
    return socket.socket(fileno=descriptor)
