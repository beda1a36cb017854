"""Output of the commands: safe text, and errors on one line."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
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
