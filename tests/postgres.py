"""A throw-away PostgreSQL on loopback, with the defaults of its package: `initdb`, a server, and nothing left behind.

PostgreSQL refuses to run as root; there it runs as an account without rights, and its data lie in a folder of that
account's own, because the account may not enter the folders of root's tests.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ACCOUNTS = ("postgres", "nobody")
"""Who runs the server where the tests run as root, first come first served."""
STARTS = 3
"""How often a start is tried: a free port may be taken before the server has it."""
SECONDS = 30


class PostgresMissing(RuntimeError):
    """PostgreSQL's server programs are not installed."""

    def __init__(self) -> None:
        super().__init__("no `initdb` on PATH nor in /usr/lib/postgresql: install Debian's package `postgresql`")


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A server of its own: yields `postgresql://postgres:<password>@127.0.0.1:<port>/postgres`.

    `folder` receives the server's log, `postgres.log`. Stopped and its data removed at the end, whatever happens;
    PostgresMissing where it is not installed, RuntimeError with the end of the log where it does not start.
    """
    programs, account = find_programs(), _account()
    with tempfile.TemporaryDirectory(prefix="pdp-postgres-", ignore_cleanup_errors=True) as home:
        password, log = secrets.token_urlsafe(12), folder / "postgres.log"
        data = _initialise(programs, Path(home), password, account)
        server, port = _start(programs, data, log, account)
        try:
            yield f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
        finally:
            _stop(server)


def find_programs() -> Path:
    """The folder of `initdb` and `postgres`, which belong together; PostgresMissing without one."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    for initdb in (*([Path(on_path).resolve()] if on_path else []), *reversed(installed)):
        if (initdb.parent / "postgres").exists():
            return initdb.parent
    raise PostgresMissing


def _account() -> dict[str, Any]:
    """As whom to run, as Popen takes it; nothing where this process is not root."""
    if os.geteuid():
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    found = next((known[name] for name in ACCOUNTS if name in known), None)
    if found is None:
        raise RuntimeError(f"PostgreSQL does not run as root, and there is no account named {' or '.join(ACCOUNTS)}")
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def _initialise(programs: Path, home: Path, password: str, account: dict[str, Any]) -> Path:
    data, secret = home / "data", home / "password"
    secret.write_text(password)
    secret.chmod(0o600)
    if account:
        for path in (home, secret):
            os.chown(path, account["user"], account["group"])
    command = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={secret}"]
    # what is written at first need not survive a power cut; the server itself syncs as it always does
    command += ["--no-sync", "--encoding=UTF8", "--no-locale"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=home, **account)
    if done.returncode:
        raise RuntimeError(f"initdb failed: {done.stderr.strip()}")
    return data


def _start(programs: Path, data: Path, log: Path, account: dict[str, Any]) -> tuple[subprocess.Popen[bytes], int]:
    """A server that takes connections, and its port."""
    for _ in range(STARTS):
        port = free_port()
        settings = ("listen_addresses=127.0.0.1", "unix_socket_directories=", f"port={port}")
        command = [
            str(programs / "postgres"),
            "-D",
            str(data),
            *(part for setting in settings for part in ("-c", setting)),
        ]
        with log.open("ab") as out:
            server = subprocess.Popen(command, stdout=out, stderr=out, cwd=data, **account)
        if _is_ready(server, data):
            return server, port
        _stop(server)
    raise RuntimeError(f"PostgreSQL did not start: {log.read_text(errors='replace')[-2000:]}")


def _is_ready(server: subprocess.Popen[bytes], data: Path) -> bool:
    """Wait until the server says so in `postmaster.pid`; False where it ended or takes too long."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            state = (data / "postmaster.pid").read_text().split()
        except FileNotFoundError:
            state = []
        if state and state[0] == str(server.pid) and state[-1] == "ready":
            return True
        time.sleep(0.02)
    return False


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server at once: nobody will start on its data again, so nothing need be written out first."""
    for ending in (signal.SIGQUIT, signal.SIGKILL):
        if server.poll() is None:
            server.send_signal(ending)
            try:
                server.wait(SECONDS)
            except subprocess.TimeoutExpired:
                continue
    server.wait(SECONDS)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
