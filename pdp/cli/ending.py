"""Early ends of a command: an interrupt, a reader of the output that is gone, a full disk. One line each.

Imports nothing but the standard library, so that an interrupt during other imports ends in one line, too.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from types import FrameType


def end_on_interrupt() -> None:
    """End this process with one line at SIGINT, until a service sets a handler. An ignored SIGINT stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, _: FrameType | None) -> None:
    # The shell sees the signal as the cause of the end, and stops a loop of commands.
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"pdp: interrupted\n")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def abandon_output(error: OSError) -> str:
    """Give up what is left of stdout, and return the message for a failed read or write."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    if error.errno == errno.EPIPE:
        return "the reader of the output is gone"
    file = f" `{os.fsdecode(error.filename)}`" if isinstance(error.filename, str | bytes) else ""
    return f"cannot read or write{file}: {(error.strerror or str(error)).lower()}"
