"""Lock of the audit folder: a service with several workers has the folder for itself."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

from pdp.config.files import make_private_folder, open_private_file
from pdp.config.settings import Settings
from pdp.errors import ConfigError

LOCK: Final = "lock"
"""Name of the locked file in the folder."""
log = structlog.get_logger()


@contextmanager
def instance_lock(settings: Settings, *, alone: bool) -> Iterator[None]:
    """Hold the lock of the audit folder; raise ConfigError if another service holds it.

    `alone`: no other service may use the folder. Otherwise only services that are not `alone` may.
    """
    if settings.audit.folder is None:
        yield
        return
    folder = settings.path(settings.audit.folder)
    try:
        make_private_folder(folder)
        descriptor = open_private_file(folder / LOCK, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"cannot write the audit to `{folder}` (audit.sinks): {error.strerror}") from None
    try:
        _lock(descriptor, folder, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"another service uses the audit folder `{folder}`: give each service its own") from None
    except OSError as error:  # no harm: files have unique names, so two services only share the folder
        log.warning("the audit folder cannot be locked", folder=str(folder), cause=error.strerror)
