"""Loader process: reads, compiles and checks policies and certificates, apart from every process that serves.

Rules that did not change keep their programs from one load to the next. The service ends the process.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from pdp.app.reload.load_messages import Connection, LoadedPolicies, LoadRequest, Published
from pdp.app.reload.watched_files import OpenedFiles, Stamps, take_stamps, unsettled_seconds
from pdp.app.sources.source_loader import SourceLoader
from pdp.assembly import build_bundle, read_rules
from pdp.cli.logs import configure_logging
from pdp.config.load import make_settings
from pdp.config.settings import Settings
from pdp.decision.bundle import Bundle
from pdp.errors import PdpError
from pdp.identity.tls import checked_certificates

_NICENESS: Final = 10
"""Priority below serving processes: on a machine without free CPUs, a tenth of the share of each."""
_TRY_SECONDS: Final = 1.0
_ATTEMPTS: Final = 5
"""Time for files that change all the time, and the fewest attempts on a slow machine."""
_PAUSE_SECONDS: Final = 0.05


class BundleLoader:
    """Loader of the policies and certificates of one configuration."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opened = OpenedFiles()
        self._more: tuple[str, ...] = ()
        self._last: Bundle | None = None
        """Newest good bundle, kept for the programs of unchanged rules."""

    def load(self, folder: Path | None = None) -> LoadedPolicies:
        """Return the bundle of the files as they are, read while none of them changed, or the cause of a failure.

        `folder` has the unpacked policies of a source.
        """
        began = time.monotonic()
        for attempt in count(1):
            before = take_stamps(self._settings, self._more)
            pause = unsettled_seconds(before)
            if not pause:
                if result := self._read_unchanged(before, folder):
                    return result
                pause = _PAUSE_SECONDS
            if attempt >= _ATTEMPTS and time.monotonic() > began + _TRY_SECONDS:
                break
            time.sleep(pause)
        # without stamps: the next look finds a difference in any case
        return LoadedPolicies(failure="the files of policies or certificates change all the time", more=self._more)

    def failed(self, cause: str) -> LoadedPolicies:
        """Return a failure that rests on the files as they are now."""
        return LoadedPolicies(failure=cause, stamps=take_stamps(self._settings, self._more), more=self._more)

    def _read_unchanged(self, before: Stamps, folder: Path | None) -> LoadedPolicies | None:
        """Return the result of a read with its stamps; None if a file has changed meanwhile."""
        self._opened.known = before.keys() - set(self._more)
        result = self._read(folder)
        if take_stamps(self._settings, self._more) != before:
            return None
        return msgspec.structs.replace(result, stamps=before, more=self._more)

    def _read(self, folder: Path | None) -> LoadedPolicies:
        settings = self._settings if folder is None else self._settings.with_policy_folder(folder)
        self._opened.recording = True
        try:
            rules, forbid = read_rules(settings)
            bundle = build_bundle(settings, rules, forbid)
            certificates = checked_certificates(self._settings)
        except PdpError as error:
            return LoadedPolicies(failure=str(error) if folder is None else str(error).replace(f"{folder}/", ""))
        finally:
            self._opened.recording = False
            self._more = tuple(file for file in self._opened.take() if folder is None or not _is_below(file, folder))
        self._last = bundle
        return LoadedPolicies(Published(bundle.text, certificates), bundle.digest, warnings=bundle.warnings)


def _is_below(file: str, folder: Path) -> bool:
    return Path(file).is_relative_to(folder)


def main(descriptor: int) -> None:
    """Load on each request, until the other end of the connection closes."""
    os.nice(_NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # orders to the service may reach the whole group
    configure_logging()
    connection = Connection(socket.socket(fileno=descriptor))
    loader: SourceLoader | None = None
    while (content := connection.receive()) is not None:
        request = msgspec.msgpack.decode(content, type=LoadRequest)
        if loader is None:
            settings = make_settings(msgspec.json.decode(request.settings), Path(request.base))
            loader = SourceLoader(settings, BundleLoader(settings))
        connection.send(msgspec.msgpack.encode(loader.load(poll=request.poll)))
