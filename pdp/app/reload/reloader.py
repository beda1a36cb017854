"""Reload of policies: looks for changed files, lets the loader process load them, and publishes the result.

Owns the metrics of reloads. A failure leaves everything as it is. Reloads follow one another, so that a later state of
the files always wins.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final, Literal, NamedTuple, Protocol

import structlog
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pdp.app.reload.load_messages import LoadedPolicies, LoadFailure, PolicyChange, Published
from pdp.app.reload.loader import Loader
from pdp.app.reload.watched_files import (
    changed_files,
    follow_events,
    has_unlisted_files,
    require_watchfiles,
    take_stamps,
)
from pdp.app.sources.client import SourceState
from pdp.config.settings import Settings
from pdp.errors import ConfigError, PdpError
from pdp.identity.tls import Certificates
from pdp.surfaces.http.handlers import RELOAD_FAILED

Outcome = Literal["published", "unchanged", "failed"]
_OUTCOMES: Final[tuple[Outcome, ...]] = ("published", "unchanged", "failed")
IDLE_SECONDS: Final = 60.0
"""Time without a load until the end of the loader process."""
LONGEST_RETRY_SECONDS: Final = 60.0
"""Longest pause between attempts after a failure that no file explains. Each pause is twice as long as the last."""
_OTHER_SETTINGS: Final = (
    "the configuration is not that of the start, and a reload reads policies and certificates alone: "
    "settings count after SIGUSR2 with workers, else after a restart"
)
log = structlog.get_logger()


class ServedPolicies(NamedTuple):
    """Policies in use, by the digest of the bundle, and the certificates."""

    bundle: str
    certificates: Certificates | None


class Publisher(Protocol):
    """Destination of loaded policies: all serving processes."""

    def served(self) -> set[ServedPolicies]:
        """Return the policies in use; several while processes differ."""
        ...

    def text(self) -> bytes:
        """Return the text of a bundle in use; empty if no process serves."""
        ...

    async def publish(self, result: LoadedPolicies) -> None:
        """Let every process serve the bundle; raise PdpError and change nothing if a process cannot."""
        ...

    async def converge(self) -> None:
        """Let every process serve the newest published bundle; raise PdpError if a process cannot."""
        ...

    def note(self, what: str, **details: str) -> None:
        """Record a step of a reload in the audit."""
        ...


class Reloader:
    """Reload of the policies of a service. Create the reloader before the files are read, to see all later changes."""

    def __init__(self, settings: Settings) -> None:
        if settings.policies.watch:
            require_watchfiles()
        self.metrics = ReloadMetrics()
        self.failure = ""
        """Cause of the failure of the last reload; empty after success."""
        self._shown = ""
        """Part of the cause that diagnostics show: no name of a user or object."""
        self._settings = settings
        self._loader = Loader(settings)
        self._more: tuple[str, ...] = ()
        self._stamps = take_stamps(settings)
        self._wake = asyncio.Event()
        self._events: asyncio.Task[None] | None = None
        self._followed: Settings | None = None
        """Settings whose files `_events` belongs to."""
        self._ordered = False
        """True if a reload is ordered, whether files seem changed or not."""
        self._turn = asyncio.Lock()
        self._loaded_at = time.monotonic()
        self._retry_seconds = 0.0
        """Pause before the next attempt; 0 unless the last failure asks for an attempt without a change of files."""
        self._retry_at = 0.0
        self._tried = self._stamps
        """Stamps of the last change that led to a reload."""
        self._trouble = ""
        """Cause of the silence of the source of policies."""
        self._polled_at = time.monotonic()

    def unready(self) -> list[str]:
        """Return the reason why the service is not ready, if the last reload failed."""
        return [f"{RELOAD_FAILED}: {self._shown}"] if self.failure else []

    def details(self) -> dict[str, str]:
        """Return the condition of a silent source. Readiness does not rest on one: the last good policies serve."""
        return {"policies": self._trouble} if self._trouble else {}

    async def first(self) -> Published | None:
        """Return the policies of a source for the start; None for policies in folders, which each process reads.

        Raise ConfigError if the source gives none and no last good ones are on disk.
        """
        if self._settings.policies.source is None:
            return None
        result = await asyncio.to_thread(self._loader.first)
        if not result.published.text:
            raise ConfigError(result.failure)
        self._remember(result)
        if result.failure:
            self.metrics.count("failed")
            self.failure, self._shown = result.failure, result.shown
            log.error("last good policies serve", cause=result.failure, revision=result.source.revision)
        for warning in result.warnings:
            log.warning("policies", warning=warning)
        return result.published

    def order(self) -> None:
        """Order a reload at once, whether files seem changed or not."""
        self._ordered = True
        self._wake.set()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Let no reload run meanwhile, such as during a rolling restart."""
        async with self._turn:
            yield

    async def use(self, settings: Settings) -> None:
        """Reload by other settings from now on. The served policies are as new as the files."""
        if settings.policies.watch:
            require_watchfiles()
        self._settings, self._more = settings, ()
        self._stamps = await asyncio.to_thread(take_stamps, settings)
        await asyncio.to_thread(self._loader.use, settings)
        self.failure, self._retry_seconds, self._trouble = "", 0.0, ""
        if has_unlisted_files(settings) or settings.policies.source:
            self.order()

    async def watch(self, publisher: Publisher) -> None:
        """Reload whenever files change or `order` is called, until cancelled."""
        if has_unlisted_files(self._settings):
            self.order()
        for served in publisher.served():
            self.metrics.publish(served.bundle, await _end_of(served.certificates))
        try:
            while True:
                self._follow_events()
                ordered = await self._wait()
                async with self._turn:
                    await self._look(publisher, ordered=ordered)
        finally:
            if self._events:
                self._events.cancel()
            self._loader.abandon()

    def _follow_events(self) -> None:
        """Let events of the file system call for a look, if the settings say so."""
        if self._followed is self._settings:
            return
        if self._events:
            self._events.cancel()
        self._followed, self._events = self._settings, None
        if self._settings.policies.watch:
            self._events = asyncio.create_task(follow_events(self._settings, lambda: self._more, self._wake.set))
            self._events.add_done_callback(_log_defect)

    async def _look(self, publisher: Publisher, *, ordered: bool) -> None:
        """Reload if that is ordered or due. No failure may end the watch."""
        try:
            if ordered:
                await asyncio.to_thread(_warn_of_other_settings, self._settings)
            if ordered or await self._is_due(publisher):
                await self._reload(publisher)
            elif self._is_poll_due():
                await self._reload(publisher, poll=True)
            if time.monotonic() > self._loaded_at + IDLE_SECONDS:
                await asyncio.to_thread(self._loader.close)
        except OSError as error:  # such as no free descriptors
            cause = f"cannot look for changes: {error.strerror or type(error).__name__}"
            self._fail_for_now(publisher, LoadFailure(cause, cause))
        except Exception as error:  # readiness tells of the defect, and the served policies stay
            log.exception("reload ended by a defect")
            cause = f"a defect ended the reload: {type(error).__name__}"
            self._fail_for_now(publisher, LoadFailure(cause, cause))

    async def _wait(self) -> bool:
        """Wait for the next look; tell whether a reload was ordered."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), self._pause())
        self._wake.clear()
        ordered, self._ordered = self._ordered, False
        return ordered

    def _pause(self) -> float:
        """Return the seconds between two looks."""
        policies = self._settings.policies
        return min(policies.refresh_seconds, policies.source.poll_seconds if policies.source else math.inf)

    def _is_poll_due(self) -> bool:
        source = self._settings.policies.source
        return source is not None and time.monotonic() >= self._polled_at + source.poll_seconds

    async def _is_due(self, publisher: Publisher) -> bool:
        """Tell whether files differ from the last load, or processes from each other."""
        now = await asyncio.to_thread(take_stamps, self._settings, self._more)
        if now != self._stamps and not (self._retry_seconds and now == self._tried):
            self._tried = now
            if not self.failure:
                changed = changed_files(self._stamps, now)
                log.info("policies have changed", first=changed[0], count=len(changed))
            return True
        if self._retry_seconds:
            return time.monotonic() >= self._retry_at
        return len(publisher.served()) > 1

    async def _reload(self, publisher: Publisher, *, poll: bool = False) -> None:
        """Load and publish; keep the served policies if that fails. A poll without a change does nothing."""
        began = self._polled_at = time.monotonic()
        try:
            result = await asyncio.to_thread(self._loader.load, poll=poll)
            self._loaded_at = time.monotonic()
            self._remember(result)
            if result.unchanged:
                return
            if result.failure:
                failure = LoadFailure(result.failure, result.shown)
                if result.passing:
                    self._fail_for_now(publisher, failure)
                else:
                    self._fail(publisher, failure)
                    self._retry_seconds = self._retry_seconds if len(publisher.served()) > 1 else 0.0
                if len(publisher.served()) > 1:
                    await publisher.converge()
                return
            before = publisher.text()
            unchanged = publisher.served() == {ServedPolicies(result.digest, result.published.certificates)}
            if not unchanged:
                await publisher.publish(result)
                self.metrics.publish(result.digest, await _end_of(result.published.certificates))
        except PdpError as error:
            self._fail_for_now(publisher, LoadFailure.of(error))
            return
        self._succeed(publisher, result, began, unchanged=unchanged)
        if before and not unchanged:
            await asyncio.to_thread(_log_change, before, result.published.text)

    def _remember(self, result: LoadedPolicies) -> None:
        if not result.unchanged:
            self._more, self._stamps = result.more, result.stamps
        if self._settings.policies.source is None:
            return
        if result.source.trouble and not self._trouble:
            log.warning("source of policies does not answer, the served policies stay", cause=result.source.trouble)
        self._trouble = result.source.trouble
        self.metrics.note_source(result.source)

    def _fail_for_now(self, publisher: Publisher, cause: LoadFailure) -> None:
        """Note a failure that the same files may not meet again, and choose the time of the next attempt."""
        self._fail(publisher, cause)
        first = self._settings.policies.refresh_seconds
        self._retry_seconds = min(2 * self._retry_seconds or first, max(first, LONGEST_RETRY_SECONDS))
        self._retry_at = time.monotonic() + self._retry_seconds

    def _fail(self, publisher: Publisher, cause: LoadFailure) -> None:
        """Note a failure of the files."""
        self.metrics.count("failed")
        if cause.failure != self.failure:
            log.error("reload failed, the served policies stay", cause=cause.failure)
            publisher.note("policies_refused", cause=cause.failure)
        self.failure, self._shown = cause

    def _succeed(self, publisher: Publisher, result: LoadedPolicies, began: float, *, unchanged: bool) -> None:
        self.failure, self._retry_seconds = "", 0.0
        self.metrics.count("unchanged" if unchanged else "published")
        if unchanged:
            log.info("reload is done, policies and certificates are the same", bundle=result.digest)
            return
        for warning in result.warnings:
            log.warning("policies", warning=warning)
        publisher.note("policies_replaced", bundle=result.digest)
        log.info("reload is done", bundle=result.digest, seconds=round(time.monotonic() - began, 3))


def _warn_of_other_settings(settings: Settings) -> None:
    """Warn if the file of the configuration is another than at the start: a reload does not read settings."""
    file = settings.origins.file
    if file is None:
        return
    try:
        if file.read_text(encoding="utf-8") == settings.origins.text:
            return
        cause = "has changed"
    except OSError as error:
        cause = f"cannot be read: {(error.strerror or type(error).__name__).lower()}"
    except UnicodeDecodeError:
        cause = "is not UTF-8"
    log.warning(_OTHER_SETTINGS, file=str(file), cause=cause)


def _log_change(before: bytes, after: bytes) -> None:
    """Log the difference: a lost forbid may open much without any error."""
    change = PolicyChange.between(before, after)
    log.info("policies before and after", **change.counts, engines=change.changed_engines)
    if change.lost_forbids:
        log.warning("forbids are gone", forbids=change.lost_forbids)
    if change.changed_forbids:
        log.info("forbids have another text", forbids=change.changed_forbids)


def _log_defect(events: asyncio.Task[None]) -> None:
    if not events.cancelled():
        log.error("events of files are no longer followed, regular looks go on", exc_info=events.exception())


async def _end_of(certificates: Certificates | None) -> float | None:
    """Return the end of validity of a service's certificate, in seconds since 1970; None without TLS."""
    if certificates is None:
        return None
    from pdp.identity.tls import read_end  # noqa: PLC0415  cryptography takes 9 MB

    return await asyncio.to_thread(read_end, certificates.cert)


class ReloadMetrics(Collector):
    """Numbers of a service. Only the present digest is a label, so old digests have no series."""

    def __init__(self) -> None:
        self._digest = ""
        self._since = time.time()
        self._not_after: float | None = None
        self._failing = False
        self._source: SourceState | None = None
        self._reloads = dict.fromkeys(_OUTCOMES, 0)

    def publish(self, digest: str, not_after: float | None) -> None:
        """Note the bundle in use from now on, by digest, and the end of the certificate in seconds since 1970."""
        if digest != self._digest:
            self._digest, self._since = digest, time.time()
        self._not_after = not_after

    def note_source(self, source: SourceState) -> None:
        """Note the condition of a source."""
        self._source = source

    def count(self, outcome: Outcome) -> None:
        """Count a reload."""
        self._reloads[outcome] += 1
        self._failing = outcome == "failed"

    def collect(self) -> Iterator[Metric]:
        """Yield the families with the numbers of this moment."""
        bundle = GaugeMetricFamily("pdp_policies_info", "1 for the digest of the served policies", labels=["bundle"])
        bundle.add_metric([self._digest], 1)
        yield bundle
        age = GaugeMetricFamily("pdp_policies_age_seconds", "Time since these policies serve")
        age.add_metric([], max(0.0, time.time() - self._since))
        yield age
        if self._not_after is not None:
            end = GaugeMetricFamily("pdp_tls_not_after_seconds", "End of the certificate, in seconds since 1970")
            end.add_metric([], self._not_after)
            yield end
        if self._source:
            yield from _source_families(self._source)
        failing = GaugeMetricFamily("pdp_policies_reload_failing", "1 after a failed reload, until a good one")
        failing.add_metric([], self._failing)
        yield failing
        reloads = CounterMetricFamily("pdp_policies_reloads", "Reloads of policies", labels=["outcome"])
        for outcome, number in self._reloads.items():
            reloads.add_metric([outcome], number)
        yield reloads


def _source_families(source: SourceState) -> Iterator[Metric]:
    age = GaugeMetricFamily("pdp_policies_source_age_seconds", "Time since the source of policies has answered")
    age.add_metric([], max(0.0, time.time() - source.contact))
    yield age
    silent = GaugeMetricFamily("pdp_policies_source_silent", "1 while the source of policies does not answer")
    silent.add_metric([], bool(source.trouble))
    yield silent
