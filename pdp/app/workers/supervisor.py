"""Supervisor of worker processes: starts, restarts and stops them, and serves the diagnostics of all.

Decides nothing and loads neither policies nor facts. It holds the addresses, so that workers can share them.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, generate_latest

from pdp.app.process import quick_imports
from pdp.app.reload.load_messages import LoadedPolicies
from pdp.app.reload.reloader import Reloader, ServedPolicies
from pdp.app.workers.metrics import MergedMetrics
from pdp.app.workers.process import WorkerProcess
from pdp.app.workers.worker_slot import ServiceSockets, WorkerSlot
from pdp.config.settings import Settings
from pdp.errors import PdpError
from pdp.surfaces.http.handlers import RELOAD_FAILED, diagnostics_routes
from pdp.surfaces.http.server import AiohttpServer
from pdp.surfaces.listeners import (
    ConnectionShares,
    ServerRunner,
    ServerSite,
    Sockets,
    bind,
    bind_unix,
    bound_address,
    close,
    listen,
    remove_socket,
    reserve,
)

_METRICS_SECONDS: Final = 1.0
"""Longest wait for the metrics of a worker. After that, its last known metrics count."""
_CAUSES: Final = ("end", "hang", "order")
log = structlog.get_logger()


class Supervisor:
    """Running supervisor of `count` workers. `reload` reads the settings again, for a rolling restart."""

    def __init__(self, settings: Settings, count: int, reload: Callable[[], Settings]) -> None:
        self.scheme = "https" if settings.server.tls.cert else "http"
        self.addresses: dict[str, str] = {}
        self.counts: dict[str, int] = {"workers": count}
        self._settings = settings
        self._count = count
        self._reload = reload
        self._slots: list[WorkerSlot] = []
        self._stopping = False
        self._restart = asyncio.Event()
        self._failed_reload = ""
        """Part of the cause of the failed reload that diagnostics show."""
        self._reloader = Reloader(settings)
        self._newest: LoadedPolicies | None = None
        """Newest published policies under the present settings; None before the first reload."""
        self._metrics = MergedMetrics()
        self._registry = CollectorRegistry()
        self._registry.register(self._reloader.metrics)
        self._tasks: list[asyncio.Task[None]] = []
        self._held = contextlib.ExitStack()
        """Sockets of this process, to be closed at the end. The workers have them, too."""
        routes = diagnostics_routes(self.unready, self.metrics, self.details)
        most = ConnectionShares.of_process().diagnostics
        self._server = AiohttpServer(routes, settings.limits.idle_timeout_seconds, most)
        self._server.imports = quick_imports
        self._diagnostics = ServerRunner(self._server)

    async def unready(self) -> list[str]:
        """Return the reasons why the service is not ready: it is ready if every worker is."""
        return [
            *(["stopping"] if self._stopping else []),
            *([f"{RELOAD_FAILED}: {self._failed_reload}"] if self._failed_reload else []),
            *self._reloader.unready(),
            *(reason for slot in self._slots for reason in slot.unready()),
        ]

    def details(self) -> dict[str, str]:
        """Return the condition of parts of all workers that readiness does not rest on."""
        found = {part: condition for slot in self._slots for part, condition in slot.details().items()}
        return {**found, **self._reloader.details()}

    async def metrics(self) -> bytes:
        """Return the metrics of all workers and of their supervisor, in Prometheus' exposition format."""
        await asyncio.gather(*map(self._read_metrics, self._slots))
        self._metrics.update(self, await self._own_metrics())
        return self._metrics.text().encode()

    async def start(self) -> None:
        """Start all workers; raise a PdpError if an address is not available or a worker cannot start."""
        await self._bind()
        await self._hold_first()
        starts = [asyncio.create_task(slot.start()) for slot in self._slots]
        try:
            await asyncio.gather(*starts)
        finally:
            await _cancel(starts)
        loaded = next((slot.worker.counts for slot in self._slots if slot.worker), {})
        self.counts |= loaded
        self._tasks = [asyncio.create_task(slot.keep()) for slot in self._slots]
        self._tasks.append(asyncio.create_task(self._carry_out_restarts()))
        self._tasks.append(asyncio.create_task(self._reloader.watch(self)))

    async def _hold_first(self) -> None:
        """Fetch the policies of a source once for all workers; raise ConfigError."""
        if first := await self._reloader.first():
            for slot in self._slots:
                slot.hold(first)

    async def serve_until(self, stop: asyncio.Task[Any]) -> None:
        """Serve until `stop` is done; raise the exception of a task that ends by a defect."""
        await asyncio.wait((stop, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                task.result()

    def order_restart(self) -> None:
        """Order a rolling restart, after the present one if there is one."""
        self._restart.set()

    def reload(self) -> None:
        """Let all workers begin new files of their audits, and reload policies at once."""
        self._reloader.order()
        for slot in self._slots:
            if slot.worker:
                slot.worker.reopen_audit()

    def served(self) -> set[ServedPolicies]:
        """Return the policies and certificates that workers serve."""
        workers = [slot.worker for slot in self._slots if slot.worker]
        return {ServedPolicies(one.bundle, one.published.certificates if one.published else None) for one in workers}

    def text(self) -> bytes:
        """Return the text of the first worker's bundle; empty without such a worker."""
        return next((slot.worker.published.text for slot in self._slots if slot.worker and slot.worker.published), b"")

    async def publish(self, result: LoadedPolicies) -> None:
        """Let all workers prepare a bundle, then let all switch at once.

        Raise WorkerFailed if a worker cannot prepare the bundle. A worker that ends meanwhile starts again with the
        newest bundle. A worker that does not answer keeps the old bundle, and `served` shows the difference.
        """
        asked: list[WorkerProcess] = []
        ready: list[WorkerProcess] = []
        while new := [slot.worker for slot in self._slots if slot.worker and slot.worker not in asked]:
            asked += new  # the second time, workers that have started meanwhile
            steps = [_ends_well(worker.prepare(result.published)) for worker in new]
            prepared = await asyncio.gather(*steps, return_exceptions=True)
            for outcome in prepared:
                if isinstance(outcome, BaseException):
                    raise outcome
            ready += [worker for worker, well in zip(new, prepared, strict=True) if well]
        for slot in self._slots:
            slot.hold(result.published)
        self._newest = result
        await asyncio.gather(*(_ends_well(worker.switch(result.digest, result.published)) for worker in ready))

    async def converge(self) -> None:
        """Let all workers serve the newest published bundle, else the bundle of the first; raise WorkerFailed."""
        first = next((slot.worker for slot in self._slots if slot.worker), None)
        newest = self._newest
        if newest is None and first and first.published:
            newest = LoadedPolicies(first.published, first.bundle)
        if newest:
            await self.publish(newest)

    def note_change(self) -> None:
        """Let a worker that answers accept the connections of each place whose worker does not."""
        if not self._tasks:
            return  # not all have started, so the socket of one that has not started does not listen
        answering = [slot.worker for slot in self._slots if slot.worker and slot.answers()]
        missing = [slot.number for slot in self._slots if not slot.answers()]
        for place, worker in enumerate(answering):
            worker.accept_for(tuple(missing[place :: len(answering)]))

    def note_end(self, worker: WorkerProcess) -> None:
        """Keep the last metrics of a worker."""
        if worker.last:
            self._metrics.update(worker, worker.last.text)
        self._metrics.retire(worker)

    async def stop(self) -> bool:
        """Drain and end all workers; return False if a worker leaves audit records."""
        self._stopping = True
        await _cancel(self._tasks)
        self._held.close()
        flushed = await asyncio.gather(*(slot.stop() for slot in self._slots))
        await self._diagnostics.cleanup()
        return all(flushed)

    def hurry(self) -> None:
        """Let workers that stop wait for nothing but the audit."""
        for slot in self._slots:
            slot.hurry()

    async def _bind(self) -> None:
        """Take all addresses, and serve diagnostics."""
        server = self._settings.server
        diagnostics = listen(server.diagnostics, "server.diagnostics")
        await self._server.load()
        for each in diagnostics:
            await ServerSite(self._diagnostics, each).start()
        http = {1: self._hold(reserve(server.http, "server.http"))}
        grpc = self._hold(reserve(server.grpc, "server.grpc"))
        self.addresses = {
            "http": bound_address(server.http, http[1]),
            "grpc": bound_address(server.grpc, grpc),
            "diagnostics": bound_address(server.diagnostics, diagnostics),
        }
        unix = None
        if server.unix:
            path = self._settings.path(server.unix)
            unix = self._hold((bind_unix(path, server.unix_access),))[0]
            self._held.callback(remove_socket, path)
            self.addresses["unix"] = str(path)
        for number in range(2, self._count + 1):
            http[number] = self._hold(bind(self.addresses["http"], "server.http", shared=True))
        sockets = ServiceSockets(http, self.addresses["grpc"], unix)
        self._slots = [WorkerSlot(number, self._settings, sockets, self) for number in http]

    def _hold(self, sockets: Sockets) -> Sockets:
        self._held.callback(close, *sockets)
        return sockets

    async def _carry_out_restarts(self) -> None:
        while True:
            await self._restart.wait()
            self._restart.clear()
            async with self._reloader.paused():
                await self._carry_out_restart()

    async def _carry_out_restart(self) -> None:
        self.note("reloading")
        try:
            settings = self._reloaded()
            await self._reloader.use(settings)
            self._newest = None
            await self._replace_all(settings)
        except PdpError as error:
            log.error("rolling restart ends, workers go on as they are", cause=str(error))  # noqa: TRY400
            self._failed_reload = error.shown
            await self._reloader.use(self._settings)
            self.note("reload_failed", cause=str(error))
        else:
            self._failed_reload = ""
            self.note("reloaded")

    def note(self, what: str, **details: str) -> None:
        """Let a worker record a step in the life of the service. The supervisor has no audit of its own."""
        worker = next((slot.worker for slot in self._slots if slot.worker and slot.answers()), None)
        if worker:
            worker.note(what, **details)

    def _reloaded(self) -> Settings:
        """Return the settings as they are now, except for those that only a new supervisor can change."""
        settings = self._reload()
        kept = {"server": self._settings.server, "audit": self._settings.audit}
        for key, value in kept.items():
            if getattr(settings, key) != value:
                log.warning("a rolling restart does not change these settings", section=key)
        return settings.model_copy(update=kept)

    async def _replace_all(self, settings: Settings) -> None:
        """Replace the workers one after the other; raise WorkerFailed if one does not start."""
        log.info("rolling restart begins", workers=len(self._slots))
        for slot in self._slots:
            await slot.replace(settings)
            self._settings = settings
        log.info("rolling restart is done")

    async def _read_metrics(self, slot: WorkerSlot) -> None:
        if worker := slot.worker:
            with contextlib.suppress(TimeoutError):
                text = await worker.metrics(_METRICS_SECONDS)
                if slot.worker is worker:  # else the worker has ended meanwhile, and is retired
                    self._metrics.update(worker, text)

    async def _own_metrics(self) -> bytes:
        workers = [slot.worker for slot in self._slots if slot.worker]
        restarts = sum((slot.restarts for slot in self._slots), Counter[str]())
        causes = "".join(f'pdp_worker_restarts_total{{cause="{cause}"}} {restarts[cause]}\n' for cause in _CAUSES)
        return (
            "# HELP pdp_ready 1 while the service is ready\n# TYPE pdp_ready gauge\n"
            f"pdp_ready {int(not await self.unready())}\n"
            "# HELP pdp_workers Worker processes that run\n# TYPE pdp_workers gauge\n"
            f"pdp_workers {len(workers)}\n"
            "# HELP pdp_worker_bundles Different policies that workers serve\n# TYPE pdp_worker_bundles gauge\n"
            f"pdp_worker_bundles {len({worker.bundle for worker in workers})}\n"
            "# HELP pdp_worker_restarts_total Workers that ended, hung, or were replaced on order\n"
            f"# TYPE pdp_worker_restarts_total counter\n{causes}"
        ).encode() + generate_latest(self._registry)


def supervise(
    settings: Settings, count: int, announce: Callable[[Supervisor], None], reload: Callable[[], Settings]
) -> int:
    """Serve with `count` workers until SIGTERM or SIGINT; return the exit code. SIGUSR2 restarts one by one."""

    async def run() -> int:
        return await _run(Supervisor(settings, count, reload), announce)

    return asyncio.run(run())


async def _run(supervisor: Supervisor, announce: Callable[[Supervisor], None]) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def take_signal() -> None:
        if stopping.is_set():
            supervisor.hurry()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, take_signal)
    loop.add_signal_handler(signal.SIGUSR2, supervisor.order_restart)
    loop.add_signal_handler(signal.SIGHUP, supervisor.reload)
    start, stop = asyncio.create_task(supervisor.start()), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            announce(supervisor)
            await supervisor.serve_until(stop)
            log.info("stopping")
    finally:
        await _cancel([start])
        flushed = await supervisor.stop()
    log.info("stopped", audit="flushed" if flushed else "records lost")
    return 0 if flushed else 1


async def _ends_well(step: Coroutine[Any, Any, object]) -> bool:
    """Tell whether a step of a worker is done; False for a worker that has ended or does not answer."""
    try:
        await step
    except TimeoutError:
        return False
    return True


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their ends."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
