"""Archived bundles of services without settings of their own: defaults that no file may write are read back."""

from __future__ import annotations

from pathlib import Path

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.engines.cel.rules import inline_rules
from pdp.facts.snapshot import Facts


def test_a_bundle_of_defaults_is_rebuilt_to_the_same_digest(tmp_path: Path) -> None:
    made = build_pdp(make_settings({}, tmp_path), Facts.empty(), (inline_rules({"a": "true"}), inline_rules({})))
    assert rebuild_pdp(made.bundle.text).bundle.digest == made.bundle.digest
