"""Compiled rules make the decisions that were recorded from Nessie."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.generators.cel_values import RECORDED, arguments

from pdp.cel.values import RuleError
from pdp.engines.cel.rules import RuleSet, inline_rules
from pdp.errors import RuleCompileError

CASES = [json.loads(line) for line in (RECORDED / "golden.jsonl").read_text().splitlines()]


def _arguments(check: dict[str, Any]) -> tuple[Any, ...]:
    resource, principal, context = check["resource"], check["principal"], check["context"]
    parts = [part.replace(".", "\x1d").replace("\0", "\x1d") for part in resource.get("path", ())]
    config = resource["type"] == "repository_config"
    return arguments(
        op=check["action"],
        role=principal["id"].partition("~")[2],
        roles=tuple(principal["roles"]),
        ref=resource.get("ref", ""),
        path="" if config else ".".join(parts),
        contentType=resource.get("contentType", ""),
        type=parts[0] if config else "",
        api={"apiName": context["api"]["name"], "apiVersion": context["api"]["version"]},
        actions=tuple(context["actions"]),
        warehouse=resource["warehouse"],
    )


def _decide(rules: RuleSet, check: dict[str, Any]) -> tuple[bool, list[str]]:
    """Nessie's combination: any rule, and references are viewable unless a rule speaks of viewing them."""
    implicit = not any("VIEW_REFERENCE" in text for text in rules.texts.values())
    allowed, errors = implicit and check["action"] == "VIEW_REFERENCE", []
    for rule in rules.rules:
        try:
            allowed |= rule.program.evaluate(*_arguments(check))
        except RuleError:
            errors.append(rule.id)
    return allowed, [] if allowed else errors


def test_all_cases_are_there() -> None:
    assert len(CASES) == 751


@pytest.mark.parametrize("case", [case for case in CASES if "want" in case], ids=lambda case: case["note"])
def test_decisions(case: dict[str, Any]) -> None:
    rules = inline_rules(case["rules"])
    for check, want in zip(case["checks"], case["want"], strict=True):
        allowed, errors = _decide(rules, check)
        wanted = {"allowed": want} if isinstance(want, bool) else want
        assert allowed == wanted["allowed"]
        assert "errors" not in wanted or errors == wanted["errors"]


@pytest.mark.parametrize("case", [case for case in CASES if "wantError" in case], ids=lambda case: case["note"])
def test_refusals(case: dict[str, Any]) -> None:
    with pytest.raises(RuleCompileError) as caught:
        inline_rules(case["rules"])
    assert caught.value.code == case["wantError"]
    assert caught.value.rule in case["rules"]
