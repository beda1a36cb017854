"""Loader process, seen from the service: started at the first load, ended after a pause without loads."""

from __future__ import annotations

import socket
import subprocess
import sys
from threading import Lock
from typing import Final

import msgspec

from pdp.app.reload.load_messages import Connection, LoadedPolicies, LoadRequest
from pdp.config.settings import Settings
from pdp.errors import PdpError

LOAD_SECONDS: Final = 60.0
"""Longest load, without the time of requests to a source. The next attempt after a longer one has twice the time."""
LONGEST_LOAD_SECONDS: Final = 300.0
"""Longest load of all, for policies that no faster machine is there for, and of a start."""
_SOURCE_REQUESTS: Final = 4
"""Requests of a load to a source. Each of them may take `policies.source.timeout_seconds`."""
_BOOT: Final = """
import sys
sys.path[:] = sys.argv[2:]
from pdp.app.process import quick_imports
with quick_imports():
    from pdp.app.reload.loader_process import main
main(int(sys.argv[1]))
"""
"""Program of a loader. The modules come from the service's places: no folder of its own may shadow one."""


class LoaderFailed(PdpError):
    """Loader process without a result. The text is the cause."""

    code = "loader_failed"

    @property
    def shown(self) -> str:
        """Return the whole text, which quotes no policy."""
        return str(self)


class Loader:
    """Loads policies in a process of its own. Calls wait, and may come from any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = Lock()
        self._seconds = LOAD_SECONDS
        self._abandoned = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def first(self) -> LoadedPolicies:
        """Return the result of the load of a start, as `load` does."""
        self._seconds = LONGEST_LOAD_SECONDS
        return self.load()

    def load(self, *, poll: bool = False) -> LoadedPolicies:
        """Return the result of a load; raise LoaderFailed if the process ends or does not answer in time.

        `poll`: load only if a source or a file has changed.
        """
        with self._lock:
            request = LoadRequest(poll=poll) if self._connection else self._first_request(poll=poll)
            connection = self._connection or self._start()
            source, seconds = self.settings.policies.source, self._seconds
            connection.limit(seconds + (source.timeout_seconds * _SOURCE_REQUESTS if source else 0))
            try:
                connection.send(msgspec.msgpack.encode(request))
                content = connection.receive()
            except TimeoutError:
                self._end(at_once=True)
                self._seconds = min(2 * seconds, LONGEST_LOAD_SECONDS)
                raise LoaderFailed(f"the policies are not loaded after {seconds:g} seconds") from None
            except OSError:
                content = None
            if content is None:
                raise LoaderFailed(f"the process that loads policies ended with exit code {self._end()}")
            self._seconds = LOAD_SECONDS
            return msgspec.msgpack.decode(content, type=LoadedPolicies)

    def use(self, settings: Settings) -> None:
        """Load by other settings from now on."""
        self.close()
        self.settings = settings

    def close(self) -> None:
        """End a running process. The next load starts another."""
        with self._lock:
            self._end()

    def abandon(self) -> None:
        """Kill the process, also in the middle of a load."""
        self._abandoned = True
        if self._process:
            self._process.kill()
        with self._lock:  # a load ends with the process
            self._end()

    def _first_request(self, *, poll: bool) -> LoadRequest:
        settings = self.settings
        return LoadRequest(settings.model_dump_json(exclude_unset=True).encode(), str(settings.path("")), poll)

    def _start(self) -> Connection:
        try:
            here, self._process = _start_process()
        except OSError as error:  # such as no free descriptors
            raise LoaderFailed(f"cannot start a process: {error.strerror}") from None
        if self._abandoned:
            self._process.kill()
        self._connection = Connection(here)
        return self._connection

    def _end(self, *, at_once: bool = False) -> int | None:
        """End the process, `at_once` without a moment of its own; return the exit code, None without a process."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection:
            connection.close()
        if process is None:
            return None
        if at_once:
            process.kill()
        try:
            return process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _start_process() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Return this end of the connection to a new process, and the process; raise OSError."""
    here, there = socket.socketpair()
    try:
        with there:
            return here, subprocess.Popen(  # noqa: S603  this interpreter and own code
                [sys.executable, "-c", _BOOT, str(there.fileno()), *sys.path],
                stdin=subprocess.DEVNULL, pass_fds=[there.fileno()],
            )  # fmt: skip
    except BaseException:
        here.close()
        raise
