"""One worker process, seen from its supervisor: start, questions, stop, end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Final, TypeVar

from pdp.app.reload.load_messages import Published
from pdp.app.workers.channel import (
    AcceptOrder,
    Answer,
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
    Report,
    StopOrder,
    StopReport,
    SwitchOrder,
    WorkerRequest,
)
from pdp.errors import PdpError

START_SECONDS: Final = 600.0
"""Longest start of a worker: it loads all policies and facts."""
_DUMP_SECONDS: Final = 0.5
"""Time for a worker that hangs to write the stacks of its threads."""
_BOOT: Final = """
import sys
sys.path[:] = sys.argv[2:]
from pdp.app.process import quick_imports
with quick_imports():
    from pdp.app.workers.worker import main
main(int(sys.argv[1]))
"""
"""Program of a worker. The modules come from the supervisor's places: no folder of its own may shadow one."""
PREPARE_SECONDS: Final = 600.0
"""Longest preparation of a bundle beside requests."""
SWITCH_SECONDS: Final = 10.0
"""Longest switch to a prepared bundle."""
R = TypeVar("R", HealthReport, MetricsReport, BundleReport)


class WorkerFailed(PdpError):
    """Worker that did not become ready. The text is the cause, and may quote policies."""

    code = "worker_failed"

    def __init__(self, message: str, shown: str = "") -> None:
        super().__init__(message)
        self._shown = shown

    @property
    def shown(self) -> str:
        """Return the part of the cause that the worker shows, or the kind of the error."""
        return self._shown or self.code


class WorkerProcess:
    """Worker process and the channel to it. Make one with `launch`."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.pid = process.pid
        self.begun = time.monotonic()
        self.bundle = ""
        """Digest of the policies, once the worker is ready."""
        self.published: Published | None = None
        """Policies and certificates, once the worker is ready."""
        self.counts: dict[str, int] = {}
        """Numbers of loaded policies and grants, once the worker is ready."""
        self.details: dict[str, str] = {}
        """Details of the newest answer about health."""
        self.reports = 0
        """Number of messages received."""
        self.last: StopReport | None = None
        self._process = process
        self._channel = channel
        self._accepts: tuple[int, ...] = ()
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._started: asyncio.Future[ReadyReport | FailureReport] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def launch(cls, assignment: Assignment) -> WorkerProcess:
        """Start a fresh interpreter with the sockets of the assignment, and wait until the worker serves.

        Raise WorkerFailed if the worker cannot start.
        """
        try:
            worker = await cls._spawn(assignment)
        except OSError as error:
            raise WorkerFailed(f"cannot start a process: {error.strerror}") from None
        try:
            await worker.become_ready()
        except BaseException:
            worker.kill()
            await worker.ended()
            raise
        return worker

    @classmethod
    async def _spawn(cls, assignment: Assignment) -> WorkerProcess:
        here, there = socket.socketpair()
        inherited = [there.fileno(), *(number for sockets in assignment.http.values() for number in sockets)]
        inherited += [] if assignment.unix is None else [assignment.unix]
        with there:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _BOOT, str(there.fileno()), *sys.path,
                stdin=asyncio.subprocess.DEVNULL, pass_fds=inherited,
            )  # fmt: skip
        worker = cls(process, await Channel.open(here))
        worker._channel.send(assignment)
        return worker

    async def health(self, seconds: float) -> tuple[str, ...]:
        """Return the reasons why the worker is not ready, and keep the details; raise TimeoutError after `seconds`."""
        report = await self._ask(HealthQuestion, HealthReport, seconds)
        self.details = report.details
        return report.reasons

    async def metrics(self, seconds: float) -> bytes:
        """Return the metrics of the worker; raise TimeoutError after `seconds`."""
        return (await self._ask(MetricsQuestion, MetricsReport, seconds)).text

    def accept_for(self, workers: tuple[int, ...]) -> None:
        """Order the worker to accept the connections of these workers, too, and of no others."""
        if workers != self._accepts:
            self._accepts = workers
            self._channel.send(AcceptOrder(workers))

    async def prepare(self, published: Published) -> str:
        """Let the worker prepare policies; return the digest of the bundle.

        Raise WorkerFailed for unusable policies, TimeoutError for a worker that ends or does not answer.
        """
        report = await self._ask(lambda number: PrepareOrder(number, published), BundleReport, PREPARE_SECONDS)
        if report.failure:
            raise WorkerFailed(report.failure, report.shown)
        return report.bundle

    async def switch(self, bundle: str, published: Published) -> None:
        """Let the worker serve the prepared policies; raise TimeoutError."""
        report = await self._ask(lambda number: SwitchOrder(number, bundle), BundleReport, SWITCH_SECONDS)
        self.bundle = report.bundle
        if report.bundle == bundle:
            self.published = published

    def note(self, what: str, **details: str) -> None:
        """Let the worker record a step in the life of the whole service."""
        self._channel.send(NoteOrder(what, details))

    def reopen_audit(self) -> None:
        """Order the worker to complete the present files of its audit. A worker that starts has none yet."""
        self._signal(signal.SIGHUP)

    async def ended(self) -> int:
        """Wait for the end of the process; return the exit code, or the negative number of a signal."""
        code = await self._process.wait()
        await asyncio.shield(self._reading)
        return code

    async def stop(self, seconds: float, *, successor: bool = False) -> bool:
        """Order the worker to drain and end; kill it after `seconds`. Tell whether all audit records are written.

        `successor`: another worker serves on the same sockets already.
        """
        self._channel.send(StopOrder(successor))
        try:
            await asyncio.wait_for(self.ended(), seconds)
        except TimeoutError:
            self.kill()
            await self.ended()
        return self.last is not None and self.last.flushed

    def hurry(self) -> None:
        """Order a worker that stops to wait for nothing but the audit."""
        self._channel.send(StopOrder(successor=False, at_once=True))

    async def kill_hung(self) -> None:
        """Kill a worker that does not answer. Its log gets the stacks of its threads first."""
        self._signal(signal.SIGQUIT)
        await asyncio.sleep(_DUMP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the worker at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            os.kill(self.pid, number)

    async def become_ready(self) -> None:
        """Wait until the worker serves; raise WorkerFailed if it cannot start."""
        try:
            report = await asyncio.wait_for(self._started, START_SECONDS)
        except TimeoutError:
            raise WorkerFailed(f"not ready after {START_SECONDS:g} seconds") from None
        if isinstance(report, FailureReport):
            raise WorkerFailed(report.message, report.shown)
        self.bundle, self.counts, self.published = report.bundle, report.counts, report.published

    async def _ask(self, question: Callable[[int], WorkerRequest], kind: type[R], seconds: float) -> R:
        if self._reading.done():
            raise TimeoutError
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self._channel.send(question(number))
        try:
            report = await asyncio.wait_for(asked, seconds)
        finally:
            del self._asked[number]
        assert isinstance(report, kind)
        return report

    async def _read(self) -> None:
        """Take the worker's messages until its end of the channel closes."""
        while report := await self._channel.receive_report():
            self.reports += 1
            self._take(report)
        if not self._started.done():
            code = await self._process.wait()
            self._started.set_result(FailureReport(f"the process ended with {describe_exit(code)}"))
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(TimeoutError())
        await self._channel.close()

    def _take(self, report: Report) -> None:
        match report:
            case ReadyReport() | FailureReport():
                self._started.set_result(report)
            case StopReport():
                self.last = report
            case HealthReport(number) | MetricsReport(number) | BundleReport(number):
                asked = self._asked.get(number)
                if asked and not asked.done():
                    asked.set_result(report)


def describe_exit(code: int) -> str:
    """Return an exit code in words."""
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
