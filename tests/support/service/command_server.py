"""A process that has imported `pdp` and forks a child for each command: a start costs 50 ms in place of 900 ms.

The process starts no gRPC and no thread, so that a fork is safe. Each child has its own working directory,
environment, limits, network, standard streams and exit code, and runs `python -m pdp` to the end of its interpreter. A
child may also be one more server of commands, in a process group of its own.
"""

from __future__ import annotations

import ctypes
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

OWN_NETWORK = "/proc/thread-self/ns/net"
"""Network of the calling thread."""
WITH_SERVER = 6
"""Descriptors that ask for a server: standard streams, request, network, and the socket that listens."""


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
    _, streams, _, _ = socket.recv_fds(connection, 1, WITH_SERVER)
    child = os.fork()
    if child:
        if len(streams) == WITH_SERVER:
            os.setpgid(child, child)
        for stream in streams:
            os.close(stream)
        connection.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    request, *places = streams[3:]
    del streams[3:]
    command = json.loads(Path(f"/proc/self/fd/{request}").read_text())
    os.close(request)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # those of the server stand for other files, which can be sought
    sys.stdin, sys.stdout = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rw"))
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    return _prepare(command, *places)


def _prepare(command: Mapping[str, Any], network: int | None = None, listening: int | None = None) -> list[str]:
    """Make this process the one that a command asks for; return the command's arguments. `listening`: be a server."""
    if network is not None:
        _enter(network)
    if listening is not None:
        return serve(socket.socket(fileno=listening))
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    for name, soft in command["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))
    set_pauses(msgspec.convert(command["pauses"], Pauses))
    arguments: list[str] = command["arguments"]
    return arguments


def _enter(network: int) -> None:
    """Enter a network, for which a process needs root, unless this process is in it."""
    if not os.path.sameopenfile(network, own := os.open(OWN_NETWORK, os.O_RDONLY)):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(network, 0):
            raise OSError(ctypes.get_errno(), "cannot enter the network")
    os.close(own)
    os.close(network)


if __name__ == "__main__":
    for name in cli.list_commands(click.Context(cli)):
        cli.get_command(click.Context(cli), name)
    gc.freeze()
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("pdp", run_name="__main__", alter_sys=True)
