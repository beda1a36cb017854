"""A process that has imported `pdp` and forks a child for each command: a start costs 50 ms in place of 900 ms.

The process starts no gRPC and no thread, so that a fork is safe. Each child has its own working directory,
environment, limits, standard streams and exit code, and runs `python -m pdp` to the end of its interpreter.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import runpy
import select
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

import pdp.app.run
import pdp.app.service
import pdp.app.workers.supervisor  # noqa: F401  with the commands, all that a command imports
from pdp.cli.main import cli
from pdp.model.pauses import Pauses, set_pauses


def serve(listening: socket.socket) -> list[str]:
    """Fork a child per connection until standard input ends. Return in the children alone: a command's arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listening.fileno(), 0], [], [])
        if listening.fileno() not in ready:
            os._exit(0)
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return _fork_command(connection)
        connection.close()


def _fork_command(connection: socket.socket) -> list[str]:
    """Fork the command and return its arguments there; here, send its process id and its exit code, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, 4)
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        connection.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    request = streams.pop()
    command = json.loads(Path(f"/proc/self/fd/{request}").read_text())
    os.close(request)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # those of the server stand for other files, which can be sought
    sys.stdin, sys.stdout = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rw"))
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    return _prepare(command)


def _prepare(command: Mapping[str, Any]) -> list[str]:
    """Make this process the one that a command asks for; return the command's arguments."""
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    for name, soft in command["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))
    set_pauses(msgspec.convert(command["pauses"], Pauses))
    arguments: list[str] = command["arguments"]
    return arguments


if __name__ == "__main__":
    for name in cli.list_commands(click.Context(cli)):
        cli.get_command(click.Context(cli), name)
    gc.freeze()
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("pdp", run_name="__main__", alter_sys=True)
