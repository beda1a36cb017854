"""Commands of `pdp` in processes of their own."""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from support.paths import ROOT, TESTS

from pdp.model.pauses import pauses

NOTES: Final = re.compile(r"pdp: (?:configuration: |there is no database at .* this is the seed).*")
"""Line about the configuration that a command took."""


class Ended(subprocess.CompletedProcess[str]):
    """Command that has ended. `notes` are the lines of stderr about the configuration, `stderr` all others."""

    def __init__(self, arguments: Sequence[str], code: int, stdout: str, stderr: str) -> None:
        lines = stderr.splitlines(keepends=True)
        self.notes = "".join(line for line in lines if NOTES.fullmatch(line.rstrip("\n")))
        others = "".join(line for line in lines if not NOTES.fullmatch(line.rstrip("\n")))
        super().__init__(arguments, code, stdout, others)


def run_script(script: str, *arguments: str, cwd: Path | None = None, environ: Mapping[str, str] = {}) -> Any:
    """Run a Python script in an interpreter of its own that finds the product; return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_pdp(
    *arguments: str,
    stdin: str | bytes = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    fresh: bool = False,
) -> Ended:
    """Run a command to its end: in a fork of an interpreter that has imported `pdp`, or in a fresh interpreter.

    Raise TimeoutExpired after `timeout` seconds.
    """
    if fresh:
        ended = subprocess.run(
            [sys.executable, "-m", "pdp", *arguments], input=_text(stdin), capture_output=True, text=True, timeout=timeout,
            check=False, cwd=cwd, env=_environment(env),
        )  # fmt: skip
        return Ended(["pdp", *arguments], ended.returncode, ended.stdout, ended.stderr)
    files = [_file(stdin), _file(), _file()]
    try:
        command = start_pdp(*arguments, streams=files, cwd=cwd, env=env)
        try:
            code = command.wait(timeout)
        finally:
            command.kill()
        return Ended(["pdp", *arguments], code, *map(_content, files[1:]))
    finally:
        for file in files:
            os.close(file)


def example_option(folder: Path | None, arguments: Sequence[str]) -> list[str]:
    """Return the option for the example, unless a configuration is given or stands in the folder."""
    return [] if "-c" in arguments or ((folder or Path.cwd()) / "pdp.yaml").exists() else ["--example"]


def start_pdp(
    *arguments: str,
    streams: Sequence[int],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
    fresh: bool = False,
) -> Running:
    """Start a command with three file descriptors as standard streams. `limits` are soft limits of `resource`.

    The command has the waits of this process. `fresh` starts an interpreter without limits and with the waits of
    production; for measurements.
    """
    if fresh:
        stdin, stdout, stderr = streams
        return subprocess.Popen(
            [sys.executable, "-m", "pdp", *arguments], stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd,
            env=_environment(env),
        )  # fmt: skip
    sys.audit("support.start_pdp", arguments)
    command = {
        "arguments": arguments, "cwd": str(cwd or Path.cwd()), "env": _environment(env), "limits": limits or {},
        "pauses": msgspec.to_builtins(pauses()),
    }  # fmt: skip
    return _start(command, streams)


def _start(command: Mapping[str, Any], streams: Sequence[int], *listening: int) -> Command:
    """Let the server of commands fork a command, or with a socket one more server, in the network of this thread."""
    request, network = _file(json.dumps(command)), os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(_server_address())
        socket.send_fds(connection, [b"c"], [*streams, request, network, *listening])
    finally:
        os.close(request)
        os.close(network)
    return Command(connection)


@contextmanager
def serve_commands(address: str) -> Iterator[None]:
    """Serve commands at `address` in the network of this thread. All that run end with the context."""
    reading, writing = os.pipe()  # the server ends with this process
    with _listen(address) as listening, Path(os.devnull).open("w") as none:
        server = _start({}, (reading, none.fileno(), 2), listening.fileno())
    os.close(reading)
    try:
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(20)
        os.close(writing)


def _listen(address: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(address)
    listening.listen(64)
    return listening


class Command:
    """A running command, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(connection.recv(20))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        return self.returncode if self.returncode is not None else self._exit_code(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raise TimeoutExpired after `timeout` seconds."""
        code = self.returncode if self.returncode is not None else self._exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("pdp", timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal if the command still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the command at once and wait until it is gone."""
        self.send_signal(signal.SIGKILL)
        self.wait(10)

    def _exit_code(self, timeout: float | None) -> int | None:
        if not select.select([self._connection], [], [], timeout)[0]:
            return None
        self.returncode = int(self._connection.recv(20))
        self._connection.close()
        return self.returncode


Running = Command | subprocess.Popen[bytes]


@cache
def _server_address() -> str:
    """Start the server of commands once; return its address. The server ends with this process: its input closes."""
    folder = tempfile.mkdtemp(prefix="pdp-commands-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = f"{folder}/server"
    with _listen(address) as listening:
        _SERVERS.append(
            subprocess.Popen(
                [sys.executable, "-m", "support.service.command_server", str(listening.fileno())],
                pass_fds=[listening.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{TESTS}"},
                start_new_session=True,
            )
        )
    return address


_SERVERS: list[subprocess.Popen[bytes]] = []


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **(more or {})}


def _file(content: str | bytes = b"") -> int:
    """Return the descriptor of a file in memory."""
    file = os.memfd_create("content")
    with os.fdopen(os.dup(file), "wb") as writing:
        writing.write(content.encode() if isinstance(content, str) else content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _text(content: str | bytes) -> str:
    return content.decode() if isinstance(content, bytes) else content


def _content(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), encoding="utf-8") as reading:
        return reading.read()
