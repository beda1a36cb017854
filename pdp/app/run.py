"""Choice between a service that is one process and one of several workers."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Protocol

from pdp.app.cpus import usable_cpus
from pdp.app.instance_lock import instance_lock
from pdp.app.quick_imports import quick_imports
from pdp.config.settings import Settings


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
    workers = usable_cpus() if settings.server.workers == "auto" else settings.server.workers
    with instance_lock(settings, alone=workers > 1):
        if workers == 1:
            with quick_imports():
                from pdp.app.serving import serve_alone  # noqa: PLC0415  a supervisor does without a service

            return serve_alone(settings, announce)
        from pdp.app.supervisor import supervise  # noqa: PLC0415  a service alone does without a supervisor

        return supervise(settings, workers, announce, reload or (lambda: settings))
