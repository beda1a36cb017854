"""`pdp grants export`."""

from __future__ import annotations

from pathlib import Path

import click

from pdp.cli.composition import Composition
from pdp.cli.grants_store import read_store, readable_settings
from pdp.cli.options import config_options
from pdp.cli.progress import Progress
from pdp.cli.terminal import one_line_errors, print_lines
from pdp.cli.whole_file import whole_file
from pdp.store.world import is_yaml
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
            with whole_file(Path(file)) as output:
                output.writelines(f"{line}\n".encode() for line in world_lines(facts, yaml=is_yaml(file)))
