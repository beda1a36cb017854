"""Messages between a service and its loader process, and their blocking transport."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pdp.app.reload.watched_files import Stamps
from pdp.app.sources.client import SourceState
from pdp.errors import PdpError
from pdp.identity.tls import Certificates

_LENGTH_BYTES: Final = 8
_LEAST_WAIT: Final = 0.001
"""Seconds of a wait after the deadline: no wait at all is another mode of sockets."""


class LoadRequest(msgspec.Struct, frozen=True):
    """Request for a load. The first request has the settings as JSON, and the folder of relative paths.

    `poll`: load only if a source or a file has changed.
    """

    settings: bytes = b""
    base: str = ""
    poll: bool = False


class Published(msgspec.Struct, frozen=True):
    """Everything that all processes serve after a reload: the text of the bundle, and the certificates."""

    text: bytes
    certificates: Certificates | None = None


class LoadFailure(NamedTuple):
    """Cause of a failed load for the log, and the part that may be `shown` to everyone. Both are empty without one."""

    failure: str = ""
    shown: str = ""

    @classmethod
    def of(cls, error: PdpError) -> LoadFailure:
        """Return the failure by an error."""
        return cls(str(error), error.shown)


class LoadedPolicies(msgspec.Struct, frozen=True):
    """Loaded policies and certificates, with the digest of the bundle; or the cause of a `failure`.

    `shown` is the part of the cause that diagnostics show. `stamps` belong to the files of the load. `more` has the
    files without an entry in the lists of the settings. `unchanged`: a poll has found nothing new. `passing`: the
    machine has failed, so the same files may load later. With a source, a failure may come with the last good policies.
    """

    published: Published = Published(b"")
    digest: str = ""
    failure: str = ""
    shown: str = ""
    warnings: tuple[str, ...] = ()
    stamps: Stamps = {}
    more: tuple[str, ...] = ()
    unchanged: bool = False
    passing: bool = False
    source: SourceState = SourceState()


class _BundlePolicies(msgspec.Struct, frozen=True, rename="camel"):
    """Policies in the text of a bundle, for the log of a reload."""

    rules: Mapping[str, str] = {}
    forbid: Mapping[str, str] = {}
    row_access: Sequence[Mapping[str, Any]] = ()
    engines: Mapping[str, Any] = {}

    def counts(self) -> dict[str, int]:
        """Return the number of policies of each kind."""
        rows = {kind: sum(len(one.get(kind, ())) for one in self.row_access) for kind in ("policies", "masks")}
        return {
            "rules": len(self.rules),
            "forbids": len(self.forbid),
            "row_policies": rows["policies"],
            "masks": rows["masks"],
        }


class PolicyChange(NamedTuple):
    """Difference of two bundles for the log. `counts`: kind -> `before -> after`."""

    counts: Mapping[str, str]
    lost_forbids: Sequence[str]
    changed_forbids: Sequence[str]
    changed_engines: Sequence[str]

    @classmethod
    def between(cls, before: bytes, after: bytes) -> PolicyChange:
        """Return the difference of the texts of two bundles; raise msgspec.MsgspecError for other texts."""
        old, new = (msgspec.json.decode(text, type=_BundlePolicies) for text in (before, after))
        later = new.counts()
        counts = {kind: f"{count} -> {later[kind]}" for kind, count in old.counts().items()}
        changed = [name for name, text in old.forbid.items() if new.forbid.get(name, text) != text]
        engines = {*old.engines, *new.engines}
        return cls(
            counts, sorted(old.forbid.keys() - new.forbid.keys()), sorted(changed),
            sorted(name for name in engines if old.engines.get(name) != new.engines.get(name)),
        )  # fmt: skip


class Connection:
    """Socket for whole messages. Calls wait."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._deadline: float | None = None

    def send(self, content: bytes) -> None:
        """Send a message; raise OSError if the other end is gone."""
        self._end.sendall(len(content).to_bytes(_LENGTH_BYTES) + content)

    def receive(self) -> bytes | None:
        """Return the next message; None at the end. Raise TimeoutError after the time of `limit`."""
        head = self._exactly(_LENGTH_BYTES)
        return None if head is None else self._exactly(int.from_bytes(head))

    def limit(self, seconds: float) -> None:
        """Let all waits together end after a number of seconds from now."""
        self._deadline = time.monotonic() + seconds

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _exactly(self, size: int) -> bytes | None:
        content = bytearray()
        while len(content) < size:
            if self._deadline is not None:
                self._end.settimeout(max(_LEAST_WAIT, self._deadline - time.monotonic()))
            try:
                part = self._end.recv(min(size - len(content), 1 << 20))
            except ConnectionResetError:
                return None
            if not part:
                return None
            content += part
        return bytes(content)
