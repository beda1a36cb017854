"""Real services for tests: in this process on free ports, or `pdp serve` as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from support.oracles.audit_files import audit_records
from support.service.commands import Running, example_option, start_pdp

from pdp.app.run import embedded_settings
from pdp.app.service import Service
from pdp.config.load import make_settings
from pdp.config.settings import Settings

FREE_PORTS = {
    "http": "127.0.0.1:0",
    "grpc": "127.0.0.1:0",
    "diagnostics": "127.0.0.1:0",
    "drain_seconds": 2,
    "lame_duck_seconds": 0,
}


def settings_of(config: Mapping[str, Any], folder: Path) -> Settings:
    """Settings with free ports and the audit below `folder`."""
    server = {**FREE_PORTS, **config.get("server", {})}
    return make_settings(
        {"policies": {"rules": []}, "audit": {"sinks": [{"file": "audit"}]}, **config, "server": server}, folder
    )


def example_settings(folder: Path, *overrides: str) -> Settings:
    """The embedded example's settings with free ports and the audit below `folder`."""
    ports = [f"server.{name}={json.dumps(value)}" for name, value in FREE_PORTS.items()]
    audit = f"audit.sinks={json.dumps([{'file': str(folder / 'audit')}])}"
    return embedded_settings((*ports, audit, *overrides))


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Service]:
    """A service in this process."""
    service = Service(settings)
    try:
        await service.start()
        yield service
    finally:
        await service.stop()


class Process:
    """`pdp serve` in a process of its own; `addresses` as it printed them."""

    def __init__(self, process: Running, addresses: dict[str, str], folder: Path) -> None:
        self.process = process
        self.addresses = addresses
        self.folder = folder

    def url(self, path: str, listener: str = "http") -> str:
        return f"http://{self.addresses[listener]}{path}"

    def terminate(self, timeout: float = 20) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    def records(self) -> list[dict[str, Any]]:
        return audit_records(self.folder, running=self.process.poll() is None)


def free_ports(arguments: Sequence[str]) -> list[str]:
    """Return the options for free ports and a quick stop, without those that arguments set: no key is set twice."""
    given = {argument.partition("=")[0] for argument in arguments}
    free = {f"server.{name}": value for name, value in FREE_PORTS.items() if f"server.{name}" not in given}
    return [part for key, value in free.items() for part in ("--set", f"{key}={value}")]


@contextmanager
def serve_process(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
    fresh: bool = False,
    stdout: int | None = None,
) -> Iterator[Process]:
    """Run `pdp serve` with free ports in `folder` until the end of the context. `limits`, `fresh`: see `start_pdp`.

    Output goes to files in the folder, but for a descriptor in place of `stdout`.

    Without a configuration, it serves the example.
    """
    command = ["serve", *example_option(folder, arguments), *free_ports(arguments), *arguments]
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err, Path(os.devnull).open() as none:
        streams = (none.fileno(), out.fileno() if stdout is None else stdout, err.fileno())
        process = start_pdp(*command, streams=streams, cwd=folder, env=env, limits=limits, fresh=fresh)
    try:
        yield Process(process, _addresses(process, folder), folder)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)


@contextmanager
def serve_twin(folder: Path, *arguments: str) -> Iterator[Process]:
    """Run one more service in a folder of its own below `folder`: the quiet one beside an attacked one."""
    below = folder / "twin"
    below.mkdir()
    with serve_process(below, *arguments) as twin:
        yield twin


def _addresses(process: Running, folder: Path) -> dict[str, str]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        printed = (folder / "stdout").read_text() + (folder / "stderr").read_text()
        if "Trino's" in printed:
            found = {name: re.search(rf"{label}\s+(?:https?://)?([\d.:]+)", printed) for name, label in _LABELS.items()}
            return {name: match[1] for name, match in found.items() if match}
        if process.poll() is not None:
            raise AssertionError(f"pdp serve ended with {process.returncode}: {(folder / 'stderr').read_text()}")
        time.sleep(0.02)
    raise AssertionError("pdp serve did not start")


_LABELS = {"http": "HTTP", "grpc": "gRPC", "diagnostics": "diagnostics"}
