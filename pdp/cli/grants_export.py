"""`pdp grants export`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from pdp.cli.composition import Composition
from pdp.cli.grants_store import read_store, readable_settings
from pdp.cli.options import config_options
from pdp.cli.progress import Progress
from pdp.cli.terminal import one_line_errors, print_lines
from pdp.config.private_files import open_private_file
from pdp.errors import InvalidArgument
from pdp.store.world_parser import is_yaml
from pdp.store.world_text import world_lines


@click.command("export")
@config_options
@click.argument("file", required=False)
@click.pass_obj
@one_line_errors
def export_world(composition: Composition, config: Path | None, overrides: tuple[str, ...], file: str | None) -> None:
    """Write all objects and grants to a world file.

    FILE is JSON if the name ends in .json, else YAML. Without FILE, the command prints JSON on stdout.

    The file has one entry a line, in order. An import of the file into an empty store and an export of this store give
    the same bytes.
    """
    with Progress("reading the store") as progress:
        facts = read_store(composition, readable_settings(composition, config, overrides))
        progress.say("writing")
        if file is None:
            print_lines(world_lines(facts))
        else:
            _write(Path(file), world_lines(facts, yaml=is_yaml(file)))


def _write(path: Path, lines: Iterable[str]) -> None:
    """Write a file as a whole or not at all. Special files, such as pipes, are written directly."""
    special = path.exists() and not path.is_file()
    # a rename within one folder is atomic: readers find the old or the new content
    target = path if special else path.resolve().with_name(f"{path.resolve().name}.{os.getpid()}.part")
    try:
        opened = target if special else open_private_file(target, os.O_WRONLY | os.O_TRUNC)
        with open(opened, "w", encoding="utf-8", newline="\n") as text:  # noqa: PTH123  a descriptor or a path
            text.writelines(f"{line}\n" for line in lines)
        if not special:
            target.replace(path.resolve())
    except OSError as error:
        raise InvalidArgument(f"cannot write `{path}`: {(error.strerror or str(error)).lower()}") from None
    finally:
        if not special:
            target.unlink(missing_ok=True)
