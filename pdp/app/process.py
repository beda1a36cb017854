"""Process of a service or a command: freed memory, quick imports, number of CPUs. Must not know the service.

The C library keeps freed memory for the next use. gRPC's threads parse heads and bodies with memory of their own, so a
burst of large ones would otherwise stay with the process for good.
"""

from __future__ import annotations

import ctypes
import gc
import os
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

GROWTH_BYTES: Final = 8 << 20
"""Growth after which freed memory is given back."""
WORTH_BYTES: Final = 1 << 20
"""Memory given back by one look after which the next look tries again."""
MOST_ARENAS: Final = 2
"""Arenas of the C library. Each keeps pieces that are free between pieces in use: by default, eight for each core."""
_M_ARENA_MAX: Final = -8  # of malloc.h
PAUSE_SECONDS: Final = 5.0
"""Pause between two looks. A look that gives memory back holds up the event loop for some milliseconds."""


class FreedMemory:
    """Memory that the C library keeps after it was freed."""

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # None where the C library is not glibc
        self._kept = resident_bytes()
        self._again = False

    def give_back(self) -> None:
        """Give freed memory back to the system after the process has grown, until a try is not worth its time.

        Memory in use at one look is free at the next. So a try after growth, or a try that was worth its time, is
        followed by another one.
        """
        if self._trim is None:
            return
        resident = resident_bytes()
        grown = resident > self._kept + GROWTH_BYTES
        if grown or self._again:
            self._trim(0)
            self._kept = resident_bytes()
            self._again = grown or resident - self._kept > WORTH_BYTES


def limit_arenas() -> None:
    """Let all threads of this process share few arenas. Call before threads start; nothing happens without glibc."""
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(_M_ARENA_MAX, MOST_ARENAS)


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@contextmanager
def quick_imports() -> Iterator[None]:
    """Run imports without collections of garbage, import structlog alone, and load no authorities of TLS.

    Imports leave little garbage, but each collection visits all that was imported before. structlog imports rich where
    it is installed, to print tracebacks in colours, and greenlet: 5 MB for nothing. aiohttp makes contexts for https
    clients, whose authorities take a tenth of the time of a start: they come with the first client.
    """
    gc.disable()
    _import_structlog()
    loaders = ssl.SSLContext.load_default_certs, ssl.SSLContext.set_default_verify_paths
    _use_loaders(LateTrust.postpone, LateTrust.postpone_paths)
    try:
        yield
    finally:
        _use_loaders(*loaders)
        gc.freeze()  # modules stay: exclude them from every later collection
        gc.enable()


def _import_structlog() -> None:
    hidden = _UNUSED - sys.modules.keys()
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # documented: an import of the name then fails
    try:
        import structlog  # noqa: F401, PLC0415  the import is the purpose
    finally:
        for name in hidden:
            del sys.modules[name]


_UNUSED: Final = frozenset({"greenlet", "rich"})
"""Packages that structlog imports where they are installed. The product has no greenlets, and logs JSON."""
_load_authorities: Final = ssl.SSLContext.load_default_certs
_load_paths: Final = ssl.SSLContext.set_default_verify_paths


def _use_loaders(load_authorities: Callable[..., None], load_paths: Callable[..., None]) -> None:
    """Let contexts of TLS load the authorities of the system by other functions."""
    ssl.SSLContext.load_default_certs = load_authorities  # type: ignore[method-assign]
    ssl.SSLContext.set_default_verify_paths = load_paths  # type: ignore[method-assign]


class LateTrust(ssl.SSLContext):
    """Context of TLS that trusts the authorities of the system, and loads them at its first connection.

    Until then it trusts nobody. To load them takes 45 ms.
    """

    _load: Callable[[ssl.SSLContext], None] | None

    @staticmethod
    def postpone(context: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        """Let a context load its authorities later."""
        LateTrust._postpone(context, lambda late: _load_authorities(late, purpose))

    @staticmethod
    def postpone_paths(context: ssl.SSLContext) -> None:
        """Let a context load the authorities of OpenSSL's own places later."""
        LateTrust._postpone(context, _load_paths)

    @staticmethod
    def _postpone(context: ssl.SSLContext, load: Callable[[ssl.SSLContext], None]) -> None:
        if type(context) is not ssl.SSLContext:
            load(context)
            return
        context.__class__ = LateTrust
        context._load = load  # type: ignore[attr-defined]  # noqa: SLF001  the context is one of this class now

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        """Return the TLS of a connection, as event loops open one."""
        self._trust()
        return super().wrap_bio(*args, **named)

    def wrap_socket(self, *args: Any, **named: Any) -> ssl.SSLSocket:
        """Return the TLS of a socket."""
        self._trust()
        return super().wrap_socket(*args, **named)

    def _trust(self) -> None:
        if self._load:
            self._load(self)
            self._load = None


_ROOT: Final = Path("/")


def usable_cpus(root: Path = _ROOT) -> int:
    """Return the whole CPUs of the process: the least of its affinity and of the quotas of its cgroup; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min((float(allowed), *_quotas(root)))))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas of the cgroup and of every cgroup around it, in CPUs."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if not controllers:  # version 2
            for folder in _upwards(root / "sys/fs/cgroup", name):
                yield from _quota(*_read(folder / "cpu.max").split())
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / "sys/fs/cgroup" / controllers, name):
                yield from _quota(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _upwards(top: Path, name: str) -> Iterator[Path]:
    folder = top / name.strip("/")
    while True:
        yield folder
        if folder == top:
            return
        folder = folder.parent


def _quota(limit: str = "", period: str = "") -> Iterator[float]:
    limit, period = limit.strip(), period.strip()
    if limit.isdigit() and period.isdigit() and int(period):
        yield int(limit) / int(period)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""
