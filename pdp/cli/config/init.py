"""`pdp init`: a commented starter project for a policy model, with tests that pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from pdp.cli.terminal import one_line_errors
from pdp.errors import InvalidArgument

_STARTERS: Final = Path(__file__).parents[1] / "starters"
_PACKAGE: Final = Path("pyproject.toml")
"""File of a project that is a Python package, too."""
MODELS: Final = tuple(sorted(folder.name for folder in _STARTERS.iterdir() if folder.is_dir()))
"""Policy models with a starter project: a folder of files for each."""


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option(
    "--model", type=click.Choice(MODELS), required=True, help="Policy model: the name of an engine, or custom."
)
@one_line_errors
def init(folder: Path, model: str) -> None:
    """Write a commented starter project with tests that pass.

    FOLDER is the current one by default. Existing files stay: if one is in the way, nothing is written.
    """
    files = starter_files(model)
    taken = [folder / file for file in files if (folder / file).exists()]
    if taken:
        raise InvalidArgument(f"`{taken[0]}` exists already: nothing was written")
    for file in files:
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((_STARTERS / model / file).read_bytes())
        click.echo(str(target))
    go = "" if folder == Path() else f"cd {folder} && "
    install = "pip install -e . && " if _PACKAGE in files else ""
    click.echo(f"next: {go}{install}pdp test -c pdp.yaml tests")


def starter_files(model: str) -> Sequence[Path]:
    """Return the files of a starter project, relative to the folder of the project."""
    root = _STARTERS / model
    files = [file.relative_to(root) for file in sorted(root.rglob("*")) if file.is_file()]
    return [file for file in files if file.suffix != ".pyc"]
