"""Receiver of pushed batches: one HTTP connection, which stays open between batches.

Knows HTTP, and nothing of records. Used by one thread; `abort` may come from any other.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from yarl import URL

from pdp import __version__
from pdp.config.audit import OTLP_PATH, HttpSinkSettings, OtlpSinkSettings
from pdp.config.bounded_answers import bound_answer, failure, open_connection
from pdp.config.server import WayOut
from pdp.config.settings import Settings
from pdp.errors import ConfigError

_LONGEST_ANSWER: Final = 1 << 16
_MOST_RECEIVED: Final = 1 << 20
"""Bytes of an answer with its head."""
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LONGEST_WAIT: Final = 60.0
"""Most seconds that a receiver can ask to wait."""
_FOR_GOOD: Final = frozenset({400, 413, 422})
"""Statuses for the body: the same body gets the same status again."""
OWN_HEADERS: Final = frozenset({"content-type", "content-encoding", "content-length", "host", "transfer-encoding"})
"""Headers that the configuration cannot set."""


class DeliveryFailed(Exception):
    """Batch that a receiver has not taken. `wait` is in seconds, if the receiver asked for a pause."""

    def __init__(self, cause: str, wait: float = 0.0) -> None:
        super().__init__(cause)
        self.wait = wait


class BatchRefused(DeliveryFailed):
    """Batch refused by a receiver because of the body."""


class ReceiverSettings(msgspec.Struct, frozen=True):
    """Address of a receiver, the seconds that its answer may take, and the way there.

    `headers` reads the headers anew: tokens change.
    """

    url: URL
    timeout: float
    way: WayOut | None
    headers: Callable[[], Mapping[str, str]]


class HttpSender:
    """Client of one receiver. Redirects are not followed: the headers may hold secrets."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self._settings = settings
        self._headers = dict(settings.headers())
        self._way = settings.way or WayOut()
        self._context = self._way.context() if settings.url.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None
        self._aborted = False

    def send(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Send a body; return the answer to it. Raise DeliveryFailed unless the answer is a success."""
        sent = {"User-Agent": f"pdp/{__version__}", **self._headers, **headers}
        reused = self._connection is not None
        try:
            try:
                status, answer, wait = self._exchange(body, sent)
            except ConnectionError:
                if not reused:
                    raise
                self._drop()  # receivers close idle connections at any time
                status, answer, wait = self._exchange(body, sent)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise DeliveryFailed(_cause(error)) from None
        if 200 <= status < 300:
            return answer
        if status in (401, 403):
            self.renew()
        raise (BatchRefused if status in _FOR_GOOD else DeliveryFailed)(f"status {status}", wait)

    def renew(self) -> None:
        """Read the headers again. If they cannot be read, those of before stay."""
        with contextlib.suppress(ConfigError):
            self._headers = dict(self._settings.headers())

    def abort(self) -> None:
        """End a request that is under way, and let no other one begin."""
        self._aborted = True
        connection = self._connection
        if connection and connection.sock:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._drop()

    def _exchange(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes, float]:
        """Return the status, the start of the answer, and the seconds that the receiver asks to wait."""
        if self._aborted:
            raise ConnectionAbortedError("stopped")
        url = self._settings.url
        connection = self._connection = self._connection or self._connect()
        bound_answer(connection, _MOST_RECEIVED, time.monotonic() + self._settings.timeout)
        connection.request("POST", url.raw_path_qs, body, dict(headers))
        bound_answer(connection, _MOST_RECEIVED, time.monotonic() + self._settings.timeout)
        response = connection.getresponse()
        answer = response.read(_LONGEST_ANSWER)
        if not response.isclosed():  # a longer answer, which nobody reads
            self._drop()
        return response.status, answer, _seconds(response.headers.get("Retry-After"))

    def _connect(self) -> http.client.HTTPConnection:
        return open_connection(str(self._settings.url), self._way, self._settings.timeout, self._context)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection:
            connection.close()


def open_receiver(settings: Settings, push: HttpSinkSettings | OtlpSinkSettings) -> HttpSender:
    """Return the client of a push, which connects with the first batch; raise ConfigError for unusable files."""
    url = URL(push.url if isinstance(push, HttpSinkSettings) else _with_path(push.endpoint))
    file = settings.path(push.headers_file) if push.headers_file else None
    way = settings.way_out(push.ca, "audit.sinks, ca")

    def headers() -> Mapping[str, str]:
        return read_headers(file) if file else {}

    return HttpSender(ReceiverSettings(url, push.timeout_seconds, way, headers))


def read_headers(file: Path) -> dict[str, str]:
    """Return the headers of a file, one `Name: value` per line; raise ConfigError without naming a value."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read `{file}` (headers_file): {type(error).__name__}") from None
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not is_header(name.strip(), value.strip()):
            raise ConfigError(f"{file}:{number}: no header: write `Name: value`")
        headers[name.strip()] = value.strip()
    return headers


def is_header(name: str, value: str) -> bool:
    """Tell whether a header can be sent, and is none that pdp itself sends."""
    plain = bool(name) and _TOKEN.issuperset(name) and name.lower() not in OWN_HEADERS
    return plain and value.isascii() and value.isprintable()


def _with_path(endpoint: str) -> str:
    """Return the address of log records below an endpoint of OTLP."""
    return endpoint if endpoint.endswith(OTLP_PATH) else endpoint.rstrip("/") + OTLP_PATH


def _seconds(text: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 for a date and for nonsense."""
    return min(float(text), _LONGEST_WAIT) if text and text.isascii() and text.isdigit() else 0.0


def _cause(error: Exception) -> str:
    """Return the cause of a failure without anything that was sent or received."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return failure(error)
