"""Options without an effect beside another option: a usage error that names both, for every such pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click
import pytest
from click.testing import CliRunner, Result
from support.paths import ROOT
from support.service.command_line import COMPOSITION

from pdp.cli.main import cli

CONFIG: Final = frozenset({"--config", "--example", "--set"})
POLICIES: Final = CONFIG | {"--rules", "--world"}
CHOICES: Final[Sequence[tuple[str, str, frozenset[str]]]] = (
    ("explain", "--vocabulary", frozenset()),
    ("explain", "--code", POLICIES),
    ("explain", "--load", POLICIES | {"--format"}),
    ("rewrite", "--batch", frozenset({"--policies"})),
    ("policy drop", "--all", CONFIG),
    ("dry-run", "--stored", frozenset({"--candidate", "--config", "--set", "--data", "--format"})),
    ("dry-run", "--baseline", frozenset({"--candidate", "--data", "--format"})),
)
"""Command, an option that leaves others without effect, and the options with an effect."""
PAIRS: Final[Sequence[tuple[str, str, str]]] = (
    ("healthcheck", "--address", "--config"),
    ("pipeline history", "--explain", "--format"),
    ("pipeline ingest", "--explain", "--format"),
    ("pipeline ingest", "--explain", "--interval"),
    ("pipeline ingest", "--once", "--interval"),
    ("pipeline replay", "--explain", "--format"),
    ("pipeline replay", "--recorded", "--listings"),
    ("pipeline report", "--explain", "--csv"),
    ("pipeline report", "--explain", "--format"),
    ("pipeline report", "--explain", "--json"),
    ("pipeline suggest", "--explain", "--format"),
)
"""Command with two options: the second has no effect beside the first."""
ROWS: Final = str(ROOT / "tests" / "real_trino" / "row_access.yaml")
NEEDED: Final = {
    "dry-run": ("--candidate", ROWS), "pipeline history": ("--principal", "role:a", "--resource", "table:l/a/b", "--on",
    "2026-01-01"), "pipeline ingest": ("--audit", "x"), "pipeline report": ("--out", "x"), "pipeline suggest":
    ("--out", "x.json"), "policy drop": ("lake.a.b",), "rewrite": ("--policies", "x.yaml"),
}  # fmt: skip
"""Other arguments of a command."""


def command_of(name: str) -> click.Command:
    found: click.Command = cli
    for word in name.split():
        assert isinstance(found, click.Group)
        command = found.get_command(click.Context(found), word)
        assert command is not None, name
        found = command
    return found


def options_of(name: str) -> dict[str, list[str]]:
    """Return each option of a command with a value."""
    found = {}
    for param in command_of(name).params:
        if isinstance(param, click.Option):
            value = param.type.choices[0] if isinstance(param.type, click.Choice) else "a.b=2"
            value = "7" if isinstance(param.type, click.types.IntParamType | click.types.FloatParamType) else value
            value = ROWS if param.opts[-1] in ("--baseline", "--candidate") else value
            found[param.opts[-1]] = [param.opts[-1]] if param.is_flag else [param.opts[-1], value]
    return found


def run(name: str, *options: str) -> Result:
    needed = () if name == "dry-run" and "--candidate" in options else NEEDED.get(name, ())
    needed = (*needed, "--recorded") if name == "pipeline replay" and "--recorded" not in options else needed
    needed = (*needed, "--lake", "x") if name.startswith("pipeline") else needed
    return CliRunner().invoke(cli, [*name.split(), *options, *needed], obj=COMPOSITION)


def pairs() -> Iterator[tuple[str, str, str]]:
    yield from PAIRS
    for name, chosen, useful in CHOICES:
        assert useful <= options_of(name).keys(), f"{name} has no such options"
        yield from ((name, chosen, other) for other in options_of(name).keys() - useful - {chosen})


def is_taken(name: str, chosen: str, other: str) -> bool:
    """Tell whether a pair chooses another way of the command, with errors of its own."""
    return name == "dry-run" and other in ("--checks", "--audit", "--baseline", "--forbid-baseline",
                                           "--forbid-candidate", "--stored")  # fmt: skip


@pytest.mark.parametrize(("name", "chosen", "other"), sorted(pairs()))
def test_an_option_without_effect_is_a_usage_error(name: str, chosen: str, other: str) -> None:
    options = options_of(name)
    for order in ((chosen, other), (other, chosen)):
        result = run(name, *(word for one in order for word in options[one]))
        assert result.exit_code == 2, result.output
        if not is_taken(name, chosen, other):
            both = [f"`{one}` has no effect beside `{by}`" for one, by in ((other, chosen), (chosen, other))]
            assert any(text in result.output for text in both), result.output


@pytest.mark.parametrize(
    ("name", "chosen", "other"),
    [(name, chosen, other) for name, chosen, useful in CHOICES for other in sorted(useful)],
)
def test_an_option_with_effect_is_taken(name: str, chosen: str, other: str) -> None:
    options = options_of(name)
    assert "no effect" not in run(name, *options[chosen], *options[other]).output


def leaves(command: click.Command, name: str = "") -> Iterator[str]:
    if isinstance(command, click.Group):
        for below in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), below)
            assert found is not None
            yield from leaves(found, f"{name} {below}".strip())
    else:
        yield name


SINGLE: Final = [
    (name, param.opts)
    for name in leaves(cli)
    for param in command_of(name).params
    if isinstance(param, click.Option) and not (param.multiple or param.is_flag)
]


@pytest.mark.parametrize(("name", "spellings"), SINGLE)
def test_a_second_value_of_an_option_is_a_usage_error(name: str, spellings: list[str]) -> None:
    value = options_of(name)[spellings[-1]][1]
    needed = [word for param in command_of(name).params if isinstance(param, click.Argument) for word in ("x",)]
    needed += [word for param in command_of(name).params if param.required and param.opts != spellings
               for word in options_of(name).get(param.opts[-1], ())]  # fmt: skip
    for first in spellings:
        arguments = [*name.split(), *needed, first, value, spellings[-1], value]
        result = CliRunner().invoke(cli, arguments, obj=COMPOSITION)
        assert (result.exit_code, f"`{spellings[-1]}` is given twice" in result.output) == (2, True), result.output


SET: Final = sorted({"check", "config check", "serve", "test", "dry-run", "explain", "grants list", "audit tail"})


@pytest.mark.parametrize("name", SET)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("limits.max_checks", "limits.max_checks"),
        ("limits.max_checks", "limits"),
        ("identity.callers.a.loopback", "identity.callers"),
    ],
)
def test_a_setting_that_a_later_one_replaces_is_a_usage_error(name: str, first: str, second: str) -> None:
    result = run(name, *(["x"] if name == "test" else []), "--set", f"{first}=s3cret", "--set", f"{second}=7")
    assert (result.exit_code, "s3cret" in result.output) == (2, False)
    assert f"`--set {first}` has no effect before `--set {second}`" in result.output


def test_a_later_setting_inside_of_an_earlier_one_counts() -> None:
    result = run("config check", "--example", "--set", "limits={}", "--set", "limits.max_checks=7", "--effective")
    assert "limits.max_checks: 7 " in result.output
    assert "no effect" not in run("config check", "--set", "limits.max=1", "--set", "limits.max_checks=2").output
