"""`pdp pipeline ingest`, `compact` and `expire`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from pdp.cli.lake.options import lake_options, one_line_spark_errors, open_chosen_lake
from pdp.cli.options import format_option, refuse_beside
from pdp.cli.progress import Progress
from pdp.cli.terminal import plural, visible
from pdp.cli.wiring import Wiring


@click.command()
@click.option(
    "--audit",
    "folders",
    required=True,
    multiple=True,
    metavar="DIR",
    help="Audit folder, also hdfs:// or s3a://. Can be repeated.",
)
@lake_options
@click.option("--once", is_flag=True, help="End when all files that are there now are in the lake.")
@click.option(
    "--late-days",
    type=click.IntRange(min=0),
    help="Put records into quarantine that are so many days older than the newest day in the lake. Default: take all.",
)
@click.option(
    "--bucket",
    type=click.Choice(["principal", "warehouse"]),
    default="principal",
    show_default=True,
    help="Column that buckets new tables of decisions.",
)
@click.option(
    "--batch-mib",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="MiB of files that go into the tables together.",
)
@click.option(
    "--interval",
    "interval_seconds",
    type=click.FloatRange(min=0),
    default=10,
    show_default=True,
    help="Seconds between two looks for new files.",
)
@click.option("--explain", is_flag=True, help="Print Spark's plan and write nothing.")
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def ingest(composition: Wiring, /, lake: str, config: Path | None, overrides: tuple[str, ...], **values: Any) -> None:
    """Write the audit of services into the tables of a lake.

    Takes complete files (`decisions-*.jsonl`, also .zst and .gz) while services write, each exactly once: the next run
    finishes a run that was killed. Lines that are malformed, late or duplicates go to the table `quarantine`.

    Without --once, the command waits for further files until it is interrupted.
    """
    from pdp.lake.ingest.ingest import AuditIngest, IngestOptions  # noqa: PLC0415  help needs none

    form, explain, properties = values.pop("form"), values.pop("explain"), values.pop("properties")
    if explain:
        refuse_beside("--explain", useless=("--format", "--once", "--interval"))
    if values["once"]:
        refuse_beside("--once", useless=("--interval",))
    with Progress("starting Spark") as progress:
        opened = open_chosen_lake(composition, lake, config, overrides, properties)
        run = AuditIngest(opened, IngestOptions(**values), progress.say, _note)
        if explain:
            click.echo(run.explain())
            return
        counts = run.run()
    if form == "json":
        fields = {name: getattr(counts, name) for name in ("ingested", "duplicates", "quarantined")}
        click.echo(msgspec.json.encode(fields).decode())
    else:
        click.echo(
            f"{counts.ingested:,} checks ingested, {counts.quarantined:,} lines in quarantine, of these "
            f"{counts.duplicates:,} duplicates"
        )


def _note(text: str) -> None:
    click.echo(f"pdp: {visible(text)}", err=True)


@click.command()
@lake_options
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def compact(
    composition: Wiring, /, lake: str, config: Path | None, overrides: tuple[str, ...], form: str, **values: Any
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


@click.command()
@lake_options
@click.option(
    "--keep-days", type=click.FloatRange(min=0), required=True, metavar="N", help="Keep snapshots of the last N days."
)
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def expire(
    composition: Wiring, /, lake: str, config: Path | None, overrides: tuple[str, ...], form: str, **values: Any
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
