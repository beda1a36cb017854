"""Running service: builds every part from concrete classes, and starts and stops the parts in order."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import structlog

from pdp.app.assembly import PLANNERS
from pdp.app.facts import WorldEdits, read_source, record_facts
from pdp.app.process import PAUSE_SECONDS, FreedMemory, quick_imports
from pdp.app.reload.load_messages import LoadedPolicies, Published
from pdp.app.reload.published import PreparedPolicies, load_bundle, prepare
from pdp.app.reload.reloader import Reloader, ServedPolicies
from pdp.app.wiring import Probes, ServiceCore, Surfaces, build_cache, import_restrictions, open_audit
from pdp.audit.files.locks import KnownInstance, known_instances
from pdp.audit.queue.queue import NoAudit
from pdp.config.section import is_loopback, split_address
from pdp.config.settings import Settings
from pdp.decision.active_policies import ActivePolicies
from pdp.decision.service import Pdp
from pdp.engines.row_access.engine import find_doubled_ids
from pdp.identity.callers import local_caller
from pdp.identity.tls import LiveCertificates, checked_certificates
from pdp.identity.tokens import Tokens
from pdp.model.events import OPEN_GATE, ServiceEvent
from pdp.model.pauses import pauses
from pdp.rewrite.process.pool import judge_notice
from pdp.store.replica import Replica
from pdp.surfaces.listeners import (
    Listeners,
    ServerRunner,
    ServerSite,
    Sockets,
    bound_address,
    open_listeners,
    remove_socket,
)
from pdp.telemetry import Telemetry

log = structlog.get_logger()


class Service:
    """Running service: start, serve until a signal, drain, stop.

    A worker process `inherited` its sockets, otherwise the service binds the configured addresses. A worker may be
    `given` the policies and certificates of other workers or of a source, otherwise the service reads the configured
    files.
    """

    reloader: Reloader | None = None
    """Reload of policies in this process. A worker has none: the supervisor reloads."""

    def __init__(self, settings: Settings, inherited: Listeners | None = None, given: Published | None = None) -> None:
        self.settings = settings
        self._inherited = inherited
        telemetry = self._telemetry = Telemetry()
        self.edits = WorldEdits(settings)  # before the file is read: a later edit must not go unseen
        bundle, self.counts = load_bundle(settings, given.text if given else b"")
        self.source = read_source(settings)
        self.audit = open_audit(settings, telemetry)
        self._history = record_facts(settings, self.source, self.audit.instance) if self.audit else None
        self.pdp = self._make_pdp(bundle)
        self.counts["grants"] = self.source.facts.count_grants()
        self.draining = False
        self.addresses: dict[str, str] = {}
        with quick_imports():  # a provider brings aiohttp, and so does a catalog
            self._tokens = Tokens(settings, telemetry)
        self._needs_tokens = bool(settings.identity.providers) and needs_tokens(settings)
        self._certificates = _live_certificates(settings, given)
        self.scheme = "https" if self._certificates else "http"
        gate = self.audit.gate if self.audit else OPEN_GATE
        core = ServiceCore(settings, telemetry, self.pdp, self.source, self._tokens, self._certificates, gate)
        probes = Probes(self.unready, self.metrics, self.details)
        with quick_imports():
            self.surfaces = Surfaces(core, probes, shares_sockets=bool(inherited))
        self._out_of_files_until = 0.0
        self._hurry = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None

    def _make_pdp(self, bundle: ActivePolicies) -> Pdp:
        cache = build_cache(self.settings, self._telemetry, bundle)
        return Pdp(bundle, self.source, self.audit or NoAudit(), self._telemetry, PLANNERS, cache)

    def unready(self) -> list[str]:
        """Return the reasons why the service is not ready; an empty list if ready."""
        reasons = []
        if self.draining:
            reasons.append("stopping")
        if self.audit and self.audit.failing:
            reasons.append("the audit cannot be written")
        if self._history and self._history.failing:
            reasons.append("the history of facts cannot be written")
        if self.source.age() > pauses().store_silent or self.source.is_stale():
            reasons.append(f"the store has not answered for {self.source.age():.0f} seconds")
        reasons += self.surfaces.relations.problems()
        if self._needs_tokens and not any(self._tokens.count_keys().values()):
            reasons.append("nobody can be recognised: no identity provider has keys")
        if self._lacks_files():
            reasons.append("out of file descriptors")
        if self.surfaces.http_server.is_crowded():
            reasons.append("too many connections")
        return reasons + (self.reloader.unready() if self.reloader else [])

    def details(self) -> dict[str, str]:
        """Return the condition of parts that readiness does not rest on."""
        cache = self.pdp.cache
        found = {"cache": cache.state()} if cache and cache.serves(self.pdp.bundle) else {}
        audit = self.audit.troubles() if self.audit else {}
        troubles = {**self.surfaces.relations.troubles(), **self._tokens.troubles()}
        return {**found, **troubles, **audit, **self._source_details()}

    def _source_details(self) -> dict[str, str]:
        return self.reloader.details() if self.reloader else {}

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' exposition format."""
        self._telemetry.ready.set(0 if self.unready() else 1)
        for idp, count in self._tokens.count_keys().items():
            self._telemetry.provider_keys.labels(idp).set(count)
        return self._telemetry.text()

    async def start(self) -> None:
        """Listen on every address; raise ConfigError if an address is not available."""
        server = self.settings.server
        for warning in self.pdp.bundle.warnings:
            log.warning("policies", warning=warning)
        self._warn_of_doubled_ids()
        has_policies = self.pdp.bundle.row_sources.documents or self.source.facts.index.rules
        if has_policies:
            if notice := judge_notice():
                log.info("rewriting", notice=notice)
            import_restrictions()  # the first load of a restricted table would hold the event loop for 100 ms
        if self.scheme == "http" and not all(is_loopback(split_address(at)[0]) for at in (server.http, server.grpc)):
            log.warning("server", warning="tokens and answers leave this machine unencrypted: server.tls is not set")
        if isinstance(self.source, Replica):
            self._following = asyncio.create_task(self.source.follow())
            self._following.add_done_callback(_log_end)
        await self._tokens.start()
        self.surfaces.relations.start()
        await self._listen(self._inherited or open_listeners(self.settings))
        await self.surfaces.grpc.set_ready(True)
        self.note("started", revision=self.pdp.revision(), addresses=self.addresses, audit=_audit_before(self.settings))
        self._loading = asyncio.create_task(self.surfaces.load_aiohttp())
        self._loading.add_done_callback(_log_failure)

    async def accept_on(self, sockets: Sockets) -> list[ServerSite]:
        """Serve HTTP on more sockets. Each site can be stopped on its own."""
        return await _serve_on(
            self.surfaces.http, sockets, self._certificates.listening if self._certificates else None
        )

    async def _listen(self, listeners: Listeners) -> None:
        server = self.settings.server
        self.addresses["http"] = bound_address(server.http, listeners.http)
        await self.accept_on(listeners.http)
        if listeners.unix:
            self.addresses["unix"] = listeners.unix.getsockname()
            await _serve_on(self.surfaces.http, (listeners.unix,))
        if listeners.diagnostics:
            self.addresses["diagnostics"] = bound_address(server.diagnostics, listeners.diagnostics)
            await _serve_on(self.surfaces.diagnostics, listeners.diagnostics)
        self.addresses["grpc"] = f"{split_address(listeners.grpc)[0]}:{await self.surfaces.grpc.start(listeners.grpc)}"

    async def stop(self, *, successor: bool = False) -> bool:
        """Report unready, serve on for a while, drain requests in flight, close everything, and flush the audit.

        `successor`: another process serves on the same sockets already, so nobody needs to find another service. Return
        False if audit records are left.
        """
        if not self.draining:
            self.note("stopping", successor=successor)
        self.draining = True
        await self.surfaces.grpc.set_ready(False)
        server = self.settings.server
        if not successor:
            await self._wait(server.lame_duck_seconds, self._hurry.wait())
        self.surfaces.http_server.drain()
        seconds = 0.0 if self._hurry.is_set() else server.drain_seconds
        grpc_stop = asyncio.create_task(self.surfaces.grpc.stop(seconds))
        for site in [*self.surfaces.http.sites]:
            site.stop()
        await self.surfaces.http_server.drained(pauses().handover)
        await self._wait(seconds, self.surfaces.admission.idle())
        # do not wait longer for requests in flight: they may wait for the store themselves
        await asyncio.gather(self.surfaces.http.cleanup(), grpc_stop, self._leave_store())
        await self.surfaces.diagnostics.cleanup()
        await self._tokens.stop()
        if "unix" in self.addresses and not self._inherited:
            remove_socket(Path(self.addresses["unix"]))
        await self.pdp.reporter.settle(seconds)
        await self.surfaces.rewriters.close()
        await self.surfaces.relations.stop()
        for catalog in self.surfaces.catalogs.values():
            await catalog.close()
        if self.pdp.cache:
            await self.pdp.cache.close()
        self.surfaces.refusals.flush()
        self.note("stopped")
        return await self._close_audit(max(1.0, seconds))

    async def _close_audit(self, seconds: float) -> bool:
        """Complete the history of facts and the audit at the same time; return False if audit records are left."""
        closes = [asyncio.to_thread(part.close, seconds) if part else _whole() for part in (self._history, self.audit)]
        history, audit = await asyncio.gather(*closes)
        if not history:
            log.warning("history of facts is not whole: the next start completes it from the store")
        return audit

    def note(self, what: str, **details: Any) -> None:
        """Record a step in the life of the service."""
        self.pdp.audit.note(ServiceEvent(what=what, details={"process": os.getpid(), **details}))

    def reload_by(self, reloader: Reloader) -> None:
        """Let a reloader replace the policies of this service, and show its state."""
        self.reloader = reloader
        self._telemetry.registry.register(reloader.metrics)

    def published(self) -> Published:
        """Return the policies and certificates that serve."""
        return Published(self.pdp.bundle.text, self._certificates.current if self._certificates else None)

    def served(self) -> set[ServedPolicies]:
        """Return the policies and certificates that serve, as a set of one."""
        return {ServedPolicies(self.pdp.bundle.digest, self._certificates.current if self._certificates else None)}

    def text(self) -> bytes:
        """Return the text of the present bundle."""
        return self.pdp.bundle.text

    async def publish(self, result: LoadedPolicies) -> None:
        """Serve a loaded bundle from now on; raise PdpError and change nothing if that is not possible."""
        self.switch(await self.prepare(result.published))

    async def converge(self) -> None:
        """Do nothing: one process has one bundle."""

    async def prepare(self, published: Published) -> PreparedPolicies:
        """Return published policies and certificates ready to serve; raise PdpError."""
        return await prepare(self.settings, published, self.pdp.bundle)

    def switch(self, prepared: PreparedPolicies) -> None:
        """Serve other policies from now on. Requests in flight keep their bundle, and connections their session."""
        is_new, self.pdp.bundle = prepared.bundle is not self.pdp.bundle, prepared.bundle
        if is_new:
            self._warn_of_doubled_ids()
        if self._certificates and prepared.certificates and prepared.context:
            self._certificates.use(prepared.certificates, prepared.context)

    def _warn_of_doubled_ids(self) -> None:
        for warning in find_doubled_ids(self.pdp.bundle.row_access.tables, self.source.facts.row_rules()):
            log.warning("policies", warning=warning)

    def reload(self) -> None:
        """Begin new files of the audit, and reload policies at once."""
        self.reopen_audit()
        if self.reloader:
            self.reloader.order()

    def reopen_audit(self) -> None:
        """Complete the present files of the audit, and begin new ones."""
        if self.audit:
            self.audit.reopen()

    async def hurry(self) -> None:
        """Let a stop wait for nothing but the audit."""
        self._hurry.set()
        self.surfaces.http_server.hurry()
        if self.draining:
            await self.surfaces.grpc.stop(0)

    async def _wait(self, seconds: float, event: Coroutine[Any, Any, Any]) -> None:
        """Wait for an event, for `seconds` at most, and not after `hurry`."""
        waits = [asyncio.ensure_future(event), asyncio.ensure_future(self._hurry.wait())]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _leave_store(self) -> None:
        if self._following:
            self._following.cancel()
        if isinstance(self.source, Replica):
            await asyncio.to_thread(self.source.close)

    def _lacks_files(self) -> bool:
        """Tell whether the process was out of file descriptors during the last ten seconds.

        Probes come seldom, so a short shortage must remain visible to the next probe.
        """
        try:
            os.close(os.dup(2))
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._out_of_files_until = time.monotonic() + 10
        return time.monotonic() < self._out_of_files_until

    async def watch(self) -> None:
        """Update gRPC health continually. Also notice shortages between two probes, and give freed memory back."""
        ready, memory, next_look = True, FreedMemory(), 0.0
        while True:
            if time.monotonic() > next_look:
                memory.give_back()
                next_look = time.monotonic() + PAUSE_SECONDS
            now = not self.unready()
            if now != ready:
                await self.surfaces.grpc.set_ready(now)
            ready = now
            await asyncio.sleep(0.25)


def needs_tokens(settings: Settings) -> bool:
    """Tell whether nobody is recognised without a token: not by loopback, a unix socket or a certificate."""
    server, rules = settings.server, settings.identity.callers.values()
    by_socket = server.unix is not None and any(rule.unix_socket for rule in rules)
    return local_caller(settings) is None and not by_socket and not any(rule.mtls for rule in rules)


def _live_certificates(settings: Settings, published: Published | None) -> LiveCertificates | None:
    """Return the certificates of other workers, else those of the configured files; None without TLS."""
    certificates = (published.certificates if published else None) or checked_certificates(settings)
    return LiveCertificates(certificates) if certificates else None


def _audit_before(settings: Settings) -> list[KnownInstance]:
    """Return the instances in the audit folder: the record of the start names them."""
    folders = [sink.file for sink in settings.audit.sinks if sink.file]
    return known_instances(settings.path(folders[0])) if folders else []


async def _whole() -> bool:
    """Return True: what is not there is complete."""
    return True


def _log_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():  # a defect: the facts grow stale from here on, and readiness shows this
        log.error("store is no longer followed", exc_info=task.exception())


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception():
        log.error("cannot load aiohttp: only plain requests are answered", exc_info=task.exception())


async def _serve_on(runner: ServerRunner, sockets: Sockets, tls: ssl.SSLContext | None = None) -> list[ServerSite]:
    sites: list[ServerSite] = [ServerSite(runner, listening, tls) for listening in sockets]
    for site in sites:
        await site.start()
    return sites
