"""Output files of commands: written as a whole or not at all, and readable by their owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pdp.config.files import open_private_file
from pdp.errors import InvalidArgument


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name at the end, unless there is an error.

    Special files, such as pipes, are written directly. Raise InvalidArgument if the file cannot be written.
    """
    special = path.exists() and not path.is_file()
    # a rename within one folder is atomic: readers find the old or the new content
    target = path if special else path.resolve().with_name(f"{path.resolve().name}.{os.getpid()}.part")
    try:
        opened = target if special else open_private_file(target, os.O_WRONLY | os.O_TRUNC)
        with open(opened, "wb") as file:  # noqa: PTH123  a descriptor or a path
            yield file
        if not special:
            target.replace(path.resolve())
    except OSError as error:
        raise InvalidArgument(f"cannot write `{path}`: {(error.strerror or str(error)).lower()}") from None
    finally:
        if not special:
            target.unlink(missing_ok=True)
