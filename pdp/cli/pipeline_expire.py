"""`pdp pipeline expire`."""

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
@click.option(
    "--keep-days", type=click.FloatRange(min=0), required=True, metavar="N", help="Keep snapshots of the last N days."
)
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def expire(
    composition: Composition, /, lake: str, config: Path | None, overrides: tuple[str, ...], form: str, **values: Any
) -> None:
    """Remove old snapshots of a lake, and files that killed jobs have left.

    The rows stay: a snapshot is an older state of a table. Run this when no ingest runs.
    """
    from pdp.lake.ingest.upkeep import expire as remove_snapshots  # noqa: PLC0415  help needs none

    with Progress("starting Spark") as progress:
        opened = open_chosen_lake(composition, lake, config, overrides, values["properties"])
        counts = remove_snapshots(opened, values["keep_days"], progress.say)
    if form == "json":
        click.echo(msgspec.json.encode(counts).decode())
    else:
        click.echo(
            f"removed {plural(counts.snapshots, 'snapshot')} with {plural(counts.data_files, 'data file')}, and "
            f"{plural(counts.orphans, 'file')} of killed jobs"
        )
