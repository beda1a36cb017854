"""`pdp grants import`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from pdp.cli.change_report import ChangeReport, json_lines, summary, text_lines
from pdp.cli.context import Composition, one_line_errors
from pdp.cli.grants_store import Progress, actor, print_lines, store_options, writable
from pdp.config.settings import Settings
from pdp.errors import Unavailable
from pdp.facts.objects import Change
from pdp.store.import_plan import ImportStep, import_changes, plan_import
from pdp.store.store import EpochChanged
from pdp.store.world import read_world_file
from pdp.store.writer import Writer

CHUNK: Final = 5_000
"""Changes in one revision: others who write wait for it, and all who follow read it at once."""


@click.command("import")
@store_options
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Say what would change, and write nothing.")
@click.option("--prune", is_flag=True, help="Remove grants and registrations that the file does not have.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_obj
@one_line_errors
def import_world(
    composition: Composition, config: Path | None, overrides: tuple[str, ...], file: str, dry_run: bool, prune: bool,
    form: str,
) -> None:  # fmt: skip
    """Bring the objects and grants of a world file into the store.

    What is missing is added, what an entry says of an object holds from now on, and nothing else is touched. With
    --prune the store says what the file says and no more: an object's entry that leaves out a parent, managed access
    or an id takes it away. What is so already is not written; a second import writes nothing.

    FILE is JSON by its suffix .json, otherwise YAML. JSON output has every change, text the first few.
    """
    settings = writable(composition, config, overrides)
    with Progress("reading the file") as progress:
        world = read_world_file(file)
        progress.say("reading the store")
        if dry_run:
            facts = composition.read_facts(_without_seed(settings))
            report = ChangeReport.of_dry_run(import_changes(facts, world, prune=prune), facts)
        else:
            with composition.writing(settings, actor().name, seeded=False) as writer:
                report = _written(writer, plan_import(writer.facts, world, prune=prune), progress)
    nothing = f"nothing to change: the store has all of `{file}`{' and no more' if prune else ''}"
    conclusion = summary(report) if report.changes else nothing
    print_lines(json_lines(report) if form == "json" else text_lines(report, conclusion))


def _without_seed(settings: Settings) -> Settings:
    """An import into a store that was never written takes the place of the seed, which may have been revoked since."""
    return settings.model_copy(update={"store": settings.store.model_copy(update={"seed": None})})


def _written(writer: Writer, left: Sequence[ImportStep], progress: Progress) -> ChangeReport:
    """Write all that is to change, in revisions of a bearable size."""
    before = writer.facts
    made: list[Change] = []
    for start in range(0, len(left), CHUNK):
        progress.say(f"writing: {start:,} of {len(left):,} changes")
        try:
            made += writer.write_steps(left[start : start + CHUNK])
        except (Unavailable, EpochChanged) as error:
            raise _broken_off(error, len(made), writer.revision) from error
    return ChangeReport(made, before, writer.revision)


def _broken_off(error: Unavailable | EpochChanged, made: int, revision: str) -> Unavailable:
    """Where the work stopped; what is written stays, because another import goes on from there."""
    if not made:
        return Unavailable(str(error))
    return Unavailable(f"{error}; {made:,} changes are written, up to revision {revision}: import again for the rest")
