"""`pdp config check`: texts with capitals in rules that Trino never asks about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.service.commands import run_pdp

from pdp.engines.cel.lint.linter import unasked_spellings
from pdp.engines.cel.program import RULE_VARIABLES
from pdp.engines.cel.rules import inline_rules

KNOWN = frozenset({"HR", "HR.Salaries", "hr2.Mixed", "Deep", "Deep.er", "Deep.er.t", "a\u001dB"})


def notices(text: str) -> list[str]:
    rules = inline_rules({"r": text}).rules
    return [notice.message for notice in unasked_spellings(rules, lambda warehouses: KNOWN)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("path == 'hr.Salaries'", "hr.Salaries"),
        ("'hr.Salaries' == path", "hr.Salaries"),
        ("path in ['hr.salaries', 'hr.Salaries']", "hr.Salaries"),
        ("path != 'hr.Salaries'", "hr.Salaries"),
        ("!(path == 'hr.Salaries') && role == 'A'", "hr.Salaries"),
        ("role == 'A' || (op == 'X' && path.startsWith('Hr.'))", "Hr."),
        ("path.startsWith('HR.Other')", "HR.Other"),
        ("path.endsWith('.Salary')", ".Salary"),
        ("path.endsWith('.salaries.X')", ".salaries.X"),
        ("path.contains('SALARIES')", "SALARIES"),
        ("path.matches('^Hr[.]')", "Hr."),
        ("path.matches('^Hr.+x')", ""),
        ("path.matches('^(Hr|hr)')", "Hr"),
        ("path.matches('Hr')", "Hr"),
        ("path == 'HR.salaries.T'", "HR.salaries.T"),
        ("path == 'HR.Salaries2'", "HR.Salaries2"),
        ("warehouse == 'lake' && path == 'X'", "X"),
        ("path == 'Straße'", "Straße"),
    ],
)
def test_a_text_that_no_name_meets_is_told(text: str, shown: str) -> None:
    found = notices(text)
    assert [f"compares `path` with `{shown}`, and Trino asks about no such name" in one for one in found] == (
        [True] if shown else []
    )


@pytest.mark.parametrize(
    "text",
    [
        "path == 'HR.Salaries'", "path == 'HR.other'", "path == 'HR.other.deeper'", "path.startsWith('HR.')",
        "path.startsWith('H')", "path.startsWith('HR.oth')", "path.startsWith('HR.Sal')", "path.endsWith('.Salaries')",
        "path.endsWith('R.salaries')", "path.contains('ixe') && path.contains('Mix')", "path.contains('R.x')",
        "path == 'hr2.Mixed'", "path == 'Deep.er.other'", "path in ['HR.Salaries', 'hr.salaries']", "role == 'Alice'",
        "path == 'hr.salaries'", "path.matches('^HR[.]')", "path.matches('^HR')", "path == 'a\\u001dB'", "ref == 'Main'",
        "path.endsWith('straße')",
    ],
)  # fmt: skip
def test_a_text_that_some_name_meets_is_not_told(text: str) -> None:
    assert notices(text) == []


NAMES = st.sampled_from(("a", "A", "b", "B", "aB"))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
TESTS = st.sampled_from(("path == '{}'", "path.startsWith('{}')", "path.endsWith('{}')", "path.contains('{}')"))


@given(known=st.frozensets(PATHS, max_size=3), asked=PATHS, test=TESTS, text=PATHS, cut=st.integers(0, 3))
def test_a_told_text_meets_no_name_of_trino(
    known: frozenset[tuple[str, ...]], asked: tuple[str, ...], test: str, text: tuple[str, ...], cut: int
) -> None:
    containers = {path[:length] for path in known for length in range(1, len(path) + 1)}
    own: tuple[str, ...] = ()
    for part in (part.lower() for part in asked):
        matches = [path for path in containers if path[:-1] == own and path[-1].lower() == part]
        own = min(matches, default=(*own, part))
    written = ".".join(text)[cut:] or "a"
    spellings = frozenset(joined for path in containers if (joined := ".".join(path)) != joined.lower())
    rules = inline_rules({"r": test.format(written)}).rules
    if list(unasked_spellings(rules, lambda warehouses: spellings)):
        values: dict[str, Any] = {"path": ".".join(own)}
        assert not rules[0].program.evaluate(*(values.get(name, "") for name in RULE_VARIABLES))


@pytest.mark.process
def test_config_check_tells(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "rules:\n  a: path == 'hr.Salaries'\n  b: path == 'HR.Salaries'\n  c: path == 'x'\n"
        "  d: warehouse == 'other' && path == 'Hr'\n"
    )
    (tmp_path / "f.yaml").write_text("rules:\n  f: path == 'hr.Salaries'\n")
    (tmp_path / "world.yaml").write_text(
        "objects: [warehouse:lake, 'table:lake/HR/Salaries', 'table:other/hr/Salaries']\n"
    )
    config: dict[str, Any] = {
        "warehouses": {"lake": {"project": "p"}, "other": {"project": "p"}},
        "policies": {"rules": ["a.yaml"], "forbid": ["f.yaml"]},
        "store": {"url": "file:world.yaml"},
        "trino": {"catalogs": {"c": {"warehouse": "lake"}}},
    }
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    ended = run_pdp("config", "check", cwd=tmp_path)
    assert ended.returncode == 0
    (line,) = [line for line in ended.stdout.splitlines() if "Trino asks about no such name" in line]
    assert line.startswith(f"{tmp_path}/a.yaml:2:6: warning: rule `a` compares `path` with `hr.Salaries`")
    del config["trino"]
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    assert run_pdp("config", "check", cwd=tmp_path).stdout == "0 errors, 0 warnings\n"
