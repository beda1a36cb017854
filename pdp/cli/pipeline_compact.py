"""`pdp pipeline compact`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from pdp.cli.composition import Composition
from pdp.cli.options import format_option
from pdp.cli.pipeline_options import lake_options, one_line_spark_errors, open_chosen_lake
from pdp.cli.progress import Progress
from pdp.cli.terminal import plural


@click.command()
@lake_options
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def compact(
    composition: Composition, /, lake: str, config: Path | None, overrides: tuple[str, ...], form: str, **values: Any
) -> None:
    """Join the small files of a lake.

    Each batch of the ingest leaves a file in each partition. Run this once a day: queries open fewer files then.
    """
    from pdp.lake.ingest.upkeep import compact as join_files  # noqa: PLC0415  help needs none

    with Progress("starting Spark") as progress:
        opened = open_chosen_lake(composition, lake, config, overrides, values["properties"])
        counts = join_files(opened, progress.say)
    if form == "json":
        click.echo(msgspec.json.encode(counts).decode())
    else:
        click.echo(f"{plural(counts.rewritten, 'file')} joined to {counts.written:,}")
