"""Life of a service in one process: signals, background tasks, and the stop."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
import uvloop

from pdp.app.process import limit_arenas
from pdp.app.reload.reloader import Reloader
from pdp.app.service import Service
from pdp.config.settings import Settings
from pdp.errors import ConfigError

log = structlog.get_logger()


class StopEvent(asyncio.Event):
    """Event that ends a service. `successor`: another process serves on the same sockets already."""

    successor = False

    def __init__(self) -> None:
        super().__init__()
        self.at_once = asyncio.Event()
        """Set when the service must not wait for anything."""
        self._signalled = False

    def take_signal(self) -> None:
        """Begin to stop; at the second signal, stop at once."""
        if self._signalled:
            self.at_once.set()
        self._signalled = True
        self.set()


async def serve_until(service: Service, stopping: StopEvent, announce: Callable[[], None]) -> bool:
    """Serve until the event, SIGTERM or SIGINT. Call `announce` once all addresses listen.

    Return False if audit records are left.
    """
    try:
        await service.start()
    except ConfigError:
        await service.hurry()
        await service.stop()
        raise
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.take_signal)
    loop.add_signal_handler(signal.SIGHUP, service.reload)
    announce()
    background = [asyncio.create_task(service.watch()), asyncio.create_task(service.edits.watch())]
    if service.reloader:
        background.append(asyncio.create_task(service.reloader.watch(service)))
    gc.freeze()  # loaded modules and facts stay: exclude them from every collection
    gc.set_threshold(20_000, 20, 50)  # requests and connections make no reference cycles, so collections can be rare
    await stopping.wait()
    for task in background:
        task.cancel()
    log.info("stopping", drain_seconds=service.settings.server.drain_seconds)
    hurry = asyncio.create_task(_hurry(service, stopping))
    flushed = await service.stop(successor=stopping.successor)
    hurry.cancel()
    log.info("stopped", audit="flushed" if flushed else "records lost")
    return flushed


async def _hurry(service: Service, stopping: StopEvent) -> None:
    await stopping.at_once.wait()
    await service.hurry()


def run_loop(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the event loop of a service until the end of `work`; return its exit code."""
    limit_arenas()
    sys.setswitchinterval(0.0001)  # a thread that computes must not hold up answers for the default 5 ms
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


async def _serve_alone(settings: Settings, announce: Callable[[Service], None]) -> int:
    reloader = Reloader(settings)
    service = Service(settings, given=await reloader.first())
    service.reload_by(reloader)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, log.warning, "no rolling restart: `server.workers` is 1")
    return 0 if await serve_until(service, StopEvent(), lambda: announce(service)) else 1


def serve_alone(settings: Settings, announce: Callable[[Service], None]) -> int:
    """Serve in this process until SIGTERM or SIGINT; return the exit code."""
    return run_loop(lambda: _serve_alone(settings, announce))
