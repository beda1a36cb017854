"""Bounds on operations that ask about everything below a schema."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.decision.codec import decode_batch
from pdp.engines.cel.rules import inline_rules
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.answer import Answer
from pdp.store.world import parse_world

WORLD = {
    "objects": [{"object": f"table:w/sales/t{number}"} for number in range(30)],
    "grants": [{"principal": "user:oidc~bob", "privilege": "ownership", "object": "warehouse:w"}],
}


def drop(schemas: list[str]) -> Answer:
    config = {"authorities": {"default": {"engines": ["grants"]}}, "trino": {"catalogs": {"w": {"warehouse": "w"}}}}
    none = inline_rules({})
    pdp = build_pdp(make_settings(config, Path()), parse_world(WORLD), (none, none))
    checks = ",".join(
        f'{{"principal":"user:oidc~bob","action":"trino:DropSchema","resource":"namespace:w/{schema}"}}'
        for schema in schemas
    )
    batch = admit(decode_batch(f'{{"checks":[{checks}]}}'.encode(), 10_000), EMBEDDED_CALLER)
    return asyncio.run(pdp.check(batch))


@pytest.mark.parametrize(("count", "allowed"), [(1, True), (10, True), (11, False), (1000, False)])
def test_many_schemas_in_one_check_are_denied(count: int, allowed: bool) -> None:
    answer = drop(["sales"] * count)
    assert list(answer.allowed) == [allowed] * count
    if not allowed:
        assert set(answer.by) == {"rule:too_many_objects"}
