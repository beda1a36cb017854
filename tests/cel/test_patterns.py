"""Texts that every match of a pattern holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdp.cel import patterns

ATOMS = st.sampled_from(
    ["a", "b", "_", "-", ".", "[.]", "[b]", "\\.", "\\$", "[a-z]", "[^a]", "[0-9_]", "(a|b)", "\\d", "é"]
)
SIMPLE = st.lists(st.tuples(ATOMS, st.sampled_from(["", "", "", "+", "*", "?", "{2}", "+?"])), max_size=5).map(
    lambda atoms: "".join(atom + repeat for atom, repeat in atoms)
)


@settings(max_examples=2000)
@given(st.sampled_from(["", "^"]), SIMPLE, st.sampled_from(["", "$"]), st.text("ab_-.$5", max_size=7))
def test_every_match_holds_the_required_text(start: str, body: str, end: str, text: str) -> None:
    pattern = start + body + end
    required = patterns.required_text(pattern)
    if required:
        assert required in text or not patterns.compile_pattern(pattern).find(text)


@pytest.mark.parametrize(
    ("pattern", "required"),
    [
        ("^[a-z]+_us[.]orders_[0-9]+$", "_us.orders_"),
        ("a+b", "ab"),
        ("ab*c", "a"),
        ("x[.]y+z", "x.y"),
        ("a|b", ""),
        ("(?i)abc", ""),
        ("a{2}", ""),
        ("[z-a]b", ""),
        ("^*ab", ""),
        ("ab++", ""),
    ],
)
def test_the_required_text_of_a_pattern(pattern: str, required: str) -> None:
    assert patterns.required_text(pattern) == required
