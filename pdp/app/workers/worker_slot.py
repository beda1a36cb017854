"""Place of one worker: a process that starts again whenever it ends or hangs, and is replaced on demand.

The HTTP sockets belong to the place and outlive the process. Another worker accepts their connections meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import structlog

from pdp.app.reload.load_messages import Published
from pdp.app.workers.channel import Assignment
from pdp.app.workers.process import WorkerFailed, WorkerProcess, describe_exit
from pdp.config.settings import Settings
from pdp.errors import PdpError
from pdp.model.pauses import pauses
from pdp.surfaces.listeners import Sockets

STOP_SECONDS: Final = 15.0
"""Time for a worker beyond `server.lame_duck_seconds` and twice `server.drain_seconds`, to drain and flush."""
Order: TypeAlias = tuple[Settings, asyncio.Future[None]]
"""Settings of the next worker, and a future that is done once the next worker serves alone."""
log = structlog.get_logger()


@dataclass(frozen=True)
class ServiceSockets:
    """Sockets of all places: for HTTP, those of each by its number. gRPC binds sockets of its own to its address."""

    http: dict[int, Sockets]
    grpc: str
    unix: socket.socket | None


class SlotObserver(Protocol):
    """Owner of places, told about their workers."""

    def note_change(self) -> None:
        """Take notice of a place whose worker is another one, or answers no longer, or answers again."""

    def note_end(self, worker: WorkerProcess) -> None:
        """Take notice of a process that has ended."""


class WorkerSlot:
    """One place."""

    def __init__(self, number: int, settings: Settings, sockets: ServiceSockets, observer: SlotObserver) -> None:
        self.number = number
        self.worker: WorkerProcess | None = None
        self.restarts: Counter[str] = Counter()
        """Number of restarts by cause: `end`, `hang` or `order`."""
        self._settings = settings
        self._sockets = sockets
        self._observer = observer
        self._published: Published | None = None
        """Newest policies and certificates of this place: the next worker begins with them, whatever the files are."""
        self._pause = self._silence = 0.0
        self._reasons: tuple[str, ...] = ()
        self._orders: asyncio.Queue[Order] = asyncio.Queue()
        self._running: set[WorkerProcess] = set()

    def unready(self) -> list[str]:
        """Return the reasons why this worker is not ready."""
        reasons = ("is not running",) if self.worker is None else self._reasons
        return [f"worker {self.number}: {reason}" for reason in reasons]

    def details(self) -> dict[str, str]:
        """Return the condition of parts of this worker that readiness does not rest on."""
        found = self.worker.details if self.worker else {}
        return {f"worker {self.number} {part}": condition for part, condition in found.items()}

    def answers(self) -> bool:
        """Tell whether a worker runs and answers."""
        return self.worker is not None and self._silence < pauses().worker_silent

    async def start(self) -> None:
        """Start the first worker; raise WorkerFailed if it cannot start."""
        self._serve_with(await self._launch(self._settings, self._published))

    async def replace(self, settings: Settings) -> None:
        """Start a worker with other settings, then drain the present one. Raise WorkerFailed if it cannot start."""
        done = asyncio.get_running_loop().create_future()
        await self._orders.put((settings, done))
        await done

    def hold(self, published: Published) -> None:
        """Let the next worker of this place begin with these policies, also a worker that is starting now."""
        self._published = published

    async def keep(self) -> None:
        """Start the worker again whenever it ends, and carry out orders to replace it, until cancelled."""
        while True:
            order = asyncio.create_task(self._orders.get())
            try:
                if self.worker:
                    await self._keep_until(order, self.worker)
                else:
                    await asyncio.wait((order,), timeout=self._pause)
                if order.done():
                    await self._exchange(*order.result())
                elif self.worker is None:
                    await self._start_again()
            finally:
                order.cancel()

    async def stop(self) -> bool:
        """Stop all processes of this place. Tell whether all audit records are written."""
        server = self._settings.server
        seconds = server.lame_duck_seconds + 2 * server.drain_seconds + STOP_SECONDS
        return all(await asyncio.gather(*(self._end(worker, seconds) for worker in self._running)))

    async def _end(self, worker: WorkerProcess, seconds: float) -> bool:
        """Stop a process. Tell whether all audit records are written."""
        flushed = await worker.stop(seconds)
        if not flushed:
            code = describe_exit(await worker.ended())
            log.error("worker has left audit records", worker=self.number, process=worker.pid, exit=code)
        return flushed

    def hurry(self) -> None:
        """Let the processes that stop wait for nothing but the audit."""
        for worker in self._running:
            worker.hurry()

    async def _launch(self, settings: Settings, published: Published | None = None) -> WorkerProcess:
        sockets = self._sockets
        worker = await WorkerProcess.launch(
            Assignment(
                self.number,
                settings.model_dump_json(exclude_unset=True).encode(),
                str(settings.path("")),
                sockets.grpc,
                {number: tuple(each.fileno() for each in http) for number, http in sockets.http.items()},
                sockets.unix.fileno() if sockets.unix else None,
                published,
                pauses(),
            )
        )
        self._running.add(worker)
        self._reasons = ()
        log.info("worker is ready", worker=self.number, process=worker.pid)
        return worker

    async def _keep_until(self, order: asyncio.Task[Order], worker: WorkerProcess) -> None:
        """Watch the worker until an order arrives or the worker has ended."""
        watching = asyncio.create_task(self._watch(worker))
        try:
            await asyncio.wait((order, watching), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                self._lose(worker, await worker.ended(), watching.result())
        finally:
            watching.cancel()

    async def _watch(self, worker: WorkerProcess) -> str:
        """Ask the worker for its health until it ends, and kill it if it hangs; return the cause of the end."""
        ended = asyncio.create_task(worker.ended())
        try:
            while not (await asyncio.wait((ended,), timeout=pauses().worker_beat))[0]:
                await self._ask(worker)
                if self._silence >= pauses().worker_hung:
                    await worker.kill_hung()
                    return "hang"
            return "end"
        finally:
            ended.cancel()

    async def _ask(self, worker: WorkerProcess) -> None:
        """Ask the worker for its health.

        The silence is counted in questions: a pause of this process is no silence of the worker.
        """
        answered, reports = self.answers(), worker.reports
        try:
            self._reasons = await worker.health(pauses().worker_beat)
            self._silence = 0.0
        except TimeoutError:
            if worker.reports == reports:
                self._silence += 2 * pauses().worker_beat
                self._reasons = (f"has not answered for {self._silence:.0f} seconds",)
        if self.answers() != answered:
            self._observer.note_change()

    def _lose(self, worker: WorkerProcess, code: int, cause: str) -> None:
        """Note the end of the worker, and choose the pause before the next start."""
        lived = time.monotonic() - worker.begun
        log.error("worker has ended", worker=self.number, process=worker.pid, cause=cause, exit=describe_exit(code))
        self.worker = None
        self.restarts[cause] += 1
        self._forget(worker)
        self._observer.note_change()
        if lived >= pauses().worker_steady:
            self._pause = 0.0
        else:
            self._slow_down()

    async def _start_again(self) -> None:
        try:
            worker = await self._launch_newest()
        except PdpError as error:
            log.error("worker cannot start", worker=self.number, cause=str(error))  # noqa: TRY400  a cause, no defect
            self._slow_down()
            return
        self._serve_with(worker)

    async def _launch_newest(self) -> WorkerProcess:
        """Return a worker that serves the newest policies of this place, also those of a reload during its start."""
        begun = self._published
        worker = await self._launch(self._settings, begun)
        try:
            while begun is not self._published:
                begun = self._published
                assert begun is not None
                await worker.switch(await worker.prepare(begun), begun)
        except (PdpError, TimeoutError) as error:
            worker.kill()
            await worker.ended()
            self._forget(worker)
            raise WorkerFailed(f"cannot serve the newest policies: {error or 'no answer'}") from None
        return worker

    async def _exchange(self, settings: Settings, done: asyncio.Future[None]) -> None:
        """Carry out an order to replace the worker."""
        try:
            held = self._published if settings.policies.source else None
            worker = await self._launch(settings, held)
        except PdpError as error:
            done.set_exception(error)
            return
        before, self._settings = self.worker, settings
        self.restarts["order"] += 1
        self._serve_with(worker)
        if before:
            await before.stop(2 * settings.server.drain_seconds + STOP_SECONDS, successor=True)
            self._forget(before)
        done.set_result(None)

    def _serve_with(self, worker: WorkerProcess) -> None:
        self.worker, self._published, self._silence = worker, worker.published, 0.0
        self._observer.note_change()

    def _forget(self, worker: WorkerProcess) -> None:
        self._running.discard(worker)
        self._observer.note_end(worker)

    def _slow_down(self) -> None:
        """Lengthen the pause before the next start."""
        self._pause = min(pauses().longest_start, max(pauses().first_start, 2 * self._pause))
