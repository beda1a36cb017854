"""Commands of `pdp` in processes of their own."""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

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
    request = _file(json.dumps(command))
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(_server_address())
        socket.send_fds(connection, [b"c"], [*streams, request])
    finally:
        os.close(request)
    return Command(connection)


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
    address = f"\0pdp-commands-{secrets.token_hex(8)}"
    _SERVERS.append(start_command_server(address))
    return address


def start_command_server(address: str) -> subprocess.Popen[bytes]:
    """Start a server of commands in a session of its own. It ends when its input closes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address)
        listening.listen(64)
        return subprocess.Popen(
            [sys.executable, "-m", "support.service.command_server", str(listening.fileno())],
            pass_fds=[listening.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{TESTS}"},
            start_new_session=True,
        )


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
