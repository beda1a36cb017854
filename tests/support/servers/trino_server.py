"""A throw-away Trino on loopback: one node, a free port, catalogs that need no other service, nothing left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.servers.postgres import free_port
from support.servers.trino_distribution import java, server_folder

SECONDS = 150
"""How long a start may take on a loaded machine; a calm one takes 15."""
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""What makes Java start soon, and run slowly."""
JVM = (
    "-Xmx2G",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:ReservedCodeCacheSize=256M",
    "-XX:+EnableDynamicAgentLoading",
    "--add-modules=jdk.incubator.vector",
    "-Djdk.attach.allowAttachSelf=true",
    "-Djdk.nio.maxCachedBufferSize=2000000",
    "-Dfile.encoding=UTF-8",
)
CATALOGS: Mapping[str, Mapping[str, str]] = {
    "blackhole": {"connector.name": "blackhole"},
    "funcs": {"connector.name": "memory"},
    "lakehouse": {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "TESTING_FILE_METASTORE",
        "hive.metastore.catalog.dir": "local:///",
        "fs.native-local.enabled": "true",
        "local.location": "{data}",
    },
    "memory": {"connector.name": "memory"},
    "tpch": {"connector.name": "tpch"},
}
"""Catalog -> its properties; `{data}` is a folder of the server's own."""


@dataclass(frozen=True)
class Trino:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]
    seconds: float
    """How long it took to start."""


@dataclass(frozen=True)
class Setup:
    """What differs from one server to another."""

    access_control: Mapping[str, str]
    """The lines of etc/access-control.properties."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """The users of each group, parted by commas."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What goes over the lines of etc/config.properties."""
    java: Sequence[str] = QUICK


@contextmanager
def trino_server(folder: Path, setup: Setup) -> Iterator[Trino]:
    """A server with its configuration, its data and its log in `folder`, stopped at the end whatever happens.

    AssertionError with the end of its log where it does not start.
    """
    command = [str(java()), *JVM, *setup.java, *_properties_of_node(folder), "-cp", f"{server_folder()}/lib/*"]
    port = free_port()
    _configure(folder, port, setup)
    start = time.monotonic()
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "io.trino.server.TrinoServer"], stdout=log, stderr=log, cwd=folder, env=_environment()
        )
    try:
        _await(process, port, folder)
        yield Trino(port, process, time.monotonic() - start)
    finally:
        _end(process)


def unpack_server(folder: Path) -> None:
    """Make a folder like an unpacked server with its usual configuration: no catalogs, no access control, port 8080."""
    (folder / "etc").mkdir(exist_ok=True)
    _write(folder / "etc" / "config.properties", {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": "8080",
        "discovery.uri": "http://127.0.0.1:8080",
        "plugin.dir": str(server_folder() / "plugin"),
    })  # fmt: skip
    command = [str(java()), *JVM, *QUICK, *_properties_of_node(folder), "-cp", f"{server_folder()}/lib/*"]
    write_script(
        folder / "bin" / "launcher", f'test "$1" = run && exec {shlex.join(command)} io.trino.server.TrinoServer'
    )


def write_script(path: Path, line: str) -> None:
    """Write a shell script of one line that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _properties_of_node(folder: Path) -> list[str]:
    settings = {
        "node.environment": "tests",
        "node.id": "one",
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
        "node.data-dir": str(folder / "var"),
        "config": str(folder / "etc" / "config.properties"),
    }
    return [f"-D{key}={value}" for key, value in settings.items()]


def _configure(folder: Path, port: int, setup: Setup) -> None:
    etc, data = folder / "etc", folder / "data"
    (etc / "catalog").mkdir(parents=True)
    data.mkdir()
    _write(etc / "config.properties", {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}",
        "plugin.dir": str(server_folder() / "plugin"),
        "catalog.management": "dynamic",
        "catalog.prune.update-interval": "1h",
        "query.max-memory-per-node": "512MB",
        **setup.settings,
    })  # fmt: skip
    for name, lines in CATALOGS.items():
        filled = {key: value.format(data=data) for key, value in lines.items()}
        _write(etc / "catalog" / f"{name}.properties", filled)
    _write(etc / "access-control.properties", setup.access_control)
    _write(etc / "group-provider.properties", {"group-provider.name": "file", "file.group-file": str(etc / "groups")})
    (etc / "groups").write_text("".join(f"{group}:{users}\n" for group, users in setup.groups.items()))


def _write(file: Path, lines: Mapping[str, str]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))


def _environment() -> dict[str, str]:
    """The environment without what would change how Java runs, or where Trino's requests go."""
    unwanted = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH")
    return {key: value for key, value in os.environ.items() if key not in unwanted}


def _await(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    """Wait until it takes queries, which is some time after it listens."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _is_ready(port):
            return
        time.sleep(0.2)
    log = (folder / "server.log").read_text(errors="replace")
    raise AssertionError(f"Trino did not start: {log[-4000:]}")


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/info", timeout=5) as answer:
            return json.load(answer)["starting"] is False
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its data are thrown away, so nothing is lost by a hard end."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait(20)
