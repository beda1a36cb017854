"""Audit of a service: the trail and its sinks, from settings."""

from __future__ import annotations

from uuid_utils import uuid7

from pdp.audit.chain import ChainHash
from pdp.audit.folder import AuditFolder, SegmentForm
from pdp.audit.line_writer import LineWriter
from pdp.audit.log import AuditTrail, TrailOptions
from pdp.config.settings import Settings
from pdp.decision.turns import run_aside
from pdp.model.masking import Masker
from pdp.telemetry import Telemetry


def open_audit(settings: Settings, telemetry: Telemetry) -> AuditTrail | None:
    """Return the trail of a new instance; None without a sink. Raise ConfigError if a sink cannot be opened."""
    audit = settings.audit
    form = segment_form(settings)
    instance = uuid7().hex
    sinks = [
        LineWriter(AuditFolder(settings.path(sink.file), instance, form), audit.durability, telemetry.audit_written.inc)
        for sink in audit.sinks
    ]
    options = TrailOptions(audit.max_waiting_bytes, Masker(audit.mask), run_aside, audit.durability, audit.on_full)
    return AuditTrail(instance, sinks, telemetry, options) if sinks else None


def segment_form(settings: Settings) -> SegmentForm:
    """Return the form of the segments; raise ConfigError if the keys of the chain cannot be read."""
    audit, keys = settings.audit, settings.chain_keys()
    hashes = tuple(map(ChainHash, keys)) or (ChainHash(),)
    return SegmentForm(audit.segment_mib << 20, audit.segment_seconds, audit.compress, hashes[0], hashes[1:])
