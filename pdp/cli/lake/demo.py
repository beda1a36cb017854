"""`pdp pipeline demo`."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pdp.cli.lake.options import one_line_spark_errors, spark_properties
from pdp.cli.lake.report import print_report, write_report
from pdp.cli.options import format_option
from pdp.cli.terminal import plural, visible
from pdp.cli.wiring import Wiring
from pdp.errors import InvalidArgument

if TYPE_CHECKING:
    from pdp.lake.lake import Lake
    from pdp.lake.report.report import Report

_NOTE: Final = (
    "Demonstration: the month of a company that does not exist. A real service answered every request, with a clock of "
    "its own, so that a month passed in less than a minute."
)
_DAYS: Final = 14
"""Days without use: half of the month."""


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("pdp-demo"), show_default=True, metavar="DIR",
    help="New folder for the service, its audit, the lake and the report.",
)  # fmt: skip
@click.option("--seed", type=int, default=20, show_default=True, help="Seed of the month.")
@click.option(
    "--share", type=click.FloatRange(0.01, 20), default=1.0, show_default=True, help="Share of the usual work."
)
@click.option("--until", metavar="DATE", help="Last day of the month, such as 2026-10-31. Default: yesterday.")
@click.option("--spark", "properties", multiple=True, metavar="KEY=VALUE", help="Property of Spark. Can be repeated.")
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def demo(
    composition: Wiring, /, out: Path, seed: int, share: float, until: str | None, properties: tuple[str, ...],
    form: str,
) -> None:  # fmt: skip
    """Play a month of a small company, and report on it.

    Starts a service on loopback in a new folder, plays the requests of a month, brings the audit into a lake, decides
    the month again under candidate rules, and writes a report. The clock of the service is not the machine's, so the
    times of records are not real.

    After a failure, the folder stays, with the log of the service, and the next demo needs another folder.
    """
    folder = out.absolute()
    from pdp.lake.session import check_spark  # noqa: PLC0415  help needs none

    if folder.exists():
        raise InvalidArgument(f"`{out}` exists: name a new folder with --out, or remove this one")
    last = _day(until)
    check_spark()
    started = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - started:5.0f} s  {visible(text)}", err=True)

    try:
        _play(folder, last, (seed, share), say)
        lake = _lake(folder, properties, say)
        _ingest(lake, folder, say)
        _replay(composition, lake, folder, say)
        made = _report(lake, say)
        written = write_report(made, folder / "report.html", folder / "csv", folder / "json")
    except BaseException:
        if folder.exists():
            say(f"not finished: `{folder}` stays as it is")
        raise
    say("done")
    print_report(made, written, form)


def _day(text: str | None) -> date:
    if text is None:
        return datetime.now(UTC).date() - timedelta(days=1)
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"`--until {text}` is no date, such as 2026-10-31") from None


def _play(folder: Path, last: date, choice: tuple[int, float], say: Callable[[str], None]) -> None:
    """Play the month into a new folder. After a failure the folder stays, with the log of the service."""
    from pdp.lake.demo.company import read_company  # noqa: PLC0415  help needs none
    from pdp.lake.demo.month import DAYS, MonthPlan, month  # noqa: PLC0415
    from pdp.lake.demo.player import play  # noqa: PLC0415

    seed, share = choice
    first = last - timedelta(days=DAYS - 1)
    steps = month(read_company(), MonthPlan(first, seed, share))
    say(f"playing {len(steps):,} requests of {first} to {last} on a service in `{folder}`")
    played = play(steps, folder, lambda _: None)
    say(f"played {plural(played.requests, 'request')}, of which the service refused {played.refused:,}")


def _lake(folder: Path, properties: tuple[str, ...], say: Callable[[str], None]) -> Lake:
    from pdp.lake.lake import open_lake  # noqa: PLC0415
    from pdp.lake.session import folder_catalog  # noqa: PLC0415

    say("starting Spark")
    return open_lake(folder_catalog(str(folder / "lake")), spark_properties(properties))


def _ingest(lake: Lake, folder: Path, say: Callable[[str], None]) -> None:
    from pdp.lake.ingest.ingest import AuditIngest, IngestOptions  # noqa: PLC0415

    options = IngestOptions((str(folder / "audit"),), once=True)
    counts = AuditIngest(lake, options, lambda _: None, lambda _: None).run()
    say(f"ingested {plural(counts.ingested, 'check')} into the lake")


def _replay(composition: Wiring, lake: Lake, folder: Path, say: Callable[[str], None]) -> None:
    """Decide the month again under the candidate rules of the company."""
    from pdp.cli.lake.replay import read_candidate  # noqa: PLC0415
    from pdp.lake.replay.archive import read_archive  # noqa: PLC0415
    from pdp.lake.replay.questions import ReplayChoice  # noqa: PLC0415
    from pdp.lake.replay.replaying import LakeReplay, read_result  # noqa: PLC0415

    archive = read_archive(lake)
    file = str(folder / "candidate.properties")
    candidate = read_candidate(composition, (file,), (), archive.bundles)
    with LakeReplay(lake, archive, composition.rebuild_pdp, ReplayChoice(by_revision=True), candidate) as replaying:
        totals = read_result(replaying.save(Path(file).name)).totals
    changes = f"{totals.lost:,} lost, {totals.gained:,} gained"
    say(f"decided {plural(totals.decided, 'check')} again under {Path(file).name}: {changes}")


def _report(lake: Lake, say: Callable[[str], None]) -> Report:
    from pdp.lake.report.report import make_report  # noqa: PLC0415

    say("answering the questions of the report")
    return make_report(lake, _DAYS, lambda _: None, _NOTE)
