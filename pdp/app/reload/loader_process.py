"""Loader process: reads, compiles and checks policies and certificates, apart from every process that serves.

Loads come from files or from a source. Rules that did not change keep their programs from one load to the next. The
service ends the process.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final, Protocol

import msgspec

from pdp.app.assembly import build_bundle, read_rules
from pdp.app.reload.load_messages import Connection, LoadedPolicies, LoadFailure, LoadRequest, Published
from pdp.app.reload.watched_files import OpenedFiles, Stamps, take_stamps, unsettled_seconds
from pdp.app.sources.source import PolicySource, PolicyTree, open_source
from pdp.cli.logs import configure_logging
from pdp.config.load import make_settings
from pdp.config.regular_files import is_passing
from pdp.config.settings import Settings
from pdp.decision.active_policies import ActivePolicies
from pdp.errors import ConfigError, PdpError
from pdp.identity.tls import checked_certificates

_NICENESS: Final = 10
"""Priority below serving processes: on a machine without free CPUs, a tenth of the share of each."""
_TRY_SECONDS: Final = 1.0
_ATTEMPTS: Final = 5
"""Time for files that change all the time, and the fewest attempts on a slow machine."""
_PAUSE_SECONDS: Final = 0.05
_RESTLESS: Final = "the files of policies or certificates change all the time"


class BundleLoader:
    """Loader of the policies and certificates of one configuration."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opened = OpenedFiles()
        self._more: tuple[str, ...] = ()
        self._last: ActivePolicies | None = None
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
        return LoadedPolicies(failure=_RESTLESS, shown=_RESTLESS, more=self._more)

    def failed(self, cause: LoadFailure) -> LoadedPolicies:
        """Return a failure that rests on the files as they are now."""
        stamps = take_stamps(self._settings, self._more)
        return LoadedPolicies(**cause._asdict(), stamps=stamps, more=self._more)

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
            texts = [text if folder is None else text.replace(f"{folder}/", "") for text in LoadFailure.of(error)]
            return LoadedPolicies(**LoadFailure(*texts)._asdict(), passing=is_passing(error, own=folder is not None))
        finally:
            self._opened.recording = False
            self._more = tuple(file for file in self._opened.take() if folder is None or not _is_below(file, folder))
        self._last = bundle
        return LoadedPolicies(Published(bundle.text, certificates), bundle.digest, warnings=bundle.warnings)


class FileLoader(Protocol):
    """Loader of policies in a folder."""

    def load(self, folder: Path | None = None) -> LoadedPolicies:
        """Return the bundle of the files, or the cause of a failure."""
        ...

    def failed(self, cause: LoadFailure) -> LoadedPolicies:
        """Return a failure that rests on the files as they are now."""
        ...


class SourceLoader:
    """Loader of policies in a source, or in folders alone."""

    def __init__(self, settings: Settings, files: FileLoader) -> None:
        self._settings = settings
        self._files = files
        self._source: PolicySource | None = None
        self._stamps: Stamps = {}
        self._failure = LoadFailure()
        """Cause why the newest content of the source is not in use."""

    def load(self, *, poll: bool) -> LoadedPolicies:
        """Return the bundle, the cause of a failure, or both if the last good bundle is in place of a refused one."""
        if self._settings.policies.source is None:
            return self._files.load()
        try:
            self._source = self._source or open_source(self._settings)
            assert self._source is not None
            return self._load(self._source, poll=poll)
        except PdpError as error:
            return self._files.failed(self._words(LoadFailure.of(error)))

    def _load(self, source: PolicySource, *, poll: bool) -> LoadedPolicies:
        if not poll or (source.good and not source.good.is_whole()):
            source.forget()
        try:
            new = None if source.good and not poll and source.is_silent() else source.look()
        except PdpError as error:
            new, self._failure = None, self._words(LoadFailure.of(error))
            if source.good:
                return msgspec.structs.replace(self._files.failed(self._failure), source=source.state)
        result = self._files.failed(LoadFailure())
        if new is None and source.good and poll and result.stamps == self._stamps:
            return LoadedPolicies(unchanged=True, source=source.state)
        for tree in self._candidates(source, new):
            result = self._files.load(tree.folder)
            self._stamps = result.stamps
            result = self._accepted(source, tree, result)
            if not result.failure:
                self._failure = LoadFailure() if tree is new else self._failure
                result = msgspec.structs.replace(result, **self._failure._asdict())
                break
            self._failure = self._words(LoadFailure(result.failure, result.shown))
            result = msgspec.structs.replace(result, **self._failure._asdict())
        if source.good is None:
            trouble = source.state.trouble
            silence = self._words(LoadFailure(trouble, trouble)) if trouble else LoadFailure()
            joined = LoadFailure(
                *("; ".join(filter(None, texts)) for texts in zip(silence, self._failure, strict=True))
            )
            result = msgspec.structs.replace(result, **joined._asdict())
        return msgspec.structs.replace(result, source=source.state)

    def _accepted(self, source: PolicySource, tree: PolicyTree, result: LoadedPolicies) -> LoadedPolicies:
        """Return the result of a tree that the source has accepted, or the cause why the tree cannot be used."""
        if not result.failure:
            try:
                source.accept(tree)
            except ConfigError as error:
                return LoadedPolicies(**LoadFailure.of(error)._asdict(), stamps=result.stamps, more=result.more)
        elif tree is not source.good:
            source.reject(tree, passing=result.passing or not tree.is_whole())
        return result

    def _candidates(self, source: PolicySource, new: PolicyTree | None) -> Iterator[PolicyTree]:
        """Yield trees in the order of preference. A running service keeps its policies, so one is enough for it."""
        if new or source.good:
            yield new or source.good  # type: ignore[misc]
        if source.good is None:
            try:
                kept = source.last_good()
            except PdpError as error:
                cannot = "the last good bundle cannot be used"
                if not self._failure.failure:
                    self._failure = LoadFailure(f"{cannot}: {error}", f"{cannot}: {error.shown}")
                return
            if kept:
                yield kept

    def _words(self, cause: LoadFailure) -> LoadFailure:
        """Return a cause with the place of the source."""
        source = self._settings.policies.source
        place = f"`policies.source`, {source.place if source else ''}"
        return LoadFailure(*(f"{place}: {text}" for text in cause))


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
