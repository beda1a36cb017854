"""Audit of a service: the trail and its sinks, from settings."""

from __future__ import annotations

import structlog
from uuid_utils import uuid7

from pdp.app.audit_sinks import open_sinks, segment_form
from pdp.audit.queue.queue import AuditTrail, TrailOptions
from pdp.audit.queue.sampling import AllowSampler, make_rule
from pdp.config.audit import AuditSettings
from pdp.config.settings import Settings
from pdp.decision.turns import run_aside
from pdp.model.masking import Masker
from pdp.telemetry import Telemetry

log = structlog.get_logger()


def open_audit(settings: Settings, telemetry: Telemetry) -> AuditTrail | None:
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
        audit.max_waiting_bytes, Masker(audit.mask), run_aside, audit.durability, audit.on_full, sampler
    )
    return AuditTrail(instance, open_sinks(settings, instance, telemetry), telemetry, options)


def allow_sampler(audit: AuditSettings, telemetry: Telemetry) -> AllowSampler | None:
    """Return the sampler of permits; None if all have a record."""
    rules = [
        make_rule(rule.rate, rule.surfaces, rule.actions, rule.principals) for rule in audit.sample_allows.values()
    ]
    return AllowSampler(rules, telemetry.audit_left_out.inc) if rules else None
