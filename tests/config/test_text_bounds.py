"""Texts that a parser could not bear are refused with a place: nested without end, and aliases that stand for too much."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.clients.http_client import fetch
from support.generators.generated_pdps import batch
from support.oracles.converging import until
from support.paths import TESTS
from support.service.commands import run_pdp
from support.service.serving import serve_process

from pdp.app.facts import build_pdp
from pdp.config.load import load_settings
from pdp.engines.cedar.tokens import MOST_BRACKETS, MOST_OPERATORS, find_depth
from pdp.errors import ConfigError
from pdp.model.strict import load_yaml
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp

Nest = Callable[[int], str]
BRACKETS: dict[str, Nest] = {
    "parentheses": lambda count: "(" * count + "true" + ")" * count,
    "sets": lambda count: "[" * count + "1" + "]" * count + " == 1",
    "records": lambda count: "{a: " * count + "1" + "}" * count + " == 1",
    "calls": lambda count: "[true].contains(" * count + "true" + ")" * count,
    "mixed": lambda count: "[(" * (count // 2) + "1" + ")]" * (count // 2) + " == 1",
    "with texts": lambda count: '(";)" == ' * count + '"x"' + ")" * count,
    "with comments": lambda count: "( // ;)]}\n" * count + "true" + ")" * count,
}
CHAINS: dict[str, Nest] = {
    "and": lambda count: " && ".join(["true"] * count),
    "or": lambda count: " || ".join(['principal in Lakekeeper::Role::"x"'] * count),
    "sum": lambda count: " + ".join(["1"] * count) + " == 1",
    "attributes": lambda count: "resource" + ".a" * count + " == 1",
    "has": lambda count: "resource has a" + ".a" * count,
    "index": lambda count: "resource" + '["a"]' * count + " == 1",
    "if": lambda count: "if true then true else " * count + "true",
    "if before": lambda count: "if " * count + "true" + " then true else true" * count,
}  # fmt: skip


def policy(condition: str) -> str:
    return f"permit(principal, action, resource);\nforbid(principal, action, resource) when {{\n{condition} }};\n"


@pytest.mark.parametrize("kind", BRACKETS)
def test_brackets_are_bounded(kind: str) -> None:
    assert find_depth(policy(BRACKETS[kind](MOST_BRACKETS - 10))) is None
    for count in (MOST_BRACKETS + 1, 1_000, 100_000):
        at = find_depth(policy(BRACKETS[kind](count)))
        assert at is not None
        assert at > policy("").index("{")


@pytest.mark.parametrize("kind", CHAINS)
def test_chains_are_bounded(kind: str) -> None:
    assert find_depth(policy(CHAINS[kind](MOST_OPERATORS // 5))) is None
    assert find_depth(policy(CHAINS[kind](MOST_OPERATORS + 3))) is not None
    assert find_depth(f"{policy(CHAINS[kind](60))}\n" * 50) is None, "each policy counts alone"


def test_elements_of_a_set_are_no_chain() -> None:
    assert find_depth(policy(f"[{', '.join(['1 + 1'] * 5_000)}].contains(2)")) is None


VALID = ("parentheses", "calls", "and", "or", "sum", "if", "has", "if before")


@pytest.mark.parametrize("kind", VALID)
def test_what_is_within_the_bounds_is_read_in_every_way(kind: str) -> None:
    """Cedar parses, validates, prints and asks the deepest policy that the bounds let through."""
    nest = {**BRACKETS, **CHAINS}[kind]
    text = next(
        text
        for count in range(MOST_OPERATORS, 0, -1)
        if find_depth(text := policy(f'principal in Lakekeeper::Role::"x" && ({nest(count)})')) is None
    )
    config = {"warehouses": {"lake": {}}, "authorities": {"default": {"engines": ["cedar"]}}}
    data = {"config": config, "cedar": {"policies": text}, "world": {"objects": [], "grants": []}}
    pdp = build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())[0]
    asked = batch([{"principal": "user:oidc~a", "action": "read_data", "resource": "table:lake/s/t"}])
    (check,) = asked.checks
    for unknown in ((), ("member_of",)):
        principal = replace(check.question.principal, unknown=unknown)
        found = pdp.decide_now(
            replace(asked, checks=(replace(check, question=replace(check.question, principal=principal)),))
        )
        assert found is not None
        assert bool(found.answer.allowed[0]) == (not unknown)


@pytest.mark.process
@pytest.mark.parametrize("kind", ["parentheses", "sets", "records", "calls", "with texts", "and", "if"])
def test_commands_refuse_a_deep_policy_with_its_place(tmp_path: Path, kind: str) -> None:
    (tmp_path / "p.cedar").write_text(policy({**BRACKETS, **CHAINS}[kind](30_000)))
    config = {"authorities": {"default": {"engines": ["cedar"]}}, "policies": {"cedar": {"policies": ["p.cedar"]}}}
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    for command in (["lint", "p.cedar"], ["config", "check", "-c", "pdp.yaml"]):
        ended = run_pdp(*command, cwd=tmp_path)
        assert ended.returncode in (1, 2), ended
        assert re.search(r"p\.cedar:\d+:\d+: .*nested deeper than", ended.stdout + ended.stderr), (command, ended)
        assert "Traceback" not in ended.stderr


@pytest.mark.process
def test_a_reload_refuses_a_deep_policy_and_keeps_the_old_set(tmp_path: Path) -> None:
    (tmp_path / "p.cedar").write_text("permit(principal, action, resource);")
    config = {
        "authorities": {"default": {"engines": ["cedar"]}},
        "policies": {"rules": [], "cedar": {"policies": ["p.cedar"]}, "refresh_seconds": 0.1},
    }
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    check = {"principal": "user:oidc~a", "action": "read_data", "resource": "table:lake/s/t"}
    with serve_process(tmp_path) as process:
        (tmp_path / "new").write_text(policy(BRACKETS["parentheses"](30_000)))
        (tmp_path / "new").replace(tmp_path / "p.cedar")
        ready = process.url("/health/ready", "diagnostics")
        until(lambda: re.search(r"p\.cedar:\d+:\d+: policy_invalid", fetch(ready).text))
        assert fetch(process.url("/v1/check"), {"checks": [check]}).json()["decisions"][0]["allowed"]
        assert process.terminate() == 0


LAUGHS = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{number + 1}: &a{number + 1} [{', '.join([f'*a{number}'] * 9)}]" for number in range(12))]
)
MERGED = "\n".join(
    [
        "a0: &a0 {x: 1}",
        *(f"a{number + 1}: &a{number + 1} {{<<: [{', '.join([f'*a{number}'] * 9)}]}}" for number in range(12)),
    ]
)
DEEP = "\n".join(["a0: &a0 [x]", *(f"a{number + 1}: &a{number + 1} [*a{number}]" for number in range(300))])
ALIASES = {
    "recursive": ("a: 1\nb: &x [*x]", r":2:8: .*within its own value"),
    "recursive below": ("a: 1\nb: &x {c: [1, {d: *x}]}", r":2:\d+: .*within its own value"),
    "recursive by another": ("b: &x [&y [*x], *y]", r":1:\d+: .*within its own value"),
    "recursive key": ("b: &x {c: {<<: *x}}", r":1:\d+: .*within its own value"),
    "laughs": (LAUGHS, r":\d+:\d+: .*aliases stand for more than 200,000 values"),
    "merged laughs": (MERGED, r":\d+:\d+: .*aliases stand for more than 200,000 values"),
    "deep": (DEEP, "nested"),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "pdp.yaml": ("config", "check", "-c", "pdp.yaml"),
    "rules.yaml": ("lint", "rules.yaml"),
    "world.yaml": ("check", "--world", "world.yaml"),
    "cases.yaml": ("test", "cases.yaml"),
    "application.yaml": ("migrate", "nessie", "application.yaml", "--out", "out"),
    "tuples.yaml": ("migrate", "openfga", "tuples.yaml", "--out", "out"),
    "compose.yaml": ("migrate", "lakekeeper", "compose.yaml", "--out", "out"),
}
"""File -> the command that reads it."""


@pytest.mark.process
@pytest.mark.parametrize("name", COMMANDS)
def test_no_file_hangs_by_its_aliases(tmp_path: Path, name: str) -> None:
    for text, message in ALIASES.values():
        (tmp_path / name).write_text(text)
        ended = run_pdp(*COMMANDS[name], cwd=tmp_path, timeout=20)
        assert ended.returncode in (1, 2), (text[:80], ended)
        assert "Traceback" not in ended.stderr, (text[:80], ended)
        assert re.search(message.rpartition(".*")[2], ended.stdout + ended.stderr), (text[:80], ended)


@pytest.mark.parametrize("kind", ALIASES)
def test_an_alias_beyond_the_bounds_has_its_place(tmp_path: Path, kind: str) -> None:
    (tmp_path / "pdp.yaml").write_text(ALIASES[kind][0])
    with pytest.raises(ConfigError, match=ALIASES[kind][1]):
        load_settings(tmp_path / "pdp.yaml")


def test_aliases_within_the_bounds_stay() -> None:
    text = "base: &b {x: 1, y: [&t text, *t]}\nmore: {<<: *b, z: *b}\nrule: 'a && b * c'"
    base = {"x": 1, "y": ["text", "text"]}
    assert load_yaml(text) == {"base": base, "more": {**base, "z": base}, "rule": "a && b * c"}
