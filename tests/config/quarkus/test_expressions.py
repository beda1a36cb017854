"""Property expressions as SmallRye expands them."""

from __future__ import annotations

import pytest
from support.generators.config_entries import entry

from pdp.config.quarkus.expressions import expand
from pdp.errors import PolicyError

VALUES = {"x": "main", "y": "x", "deep": "<${x}>", "a.main": "nested", "loop": "${pool}", "pool": "${loop}", "e": ""}


def expanded(text: str) -> str:
    return expand(entry("k", text), lambda name: entry(name, VALUES[name]) if name in VALUES else None).text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ref=='${x}'", "ref=='main'"),
        ("${x}${x}", "mainmain"),
        ("${x:other}", "main"),
        ("${nope:other}", "other"),
        ("${nope:}", ""),
        ("${e:other}", ""),
        ("${nope:${x}}", "main"),
        ("${nope:${nope2:y}z}", "yz"),
        ("${x:${nope}}", "main"),
        ("${a.${x}}", "nested"),
        ("${${y}}", "main"),
        ("${deep}", "<main>"),
        ("${nope:a:b}", "a:b"),
        (r"\${x}", "${x}"),
        ("$${x}", "${x}"),
        ("a$$", "a$"),
        ("ref.matches('^a$')", "ref.matches('^a$')"),
        ("$x", "$x"),
        ("{x}", "{x}"),
        ("$", "$"),
        ("a:b}", "a:b}"),
    ],
)
def test_expansion(text: str, want: str) -> None:
    assert expanded(text) == want


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ref=='${nope}'", "rules.properties:3:11: `${nope}` has no value"),
        ("${x", "without `}`"),
        ("${nope:a", "without `}`"),
        ("${loop}", "refers to itself"),
        ("${aes-gcm::secret}", "asks a secret handler"),
    ],
)
def test_what_cannot_be_expanded_stops(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        expanded(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("leaf", ["", "x"])
def test_keys_that_stand_for_many_expansions_stop(leaf: str) -> None:
    """Each key names the next one twice: without a bound, 2^30 expansions."""
    keys = {f"k{number}": f"${{k{number + 1}}}${{k{number + 1}}}" for number in range(30)} | {"k30": f"{leaf}$"}
    with pytest.raises(PolicyError, match="too many names"):
        expand(entry("k", "${k0}"), lambda name: entry(name, keys[name]) if name in keys else None)


def test_every_character_has_the_place_of_its_expression() -> None:
    result = expand(entry("k", "a ${x} b"), lambda name: entry(name, "main"))
    assert result.text == "a main b"
    assert [result.place(at).column for at in range(9)] == [5, 6, 7, 7, 7, 7, 11, 12, 13]
