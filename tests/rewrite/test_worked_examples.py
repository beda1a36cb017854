"""The worked examples on every surface that rewrites: each gives the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.command_line import COMPOSITION
from support.rewriting import write_policies
from support.worked_examples import EXAMPLES, Example, document, example_database, ids_of

from pdp.cli.main import cli
from pdp.rewrite.identity import ANONYMOUS

Surface = Callable[[Path, list[Example]], list[str]]
"""Rewrites the statements of examples by policies in a folder."""


def command_line(folder: Path, examples: list[Example]) -> list[str]:
    """One command for each example."""
    file = str(write_policies(folder, document()))
    found = []
    for example in examples:
        arguments = ["--dialect", "duckdb", "--as", example.caller, "--groups", ",".join(example.groups)]
        command = ["rewrite", "--policies", file, *arguments]
        done = CliRunner().invoke(cli, command, obj=COMPOSITION, input=example.sql)
        assert done.exit_code == 0, (example.note, done.output)
        found.append(done.stdout)
    return found


def batch(folder: Path, examples: list[Example]) -> list[str]:
    """One command for all examples."""
    file = str(write_policies(folder, document()))
    lines = [
        {
            "sql": example.sql, "dialect": "duckdb", "principal": example.caller or ANONYMOUS,
            "groups": example.groups, "authenticated": bool(example.caller),
        }
        for example in examples
    ]  # fmt: skip
    command = ["rewrite", "--policies", file, "--batch"]
    done = CliRunner().invoke(cli, command, obj=COMPOSITION, input="\n".join(map(json.dumps, lines)))
    return [json.loads(line)["sql"] for line in done.stdout.splitlines()]


NAMED = [example for example in EXAMPLES if example.caller]
SURFACES: dict[str, tuple[Surface, list[Example]]] = {
    "command line": (command_line, NAMED),
    "batch": (batch, EXAMPLES),
}
"""Surface -> the examples that can be said there. A command line has no caller without a name."""


@pytest.mark.parametrize("name", SURFACES)
def test_a_surface_gives_the_rows_of_the_worked_examples(tmp_path: Path, name: str) -> None:
    surface, examples = SURFACES[name]
    database = example_database()
    rewritten = surface(tmp_path, examples)
    assert len(rewritten) == len(examples)
    for example, sql in zip(examples, rewritten, strict=True):
        rows = [list(row) for row in database.execute(sql).fetchall()]
        assert ids_of(rows) == example.ids, (example.note, sql)
