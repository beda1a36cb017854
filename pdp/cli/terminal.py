"""Output of the commands: safe text, errors on one line, and repeated runs."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click

from pdp.errors import PdpError

F = TypeVar("F", bound=Callable[..., Any])
BAD_INPUT = 2
"""Exit code for wrong usage and unusable input."""
_NOTES: Final = "pdp.notes"
"""Key of the notes in the context of a command."""


def visible(text: str) -> str:
    """Escape characters that could control a terminal, such as cursor movements or a change of writing direction."""
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    code = ord(sign)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 check` or `2,000 checks`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout, in UTF-8 for any locale."""
    sys.stdout.buffer.writelines(f"{line}\n".encode() for line in lines)
    sys.stdout.buffer.flush()


def fail(message: str) -> NoReturn:
    """Print one line on stderr and exit with BAD_INPUT."""
    click.echo(f"pdp: {visible(message)}", err=True)
    raise SystemExit(BAD_INPUT)


def note_at_end(text: str) -> None:
    """Print a line on stderr after the output of the command, unless the command ends with BAD_INPUT."""
    notes = click.get_current_context().meta.setdefault(_NOTES, [])
    if text not in notes:
        notes.append(text)


def _print_notes() -> None:
    sys.stdout.flush()
    for text in click.get_current_context().meta.pop(_NOTES, ()):
        click.echo(f"pdp: {visible(text)}", err=True)


def one_line_errors(command: F) -> F:
    """Print every PdpError of a command as one line and exit with BAD_INPUT. Other exceptions keep their traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            result = command(*args, **kwargs)
        except PdpError as error:
            fail(" ".join(str(error).split()))
        except SystemExit as end:
            if end.code != BAD_INPUT:
                _print_notes()
            raise
        _print_notes()
        return result

    return wrapped  # type: ignore[return-value]


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
