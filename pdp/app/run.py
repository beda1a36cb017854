"""Start of a service: one process or several workers, by configuration or with the settings of the example.

Owns the lock of an audit folder, which keeps a second service out.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import structlog

from pdp.app.process import quick_imports, usable_cpus
from pdp.config.files import make_private_folder, open_private_file
from pdp.config.idle_settings import idle_settings
from pdp.config.load import load_settings
from pdp.config.origins import key_text
from pdp.config.settings import Settings
from pdp.errors import ConfigError

LOCK: Final = "lock"
"""Name of the locked file in the folder."""
log = structlog.get_logger()


class AnnouncedService(Protocol):
    """Service that serves: the scheme of its HTTP address, addresses by listener, and counts of what it loaded."""

    scheme: str
    addresses: dict[str, str]
    counts: dict[str, int]


def serve(
    settings: Settings, announce: Callable[[AnnouncedService], None], reload: Callable[[], Settings] | None = None
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Call `announce` once all addresses listen.

    `reload` reads the settings again, for a rolling restart of the workers.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is an audit to reopen; workers inherit this
    for key, message in idle_settings(settings):
        log.warning("setting without effect", key=key_text(key), warning=message, place=settings.origins.nearest(key))
    workers = usable_cpus() if settings.server.workers == "auto" else settings.server.workers
    with instance_lock(settings, alone=workers > 1):
        if workers == 1:
            with quick_imports():
                from pdp.app.serving import serve_alone  # noqa: PLC0415  a supervisor does without a service

            return serve_alone(settings, announce)
        from pdp.app.workers.supervisor import supervise  # noqa: PLC0415  a service alone does without a supervisor

        return supervise(settings, workers, announce, reload or (lambda: settings))


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


EXAMPLE: Final = next(
    path for path in (Path(__file__).parents[1] / "example", Path(__file__).parents[2] / "rules") if path.is_dir()
)
"""Folder of the example configuration, for a service that starts without a configuration file."""


def embedded_settings(overrides: tuple[str, ...] = ()) -> Settings:
    """Return the settings of the example, with the audit and the database in the working folder."""
    audit = f"audit.sinks=[{{file: {str(Path.cwd() / 'audit')!r}}}]"
    store = f"store.url=sqlite:///{Path.cwd()}/pdp.db"
    return load_settings(EXAMPLE / "pdp.yaml", (audit, store, *overrides))
