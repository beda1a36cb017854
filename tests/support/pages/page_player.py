"""Plays the blocks of a page in order, as printed, in a folder like a fresh clone with the service installed."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import yaml
from support.clients.http_client import fetch
from support.pages.pages import Block, Output, parsed_json, same_json
from support.paths import ROOT
from support.service import command_client
from support.service.commands import serve_commands
from support.untested import not_tested

CLIENT: Final = Path(command_client.__file__)
HTTP: Final = "http://127.0.0.1:8181"
READY: Final = "http://127.0.0.1:8282/health/ready"
FREE: Final = tuple(f"--set=server.{name}=127.0.0.1:0" for name in ("http", "grpc", "diagnostics"))
TOOLS: Final = ("bash", "curl", "make", "openssl")
_SERVE_ONCE: Final = """
pdp serve -c {file} {ports} > served.once &
for i in $(seq 1000); do grep -q Trino served.once && break; sleep 0.1; done
kill $! && wait $! && grep Trino served.once
"""
"""Start of a service, and its stop once it serves."""
Entry = Mapping[str, Any]
"""Exception from how blocks of a language are played; `tests/pages.yaml` explains its keys."""


def make_clone(folder: Path) -> None:
    """Make a folder like a fresh clone after `make run` has installed the service; skip where a tool is missing."""
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        not_tested("with the pages of the documentation", f"no {', '.join(missing)} on the PATH")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    for name in ("rules", "protos", "tests/cases/stories"):  # other tests run the other cases
        shutil.copytree(ROOT / name, folder / name)
    commands = folder / ".venv" / "bin"
    commands.mkdir(parents=True)
    _write_command(commands / "pdp", f'PYTHONPATH={ROOT} exec {sys.executable} -m pdp "$@"')
    _write_command(commands / "python", f'PYTHONPATH={ROOT}${{PYTHONPATH:+:$PYTHONPATH}} exec {sys.executable} "$@"')
    for name in (".installed-service", ".installed"):
        (folder / ".venv" / name).touch()


def _write_command(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@dataclass
class Player:
    """Player of one page in a folder. Use it as a context: it ends the processes that it started.

    The command `pdp` of the folder runs in a fork of an interpreter that has imported `pdp`.
    """

    folder: Path
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Placeholders of the page, such as `/path/to/pdp`, with what stands for them here."""
    assumed: Mapping[str, Any] | None = None
    """Files of the service that the page assumes."""
    _output: Output = field(default_factory=Output)
    _answer: str = ""
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _commands: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of_page(cls, folder: Path, settings: Mapping[str, Any]) -> Player:
        """Return the player of a page with its placeholders and its service."""
        replaced = {name: value.format(folder=folder) for name, value in settings.get("replaced", {}).items()}
        return cls(folder, replaced, settings.get("service"))

    def __enter__(self) -> Self:
        address = self.folder / ".venv" / "commands"
        self._commands.enter_context(serve_commands(str(address)))
        client = shlex.join([sys.executable, "-S", "-E", str(CLIENT), str(address)])
        _write_command(self.folder / ".venv" / "bin" / "pdp", f'PYTHONPATH={ROOT} exec {client} "$@"')
        try:
            if self.assumed is not None:
                self.serve(self.assumed)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with self._commands:
            for process in reversed(self._running):
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate(timeout=20)

    def play(self, block: Block, entry: Entry) -> None:
        """Play a block; raise AssertionError if it does not do what the page says."""
        for command in entry.get("before", ()):
            done = self._bash(command)
            assert done.returncode == 0, f"{block}: {command}: {done.stderr}"
        way = way_of(block, entry)
        assert way, f"{block}: say in tests/pages.yaml how this block is played, or why it is not"
        way(self, block, entry)
        for command in entry.get("after", ()):
            done = self._bash(command)
            assert done.returncode == 0, f"{block}: {command}: {done.stdout}{done.stderr}"
        if "starts" in entry:
            done = self._bash(_SERVE_ONCE.format(file=entry["starts"], ports=shlex.join(FREE)))
            assert done.returncode == 0, f"{block}: {done.stdout}{done.stderr}"
        if "serve" in entry:
            self.serve(entry["serve"])

    # --- commands -------------------------------------------------------------------------------------------------

    def run(self, block: Block, entry: Entry) -> None:
        """Run the block as a shell script; write it if its first line names a file of variables."""
        if block.file_name:
            self.write(block, entry)
            return
        done = self._bash(block.text)
        assert done.returncode == entry.get("exit", 0), f"{block}: {done.returncode}: {done.stdout}{done.stderr}"
        body = parsed_json(done.stdout)
        assert not isinstance(body, dict) or "error" not in body, f"{block}: {done.stdout}"
        self._answer = done.stdout

    def start(self, block: Block, entry: Entry) -> None:
        """Start the block as a shell script that goes on, and wait for the address that it serves."""
        self._serve(str(block), self._filled(block.text), entry["background"])

    def converse(self, block: Block, entry: Entry) -> None:
        """Run each command after `$`, and compare its output with the lines below."""
        for part in f"\n{block.text}".split("\n$ ")[1:]:
            command, _, printed = part.partition("\n")
            done = self._bash(command)
            streams = (done.stdout, done.stderr, f"{done.stdout}{done.stderr}")
            wrong = [self._output.differences(printed, real) for real in streams]
            assert not all(wrong), f"{block}: {command}\n{wrong[-1]}"
            assert done.returncode == entry.get("exit", done.returncode), f"{block}: {command}: {done.returncode}"

    # --- files and settings ---------------------------------------------------------------------------------------

    def write(self, block: Block, entry: Entry) -> None:
        """Write the block to its file. Check a configuration, and start a service on it if asked to."""
        name = entry.get("file") or block.file_name
        assert name, f"{block}: name the file in a first line `# name`, or say in tests/pages.yaml what this is"
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._filled(block.text))
        if file.name == "pdp.yaml" and not entry.get("unchecked"):
            self._check(block, entry, f"pdp config check -c {name}")

    def settings(self, block: Block, entry: Entry) -> None:
        """Check the block as a part of a configuration, `with` other sections; serve it if asked to."""
        whole = _merged(entry["settings"] or {}, yaml.safe_load(self._filled(block.text)))
        (self.folder / "service").mkdir(exist_ok=True)
        (self.folder / "service" / "pdp.yaml").write_text(yaml.safe_dump(whole))
        self._check(block, entry, "pdp config check -c service/pdp.yaml")
        if entry.get("serves"):
            self._serve(str(block), "pdp serve -c service/pdp.yaml", READY)

    def variables(self, block: Block, entry: Entry) -> None:
        """Check the block as variables of the environment."""
        lines = shlex.join(line for line in block.text.splitlines() if line)
        (self.folder / "variables").mkdir(exist_ok=True)
        (self.folder / "variables" / "pdp.yaml").write_text(yaml.safe_dump(entry["variables"] or {}))
        self._check(block, entry, f"env {lines} pdp config check -c variables/pdp.yaml")

    def _check(self, block: Block, entry: Entry, command: str) -> None:
        """Check a configuration. It has no warnings but those that the entry expects: a page prints what has an effect."""
        done = self._bash(command)
        assert done.returncode == 0, f"{block}: {done.stdout}{done.stderr}"
        warnings = [line for line in done.stdout.splitlines() if "warning: " in line]
        assert all(entry.get("warns", "\n") in line for line in warnings), f"{block}: {done.stdout}"

    # --- requests -------------------------------------------------------------------------------------------------

    def request(self, block: Block, entry: Entry) -> None:
        """Post the block to a path of the service."""
        self._ask(block, "POST", entry["request"], block.text)

    def request_of_head(self, block: Block, entry: Entry) -> None:
        """Send the body below a line with method and path."""
        head, _, body = block.text.partition("\n")
        method, _, path = head.partition(" ")
        self._ask(block, method, path, body)

    def answer(self, block: Block, entry: Entry) -> None:
        """Compare the block with the answer to the last request, or with the output of the last script."""
        assert self._answer, f"{block}: nothing was asked"
        self._compare(block)

    def output(self, block: Block, entry: Entry) -> None:
        """Run the command that the page names, and compare its output with the block."""
        done = self._bash(entry["prints"])
        assert done.returncode == entry.get("exit", 0), f"{block}: {done.returncode}: {done.stdout}{done.stderr}"
        self._answer = done.stdout
        self._compare(block)

    def _compare(self, block: Block) -> None:
        real = parsed_json(self._answer)
        if real is None:
            wrong = self._output.differences(block.text, self._answer)
            assert not wrong, f"{block}: {wrong}"
            return
        assert same_json(parsed_json(block.text), real), f"{block}: the answer is\n{self._answer}"

    def _ask(self, block: Block, method: str, path: str, body: str) -> None:
        data = parsed_json(body) if body.strip() else None
        assert data is not None or not body.strip(), f"{block}: not JSON"
        response = fetch(f"{HTTP}{path}", data, method, timeout=30)
        assert response.status == 200, f"{block}: {response.status} {response.text}"
        decisions = (parsed_json(response.text) or {}).get("decisions", ())
        assert not any("error" in decision for decision in decisions), f"{block}: {response.text}"
        self._answer = response.text

    # --- processes ------------------------------------------------------------------------------------------------

    def serve(self, configuration: Mapping[str, Any]) -> None:
        """Serve a configuration with its files, as a page assumes it."""
        for name, content in configuration.items():
            file = self.folder / "service" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        self._serve("the service of the page", "pdp serve -c service/pdp.yaml", READY)

    def _serve(self, what: str, script: str, address: str) -> None:
        with (self.folder / "served.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-euc", script], cwd=self.folder, env=clone_environment(self.folder), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._running.append(process)
        deadline = time.monotonic() + 150
        while not _answers(address):
            text = (self.folder / "served.log").read_text(errors="replace")
            assert process.poll() is None, f"{what}: {text[-3000:]}"
            assert time.monotonic() < deadline, f"{what}: {address} does not answer: {text[-3000:]}"
            time.sleep(0.1)

    def _bash(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._filled(script)], cwd=self.folder, env=clone_environment(self.folder),
            capture_output=True, text=True, timeout=150, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def _filled(self, script: str) -> str:
        for placeholder, value in self.replaced.items():
            script = script.replace(placeholder, value)
        return script


def clone_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a shell in a clone, with the installed commands on the PATH."""
    unwanted = ("PYTHONPATH", "MAKEFLAGS", "VENV")
    rest = {key: value for key, value in os.environ.items() if key not in unwanted and not key.startswith("PDP_")}
    return {**rest, "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}", "COLUMNS": "200"}


def _skip(_player: Player, _block: Block, _entry: Entry) -> None:
    """Play nothing: another test plays the block, or it is listed with the reason."""


_Play = Callable[[Player, Block, Entry], None]
_BY_ENTRY: Final[Mapping[str, _Play]] = {
    "not_run": _skip,
    "test": _skip,
    "background": Player.start,
    "settings": Player.settings,
    "variables": Player.variables,
    "request": Player.request,
    "answer": Player.answer,
    "prints": Player.output,
    "file": Player.write,
}
"""Way to play a block with an entry, by a key of the entry."""
_BY_LANGUAGE: Final[Mapping[str, _Play]] = {
    "sh": Player.run,
    "console": Player.converse,
    **dict.fromkeys(("properties", "python", "toml", "yaml"), Player.write),
    "json": Player.answer,
    "http": Player.request_of_head,
}
"""Way to play all other blocks. A block in another language needs an entry."""
LANGUAGES: Final = _BY_LANGUAGE.keys() | {"js", "sql", "text"}


def way_of(block: Block, entry: Entry) -> _Play | None:
    """Return how a block is played, also not at all for a reason; None if the entry and the language do not say it."""
    return next((way for key, way in _BY_ENTRY.items() if key in entry), _BY_LANGUAGE.get(block.language))


def _merged(base: Any, over: Any) -> Any:
    """Return settings with other settings over them, mapping by mapping."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: _merged(base.get(key), value) for key, value in over.items()}}


def _answers(address: str) -> bool:
    try:
        response = fetch(address, timeout=5)
    except OSError:
        return False
    return response.status == 200 and '"starting":true' not in response.text
