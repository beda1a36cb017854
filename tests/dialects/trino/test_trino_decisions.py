"""Every body that a real Trino sent gets the decision that the case files state, under each of their policy sets."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.oracles.trino_wants import (
    FILES,
    GROUPS,
    Ask,
    Asked,
    Wants,
    asked_by,
    asking,
    bodies,
    bodies_of_statements,
    by_the_model,
    key,
    user_of,
)  # fmt: skip

FIRST = {key(*asked): asked for asked in bodies()}
"""The distinct ones among the recorded bodies."""


def load(file: Path) -> dict[str, Any]:
    policies: dict[str, Any] = yaml.safe_load(file.read_text())
    return policies


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def policies(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


async def wrong(ask: Ask, wanted: Iterable[tuple[Asked, Any]]) -> list[str]:
    """What is not told as wanted."""
    return [f"{user_of(a[1])} {a}: wanted {want}, got {got}" for a, want in wanted if (got := await ask(*a)) != want]


async def test_every_recorded_body_gets_the_wanted_answer(policies: dict[str, Any], tmp_path: Path) -> None:
    wants, asked = Wants(policies), bodies()
    assert len(asked) == 365
    async with asking(policies, tmp_path) as ask:
        assert await wrong(ask, [(one, wants.answer(*one)) for one in asked]) == []


async def test_so_does_every_body_had_another_user_caused_it(policies: dict[str, Any], tmp_path: Path) -> None:
    wants, asked = Wants(policies), [asked_by(user, one) for one in FIRST.values() for user in GROUPS]
    async with asking(policies, tmp_path) as ask:
        assert await wrong(ask, [(one, wants.answer(*one)) for one in asked]) == []


async def test_statements_get_the_same_answers(policies: dict[str, Any], tmp_path: Path) -> None:
    """Of the statements' bodies the file covers those that were recorded alone; the plain model answers for all."""
    wants, asked = Wants(policies), bodies_of_statements()
    assert {key(*one) for one in asked} >= FIRST.keys()
    covered = [(one, wants.answer(*one)) for one in asked if key(*one) in FIRST]
    async with asking(policies, tmp_path) as ask:
        assert await wrong(ask, covered) == []
        assert await wrong(ask, [(one, by_the_model(policies, *one)) for one in asked]) == []


def test_the_files_say_what_the_plain_model_says(policies: dict[str, Any]) -> None:
    """The wants were read through by hand; that the model of the vocabulary says the same guards both."""
    wants = Wants(policies)
    for one in FIRST.values():
        for user in GROUPS:
            endpoint, body = asked_by(user, one)
            assert wants.answer(endpoint, body) == by_the_model(policies, endpoint, body), (user, body)


def test_a_file_says_nothing_but_wants_of_recorded_bodies(policies: dict[str, Any]) -> None:
    """Without any of its entries a file no longer covers the recordings: none is superfluous."""
    for section in ("allow", "batch"):
        for operation, entry in policies["wants"][section].items():
            for at in entry if isinstance(entry, dict) else range(len(entry)) if section == "batch" else ():
                fewer = copy.deepcopy(policies)
                del fewer["wants"][section][operation][at]
                with pytest.raises(KeyError):
                    [Wants(fewer).answer(*one) for one in FIRST.values()]


def results(policies: dict[str, Any]) -> dict[str, set[bool]]:
    """Operation -> whether anything of it is allowed, in the wants of all bodies and users."""
    wants, found = Wants(policies), defaultdict(set)
    for one in FIRST.values():
        for user in GROUPS if one[0] in ("allow", "batch") else ():
            endpoint, body = asked_by(user, one)
            found[body["input"]["action"]["operation"]].add(bool(wants.answer(endpoint, body)["result"]))
    return found


def test_every_operation_is_both_allowed_and_denied(policies: dict[str, Any]) -> None:
    """Where a policy set gives everybody the same answer to all of an operation, the file says why."""
    found = results(policies)
    assert len(found) == 61
    assert {operation for operation, answers in found.items() if len(answers) == 1} == set(policies["alike"])


def test_the_files_together_allow_and_deny_every_operation() -> None:
    found = [results(load(file)) for file in FILES]
    assert {
        operation for operation in found[0] if len(set.union(*(answers[operation] for answers in found))) < 2
    } == set()


@pytest.mark.parametrize("engine", ["cel", "grants"])
async def test_neither_engine_alone_decides_as_both(engine: str, tmp_path: Path) -> None:
    """Each engine permits what the other one does not; and together they allow what neither does alone."""
    policies = next(load(file) for file in FILES if file.stem == "both")
    asked = [asked_by(user, one) for one in FIRST.values() for user in GROUPS if one[0] == "allow"]
    alone = copy.deepcopy(policies)
    alone["config"]["authorities"]["default"]["engines"] = [engine]
    other = copy.deepcopy(policies)
    other["config"]["authorities"]["default"]["engines"] = [{"cel": "grants", "grants": "cel"}[engine]]
    async with asking(alone, tmp_path) as ask:
        by_one = {key(*one) for one in asked if (await ask(*one))["result"]}
    by_other = {key(*one) for one in asked if by_the_model(other, *one)["result"]}
    wants = Wants(policies)
    by_both = {key(*one) for one in asked if wants.answer(*one)["result"]}
    assert by_one < by_both
    assert by_one - by_other
    assert by_both - by_one - by_other
