"""What the subcommands of `pdp grants` share: which store they work on, as whom, and how they show that they do."""

from __future__ import annotations

import os
import pwd
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import click
from rich.console import Console

from pdp.cli.context import Composition, visible
from pdp.config.settings import Settings
from pdp.engines.grants.edits import Actor
from pdp.errors import InvalidArgument
from pdp.facts.snapshot import Facts

F = TypeVar("F", bound=Callable[..., Any])
_PATIENCE_SECONDS: Final = 1.0


def store_options(command: F) -> F:
    """`-c` and `--set`: which store."""
    config = click.option("-c", "--config", type=click.Path(path_type=Path), help="Else ./pdp.yaml, else the example.")
    return config(click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting.")(command))


def writable(composition: Composition, config: Path | None, overrides: Sequence[str]) -> Settings:
    """The settings; InvalidArgument where their store is a world file."""
    settings = composition.settings(config, overrides)
    file = settings.store.world_file()
    if file is not None:
        raise InvalidArgument(
            f"the store is the world file `{file}`, which takes no writes: edit it, or set `store.url` to a database"
        )
    return settings


def read_store(composition: Composition, settings: Settings) -> Facts:
    """The facts of the store for a look at them; says where there is no database yet."""
    file = settings.sqlite_file()
    if file is not None and not file.exists():
        said = ", this is the seed that it will get" if settings.store.seed else ""
        click.echo(visible(f"pdp: there is no database at `{file}` yet{said}"), err=True)
    return composition.read_facts(settings)


def print_lines(lines: Iterable[str]) -> None:
    """Lines on stdout, in UTF-8 whatever the locale."""
    sys.stdout.buffer.writelines(f"{line}\n".encode() for line in lines)
    sys.stdout.buffer.flush()


def actor() -> Actor:
    """An operator of the deployment, by the name of the account that this process runs as."""
    number = os.getuid()
    try:
        return Actor(f"cli:{pwd.getpwuid(number).pw_name}")
    except KeyError:  # as in a container that runs as a number
        return Actor(f"cli:{number}")


class Progress:
    """How far a command is, on a terminal alone, once it takes long."""

    def __init__(self, doing: str) -> None:
        console = Console(stderr=True)
        self._status = console.status(doing) if sys.stderr.isatty() else None
        self._timer = threading.Timer(_PATIENCE_SECONDS, self._start)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._status:
            self._status.stop()

    def say(self, doing: str) -> None:
        """What is done now."""
        if self._status:
            self._status.update(doing)

    def _start(self) -> None:
        if self._status:
            self._status.start()
