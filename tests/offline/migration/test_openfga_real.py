"""Migrated worlds beside a real OpenFGA: random tuples, every question, and never a yes where OpenFGA says no."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.generators.fga_tuples import random_tuples
from support.oracles.migrated_worlds import NEWER, SCHEMA, answers, checker_of, migrated, questions, version
from support.servers.openfga import IN_MEMORY, FgaStore, binary, running
from support.untested import SETUP, not_tested

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    openfga = binary()
    if openfga is None:
        not_tested("beside OpenFGA", "no `openfga` on the PATH", SETUP if shutil.which("go") else "")
    with running(openfga, tmp_path_factory.mktemp("openfga"), *IN_MEMORY) as served:
        yield served


@pytest.mark.parametrize("seed", range(9))
def test_a_migrated_world_is_never_wider_than_openfga(tmp_path: Path, url: str, seed: int) -> None:
    tuples = random_tuples(seed, SCHEMA)
    asked = [one for one in questions(tuples) if one.relation != NEWER]
    there = FgaStore(url, json.loads(SCHEMA.read_text()), tuples).check([one[:3] for one in asked])
    here = answers(tmp_path, migrated(tmp_path, [*tuples, version("4.14")]), asked)
    assert [one for one, ours, theirs in zip(asked, here, there, strict=True) if ours and not theirs] == []
    permits = checker_of(tuples)
    assert [one for one, theirs in zip(asked, there, strict=True) if permits(one) != theirs] == []
    assert sum(there) > 20
