"""Facts of a candidate replace the recorded facts, but for the row policies that the candidate does not name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.engines.cel.rules import inline_rules
from pdp.errors import MissingFacts
from pdp.facts.objects import Grant, GrantAdded, RowPolicy, RowPolicyPut
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision
from pdp.offline.cases.runner import MemoryAudit
from pdp.offline.replay.basis import CandidatePolicies, HistoricalPdps

TABLE = ("lake", "sales", "orders")
SETTINGS = {"authorities": {"default": {"engines": ["grants"]}}, "warehouses": {"lake": {}}}


def rule(text: str) -> RowPolicyPut:
    return RowPolicyPut(RowPolicy(TABLE, "eu", ("allUsers",), text))


class Archive:
    """Archive with two revisions of one epoch: the second has another filter."""

    def __init__(self, bundle: bytes) -> None:
        self._bundle = bundle
        first = Facts("e", 0).apply(1, [rule("region = 'EU'")])
        self._facts = {1: first, 2: first.apply(2, [rule("region = 'US'")])}

    def bundle_text(self, digest: str) -> bytes | None:
        return self._bundle

    def facts_at(self, revision: Revision) -> Facts:
        if revision.sequence not in self._facts:
            raise MissingFacts("its facts are not in the folder", "e")
        return self._facts[revision.sequence]


def basis(facts: Facts) -> tuple[HistoricalPdps, str]:
    bundle = build_pdp(make_settings(SETTINGS, Path.cwd()), Facts.empty(), (inline_rules({}), inline_rules({}))).bundle
    assert json.loads(bundle.text)
    return HistoricalPdps(Archive(bundle.text), rebuild_pdp, CandidatePolicies(facts=facts)), bundle.digest


@pytest.mark.parametrize(("sequence", "text"), [(1, "region = 'EU'"), (2, "region = 'US'"), (3, None)])
def test_a_world_without_row_policies_keeps_those_of_each_revision(sequence: int, text: str | None) -> None:
    grant = Grant(("table", TABLE), "select", "user:a")
    given, digest = basis(Facts("world", 0).apply(1, [GrantAdded(grant)]))
    facts = given.pdp(f"e.{sequence}.{digest}", MemoryAudit(), stale=False).source.facts
    assert [each.text for each in facts.row_rules()] == ([text] if text else [])
    assert [each.principal for each in facts.grants()] == ["user:a"]


def test_row_policies_of_a_candidate_replace_the_recorded_ones() -> None:
    given, digest = basis(Facts("world", 0).apply(1, [rule("region = 'JP'")]))
    facts = given.pdp(f"e.1.{digest}", MemoryAudit(), stale=False).source.facts
    assert [each.text for each in facts.row_rules()] == ["region = 'JP'"]
