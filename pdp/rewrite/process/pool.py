"""Processes that rewrite statements, each killed if a text takes too long. Knows no policy and no SQL.

Parsing takes a processor and holds the interpreter, so the service never parses a statement itself. A process that
was killed is replaced at the next request. Requests of one key wait for each other: a key with slow texts holds up
no other key for longer than one text.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Final, TypeAlias

import msgspec
import structlog

from pdp.errors import Overloaded, Unavailable
from pdp.rewrite.errors import PARSE_ERROR, RewriteRefused
from pdp.rewrite.process.messages import LENGTH_BYTES, LONGEST_MESSAGE, REPLIES, Call, PolicyState, RewriteReply, framed

_COMMAND: Final = ("-P", "-m", "pdp.rewrite.process.worker")
_ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "VIRTUAL_ENV", "TZ")
"""Variables that a process gets. All others can hold secrets."""
_MOST_WAITING: Final = 32
"""Requests of one key that wait."""
_START_SECONDS: Final = 60.0
"""Time for the start of a process and for its policies."""
DUCKDB_TESTED: Final = ("1.2", "1.3", "1.4", "1.5")
"""Minor versions of DuckDB on which the tests of barriers and of the judge run."""
log = structlog.get_logger()


class _Worker:
    """One process, with the digest of its policies."""

    def __init__(self, process: subprocess.Popen[bytes], streams: tuple[StreamReader, StreamWriter]) -> None:
        self._process = process
        self._source, self._target = streams
        self.digest = ""

    @classmethod
    async def start(cls) -> _Worker:
        """Start a process without the secrets of the service in its environment."""
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        own, other = socket.socketpair()
        with other:
            # not by the event loop, which forks: gRPC has threads here, and this call shares no page with the process
            process = subprocess.Popen(  # noqa: ASYNC220, S603  takes a millisecond; a command without input
                (sys.executable, *_COMMAND), stdin=other.fileno(), stdout=other.fileno(), env=environment,
                start_new_session=True,
            )  # fmt: skip
        return cls(process, await asyncio.open_unix_connection(sock=own))

    async def ask(self, message: bytes) -> RewriteReply:
        """Return the answer to a message; raise EOFError or OSError if the process ends."""
        self._target.write(message)
        await self._target.drain()
        length = int.from_bytes(await self._source.readexactly(LENGTH_BYTES), "big")
        if length > LONGEST_MESSAGE:
            raise EOFError
        return REPLIES.decode(await self._source.readexactly(length))

    @property
    def is_alive(self) -> bool:
        """Tell whether the process has not ended."""
        return self._process.poll() is None

    async def end(self) -> None:
        """Kill the process and wait for its end."""
        self._target.close()
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        with suppress(OSError):
            await self._target.wait_closed()


Completion: TypeAlias = Callable[[], Awaitable[Call]]
"""Makes the call anew for a statement that reads row access policies."""


class _Turns:
    """Requests of one key, one at a time."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


def minor_of(version: str) -> str:
    """Return the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def judge_notice() -> str:
    """Return the words of a start on the judge of rewritten SQL; empty for a tested version of DuckDB."""
    try:
        found = version("duckdb")
    except PackageNotFoundError:
        return "the parser of DuckDB does not judge rewritten SQL: install `lakehouse-pdp[duckdb]`"
    if minor_of(found) in DUCKDB_TESTED:
        return ""
    return f"barriers and the judge of DuckDB are tested on {', '.join(DUCKDB_TESTED)}, not on {found}"


class WorkerPool:
    """Up to `size` processes, started when they are needed. A text may take `seconds`."""

    def __init__(self, size: int, seconds: float) -> None:
        self._seconds = seconds
        self._places = asyncio.Semaphore(size)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._turns: dict[str, _Turns] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def ask(self, key: str, setup: PolicyState, call: Call, completed: Completion | None = None) -> RewriteReply:
        """Return the answer of a process with the policies of a setup. `completed` returns a call with policies.

        Raise Overloaded if too many requests of the key wait, RewriteRefused for a text that takes too long or ends
        the process, and Unavailable if no process can be started.
        """
        async with self._turn(key):
            reply = await self._answer(setup, call)
            return await self._answer(setup, await completed()) if completed and reply.wants_policies else reply

    async def _answer(self, setup: PolicyState, call: Call) -> RewriteReply:
        async with self._places:
            worker = await self._prepared(setup)
            self._busy.add(worker)
            try:
                async with asyncio.timeout(self._seconds):
                    reply = await worker.ask(framed(call))
            except TimeoutError:
                self._end(worker)
                raise RewriteRefused(PARSE_ERROR, f"the text takes longer than {self._seconds:g} seconds") from None
            except (EOFError, OSError, msgspec.DecodeError):
                self._end(worker)
                raise RewriteRefused(PARSE_ERROR, "the text ends the process that reads it") from None
            except BaseException:
                self._end(worker)  # its answer would be taken for that of the next request
                raise
            finally:
                self._busy.discard(worker)
            self._idle.append(worker)
            return reply

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        for worker in (*self._idle, *self._busy):
            self._end(worker)
        self._idle.clear()
        await asyncio.gather(*self._ending)

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
        turns = self._turns.setdefault(key, _Turns())
        if turns.waiting >= _MOST_WAITING:
            raise Overloaded(f"{_MOST_WAITING} statements of this principal wait already")
        turns.waiting += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.waiting -= 1
            if not turns.waiting:
                self._turns.pop(key, None)

    async def _prepared(self, setup: PolicyState) -> _Worker:
        """Return a process with the policies of a setup; raise Unavailable."""
        if self._closed:
            raise Unavailable("the service stops")
        worker = self._idle.pop() if self._idle else None
        if worker is not None and not worker.is_alive:
            self._end(worker)
            worker = None
        try:
            async with asyncio.timeout(_START_SECONDS):
                worker = worker or await _Worker.start()
                if worker.digest != setup.digest:
                    await worker.ask(framed(setup))
                    worker.digest = setup.digest
        except (TimeoutError, EOFError, OSError, msgspec.DecodeError) as error:
            if worker is not None:
                self._end(worker)
            log.error("no process for statements", cause=type(error).__name__)  # noqa: TRY400  the cause says it all
            raise Unavailable("no process for statements can be started") from None
        except BaseException:
            if worker is not None:
                self._end(worker)
            raise
        return worker

    def _end(self, worker: _Worker) -> None:
        task = asyncio.create_task(worker.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
