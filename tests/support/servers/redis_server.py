"""A throw-away Redis on loopback: Debian's `redis-server`, which tests kill, freeze, fill and forge."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from support.untested import not_tested

SECONDS = 20


@dataclass
class RedisServer:
    """A server that keeps its port from one start to the next. It writes nothing to disk."""

    folder: Path
    options: tuple[str, ...] = ()
    port: int = 0
    scheme: str = "redis"
    as_sentinel: bool = False
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start and wait until it takes connections."""
        self.port = self.port or free_port()
        # with TLS, the plain port is off
        ports = ("--port", "0", "--tls-port", str(self.port)) if self.scheme == "rediss" else ("--port", str(self.port))
        data = () if self.as_sentinel else ("--save", "", "--appendonly", "no")
        # a sentinel names its file first
        file, *options = self.options if self.as_sentinel else ("", *self.options)
        command = [
            "redis-server",
            *filter(None, [file]),
            "--bind",
            "127.0.0.1",
            *ports,
            *data,
            "--dir",
            str(self.folder),
            *options,
        ]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"redis did not start: {(self.folder / 'redis.log').read_text()[-2000:]}")

    def signal(self, number: signal.Signals) -> None:
        assert self.process
        os.kill(self.process.pid, number)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the server at once. What it held is lost."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)
        self.process = None

    def client(self, **options: Any) -> Any:
        """A plain client for the test's own hands."""
        return redis.Redis.from_url(self.url, socket_timeout=SECONDS, **options)


@contextmanager
def redis_server(folder: Path, *options: str, **more: Any) -> Iterator[RedisServer]:
    """A running server, killed at the end. Without Redis, the test is skipped."""
    if shutil.which("redis-server") is None:
        not_tested("on Redis", "no `redis-server` on the PATH")
    server = RedisServer(folder, options, **more)
    try:
        server.start()
        yield server
    finally:
        if server.process is not None:
            server.thaw()
        server.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
