"""The command `pdp` by a server of commands: `python -S -E command_client.py <socket> <arguments>`, in 30 ms of a start.

Passes on the standard streams, the working directory, the environment, signals and the exit code. Imports nothing but
the standard library: it stands for an interpreter that has yet to import `pdp`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main(address: str, *arguments: str) -> int:
    """Run a command to its end; return its exit code, as a shell counts it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    request = os.memfd_create("request")
    environment = {key: value for key, value in os.environ.items() if key not in ("PWD", "OLDPWD", "SHLVL", "_")}
    command = {"arguments": arguments, "cwd": os.getcwd(), "env": environment, "limits": {}, "pauses": {}}  # noqa: PTH109
    os.write(request, json.dumps(command).encode())
    os.lseek(request, 0, os.SEEK_SET)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"c"], [0, 1, 2, request])
        child = int(connection.recv(20))
        for number in PASSED_ON:
            signal.signal(number, lambda received, _: os.kill(child, received))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        code = int(connection.recv(20))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
