"""Audit of a service from settings: the record queue, its sinks, and the sampler of permits."""

from __future__ import annotations

import sys

import structlog
from uuid_utils import uuid7

from pdp.audit.files.chain import ChainHash
from pdp.audit.files.folder import AuditFolder, SegmentForm
from pdp.audit.queue.file_sink import LineSink
from pdp.audit.queue.intake import IntakeOptions, LineIntake
from pdp.audit.queue.queue import RecordQueue, TrailOptions
from pdp.audit.queue.sampling import AllowSampler, make_rule
from pdp.audit.queue.sinks import AuditSink, SinkMetrics, StdoutOutput
from pdp.config.audit import AuditSettings, SinkSettings
from pdp.config.settings import Settings
from pdp.decision.turns import run_aside
from pdp.model.redaction import Redactor
from pdp.telemetry import Telemetry

log = structlog.get_logger()


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
