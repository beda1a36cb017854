"""`pdp pipeline replay`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdp.cli.composition import Composition
from pdp.cli.dry_run import DIFFERENT, MultiValueCommand
from pdp.cli.dry_run_checks import parse_time
from pdp.cli.options import format_option
from pdp.cli.pipeline_options import lake_options, one_line_spark_errors, open_chosen_lake, stage_notices
from pdp.cli.progress import Progress
from pdp.errors import InvalidArgument

if TYPE_CHECKING:
    from pdp.lake.replay.replaying import ReplayResult


@click.command(cls=MultiValueCommand)
@lake_options
@click.option("--recorded", is_flag=True, help="Decide every check again at its recorded revision: no difference.")
@click.option("--candidate", multiple=True, metavar="FILE...", help="New policies: rules, a world, rows, a pdp.yaml.")
@click.option("--forbid-candidate", multiple=True, metavar="FILE...", help="New rule files that forbid.")
@click.option("--since", metavar="TIME", help="Only records from this time on, such as 2026-01-31T12:00Z.")
@click.option("--until", metavar="TIME", help="Only records before this time.")
@click.option("--principal", default="", help="Only checks about this principal.")
@click.option("--listings", is_flag=True, help="Also decide the checks of listings under a candidate.")
@click.option("--explain", is_flag=True, help="Print Spark's plan, and decide nothing.")
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def replay(
    composition: Composition, /, lake: str, config: Path | None, overrides: tuple[str, ...],
    properties: tuple[str, ...], form: str, **options: Any,
) -> None:  # fmt: skip
    """Decide the recorded checks of a lake again.

    With --recorded, each check is decided at its revision, by the policies and the grants that the lake has. With
    --candidate, files replace their kind of policies, and everything else stays as recorded: rules (.properties, or
    .yaml with `rules`), a world of grants (.json, or .yaml with `objects` or `grants`), row policies (.yaml with
    `tables`, `masks` or a list of `policies`), or all settings of a pdp.yaml but the grants.

    Prints who gains and who loses access, and writes the differences into the table `replay_differences`.

    Exits with 3 if a decision differs, else with 0.
    """
    candidates = options["candidate"] or options["forbid_candidate"]
    if bool(candidates) == options["recorded"]:
        raise InvalidArgument("give either --recorded or a --candidate: the new policies")
    since, until = parse_time(options["since"], "--since"), parse_time(options["until"], "--until")
    with Progress("starting Spark") as progress:
        opened = open_chosen_lake(composition, lake, config, overrides, properties)
        from pdp.cli.pipeline_candidates import read_candidate, reads_time  # noqa: PLC0415  help needs none of these
        from pdp.lake.replay.archive import read_archive  # noqa: PLC0415
        from pdp.lake.replay.questions import ReplayChoice  # noqa: PLC0415
        from pdp.lake.replay.replaying import LakeReplay, read_result  # noqa: PLC0415
        from pdp.lake.tables import RECORDED  # noqa: PLC0415
        from pdp.offline.replay.basis import AS_RECORDED  # noqa: PLC0415

        progress.say("reading policies and facts")
        archive = read_archive(opened)
        candidate, by_second = AS_RECORDED, False
        if candidates:
            files = options["candidate"], options["forbid_candidate"]
            candidate = read_candidate(composition, *files, archive.bundles)
            by_second = reads_time(composition, candidate, archive.bundles)
        listings = options["listings"] or options["recorded"]
        choice = ReplayChoice(
            since, until, options["principal"], listings, by_revision=not candidate.is_complete, by_second=by_second
        )
        names = ", ".join(Path(file).name for file in candidates) if candidates else RECORDED
        with LakeReplay(opened, archive, composition.rebuild_pdp, choice, candidate) as replaying:
            if options["explain"]:
                click.echo(replaying.plan())
                return
            result = read_result(replaying.save(names, stage_notices(progress, opened)))
    _print(result, form)
    raise SystemExit(DIFFERENT if result.totals.differs else 0)


def _print(result: ReplayResult, form: str) -> None:
    """Print a result; raise InvalidArgument for one without a check."""
    from pdp.cli.pipeline_replay_report import print_json, print_text  # noqa: PLC0415  help needs none

    if not (result.totals.decided or result.totals.undecidable):
        raise InvalidArgument("nothing to decide: the lake has no such records")
    print_json(result) if form == "json" else print_text(result)
    sys.stdout.flush()
