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

LOAD_SECONDS: Final = 300.0
"""Longest load. A start may take longer: nobody waits for a reload."""
_BOOT: Final = """
import sys
sys.path[:] = sys.argv[2:]
from pdp.app.quick_imports import quick_imports
with quick_imports():
    from pdp.app.reload.loader_process import main
main(int(sys.argv[1]))
"""
"""Program of a loader. The modules come from the service's places: no folder of its own may shadow one."""


class LoaderFailed(PdpError):
    """Loader process without a result. The text is the cause."""

    code = "loader_failed"


class Loader:
    """Loads policies in a process of its own. Calls wait, and may come from any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = Lock()
        self._abandoned = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def load(self, *, poll: bool = False) -> LoadedPolicies:
        """Return the result of a load; raise LoaderFailed if the process ends or does not answer in time.

        `poll`: load only if a source or a file has changed.
        """
        with self._lock:
            request = LoadRequest(poll=poll) if self._connection else self._first_request(poll=poll)
            connection = self._connection or self._start()
            try:
                connection.send(msgspec.msgpack.encode(request))
                content = connection.receive()
            except TimeoutError:
                self._end()
                raise LoaderFailed(f"the policies are not loaded after {LOAD_SECONDS:g} seconds") from None
            except OSError:
                content = None
            if content is None:
                raise LoaderFailed(f"the process that loads policies ended with exit code {self._end()}")
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
        self._connection.limit(LOAD_SECONDS)
        return self._connection

    def _end(self) -> int | None:
        """End the process; return the exit code, None without a process."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection:
            connection.close()
        if process is None:
            return None
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
