"""`pdp pipeline ingest`."""

from __future__ import annotations

from pathlib import Path

import click

from pdp.cli.composition import Composition
from pdp.cli.pipeline_options import lake_options, open_chosen_lake
from pdp.cli.terminal import one_line_errors


@click.command()
@lake_options
@click.pass_obj
@one_line_errors
def ingest(
    composition: Composition, /, lake: str, config: Path | None, overrides: tuple[str, ...], properties: tuple[str, ...]
) -> None:
    """Make the tables of the lake."""
    from pdp.pipeline.tables import TABLES  # noqa: PLC0415  help needs none

    open_chosen_lake(composition, lake, config, overrides, properties).create(TABLES.values())
