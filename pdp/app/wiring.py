"""Wiring of a service from settings: its surfaces with the services behind them, the cache of verdicts, the audit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import structlog
from uuid_utils import uuid7

from pdp.app.facts import build_catalogs, build_relations
from pdp.app.process import quick_imports
from pdp.audit.files.chain import ChainHash
from pdp.audit.files.folder import AuditFolder, SegmentForm
from pdp.audit.queue.file_sink import LineSink
from pdp.audit.queue.intake import IntakeOptions, LineIntake
from pdp.audit.queue.queue import RecordQueue, TrailOptions
from pdp.audit.queue.sampling import AllowSampler, make_rule
from pdp.audit.queue.sinks import AuditSink, SinkMetrics, StdoutOutput
from pdp.config.audit import AuditSettings, SinkSettings
from pdp.config.settings import Settings
from pdp.decision.active_policies import ActivePolicies
from pdp.decision.cache.cache import Cache, read_authorities
from pdp.decision.cache.local import InProcessCache, TieredCache
from pdp.decision.cache.mac_keys import MacKeys, machine_keys, random_keys
from pdp.decision.cache.writer import CacheMetrics
from pdp.decision.scopes import ScopeService
from pdp.decision.service import Pdp
from pdp.decision.turns import run_aside
from pdp.decision.verdict_cache import VerdictCache, served_engines
from pdp.dialects.authzen.endpoints import AuthzenSurface
from pdp.dialects.lakekeeper import LakekeeperSurface
from pdp.dialects.opa import OPA_FORMS, server_routes
from pdp.dialects.polaris.endpoint import LONGEST_SECONDS, PolarisSurface
from pdp.dialects.ranger import RangerSurface
from pdp.dialects.starrocks.endpoints import StarrocksSurface
from pdp.dialects.trino.endpoints import TrinoSurface
from pdp.identity.callers import Callers
from pdp.identity.tls import LiveCertificates
from pdp.identity.tokens import Tokens
from pdp.management.row_policies import RowPolicyService
from pdp.management.service import Management
from pdp.model.events import AnswerHold
from pdp.model.redaction import Redactor
from pdp.rewrite.process.pool import WorkerPool
from pdp.row_access.service import StatementService
from pdp.store.replica import FixedFacts, Replica
from pdp.surfaces.admission import BODIES_IN_FLIGHT, Admission, BodyLimits
from pdp.surfaces.connect import ConnectHandlers
from pdp.surfaces.grpc.answers import DecisionService
from pdp.surfaces.grpc.handlers import MOST_ARRIVING, Arrivals, GrpcHandlers
from pdp.surfaces.grpc.management import GrantsService, PolicyService
from pdp.surfaces.grpc.server import GrpcServer
from pdp.surfaces.http.endpoints import (
    decision_routes,
    management_routes,
    rewriting_routes,
    row_rule_routes,
    scope_routes,
    view_routes,
)
from pdp.surfaces.http.handlers import HttpHandlers, Routes, diagnostics_routes
from pdp.surfaces.http.server import AiohttpServer, HttpServer
from pdp.surfaces.listeners import ConnectionShares, ServerRunner
from pdp.surfaces.refusals import RefusalRecorder
from pdp.telemetry import Telemetry
from pdp.views.loads import ViewSecurity

if TYPE_CHECKING:
    from pdp.decision.cache.redis import RedisCache
    from pdp.views.catalog import IcebergCatalog

RpcService: TypeAlias = DecisionService | GrantsService | PolicyService
T = TypeVar("T")
log = structlog.get_logger()

_TRINO_TIME_SHARE: Final = 0.9
"""Share of the request timeout after which Trino gets a denial. The answer must arrive before the timeout."""
_PATIENT_SHARE: Final = 0.5
"""Part of a request's time to wait for another request's verdicts of a costly engine. The rest is left to decide."""


@dataclass(frozen=True, slots=True)
class ServiceCore:
    """Parts of a service that its surfaces rest on."""

    settings: Settings
    telemetry: Telemetry
    pdp: Pdp
    source: FixedFacts | Replica
    tokens: Tokens
    certificates: LiveCertificates | None
    gate: AnswerHold


@dataclass(frozen=True, slots=True)
class Probes:
    """Answers of the diagnostics: reasons against readiness, metrics, and the condition of other parts."""

    unready: Callable[[], list[str]]
    metrics: Callable[[], bytes]
    details: Callable[[], dict[str, str]]


class Surfaces:
    """Servers of a service with the parts behind. Nothing listens yet: the service starts and stops the servers."""

    def __init__(self, core: ServiceCore, probes: Probes, *, shares_sockets: bool) -> None:
        """Wire all surfaces. With `shares_sockets`, other processes serve on the sockets, too."""
        settings, telemetry, pdp = core.settings, core.telemetry, core.pdp
        limits, sizes = settings.limits, BodyLimits.of_native(settings.limits)
        callers = Callers(settings, core.tokens)
        most_bytes = max(limits.max_body_bytes, limits.trino_max_body_bytes) * BODIES_IN_FLIGHT
        self.admission = Admission(limits.max_in_flight, most_bytes, callers.count)
        self.refusals = RefusalRecorder(pdp.audit, core.gate)
        self.catalogs = build_catalogs(settings)
        self.rewriters = WorkerPool(limits.rewrite_processes, limits.rewrite_seconds)
        self.relations = build_relations(settings, telemetry)

        management, scopes = _manage(core), ScopeService(pdp, settings.identity.cel_provider, limits.max_checks)
        views, rules = ViewSecurity(pdp, settings, self.catalogs), RowPolicyService(pdp, management)
        rewriting = StatementService(pdp, self.rewriters, rules, self.relations)
        decisions = partial(DecisionService, pdp, views, management, rewriting, scopes, limits)
        managing = (GrantsService(management), PolicyService(rules))

        shared = (callers, self.admission, telemetry, limits.request_timeout_seconds)
        handlers = HttpHandlers(*shared, refusals=self.refusals)
        routes = (
            decision_routes(handlers, pdp, limits.max_checks, sizes)
            | management_routes(handlers, management, sizes)
            | row_rule_routes(handlers, rules, sizes)
            | view_routes(handlers, views, sizes)
            | scope_routes(handlers, scopes, sizes)
            | rewriting_routes(handlers, rewriting, sizes)
            | server_routes(handlers, probes.unready)
            | _dialect_routes(handlers, pdp, settings, self.catalogs)
            | _polaris_routes(core, callers, self.admission, self.refusals)
            | RangerSurface(pdp, rewriting, management, settings.ranger).routes(handlers, sizes)
            | AuthzenSurface(pdp, management, settings.authzen, limits.max_checks).routes(handlers, sizes)
        )
        connect = ConnectHandlers(*shared, refusals=self.refusals)
        for service in (decisions("connect"), *managing):
            routes |= connect.routes(service, limits)
        shares = ConnectionShares.of_process()
        self.http_server = HttpServer(routes, callers, self.admission, limits, shares.http, forms=OPA_FORMS)
        self.http = ServerRunner(self.http_server)
        diagnostics = diagnostics_routes(_as_async(probes.unready), _as_async(probes.metrics), probes.details)
        self.diagnostics_server = AiohttpServer(diagnostics, limits.idle_timeout_seconds, shares.diagnostics)
        self.diagnostics = ServerRunner(self.diagnostics_server)
        self.http_server.imports = self.diagnostics_server.imports = quick_imports

        arrivals, certified = Arrivals(MOST_ARRIVING, limits.request_timeout_seconds), bool(core.certificates)
        rpcs = GrpcHandlers(*shared, arrivals=arrivals, limits=sizes, certified=certified, refusals=self.refusals)
        rpc_services: tuple[RpcService, ...] = (decisions(), *managing)
        methods = {each.name: each.handler(rpcs) for each in rpc_services}
        self.grpc = GrpcServer(methods, limits, core.certificates, most=shares.grpc, shared=shares_sockets)

    async def load_aiohttp(self) -> None:
        """Load aiohttp for requests other than plain ones."""
        for server in (self.http_server, self.diagnostics_server):
            await server.load()


def _dialect_routes(
    handlers: HttpHandlers, pdp: Pdp, settings: Settings, catalogs: Mapping[str, IcebergCatalog]
) -> Routes:
    """Return the routes of Trino, Lakekeeper and StarRocks."""
    limits, sizes = settings.limits, BodyLimits.of_native(settings.limits)
    trino_seconds = limits.request_timeout_seconds * _TRINO_TIME_SHARE
    trino = TrinoSurface(pdp, limits.trino_max_resources, trino_seconds, catalogs)
    owners = [engine.owner_property for engine in settings.trusted_engines.values()]
    lakekeeper = LakekeeperSurface(pdp, settings.lakekeeper, owners)
    return (
        trino.routes(handlers, BodyLimits.of_trino(limits))
        | lakekeeper.routes(handlers, sizes)
        | StarrocksSurface(pdp, settings.starrocks).routes(handlers, sizes)
    )


def _polaris_routes(core: ServiceCore, callers: Callers, admission: Admission, refusals: RefusalRecorder) -> Routes:
    """Return the route of Polaris, with handlers that answer sooner than others."""
    limits = core.settings.limits
    seconds = min(limits.request_timeout_seconds, LONGEST_SECONDS)
    handlers = HttpHandlers(callers, admission, core.telemetry, seconds, refusals=refusals)
    return PolarisSurface(core.pdp, seconds).routes(handlers, BodyLimits.of_native(limits))


def import_restrictions() -> None:
    """Import the encoder of read restrictions with its parser of SQL, which take 30 MB."""
    with quick_imports():
        import pdp.engines.row_access.read_restrictions  # noqa: F401, PLC0415  only where policies are


def _manage(core: ServiceCore) -> Management:
    writer = core.source if isinstance(core.source, Replica) else None
    return Management(core.pdp, writer, frozenset(core.settings.store.bootstrap_admins))


def _as_async(answer: Callable[[], T]) -> Callable[[], Coroutine[Any, Any, T]]:
    async def wrapped() -> T:
        return answer()

    return wrapped


def build_cache(settings: Settings, telemetry: Telemetry, bundle: ActivePolicies) -> VerdictCache | None:
    """Return the cache of settings; None if no verdict of the bundle's engines is to be kept. Nothing is connected yet.

    Raise ConfigError if `cache.tls_ca` cannot be used.
    """
    chosen = settings.cache
    uses_redis = chosen.redis is not None and chosen.redis_for != "none"
    every_engine = uses_redis and chosen.redis_for == "all"
    if not uses_redis and not chosen.local_entries:
        return None
    if not served_engines(bundle, every_engine=every_engine):
        if uses_redis:
            read_authorities(settings)  # a wrong file is an error, whether Redis is asked or not
        return None
    metrics = CacheMetrics(telemetry.registry)
    cache: Cache | None = None
    if chosen.local_entries:
        cache = InProcessCache(chosen.local_entries, chosen.ttl_seconds)
    if uses_redis:
        far = _redis_cache(settings, metrics)
        cache = far if cache is None else TieredCache(cache, far)
    assert cache is not None
    patience = settings.limits.request_timeout_seconds * _PATIENT_SHARE
    return VerdictCache(cache, metrics, chosen.timeout_ms / 1000, every_engine=every_engine, patience=patience)


def seal_keys(settings: Settings) -> MacKeys:
    """Return the keys of the seal.

    Without a configured key, services of one user on one machine share a key that other users cannot read.
    """
    if settings.cache.mac_key is not None:
        return MacKeys.parse(settings.cache.mac_key)
    keys = machine_keys()
    if keys is None:
        log.warning("cache", warning="no place for a shared key: other services cannot use what this one caches")
    return keys or random_keys()


def _redis_cache(settings: Settings, metrics: CacheMetrics) -> RedisCache:
    from pdp.decision.cache.redis import RedisCache  # noqa: PLC0415  the client takes 10 MB
    from pdp.decision.cache.redis_client import VerdictSeal, open_client  # noqa: PLC0415

    chosen = settings.cache
    seal = VerdictSeal(seal_keys(settings))
    client = open_client(chosen.model_copy(update={"tls_ca": read_authorities(settings)}))
    return RedisCache(client, seal, metrics, chosen.ttl_seconds, chosen.timeout_ms / 1000)


def open_audit(settings: Settings, telemetry: Telemetry) -> RecordQueue | None:
    """Return the trail of a new instance; None without a sink. Raise ConfigError if a sink cannot be opened."""
    audit = settings.audit
    segment_form(settings)
    if not audit.sinks:
        return None
    if audit.folder is None:
        log.warning("no sink of the audit has files: its records cannot be decided again, and have no hash chain")
    instance = uuid7().hex
    sampler = allow_sampler(audit, telemetry)
    options = TrailOptions(
        audit.max_waiting_bytes, Redactor(audit.mask), run_aside, audit.durability, audit.on_full, sampler
    )
    return RecordQueue(instance, open_sinks(settings, instance, telemetry), telemetry, options)


def allow_sampler(audit: AuditSettings, telemetry: Telemetry) -> AllowSampler | None:
    """Return the sampler of permits; None if all have a record."""
    rules = [
        make_rule(rule.rate, rule.surfaces, rule.actions, rule.principals) for rule in audit.sample_allows.values()
    ]
    return AllowSampler(rules, telemetry.audit_left_out.inc) if rules else None


def open_sinks(settings: Settings, instance: str, telemetry: Telemetry) -> list[AuditSink]:
    """Return the sinks of a new instance; raise ConfigError if one cannot be opened."""
    opened: list[AuditSink] = []
    try:
        for number, sink in enumerate(settings.audit.sinks):
            if sink.file:
                folder = AuditFolder(settings.path(sink.file), instance, segment_form(settings))
                opened.append(LineSink(folder, settings.audit.durability, telemetry.audit_written.inc))
            else:
                opened.append(
                    _open_intake(settings, sink, instance, SinkMetrics(telemetry, sink_name(settings, number)))
                )
    except BaseException:
        for sink_before in opened:
            sink_before.close(0)
        raise
    return opened


def sink_name(settings: Settings, number: int) -> str:
    """Return the name of a sink: its kind, with a number if an earlier sink is of the same kind."""
    kinds = [sink.kind for sink in settings.audit.sinks[: number + 1]]
    before = kinds[:-1].count(kinds[-1])
    return f"{kinds[-1]}-{before + 1}" if before else kinds[-1]


def segment_form(settings: Settings) -> SegmentForm:
    """Return the form of the segments; raise ConfigError if the keys of the chain cannot be read."""
    audit, keys = settings.audit, settings.chain_keys()
    hashes = tuple(map(ChainHash, keys)) or (ChainHash(),)
    return SegmentForm(audit.segment_mib << 20, audit.segment_seconds, audit.compress, hashes[0], hashes[1:])


def _open_intake(settings: Settings, sink: SinkSettings, instance: str, metrics: SinkMetrics) -> LineIntake:
    audit = settings.audit
    drop_beyond = audit.max_waiting_bytes // 2 if audit.on_full == "drop" else None
    if sink.push is None:
        output = StdoutOutput(sys.__stdout__.fileno() if sys.__stdout__ else 1, metrics)
        return LineIntake(output, IntakeOptions(instance, drop_beyond), metrics)
    syncs = audit.durability != "none"
    options = IntakeOptions(instance, drop_beyond, syncs, promises=syncs and audit.folder is None)
    from pdp.audit.push.delivery import open_spool_output  # noqa: PLC0415  most services push nothing

    return LineIntake(open_spool_output(settings, sink.push, instance, metrics), options, metrics)
