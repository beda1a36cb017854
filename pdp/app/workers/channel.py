"""Messages between the supervisor and one worker process, over a pair of connected sockets.

The supervisor asks, the worker answers; a number relates the two. The end of the supervisor closes the channel, which
every worker takes for an order to stop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from pdp.app.reload.load_messages import Published
from pdp.model.pauses import Pauses

_LENGTH_BYTES: Final = 4


class Assignment(msgspec.Struct, frozen=True, tag=True):
    """First message to a worker: its number, its settings as JSON, and the descriptors of its sockets.

    `http` has the sockets of all places, by number of the worker.
    """

    worker: int
    settings: bytes
    base: str
    grpc: str
    http: dict[int, tuple[int, ...]]
    unix: int | None = None
    published: Published | None = None
    """Policies and certificates of other workers; None to read the files."""
    pauses: Pauses = Pauses()


class AcceptOrder(msgspec.Struct, frozen=True, tag=True):
    """Order to accept the connections of these workers, too, and of no others. They are not running."""

    workers: tuple[int, ...]


class HealthQuestion(msgspec.Struct, frozen=True, tag=True):
    """Question for the reasons why a worker is not ready."""

    number: int


class MetricsQuestion(msgspec.Struct, frozen=True, tag=True):
    """Question for the metrics of a worker."""

    number: int


class PrepareOrder(msgspec.Struct, frozen=True, tag=True):
    """Order to prepare policies and certificates beside those that serve."""

    number: int
    published: Published


class SwitchOrder(msgspec.Struct, frozen=True, tag=True):
    """Order to serve what is prepared, if the bundle has this digest."""

    number: int
    bundle: str


class NoteOrder(msgspec.Struct, frozen=True, tag=True):
    """Order to record a step in the life of the whole service."""

    what: str
    details: dict[str, str]


class StopOrder(msgspec.Struct, frozen=True, tag=True):
    """Order to drain and end. `successor`: another worker serves on the same sockets already.

    `at_once`: a stop that has begun is to wait for nothing but the audit.
    """

    successor: bool
    at_once: bool = False


class ReadyReport(msgspec.Struct, frozen=True, tag=True):
    """Report of a worker that listens: digest of the bundle, policies and certificates, and counts of policies."""

    bundle: str
    published: Published
    counts: dict[str, int] = {}


class FailureReport(msgspec.Struct, frozen=True, tag=True):
    """Report of a worker that cannot start, with the part that diagnostics show."""

    message: str
    shown: str = ""


class HealthReport(msgspec.Struct, frozen=True, tag=True):
    """Answer to a `HealthQuestion`: no reason if the worker is ready. `details` are those of readiness."""

    number: int
    reasons: tuple[str, ...]
    details: dict[str, str] = {}


class MetricsReport(msgspec.Struct, frozen=True, tag=True):
    """Answer to a `MetricsQuestion`, in Prometheus' exposition format."""

    number: int
    text: bytes


class BundleReport(msgspec.Struct, frozen=True, tag=True):
    """Answer to a `PrepareOrder` or `SwitchOrder`: the digest of the bundle, or the cause of a `failure`.

    Diagnostics show the part `shown` of the cause.
    """

    number: int
    bundle: str
    failure: str = ""
    shown: str = ""


class StopReport(msgspec.Struct, frozen=True, tag=True):
    """Last message of a worker. `flushed`: every audit record is written. `text` are the last metrics."""

    flushed: bool
    text: bytes


WorkerRequest: TypeAlias = HealthQuestion | MetricsQuestion | PrepareOrder | SwitchOrder
Order: TypeAlias = Assignment | WorkerRequest | AcceptOrder | NoteOrder | StopOrder
Answer: TypeAlias = HealthReport | MetricsReport | BundleReport
Report: TypeAlias = ReadyReport | FailureReport | Answer | StopReport
_ENCODER: Final = msgspec.msgpack.Encoder()
_ORDERS: Final[Callable[[bytes], Order]] = msgspec.msgpack.Decoder(Order).decode
_REPORTS: Final[Callable[[bytes], Report]] = msgspec.msgpack.Decoder(Report).decode


class Channel:
    """One end of the pair of sockets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Channel:
        """Return the channel of one end, which belongs to the channel from here on."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, message: Order | Report) -> None:
        """Send a message, unless the other end is gone."""
        if not self._writer.is_closing():
            content = _ENCODER.encode(message)
            self._writer.write(len(content).to_bytes(_LENGTH_BYTES) + content)

    async def receive_order(self) -> Order | None:
        """Return the next message of the supervisor; None at the end."""
        content = await self._receive()
        return None if content is None else _ORDERS(content)

    async def receive_report(self) -> Report | None:
        """Return the next message of the worker; None at the end."""
        content = await self._receive()
        return None if content is None else _REPORTS(content)

    async def close(self) -> None:
        """Send all that waits, and close this end."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # the other end is gone

    async def _receive(self) -> bytes | None:
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES))
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            return None
