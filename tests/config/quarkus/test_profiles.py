"""Entries in force under profiles, and environment variables, with the examples of SmallRye Config's documentation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.generators.config_entries import entry

from pdp.config.quarkus.expressions import EnvironmentNames, dotted_name, environment_entries, spelling
from pdp.config.quarkus.profiles import ConfigSource, active_config
from pdp.errors import PolicyError

Entries = dict[str, str]


def in_force(profiles: Sequence[str], *sources: tuple[int, Entries], environment: Entries | None = None) -> Entries:
    built = [ConfigSource(ordinal, [entry(*pair) for pair in keys.items()]) for ordinal, keys in sources]
    variables = EnvironmentNames(environment_entries(environment)) if environment else None
    return {name: found.text for name, found in active_config(built, profiles, variables).entries.items()}


DOCUMENTED = {"p": "1", "%common.p": "2", "%dev.p": "3", "%common.c": "4", "%dev.d": "5", "%test.t": "6"}


@pytest.mark.parametrize(
    ("profiles", "want"),
    [
        (["prod"], {"p": "1"}),
        (["common", "dev"], {"p": "3", "c": "4", "d": "5"}),
        (["dev", "common"], {"p": "2", "c": "4", "d": "5"}),
        (["test"], {"p": "1", "t": "6"}),
    ],
)
def test_the_last_profile_wins(profiles: list[str], want: Entries) -> None:
    assert in_force(profiles, (250, DOCUMENTED)) == want


def test_an_entry_of_several_profiles_yields_to_one_of_fewer() -> None:
    several = {"%prod,dev.p": "both", "%dev.p": "dev", "%common,prod,dev.t": "three", "%common,prod.t": "two"}
    assert in_force(["prod"], (250, several)) == {"p": "both", "t": "two"}
    assert in_force(["dev"], (250, several)) == {"p": "dev", "t": "three"}


def test_a_plain_entry_of_a_higher_ordinal_wins_over_a_profile() -> None:
    assert in_force(["dev"], (1000, {"p": "high"}), (100, {"%dev.p": "low"})) == {"p": "high"}
    assert in_force(["dev"], (100, {"p": "low"}), (1000, {"%dev.p": "high"})) == {"p": "high"}
    assert in_force(["prod"], (1000, {"%prod.o": "over"}), (100, {"%prod,dev.o": "low"})) == {"o": "over"}


@pytest.mark.parametrize("key", ["%{prod,dev}.p", "%", "%prod", "%.p", '%"prod".p'])
def test_a_key_with_a_percent_sign_and_no_profile_stops(key: str) -> None:
    with pytest.raises(PolicyError, match=r"names no profile: write `%prod\.` or `%prod,dev\.`"):
        in_force(["prod"], (250, {key: "x"}))


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("A_B_C", "a.b.c"),
        ("A_B_ALLOW_X", "a.b.allow-x"),
        ("_PROD_A_B", "%prod.a.b"),
        ("A__B_C__D", 'a."b.c".d'),
        ("A__B_C_", 'a."b.c"'),
        ("A__B_C__", 'a."b.c"'),
        ("a.b.c", "a.b.c"),
    ],
)
def test_a_variable_spells_a_name(variable: str, name: str) -> None:
    assert spelling(variable) == spelling(name)


@pytest.mark.parametrize(
    ("variable", "name"),
    [("A_B_C", "a.b.c"), ("_PROD_A_B", "%prod.a.b"), ("A__B_C__D", 'a."b.c".d'), ("A__B_C__", 'a."b.c"')],
)
def test_a_variable_without_a_known_name_is_dotted(variable: str, name: str) -> None:
    assert dotted_name(variable) == name


def test_a_variable_replaces_every_key_that_it_spells() -> None:
    keys = {"a.allow-x": "file", "a.allow.x": "file", "a.other": "file"}
    assert in_force(["prod"], (250, keys), environment={"A_ALLOW_X": "variable", "A_NEW": "n"}) == {
        "a.allow-x": "variable",
        "a.allow.x": "variable",
        "a.other": "file",
        "a.new": "n",
    }


def test_a_variable_of_a_profile_wins_over_a_plain_variable() -> None:
    environment = {"_PROD_A_X": "prod", "A_X": "plain", "_DEV_A_X": "dev"}
    assert in_force(["prod"], (250, {"a.x": "file"}), environment=environment)["a.x"] == "prod"
    assert in_force(["test"], (250, {"a.x": "file"}), environment=environment)["a.x"] == "plain"


def test_a_plain_variable_wins_over_a_profile_of_a_file() -> None:
    assert in_force(["prod"], (250, {"%prod.a.x": "file"}), environment={"A_X": "variable"}) == {"a.x": "variable"}


def test_two_variables_of_one_name_stop() -> None:
    with pytest.raises(PolicyError, match=r"`a\.x`, `A-X` are one name"):
        in_force(["prod"], environment={"a.x": "1", "A-X": "2"})
