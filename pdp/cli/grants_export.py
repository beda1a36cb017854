"""`pdp grants export`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from pdp.cli.context import Composition, one_line_errors
from pdp.cli.grants_store import Progress, print_lines, read_store, store_options
from pdp.errors import InvalidArgument
from pdp.store.world_parser import is_yaml
from pdp.store.world_text import world_lines


@click.command("export")
@store_options
@click.argument("file", required=False)
@click.pass_obj
@one_line_errors
def export_world(composition: Composition, config: Path | None, overrides: tuple[str, ...], file: str | None) -> None:
    """Write all objects and grants as a world file, one entry a line, in order.

    FILE is JSON by its suffix .json, otherwise YAML; without one, JSON goes to stdout. Importing it into an empty
    store and exporting that gives the same bytes.
    """
    with Progress("reading the store") as progress:
        facts = read_store(composition, composition.settings(config, overrides))
        progress.say("writing")
        if file is None:
            print_lines(world_lines(facts))
        else:
            _write(Path(file), world_lines(facts, yaml=is_yaml(file)))


def _write(path: Path, lines: Iterable[str]) -> None:
    """The whole file or none of it, where there can be another one beside it."""
    beside = path.exists() and not path.is_file()
    target = path if beside else path.resolve().with_name(f"{path.resolve().name}.{os.getpid()}.part")
    try:
        with target.open("w", encoding="utf-8", newline="\n") as text:
            text.writelines(f"{line}\n" for line in lines)
        if not beside:
            target.replace(path.resolve())
    except OSError as error:
        raise InvalidArgument(f"cannot write `{path}`: {(error.strerror or str(error)).lower()}") from None
    finally:
        if not beside:
            target.unlink(missing_ok=True)
