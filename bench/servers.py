"""Servers under comparison, each in processes of its own on loopback, and the CPU and memory that they take."""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from workloads.workload import write

ROOT: Final = Path(__file__).parent.parent
PATIENCE: Final = 120
"""Seconds until a server must answer."""
_TICK: Final = os.sysconf("SC_CLK_TCK")


class Server:
    """Running server. `ready` is the seconds from its start to its first right answer."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.port = port
        self.ready = 0.0
        self._process = process
        self._log = log
        self._began = time.monotonic()

    @property
    def pid(self) -> int:
        """Id of the first process of the server."""
        return self._process.pid

    def url(self, path: str) -> str:
        """Return the URL of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    def wait(self, answers: Callable[[], bool]) -> None:
        """Wait until the server answers. Exit if the server ends or takes too long."""
        while time.monotonic() - self._began < PATIENCE:
            with suppress(OSError):
                if answers():
                    self.ready = time.monotonic() - self._began
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.005)
        raise SystemExit(f"a server does not answer:\n{self.log()}")

    def log(self) -> str:
        """Return the end of the server's output."""
        return self._log.read_text(errors="replace")[-4000:]

    def cpu(self) -> float:
        """Return the seconds of CPU that all processes of the server took so far."""
        return sum(_ticks(pid) for pid in _tree(self._process.pid)) / _TICK

    def memory(self) -> float:
        """Return the megabytes of all processes of the server. Shared pages count by their share."""
        return sum(_proportional_kilobytes(pid) for pid in _tree(self._process.pid)) / 1024

    def stop(self) -> None:
        """Stop the server."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            for pid in reversed(_tree(self._process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(20)


@contextmanager
def running(command: Sequence[str], port: int, folder: Path) -> Iterator[Server]:
    """Run a server with `folder` as its working directory."""
    log = folder / "output.log"
    with log.open("wb") as output:
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output)
    server = Server(process, port, log)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def temporary_folder(files: Mapping[str, str]) -> Iterator[Path]:
    """Write files to a new folder and remove the folder at the end."""
    base = Path(tempfile.mkdtemp(prefix="pdp-bench-"))
    try:
        yield write(files, base / "files")
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextmanager
def our_service(files: Mapping[str, str], settings: Sequence[str] = (), grpc_port: int = 0) -> Iterator[Server]:
    """Run `pdp serve` of this source tree with its default settings but for the ports and `settings`, such as `a.b=1`."""
    compile_sources()
    port = free_port()
    ports = {"http": port, "grpc": grpc_port, "diagnostics": 0}
    sets = [*(f"server.{name}=127.0.0.1:{number}" for name, number in ports.items()), *settings]
    options = [part for setting in sets for part in ("--set", setting)]
    with temporary_folder(files) as folder:
        command = [sys.executable, "-m", "pdp", "serve", "-c", str(folder / "pdp.yaml"), *options]
        with running(command, port, folder) as server:
            yield server


@cache
def compile_sources() -> None:
    """Compile the source tree to bytecode, as the installation of a package does, so that no start compiles it."""
    compileall.compile_dir(ROOT / "pdp", quiet=1)


@contextmanager
def opa_server(opa: str, files: Mapping[str, str]) -> Iterator[Server]:
    """Run OPA without decision logs."""
    port = free_port()
    quiet = ("--log-level", "error", "--disable-telemetry")
    with temporary_folder(files) as folder:
        paths = [str(folder / name) for name in files]
        command = [opa, "run", "--server", "--addr", f"127.0.0.1:{port}", *quiet, *paths]
        with running(command, port, folder) as server:
            yield server


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _tree(pid: int) -> list[int]:
    """Return a process and all processes below it."""
    found = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children = (task / "children").read_text().split()
            found += [each for child in children for each in _tree(int(child))]
    return found


def _ticks(pid: int) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0


def _proportional_kilobytes(pid: int) -> int:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 0
