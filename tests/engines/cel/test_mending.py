"""Advice for rules with the usual mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdp.engines.cel.rules import load_rules
from pdp.engines.cel.sources import advice_for_rule, mended_text
from pdp.errors import RuleCompileError


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("ref==`x`", "ref=='x'"),
        ("path=='BobsBar` && role=='Bob')", "path=='BobsBar' && role=='Bob'"),
        ("ref=='x')", "ref=='x'"),
        (r"ref.matches('a\.b')", r"ref.matches('a\\.b')"),
        ("ref ==== 'x'", None),
        ("roel=='x'", None),
        ("", None),
    ],
)
def test_the_usual_mistakes(text: str, mended: str | None) -> None:
    assert mended_text(text) == mended


def test_advice_has_the_escapes_of_the_file() -> None:
    assert advice_for_rule(r"ref.matches('a\.b')", "a.properties") == r"write `ref.matches('a\\\\.b')`"
    assert advice_for_rule(r"ref.matches('a\.b')", "a.yaml") == r"write `ref.matches('a\\.b')`"
    assert advice_for_rule("ref ==== 'x'", "a.yaml") == ""
    assert advice_for_rule("<rule_expression>", "a.yaml").startswith("`<rule_expression>` is a placeholder: write")


def test_a_load_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("rules: {bob: \"path=='BobsBar` && role=='Bob')\"}\n")
    with pytest.raises(RuleCompileError, match=r"; write `path=='BobsBar' && role=='Bob'`$"):
        load_rules([tmp_path / "a.yaml"])
