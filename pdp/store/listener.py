"""Listener for the notifications of a PostgreSQL server.

Owns one connection and the thread that reads from the connection. The listener only saves time: waiting threads poll
every second anyway. A listener that lost its server can therefore reconnect without hurry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg

from pdp.store.database import Signal

CHANNEL: Final = "pdp_store"
_RETRY_SECONDS: Final = 1.0
_LISTEN_SECONDS: Final = 1.0
_QUIET_ROUNDS: Final = 10
"""Rounds without a notification after which the listener tests the connection."""


class Listener:
    """Thread that notifies the signal for each notification, and after each connect: earlier ones may be lost."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], signal: Signal) -> None:
        self._connect = connect
        self._signal = signal
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pdp-store-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop without waiting; the thread ends within about a second."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with self._connect() as link:
                    self._listen(link)
            except psycopg.Error:
                self._closed.wait(_RETRY_SECONDS)

    def _listen(self, link: psycopg.Connection[Any]) -> None:
        link.autocommit = True
        link.execute(f"LISTEN {CHANNEL}")
        self._signal.notify()
        quiet = 0
        while not self._closed.is_set():
            if any(True for _ in link.notifies(timeout=_LISTEN_SECONDS, stop_after=1)):
                self._signal.notify()
                quiet = 0
            else:
                quiet += 1
            if quiet == _QUIET_ROUNDS:
                link.execute("SELECT 1")
                quiet = 0
