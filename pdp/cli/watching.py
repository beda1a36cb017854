"""Repeated runs of a command: once now, and again after each change of its files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NoReturn

import click

from pdp.cli.terminal import plural, visible
from pdp.errors import PdpError

POLL_SECONDS: Final = 1.0


def watch(run: Callable[[], object], files: Callable[[], Iterable[Path]]) -> NoReturn:
    """Run until a signal ends the process. `files` returns the files that a run would read.

    The files are looked at each second. An error of a run is printed and does not end the watch: files are often
    invalid while somebody writes them.
    """
    while True:
        before = _times(files())
        _run_once(run)
        before = {**_times(files()), **before}  # a change during the run counts
        click.echo(f"watching {plural(len(before), 'file')}, Ctrl-C ends", err=True)
        while _times(files()) == before:
            time.sleep(POLL_SECONDS)


def _run_once(run: Callable[[], object]) -> None:
    try:
        run()
    except PdpError as error:
        click.echo(visible(f"pdp: {' '.join(str(error).split())}"), err=True)
    except click.ClickException as error:
        click.echo(visible(f"pdp: {error.format_message()}"), err=True)


def _times(files: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return the time of the last change and the size of each file; zeros for a missing file."""
    return {file: _time(file) for file in files}


def _time(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
